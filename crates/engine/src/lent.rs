//! Shared memory that the home of the run keeps (`home`), as a process that has it mapped comes to it.
//!
//! The pager's thread asks for an object, and puts it where the program's own call had mapped memory of the kernel's. Faults of it go to the home, by a
//! userfaultfd of its own. Where such memory lies the pager does not follow: the list of mappings tells, by the files.
//!
//! A child inherits it by a fork that a hook sees, and registers what it finds before the fork returns there; no other gets it (`MADV_DONTFORK`).

mod found;
mod line;

use std::ffi::CString;
use std::sync::atomic::Ordering;

use outpage_core::units::{Nanos, PAGE_BYTES};
use outpage_sys::fd::{self, Fd};
use outpage_sys::maps::Mapping;
use outpage_sys::raw::Errno;
use outpage_sys::{clock, map, process};

use crate::advice::{MADV_COLLAPSE, MADV_GUARD_INSTALL};
use crate::home::wire::{self, NoAnswer, Request};
use crate::live::Live;
use crate::scope::Failure;
use crate::session::SessionPaths;
use crate::space::page_up;
use crate::start::StartError;
use crate::ticket::DESCRIPTORS;
use found::{Files, Found, refuse_locked};
use line::Line;

/// The home is asked this often whether it has given a file up. A choice: until then such memory is not counted as what is not paged.
const ASK_EVERY: Nanos = Nanos(1_000_000_000);

/// What a process has of the home's.
#[derive(Default)]
pub(crate) struct Lent {
    /// The home listens by this name, where there is one.
    name: Option<CString>,
    /// An inherited descriptor of /dev/userfaultfd.
    device: Option<i32>,
    line: Option<Line>,
    /// Where it may have been mapped: wherever it was put, and moved by hooks.
    placed: Vec<(usize, usize)>,
    /// The files that the home keeps for it.
    files: Files,
    /// What the list of mappings had when it was looked at last, and the home knew.
    known: Vec<Found>,
    /// What the home did not know then.
    unknown: Vec<Found>,
    /// When the home is asked of it again, though the list says the same.
    next_ask: Nanos,
    /// What the program wants no child to have, wherever it is mapped: files and offsets, half-open.
    not_forked: Vec<(u64, u64, u64)>,
    /// What the home was told that a device writes to.
    pinned: Vec<(usize, usize)>,
    /// What the child that is being forked does not get of it: addresses and bytes.
    withheld: Vec<(usize, usize)>,
    /// The child to come asks the home by this.
    branch: Option<Fd>,
}

impl Lent {
    /// With what a process finds the home by.
    pub(crate) fn new(paths: &SessionPaths) -> Self {
        Self {
            name: paths.home.clone(),
            device: paths.uffd_device,
            ..Self::default()
        }
    }

    /// What is readable when the home ends; -1 without it.
    pub(crate) fn fd(&self) -> i32 {
        self.line.as_ref().map_or(-1, |line| line.socket.number())
    }

    /// What the child that is being forked asks the home by.
    pub(crate) fn for_child(&self) -> Option<i32> {
        self.branch.as_ref().map(Fd::number)
    }

    /// What the child that is being forked does not get: addresses and bytes.
    pub(crate) fn withheld(&self) -> impl Iterator<Item = (usize, usize)> {
        self.withheld.iter().copied()
    }

    /// Whether the home keeps what this is a mapping of, as far as is known.
    pub(crate) fn keep(&self, mapping: &Mapping<'_>) -> bool {
        self.files.keep(mapping)
    }

    /// Of a part, wherever it is mapped, no child is to have anything, or is again.
    fn keep_from_children(&mut self, part: &Found, keep: bool) {
        let (id, from, to) = (part.id, part.offset, part.offset_end());
        let mut left = Vec::with_capacity(self.not_forked.len() + 2);
        for &(other, start, end) in &self.not_forked {
            if other == id {
                left.push((other, start, end.min(from)));
                left.push((other, start.max(to), end));
            } else {
                left.push((other, start, end));
            }
        }
        if keep {
            left.push((id, from, to));
        }
        left.retain(|&(_, start, end)| start < end);
        self.not_forked = left;
    }

    /// The parts of a mapping that no child is to have: addresses and bytes.
    fn kept_of<'a>(&'a self, found: &'a Found) -> impl Iterator<Item = (usize, usize)> + 'a {
        let kept = self.not_forked.iter();
        kept.filter_map(move |&(id, start, end)| {
            let (from, to) = (start.max(found.offset), end.min(found.offset_end()));
            let at = || found.start + (from - found.offset) as usize;
            (id == found.id && from < to).then(|| (at(), (to - from) as usize))
        })
    }

    /// What a userfaultfd is opened by, where the pager has no descriptor of its own.
    fn device(&self, own: Option<&Fd>) -> Option<i32> {
        own.map(Fd::number).or(self.device)
    }

    /// Whether some of `start..end` may be the home's.
    fn may_hold(&self, start: usize, end: usize) -> bool {
        let mut placed = self.placed.iter();
        placed.any(|&(from, to)| from < end && start < to)
    }

    fn place(&mut self, start: usize, end: usize) {
        if !self.placed.contains(&(start, end)) {
            self.placed.push((start, end));
        }
    }
}

impl Live {
    /// Puts memory of the home's in the place of `len` bytes at `addr`, which are shared anonymous memory that nobody has touched.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where there is no home, or what it takes; those of the kernel. It stays as it was then.
    pub(crate) fn lend(&mut self, addr: usize, len: usize, prot: i32) -> Result<(), Errno> {
        let lent = process::with_descriptors(DESCRIPTORS, || self.try_lend(addr, len, prot));
        self.or_without_home(lent)
    }

    /// What the program is told where the home is gone. If it has nothing of the home's it goes on.
    fn or_without_home(&mut self, asked: Result<(), NoAnswer>) -> Result<(), Errno> {
        match asked {
            Ok(()) => Ok(()),
            Err(NoAnswer::Refused(error)) => Err(error),
            Err(NoAnswer::Gone(_)) if self.lent.placed.is_empty() => {
                self.lent.line = None;
                Err(Errno::EOPNOTSUPP)
            }
            Err(NoAnswer::Gone(why)) => {
                self.world.failing.fail(Failure::Home(why));
                Err(Errno::EIO)
            }
        }
    }

    fn try_lend(&mut self, addr: usize, len: usize, prot: i32) -> Result<(), NoAnswer> {
        self.have_line()?;
        let line = self.lent.line.as_ref().ok_or(Errno::EOPNOTSUPP)?;
        let bytes = page_up(len);
        let (id, file) = line.ask(Request::Create {
            bytes: bytes as u64,
        })?;
        let placed = file.ok_or(NoAnswer::Refused(Errno::EBADF));
        let placed = placed.and_then(|file| line.place(addr, bytes, prot, (id, &file)));
        if placed.is_err() {
            // The object is not wanted.
            let _ = line.ask(Request::Settled);
        }
        placed?;
        self.lent.files.note(id);
        self.lent.place(addr, addr + bytes);
        self.calls.shares.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Has the home serve what was just mapped at `addr`, of a file of the program's that the home keeps.
    ///
    /// # Errors
    /// As [`Self::lend`]: nobody may touch it then.
    pub(crate) fn seat(&mut self, addr: usize, len: usize, id: u64) -> Result<(), Errno> {
        let end = addr + page_up(len);
        let seated = process::with_descriptors(DESCRIPTORS, || {
            self.have_line()?;
            self.lent.files.note(id);
            let line = self.lent.line.as_ref().ok_or(Errno::EOPNOTSUPP)?;
            let found = self.lent.files.found_in(addr, end)?;
            // As much as the kernel has mapped, or somebody would come to the rest unseen.
            if found.iter().map(Found::len).sum::<usize>() != end - addr {
                return Err(Errno::EOPNOTSUPP.into());
            }
            for part in found {
                if !line.hand_over(part)? {
                    return Err(Errno::EOPNOTSUPP.into());
                }
            }
            Ok(())
        });
        self.or_without_home(seated)?;
        self.lent.place(addr, end);
        self.calls.shares.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Has the home give up a file: 1, or 0 where it does not keep it.
    ///
    /// # Errors
    /// As [`Self::lend`]; `EIO` where some of it is lost.
    pub(crate) fn give_up_file(&mut self, id: u64) -> Result<u64, Errno> {
        let have = process::with_descriptors(DESCRIPTORS, || self.have_line());
        self.or_without_home(have)?;
        self.ask_home(Request::GiveUpKnown { id })
    }

    fn have_line(&mut self) -> Result<(), NoAnswer> {
        if self.lent.line.is_some() {
            return Ok(());
        }
        let name = self.lent.name.as_ref().ok_or(Errno::EOPNOTSUPP)?;
        let socket = wire::reach(name)?;
        let device = self.lent.device(self.device.as_ref());
        self.lent.line = Some(Line::begin(socket, device)?);
        Ok(())
    }

    /// mremap(2) made of what lay at `old` what lies at `new`: of what was moved the kernel tells the home, of what was added, or mapped a second time, nobody
    /// does.
    pub(crate) fn lent_remapped(&mut self, [old, old_len]: [usize; 2], [new, new_len]: [usize; 2]) {
        let before = self.lent.may_hold(old, old + old_len.max(1));
        if !before && !self.lent.may_hold(new, new + new_len) {
            return;
        }
        self.lent.place(new, new + new_len);
        self.lent.unknown.clear();
        if new_len > old_len {
            let added = self.lent.files.found_in(new + old_len, new + new_len);
            let added = added.unwrap_or_default();
            self.tell_home(&added);
        }
    }

    /// Looks for memory that is the home's and that nobody told it of: what grew by a call that no hook saw. It is not protected when its pages leave, so that
    /// what is written there would be lost: the process ends. And for what the home has given up, which another process may have asked for.
    pub(crate) fn look_for_lent(&mut self) {
        let Some(line) = &self.lent.line else { return };
        let about_to_tell = self.calls.seating.load(Ordering::SeqCst) > 0;
        let Ok(found) = self.lent.files.all() else {
            return;
        };
        let before = std::mem::take(&mut self.lent.unknown);
        let now = clock::now();
        let as_before = found == self.lent.known;
        if about_to_tell || as_before && now < self.lent.next_ask {
            return;
        }
        self.lent.next_ask = Nanos(now.0 + ASK_EVERY.0);
        let files = &self.lent.files;
        let asked = found.iter().filter(|part| !as_before || files.has(part.id));
        let told = match line.told_of(asked, files) {
            Ok(told) => told,
            Err(NoAnswer::Refused(_)) => return,
            Err(NoAnswer::Gone(why)) => return self.world.failing.fail(Failure::Home(why)),
        };
        // What a hook is about to tell of is known at the next look.
        if let Some(part) = told.unknown.iter().find(|&part| before.contains(part)) {
            let why = "is shared memory that is paged, and a call that was not made through libc made more of it";
            self.world.failing.fail(Failure::Page(part.start, why));
        }
        told.given_up.iter().for_each(|part| self.give_up(part));
        self.lent.files.only(&found);
        let own = |part: &&Found| self.lent.files.has(part.id);
        let all = found.iter().filter(own).map(|part| (part.start, part.end));
        self.lent.placed = all.collect();
        if told.unknown.is_empty() {
            self.lent.known = found;
        }
        self.lent.unknown = told.unknown;
    }

    /// What is mapped there is the kernel's, which gives it to children as the program wants.
    fn give_up(&mut self, part: &Found) {
        self.lent.files.forget(part.id);
        let _ = map::madvise(part.start, part.len(), libc::MADV_DOFORK);
        for (start, len) in self.lent.kept_of(part) {
            let _ = map::not_in_children(start, len);
        }
    }

    /// Has the home serve all of `found`.
    fn tell_home(&mut self, found: &[Found]) {
        let Some(line) = &self.lent.line else { return };
        let told = found
            .iter()
            .try_for_each(|&found| line.hand_over(found).map(drop));
        match told {
            Ok(()) => {}
            Err(NoAnswer::Gone(why)) => self.world.failing.fail(Failure::Home(why)),
            Err(NoAnswer::Refused(error)) => {
                let what = "have shared memory paged that was made more";
                self.world.failing.fail(Failure::Os(what, error));
            }
        }
    }

    /// The home has something to say, or has ended.
    pub(crate) fn hear_from_home(&mut self) {
        if let Some(line) = &self.lent.line
            && let Err(NoAnswer::Gone(why)) = wire::hear(line.socket.number())
        {
            if self.lent.placed.is_empty() {
                self.lent.line = None;
                return;
            }
            // The line stays, and with it the userfaultfd: without it holes in the memory would be zeroes.
            self.world.failing.fail(Failure::Home(why));
        }
    }

    /// Whether the home is there, now and then: a pager that has much to do does not wait for what comes by its line.
    pub(crate) fn look_for_home(&mut self) {
        let line = self.lent.fd();
        if line >= 0 {
            let mut fds = [libc::pollfd {
                fd: line,
                events: libc::POLLIN,
                revents: 0,
            }];
            if fd::poll(&mut fds, Some(Nanos(0))) == Ok(1) {
                self.hear_from_home();
            }
        }
    }

    /// Before a fork: lets the child have what it is to inherit.
    ///
    /// # Errors
    /// `EAGAIN` where the home makes no room for it; `ENOMEM`.
    pub(crate) fn lend_to_child(&mut self) -> Result<(), Errno> {
        let Some(line) = &self.lent.line else {
            return Ok(());
        };
        let branch = process::with_descriptors(DESCRIPTORS, || line.ask(Request::Branch));
        match branch {
            Ok((_, None)) => return Err(Errno::EAGAIN),
            Ok((_, branch)) => self.lent.branch = branch,
            Err(NoAnswer::Gone(why)) => {
                self.world.failing.fail(Failure::Home(why));
                return Err(Errno::EAGAIN);
            }
            Err(NoAnswer::Refused(_)) => return Err(Errno::EAGAIN),
        }
        self.lent.withheld.clear();
        for found in self.lent.files.found_in(0, usize::MAX)? {
            map::madvise(found.start, found.len(), libc::MADV_DOFORK)?;
            let withheld: Vec<_> = self.lent.kept_of(&found).collect();
            for (start, len) in withheld {
                map::not_in_children(start, len)?;
                self.lent.withheld.push((start, len));
            }
        }
        Ok(())
    }

    /// After a fork, in the parent, or where there was none.
    pub(crate) fn keep_lent_from_children(&mut self) {
        if self.lent.line.is_none() {
            return;
        }
        self.lent.branch = None;
        let all = self.lent.files.found_in(0, usize::MAX);
        for found in all.unwrap_or_default() {
            let _ = map::not_in_children(found.start, found.len());
        }
    }

    /// In a forked child, before the fork returns: what it inherited is served from now on.
    ///
    /// # Errors
    /// What the kernel or the home refused.
    pub(crate) fn lent_in_child(&mut self, socket: Option<Fd>) -> Result<(), StartError> {
        self.lent.unknown.clear();
        self.lent.pinned.clear();
        // Threads that are not here.
        self.calls.seating.store(0, Ordering::SeqCst);
        // Numbers of the parent's table: forgotten, not closed.
        std::mem::forget(self.lent.line.take());
        let branched = self.lent.branch.take().map(std::mem::forget).is_some();
        if !branched {
            return Ok(());
        }
        let device = self.lent.device(self.device.as_ref());
        let files = &self.lent.files;
        let sit = |socket: Option<Fd>| {
            let line = Line::begin(socket.ok_or(Errno::EBADF)?, device)?;
            for found in files.found_in(0, usize::MAX)? {
                line.hand_over(found)?;
            }
            line.ask(Request::Settled)?;
            Ok(line)
        };
        match sit(socket) {
            Ok(line) => self.lent.line = Some(line),
            Err(NoAnswer::Refused(error)) => {
                return Err(StartError::Os("have shared memory paged", error));
            }
            Err(NoAnswer::Gone(_)) => {
                return Err(StartError::Os(
                    "reach the run's shared memory",
                    Errno::EPIPE,
                ));
            }
        }
        Ok(())
    }

    /// madvise(2) of a range that is the home's throughout ([`Live::shared_up_to`]); `None` where none of it is.
    pub(crate) fn madvise_lent(
        &mut self,
        addr: usize,
        len: usize,
        advice: i32,
    ) -> Option<Result<(), Errno>> {
        let end = addr.saturating_add(page_up(len));
        if !self.lent.may_hold(addr, end) {
            return None;
        }
        let parts = match self.lent.files.found_in(addr, end) {
            Ok(parts) => parts,
            Err(error) => return Some(Err(error)),
        };
        if parts.is_empty() {
            return None;
        }
        Some(match advice {
            // The pages are in the file still, wherever that is.
            libc::MADV_DONTNEED_LOCKED => Ok(()),
            libc::MADV_DONTNEED => parts.iter().try_for_each(refuse_locked),
            libc::MADV_REMOVE => parts.iter().try_for_each(|part| {
                refuse_locked(part)?;
                self.empty_lent(part)
            }),
            libc::MADV_DONTFORK | libc::MADV_DOFORK => {
                let keep = advice == libc::MADV_DONTFORK;
                let parts = parts.iter();
                parts.for_each(|part| self.lent.keep_from_children(part, keep));
                Ok(())
            }
            MADV_GUARD_INSTALL | MADV_COLLAPSE | libc::MADV_FREE | libc::MADV_WIPEONFORK => {
                Err(Errno::EINVAL)
            }
            libc::MADV_HUGEPAGE | libc::MADV_MERGEABLE => Ok(()),
            _ => map::madvise(addr, len, advice),
        })
    }

    fn empty_lent(&self, part: &Found) -> Result<(), Errno> {
        let (start, end) = (part.start as u64, part.end as u64);
        match self.ask_home(Request::Empty { start, end })? {
            // The home has given the file up.
            0 => map::madvise(part.start, part.len(), libc::MADV_REMOVE),
            _ => Ok(()),
        }
    }

    /// A device is about to write to what of `addr..addr + len` is the home's, or is done.
    pub(crate) fn pin_lent(&mut self, addr: usize, len: usize, on: bool) -> Result<(), Errno> {
        let (start, end) = (addr & !(PAGE_BYTES - 1), page_up(addr.saturating_add(len)));
        let told = self.lent.pinned.iter().position(|&p| p == (start, end));
        match (on, told) {
            (true, _) if self.lent.may_hold(start, end) => {}
            // Wherever that lies by now.
            (false, Some(at)) => drop(self.lent.pinned.swap_remove(at)),
            _ => return Ok(()),
        }
        let request = Request::Pin {
            start: start as u64,
            end: end as u64,
            on,
        };
        self.ask_home(request)?;
        if on {
            self.lent.pinned.push((start, end));
        }
        Ok(())
    }

    pub(crate) fn ask_home(&self, request: Request) -> Result<u64, Errno> {
        let line = self.lent.line.as_ref().ok_or(Errno::EINVAL)?;
        match line.ask(request) {
            Ok((value, _)) => Ok(value),
            Err(NoAnswer::Refused(error)) => Err(error),
            Err(NoAnswer::Gone(why)) => {
                self.world.failing.fail(Failure::Home(why));
                Err(Errno::EIO)
            }
        }
    }

    /// The first part of `start..end` that is the home's.
    pub(crate) fn first_lent(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let may_be = self.lent.may_hold(start, end);
        let found = || self.lent.files.found_in(start, end).ok();
        let parts = may_be.then(found).flatten()?;
        parts.first().map(|part| (part.start, part.end))
    }

    /// Whether the home's memory is mapped at `address`, however it came there. What is asked of the kernel about such a page would change it.
    pub(crate) fn is_home_at(&self, address: usize) -> bool {
        let found = || self.lent.files.found_in(address, address + PAGE_BYTES);
        self.lent.line.is_some() && found().is_ok_and(|parts| !parts.is_empty())
    }
}
