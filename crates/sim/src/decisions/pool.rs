//! The pool of compressed pages of a body that misbehaves.

use std::collections::HashMap;

use outpage_core::contract::{PageOutcome, Refusal};
use outpage_core::units::{PAGE_BYTES, SlotNo, SlotRange};

use crate::seed::mix;

/// What is kept, by place.
#[derive(Default)]
pub(super) struct Pool {
    kept: HashMap<SlotNo, u64>,
    bytes: usize,
}

/// What a content comes to: one in five does not compress, one in five takes no room.
const fn compressed(content: u64) -> Option<u16> {
    let mixed = mix(0, content);
    match mixed % 5 {
        0 => None,
        1 => Some(0),
        _ => Some(64 + ((mixed >> 8) % 3500) as u16),
    }
}

fn bytes(content: u64) -> usize {
    compressed(content).map_or(0, usize::from)
}

impl Pool {
    /// Frames that it takes.
    pub fn frames(&self) -> usize {
        self.bytes.div_ceil(PAGE_BYTES)
    }

    /// Keeps `content` at `slot`, unless that takes more than `frames_max` frames in all.
    pub fn keep(&mut self, slot: SlotNo, content: u64, frames_max: usize) -> PageOutcome {
        assert!(slot.is_pooled(), "{slot:?} is of the store");
        let Some(bytes) = compressed(content) else {
            return PageOutcome::Refused(Refusal::Unfit);
        };
        if (self.bytes + usize::from(bytes)).div_ceil(PAGE_BYTES) > frames_max {
            return PageOutcome::Refused(Refusal::NoRoom);
        }
        let before = self.kept.insert(slot, content);
        assert_eq!(before, None, "{slot:?} is taken");
        self.bytes += usize::from(bytes);
        PageOutcome::Kept { bytes }
    }

    /// Takes out what is at `slot`.
    pub fn take(&mut self, slot: SlotNo) -> u64 {
        let content = self.kept.remove(&slot).expect("it is kept");
        self.bytes -= bytes(content);
        content
    }

    /// Nobody reads `slots` any more.
    pub fn forget(&mut self, slots: SlotRange) {
        for slot in slots.iter() {
            let content = self.kept.remove(&slot);
            self.bytes -= content.map_or(0, bytes);
        }
    }
}
