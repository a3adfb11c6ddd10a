//! Blocks of frames, each with objects of one size class: which objects are in use, and which blocks have room.

use super::classes::{CLASSES, Class};
use super::frames::{Frames, Memory};
use super::table::Table;

/// Lists of blocks that have room, by how full they are: objects come from fuller ones, so that emptier ones empty.
/// Quarters, as zsmalloc had them (`fullness_group` in Linux's `mm/zsmalloc.c`).
const GROUPS: usize = 4;

/// Where an object is: the block's first frame, and which of its objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Object {
    pub(super) first: u32,
    pub(super) index: u16,
}

/// Objects of one size class.
#[derive(Clone, Copy, Default)]
struct Group {
    /// First of the blocks in each list: frame number and 1, 0 for none.
    heads: [u32; GROUPS],
    /// Objects that are free in them.
    free: usize,
}

/// All blocks. A block is named by its first frame.
pub(super) struct Blocks<M> {
    pub(super) frames: Frames<M>,
    /// For each frame a bit for each object in use: those of a block are in the words of its frames, in order. The second word of a
    /// block's first frame has its neighbours in its list, number and 1 of each: the one before in the lower half.
    objects: Table<[u64; 2]>,
    /// Of each block the number of its class, and 1.
    classes: Table<u8>,
    groups: [Group; CLASSES],
}

impl<M: Memory> Blocks<M> {
    pub(super) fn new(memory: M) -> Self {
        let capacity = memory.capacity();
        assert!(
            capacity < u32::MAX as usize,
            "{capacity} frames are more than a pool can number"
        );
        Self {
            frames: Frames::new(memory),
            objects: Table::new(capacity),
            classes: Table::new(capacity),
            groups: [Group::default(); CLASSES],
        }
    }

    pub(super) fn table_pages(&self) -> usize {
        self.objects.pages() + self.classes.pages() + self.frames.table_pages()
    }

    pub(super) fn fixed_bytes(&self) -> usize {
        self.objects.fixed_bytes() + self.classes.fixed_bytes() + self.frames.fixed_bytes()
    }

    /// An object of `class`, if that takes at most `most` frames, pages of tables included.
    pub(super) fn take(&mut self, class: Class, most: usize) -> Option<Object> {
        let group = &self.groups[usize::from(class.0)];
        let head = group.heads.iter().rev().find(|&&head| head != 0);
        match head {
            Some(head) => Some(self.take_of(head - 1, class)),
            None => {
                let first = self.new_block(class, most)?;
                Some(self.take_of(first, class))
            }
        }
    }

    /// An object of a block that is in a list.
    fn take_of(&mut self, first: u32, class: Class) -> Object {
        let (frames, objects) = class.block();
        let used = self.used(first, frames);
        let mut index = 0;
        for frame in first as usize..first as usize + frames {
            let [bits, links] = self.objects.get(frame);
            if bits != u64::MAX {
                index += bits.trailing_ones() as usize;
                self.objects.set(frame, [bits | (bits + 1), links]);
                break;
            }
            index += 64;
        }
        debug_assert!(index < objects, "a block in a list has room");
        self.groups[usize::from(class.0)].free -= 1;
        self.regroup(first, class, Some(used), Some(used + 1));
        Object {
            first,
            index: index as u16,
        }
    }

    fn new_block(&mut self, class: Class, most: usize) -> Option<u32> {
        let (count, objects) = class.block();
        // Idle frames were in a block, so they have their tables but for that of their classes.
        let first = match self.frames.take_idle(count) {
            Some(first) => first,
            None => self.fresh_frames(count, most)?,
        };
        for frame in first..first + count {
            self.objects.set(frame, [0; 2]);
        }
        self.classes.set(first, class.0 + 1);
        self.groups[usize::from(class.0)].free += objects;
        let first = first as u32;
        self.regroup(first, class, None, Some(0));
        Some(first)
    }

    /// Frames that have no RAM, if they take at most `most` with pages of tables and what can be given back.
    fn fresh_frames(&mut self, count: usize, most: usize) -> Option<usize> {
        let (mut first, mut tables) = self.find(count)?;
        if count + tables > most {
            let idle = self.frames.idle();
            if count + tables > most + idle {
                return None;
            }
            self.frames.give_back_idle(count + tables - most);
            let most = most + idle - self.frames.idle();
            (first, tables) = self.find(count)?;
            if count + tables > most {
                return None;
            }
        }
        self.frames.take(first, count);
        Some(first)
    }

    /// Neighbouring frames, and pages of tables that they add.
    fn find(&self, count: usize) -> Option<(usize, usize)> {
        let (first, fresh) = self.frames.find(count)?;
        let objects = self.objects.fresh(first, first + count);
        Some((
            first,
            fresh + objects + self.classes.fresh(first, first + 1),
        ))
    }

    /// Lets go of an object, and of its block when that was the last one.
    pub(super) fn put_back(&mut self, object: Object) {
        let Object { first, index } = object;
        let class = self.class(first);
        let (frames, objects) = class.block();
        let used = self.used(first, frames);
        self.clear(object);
        self.groups[usize::from(class.0)].free += 1;
        if used > 1 {
            return self.regroup(first, class, Some(used), Some(used - 1));
        }
        debug_assert!(usize::from(index) < objects);
        self.regroup(first, class, Some(used), None);
        self.drop_block(first, class);
    }

    fn clear(&mut self, Object { first, index }: Object) {
        let frame = first as usize + usize::from(index / 64);
        let [bits, links] = self.objects.get(frame);
        self.objects
            .set(frame, [bits & !(1 << (index % 64)), links]);
    }

    fn drop_block(&mut self, first: u32, class: Class) {
        let (frames, objects) = class.block();
        self.groups[usize::from(class.0)].free -= objects;
        self.classes.set(first as usize, 0);
        self.frames.put_back(first as usize, frames);
    }

    /// The class of a block.
    pub(super) fn class(&self, first: u32) -> Class {
        Class(self.classes.get(first as usize) - 1)
    }

    fn used(&self, first: u32, frames: usize) -> usize {
        let frames = first as usize..first as usize + frames;
        let ones = |frame| self.objects.get(frame)[0].count_ones() as usize;
        frames.map(ones).sum()
    }

    /// Puts a block into the list that it belongs to now that `after` of its objects are in use and not `before`. `None`: it is in no
    /// list.
    fn regroup(&mut self, first: u32, class: Class, before: Option<usize>, after: Option<usize>) {
        let (_, objects) = class.block();
        let list = |used: usize| (used < objects).then(|| used * GROUPS / objects);
        let (before, after) = (before.and_then(list), after.and_then(list));
        if before == after {
            return;
        }
        if let Some(list) = before {
            let (previous, next) = self.links(first);
            match previous {
                0 => self.groups[usize::from(class.0)].heads[list] = next,
                previous => self.link(previous, |(before, _)| (before, next)),
            }
            if next != 0 {
                self.link(next, |(_, after)| (previous, after));
            }
        }
        if let Some(list) = after {
            let head = &mut self.groups[usize::from(class.0)].heads[list];
            let next = std::mem::replace(head, first + 1);
            self.link(first + 1, |_| (0, next));
            if next != 0 {
                self.link(next, |(_, after)| (first + 1, after));
            }
        }
    }

    fn links(&self, first: u32) -> (u32, u32) {
        let [_, links] = self.objects.get(first as usize);
        (links as u32, (links >> 32) as u32)
    }

    /// `name`: a block's first frame and 1.
    fn link(&mut self, name: u32, change: impl FnOnce((u32, u32)) -> (u32, u32)) {
        let first = name - 1;
        let (previous, next) = change(self.links(first));
        let [bits, _] = self.objects.get(first as usize);
        let links = u64::from(previous) | u64::from(next) << 32;
        self.objects.set(first as usize, [bits, links]);
    }

    /// The first `len` bytes of an object, or all that it has.
    pub(super) fn bytes(&self, object: Object, len: usize) -> &[u8] {
        let (start, most) = self.start(object);
        self.frames.bytes(start, len.min(most))
    }

    /// The same, to be written.
    pub(super) fn bytes_mut(&mut self, object: Object, len: usize) -> &mut [u8] {
        let (start, most) = self.start(object);
        self.frames.bytes_mut(start, len.min(most))
    }

    /// Its first byte, and how many it has.
    fn start(&self, Object { first, index }: Object) -> (usize, usize) {
        let bytes = self.class(first).bytes();
        (
            Frames::<M>::start(first) + usize::from(index) * bytes,
            bytes,
        )
    }

    /// The emptiest block of a class, by quarters, if the others have room for all that is in it.
    pub(super) fn emptiest(&self, class: Class) -> Option<u32> {
        let (_, objects) = class.block();
        let group = &self.groups[usize::from(class.0)];
        // Less what is free in it, that is as much as is in use there.
        if group.free < objects {
            return None;
        }
        let head = group.heads.iter().find(|&&head| head != 0)?;
        Some(head - 1)
    }

    /// The first object in use from `index` on.
    pub(super) fn next_used(&self, first: u32, index: u16) -> Option<Object> {
        let (_, objects) = self.class(first).block();
        let mut index = usize::from(index);
        while index < objects {
            let bits = self.objects.get(first as usize + index / 64)[0] >> (index % 64);
            if bits != 0 {
                let index = index as u16 + bits.trailing_zeros() as u16;
                return Some(Object { first, index });
            }
            index = (index / 64 + 1) * 64;
        }
        None
    }

    /// Takes a block out of its list, so that no object of it is taken.
    pub(super) fn set_aside(&mut self, first: u32) {
        let class = self.class(first);
        let used = self.used(first, class.block().0);
        self.regroup(first, class, Some(used), None);
        let (_, objects) = class.block();
        self.groups[usize::from(class.0)].free -= objects - used;
    }

    /// An object of a block that was set aside was moved elsewhere.
    pub(super) fn moved(&mut self, object: Object) {
        self.clear(object);
    }

    /// Puts a block back that was set aside, or lets go of it when nothing is in it any more; frames that came free.
    pub(super) fn put_in_place(&mut self, first: u32) -> usize {
        let class = self.class(first);
        let (frames, objects) = class.block();
        let used = self.used(first, frames);
        self.groups[usize::from(class.0)].free += objects - used;
        if used > 0 {
            self.regroup(first, class, None, Some(used));
            return 0;
        }
        self.drop_block(first, class);
        frames
    }
}
