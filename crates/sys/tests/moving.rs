//! `Uffd::move_run` against everything that stops a move.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::{World, next_fault, peek, poke};
use outpage_core::units::PAGE_BYTES;
use outpage_sys::fd;
use outpage_sys::map;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::MoveOutcome::{Absent, Busy, Changing, Exists, Moved, Refused};
use outpage_sys::uffd::{Features, MoveMode, Stop};

#[test]
fn pages_move_out_and_back_with_their_content() {
    let Some(world) = World::new(8) else { return };
    world.fill(8);
    assert_eq!(world.out(0), [Moved; 8]);
    for index in 0..8 {
        assert!(world.pagemap.page(world.page(index)).unwrap().empty());
        assert_eq!(peek(world.frame(index) + PAGE_BYTES - 1), index as u8 + 1);
    }
    assert_eq!(world.back(0), [Moved; 8]);
    for index in 0..8 {
        assert!(world.pagemap.page(world.frame(index)).unwrap().empty());
        assert_eq!(peek(world.page(index)), index as u8 + 1);
    }
}

#[test]
fn holes_are_reported_and_passed_over() {
    let Some(world) = World::new(6) else { return };
    world.fill(6);
    for index in [0, 3, 5] {
        map::release(world.page(index), PAGE_BYTES).unwrap();
    }
    assert_eq!(world.out(0), [Absent, Moved, Moved, Absent, Moved, Absent]);
}

#[test]
fn a_read_only_touched_page_moves_as_zeroes() {
    let Some(world) = World::new(2) else { return };
    assert_eq!(
        world.uffd.zeropage(world.page(0), 2 * PAGE_BYTES).stop,
        None
    );
    assert_eq!((world.out(0), peek(world.frame(1))), ([Moved; 2], 0));
}

#[test]
fn a_page_at_the_destination_stops_one_page_only() {
    let Some(world) = World::new(4) else { return };
    world.fill(4);
    poke(world.frame(2), 77);
    let how = MoveMode::default();
    let direct = world
        .uffd
        .move_pages(world.frame(2), world.page(2), PAGE_BYTES, how);
    assert_eq!((direct.bytes, direct.stop), (0, Some(Stop::Exists)));
    assert_eq!(world.out(0), [Moved, Moved, Exists, Moved]);
    assert_eq!((peek(world.frame(2)), peek(world.page(2))), (77, 3));
}

/// What the kernel's uncounted round looks like afterwards: the call says `EEXIST`, the page has moved.
#[test]
fn a_page_that_is_already_at_the_destination_counts_as_moved() {
    let Some(world) = World::new(3) else { return };
    world.fill(3);
    assert_eq!(world.out::<1>(1), [Moved]);
    let direct = world.uffd.move_pages(
        world.frame(1),
        world.page(1),
        PAGE_BYTES,
        MoveMode::default(),
    );
    assert_eq!((direct.bytes, direct.stop), (0, Some(Stop::Exists)));
    assert_eq!(world.out(0), [Moved; 3]);
    assert_eq!(peek(world.frame(1)), 2);
}

#[test]
fn a_mapping_with_another_protection_stops_its_own_pages_only() {
    let Some(world) = World::new(16) else { return };
    world.fill(16);
    map::mprotect(world.page(5), 2 * PAGE_BYTES, libc::PROT_READ).unwrap();
    let mut expected = [Moved; 16];
    expected[5..7].fill(Refused(Errno::EINVAL));
    assert_eq!(world.out(0), expected);
    assert_eq!((peek(world.page(5)), peek(world.frame(15))), (6, 16));
    map::mprotect(
        world.page(5),
        2 * PAGE_BYTES,
        libc::PROT_READ | libc::PROT_WRITE,
    )
    .unwrap();
    assert_eq!(world.out::<2>(5), [Moved; 2]);
}

#[test]
fn a_mapping_that_was_split_moves_as_a_whole() {
    let Some(world) = World::new(16) else { return };
    world.fill(16);
    // What mbind and prctl do to a program's ranges: same rights, separate mappings.
    if map::set_name(world.page(3), 4 * PAGE_BYTES, c"part").is_err() {
        map::madvise(world.page(3), 4 * PAGE_BYTES, libc::MADV_DONTDUMP).unwrap();
    }
    let direct = world.uffd.move_pages(
        world.frame(0),
        world.page(0),
        16 * PAGE_BYTES,
        MoveMode::default(),
    );
    assert_eq!(
        (direct.bytes, direct.stop),
        (0, Some(Stop::BadRange)),
        "the kernel refuses the run"
    );
    assert_eq!(world.out(0), [Moved; 16]);
    assert_eq!(world.back(0), [Moved; 16]);
    assert_eq!((peek(world.page(3)), peek(world.page(15))), (4, 16));
}

#[test]
fn locked_pages_are_refused() {
    let Some(world) = World::new(4) else { return };
    world.fill(4);
    if let Err(error) = map::mlock(world.page(1), PAGE_BYTES, false) {
        return common::skipped(&format!("mlock: {error}"));
    }
    assert_eq!(world.out(0), [Moved, Refused(Errno::EINVAL), Moved, Moved]);
    map::munlock(world.page(1), PAGE_BYTES).unwrap();
}

#[test]
fn pages_pinned_by_io_uring_are_busy() {
    let Some(world) = World::new(3) else { return };
    world.fill(3);
    let mut params = [0u64; 15];
    // SAFETY: the kernel reads and writes 120 bytes of parameters.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
    if ring < 0 {
        return common::skipped(&format!(
            "io_uring_setup: {}",
            std::io::Error::last_os_error()
        ));
    }
    let buffer = libc::iovec {
        iov_base: world.page(1) as *mut _,
        iov_len: PAGE_BYTES,
    };
    /// `IORING_REGISTER_BUFFERS` and `IORING_UNREGISTER_BUFFERS` (include/uapi/linux/io_uring.h).
    const REGISTER: i32 = 0;
    const UNREGISTER: i32 = 1;
    let register = |what: i32, argument: *const libc::iovec, count: u32| {
        // SAFETY: the kernel reads `count` vectors at `argument`.
        unsafe { libc::syscall(libc::SYS_io_uring_register, ring, what, argument, count) }
    };
    assert_eq!(register(REGISTER, &raw const buffer, 1), 0);
    assert_eq!(world.out(0), [Moved, Busy, Moved]);
    assert_eq!(register(UNREGISTER, std::ptr::null(), 0), 0);
    // The kernel may let go a moment later than it says.
    while world.out::<1>(1) != [Moved] {
        thread::yield_now();
    }
    drop(fd::Fd::adopt(ring as i32));
}

/// What lies at an address when a page is taken from it is what lay there when the address was looked up.
#[test]
fn nothing_leaves_from_where_something_else_was_moved_meanwhile() {
    let events = Features::EVENT_REMAP.plus(Features::EVENT_UNMAP);
    let Some(world) = World::told_of(events, 8) else {
        return;
    };
    world.fill(8);
    let (place, moved) = (world.page(0), world.page(4));
    let len = 4 * PAGE_BYTES;
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // Nothing is unmapped: a free place inside the area could become that of another test.
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
            map::mremap(moved, len, len, flags, place)
        });
        while !world.pagemap.page(moved).unwrap().empty() || !world.uffd.is_changing(place) {
            thread::yield_now();
        }
        let meanwhile = world.out(0);
        let disturbed = world.uffd.is_disturbed(place);
        while !thread.is_finished() {
            world.uffd.let_change_pass();
        }
        assert_eq!(thread.join().unwrap(), Ok(place));
        assert_eq!((meanwhile, disturbed), ([Changing; 4], true));
    });
    // Nor while nobody has attended to it, though the kernel would.
    assert_eq!(world.out(0), [Changing; 4]);
    while world.uffd.next_change().is_some() {}
    assert_eq!(world.out(0), [Moved; 4]);
    assert_eq!(peek(world.frame(3)), 8);
}

#[test]
fn unregistered_destinations_are_refused_page_by_page() {
    let Some(world) = World::new(3) else { return };
    world.fill(3);
    world
        .uffd
        .unregister(world.frames.start(), world.frames.len())
        .unwrap();
    let report = world.out::<3>(0);
    assert!(
        report.iter().all(|outcome| matches!(outcome, Refused(_))),
        "{report:?}"
    );
    assert_eq!(peek(world.page(2)), 3);
}

/// Threads count in the program's pages while another moves them out and serves the faults.
#[test]
fn no_update_is_lost_while_pages_come_and_go() {
    const PAGES: usize = 48;
    const WRITERS: usize = 3;
    const ROUNDS: u64 = 60;
    const MOVES: u64 = 400;
    let Some(world) = World::new(PAGES) else {
        return;
    };
    world.fill(PAGES);
    for index in 0..PAGES {
        // SAFETY: inside the program's area, to which there is no reference.
        unsafe { (world.page(index) as *mut u8).write_bytes(0, PAGE_BYTES) };
    }
    let start = world.program.start();
    let counter = |page: usize, writer: usize| {
        let address = start + page * PAGE_BYTES + (writer * 8 + page * 64) % PAGE_BYTES;
        // SAFETY: aligned, inside the area, accessed only as an atomic.
        unsafe { AtomicU64::from_ptr(address as *mut u64) }
    };
    let (stop, moved_out) = (AtomicBool::new(false), AtomicU64::new(0));
    let (counts, _world): (Vec<u64>, World) = thread::scope(|threads| {
        let (ended, moves) = (&stop, &moved_out);
        let pager = threads.spawn(move || {
            let _loud = AbortOnPanic;
            serve_and_evict(&world, ended, moves);
            world
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (counter, moved_out) = (&counter, &moved_out);
                threads.spawn(move || {
                    let mut rounds = 0;
                    while rounds < ROUNDS || moved_out.load(Ordering::Relaxed) < MOVES {
                        for page in 0..PAGES {
                            counter(page, writer).fetch_add(1, Ordering::Relaxed);
                        }
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        let counts = writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect();
        stop.store(true, Ordering::Relaxed);
        (counts, pager.join().unwrap())
    });
    for (writer, rounds) in counts.into_iter().enumerate() {
        for page in 0..PAGES {
            assert_eq!(
                counter(page, writer).load(Ordering::Relaxed),
                rounds,
                "page {page}"
            );
        }
    }
}

/// Ends the test instead of leaving the writers waiting for a pager that is gone.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

/// Moves runs of 16 pages out in turn and single pages back on demand; all are back at the end.
fn serve_and_evict(world: &World, stop: &AtomicBool, moved_out: &AtomicU64) {
    const RUN: usize = 16;
    let pages = world.program.len() / PAGE_BYTES;
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        world.uffd.gather().unwrap();
        while let Some(fault) = world.uffd.next_fault() {
            let index = (fault.address - world.program.start()) / PAGE_BYTES;
            let [outcome] = world.back::<1>(index);
            if outcome != Moved {
                // Another thread's fault on the page was served first.
                assert!(matches!(outcome, Absent | Exists), "{outcome:?}");
                world.uffd.wake(world.page(index), PAGE_BYTES).unwrap();
            }
        }
        let first = turn * RUN % pages;
        turn += 1;
        let report = world.out::<RUN>(first);
        assert!(
            report
                .iter()
                .all(|outcome| matches!(outcome, Moved | Absent)),
            "{report:?}"
        );
        let moved = report.iter().filter(|&&outcome| outcome == Moved).count();
        moved_out.fetch_add(moved as u64, Ordering::Relaxed);
    }
    for index in 0..pages {
        let [outcome] = world.back::<1>(index);
        assert!(matches!(outcome, Moved | Absent | Exists), "{outcome:?}");
    }
}

#[test]
fn a_fault_is_served_by_a_move() {
    let Some(world) = World::new(1) else { return };
    world.fill(1);
    assert_eq!(world.out(0), [Moved]);
    thread::scope(|threads| {
        let page = world.page(0);
        let reader = threads.spawn(move || peek(page));
        next_fault(&world.uffd);
        assert_eq!(world.back(0), [Moved]);
        assert_eq!(reader.join().unwrap(), 1);
    });
}
