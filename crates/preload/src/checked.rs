//! The program's own pointers, looked at before they are followed.
//!
//! Where a call is given an address at which nothing lies, the kernel says `EFAULT`. A hook that reads such a place
//! itself would end the program by SIGSEGV instead, so it asks the kernel first, and leaves a bad place to the call.
//! What another thread unmaps between the question and the look is lost natively as well, to one side or the other.

use core::ffi::{CStr, c_char};

use outpage_core::units::PAGE_BYTES;

use crate::raw;

const IN_PAGE: usize = PAGE_BYTES - 1;

/// Looks at memory page by page, and asks once for neighbours in one page.
#[derive(Default)]
pub struct Reader {
    /// The page that was asked for last and can be read; page 0 never can.
    known: usize,
}

impl Reader {
    fn page(&mut self, page: usize) -> bool {
        if page != self.known && raw::is_readable(page) {
            self.known = page;
        }
        page != 0 && page == self.known
    }

    /// Whether all of `[at, at + len)` can be read. A system call for each page.
    pub fn covers(&mut self, at: usize, len: usize) -> bool {
        let Some(end) = at.checked_add(len) else {
            return false;
        };
        let mut pages = (at & !IN_PAGE..end).step_by(PAGE_BYTES);
        pages.all(|page| self.page(page))
    }

    /// The value at `at`; `None` where some of it cannot be read.
    pub fn value<T: Copy>(&mut self, at: usize) -> Option<T> {
        if !self.covers(at, size_of::<T>()) {
            return None;
        }
        // SAFETY: it can be read; callers ask for numbers and pointers, which any bytes are.
        Some(unsafe { (at as *const T).read_unaligned() })
    }

    /// The string at `at`, its end left out; `None` where it cannot be read to its end.
    ///
    /// # Safety
    /// Whoever called the hook leaves it as it is while the result is used.
    pub unsafe fn string<'a>(&mut self, at: *const c_char) -> Option<&'a [u8]> {
        let mut from = at as usize;
        loop {
            if !self.page(from & !IN_PAGE) {
                return None;
            }
            let left = PAGE_BYTES - (from & IN_PAGE);
            // SAFETY: to the end of a page that can be read.
            let bytes = unsafe { core::slice::from_raw_parts(from as *const u8, left) };
            if bytes.contains(&0) {
                // SAFETY: it can be read up to its end.
                return Some(unsafe { CStr::from_ptr(at) }.to_bytes());
            }
            from = from.checked_add(left)?;
        }
    }
}

/// The end of a program's addresses (`TASK_SIZE_MAX` of arch/x86/include/asm/page_64.h with four levels of page tables, Linux 6.18).
const USER_END: usize = (1 << 47) - PAGE_BYTES;

/// Whether a part of a program's own memory may be where it says: of a list the kernel looks at all parts first, empty ones too, and has `EFAULT` for
/// the call before anything is done (`access_ok` in lib/iov_iter.c).
pub fn may_lie_at(part: &libc::iovec) -> bool {
    let end = (part.iov_base as usize).checked_add(part.iov_len);
    end.is_some_and(|end| end <= USER_END)
}

/// Whether a number can be written at `at`, as the kernel finds: it writes one there, of a CPU (getcpu(2), `EFAULT`).
///
/// Not by a futex's operations, which change nothing: they do not wait for a page that is out, and fail (`fault_in_user_writeable` in
/// kernel/futex/core.c, Linux 6.18).
pub fn takes_number(at: usize) -> bool {
    // SAFETY: the kernel writes one number where the program has named a place for one, or says that it cannot.
    at != 0 && unsafe { raw::call(libc::SYS_getcpu, [at, 0, 0, 0, 0, 0]) } == 0
}

/// Writes a number where the program said, as the kernel does: not at all where it cannot be.
pub fn store(at: usize, value: i32) {
    if takes_number(at) {
        // SAFETY: it can be written, and the program named it for this.
        unsafe { (at as *mut i32).write_unaligned(value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages, of which the second is not there.
    fn page_and_hole() -> usize {
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a fresh mapping replaces nothing, and its second half is given back.
        unsafe {
            let at = raw::mmap(0, 2 * PAGE_BYTES, prot, flags, -1, 0);
            assert!(at > 0, "{at}");
            raw::munmap(at as usize + PAGE_BYTES, PAGE_BYTES);
            at as usize
        }
    }

    #[test]
    fn what_runs_into_a_hole_cannot_be_read() {
        let at = page_and_hole();
        let hole = at + PAGE_BYTES;
        let mut reader = Reader::default();
        assert!(reader.covers(at, PAGE_BYTES) && !reader.covers(at, PAGE_BYTES + 1));
        assert!(!reader.covers(hole, 1) && !reader.covers(0, 8) && !reader.covers(usize::MAX, 2));
        assert_eq!(reader.value::<u64>(hole - 8), Some(0));
        assert_eq!(reader.value::<u64>(hole - 7), None);
        assert_eq!(reader.value::<u64>(usize::MAX - 3), None);
    }

    #[test]
    fn a_string_is_read_to_its_end_or_not_at_all() {
        let at = page_and_hole();
        let mut reader = Reader::default();
        let mut string = |from: usize| {
            // SAFETY: nobody else knows the pages.
            unsafe { reader.string(from as *const c_char) }.map(<[u8]>::len)
        };
        // SAFETY: the last bytes of the page that is there.
        unsafe { ((at + PAGE_BYTES - 4) as *mut [u8; 4]).write(*b"abc\0") };
        assert_eq!(string(at + PAGE_BYTES - 4), Some(3));
        // SAFETY: as above.
        unsafe { ((at + PAGE_BYTES - 4) as *mut [u8; 4]).write(*b"abcd") };
        assert_eq!(string(at + PAGE_BYTES - 4), None);
        assert_eq!(string(at + PAGE_BYTES), None);
        assert_eq!(string(8), None);
    }

    #[test]
    fn a_number_is_stored_where_it_can_be_written_only() {
        let at = page_and_hole();
        store(at, -1);
        store(at + 9, 7);
        for place in [0, 8, at + PAGE_BYTES] {
            store(place, 1);
        }
        // SAFETY: the page that is there; then nobody writes to it.
        unsafe {
            assert_eq!((at as *const i32).read(), -1);
            assert_eq!(((at + 9) as *const i32).read_unaligned(), 7);
            assert_eq!(
                raw::call(
                    libc::SYS_mprotect,
                    [at, PAGE_BYTES, libc::PROT_READ as usize, 0, 0, 0]
                ),
                0
            );
        }
        assert!(Reader::default().covers(at, 4) && !takes_number(at));
        store(at, 2);
    }
}
