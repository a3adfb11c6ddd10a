//! The program's memory calls, as its own threads make them: the kernel decides, and the pager learns what is new.
//!
//! Of what is unmapped, moved or emptied the kernel tells the pager itself (`changes`), before the call returns. Results are
//! the kernel's, errors negative.
//!
//! Callers take turns ([`Engine::munmap`] included): while one call is under way no other changes mappings.

mod pieces;

use std::sync::atomic::Ordering;

use outpage_core::units::PAGE_BYTES;
use outpage_sys::map;
use outpage_sys::raw::Errno;

use crate::advice::{MADV_POPULATE_READ, MADV_POPULATE_WRITE};
use crate::call::Call;
use crate::cut;
use crate::engine::Engine;
use crate::space::{end_of, page_up};

fn value(result: Result<usize, Errno>) -> isize {
    result.map_or_else(|error| -(error.number() as isize), |v| v as isize)
}

fn unit(result: Result<(), Errno>) -> isize {
    value(result.map(|()| 0))
}

/// mmap(2) of anonymous memory: where it lies, and whether nothing lay there before.
fn map_empty(
    engine: &Engine,
    addr: usize,
    len: usize,
    prot: i32,
    flags: i32,
) -> Result<(usize, bool), Errno> {
    let fixed = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
    let fresh = flags & fixed != libc::MAP_FIXED;
    // Populating here would bring in pages that nobody counts.
    let flags = flags & !(libc::MAP_POPULATE | libc::MAP_LOCKED);
    let mapped = engine.placing(|| map::mmap(addr, len, prot, flags, -1, 0));
    mapped.map(|start| (start, fresh))
}

impl Engine {
    /// mmap(2) of private anonymous memory, which is managed from then on.
    pub fn mmap(&self, addr: usize, len: usize, prot: i32, flags: i32) -> isize {
        let (start, fresh) = match map_empty(self, addr, len, prot, flags) {
            Ok(mapped) => mapped,
            Err(error) => return -(error.number() as isize),
        };
        let len = page_up(len);
        let taken = self.call(Call::Take {
            addr: start,
            len,
            prot,
            fresh,
        });
        if taken < 0 {
            let _ = map::munmap(start, len);
            return taken;
        }
        start as isize
    }

    /// mmap(2) of shared anonymous memory, which is managed from then on, or stays with the kernel where it cannot be.
    pub fn mmap_shared(&self, addr: usize, len: usize, prot: i32, flags: i32) -> isize {
        let (start, fresh) = match map_empty(self, addr, len, prot, flags) {
            Ok(mapped) => mapped,
            Err(error) => return -(error.number() as isize),
        };
        self.call(Call::TakeShared {
            addr: start,
            len: page_up(len),
            prot,
            fresh,
        });
        start as isize
    }

    /// Has the home of the run keep what mmap(2) just mapped at `start`, shared anonymous memory. Where it cannot, false, the memory stays with the kernel.
    pub fn lend(&self, start: usize, len: usize, prot: i32) -> bool {
        let lent = self.call(Call::Lend {
            addr: start,
            len: page_up(len),
            prot,
        });
        lent == 0
    }

    /// mmap(2), made by `map` where nothing is, of `len` bytes of the file of this number, which the home of the run keeps. `None` where the home cannot serve it:
    /// it is not mapped then.
    pub fn mmap_kept(&self, len: usize, id: u64, map: impl FnOnce() -> isize) -> Option<isize> {
        let calls = &self.shared.calls;
        calls.seating.fetch_add(1, Ordering::SeqCst);
        let at = self.placing(map);
        let (addr, len) = (at as usize, page_up(len));
        let served = at < 0 || self.call(Call::Seat { addr, len, id }) == 0;
        if !served {
            let _ = map::munmap(addr, len);
        }
        calls.seating.fetch_sub(1, Ordering::SeqCst);
        served.then_some(at)
    }

    /// mmap(2) over `len` bytes at `addr` failed. Of what was there the kernel may have told that it is gone, and that is not so: the home hears of it again.
    pub fn not_replaced(&self, addr: usize, len: usize) {
        self.call(Call::Remapped {
            old: addr,
            old_len: 0,
            new: addr,
            new_len: len,
            flags: 0,
        });
    }

    /// munmap(2).
    pub fn munmap(&self, addr: usize, len: usize) -> isize {
        unit(map::munmap(addr, len))
    }

    /// mremap(2).
    pub fn mremap(
        &self,
        old: usize,
        old_len: usize,
        new_len: usize,
        flags: i32,
        new_addr: usize,
    ) -> isize {
        let twice = old_len == 0 || flags & libc::MREMAP_DONTUNMAP != 0;
        if twice && self.shares() {
            let refused = self.call(Call::Alias {
                addr: old,
                len: old_len,
            });
            if refused < 0 {
                return -(libc::ENOMEM as isize);
            }
        }
        if new_len > old_len
            && (self.shares() || cut::is_cut())
            && self.call(Call::MayGrow { addr: old }) < 0
        {
            return -(libc::ENOMEM as isize);
        }
        let whole = self.placing(|| map::mremap(old, old_len, new_len, flags, new_addr));
        let new = match whole {
            Err(Errno::EFAULT) => pieces::mremap(self, old, old_len, new_len, flags, new_addr),
            result => result,
        };
        let new = match new {
            Ok(new) => new,
            Err(error) => return -(error.number() as isize),
        };
        // The memory is there already: where it cannot be managed it stays with the kernel.
        self.call(Call::Remapped {
            old,
            old_len,
            new,
            new_len,
            flags,
        });
        new as isize
    }

    /// The system call brk: the new break, or the old one where the kernel or the pager refuses.
    pub fn brk(&self, addr: usize) -> isize {
        let before = map::brk(0);
        let after = self.placing(|| map::brk(addr));
        let (from, to) = (page_up(before), page_up(after));
        if from < to {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let taken = self.call(Call::Take {
                addr: from,
                len: to - from,
                prot,
                fresh: true,
            });
            if taken < 0 {
                return map::brk(before) as isize;
            }
        }
        after as isize
    }

    /// madvise(2). `MADV_FREE` acts at once, like `MADV_DONTNEED`, where the pager cannot leave it to the kernel (`freeing`).
    pub fn madvise(&self, addr: usize, len: usize, advice: i32) -> isize {
        let kernel_tells = matches!(
            advice,
            libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE | libc::MADV_DONTNEED_LOCKED
        );
        if !addr.is_multiple_of(PAGE_BYTES) {
            return self.call(Call::Madvise { addr, len, advice });
        }
        // What the home has wants other things than what lies beside.
        if self.shares() && (kernel_tells || self.lends_shared()) {
            return self.madvise_by_parts(addr, len, advice);
        }
        if !kernel_tells {
            return self.call(Call::Madvise { addr, len, advice });
        }
        self.madvise_private(addr, len, advice)
    }

    /// Of memory that is not shared, or that the home has.
    fn madvise_part(&self, shared: bool, [addr, len]: [usize; 2], advice: i32) -> isize {
        let populates = matches!(advice, MADV_POPULATE_READ | MADV_POPULATE_WRITE);
        match advice {
            // The caller waits for the home, as for any touch.
            _ if shared && populates => unit(map::madvise(addr, len, advice)),
            libc::MADV_DONTNEED
            | libc::MADV_FREE
            | libc::MADV_REMOVE
            | libc::MADV_DONTNEED_LOCKED
                if !shared =>
            {
                self.madvise_private(addr, len, advice)
            }
            _ => self.call(Call::Madvise { addr, len, advice }),
        }
    }

    fn madvise_private(&self, addr: usize, len: usize, advice: i32) -> isize {
        if advice == libc::MADV_FREE {
            return unit(self.free(addr, len));
        }
        unit(map::madvise(addr, len, advice))
    }

    /// Of shared memory the pager does it (`sharing`), of any other the caller.
    fn madvise_by_parts(&self, addr: usize, len: usize, advice: i32) -> isize {
        let Some(end) = end_of(addr, len) else {
            return unit(map::madvise(addr, len, advice));
        };
        let (mut at, mut all) = (addr, 0);
        while at < end {
            let answer = self.call(Call::SharedUpTo {
                addr: at,
                len: end - at,
            });
            let bytes = answer as usize & !(PAGE_BYTES - 1);
            let result = self.madvise_part(answer as usize & 1 != 0, [at, bytes], advice);
            // Over holes the kernel goes on, and tells of them at the end.
            if result == -(libc::ENOMEM as isize) {
                all = result;
            } else if result < 0 {
                return result;
            }
            if bytes == 0 {
                break;
            }
            at += bytes;
        }
        all
    }

    /// Whether shared memory is managed, or was.
    fn shares(&self) -> bool {
        self.shared.calls.shares.load(Ordering::SeqCst)
    }
}
