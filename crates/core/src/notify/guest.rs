//! The guest's end, as the simulator has it; a kernel takes `guest/outpage_notify.h`.

use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

use super::layout::{
    AT_BITS_OFFSET, AT_BYTES, AT_FRAMES, AT_HIDDEN, AT_IN_ENTRIES, AT_IN_OFFSET, AT_LOST, AT_MAGIC,
    AT_OUT_ENTRIES, AT_OUT_OFFSET, AT_RESCUED, AT_SEEN, AT_SKIPPED, AT_VERSION, MAGIC, Ring,
    VERSION,
};
use super::{Layout, Word, read, write};

/// Why a guest does not take an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It does not begin with [`MAGIC`].
    NoArea,
    /// It has another version than [`VERSION`].
    Version(u32),
    /// Its parts do not lie as this version says, or not in the area.
    Damaged,
}

/// What a drain came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// Entries that were read.
    pub entries: u32,
    /// Whether entries had been lost, so that every frame was looked at.
    pub all: bool,
}

/// What the guest knows of an area by itself. One thread of it drains.
#[derive(Debug)]
pub struct Guest {
    layout: Layout,
    out_tail: u32,
    in_tail: u32,
    /// Of the count of lost entries: how far every frame was looked at.
    seen: u32,
}

impl Guest {
    /// Takes an area that a host has made. What was told before is found at the first drain.
    ///
    /// # Errors
    /// When it is none of this version.
    pub fn attach<W: Word>(area: &[W]) -> Result<Self, Refused> {
        let word = |at| read(area, at, Relaxed);
        if read(area, AT_MAGIC, Acquire) != MAGIC {
            return Err(Refused::NoArea);
        }
        if word(AT_VERSION) != VERSION {
            return Err(Refused::Version(word(AT_VERSION)));
        }
        let layout = Layout::new(word(AT_FRAMES), word(AT_OUT_ENTRIES)).ok_or(Refused::Damaged)?;
        let sound = area.len() >= layout.words()
            && u64::from(word(AT_BYTES)) == layout.words() as u64 * 4
            && word(AT_IN_ENTRIES) == word(AT_OUT_ENTRIES)
            && word(AT_OUT_OFFSET) == layout.out_ring().start * 4
            && word(AT_IN_OFFSET) == layout.in_ring().start * 4
            && word(AT_BITS_OFFSET) == layout.bits() * 4;
        if !sound {
            return Err(Refused::Damaged);
        }
        Ok(Self {
            layout,
            out_tail: 0,
            in_tail: 0,
            seen: 0,
        })
    }

    /// Reads what was told since the last time: `each` gets a frame and whether it is paged out now. The same frame may
    /// come several times; the last time counts. After lost entries `each` gets every frame of the guest.
    ///
    /// Frames change while this runs. For each that does there is an entry, or a lost one, at the next drain.
    pub fn drain<W: Word>(&mut self, area: &[W], mut each: impl FnMut(u32, bool)) -> Told {
        let (out, back) = (self.layout.out_ring(), self.layout.in_ring());
        // Acquired before the bits: these are at least as new as the entries.
        let heads = [out, back].map(|ring| read(area, ring.head, Acquire));
        let lost = read(area, AT_LOST, Acquire);
        let unread = [
            heads[0].wrapping_sub(self.out_tail),
            heads[1].wrapping_sub(self.in_tail),
        ];
        let all = lost != self.seen || unread.iter().any(|&n| n > out.entries);
        let mut entries = 0;
        if all {
            (0..self.layout.frames()).for_each(|frame| each(frame, self.is_out(area, frame)));
            self.seen = lost;
            write(area, AT_SEEN, lost, Release);
        } else {
            entries = unread[0] + unread[1];
            self.read_ring(area, out, self.out_tail, unread[0], &mut each);
            self.read_ring(area, back, self.in_tail, unread[1], &mut each);
        }
        [self.out_tail, self.in_tail] = heads;
        write(area, out.tail, heads[0], Release);
        write(area, back.tail, heads[1], Release);
        Told { entries, all }
    }

    fn read_ring<W: Word>(
        &self,
        area: &[W],
        ring: Ring,
        tail: u32,
        unread: u32,
        each: &mut impl FnMut(u32, bool),
    ) {
        for number in 0..unread {
            let frame = read(area, ring.at(tail.wrapping_add(number)), Relaxed);
            if frame < self.layout.frames() {
                each(frame, self.is_out(area, frame));
            }
        }
    }

    /// Whether the host has paged out `frame`; false for a frame that there is not.
    #[must_use]
    pub fn is_out<W: Word>(&self, area: &[W], frame: u32) -> bool {
        let has = frame < self.layout.frames();
        let word = self.layout.bits() + frame / 32;
        has && read(area, word, Ordering::Relaxed) >> (frame % 32) & 1 == 1
    }

    /// Says what became of what was told: pages hidden now, entries that named no page that could be hidden, and hidden
    /// pages that were given back because the guest ran out of memory. For people who look; the host believes none
    /// of it.
    pub fn report<W: Word>(&self, area: &[W], hidden: u32, skipped: u32, rescued: u32) {
        write(area, AT_HIDDEN, hidden, Relaxed);
        write(area, AT_SKIPPED, skipped, Relaxed);
        write(area, AT_RESCUED, rescued, Relaxed);
    }
}
