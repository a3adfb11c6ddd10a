//! Files of the program's own that are objects: memfds, and what it made on tmpfs and unlinked.
//!
//! The home makes an object of a file when the program maps it, and says so in the file ([`ram_file`]). Whoever comes to it by a descriptor, and not by a
//! mapping, has the home give it up before: it is brought in, and the kernel's from then on. As long as somebody has a descriptor it may be mapped again, so it
//! is an object still though nobody has it mapped.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use outpage_core::units::{Nanos, PAGE_BYTES};
use outpage_sys::fd::{self, Fd};
use outpage_sys::raw::Errno;
use outpage_sys::{clock, libc, process, ram_file};
use ram_file::RamFile;

use super::door::enter;
use super::wire::Request;
use super::{Home, Object};
use crate::call::Call;
use crate::space::page_up;

/// It is looked for descriptors of a file that nobody has mapped this often. A choice: a look reads what every process has open, and takes some milliseconds
/// where there are hundreds.
const LOOK_EVERY: Nanos = Nanos(1_000_000_000);

/// What there is to know of an object that is the program's own file when nobody has it mapped.
#[derive(Clone, Copy, Default)]
pub(super) struct Own {
    /// Somebody had it open at the last look, which was then.
    open: bool,
    looked: Nanos,
}

/// The program's own file: that it is kept is taken back unless all that it takes has been done.
struct Marked<'a> {
    file: &'a Fd,
    found: RamFile,
    stays: bool,
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        if !self.stays {
            let _ = self.found.mark(self.file.number(), false);
        }
    }
}

impl Home {
    /// What is asked of a file: what is told.
    pub(super) fn errand(&mut self, request: Request, file: Option<Fd>) -> Result<u64, Errno> {
        let file = file.ok_or(Errno::EBADF)?;
        let found = RamFile::behind(file.number()).ok_or(Errno::EOPNOTSUPP)?;
        self.cut_off(found.id);
        match request {
            Request::Adopt => self.adopt(&file, &found),
            Request::GiveUp => self.give_up(found.id),
            Request::Hole { start, end } => self.hole(&found, start, end).map(|()| 1),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Makes an object of the file, if it can be one: its number.
    fn adopt(&mut self, file: &Fd, found: &RamFile) -> Result<u64, Errno> {
        if self.objects.contains_key(&found.id) {
            let noted = ram_file::note_open(file.number())?;
            return noted.then_some(found.id).ok_or(Errno::EOPNOTSUPP);
        }
        let may_be = found.bytes > 0 && found.may_be_kept(file.number());
        if !may_be || self.given_up.contains(&found.id) {
            return Err(Errno::EOPNOTSUPP);
        }
        let own = ram_file::writable(file.number())?;
        if ram_file::may_be_unseen(own.number()) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.open_engine()?;
        if !ram_file::keep(own.number())? || !ram_file::note_open(file.number())? {
            return Err(Errno::EOPNOTSUPP);
        }
        found.mark(own.number(), true)?;
        let mut marked = Marked {
            file: &own,
            found: *found,
            stays: false,
        };
        // Whoever has it mapped unseen has said so before, and looks now whether it is kept.
        let now = RamFile::behind(own.number());
        let is_as_before = now.is_some_and(|now| !now.has_memory && now.bytes == found.bytes);
        if !is_as_before || ram_file::may_be_unseen(own.number()) {
            return Err(Errno::EOPNOTSUPP);
        }
        let bytes = page_up(found.bytes as usize);
        let start = self.map_object(&own, bytes)?;
        marked.stays = true;
        drop(marked);
        let limited = ram_file::is_limited(own.number());
        enter(&self.hall).limit(start, start + bytes, limited);
        let object = Object {
            file: own,
            start,
            bytes,
            own: Some(Own::default()),
        };
        self.objects.insert(found.id, object);
        Ok(found.id)
    }

    /// All of the file is in RAM from now on, and the kernel's: 1, or 0 where it was no object. `EIO` where some of it is lost: it stays one.
    pub(super) fn give_up(&mut self, id: u64) -> Result<u64, Errno> {
        self.cut_off(id);
        let (Some(object), Some(engine)) = (self.objects.get(&id), &self.engine) else {
            return Ok(0);
        };
        let (addr, len) = (object.start, object.bytes);
        // Of one that was cut off at its beginning nothing is left, and something else may lie there.
        if len > 0 {
            let back = engine.call(Call::Reorder { addr, len });
            if back < 0 {
                return Err(Errno::new(-back as i32));
            }
            enter(&self.hall).give_up(addr, addr + len);
        }
        // It may be mapped unseen from now on.
        self.given_up.insert(id);
        if let Some(found) = RamFile::behind(object.file.number()) {
            let _ = found.mark(object.file.number(), false);
        }
        enter(&self.hall).limit(addr, addr + len, false);
        if len > 0 {
            engine.munmap(addr, len);
        }
        self.objects.remove(&id);
        // What a device writes to stays where it is all the same.
        let within = |part: &(usize, usize)| (addr..addr + len).contains(&part.0);
        for line in self.lines.values_mut() {
            for pinned in &mut line.pinned {
                pinned.parts.retain(|part| !within(part));
            }
            line.inherited.retain(|span| !within(&(span.home, 0)));
        }
        Ok(1)
    }

    /// Lets go of what lies beyond the end of a file that was made shorter by a call that nobody saw: by its path of /proc.
    fn cut_off(&mut self, id: u64) {
        let Some(object) = self.objects.get_mut(&id) else {
            return;
        };
        let Ok(left) = fd::len(object.file.number()) else {
            return;
        };
        let (left, before) = (page_up(left as usize), object.bytes);
        if object.own.is_some() && left < before {
            object.bytes = left;
            let (start, end) = (object.start + left, object.start + before);
            let mut seats = enter(&self.hall);
            seats.give_up(start, end);
            if seats.is_limited(object.start) {
                seats.limit(object.start, end, false);
                seats.limit(object.start, start, true);
            }
            drop(seats);
            if let Some(engine) = &self.engine {
                engine.munmap(start, end - start);
            }
        }
    }

    /// Bytes `start..end` of the file are zero. `ENOENT` where it is no object; `EINVAL` for what is not whole pages of it.
    fn hole(&self, found: &RamFile, start: u64, end: u64) -> Result<(), Errno> {
        let object = self.objects.get(&found.id).ok_or(Errno::ENOENT)?;
        let whole = |at: u64| at.is_multiple_of(PAGE_BYTES as u64);
        if !whole(start) || !whole(end) || start >= end || end > object.bytes as u64 {
            return Err(Errno::EINVAL);
        }
        let at = |offset: u64| object.start + offset as usize;
        self.empty(at(start), at(end))
    }

    /// Whether somebody may map the object again that nobody has mapped: a file of the program's that is open somewhere, as it was a moment ago or, if `now`, as it is. One that got a
    /// name (`O_TMPFILE` and linkat(2)) is given up: it outlives the run.
    pub(super) fn may_be_mapped(&mut self, id: u64, now: bool) -> bool {
        let Some(object) = self.objects.get_mut(&id) else {
            return false;
        };
        let Some(own) = &mut object.own else {
            return false;
        };
        let time = clock::now();
        if now || !own.open || time.0 - own.looked.0 >= LOOK_EVERY.0 {
            let mapped_by = ram_file::is_open(object.file.number());
            // Or another open file description, in a process that may be looked into.
            own.open = mapped_by != Ok(false) || is_open(id);
            own.looked = time;
        }
        own.open || self.outlives(id)
    }

    /// Whether the file of an object has a name by now. It is given up then, or tried again where that cannot be.
    fn outlives(&mut self, id: u64) -> bool {
        let object = self.objects.get(&id);
        let found = object.and_then(|object| RamFile::behind(object.file.number()));
        let has_name = found.is_some_and(|found| found.has_name());
        if has_name {
            let _ = self.give_up(id);
        }
        has_name
    }

    /// Before the home ends: what outlives it has its bytes.
    pub(super) fn give_up_named(&mut self) {
        let ids: Vec<u64> = self.objects.keys().copied().collect();
        for id in ids {
            self.outlives(id);
        }
    }
}

/// Whether another process has a file open. Those whose descriptors may not be seen belong to somebody else, and are not looked at; nor are those of files that have a name, which
/// may lie where nobody answers.
fn is_open(id: u64) -> bool {
    let own = process::pid();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut others = numbers.filter(|&pid| pid != own);
    others.any(|pid| {
        let open = fs::read_dir(format!("/proc/{pid}/fd"));
        let mut open = open.into_iter().flatten().flatten();
        open.any(|entry| {
            let name = fs::read_link(entry.path());
            let nameless =
                name.is_ok_and(|name| name.as_os_str().as_bytes().ends_with(b" (deleted)"));
            nameless && fs::metadata(entry.path()).is_ok_and(|file| is(&file, id))
        })
    })
}

fn is(file: &fs::Metadata, id: u64) -> bool {
    ram_file::id(libc::minor(file.dev()), file.ino()) == id
}
