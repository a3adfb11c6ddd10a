//! mremap(2) of what is one mapping without a pager, and several with it.
//!
//! Pages that come by userfaultfd can leave neighbours unjoined that would be one mapping, and the kernel moves one at a
//! time where userfaultfd is (`-EFAULT`, `remap_move` in mm/mremap.c). So they are moved one after the other.

use outpage_core::units::PAGE_BYTES;
use outpage_sys::map;
use outpage_sys::raw::Errno;

use crate::call::Call;
use crate::engine::Engine;
use crate::space::page_up;

/// A mapping, or the part of one in the range.
#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    end: usize,
}

/// The pieces of `start..end`; `EFAULT` unless they are private, anonymous, of one protection and without a hole.
///
/// The pager lists them: a descriptor of the program's own could be closed or replaced by another thread meanwhile.
fn pieces(engine: &Engine, start: usize, end: usize) -> Result<Vec<Piece>, Errno> {
    let mut found: Vec<Piece> = Vec::new();
    let (mut at, mut prot_of_first) = (start, None);
    while at < end {
        let answer = engine.call(Call::MappingAt { addr: at });
        let answer = usize::try_from(answer).map_err(|_| Errno::EFAULT)?;
        let (mapped_to, prot) = (answer & !(PAGE_BYTES - 1), answer & (PAGE_BYTES - 1));
        if *prot_of_first.get_or_insert(prot) != prot {
            return Err(Errno::EFAULT);
        }
        found.push(Piece {
            start: at,
            end: mapped_to.min(end),
        });
        at = mapped_to;
    }
    Ok(found)
}

/// As the kernel's, for pieces that are alike; `EFAULT` for others, for none, and for what is not to move or is to shrink.
pub(super) fn mremap(
    engine: &Engine,
    old: usize,
    old_len: usize,
    new_len: usize,
    flags: i32,
    new_addr: usize,
) -> Result<usize, Errno> {
    let moves = flags & !libc::MREMAP_FIXED == libc::MREMAP_MAYMOVE;
    let (old_len, new_len) = (page_up(old_len), page_up(new_len));
    if !moves || old_len == 0 || new_len < old_len {
        return Err(Errno::EFAULT);
    }
    let pieces = pieces(engine, old, old + old_len)?;
    let to = if flags & libc::MREMAP_FIXED == 0 {
        engine.placing(|| map::reserve(new_len))?
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
        if let Err(error) = engine.placing(|| step(piece.start, len, grown, at)) {
            for piece in &pieces[..index] {
                let len = piece.end - piece.start;
                let from = to + (piece.start - old);
                let _ = engine.placing(|| step(from, len, len, piece.start));
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
