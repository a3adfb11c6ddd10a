//! What a client and `outpage serve` say to each other, byte by byte: `docs/serve.md` has the tables.
//!
//! One message is one packet of a local socket. All numbers are little-endian. A message begins with its kind (two bytes), two bytes of zero and a tag of
//! four bytes, which an answer has of its request. Lengths are exact, and what is reserved is zero: whatever else arrives is no message.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attributes;
mod reply;
mod request;

pub use attributes::{ATTRIBUTE_HEADER_BYTES, Attributes, attribute_bytes};
pub use reply::{Lost, Refusal, Reply, STATS, Stats};
pub use request::{Hello, Pages, Request};

/// The version that both ends must have. There are no others yet; any change of a message or of its meaning is another version.
pub const VERSION: u32 = 1;
/// The first word of the first message: "OPG" and a byte that is no letter.
pub const MAGIC: u32 = u32::from_le_bytes(*b"OPG\x01");
/// No message is longer. The longest is a [`Reply::Taken`] of [`TAKE_BACK_PAGES_MAX`] pages.
pub const MESSAGE_BYTES_MAX: usize = 8 + 16 + TAKE_BACK_PAGES_MAX as usize / 8;
/// Most pages of one [`Request::TakeBack`]: their bits are a page, 128 MiB of memory. A choice: longer ranges take several requests.
pub const TAKE_BACK_PAGES_MAX: u64 = 32_768;
/// Most memory objects of one client. A choice: a collector has three spaces; each object costs the server two mappings, of 65,530 that a process has
/// by default (vm.max_map_count).
pub const OBJECTS_MAX: u32 = 64;
/// Weights, as those of Linux control groups (`cpu.weight`).
pub const WEIGHTS: core::ops::RangeInclusive<u32> = 1..=10_000;
/// The weight of who does not care, as there.
pub const WEIGHT_DEFAULT: u32 = 100;
/// The least that a client is guaranteed, in pages: below a megabyte a pager cannot work (`outpage_core::limits::FRAMES_MIN`).
pub const MINIMUM_PAGES: u64 = 256;
/// Bytes of a page.
pub const PAGE_BYTES: u32 = 4096;

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// The kind is not known.
    Kind(u16),
    /// It is longer or shorter than its kind is.
    Length,
    /// What is reserved is not zero, or a number is outside of its range.
    Value,
    /// The first message does not begin as one must.
    Magic,
    /// The other end has another version.
    Version(u32),
    /// Descriptors came with it that do not belong there, or some are missing.
    Descriptors,
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "a message of kind {kind:#x} is not known"),
            Self::Length => f.write_str("a message has the wrong length"),
            Self::Value => f.write_str("a message has a number outside of its range"),
            Self::Magic => f.write_str("what arrived is none of Outpage's messages"),
            Self::Version(found) => write!(
                f,
                "the other end speaks version {found}; this one speaks version {VERSION}"
            ),
            Self::Descriptors => f.write_str(
                "a message has the wrong number of descriptors, or one of the wrong kind",
            ),
        }
    }
}

impl core::error::Error for Malformed {}

/// Numbers out of bytes, one after the other.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed::Length)?;
        self.0 = rest;
        Ok(*first)
    }

    fn short(&mut self) -> Result<u16, Malformed> {
        self.take().map(u16::from_le_bytes)
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    fn zero(&mut self) -> Result<(), Malformed> {
        if self.word()? == 0 {
            Ok(())
        } else {
            Err(Malformed::Value)
        }
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed::Length)
        }
    }

    /// Kind and tag.
    fn head(&mut self) -> Result<(u16, u32), Malformed> {
        let kind = self.short()?;
        if self.short()? != 0 {
            return Err(Malformed::Value);
        }
        Ok((kind, self.word()?))
    }
}

/// A message being written.
struct Writer<'a>(&'a mut alloc::vec::Vec<u8>);

impl<'a> Writer<'a> {
    fn begin(out: &'a mut alloc::vec::Vec<u8>, kind: u16, tag: u32) -> Self {
        out.clear();
        let writer = Self(out);
        writer.0.extend_from_slice(&kind.to_le_bytes());
        writer.0.extend_from_slice(&[0; 2]);
        writer.word(tag)
    }

    fn word(self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn long(self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
}
