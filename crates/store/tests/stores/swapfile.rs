//! Swap files: where they may lie, what they are, and what they say when they cannot be.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::common::*;
use outpage_core::units::PAGE_BYTES;
use outpage_store::*;

const MIB: u64 = 1 << 20;

fn metadata(file: &SwapFile) -> fs::Metadata {
    fs::metadata(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

fn flags(fd: i32) -> i32 {
    // SAFETY: no memory is involved.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }
}

#[test]
fn is_private_nameless_direct_and_closed_on_exec() {
    let file = swap_file(16);
    let metadata = metadata(&file);
    assert_eq!(
        (metadata.mode() & 0o777, metadata.nlink(), metadata.len()),
        (0o600, 0, 0)
    );
    let direct = flags(file.as_raw_fd()) & libc::O_DIRECT != 0;
    assert_eq!(
        direct,
        file.direct(),
        "the field tells what the kernel does"
    );
    if matches!(file.filesystem(), Filesystem::Ext | Filesystem::Xfs) {
        assert!(direct, "{} has direct I/O", file.filesystem());
        assert_eq!(file.warnings().count(), 0);
    }
    // SAFETY: no memory is involved.
    let on_exec = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(on_exec & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
}

#[test]
fn nobody_can_give_it_a_name() {
    let file = swap_file(1);
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let place = tempfile::tempdir_in(directory()).unwrap();
    let to = CString::new(place.path().join("name").into_os_string().into_vec()).unwrap();
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both strings live through the call.
    let linked = unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow) };
    assert_eq!(linked, -1);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_that_cannot_be_used_is_named_with_a_remedy() {
    let missing = directory().join("no such directory");
    let error = SwapFile::create_in(&missing, MIB).unwrap_err();
    assert!(
        matches!(&error, SwapFileError::Missing(dir) if *dir == missing),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("no such directory") && text.contains("make it"),
        "{text}"
    );
    let error = SwapFile::create_in(Path::new("/proc/self/stat"), MIB).unwrap_err();
    assert!(
        matches!(error, SwapFileError::NotADirectory(_)),
        "{error:?}"
    );

    let removed = tempfile::tempdir_in(directory()).unwrap();
    let open = File::open(removed.path()).unwrap();
    removed.close().unwrap();
    let inside = format!("/proc/self/fd/{}", open.as_raw_fd());
    let error = SwapFile::create_in(Path::new(&inside), MIB).unwrap_err();
    assert!(matches!(error, SwapFileError::Missing(_)), "{error:?}");
}

#[test]
fn memory_is_no_place_for_a_swap_file() {
    let shm = Path::new("/dev/shm");
    let Ok(probe) = tempfile::tempfile_in(shm) else {
        return skip("swap file on tmpfs: /dev/shm cannot be written");
    };
    match SwapFile::create_in(shm, MIB) {
        Err(error @ SwapFileError::InMemory(..)) => {
            let text = error.to_string();
            assert!(
                text.contains("/dev/shm") && text.contains("tmpfs"),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
    let error = SwapFile::from_fd(probe.into(), MIB).unwrap_err();
    assert!(
        matches!(error, SwapFileError::InMemory(_, Filesystem::Tmpfs)),
        "{error:?}"
    );
}

#[test]
fn an_inherited_descriptor_must_be_a_file() {
    for path in ["/dev/null", "."] {
        let fd = OwnedFd::from(File::open(path).unwrap());
        let error = SwapFile::from_fd(fd, MIB).unwrap_err();
        assert!(
            matches!(error, SwapFileError::NotAFile(_)),
            "{path}: {error:?}"
        );
    }
    let file = tempfile::tempfile_in(directory()).unwrap();
    let copy = file.try_clone().unwrap();
    assert_eq!(flags(copy.as_raw_fd()) & libc::O_DIRECT, 0);
    let swap = SwapFile::from_fd(file.into(), 3 * PAGE_BYTES as u64 + 1).unwrap();
    assert_eq!(
        (swap.capacity_slots(), swap.cap_bytes()),
        (3, 3 * PAGE_BYTES as u64)
    );
    assert_eq!(flags(copy.as_raw_fd()) & libc::O_DIRECT != 0, swap.direct());
}

#[test]
fn preallocation_grows_the_file_and_takes_blocks() {
    let file = SwapFile::create_in(&directory(), 8 * MIB).unwrap();
    let allocation = file.preallocate(0..2 * MIB).unwrap();
    assert_eq!(metadata(&file).len(), 2 * MIB);
    file.preallocate(2 * MIB..8 * MIB).unwrap();
    file.preallocate(MIB..3 * MIB).unwrap();
    assert_eq!(metadata(&file).len(), 8 * MIB);
    match allocation {
        Allocation::Reserved => assert!(metadata(&file).blocks() * 512 >= 8 * MIB),
        Allocation::Unsupported => skip("reserved blocks: the file system cannot"),
    }
    assert_eq!(file.preallocate(5..5).unwrap(), Allocation::Reserved);
}

#[test]
fn the_cap_holds() {
    let file = SwapFile::create_in(&directory(), 2 * MIB).unwrap();
    let error = file.preallocate(MIB..2 * MIB + 1).unwrap_err();
    assert!(matches!(error, SwapFileError::TooLarge { cap_bytes, .. } if cap_bytes == 2 * MIB));
    assert_eq!(metadata(&file).len(), 0);
}

#[test]
fn a_huge_cap_does_not_name_the_slot_that_is_none() {
    let file = SwapFile::create_in(&directory(), u64::MAX).unwrap();
    assert_eq!(file.capacity_slots(), u32::MAX - 1);
}

#[test]
fn a_file_that_ends_within_a_page_is_an_error_there() {
    for backend in [Backend::Uring, Backend::Pool] {
        let file = swap_file(8);
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let choice = Choice::Only(backend);
        let mut store = open(file, choice, Config::default(), Box::new(StdSpawner)).unwrap();
        let pages = Pages::new(8);
        (0..8).for_each(|n| pages.set(n, &page(n.into())));
        carry_out(&mut store, Direction::PageOut, 0, &pages.frames(0..4)).unwrap();
        let cut = fs::OpenOptions::new().write(true).open(path).unwrap();
        cut.set_len(2 * PAGE_BYTES as u64 + 1000).unwrap();
        let error = carry_out(&mut store, Direction::PageIn, 0, &pages.frames(4..8)).unwrap_err();
        assert_eq!(
            (error.cause, error.bytes_done),
            (Cause::EndOfStore, 2 * PAGE_BYTES as u64)
        );
        assert!(error.to_string().contains("truncated"), "{error}");
        assert!(pages.get(4) == page(0) && pages.get(5) == page(1));
    }
}

#[test]
fn what_the_probe_promises_can_be_opened() {
    let probe = probe();
    for (backend, found) in [(Backend::Uring, probe.uring), (Backend::Pool, probe.pool)] {
        let choice = Choice::Only(backend);
        let store = open(
            swap_file(1),
            choice,
            Config::default(),
            Box::new(StdSpawner),
        );
        assert_eq!(store.err(), found.err());
    }
    if let Err(error) = probe.uring {
        skip(&error.to_string());
    }
    assert_eq!(probe.pool, Ok(()));
}

#[test]
fn another_threads_ring_fails_requests_instead_of_losing_them() {
    let mut store = UringStore::new(swap_file(8), Config::default()).unwrap();
    let pages = Pages::new(2);
    carry_out(&mut store, Direction::PageOut, 0, &pages.frames([0])).unwrap();
    let frames = pages.frames([1]);
    let elsewhere = std::thread::scope(|scope| {
        scope
            .spawn(|| carry_out(&mut store, Direction::PageOut, 1, &frames))
            .join()
            .unwrap()
    });
    // Kernels before 6.0 do not mind.
    if let Err(error) = elsewhere {
        assert_eq!(error.errno(), Some(libc::EEXIST));
        let again = carry_out(&mut store, Direction::PageOut, 2, &frames);
        assert_eq!(
            again.unwrap_err().errno(),
            Some(libc::EEXIST),
            "given up for good"
        );
    }
    drop(store);
}
