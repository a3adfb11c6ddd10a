//! No room: a file size limit (any user), a tiny disk (root).
//!
//! Limits and mounts belong to a process, so each test runs the inner one of its name in a child. The
//! mount lives in a mount namespace of that child and goes with it, however it ends.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::*;
use outpage_core::units::PAGE_BYTES;
use outpage_store::*;

const PAGE: u64 = PAGE_BYTES as u64;

/// Tells the inner test its directory.
const PLACE: &str = "OUTPAGE_TEST_TINY_DISK";

fn inner(name: &str, mut before: Command) -> Command {
    before.arg(std::env::current_exe().unwrap());
    before.args([
        name,
        "--exact",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    before
}

/// Whether the inner test was there and succeeded: of none that has the name, all succeed.
fn succeeded(output: &Output) -> bool {
    let told = String::from_utf8_lossy(&output.stdout);
    output.status.success() && told.contains("1 passed")
}

fn stores(slots: u32, place: &Path) -> impl Iterator<Item = Box<dyn SwapStore>> {
    [Backend::Uring, Backend::Pool]
        .into_iter()
        .map(move |backend| {
            let file = SwapFile::create_in(place, u64::from(slots) * PAGE).unwrap();
            let choice = Choice::Only(backend);
            open(file, choice, Config::default(), Box::new(StdSpawner)).unwrap()
                as Box<dyn SwapStore>
        })
}

#[test]
fn a_file_size_limit_ends_a_page_out_at_the_last_page_that_fits() {
    // Through pipes: the limit would end writes to a log that is a long file already.
    let output = inner("no_space::inner_file_size_limit", Command::new("env"))
        .output()
        .unwrap();
    assert!(succeeded(&output), "{output:?}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn inner_file_size_limit() {
    let limit = libc::rlimit {
        rlim_cur: 10 * PAGE,
        rlim_max: 10 * PAGE,
    };
    // SAFETY: a structure that lives through the call; the signal's default action would kill.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
    for mut store in stores(64, &directory()) {
        let pages = Pages::new(16);
        (0..8).for_each(|n| pages.set(n, &page(n.into())));
        let frames = pages.frames([0, 2, 3, 4]);
        let error = carry_out(&mut store, Direction::PageOut, 8, &frames).unwrap_err();
        // The kernel wrote two pages, and refused the rest when it was asked to go on.
        assert_eq!(
            (error.errno(), error.bytes_done),
            (Some(libc::EFBIG), 2 * PAGE)
        );
        assert!(
            error.is_no_space() && error.to_string().contains("ulimit -f"),
            "{error}"
        );
        carry_out(&mut store, Direction::PageIn, 8, &pages.frames([9, 8])).unwrap();
        assert!(pages.get(9) == page(0) && pages.get(8) == page(2));
        let growth = store.reserve(slots(0, 20)).unwrap_err();
        assert!(
            matches!(growth.cause, ReserveCause::TooLarge { .. }),
            "{growth:?}"
        );
    }
}

#[test]
fn a_full_disk_is_reported_and_what_is_there_stays_readable() {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--"]);
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return skip("a full disk: needs root, for a mount");
    }
    // Made and removed out here, where the mount is not seen.
    let place = tempfile::tempdir_in(directory()).unwrap();
    match inner("no_space::inner_full_disk", unshare)
        .env(PLACE, place.path())
        .output()
    {
        Ok(output) if succeeded(&output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            text.lines()
                .filter_map(|line| line.strip_prefix("SKIPPED: "))
                .for_each(skip);
        }
        Ok(output) => panic!("{output:?}"),
        Err(error) => skip(&format!("a full disk: unshare(1): {error}")),
    }
}

/// An ext4 of 8 MiB, mounted for this process only.
fn tiny_disk(place: &Path) -> bool {
    let image = place.join("image");
    File::create(&image).unwrap().set_len(8 << 20).unwrap();
    let run = |command: &mut Command| match command.output() {
        Ok(output) if output.status.success() => true,
        other => {
            skip(&format!("a full disk: {command:?}: {other:?}"));
            false
        }
    };
    let mut mkfs = Command::new("mkfs.ext4");
    let mut mount = Command::new("mount");
    run(mkfs
        .args(["-q", "-O", "^has_journal", "-m", "0"])
        .arg(&image))
        && run(mount.args(["-o", "loop"]).args([&image, place]))
}

#[test]
#[ignore = "run by the test above, in a namespace of its own"]
fn inner_full_disk() {
    let place = PathBuf::from(std::env::var_os(PLACE).expect("set by the test above"));
    let place = place.as_path();
    if !tiny_disk(place) {
        return;
    }
    for mut store in stores(4096, place) {
        let pages = Pages::new(1024);
        (0..1024).for_each(|n| pages.set(n, &page(n.into())));
        let frames = pages.frames(0..1024);
        let mut refused = || store.reserve(slots(0, 4096)).unwrap_err();
        let error = refused();
        let ReserveCause::NoSpace { available_bytes } = error.cause else {
            panic!("{error:?}")
        };
        assert!((4 << 20..8 << 20).contains(&available_bytes), "{error:?}");
        assert_eq!((error.slots, error.bytes()), (slots(0, 4096), 16 << 20));
        assert_eq!(refused(), error, "all was given back");
        let file = SwapFile::create_in(place, 4096 * PAGE).unwrap();
        let text = file.preallocate(0..16 << 20).unwrap_err().to_string();
        assert!(text.contains(&place.display().to_string()), "{text}");
        drop(file);

        carry_out(&mut store, Direction::PageOut, 0, &frames).unwrap();
        let error = carry_out(&mut store, Direction::PageOut, 1024, &frames).unwrap_err();
        assert!(
            error.is_no_space() && error.errno() == Some(libc::ENOSPC),
            "{error:?}"
        );
        let fitted = (error.bytes_done / PAGE) as u32;
        assert!(fitted < 1024);
        (0..1024).for_each(|n| pages.set(n, &page(9999)));
        carry_out(&mut store, Direction::PageIn, 0, &frames).unwrap();
        assert!((0..1024).all(|n| pages.get(n) == page(n.into())));
        if fitted > 0 {
            carry_out(
                &mut store,
                Direction::PageIn,
                1024,
                &frames[..fitted as usize],
            )
            .unwrap();
            assert!((0..fitted).all(|n| pages.get(n) == page(n.into())));
        }
    }
    let remounted = Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(place)
        .status();
    assert!(remounted.unwrap().success());
    let error = SwapFile::create_in(place, PAGE).unwrap_err();
    assert!(matches!(error, SwapFileError::ReadOnly(_)), "{error:?}");
}
