//! Shared memory of which nobody else can have a mapping: what `mmap(2)` made with `MAP_SHARED | MAP_ANONYMOUS` since the last fork.
//!
//! Such memory has a file without a name and no descriptor, so there are two roads to its pages: this process's mapping, which is registered, and
//! that of a child, which gets it by a fork. Before a fork that a hook sees it goes back to the program ([`Live::give_shared_back`]); to any other the
//! kernel does not give it (`MADV_DONTFORK`). Whatever else maps the pages a second time (mremap(2) with an old length of 0, or `MREMAP_DONTUNMAP`)
//! is told by the hooks before, and they go back as well. Where no hook sees it the kernel tells afterwards, and the process ends: the second
//! mapping would show holes where pages are out, or lose what is written there.
//!
//! `MADV_DONTNEED` leaves a shared page as it is, and `MADV_REMOVE` empties it, but the kernel tells of both in the same way. So the pager does either itself.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use outpage_core::contract::Event;
use outpage_core::page::State;
use outpage_core::units::PAGE_BYTES;
use outpage_sys::maps::{self, Kind, Mapping};
use outpage_sys::raw::Errno;
use outpage_sys::view::View;
use outpage_sys::{clock, own};

use crate::adopt::LIST_BYTES;
use crate::advice::MADV_GUARD_INSTALL;
use crate::home::wire::Request;
use crate::live::Live;
use crate::regions::Region;
use crate::scope::Failure;
use crate::space::page_up;
use crate::start::{StartError, os};

/// Whether a mapping is shared memory that its processes have by their mappings alone; a memfd is the program's to read and write by its descriptor.
pub(crate) fn is_shared_anonymous(mapping: &Mapping<'_>) -> bool {
    // `/dev/zero (deleted)`, or a name given by prctl(2).
    let anonymous = [b"/dev/zero (deleted)".as_slice(), b"[anon_shmem:"]
        .iter()
        .any(|name| mapping.name.starts_with(name));
    mapping.shared && mapping.kind() == Kind::SharedMemory && anonymous
}

impl Live {
    /// The parts of `start..end` that are shared memory.
    pub(crate) fn shared_parts(&mut self, start: usize, end: usize) -> Vec<Region> {
        if self.world.views.is_empty() {
            return Vec::new();
        }
        let parts = self.world.space.parts(start, end);
        let shared = parts.iter().filter(|r| r.view != 0).copied().collect();
        self.world.space.take_list(parts);
        shared
    }

    /// Manages `start..end`, shared anonymous memory that nobody else has mapped; what was touched already is adopted unless it is `fresh`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the kernel lacks what it takes; those of mapping and registering it. It stays with the kernel then.
    pub(crate) fn take_shared(
        &mut self,
        (start, end): (usize, usize),
        prot: i32,
        fresh: bool,
    ) -> Result<(), Errno> {
        if !self.world.shares() {
            return Err(Errno::EOPNOTSUPP);
        }
        self.make_known_room(start, end);
        if self.world.space.manages_any(start, end - start) {
            return Err(Errno::EEXIST);
        }
        // Before it is registered: the kernel would tell the pager of the second mapping, and have it wait for itself.
        let view = View::of(start, end - start)?;
        let prot = prot & (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
        let region = self.take_over(start, end, prot, false)?;
        let number = self.world.views.add(view, region.pages());
        self.calls.shares.store(true, Ordering::SeqCst);
        (self.world.space).change(start, end - start, |r| r.view = number);
        if !fresh {
            self.adopt(start, end);
            self.drive();
        }
        Ok(())
    }

    /// Manages shared anonymous memory that was mapped before the pager began, where it is mapped once. The caller answers for no other process having it.
    ///
    /// # Errors
    /// Those of reading the list of mappings.
    pub(crate) fn adopt_shared(&mut self) -> Result<(), StartError> {
        let mut found: Vec<(usize, usize, i32, u64, u64)> = Vec::new();
        maps::for_each(&mut vec![0; LIST_BYTES], |entry| {
            if is_shared_anonymous(entry) && !own::contains(entry.start) {
                found.push((
                    entry.start,
                    entry.end,
                    entry.prot,
                    entry.inode,
                    entry.offset,
                ));
            }
            ControlFlow::Continue(())
        })
        .map_err(os("read /proc/self/maps"))?;
        for &(start, end, prot, inode, offset) in &found {
            let pages = |at: u64, len: usize| at..at + len as u64;
            let mine = pages(offset, end - start);
            let overlaps = |other: &(usize, usize, i32, u64, u64)| {
                let theirs = pages(other.4, other.1 - other.0);
                other.0 != start
                    && other.3 == inode
                    && theirs.start < mine.end
                    && mine.start < theirs.end
            };
            if !found.iter().any(overlaps) {
                // What cannot be registered stays with the kernel.
                let _ = self.take_shared((start, end), prot, false);
            }
        }
        Ok(())
    }

    /// What of `start..end` is shared the program has unmapped.
    pub(crate) fn drop_shared(&mut self, start: usize, end: usize) {
        for part in self.shared_parts(start, end) {
            self.world.views.unmapped(part.view, part.pages());
        }
    }

    /// Shared memory goes back to the program for good: all of it, with its bytes.
    ///
    /// # Errors
    /// `EIO` where a page of it is lost, now or before: whoever got the memory would find zeroes.
    pub(crate) fn give_shared_back(&mut self) -> Result<(), Errno> {
        for region in self.shared_parts(0, usize::MAX) {
            let given = self.give_back(region.start..region.end, |_| Ok(()));
            self.shared_lost |= given != Ok(0);
        }
        if self.shared_lost {
            return Err(Errno::EIO);
        }
        Ok(())
    }

    /// A second mapping of what is at `addr` is about to be made: shared memory there goes back.
    pub(crate) fn about_to_alias(&mut self, addr: usize, len: usize) -> Result<(), Errno> {
        if self.is_home_at(addr) {
            // What `MREMAP_DONTUNMAP` leaves behind is not protected with what it moved.
            return match len {
                0 => self.ask_home(Request::Alias).map(drop),
                _ => Err(Errno::ENOMEM),
            };
        }
        self.attend_to_changes();
        let parts = self.shared_parts(addr, addr.saturating_add(page_up(len.max(1))));
        for part in parts {
            let regions = self.shared_parts(0, usize::MAX);
            for region in regions.iter().filter(|r| r.view == part.view) {
                let given = self.give_back(region.start..region.end, |_| Ok(()));
                self.shared_lost |= given != Ok(0);
            }
        }
        if self.shared_lost {
            return Err(Errno::EIO);
        }
        Ok(())
    }

    /// How many bytes from `addr` on are alike, shared memory that is managed, here or by the home, or anything else; the lowest bit is set where they are shared.
    pub(crate) fn shared_up_to(&mut self, addr: usize, len: usize) -> isize {
        self.attend_to_changes();
        let len = page_up(len);
        let end = addr.saturating_add(len);
        let parts = self.shared_parts(addr, end);
        let first = parts.first().map(|part| (part.start, part.end));
        let bytes = match first.or_else(|| self.first_lent(addr, end)) {
            Some((start, end)) if start == addr => (end - addr) | 1,
            Some((start, _)) => start - addr,
            None => len,
        };
        bytes as isize
    }

    /// madvise(2) for a range that is shared throughout; `None` where it is done as for private memory.
    pub(crate) fn madvise_shared(
        &mut self,
        addr: usize,
        len: usize,
        advice: i32,
    ) -> Option<Result<(), Errno>> {
        let end = addr.saturating_add(page_up(len));
        let parts = self.shared_parts(addr, end);
        if parts.is_empty() {
            return None;
        }
        match advice {
            libc::MADV_DONTNEED if parts.iter().any(|part| part.locked) => Some(Err(Errno::EINVAL)),
            // The pages are in the file still, wherever that is.
            libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED => Some(Ok(())),
            libc::MADV_REMOVE => Some(parts.iter().try_for_each(|part| self.empty_shared(part))),
            // Before Linux 6.15 there is neither for memory with a file.
            MADV_GUARD_INSTALL | libc::MADV_FREE => Some(Err(Errno::EINVAL)),
            _ => None,
        }
    }

    fn empty_shared(&mut self, part: &Region) -> Result<(), Errno> {
        if part.locked {
            return Err(Errno::EINVAL);
        }
        self.withholding((part.start, part.end), |live| live.quiesce(part.pages()));
        self.world.views.empty(part.view, part.pages())?;
        self.pager
            .handle(clock::now(), Event::Discard(part.pages()));
        self.drive();
        Ok(())
    }

    /// The kernel tells that `part` was emptied, or unmapped page by page: by a call that no hook saw. Pages that are there may go, and are found missing
    /// then. Whether those that are out were to go nobody can tell.
    pub(crate) fn emptied_unheard(&self, part: &Region) {
        let is_out = |page| {
            !matches!(
                self.pager.state(page),
                State::Resident | State::Untouched | State::Poisoned
            )
        };
        if part.pages().iter().any(is_out) {
            let why = "is shared memory that is paged out, and a madvise(2) that was not made through libc may have emptied it";
            self.world.failing.fail(Failure::Page(part.start, why));
        }
    }

    /// The kernel tells that `len` bytes were moved away from `from`. Shared memory that is there still was mapped a second time, by a call that no hook saw.
    pub(crate) fn expect_no_alias(&mut self, from: usize, len: usize) {
        let parts = self.shared_parts(from, from.saturating_add(len.max(PAGE_BYTES)));
        let Some(part) = parts.first() else { return };
        let there = loop {
            if let Some(there) = self.world.door.is_registered(part.start) {
                break there;
            }
            self.world.door.let_change_pass();
        };
        if len == 0 || there {
            let why = "is shared memory that is paged, and an mremap(2) that was not made through libc mapped it a second time";
            self.world.failing.fail(Failure::Page(part.start, why));
        }
    }
}
