//! What the pager's own thread has to say.

use outpage_sys::{fd, process};

/// Says `parts` on the program's standard error and kills the process.
pub fn die(parts: &[&str]) -> ! {
    say(parts);
    process::die(&[])
}

/// Says `parts` on the program's standard error, as one line.
///
/// The pager's thread has a descriptor table of its own, without the program's descriptors: a
/// pipe that the program closed must not stay open because of its pager. So the program's standard
/// error is opened anew.
pub fn say(parts: &[&str]) {
    let path = format!("/proc/{}/fd/2\0", process::pid());
    let file = std::ffi::CStr::from_bytes_with_nul(path.as_bytes())
        .ok()
        .and_then(|path| fd::open(path, libc::O_WRONLY | libc::O_CLOEXEC | libc::O_NOCTTY).ok());
    if let Some(file) = file {
        let text: String = parts.concat() + "\n";
        let _ = fd::write(file.number(), text.as_bytes());
    }
}
