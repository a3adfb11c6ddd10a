//! The host's end: it writes, and never waits.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::layout::{
    AT_BITS_OFFSET, AT_BYTES, AT_FRAMES, AT_IN_ENTRIES, AT_IN_OFFSET, AT_LOST, AT_MAGIC,
    AT_OUT_ENTRIES, AT_OUT_OFFSET, AT_VERSION, MAGIC, Ring, VERSION,
};
use super::{Layout, Word, read, write};

/// What the host knows of an area by itself. All methods take the area; what stands there may be the work of a mad
/// guest, so only the tails are looked at, and the bits, by which a guest can but mislead itself.
///
/// One thread of the host calls it. Every call takes constant time, allocates nothing and waits for nothing.
#[derive(Debug)]
pub struct Host {
    layout: Layout,
    out_head: u32,
    in_head: u32,
    lost: u32,
}

impl Host {
    /// Makes an area of `layout`: all frames are with the host, both rings empty. `None` when `area` is shorter than
    /// [`Layout::words`]; a longer one is fine. Takes time by the area's length.
    #[must_use]
    pub fn new<W: Word>(area: &[W], layout: Layout) -> Option<Self> {
        let own = area.get(..layout.words())?;
        own.iter().for_each(|word| word.store(0, Relaxed));
        let bytes = |words: u32| words.wrapping_mul(4);
        let (out, back) = (layout.out_ring(), layout.in_ring());
        for (at, value) in [
            (AT_VERSION, VERSION),
            (AT_BYTES, bytes(layout.words() as u32)),
            (AT_FRAMES, layout.frames()),
            (AT_OUT_OFFSET, bytes(out.start)),
            (AT_OUT_ENTRIES, out.entries),
            (AT_IN_OFFSET, bytes(back.start)),
            (AT_IN_ENTRIES, back.entries),
            (AT_BITS_OFFSET, bytes(layout.bits())),
        ] {
            write(own, at, value, Relaxed);
        }
        // Last: who finds it finds the rest.
        write(own, AT_MAGIC, MAGIC, Release);
        Some(Self {
            layout,
            out_head: 0,
            in_head: 0,
            lost: 0,
        })
    }

    /// The host has no copy of guest frame `frame` in RAM any more: touching it costs a page-in. A frame that the
    /// guest does not have is left out. False when the guest has been told so already.
    pub fn paged_out<W: Word>(&mut self, area: &[W], frame: u32) -> bool {
        let changed = self.set(area, frame, true);
        if changed {
            let ring = self.layout.out_ring();
            match push(area, ring, self.out_head, frame) {
                Some(head) => self.out_head = head,
                None => self.lose(area),
            }
        }
        changed
    }

    /// The host has guest frame `frame` in RAM again. False when the guest has been told so already.
    pub fn paged_in<W: Word>(&mut self, area: &[W], frame: u32) -> bool {
        let changed = self.set(area, frame, false);
        if changed {
            let ring = self.layout.in_ring();
            match push(area, ring, self.in_head, frame) {
                Some(head) => self.in_head = head,
                None => self.lose(area),
            }
        }
        changed
    }

    /// Entries that found their ring full, modulo 2^32.
    #[must_use]
    pub const fn lost(&self) -> u32 {
        self.lost
    }

    /// Sets or clears a frame's bit. False when it was so already, or there is no such frame.
    fn set<W: Word>(&self, area: &[W], frame: u32, out: bool) -> bool {
        if frame >= self.layout.frames() {
            return false;
        }
        let (at, bit) = (self.layout.bits() + frame / 32, 1 << (frame % 32));
        let word = read(area, at, Relaxed);
        let now = if out { word | bit } else { word & !bit };
        write(area, at, now, Relaxed);
        word != now
    }

    /// An entry did not fit. Released, so that a guest which sees the count sees the bit.
    fn lose<W: Word>(&mut self, area: &[W]) {
        self.lost = self.lost.wrapping_add(1);
        write(area, AT_LOST, self.lost, Release);
    }
}

/// Puts `frame` behind the last entry; the new head. `None` when the ring is full, or its tail is where no guest can
/// have read to.
fn push<W: Word>(area: &[W], ring: Ring, head: u32, frame: u32) -> Option<u32> {
    // Acquired: the guest has read an entry before it gives its place back.
    let unread = head.wrapping_sub(read(area, ring.tail, Acquire));
    if unread >= ring.entries {
        return None;
    }
    write(area, ring.at(head), frame, Relaxed);
    let head = head.wrapping_add(1);
    // Released: bit and entry come before.
    write(area, ring.head, head, Release);
    Some(head)
}
