//! The pool: compressed pages in RAM, by slot.

use outpage_core::units::PAGE_BYTES;

use super::blocks::{Blocks, Object};
use super::classes::{CLASSES, Class, OBJECT_BYTES_MAX};
use super::codec::{Codec, Coder};
use super::frames::Memory;
use super::sample::worth_it;
use super::table::Table;

/// Each object begins with its slot, for when it is moved.
const OWNER_BYTES: usize = size_of::<u32>();

/// Pages of which a few words are looked at first, after one that the codec made nothing of: such pages come in numbers, and where there
/// are none the look would cost each page for nothing. A choice.
const DOUBTS: u8 = 16;

/// Objects that are moved for a page that there is no room for: 6 us at 0.2 us each. That keeps two of three pages out of the store that
/// would go there for want of a block (`benches/pool.rs`, the pool full); with no frames that can be emptied it costs a look at each class.
const MOVES_WHEN_FULL: usize = 32;

/// Why a page is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unkept {
    /// It does not compress to the largest class, or a few of its words say so.
    Unfit,
    /// It would take more frames than the limit, or there are no neighbouring frames for it.
    NoRoom,
}

impl std::fmt::Display for Unkept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unfit => "the page hardly compresses",
            Self::NoRoom => "the pool of compressed pages is full",
        })
    }
}

impl std::error::Error for Unkept {}

/// Why a page does not come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakeError {
    /// Nothing is kept for its slot.
    Missing,
    /// The codec refuses what is kept.
    Damaged,
}

impl std::fmt::Display for TakeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Missing => "the pool keeps no page for this slot",
            Self::Damaged => "a compressed page is damaged",
        })
    }
}

impl std::error::Error for TakeError {}

/// What is kept for a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    Nothing,
    /// `bytes` of its object, beside its owner.
    At {
        object: Object,
        bytes: u16,
    },
    /// The page is this word again and again.
    Filled(u64),
    /// The same, but the word is in the table of words.
    FilledElsewhere,
}

impl Kept {
    /// In eight bytes; zero is [`Kept::Nothing`]. The lowest two bits tell which.
    fn pack(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::At {
                object: Object { first, index },
                bytes,
            } => u64::from(first) << 32 | u64::from(index) << 16 | u64::from(bytes) << 2 | 1,
            Self::Filled(word) => word << 2 | 2,
            Self::FilledElsewhere => 3,
        }
    }

    fn unpack(packed: u64) -> Self {
        match packed & 3 {
            0 => Self::Nothing,
            1 => Self::At {
                object: Object {
                    first: (packed >> 32) as u32,
                    index: (packed >> 16) as u16,
                },
                bytes: packed as u16 >> 2,
            },
            2 => Self::Filled((packed as i64 >> 2) as u64),
            _ => Self::FilledElsewhere,
        }
    }

    /// As a page of `word`s is kept. Most words are small numbers, addresses or one byte repeated, and fit.
    fn filled(word: u64) -> Self {
        let kept = Self::Filled(word);
        if Self::unpack(kept.pack()) == kept {
            kept
        } else {
            Self::FilledElsewhere
        }
    }
}

/// Compressed pages, by slot.
///
/// Objects of one size class share blocks of one to four frames. Nothing is allocated after construction: the tables have their
/// sizes then, and take RAM as far as they are written. A forked child has a copy of everything, if its [`Memory`] has.
///
/// A page of a table that was written stays charged, also when nothing is in it any more. What it takes from the beginning is its owner's to charge
/// ([`Pool::fixed_frames`]); of that, the table of LZ4 and the buffer that a codec fills are left out: less than 16 KiB.
pub struct Pool<M> {
    blocks: Blocks<M>,
    /// What is kept for each slot.
    kept: Table<u64>,
    /// Words of pages that are one word repeated, where these do not fit beside.
    words: Table<u64>,
    coder: Coder,
    limit: usize,
    pages: usize,
    stored_bytes: usize,
    /// For how many pages yet a few words are looked at first.
    doubts: u8,
    /// The class that [`Pool::compact`] goes on with.
    compacting: u8,
}

impl<M: Memory> Pool<M> {
    /// An empty pool for the pages of slots `0..slots`, with a limit of 0 frames.
    ///
    /// # Panics
    /// When `memory` has 2^32 - 1 frames or more.
    #[must_use]
    pub fn new(memory: M, slots: u32, codec: Codec) -> Self {
        Self {
            blocks: Blocks::new(memory),
            kept: Table::new(slots as usize),
            words: Table::new(slots as usize),
            coder: Coder::new(codec),
            limit: 0,
            pages: 0,
            stored_bytes: 0,
            doubts: 0,
            compacting: 0,
        }
    }

    /// Keeps a page as that of `slot`, in the place of what was kept there; how many bytes it comes to, 0 for one 64-bit word
    /// repeated, which needs no more than an entry in a table. Where there is no room, moves a few other pages together.
    ///
    /// # Errors
    /// [`Unkept`]; nothing is kept for `slot` then.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn put(&mut self, slot: u32, page: &[u8; PAGE_BYTES]) -> Result<u16, Unkept> {
        let at = slot as usize;
        self.remove(at);
        if let Some(word) = repeated_word(page) {
            return self.put_word(at, word);
        }
        if self.doubts > 0 {
            if !worth_it(page) {
                self.doubts = DOUBTS;
                return Err(Unkept::Unfit);
            }
            self.doubts -= 1;
        }
        let most = OBJECT_BYTES_MAX - OWNER_BYTES;
        let Some(len) = self.coder.compress(page, most) else {
            self.doubts = DOUBTS;
            return Err(Unkept::Unfit);
        };
        let class = Class::of(len + OWNER_BYTES).ok_or(Unkept::Unfit)?;
        let fresh = self.kept.fresh(at, at + 1);
        let most = self.room(fresh).checked_sub(fresh).ok_or(Unkept::NoRoom)?;
        let object = match self.blocks.take(class, most) {
            Some(object) => object,
            None => self.take_after_moves(class, fresh)?,
        };
        let to = self.blocks.bytes_mut(object, OWNER_BYTES + len);
        let (owner, to) = to.split_at_mut(OWNER_BYTES);
        owner.copy_from_slice(&slot.to_le_bytes());
        to.copy_from_slice(self.coder.made(len));
        let bytes = len as u16;
        self.kept.set(at, Kept::At { object, bytes }.pack());
        self.pages += 1;
        self.stored_bytes += usize::from(bytes);
        Ok(bytes)
    }

    /// Frames by which it may grow. Gives idle ones back where that makes them `least`.
    fn room(&mut self, least: usize) -> usize {
        let over = (self.frames() + least).saturating_sub(self.limit);
        if over <= self.blocks.frames.idle() {
            self.blocks.frames.give_back_idle(over);
        }
        self.limit.saturating_sub(self.frames())
    }

    /// An object where there is none without moving others together: looking for them takes a step a class where there are none.
    fn take_after_moves(&mut self, class: Class, fresh: usize) -> Result<Object, Unkept> {
        if !self.gather(MOVES_WHEN_FULL) {
            return Err(Unkept::NoRoom);
        }
        let most = self.room(fresh).checked_sub(fresh).ok_or(Unkept::NoRoom)?;
        self.blocks.take(class, most).ok_or(Unkept::NoRoom)
    }

    fn put_word(&mut self, at: usize, word: u64) -> Result<u16, Unkept> {
        let kept = Kept::filled(word);
        let elsewhere = kept == Kept::FilledElsewhere;
        let words = if elsewhere {
            self.words.fresh(at, at + 1)
        } else {
            0
        };
        let fresh = self.kept.fresh(at, at + 1) + words;
        if fresh > self.room(fresh) {
            return Err(Unkept::NoRoom);
        }
        if elsewhere {
            self.words.set(at, word);
        }
        self.kept.set(at, kept.pack());
        self.pages += 1;
        Ok(0)
    }

    /// Reads the page of `slot` into `page` and keeps it no longer.
    ///
    /// # Errors
    /// [`TakeError::Missing`], with `page` as it was; [`TakeError::Damaged`], with anything in it: that page is not kept any longer
    /// either.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn take(&mut self, slot: u32, page: &mut [u8; PAGE_BYTES]) -> Result<(), TakeError> {
        let read = self.read(slot, page);
        self.remove(slot as usize);
        read
    }

    /// Reads the page of `slot` into `page` and keeps it.
    ///
    /// # Errors
    /// As those of [`Pool::take`], but what is damaged stays.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn read(&mut self, slot: u32, page: &mut [u8; PAGE_BYTES]) -> Result<(), TakeError> {
        let at = slot as usize;
        let word = match Kept::unpack(self.kept.get(at)) {
            Kept::Nothing => return Err(TakeError::Missing),
            Kept::At { object, bytes } => {
                let bytes = self.blocks.bytes(object, OWNER_BYTES + usize::from(bytes));
                let whole = self.coder.decompress(&bytes[OWNER_BYTES..], page);
                return if whole {
                    Ok(())
                } else {
                    Err(TakeError::Damaged)
                };
            }
            Kept::Filled(word) => word,
            Kept::FilledElsewhere => self.words.get(at),
        };
        let (words, _) = page.as_chunks_mut();
        words.fill(word.to_ne_bytes());
        Ok(())
    }

    /// Nothing is kept for slots `start..end` any more. Takes a step for each of them that lies in a page of the table that was
    /// written.
    ///
    /// # Panics
    /// When there are no such slots.
    pub fn forget(&mut self, start: u32, end: u32) {
        let (mut at, end) = (start as usize, end as usize);
        assert!(
            end <= self.kept.len(),
            "slots {start}..{end} of {}",
            self.kept.len()
        );
        while let Some(slot) = self.kept.next_written(at, end) {
            self.remove(slot);
            at = slot + 1;
        }
    }

    /// Frames that it is charged: those of objects, a few that came free and are kept for the next ones, and [`Pool::table_frames`].
    #[must_use]
    pub fn frames(&self) -> usize {
        self.object_frames() + self.blocks.frames.idle() + self.table_frames()
    }

    /// Frames in which compressed pages are.
    #[must_use]
    pub const fn object_frames(&self) -> usize {
        self.blocks.frames.used()
    }

    /// Pages of tables that were ever written.
    #[must_use]
    pub fn table_frames(&self) -> usize {
        self.kept.pages() + self.words.pages() + self.blocks.table_pages()
    }

    /// Frames that it takes from the beginning, whatever is in it, and that are not among [`Pool::frames`]: what says which pages of the tables were written, and
    /// a codec's memory where that is more than a few frames.
    #[must_use]
    pub fn fixed_frames(&self) -> usize {
        let fixed = self.kept.fixed_bytes() + self.words.fixed_bytes() + self.blocks.fixed_bytes();
        (fixed + self.coder.bytes()).div_ceil(PAGE_BYTES)
    }

    /// Bytes of [`Pool::object_frames`] that hold no compressed page: what sizes are rounded up by, what is left over in blocks, owners
    /// and free objects.
    #[must_use]
    pub const fn lost_bytes(&self) -> usize {
        self.object_frames() * PAGE_BYTES - self.stored_bytes
    }

    /// Most frames that it may be charged.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// At most `frames` frames from now on. What is beyond stays until it leaves.
    pub const fn set_limit(&mut self, frames: usize) {
        self.limit = frames;
    }

    /// Pages that are kept.
    #[must_use]
    pub const fn pages(&self) -> usize {
        self.pages
    }

    /// Bytes of these as the codec made them.
    #[must_use]
    pub const fn stored_bytes(&self) -> usize {
        self.stored_bytes
    }

    #[cfg(test)]
    pub(super) const fn memory_mut(&mut self) -> &mut M {
        self.blocks.frames.memory_mut()
    }

    fn remove(&mut self, at: usize) {
        let kept = Kept::unpack(self.kept.get(at));
        if kept == Kept::Nothing {
            return;
        }
        self.kept.set(at, Kept::Nothing.pack());
        self.pages -= 1;
        if let Kept::At { object, bytes } = kept {
            self.stored_bytes -= usize::from(bytes);
            self.blocks.put_back(object);
        }
    }

    /// Moves objects out of nearly empty blocks into others of their class, at most `most` of them, and gives back what was kept for the
    /// next ones; how many frames came free.
    /// A move takes as long as copying the object.
    pub fn compact(&mut self, most: usize) -> usize {
        let (before, mut left) = (self.frames(), most);
        for _ in 0..CLASSES {
            while left > 0 && self.empty_a_block(Class(self.compacting), &mut left) {}
            if left == 0 {
                break;
            }
            self.compacting = (self.compacting + 1) % CLASSES as u8;
        }
        self.blocks.frames.give_back_idle(usize::MAX);
        before - self.frames()
    }

    /// Moves at most `most` objects to empty one block; whether it did.
    fn gather(&mut self, most: usize) -> bool {
        let mut left = most;
        for _ in 0..CLASSES {
            if self.empty_a_block(Class(self.compacting), &mut left) {
                return true;
            }
            if left == 0 {
                break;
            }
            self.compacting = (self.compacting + 1) % CLASSES as u8;
        }
        false
    }

    /// Empties the emptiest block of the class, if the others have room for what is in it; whether it came free.
    fn empty_a_block(&mut self, class: Class, left: &mut usize) -> bool {
        let Some(first) = self.blocks.emptiest(class) else {
            return false;
        };
        self.blocks.set_aside(first);
        let mut index = 0;
        while let Some(object) = self.blocks.next_used(first, index) {
            if *left == 0 {
                break;
            }
            *left -= 1;
            index = object.index + 1;
            self.move_object(object, class);
        }
        self.blocks.put_in_place(first) > 0
    }

    /// An object whose owner is not the slot that it names is damaged and stays.
    fn move_object(&mut self, from: Object, class: Class) {
        let mut held = [0; OBJECT_BYTES_MAX];
        let held = &mut held[..class.bytes()];
        held.copy_from_slice(self.blocks.bytes(from, class.bytes()));
        let owner = held
            .first_chunk()
            .map_or(0, |owner| u32::from_le_bytes(*owner)) as usize;
        if owner >= self.kept.len() {
            return;
        }
        let Kept::At { object, bytes } = Kept::unpack(self.kept.get(owner)) else {
            return;
        };
        if object != from {
            return;
        }
        let Some(object) = self.blocks.take(class, 0) else {
            return;
        };
        self.blocks
            .bytes_mut(object, class.bytes())
            .copy_from_slice(held);
        self.kept.set(owner, Kept::At { object, bytes }.pack());
        self.blocks.moved(from);
    }
}

/// The word that the page repeats.
fn repeated_word(page: &[u8; PAGE_BYTES]) -> Option<u64> {
    let (words, _) = page.as_chunks::<8>();
    let first = words[0];
    // Eight at a time: compared without a branch each.
    let same = |words: &[[u8; 8]]| {
        words
            .iter()
            .fold(true, |same, word| same & (*word == first))
    };
    words
        .chunks_exact(8)
        .all(same)
        .then(|| u64::from_ne_bytes(first))
}
