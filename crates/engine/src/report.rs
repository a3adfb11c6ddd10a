//! What the pager's own thread has to say.

use outpage_sys::{process, say};

/// Says `parts` on the program's standard error and kills the process.
pub fn die(parts: &[&str]) -> ! {
    say(parts);
    process::kill()
}

/// Says `parts` on the program's standard error, as one line.
///
/// The pager's thread has a descriptor table of its own, without the program's descriptors: a
/// pipe that the program closed must not stay open because of its pager.
pub fn say(parts: &[&str]) {
    say::say_for_main(parts);
}
