//! `/dev/userfaultfd`, opened with whatever rights the launcher was started with.

use outpage_sys::fd::{self, Fd};
use outpage_sys::{launch, libc};

/// Opens the device, if it may be opened; then gives up capabilities that this file's owner added.
///
/// `setcap cap_dac_override=ep outpage` lets every user page without owning the device: the right
/// serves this one call, made before anything of the user's is looked at.
pub fn open_privileged() -> Option<Fd> {
    let device = fd::open(c"/dev/userfaultfd", libc::O_RDWR).ok();
    if launch::has_file_capabilities(c"/proc/self/exe") && launch::drop_capabilities().is_err() {
        eprintln!("outpage: cannot give up the capabilities of this file");
        std::process::abort();
    }
    device
}
