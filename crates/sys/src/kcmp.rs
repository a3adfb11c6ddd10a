//! What two tasks have in common (kcmp(2), `CONFIG_KCMP`).

use core::cmp::Ordering;

use crate::raw::{Errno, syscall5};

/// How the memory of the task with number `one` lies to that of `other` in an order that holds as long as both live: `Equal` where it is the same. A first thread that has
/// ended has no memory, as kernel threads have none.
///
/// # Errors
/// Those of kcmp(2): `EPERM` where the caller may not look into both, `ESRCH`, `ENOSYS`.
pub fn memory(one: u32, other: u32) -> Result<Ordering, Errno> {
    /// Of include/uapi/linux/kcmp.h.
    const KCMP_VM: usize = 1;
    let (one, other) = (one as usize, other as usize);
    // SAFETY: takes numbers only.
    match unsafe { syscall5(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) }? {
        0 => Ok(Ordering::Equal),
        1 => Ok(Ordering::Less),
        _ => Ok(Ordering::Greater),
    }
}
