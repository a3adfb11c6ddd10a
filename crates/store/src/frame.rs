//! Frames: page-sized memory that the store and the kernel fill behind the compiler's back.
//!
//! The unsafe act is to name memory as a frame, not to submit a request: [`Frame::new`] and
//! [`FrameArea::new`] carry the promise, everything after them is safe.
#![allow(unsafe_code)] // the copies of the stores that need no kernel: memory and faulty

use std::slice;

use aes::cipher::inout::InOutBuf;
use outpage_core::units::PAGE_BYTES;

/// The address of one page of memory, as a source or target of transfers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame(usize);

impl Frame {
    /// The frame at `address`.
    ///
    /// # Safety
    /// From `submit` to the completion of each request that names the frame, `PAGE_BYTES` bytes from
    /// `address` on must be mapped readable and writable, and no Rust reference may be used to read
    /// them (page-in) or write them (page-in and page-out).
    ///
    /// # Panics
    /// When `address` is 0 or no multiple of the page size: `O_DIRECT` needs the alignment.
    #[must_use]
    pub const unsafe fn new(address: usize) -> Self {
        assert!(address != 0 && address.is_multiple_of(PAGE_BYTES));
        Self(address)
    }

    /// Where the frame starts.
    #[must_use]
    pub const fn address(self) -> usize {
        self.0
    }

    /// Copies the content of `other`, another frame. For the store that holds a request for each of the two.
    pub(crate) fn copy_from(self, other: Self) {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.0);
        let from = std::ptr::with_exposed_provenance::<u8>(other.0);
        debug_assert!(self != other);
        // SAFETY: mapped, and used by nobody else meanwhile, by the promise of the frames' makers; frames are
        // whole pages, so two of them do not overlap.
        unsafe { to.copy_from_nonoverlapping(from, PAGE_BYTES) }
    }

    /// Has `rewrite` fill the frame from the content of `other`, which may be the same frame. For the store that holds a request
    /// for each of the two.
    pub(crate) fn rewrite_from(self, other: Self, rewrite: impl FnOnce(InOutBuf<'_, '_, u8>)) {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.0);
        let from = if self == other {
            to.cast_const()
        } else {
            std::ptr::with_exposed_provenance::<u8>(other.0)
        };
        // SAFETY: as in `copy_from`; two frames are the same or do not overlap.
        rewrite(unsafe { InOutBuf::from_raw(from, to, PAGE_BYTES) });
    }

    /// The frame as a buffer of the kernel.
    pub(crate) const fn as_iovec(self) -> IoVec {
        IoVec {
            base: self.0,
            len: PAGE_BYTES,
        }
    }
}

/// A contiguous area of frames, named once; its frames are then handed out by safe code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameArea {
    base: usize,
    frames: u32,
}

impl FrameArea {
    /// The area of `frames` frames from the address `base` on.
    ///
    /// # Safety
    /// What [`Frame::new`] demands must hold for each frame of the area whenever it is part of a
    /// request: in short, the area stays mapped and is touched through system calls and stores only.
    ///
    /// # Panics
    /// When `base` is 0 or no multiple of the page size, or the area wraps around.
    #[must_use]
    pub const unsafe fn new(base: usize, frames: u32) -> Self {
        assert!(base != 0 && base.is_multiple_of(PAGE_BYTES));
        assert!(base.checked_add(frames as usize * PAGE_BYTES).is_some());
        Self { base, frames }
    }

    /// How many frames.
    #[must_use]
    pub const fn frames(self) -> u32 {
        self.frames
    }

    /// Frame number `index`, from 0 on.
    ///
    /// # Panics
    /// When there is no such frame.
    #[must_use]
    pub const fn frame(self, index: u32) -> Frame {
        assert!(index < self.frames);
        Frame(self.base + index as usize * PAGE_BYTES)
    }
}

/// One contiguous piece of memory in a vectored transfer: the layout of `struct iovec`, as numbers,
/// so that it can go to another thread. Made from frames only.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoVec {
    base: usize,
    len: usize,
}

const _: () = assert!(size_of::<IoVec>() == size_of::<libc::iovec>());
const _: () =
    assert!(std::mem::offset_of!(IoVec, len) == std::mem::offset_of!(libc::iovec, iov_len));

impl IoVec {
    /// Where the piece starts.
    #[must_use]
    pub const fn base(self) -> usize {
        self.base
    }

    /// Bytes in the piece.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a piece is never empty")]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Takes `next` in when it starts where this piece ends; says whether it did.
    pub(crate) const fn merge(&mut self, next: Self) -> bool {
        let follows = self.base + self.len == next.base;
        if follows {
            self.len += next.len;
        }
        follows
    }

    /// Cuts up to `bytes` bytes off the front; returns how many.
    pub(crate) fn cut(&mut self, bytes: usize) -> usize {
        let cut = bytes.min(self.len);
        self.base += cut;
        self.len -= cut;
        cut
    }

    /// The first `bytes` bytes of the piece.
    pub(crate) fn prefix(self, bytes: usize) -> Self {
        assert!(bytes <= self.len);
        Self { len: bytes, ..self }
    }

    /// Fills the piece from `bytes`, which is as long. For the store that holds the request.
    pub(crate) fn fill(self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.len);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.base);
        // SAFETY: made from frames, whose maker promised mapped memory that nobody else uses while
        // the request is in flight; `bytes` is as long, and a reference never overlaps frames.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), self.len) }
    }

    /// Copies the piece to `bytes`, which is as long. For the store that holds the request.
    pub(crate) fn copy_to(self, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), self.len);
        let from = std::ptr::with_exposed_provenance::<u8>(self.base);
        // SAFETY: as in `fill`; nobody writes the frames of a page-out in flight.
        bytes.copy_from_slice(unsafe { slice::from_raw_parts(from, self.len) });
    }

    /// Flips bit `bit` (from 0 on) of the piece. For the store that holds the request.
    pub(crate) fn flip(self, bit: usize) {
        assert!(bit / 8 < self.len);
        let byte = std::ptr::with_exposed_provenance_mut::<u8>(self.base + bit / 8);
        // SAFETY: as in `fill`; the byte lies within the piece.
        unsafe { *byte ^= 1 << (bit % 8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_an_area_follow_each_other() {
        // SAFETY: never part of a request.
        let area = unsafe { FrameArea::new(0x10_000, 3) };
        assert_eq!(area.frame(2).address(), 0x12_000);
        assert!(std::panic::catch_unwind(|| area.frame(3)).is_err());
    }

    #[test]
    fn only_neighbours_merge() {
        let mut piece = IoVec {
            base: 0x1000,
            len: 0x1000,
        };
        assert!(!piece.merge(IoVec {
            base: 0x3000,
            len: 0x1000
        }));
        assert!(!piece.merge(IoVec {
            base: 0x1000,
            len: 0x1000
        }));
        assert!(piece.merge(IoVec {
            base: 0x2000,
            len: 0x1000
        }));
        assert_eq!(
            piece,
            IoVec {
                base: 0x1000,
                len: 0x2000
            }
        );
        assert_eq!(piece.cut(0x1800), 0x1800);
        assert_eq!(
            piece,
            IoVec {
                base: 0x2800,
                len: 0x800
            }
        );
        assert_eq!(piece.cut(0x1000), 0x800);
    }
}
