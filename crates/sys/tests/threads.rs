//! Threads outside glibc's knowledge: what works on them, and what they must not disturb.

use std::cell::Cell;
use std::ffi::c_void;
use std::fs;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use outpage_sys::futex::{self, Scope};
use outpage_sys::process;
use outpage_sys::raw::Errno;
use outpage_sys::thread::{self, Options, Thread};
use outpage_sys::{clock, fd};

const OPTIONS: Options = Options {
    name: c"outpage-test",
    stack_bytes: 64 << 10,
    share_files: false,
    process: false,
    untraced: false,
    known: false,
};

const KNOWN: Options = Options {
    known: true,
    ..OPTIONS
};

/// Runs `work` on a raw thread and returns what it returned. `work` itself was made by the creator.
fn on_raw_thread<T: Default + Send + 'static>(
    options: &Options,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    struct Job<W, T>(W, Arc<std::sync::Mutex<T>>);
    fn run<T, W: FnOnce() -> T>(job: Job<W, T>) {
        let result = (job.0)();
        // Nobody contends: the creator looks only after the end.
        *job.1.lock().unwrap() = result;
    }
    let place = Arc::new(std::sync::Mutex::new(T::default()));
    let thread = thread::spawn(run, Job(work, Arc::clone(&place)), options).unwrap();
    thread.join();
    std::mem::take(&mut *place.lock().unwrap())
}

/// A raw thread that sleeps until the word becomes 1.
fn sleeper(word: &'static AtomicU32) -> Thread {
    fn sleep(word: &'static AtomicU32) {
        while word.load(Ordering::Acquire) == 0 {
            futex::wait(word, 0, None, Scope::Process);
        }
    }
    thread::spawn(sleep, word, &OPTIONS).unwrap()
}

fn release(word: &'static AtomicU32) {
    word.store(1, Ordering::Release);
    futex::wake(word, u32::MAX, Scope::Process);
}

/// The libc `errno` of the calling thread.
fn errno() -> i32 {
    // SAFETY: always callable, returns the thread's own word.
    unsafe { *libc::__errno_location() }
}

#[test]
fn it_runs_as_a_thread_of_this_process() {
    let (tid, pid) = on_raw_thread(&OPTIONS, || (process::tid().0, process::pid()));
    assert_eq!(pid, std::process::id());
    assert!(tid != 0 && tid != process::tid().0);
}

#[test]
fn its_argument_is_moved_and_its_name_and_signals_are_set() {
    static WORD: AtomicU32 = AtomicU32::new(0);
    let thread = sleeper(&WORD);
    assert!(thread.is_alive());
    let task = format!("/proc/self/task/{}", thread.tid().0);
    // The name is set by the thread itself, some time after it was made.
    while fs::read_to_string(format!("{task}/comm")).unwrap().trim() != "outpage-test" {
        std::thread::yield_now();
    }
    let status = fs::read_to_string(format!("{task}/status")).unwrap();
    let blocked = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:\t"))
        .unwrap();
    // Signals 9 and 19 cannot be blocked.
    assert_eq!(
        u64::from_str_radix(blocked, 16).unwrap(),
        !(1 << 8 | 1 << 18)
    );
    release(&WORD);
    thread.join();
}

#[test]
fn its_creator_keeps_its_signal_mask() {
    let mask = || {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        status
            .lines()
            .find(|line| line.starts_with("SigBlk"))
            .unwrap()
            .to_owned()
    };
    let before = mask();
    on_raw_thread(&OPTIONS, || ());
    assert_eq!(mask(), before);
}

#[test]
fn errno_is_its_own() {
    // SAFETY: a failing call that touches no memory.
    let fail = || unsafe { libc::pread(-1, std::ptr::null_mut(), 0, 0) };
    // SAFETY: the creator's own word.
    unsafe { *libc::__errno_location() = 42 };
    let (fresh, after) = on_raw_thread(&OPTIONS, move || {
        let fresh = errno();
        assert_eq!(fail(), -1);
        (fresh, errno())
    });
    assert_eq!((fresh, after), (0, libc::EBADF));
    assert_eq!(errno(), 42);
}

#[test]
fn thread_locals_are_its_own_and_zero() {
    std::thread_local!(static LOCAL: Cell<usize> = const { Cell::new(0) });
    LOCAL.set(5);
    let seen = on_raw_thread(&OPTIONS, || {
        let seen = LOCAL.get();
        LOCAL.set(9);
        seen
    });
    assert_eq!((seen, LOCAL.get()), (0, 5));
}

#[test]
fn descriptors_opened_and_closed_there_are_not_here() {
    let here = fd::open(c"/dev/zero", libc::O_RDONLY).unwrap();
    let (number, kept) = (
        here.number(),
        fd::open(c"/dev/zero", libc::O_RDONLY).unwrap(),
    );
    let kept_number = kept.number();
    let (there, read_kept, read_closed) = on_raw_thread(&OPTIONS, move || {
        fd::close_all_except(&[kept_number]).unwrap();
        let there = fd::open(c"/proc/self/exe", libc::O_RDONLY)
            .unwrap()
            .release();
        let mut byte = [1];
        let read_kept = fd::read(kept_number, &mut byte);
        let read_closed = if there == number {
            Ok(0)
        } else {
            fd::read(number, &mut byte).map(drop).map(|()| 0)
        };
        (there, Some(read_kept), Some(read_closed))
    });
    assert!(there >= 0 && there != kept_number);
    assert_eq!(read_kept, Some(Ok(1)));
    assert!(read_closed == Some(Err(Errno::EBADF)) || there == number);
    assert_eq!(fd::read(here.number(), &mut [1]), Ok(1), "still open here");
}

#[test]
fn a_worker_can_share_its_creators_descriptors() {
    let number = on_raw_thread(&OPTIONS, || {
        // The worker belongs to the raw thread's table, which nobody else has.
        static OPENED: AtomicUsize = AtomicUsize::new(0);
        fn open(_: ()) {
            let file = fd::open(c"/dev/zero", libc::O_RDONLY).unwrap();
            OPENED.store(file.release() as usize, Ordering::Release);
        }
        let options = Options {
            name: c"worker",
            share_files: true,
            process: false,
            untraced: false,
            ..OPTIONS
        };
        thread::spawn(open, (), &options).unwrap().join();
        let number = OPENED.load(Ordering::Acquire) as i32;
        (number, Some(fd::read(number, &mut [1])))
    });
    assert_eq!(number.1, Some(Ok(1)));
}

#[test]
fn plain_libc_functions_work() {
    let checks = on_raw_thread(&OPTIONS, || {
        let (mut from, mut to, text) = ([0u8; 5000], [0u8; 5000], b"outpage\0");
        // SAFETY: both arrays have 5000 bytes; the string ends in a zero byte; the descriptor is closed.
        unsafe {
            libc::memset(from.as_mut_ptr().cast::<c_void>(), 7, 5000);
            libc::memcpy(to.as_mut_ptr().cast(), from.as_ptr().cast(), 5000);
            let same = libc::memcmp(to.as_ptr().cast(), from.as_ptr().cast(), 5000) == 0;
            let length = libc::strlen(text.as_ptr().cast());
            let file = libc::open(c"/proc/self/exe".as_ptr(), libc::O_RDONLY);
            let read = libc::pread(file, to.as_mut_ptr().cast(), 4, 0);
            libc::close(file);
            (
                same,
                length,
                read,
                to[..5] == *b"\x7fELF\x07",
                clock::now().0 > 0,
            )
        }
    });
    assert_eq!(checks, (true, 7, 4, true, true));
}

/// glibc's set*id functions signal every thread on its list and wait for each: a thread on the list
/// with all signals blocked would hang this test.
#[test]
fn glibc_does_not_know_it() {
    static WORD: AtomicU32 = AtomicU32::new(0);
    let thread = sleeper(&WORD);
    // SAFETY: sets the group that is set already.
    assert_eq!(unsafe { libc::setgid(libc::getgid()) }, 0);
    assert!(thread.is_alive());
    release(&WORD);
    thread.join();
}

#[test]
fn it_outlives_the_thread_that_made_it() {
    static WORD: AtomicU32 = AtomicU32::new(0);
    static SEEN: AtomicU32 = AtomicU32::new(0);
    fn work(_: ()) {
        while WORD.load(Ordering::Acquire) == 0 {
            futex::wait(&WORD, 0, None, Scope::Process);
        }
        // SAFETY: a failing call that touches no memory.
        unsafe { libc::close(-1) };
        SEEN.store(errno() as u32, Ordering::Release);
    }
    let creator = std::thread::spawn(|| thread::spawn(work, (), &OPTIONS).unwrap());
    let thread = creator.join().unwrap();
    release(&WORD);
    thread.join();
    assert_eq!(SEEN.load(Ordering::Acquire), libc::EBADF as u32);
}

#[test]
fn a_known_thread_may_use_the_heap_and_thread_locals_and_has_its_own_descriptors() {
    std::thread_local!(static TEXT: std::cell::RefCell<String> = std::cell::RefCell::new("local".into()));
    let (text, signals, of_pager, bare, closed) = on_raw_thread(&KNOWN, || {
        let text = TEXT.with_borrow(|text| format!("{text} {:?}", std::thread::current().id()));
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let blocked = status
            .lines()
            .find_map(|line| line.strip_prefix("SigBlk:\t"));
        // SAFETY: closes a descriptor of this thread's own table.
        let closed = unsafe { libc::close(0) };
        (
            text,
            blocked.unwrap_or_default().to_owned(),
            thread::is_pagers(),
            thread::is_bare(),
            closed,
        )
    });
    assert!(text.starts_with("local"), "{text}");
    // All but SIGKILL and SIGSTOP, and the two that glibc sends to its own threads.
    assert_eq!(signals, "fffffffe7ffbfeff");
    assert!(of_pager && !bare && !thread::is_pagers());
    assert_eq!(closed, 0);
    assert!(fs::read_link("/proc/self/fd/0").is_ok());
}

#[test]
fn a_known_thread_is_over_when_it_was_joined() {
    static WORD: AtomicU32 = AtomicU32::new(0);
    fn sleep(word: &'static AtomicU32) {
        while word.load(Ordering::Acquire) == 0 {
            futex::wait(word, 0, None, Scope::Process);
        }
    }
    let thread = thread::spawn(sleep, &WORD, &KNOWN).unwrap();
    assert!(thread.is_alive() && process::has_thread(thread.tid()));
    let tid = thread.tid();
    release(&WORD);
    thread.join_out_of_group();
    assert!(!process::has_thread(tid));
}

#[test]
fn an_argument_larger_than_half_the_stack_is_refused() {
    fn work(_: [u64; 1000]) {}
    let options = Options {
        stack_bytes: 8192,
        ..OPTIONS
    };
    assert_eq!(
        thread::spawn(work, [0; 1000], &options).unwrap_err(),
        Errno::EINVAL
    );
}

#[test]
fn a_large_aligned_argument_arrives_whole() {
    #[repr(align(128))]
    struct Large([u64; 500]);
    static SUM: AtomicUsize = AtomicUsize::new(0);
    fn work(large: Large) {
        let aligned = (&raw const large).addr().is_multiple_of(128);
        SUM.store(
            large.0.iter().sum::<u64>() as usize + usize::from(aligned),
            Ordering::Release,
        );
    }
    thread::spawn(work, Large([3; 500]), &OPTIONS)
        .unwrap()
        .join();
    assert_eq!(SUM.load(Ordering::Acquire), 1501);
}

/// What code in a shared library does to reach its thread-locals: module 1 is this program.
#[test]
fn glibc_finds_its_thread_locals_in_its_own_block() {
    unsafe extern "C" {
        fn __tls_get_addr(index: *const [usize; 2]) -> *mut u8;
    }
    std::thread_local!(static LOCAL: Cell<usize> = const { Cell::new(0) });
    fn distance() -> isize {
        // SAFETY: module 1 exists, and a thread-local makes sure that it has a block.
        let block = unsafe { __tls_get_addr(&[1, 0]) }.addr();
        let local = LOCAL.with(|local| core::ptr::from_ref(local).addr());
        block as isize - local as isize
    }
    assert_eq!(on_raw_thread(&OPTIONS, distance), distance());
}

/// Not needed by the pager, but a panic there must end in a message and not in a hang.
#[test]
fn the_standard_library_survives() {
    let text = on_raw_thread(&OPTIONS, || {
        let map: std::collections::HashMap<_, _> = (0..100).map(|n| (n, n.to_string())).collect();
        let caught = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(7u8)));
        let payload = *caught.unwrap_err().downcast::<u8>().unwrap();
        format!("{} {} {payload}", map.len(), map[&42])
    });
    assert_eq!(text, "100 42 7");
}

/// A file that may be executed, and cannot be.
fn no_program() -> fs::File {
    // SAFETY: a name; what comes of it is nobody else's.
    let written = unsafe {
        let number = libc::memfd_create(c"no-program".as_ptr(), 0);
        assert!(number >= 0);
        fs::File::from_raw_fd(number)
    };
    (&written)
        .write_all(b"nothing that can be executed\n")
        .unwrap();
    // Nobody may have it open for writing.
    fs::File::open(format!("/proc/self/fd/{}", written.as_raw_fd())).unwrap()
}

/// The kernel refuses new threads while one executes a program; where that cannot be executed they go on together. In a process of its own: other tests
/// would not get their threads either.
#[test]
fn a_thread_begins_although_another_is_executing_a_program() {
    const ALONE: &str = "OUTPAGE_TEST_ALONE";
    const NAME: &str = "a_thread_begins_although_another_is_executing_a_program";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let done = alone.args(["--exact", NAME]).env(ALONE, "1").output();
        let done = done.unwrap();
        assert!(done.status.success(), "{done:?}");
        return;
    }
    static OVER: AtomicU32 = AtomicU32::new(0);
    let program = no_program();
    let tries = std::thread::spawn(move || {
        let list = [c"no-program".as_ptr(), std::ptr::null()];
        while OVER.load(Ordering::Acquire) == 0 {
            // SAFETY: an open file and lists as execve(2) wants them; it fails (`ENOEXEC`).
            unsafe { libc::fexecve(program.as_raw_fd(), list.as_ptr(), list[1..].as_ptr()) };
        }
    });
    for _ in 0..1_000 {
        for options in [&OPTIONS, &KNOWN] {
            thread::spawn(|()| {}, (), options).unwrap().join();
        }
    }
    OVER.store(1, Ordering::Release);
    tries.join().unwrap();
}
