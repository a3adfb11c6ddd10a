//! Files of the program's own that are objects: memfds, and what it made on tmpfs and unlinked.
//!
//! The home makes an object of a file when the program maps it, and says so in the file ([`ram_file`]). Whoever comes to it by a descriptor, and not by a
//! mapping, has the home give it up before: it is brought in, and the kernel's from then on. As long as somebody has a descriptor it may be mapped again, so it
//! is an object still though nobody has it mapped.

use std::fs;
use std::os::unix::fs::MetadataExt;

use outpage_core::units::{Nanos, PAGE_BYTES};
use outpage_sys::fd::Fd;
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

/// Of an object that is the program's own file, and that nobody has mapped.
#[derive(Clone, Copy, Default)]
pub(super) struct Unmapped {
    /// Somebody had it open at the last look, which was then.
    open: bool,
    looked: Nanos,
}

/// The program's own file: what says that it is kept is taken back unless all that it takes has been done.
struct Marked<'a> {
    file: &'a Fd,
    found: RamFile,
    stays: bool,
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        if !self.stays {
            // Who sees it still asks, and is told that it is no object.
            let _ = self.found.mark(self.file.number(), false);
        }
    }
}

impl Home {
    /// What is asked of a file: what is told.
    pub(super) fn errand(&mut self, request: Request, file: Option<Fd>) -> Result<u64, Errno> {
        let file = file.ok_or(Errno::EBADF)?;
        match request {
            Request::Adopt => self.adopt(file),
            Request::GiveUp => self.give_up(&file).map(|()| 0),
            Request::Hole { start, end } => self.hole(&file, start, end).map(|()| 0),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Makes an object of the file, if it can be one: its number.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where it cannot be; those of the kernel.
    fn adopt(&mut self, file: Fd) -> Result<u64, Errno> {
        let found = RamFile::behind(file.number()).ok_or(Errno::EOPNOTSUPP)?;
        if self.objects.contains_key(&found.id) {
            return Ok(found.id);
        }
        if found.bytes == 0 || !found.may_be_kept(file.number()) {
            return Err(Errno::EOPNOTSUPP);
        }
        let file = ram_file::writable(file)?;
        self.open_engine()?;
        found.mark(file.number(), true)?;
        let mut marked = Marked {
            file: &file,
            found,
            stays: false,
        };
        // Whoever has mapped it unseen gave it memory first, and looked for the mark then.
        let now = RamFile::behind(file.number());
        if now.is_none_or(|now| now.has_memory || now.bytes != found.bytes) {
            return Err(Errno::EOPNOTSUPP);
        }
        let bytes = page_up(found.bytes as usize);
        let start = self.map_object(&file, bytes)?;
        marked.stays = true;
        drop(marked);
        let object = Object {
            file,
            start,
            bytes,
            unmapped: Some(Unmapped::default()),
        };
        self.objects.insert(found.id, object);
        Ok(found.id)
    }

    /// All of the file is in RAM from now on, and the kernel's.
    ///
    /// # Errors
    /// `EIO` where some of it is lost: it stays an object.
    fn give_up(&mut self, file: &Fd) -> Result<(), Errno> {
        let found = RamFile::behind(file.number());
        found.map_or(Ok(()), |found| self.give_up_object(&found))
    }

    fn give_up_object(&mut self, found: &RamFile) -> Result<(), Errno> {
        let (Some(object), Some(engine)) = (self.objects.get(&found.id), &self.engine) else {
            return Ok(());
        };
        let (addr, len) = (object.start, object.bytes);
        let back = engine.call(Call::Reorder { addr, len });
        if back < 0 {
            return Err(Errno::new(-back as i32));
        }
        enter(&self.hall).give_up(addr, addr + len);
        // It may be mapped unseen from now on.
        ram_file::never_keep(object.file.number());
        let _ = found.mark(object.file.number(), false);
        engine.munmap(addr, len);
        self.objects.remove(&found.id);
        // What a device writes to stays where it is all the same.
        let within = |part: &(usize, usize)| (addr..addr + len).contains(&part.0);
        for line in self.lines.values_mut() {
            for pinned in &mut line.pinned {
                pinned.parts.retain(|part| !within(part));
            }
            line.inherited.retain(|span| !within(&(span.home, 0)));
        }
        Ok(())
    }

    /// Bytes `start..end` of the file are zero.
    ///
    /// # Errors
    /// `ENOENT` where it is no object; `EINVAL` for what is not whole pages of it.
    fn hole(&self, file: &Fd, start: u64, end: u64) -> Result<(), Errno> {
        let found = RamFile::behind(file.number()).ok_or(Errno::ENOENT)?;
        let object = self.objects.get(&found.id).ok_or(Errno::ENOENT)?;
        let whole = |at: u64| at.is_multiple_of(PAGE_BYTES as u64);
        if !whole(start) || !whole(end) || start >= end || end > object.bytes as u64 {
            return Err(Errno::EINVAL);
        }
        let at = |offset: u64| object.start + offset as usize;
        self.empty(at(start), at(end))
    }

    /// Whether somebody may map the object again that nobody has mapped: a file of the program's that is open somewhere. One that got a name (`O_TMPFILE` and linkat(2))
    /// is given up: it outlives the run.
    pub(super) fn may_be_mapped(&mut self, id: u64) -> bool {
        let Some(object) = self.objects.get_mut(&id) else {
            return false;
        };
        let Some(unmapped) = &mut object.unmapped else {
            return false;
        };
        let now = clock::now();
        if !unmapped.open || now.0 - unmapped.looked.0 >= LOOK_EVERY.0 {
            unmapped.open = is_open(id);
            unmapped.looked = now;
        }
        if unmapped.open {
            return true;
        }
        let found = RamFile::behind(object.file.number());
        found.is_some_and(|found| found.has_name() && self.give_up_object(&found).is_ok())
    }
}

/// Whether another process has a file open. Those whose descriptors may not be seen belong to somebody else, and are not looked at.
fn is_open(id: u64) -> bool {
    let own = process::pid();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut others = numbers.filter(|&pid| pid != own);
    others.any(|pid| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        let mut tasks = tasks.into_iter().flatten().flatten();
        tasks.any(|task| {
            let open = fs::read_dir(task.path().join("fd"));
            let mut open = open.into_iter().flatten().flatten();
            open.any(|entry| fs::metadata(entry.path()).is_ok_and(|file| is(&file, id)))
        })
    })
}

fn is(file: &fs::Metadata, id: u64) -> bool {
    ram_file::id(libc::minor(file.dev()), file.ino()) == id
}
