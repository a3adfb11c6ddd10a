//! What the fake door answers, call by call.

use outpage_core::units::PAGE_BYTES;
use outpage_sys::pagemap::Pagemap;
use outpage_sys::process::Tid;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{
    Change, CopyMode, Fault, Message, Mode, MoveMode, MoveOutcome, Outcome, Stop,
};

use crate::door::{Bells, Door, Own, Part, Released};

use super::*;

impl Door for Fake {
    fn fd(&self) -> i32 {
        -1
    }

    fn gather(&self) {
        self.state().read_all();
    }

    fn let_change_pass(&self) {
        self.gather();
        let mut state = self.state();
        state.lingering = state.lingering.saturating_sub(1);
    }

    fn next_change(&self) -> Option<Message> {
        self.state().changes.pop_front()
    }

    fn next_departure(&self, from: usize, to: usize) -> Option<Message> {
        let mut state = self.state();
        let departs = |m: &Message| match *m {
            Message::Unmapped { start, end } => start < to && from < end,
            Message::Remapped {
                from: start, len, ..
            } => start < to && from < start + len,
            _ => false,
        };
        let index = state.changes.iter().position(departs)?;
        state.changes.remove(index)
    }

    fn next_fault(&self) -> Option<Fault> {
        self.state().faults.pop_front()
    }

    fn has_read(&self) -> bool {
        let state = self.state();
        !state.changes.is_empty() || !state.faults.is_empty()
    }

    fn put_back(&self, message: Message) {
        self.state().keep(message);
    }

    fn change_at(&self, address: usize) -> Option<Change> {
        self.state().change_at(address)
    }

    fn is_removed(&self, address: usize) -> bool {
        self.state().is_removed(address)
    }

    fn is_moved_onto(&self, address: usize) -> bool {
        self.state().is_moved_onto(address)
    }

    fn moved_to(&self, address: usize) -> usize {
        let state = self.state();
        state.changes.iter().fold(address, |at, m| match *m {
            Message::Remapped { from, to, len } if (from..from + len).contains(&at) => {
                to + (at - from)
            }
            _ => at,
        })
    }

    fn is_calm(&self) -> bool {
        self.state().changes.is_empty()
    }

    fn is_changing(&self, _: usize) -> bool {
        self.state().is_changing()
    }

    fn register(&self, start: usize, len: usize, _: Mode) -> Result<(), Errno> {
        self.state().registered.extend(pages(start, len));
        Ok(())
    }

    fn unregister(&self, start: usize, len: usize) -> Result<(), Errno> {
        let mut state = self.state();
        for page in pages(start, len) {
            state.registered.remove(&page);
        }
        state.wake(start, len);
        Ok(())
    }

    fn is_registered(&self, page: usize) -> Option<bool> {
        let state = self.state();
        (!state.is_changing()).then(|| state.registered.contains(&page))
    }

    fn is_protectable(&self, page: usize) -> Option<bool> {
        self.is_registered(page)
    }

    fn may_have_registered(&self, page: usize) -> bool {
        self.is_registered(page) != Some(false)
    }

    fn mark_managed(&self, _: usize, _: usize) -> Result<(), Errno> {
        Ok(())
    }

    fn copy(&self, to: usize, from: usize, len: usize, how: CopyMode) -> Outcome {
        for (done, i) in pages(0, len).zip(0..) {
            let bytes = self.bytes_at(from + done);
            let mut state = self.state();
            if let Some(stop) = state.refuses(to + done) {
                // Whatever it was, half-way the kernel says that it may be tried again.
                return stopped(done, if i > 0 { Stop::Again } else { stop });
            }
            state.put(to + done, bytes, how.write_protect);
            if !how.dont_wake {
                state.wake(to + done, PAGE_BYTES);
            }
        }
        whole(len)
    }

    fn move_pages(&self, to: usize, from: usize, len: usize, how: MoveMode) -> Outcome {
        self.state().move_calls += 1;
        let mut done = 0;
        while done < len {
            let stop = self.move_page(to + done, from + done);
            match stop {
                None => {}
                Some(Stop::NoSource) if how.allow_source_holes => {}
                Some(stop) => return stopped(done, if done > 0 { Stop::Again } else { stop }),
            }
            if !how.dont_wake {
                self.state().wake(to + done, PAGE_BYTES);
            }
            done += PAGE_BYTES;
        }
        whole(len)
    }

    fn move_run(&self, to: usize, from: usize, how: MoveMode, report: &mut [MoveOutcome]) {
        for (skip, outcome) in pages(0, report.len() * PAGE_BYTES).zip(report) {
            let (to, from) = (to + skip, from + skip);
            let disturbed = {
                let state = self.state();
                [to, from].iter().any(|&a| state.change_at(a).is_some())
                    || state.is_moved_onto(to)
                    || state.is_moved_onto(from)
            };
            *outcome = loop {
                if disturbed {
                    break MoveOutcome::Changing;
                }
                break match self.move_pages(to, from, PAGE_BYTES, how).stop {
                    None => MoveOutcome::Moved,
                    Some(Stop::Again) => {
                        self.let_change_pass();
                        continue;
                    }
                    Some(Stop::Exists) => MoveOutcome::Exists,
                    Some(Stop::Busy) => MoveOutcome::Busy,
                    Some(Stop::NoSource) => MoveOutcome::Absent,
                    Some(stop) => MoveOutcome::Refused(stop.errno()),
                };
            };
        }
    }

    fn zeropage(&self, start: usize, len: usize) -> Outcome {
        for done in pages(0, len) {
            let mut state = self.state();
            if let Some(stop) = state.refuses(start + done) {
                return stopped(done, if done > 0 { Stop::Again } else { stop });
            }
            if state.markers.contains(&(start + done)) {
                return stopped(done, if done > 0 { Stop::Again } else { Stop::Exists });
            }
            state.put(start + done, vec![0; PAGE_BYTES], false);
            state.wake(start + done, PAGE_BYTES);
        }
        whole(len)
    }

    fn poison(&self, start: usize, len: usize) -> Outcome {
        let mut state = self.state();
        if let Some(stop) = state.refuses(start) {
            return stopped(0, stop);
        }
        if state.markers.contains(&start) {
            return stopped(0, Stop::Exists);
        }
        state.poisoned.extend(pages(start, len));
        state.wake(start, len);
        whole(len)
    }

    fn write_protect(&self, start: usize, len: usize, on: bool) -> Outcome {
        let mut state = self.state();
        if state.is_changing() {
            return stopped(0, Stop::Again);
        }
        for address in pages(start, len) {
            if let Some(page) = state.pages.get_mut(&address) {
                page.protected = on;
            } else if on {
                state.markers.insert(address);
            } else {
                state.markers.remove(&address);
            }
        }
        if !on {
            state.wake(start, len);
        }
        whole(len)
    }

    fn wake(&self, start: usize, len: usize) {
        self.state().wake(start, len);
    }

    fn there(&self, start: usize, out: &mut [bool]) -> Result<(), Errno> {
        for (address, there) in pages(start, out.len() * PAGE_BYTES).zip(out) {
            *there = if is_program(address) {
                let state = self.state();
                let marked = [&state.poisoned, &state.markers];
                state.pages.contains_key(&address) || marked.iter().any(|m| m.contains(&address))
            } else {
                !Pagemap::open()?.page(address)?.empty()
            };
        }
        Ok(())
    }

    fn is_present(&self, address: usize) -> Result<bool, Errno> {
        Ok(self.state().pages.contains_key(&address))
    }

    fn read(&self, address: usize, buffer: &mut [u8]) -> Result<usize, Errno> {
        let state = self.state();
        let page = state.pages.get(&(address & !(PAGE_BYTES - 1)));
        let bytes = &page.ok_or(Errno::EIO)?.bytes[address % PAGE_BYTES..];
        let len = buffer.len().min(bytes.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn make_own(&self, address: usize) -> Option<Own> {
        let mut state = self.state();
        let page = state.pages.get_mut(&address)?;
        let was_shared = std::mem::take(&mut page.shared);
        Some(if was_shared {
            Own::Duplicated
        } else {
            Own::Already
        })
    }

    fn release(&self, parts: &[Part], out: &mut [Released]) -> Result<(), Errno> {
        let mut state = self.state();
        state.release_calls += 1;
        let changing = state.is_changing();
        state.read_all();
        for (part, released) in parts.iter().zip(out) {
            let range = part.address..part.address + part.pages * PAGE_BYTES;
            let first_kept = state.locked.range(range.clone()).next().copied();
            let refused = !changing && first_kept.is_some();
            // A refusal of several comes after some of them went.
            let gone = range.start..first_kept.unwrap_or(range.end);
            if !changing {
                state.pages.retain(|p, _| !gone.contains(p));
            }
            *released = Released {
                done: !changing && !refused,
                refused,
                heard: false,
            };
        }
        if let Some(act) = state.at_drop.take() {
            act(&mut state, parts[0].address);
        }
        Ok(())
    }

    fn give_back(&self, _: usize) -> bool {
        false
    }

    fn start_releasing(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn helper(&self) -> Option<Tid> {
        None
    }

    fn drop_unwritten(&self, address: usize, pages: usize) -> bool {
        let range = address..address + pages * PAGE_BYTES;
        let state = &mut *self.state();
        if let Some(act) = state.at_drop.take() {
            act(state, address);
        }
        // What a fork left shared the kernel does not take from one of both.
        state
            .pages
            .retain(|p, page| !range.contains(p) || page.shared || !state.freed.remove(p));
        true
    }

    fn disturbed_in(&self, _: usize, _: usize, _: &mut dyn FnMut(usize, usize)) {}

    fn undisturbed(&self) {}

    fn serves_shared(&self) -> bool {
        false
    }

    fn forget_threads(&mut self) {}
}

/// Bells that nobody hears: a test looks at the slots itself.
pub(crate) struct Silent;

impl Bells for Silent {
    fn fd(&self) -> i32 {
        -1
    }

    fn gather(&self) {}

    fn next_ring(&self) -> Option<usize> {
        None
    }

    fn resolve(&self, _: usize) {}

    fn register(&self, _: usize, _: usize) -> Result<(), Errno> {
        Ok(())
    }
}
