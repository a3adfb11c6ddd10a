//! What a forking thread carries to the child.
//!
//! The pager's descriptors are in a table of its own, so copies of them travel in the program's. Another thread may close all of
//! those meanwhile (`close_range(2)`), and open files of the program's under their numbers: to such a file nothing may be
//! written, and it is not ours to close. So each copy is known by its file.

use outpage_sys::fd::{self, Fd, Identity};
use outpage_sys::proc;
use outpage_sys::process::{self, Tid};
use outpage_sys::raw::Errno;

use crate::live::Live;
use crate::session::Reserved;

/// Descriptors that a child needs at once while its pager starts: those of the ticket, and the pager's own.
pub(crate) const DESCRIPTORS: u64 = 64;

/// One of the pager's descriptors: its number in the pager's table, and its file.
#[derive(Clone, Copy)]
struct Own {
    number: i32,
    file: Identity,
}

impl Own {
    fn of(number: i32) -> Option<Self> {
        let file = fd::identity(number).ok()?;
        Some(Self { number, file })
    }
}

/// The descriptors that a child needs, as the pager's thread has them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Needed {
    session: Option<Own>,
    swap: Option<Own>,
    device: Option<Own>,
    proc: Option<Own>,
    home: Option<Own>,
}

impl Needed {
    /// On the pager's thread.
    pub(crate) fn of(live: &Live) -> Self {
        Self {
            session: Own::of(live.session.descriptor()),
            swap: live.store.carried_fd().and_then(Own::of),
            device: live.device.as_ref().and_then(|d| Own::of(d.number())),
            proc: proc::directory().and_then(Own::of),
            home: live.lent.for_child().and_then(Own::of),
        }
    }
}

/// A copy in the program's table.
struct Carried {
    copy: Fd,
    own: Own,
}

impl Carried {
    fn is_whole(&self) -> bool {
        fd::identity(self.copy.number()) == Ok(self.own.file)
    }

    /// The copy, or nothing where the number is another file's by now.
    fn whole(self) -> Option<Fd> {
        if self.is_whole() {
            return Some(self.copy);
        }
        let _not_ours = self.copy.release();
        None
    }
}

/// What the forking thread carries from before the fork to after it: descriptors, and the entry that is reserved for the child.
pub struct Ticket {
    /// The parent's pager.
    pager: Tid,
    session: Option<Carried>,
    swap: Option<Carried>,
    device: Option<Carried>,
    proc: Option<Carried>,
    home: Option<Carried>,
    pub(crate) child: Option<Reserved>,
    /// Why one that is missing is.
    missing: Errno,
}

/// The copies that arrived in the child.
pub(crate) struct Arrived {
    pub(crate) session: Option<Fd>,
    pub(crate) swap: Option<Fd>,
    /// /dev/userfaultfd, where the parent's pager has it.
    pub(crate) device: Option<Fd>,
    /// /proc.
    pub(crate) proc: Option<Fd>,
    /// What the child asks the home by, where its parent had memory of the home's.
    pub(crate) home: Option<Fd>,
    pub(crate) child: Option<Reserved>,
    /// Why one that is missing did not arrive.
    pub(crate) missing: Errno,
}

impl Ticket {
    /// On the forking thread, while the pager rests.
    pub(crate) fn new(pager: Tid, needed: Needed, child: Option<Reserved>) -> Self {
        process::with_descriptors(DESCRIPTORS, || {
            let mut missing = Errno::EBADF;
            let mut carry = |own: Option<Own>| {
                let own = own?;
                let copy = copy_of(pager, own.number);
                let copy = copy.map_err(|error| missing = error).ok()?;
                Some(Carried { copy, own })
            };
            Self {
                pager,
                session: carry(needed.session),
                swap: carry(needed.swap),
                device: carry(needed.device),
                proc: carry(needed.proc),
                home: carry(needed.home),
                child,
                missing,
            }
        })
    }

    /// In the parent: closes the copies.
    pub(crate) fn give_back(self) {
        let copies = [self.session, self.swap, self.device, self.proc, self.home];
        copies.into_iter().flatten().for_each(|carried| {
            drop(carried.whole());
        });
    }

    /// In the child, which nobody else closes descriptors of. What the program closed in the parent is asked for once more.
    pub(crate) fn arrive(self) -> Arrived {
        process::with_descriptors(DESCRIPTORS, || {
            let mut missing = self.missing;
            let mut arrived = |carried: Option<Carried>| {
                let carried = carried?;
                let own = carried.own;
                carried.whole().or_else(|| {
                    let copy = process::descriptor_of(self.pager, own.number);
                    let copy = copy.map_err(|error| missing = error).ok()?;
                    Carried { copy, own }.whole()
                })
            };
            Arrived {
                session: arrived(self.session),
                swap: arrived(self.swap),
                device: arrived(self.device),
                proc: arrived(self.proc),
                home: arrived(self.home),
                child: self.child,
                missing,
            }
        })
    }
}

impl Arrived {
    /// Session, swap file, device, /proc, the home.
    pub(crate) fn numbers(&self) -> [Option<i32>; 5] {
        let all = [
            &self.session,
            &self.swap,
            &self.device,
            &self.proc,
            &self.home,
        ];
        all.map(|fd| fd.as_ref().map(Fd::number))
    }
}

/// A descriptor of the pager's table, in the caller's.
fn copy_of(pager: Tid, number: i32) -> Result<Fd, Errno> {
    if let Ok(copy) = process::descriptor_of(pager, number) {
        return Ok(copy);
    }
    let path = format!("{}/fd/{number}\0", pager.0);
    let path = std::ffi::CStr::from_bytes_with_nul(path.as_bytes()).map_err(|_| Errno::EINVAL)?;
    let flags = if proc::directory() == Some(number) {
        libc::O_PATH | libc::O_DIRECTORY
    } else {
        libc::O_RDWR
    };
    proc::open(path, flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(path: &std::ffi::CStr) -> Carried {
        let copy = fd::open(path, libc::O_RDONLY).expect("a file of every machine");
        let own = Own::of(copy.number()).expect("open");
        Carried { copy, own }
    }

    #[test]
    fn a_copy_whose_number_is_another_file_is_neither_used_nor_closed() {
        let zero = carried(c"/dev/zero");
        let null = fd::open(c"/dev/null", libc::O_RDONLY).expect("/dev/null");
        let (number, other) = (zero.copy.number(), fd::identity(null.number()));
        // SAFETY: both numbers are open and this test's own.
        #[allow(unsafe_code)]
        let made = unsafe { libc::dup2(null.number(), number) };
        assert_eq!(made, number);
        assert!(zero.whole().is_none());
        assert_eq!(fd::identity(number), other, "still open");
        drop(Fd::adopt(number));
    }

    #[test]
    fn a_whole_copy_arrives() {
        let zero = carried(c"/dev/zero");
        let number = zero.copy.number();
        assert_eq!(zero.whole().map(|fd| fd.number()), Some(number));
    }
}
