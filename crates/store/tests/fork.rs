//! A store across fork: child and parent go on, each with its own requests, on one swap file.
//!
//! Without the test harness, so that the process that forks has one thread (but for the pool's).

mod common;

use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use common::stores::*;
use common::*;
use outpage_store::*;

const CONFIG: Config = Config {
    depth: 8,
    request_pages_max: 64,
};

/// Runs `child` in a forked child; panics unless it returns.
fn forked(child: impl FnOnce()) -> impl FnOnce() {
    // SAFETY: no other thread of this process holds a lock that the child takes; the pool's workers
    // never allocate.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: ends the child without the parent's exit handlers and destructors.
        unsafe { libc::_exit(i32::from(result.is_err())) }
    }
    move || {
        let mut status = 0;
        // SAFETY: the status lives through the call.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0, "the child failed");
    }
}

/// Writes slots, then forks with requests in flight.
fn both_go_on(mut store: Box<dyn SwapStore>) {
    let pages = Pages::new(64);
    (0..16).for_each(|n| pages.set(n, &page(n.into())));
    carry_out(&mut store, Direction::PageOut, 0, &pages.frames(0..8)).unwrap();
    for n in 0..4 {
        let frames = pages.frames(8 + n * 2..10 + n * 2);
        store
            .submit(&request(n.into(), Direction::PageOut, 8 + n * 2, &frames))
            .unwrap();
    }
    let wait = forked(|| {
        store.reopen_after_fork(Descriptors::Copied).unwrap();
        assert_eq!(
            (store.in_flight(), store.poll(&mut Vec::with_capacity(8))),
            (0, 0)
        );
        read_and_write(&mut store, &pages, 100);
        // A grandchild, with requests of the child in flight.
        store
            .submit(&request(1, Direction::PageOut, 30, &pages.frames([0])))
            .unwrap();
        let wait = forked(|| {
            store.reopen_after_fork(Descriptors::Copied).unwrap();
            read_and_write(&mut store, &pages, 110);
        });
        wait();
        assert_eq!(collect(&mut store, 1)[0].token, Token(1));
    });
    wait();
    assert_eq!(
        store.in_flight(),
        4,
        "the parent's requests are still its own"
    );
    assert!(collect(&mut store, 4).iter().all(|c| c.result.is_ok()));
    carry_out(&mut store, Direction::PageIn, 8, &pages.frames(32..40)).unwrap();
    assert!((0..8).all(|n| pages.get(32 + n) == page(u64::from(n) + 8)));
    if store.carried_fd().is_some() {
        carry_out(&mut store, Direction::PageIn, 100, &pages.frames(32..44)).unwrap();
        assert!(
            [0, 1, 10, 11]
                .into_iter()
                .all(|n| pages.get(32 + n) == page(77))
        );
    }
}

/// Reads what the parent wrote before the fork, writes two slots from `start` on.
fn read_and_write(store: &mut Box<dyn SwapStore>, pages: &Pages, start: u32) {
    carry_out(store, Direction::PageIn, 0, &pages.frames(20..28)).unwrap();
    assert!((0..8).all(|n| pages.get(20 + n) == page(n.into())));
    (50..52).for_each(|n| pages.set(n, &page(77)));
    carry_out(store, Direction::PageOut, start, &pages.frames(50..52)).unwrap();
}

/// A child whose table of descriptors is not the store's: the old numbers are other files there.
fn old_numbers_belong_to_others(mut store: Box<dyn SwapStore>) {
    let pages = Pages::new(64);
    (0..8).for_each(|n| pages.set(n, &page(n.into())));
    carry_out(&mut store, Direction::PageOut, 0, &pages.frames(0..8)).unwrap();
    let file = store.carried_fd();
    let numbers: Vec<_> = file.into_iter().chain(store.wake_fd()).collect();
    let wait = forked(|| {
        // SAFETY: the child arranges its own table; the store is told.
        let (swap, others) = unsafe {
            let swap = libc::fcntl(file.unwrap_or(0), libc::F_DUPFD_CLOEXEC, 200);
            let null = File::open("/dev/null").unwrap().into_raw_fd();
            numbers
                .iter()
                .for_each(|&number| assert_eq!(libc::dup2(null, number), number));
            (OwnedFd::from_raw_fd(swap), null)
        };
        store
            .reopen_after_fork(Descriptors::Replaced(swap))
            .unwrap();
        read_and_write(&mut store, &pages, 100);
        let null = std::fs::read_link(format!("/proc/self/fd/{others}")).unwrap();
        for number in &numbers {
            let link = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
            assert_eq!(link, null, "descriptor {number} was closed or replaced");
        }
        drop(store);
    });
    wait();
}

each_store!(swap_stores);

fn main() {
    for (name, make) in swap_stores() {
        both_go_on(make(256, CONFIG));
        println!("test both_go_on ({name}) ... ok");
    }
    for (name, make) in swap_stores() {
        old_numbers_belong_to_others(make(256, CONFIG));
        println!("test old_numbers_belong_to_others ({name}) ... ok");
    }
}
