use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::thread;

use outpage_engine::session::SessionPaths;

use super::*;
use crate::mode::Mode;
use crate::mode::tests::InMode;
use crate::{raw, statm};

const MIB: u64 = 1 << 20;

/// This process in direct mode, with room for `room` bytes more than the kernel counts.
fn with_room(room: u64) -> InMode {
    let mode = InMode::new(Mode::Direct);
    let used = private_writable_bytes().expect("statm");
    share::set_up(used + room, &SessionPaths::default());
    start();
    mode
}

fn charged(bytes: u64) -> bool {
    let mode::Path::Direct(at_work) = mode::enter() else {
        panic!("not in direct mode");
    };
    charge(&at_work, bytes)
}

/// Writable private memory, as a hook maps it; of the file `file`, or of none (-1).
fn map(bytes: u64, file: i32) -> usize {
    let kind = if file < 0 { libc::MAP_ANONYMOUS } else { 0 };
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_NORESERVE,
    );
    // SAFETY: a fresh mapping replaces nothing.
    let at = unsafe { raw::mmap(0, bytes as usize, prot, flags | kind, file, 0) };
    assert!(at > 0, "mmap: {at}");
    at as usize
}

fn unmap(at: usize, bytes: u64) {
    // SAFETY: mapped by the test, which is done with it.
    assert_eq!(unsafe { raw::munmap(at, bytes as usize) }, 0);
}

#[test]
fn a_request_that_is_refused_takes_no_room_from_later_ones() {
    let _mode = with_room(256 * MIB);
    assert!(charged(MIB));
    assert!(!charged(1 << 40));
    assert!(charged(MIB), "there is room for this one");
    assert!(reserved_bytes() > 0);
}

#[test]
fn what_was_unmapped_is_room_again() {
    let _mode = with_room(256 * MIB);
    for round in 0..20 {
        assert!(charged(128 * MIB), "round {round}");
        unmap(map(128 * MIB, -1), 128 * MIB);
    }
}

/// The sum of what hooks map between them fits, in whatever order they come.
#[test]
fn threads_that_map_at_once_never_get_more_than_the_room() {
    const PIECE: u64 = 4 * MIB;
    let _mode = with_room(512 * MIB);
    let limit = private_writable_bytes().expect("statm") + 512 * MIB;
    let pieces = Mutex::new(Vec::new());
    let too_much = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let mode::Path::Direct(at_work) = mode::enter() else {
                        panic!("not in direct mode");
                    };
                    if !charge(&at_work, PIECE) {
                        return;
                    }
                    let at = map(PIECE, -1);
                    drop(at_work);
                    let mut pieces = pieces.lock().expect("not poisoned");
                    pieces.push(at);
                    if pieces.len() as u64 * PIECE > limit {
                        too_much.store(true, Ordering::SeqCst);
                        return;
                    }
                }
            });
        }
    });
    let pieces = pieces.into_inner().expect("not poisoned");
    let mapped = pieces.len() as u64 * PIECE;
    pieces.iter().for_each(|&at| unmap(at, PIECE));
    assert!(!too_much.load(Ordering::SeqCst), "no end");
    // Other tests map something as well, and unmap it.
    assert!((256 * MIB..=640 * MIB).contains(&mapped), "{mapped} bytes");
}

/// Two hooks that counted and did not map yet must not both be told that the room is theirs.
#[test]
fn bytes_that_others_are_about_to_map_count() {
    let _mode = with_room(256 * MIB);
    let (mode::Path::Direct(first), mode::Path::Direct(second)) = (mode::enter(), mode::enter())
    else {
        panic!("not in direct mode");
    };
    assert!(charge(&first, 192 * MIB));
    assert!(
        !charge(&second, 192 * MIB),
        "the first has not mapped it yet"
    );
    second.announce(0);
    drop(first);
    assert!(charge(&second, 192 * MIB), "the first gave it up");
}

/// Private pages of a file are the file's until they are written: only the exact look leaves them out.
#[test]
fn pages_of_files_count_only_until_the_list_of_mappings_is_read() {
    const BYTES: u64 = 2048 * MIB;
    let _mode = with_room(256 * MIB);
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"x").expect("written");
    let mut buffer = vec![0; LIST_BYTES];
    let before = (private_writable_bytes(), anonymous_bytes(&mut buffer, 0));
    let at = map(BYTES, file.as_raw_fd());
    let after = (private_writable_bytes(), anonymous_bytes(&mut buffer, 0));
    assert!(after.0 > before.0.map(|bytes| bytes + BYTES / 2));
    assert!(after.1 < before.1.map(|bytes| bytes + BYTES / 2));
    assert!(charged(MIB), "it fits by the exact figure");
    unmap(at, BYTES);
}

/// As a write barrier of a collector does it.
#[test]
fn what_was_written_and_protected_counts_until_it_is_unmapped() {
    const BYTES: u64 = 192 * MIB;
    let _mode = with_room(256 * MIB);
    for prot in [libc::PROT_READ, libc::PROT_NONE] {
        assert!(charged(BYTES));
        let at = map(BYTES, -1);
        // SAFETY: it was just mapped, and nobody else knows of it.
        unsafe { core::ptr::with_exposed_provenance_mut::<u8>(at).write_bytes(1, BYTES as usize) };
        assert_eq!(crate::memory::mprotect(at, BYTES as usize, prot), 0);
        assert!(!charged(BYTES), "two of them do not fit");
        unmap(at, BYTES);
        assert!(charged(BYTES), "there is one");
    }
}

/// As reserved address space is.
#[test]
fn what_was_protected_and_never_written_does_not_count() {
    const BYTES: u64 = 192 * MIB;
    let _mode = with_room(256 * MIB);
    let at = map(BYTES, -1);
    assert_eq!(
        crate::memory::mprotect(at, BYTES as usize, libc::PROT_NONE),
        0
    );
    assert!(charged(BYTES));
    unmap(at, BYTES);
}

#[test]
fn the_child_of_a_fork_counts_from_what_it_has() {
    let _mode = with_room(256 * MIB);
    assert!(charged(MIB));
    restart_in_child();
    assert_eq!((reserved_bytes(), counted_bytes()), (0, UNKNOWN));
    assert!(charged(MIB));
    let used = private_writable_bytes().expect("statm");
    assert!(
        counted_bytes() < used + 128 * MIB,
        "the truth, not a bound above all"
    );
    assert!(!charged(1 << 40));
}

/// The memory is its parent's, whose next hook counts.
#[test]
fn the_child_of_a_vfork_is_not_refused() {
    let _mode = with_room(0);
    PROCESS.store(process::pid() + 1, Ordering::SeqCst);
    assert!(charged(1 << 40));
    assert!(counted_bytes() >= 1 << 40);
}

#[test]
fn recounts_take_turns_and_no_handler_comes_between() {
    static DONE: AtomicU64 = AtomicU64::new(0);
    let _mode = with_room(0);
    let torn = AtomicBool::new(false);
    locked(|buffer| buffer.fill(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    locked(|buffer| {
                        let whole = buffer[..64].iter().all(|&byte| byte == buffer[0]);
                        torn.fetch_or(!whole, Ordering::SeqCst);
                        let next = buffer[0].wrapping_add(1);
                        buffer[..64].fill(next);
                        // Two stores, not one addition: whoever comes between is seen.
                        let before = DONE.load(Ordering::Relaxed);
                        thread::yield_now();
                        DONE.store(before + 1, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert!(!torn.load(Ordering::SeqCst), "two at once in the buffer");
    assert_eq!(DONE.load(Ordering::Relaxed), 2_000);
    assert!(locked(|_| raw::tests::blocked()).contains(&libc::SIGTERM));
}

#[test]
fn without_a_session_there_is_nothing_to_give_back() {
    let _mode = with_room(MIB);
    assert!(GivenBack::before(libc::AT_FDCWD, c"/bin/sh".as_ptr(), 0).is_none());
    assert!(refusal().is_none());
}

#[test]
fn what_is_touched_is_counted_and_what_is_only_mapped_is_not() {
    const BYTES: u64 = 64 * MIB;
    let before = statm::touched_pages();
    let at = map(BYTES, -1);
    let pages = BYTES / PAGE_BYTES as u64;
    assert!(statm::touched_pages() < before + pages / 2);
    // SAFETY: it was just mapped, and nobody else knows of it.
    unsafe { core::ptr::with_exposed_provenance_mut::<u8>(at).write_bytes(1, BYTES as usize) };
    assert!(statm::touched_pages() >= before + pages * 3 / 4);
    // SAFETY: as above.
    assert_eq!(unsafe { raw::munmap(at, BYTES as usize) }, 0);
}
