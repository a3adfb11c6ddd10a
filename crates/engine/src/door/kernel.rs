//! The door as the kernel has it: a userfaultfd, page tables, and the thread that throws pages away.

use std::sync::Arc;

use outpage_core::units::PAGE_BYTES;
use outpage_sys::map::{self, Memory};
use outpage_sys::pagemap::{PageFlags, Pagemap};
use outpage_sys::process::{self, Tid};
use outpage_sys::raw::Errno;
use outpage_sys::turns::Turns;
use outpage_sys::uffd::{
    Change, CopyMode, Fault, Features, Message, Mode, MoveMode, MoveOutcome, Outcome, Stop, Uffd,
};

use super::{Bells, Door, Own};
use crate::releaser::{Part, Released, Releaser, Senses};

/// Page table entries that are read at once: 512 bytes of stack.
const LOOK_PAGES: usize = 512;

/// The process's own address space.
pub struct Kernel {
    uffd: Uffd,
    pagemap: Pagemap,
    memory: Memory,
    /// Throws away pages of the program's while the pager hears of it.
    releaser: Releaser,
}

impl Kernel {
    /// By `uffd`, which nobody else reads. Whoever maps or moves memory has a turn of `turns` meanwhile.
    ///
    /// # Errors
    /// What could not be opened, and the kernel's error.
    pub fn new(uffd: Uffd, turns: Arc<Turns>) -> Result<Self, (&'static str, Errno)> {
        let fails = |what| move |error| (what, error);
        Ok(Self {
            uffd,
            pagemap: Pagemap::open().map_err(fails("open /proc/self/pagemap"))?,
            memory: Memory::open().map_err(fails("open /proc/self/mem"))?,
            releaser: Releaser::new(turns),
        })
    }
}

impl Door for Kernel {
    fn fd(&self) -> i32 {
        self.uffd.fd()
    }

    fn gather(&self) {
        // Errors show in the calls that follow.
        self.releaser.listen(&self.uffd, |uffd| {
            let _ = uffd.gather();
        });
    }

    fn let_change_pass(&self) {
        self.releaser.listen(&self.uffd, Uffd::let_change_pass);
    }

    fn next_change(&self) -> Option<Message> {
        self.uffd.next_change()
    }

    fn next_departure(&self, start: usize, end: usize) -> Option<Message> {
        self.uffd.next_departure(start, end)
    }

    fn next_fault(&self) -> Option<Fault> {
        self.uffd.next_fault()
    }

    fn has_read(&self) -> bool {
        self.uffd.has_read()
    }

    fn put_back(&self, message: Message) {
        self.uffd.put_back(message);
    }

    fn change_at(&self, address: usize) -> Option<Change> {
        self.uffd.change_at(address)
    }

    fn is_removed(&self, address: usize) -> bool {
        self.uffd.is_removed(address)
    }

    fn is_moved_onto(&self, address: usize) -> bool {
        self.uffd.is_moved_onto(address)
    }

    fn moved_to(&self, address: usize) -> usize {
        self.uffd.moved_to(address)
    }

    fn is_calm(&self) -> bool {
        self.uffd.is_calm()
    }

    fn is_changing(&self, page: usize) -> bool {
        self.uffd.is_changing(page)
    }

    fn register(&self, start: usize, len: usize, mode: Mode) -> Result<(), Errno> {
        self.uffd.register(start, len, mode)
    }

    fn unregister(&self, start: usize, len: usize) -> Result<(), Errno> {
        self.uffd.unregister(start, len)
    }

    fn is_registered(&self, page: usize) -> Option<bool> {
        self.uffd.is_registered(page)
    }

    fn is_protectable(&self, page: usize) -> Option<bool> {
        match self.uffd.write_protect(page, PAGE_BYTES, false).stop {
            Some(Stop::Again) => None,
            stop => Some(stop != Some(Stop::NoSource)),
        }
    }

    fn may_have_registered(&self, page: usize) -> bool {
        self.uffd.may_have_registered(page)
    }

    fn mark_managed(&self, start: usize, len: usize) -> Result<(), Errno> {
        map::no_huge_pages(start, len)?;
        map::not_in_children(start, len)
    }

    fn copy(&self, to: usize, from: usize, len: usize, how: CopyMode) -> Outcome {
        self.uffd.copy(to, from, len, how)
    }

    fn move_pages(&self, to: usize, from: usize, len: usize, how: MoveMode) -> Outcome {
        self.uffd.move_pages(to, from, len, how)
    }

    fn move_run(&self, to: usize, from: usize, how: MoveMode, report: &mut [MoveOutcome]) {
        self.uffd.move_run(to, from, how, report, &self.pagemap);
    }

    fn zeropage(&self, start: usize, len: usize) -> Outcome {
        self.uffd.zeropage(start, len)
    }

    fn poison(&self, start: usize, len: usize) -> Outcome {
        self.uffd.poison(start, len)
    }

    fn write_protect(&self, start: usize, len: usize, on: bool) -> Outcome {
        self.uffd.write_protect(start, len, on)
    }

    fn wake(&self, start: usize, len: usize) {
        let _ = self.uffd.wake(start, len);
    }

    fn there(&self, start: usize, out: &mut [bool]) -> Result<(), Errno> {
        let mut flags = [PageFlags::default(); LOOK_PAGES];
        for (i, part) in out.chunks_mut(LOOK_PAGES).enumerate() {
            let flags = &mut flags[..part.len()];
            self.pagemap
                .read(start + i * LOOK_PAGES * PAGE_BYTES, flags)?;
            for (there, flags) in part.iter_mut().zip(flags) {
                *there = !flags.empty();
            }
        }
        Ok(())
    }

    fn is_present(&self, address: usize) -> Result<bool, Errno> {
        self.pagemap.page(address).map(PageFlags::present)
    }

    fn read(&self, address: usize, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.memory.read(address, buffer)
    }

    fn make_own(&self, address: usize) -> Option<Own> {
        let flags = self.pagemap.page(address).ok()?;
        // Needed even when the other process is gone: the kernel goes on treating the page as shared.
        if !flags.present() || !map::make_exclusive(address) {
            return None;
        }
        Some(if flags.exclusive() {
            Own::Already
        } else {
            Own::Duplicated
        })
    }

    fn release(&self, parts: &[Part], out: &mut [Released]) -> Result<(), Errno> {
        let senses = Senses {
            uffd: &self.uffd,
            pagemap: &self.pagemap,
            memory: &self.memory,
        };
        self.releaser.release(parts, senses, out)
    }

    fn give_back(&self, address: usize) -> bool {
        self.releaser.give_back(address, &self.uffd)
    }

    fn start_releasing(&self) -> Result<(), Errno> {
        self.releaser.start()
    }

    fn helper(&self) -> Option<Tid> {
        self.releaser.helper()
    }

    fn drop_unwritten(&self, address: usize, pages: usize) -> bool {
        let asked = !process::has_swap();
        if asked {
            // `MADV_PAGEOUT` (Linux 5.4) reclaims at once what it is asked for. A page that was freed goes if its entry is clean at the moment at which it
            // is taken from the page table (`try_to_unmap_one` in mm/rmap.c); any other needs swap to go to. What stays shows in the page tables.
            let _ = map::madvise(address, pages * PAGE_BYTES, libc::MADV_PAGEOUT);
        }
        asked
    }

    fn disturbed_in(&self, start: usize, end: usize, check: &mut dyn FnMut(usize, usize)) {
        self.releaser.disturbed_in(start, end, check);
    }

    fn undisturbed(&self) {
        self.releaser.undisturbed();
    }

    fn serves_shared(&self) -> bool {
        let needed = Features::MISSING_SHMEM.plus(Features::WP_HUGETLBFS_SHMEM);
        self.uffd.features().has(needed)
    }

    fn forget_threads(&mut self) {
        self.releaser.forget_thread();
    }
}

impl Bells for Uffd {
    fn fd(&self) -> i32 {
        Uffd::fd(self)
    }

    fn gather(&self) {
        let _ = Uffd::gather(self);
    }

    fn next_ring(&self) -> Option<usize> {
        self.next_fault().map(|fault| fault.address)
    }

    fn resolve(&self, address: usize) {
        if self.zeropage(address, PAGE_BYTES).stop.is_some() {
            let _ = self.wake(address, PAGE_BYTES);
        }
    }

    fn register(&self, start: usize, len: usize) -> Result<(), Errno> {
        Uffd::register(self, start, len, Mode::missing())
    }
}
