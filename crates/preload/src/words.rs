//! Words of memory that the kernel changes for futex(2).
//!
//! To look at a word the kernel brings its page back. To change one it does not wait for a page that is out, and says `EFAULT` (`fault_in_user_writeable` in
//! kernel/futex/core.c, Linux 6.18). So where it says that, the page is brought in as a write would, and it is asked again.

use core::ffi::c_int;

use outpage_core::units::PAGE_BYTES;

use crate::raw;

/// A page may leave again before the kernel comes to it. A choice: that it does so often is beyond chance.
const TRIES: usize = 64;

/// Operations of linux/futex.h that libc has no name for.
const FUTEX_LOCK_PI2: c_int = 13;

/// The argument that names the word which the operation changes; `None` where it changes none.
const fn changed(operation: usize) -> Option<usize> {
    match operation as c_int & libc::FUTEX_CMD_MASK {
        libc::FUTEX_LOCK_PI | libc::FUTEX_UNLOCK_PI | libc::FUTEX_TRYLOCK_PI | FUTEX_LOCK_PI2 => {
            Some(0)
        }
        libc::FUTEX_WAKE_OP | libc::FUTEX_WAIT_REQUEUE_PI | libc::FUTEX_CMP_REQUEUE_PI => Some(4),
        _ => None,
    }
}

/// Brings the page of `word` in as a write to it would, changing nothing; whether it can be written.
fn bring(word: usize) -> bool {
    let page = word & !(PAGE_BYTES - 1);
    let populate = libc::MADV_POPULATE_WRITE as usize;
    // SAFETY: contents stay as they are.
    unsafe { raw::call(libc::SYS_madvise, [page, PAGE_BYTES, populate, 0, 0, 0]) == 0 }
}

/// futex(2).
///
/// # Safety
/// The program's own call.
pub unsafe fn futex(args: [usize; 6]) -> isize {
    let mut tries = TRIES;
    loop {
        // SAFETY: the caller's.
        let result = unsafe { raw::call(libc::SYS_futex, args) };
        tries -= 1;
        let word = changed(args[1]).filter(|_| result == -(libc::EFAULT as isize) && tries > 0);
        if !word.is_some_and(|word| bring(args[word])) {
            return result;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_the_kernels_to_refuse() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping replaces nothing.
        let at = unsafe { raw::mmap(0, PAGE_BYTES, libc::PROT_READ, flags, -1, 0) };
        assert!(at > 0, "{at}");
        let lock = |word: usize| {
            let operation = (libc::FUTEX_TRYLOCK_PI | libc::FUTEX_PRIVATE_FLAG) as usize;
            // SAFETY: the word is nobody's, or none.
            unsafe { futex([word, operation, 0, 0, 0, 0]) }
        };
        let refused = -(libc::EFAULT as isize);
        assert_eq!([lock(at as usize), lock(8)], [refused; 2]);
        let mut word = 0_u32;
        assert_eq!(lock(&raw mut word as usize), 0);
        // SAFETY: the calling thread's number.
        assert_eq!(word, unsafe { libc::gettid() } as u32);
    }

    #[test]
    fn of_what_changes_no_word_nothing_is_brought() {
        let private = libc::FUTEX_PRIVATE_FLAG;
        for operation in [libc::FUTEX_WAIT, libc::FUTEX_WAKE, libc::FUTEX_WAIT_BITSET] {
            assert_eq!(changed((operation | private) as usize), None);
        }
        assert_eq!(changed((libc::FUTEX_WAKE_OP | private) as usize), Some(4));
        assert_eq!(changed(FUTEX_LOCK_PI2 as usize), Some(0));
    }
}
