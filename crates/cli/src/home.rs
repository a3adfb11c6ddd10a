//! The home of a run's shared memory: a process beside the program (`outpage_engine::home`). As the keeper it is a copy of the launcher.

use std::ffi::CString;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::AsRawFd;

use outpage_engine::config::Config;
use outpage_engine::session::SessionPaths;
use outpage_sys::fd::{self, Fd};
use outpage_sys::{clock, launch, libc, process, socket};

use crate::error::CliError;

/// Connections that may wait: processes that are forked connect themselves by no name. A choice.
const WAITING: u32 = 64;

/// Descriptors that it may have, as far as it is let: two a process and one an object, and more than a session has members. A choice.
const DESCRIPTORS: u64 = 1 << 16;

/// A home that was started.
pub struct Home {
    /// Its process.
    pub pid: u32,
    /// It listens by this name.
    pub name: CString,
    /// It ends when nobody has this open any more, and no process any shared memory.
    pub lifeline: PipeWriter,
}

/// Starts the home of a session, whose memfd and swap file have these numbers in this process; `device` is /dev/userfaultfd, where it is open.
///
/// # Errors
/// [`OS`](crate::error::code::OS).
pub fn start(config: Config, file: i32, swap: i32, device: Option<i32>) -> Result<Home, CliError> {
    const START: &str = "start the home of shared memory";
    let name = format!("outpage-{}-{:x}", process::pid(), clock::now().0);
    let listener = socket::listen_by_name(name.as_bytes(), WAITING);
    let listener = listener.map_err(|e| CliError::os(START, e))?;
    let (ends, lifeline) = std::io::pipe().map_err(|e| CliError::os(START, e))?;
    let live = || keep(&config, [file, swap], device, &listener, &ends);
    let pid = launch::fork(live).map_err(|e| CliError::os(START, e))?;
    let name = CString::new(name).map_err(|e| CliError::os(START, e))?;
    Ok(Home {
        pid,
        name,
        lifeline,
    })
}

/// The life of the home; returns its exit code.
fn keep(
    config: &Config,
    [file, swap]: [i32; 2],
    device: Option<i32>,
    listener: &Fd,
    ends: &PipeReader,
) -> u8 {
    let kept = [file, swap, listener.number(), ends.as_raw_fd()];
    let kept: Vec<i32> = kept.into_iter().chain(device).collect();
    let alone = fd::close_all_except(&kept);
    // Later descriptors must not become standard streams. They take the lowest numbers.
    let streams: Vec<_> = (0..3)
        .filter_map(|_| fd::open(c"/dev/null", libc::O_RDWR).ok())
        .collect();
    let _ = launch::new_session();
    launch::write_large_files();
    let _ = std::env::set_current_dir("/");
    let path = |number: i32| CString::new(format!("/proc/self/fd/{number}")).ok();
    let paths = SessionPaths {
        session: path(file),
        swap: path(swap),
        uffd_device: device,
        keeper: None,
        home: None,
    };
    let done = alone.is_ok()
        && process::with_descriptors(DESCRIPTORS, || {
            outpage_engine::home::keep(config, &paths, listener.number(), ends.as_raw_fd()).is_ok()
        });
    drop(streams);
    u8::from(!done)
}
