//! `/dev/userfaultfd`, opened with whatever rights the launcher was started with.

use outpage_sys::fd::{self, Fd};
use outpage_sys::{launch, libc};

use crate::message;

/// Opens the device for a program that could not; then gives up capabilities that this file's owner added.
/// `None` where nobody may open it, or the program may: it would see a descriptor that is not its own.
///
/// `setcap cap_dac_override=ep outpage` lets every user page without owning the device: the right
/// serves this one call, made before anything of the user's is looked at.
pub fn open_privileged() -> Option<Fd> {
    let open = || fd::open(c"/dev/userfaultfd", libc::O_RDWR).ok();
    let device = open();
    if launch::has_file_capabilities(c"/proc/self/exe") && launch::drop_capabilities().is_err() {
        message::line(format_args!(
            "outpage: cannot give up the capabilities of this file"
        ));
        std::process::abort();
    }
    match open() {
        Some(_) => None,
        None => device,
    }
}
