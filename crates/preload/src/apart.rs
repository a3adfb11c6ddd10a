//! Work of a moment's that needs descriptors: in the program's table nothing is to appear.

use core::ffi::CStr;

use outpage_sys::fd;
use outpage_sys::raw::Errno;
use outpage_sys::thread::{self, Options};

/// What asks the session or the home needs less than 8 KiB, and what ends in an error too; a page table's worth is free.
const STACK_BYTES: usize = 64 << 10;

/// Work on its way to the thread, and the place of what comes of it.
struct Errand<W, T> {
    work: W,
    kept: Option<i32>,
    result: *mut Option<Result<T, Errno>>,
}

// SAFETY: whoever made it waits until the thread has ended, and looks at the result only then.
unsafe impl<W: Send, T: Send> Send for Errand<W, T> {}

/// Carries out `work` in a thread named `name`, which has a descriptor table of its own and in it the program's descriptor `kept`, if any, alone.
///
/// # Errors
/// Those of beginning a thread and of close_range(2).
pub fn carry_out<T: Send + 'static, W: FnOnce() -> T + Send + 'static>(
    name: &'static CStr,
    kept: Option<i32>,
    work: W,
) -> Result<T, Errno> {
    let mut result = None;
    let errand = Errand {
        work,
        kept,
        result: &raw mut result,
    };
    let options = Options {
        name,
        stack_bytes: STACK_BYTES,
        share_files: false,
        process: false,
        untraced: true,
        known: false,
    };
    thread::spawn(run::<W, T>, errand, &options)?.join_out_of_group();
    result.unwrap_or(Err(Errno::EAGAIN))
}

/// The thread.
fn run<W: FnOnce() -> T, T>(errand: Errand<W, T>) {
    // Whatever the program closes meanwhile would stay open here.
    let closed = fd::close_all_except(errand.kept.as_slice());
    let done = closed.map(|()| (errand.work)());
    // SAFETY: the place of the result outlives this thread, and nobody looks there meanwhile.
    unsafe { errand.result.write(Some(done)) };
}
