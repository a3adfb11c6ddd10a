//! Blocks of sizes.

use std::io;

use outpage_core::units::PAGE_BYTES;

use super::bytes::{Cursor, put};
use super::{BLOCK_BYTES, page};
use crate::sizes::Sizes;

/// Pages of one record of sizes at most, so that a block has room for a whole one.
const RECORD_PAGES: usize = 4096;
/// Bytes of the longest record: three numbers, and two bytes a page.
const RECORD_BYTES: usize = 30 + 2 * RECORD_PAGES;

/// Hands out blocks of records, none longer than [`BLOCK_BYTES`], and the pages of each.
pub(super) fn blocks(
    sizes: &Sizes,
    mut each: impl FnMut(u32, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let (mut block, mut pages) = (Vec::new(), 0);
    let mut last = State::START;
    for (start, bytes) in sizes.extents() {
        for (n, part) in bytes.chunks(RECORD_PAGES).enumerate() {
            if block.len() + RECORD_BYTES > BLOCK_BYTES {
                each(pages, &block)?;
                block.clear();
                (pages, last) = (0, State::START);
            }
            let index = start.index() + (n * RECORD_PAGES) as u64;
            last.put(&mut block, u64::from(start.object().0), index, part);
            pages += part.len() as u32;
        }
    }
    if pages > 0 {
        each(pages, &block)?;
    }
    Ok(())
}

/// Appends to `sizes` what a block of `pages` pages says; `None` where it says what cannot be.
pub(super) fn read(sizes: &mut Sizes, pages: u32, block: &[u8]) -> Option<()> {
    let before = sizes.len();
    let mut cursor = Cursor(block);
    let mut state = State::START;
    while !cursor.0.is_empty() {
        read_record(sizes, &mut cursor, &mut state)?;
    }
    (sizes.len() - before == pages as usize).then_some(())
}

fn read_record(sizes: &mut Sizes, cursor: &mut Cursor<'_>, state: &mut State) -> Option<()> {
    let step = cursor.number()?;
    if step > 0 {
        let object = state.object.checked_add(step)?;
        *state = State { object, index: 0 };
    }
    state.index = state.index.checked_add(cursor.number()?)?;
    let count = cursor.number()?.checked_add(1)?;
    for _ in 0..count {
        let next = page(state.object, state.index)?;
        if sizes.last().is_some_and(|last| next <= last) {
            return None;
        }
        let bytes = cursor.number()?;
        if bytes > PAGE_BYTES as u64 {
            return None;
        }
        sizes.push(next, bytes as u16);
        state.index += 1;
    }
    Some(())
}

/// What the next record is told relative to: the page after the last.
struct State {
    object: u64,
    index: u64,
}

impl State {
    const START: Self = Self {
        object: 0,
        index: 0,
    };

    fn put(&mut self, out: &mut Vec<u8>, object: u64, index: u64, bytes: &[u16]) {
        if object != self.object {
            self.index = 0;
        }
        put(out, object - self.object);
        put(out, index - self.index);
        put(out, bytes.len() as u64 - 1);
        bytes.iter().for_each(|&bytes| put(out, u64::from(bytes)));
        *self = Self {
            object,
            index: index + bytes.len() as u64,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outpage_core::units::{ObjectId, PageNo};

    #[test]
    fn sizes_of_a_random_page_take_two_bytes() {
        let random = |n: u64| (crate::seed::mix(7, n) % 4097) as u16;
        let pages = (0..100_000).map(|n| (PageNo::new(ObjectId(3), n + n / 5000), random(n)));
        let sizes = Sizes::new(pages);
        let mut total = 0;
        let mut again = Sizes::default();
        blocks(&sizes, |pages, block| {
            assert!(block.len() <= BLOCK_BYTES);
            total += block.len();
            read(&mut again, pages, block).expect("just written");
            Ok(())
        })
        .expect("memory takes all");
        assert_eq!(again, sizes);
        assert!(total < 2 * sizes.len() + 400, "{total}");
    }
}
