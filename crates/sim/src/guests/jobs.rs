//! Transfers of the guests' disks: threads of the host's that touch a guest's memory.

use outpage_core::contract::{Access, ActionId};
use outpage_core::units::SlotRange;

use super::Machine;
use super::host::{Cause, Request, Who};
use crate::disk::{self, Op};

/// Things by numbers that are used again.
pub(super) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub fn add(&mut self, item: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.items[at as usize] = Some(item);
            return at;
        }
        self.items.push(Some(item));
        (self.items.len() - 1) as u32
    }

    pub fn take(&mut self, at: u32) -> T {
        self.free.push(at);
        self.items[at as usize].take().expect("it is there")
    }

    pub fn get(&mut self, at: u32) -> &mut T {
        self.items[at as usize].as_mut().expect("it is there")
    }
}

/// One transfer.
pub(super) struct Job {
    pub guest: usize,
    /// The guest's action.
    pub id: ActionId,
    pub op: Op,
    /// Slots of the guest's swap space.
    pub slots: SlotRange,
    /// Frames of the guest, in the order of the slots.
    pub frames: Vec<u32>,
    /// How many of them the host had or has read back.
    pub at: usize,
    /// It waits for the one at `at`.
    pub waits: bool,
}

impl Machine {
    /// Goes on with a transfer: all of its frames have to be with the host, one after the other, before the disk is asked.
    pub(super) fn advance(&mut self, number: u32) {
        loop {
            let job = self.jobs.get(number);
            let (guest, at) = (job.guest, job.at);
            let (access, cause) = match job.op {
                Op::Write => (Access::Read, Cause::GuestPageOut),
                // The disk's data overwrites the frame, but nobody knows that before.
                Op::Read => (Access::Write, Cause::GuestPageIn),
            };
            let Some(&frame) = job.frames.get(at) else {
                break;
            };
            if !self.touch_host(guest, frame, access, Who::Job(number), cause) {
                self.jobs.get(number).waits = true;
                return;
            }
            self.jobs.get(number).at = at + 1;
        }
        let (guest, op, slots) = {
            let job = self.jobs.get(number);
            (job.guest, job.op, job.slots)
        };
        let block = self.guests[guest].swap_at + u64::from(slots.start.0);
        let request = disk::Request {
            id: self.requests.add(Request::Guest(number)),
            op,
            block,
            blocks: slots.slots,
            from: (self.guests.len() + guest) as u32,
        };
        self.disk.submit(self.now, request);
    }
}
