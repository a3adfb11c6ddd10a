//! mremap(2) of what is one mapping without a pager, and several with it.
//!
//! Pages that come by userfaultfd can leave neighbours unjoined that would be one mapping, and the kernel moves one at a
//! time where userfaultfd is (`-EFAULT`, `remap_move` in mm/mremap.c). So they are moved one after the other.

use std::ops::ControlFlow;

use outpage_sys::map;
use outpage_sys::maps::{self, Entry};
use outpage_sys::raw::Errno;

/// Room for a piece of the list: any path fits.
const LIST_BYTES: usize = 16 << 10;

/// A mapping, or the part of one in the range.
#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    end: usize,
    prot: i32,
}

/// The pieces of `start..end`; `EFAULT` unless they are private, anonymous, of one protection and without a hole.
fn pieces(start: usize, end: usize) -> Result<Vec<Piece>, Errno> {
    let mut found: Vec<Piece> = Vec::new();
    let mut alike = true;
    let mut look = |entry: &Entry<'_>| {
        if entry.start < end && start < entry.end {
            let piece = Piece {
                start: entry.start.max(start),
                end: entry.end.min(end),
                prot: entry.prot,
            };
            alike &= entry.is_private_anonymous();
            alike &= found
                .last()
                .is_none_or(|last| last.end == piece.start && last.prot == piece.prot);
            found.push(piece);
        }
        ControlFlow::Continue(())
    };
    // Where the list cannot be read the kernel's answer stands.
    maps::for_each(&mut vec![0; LIST_BYTES], &mut look).map_err(|_| Errno::EFAULT)?;
    let whole = found.first().is_some_and(|piece| piece.start == start)
        && found.last().is_some_and(|piece| piece.end == end);
    if alike && whole {
        Ok(found)
    } else {
        Err(Errno::EFAULT)
    }
}

/// As the kernel's, for pieces that are alike; `EFAULT` for others, and for what is not to move or is to shrink.
pub(super) fn mremap(
    old: usize,
    old_len: usize,
    new_len: usize,
    flags: i32,
    new_addr: usize,
) -> Result<usize, Errno> {
    let moves = flags & !libc::MREMAP_FIXED == libc::MREMAP_MAYMOVE;
    let (old_len, new_len) = (
        crate::serve::page_up(old_len),
        crate::serve::page_up(new_len),
    );
    if !moves || new_len < old_len {
        return Err(Errno::EFAULT);
    }
    let pieces = pieces(old, old + old_len)?;
    let to = if flags & libc::MREMAP_FIXED == 0 {
        map::reserve(new_len)?
    } else {
        new_addr
    };
    for (index, piece) in pieces.iter().enumerate() {
        let len = piece.end - piece.start;
        let grown = if index + 1 == pieces.len() {
            len + new_len - old_len
        } else {
            len
        };
        let at = to + (piece.start - old);
        if let Err(error) = step(piece.start, len, grown, at) {
            for piece in &pieces[..index] {
                let len = piece.end - piece.start;
                let _ = step(to + (piece.start - old), len, len, piece.start);
            }
            return Err(error);
        }
    }
    Ok(to)
}

fn step(from: usize, len: usize, new_len: usize, to: usize) -> Result<usize, Errno> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    map::mremap(from, len, new_len, flags, to)
}
