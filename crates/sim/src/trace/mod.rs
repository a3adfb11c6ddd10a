//! Recorded page references: the format, its writer and reader, other formats, and what a trace
//! becomes.
//!
//! A trace is a header, blocks of references, blocks of sizes and an end. Numbers in the frame are
//! little-endian; those within blocks take 7 bits a byte.
//!
//! | part | bytes |
//! |---|---|
//! | header | `OUTPREFS`, version (2), length of the fields (4), fields, CRC-32 of all before |
//! | fields | bytes a page, how recorded (tag, resident pages), program name (length, UTF-8) |
//! | block | `b`, references (4), length unpacked (4), length packed (4), CRC-32 of the data (4), CRC-32 of the 17 bytes before, data |
//! | data | LZ4 block of run records |
//! | block of sizes | `s`, pages (4), and on as a block; its data are an LZ4 block of size records |
//! | end | `e`, references in all blocks (8), pages with sizes in all blocks (8), CRC-32 of the 17 bytes before; nothing follows |
//!
//! A run record is a tag and the fields that it announces:
//!
//! | bits of the tag | meaning |
//! |---|---|
//! | 0 | the references wrote |
//! | 1 | the object is another than the last: follows, as a step |
//! | 2 | the stride is not one page: follows |
//! | 3 | the gap is another than the last: follows |
//! | 4-7 | references in the run less one; 15: what is beyond 15 follows |
//!
//! Then comes the step from the last page index to the first of the run. Steps and strides are
//! signed, zigzag. Each block starts anew from object 0, index 0, gap 0, so that blocks can be
//! read alone. The fields come in the order: object, index, stride, gap, rest of the count.
//!
//! A size record is about neighbouring pages: the step from the last object, the index less that after
//! the last page (less 0 in another object), pages less one, and for each page how many bytes LZ4 makes
//! of it, 0 to 4096: 0 of one word again and again, 4096 where it does not compress. Pages ascend over
//! all blocks; each block starts anew from object 0, index 0. A page that the recording did not see
//! leave has none.
//!
//! Version 1 had no sizes: its end is `e`, references (8) and the CRC-32 of these 9 bytes.

use std::fmt;
use std::io;

use outpage_core::contract::Access;
use outpage_core::units::{Nanos, ObjectId, PageNo};

mod bytes;
mod convert;
mod lackey;
mod oracle;
mod read;
mod sizes;
mod string;
mod write;

pub use convert::{Replayed, string};
pub use lackey::{Lackey, LackeyError, LackeyOptions};
pub use oracle::{OracleReader, OracleRecord, write_oracle};
pub use read::Reader;
pub(crate) use string::PageHasher;
pub use string::PageString;
pub use write::Writer;

/// The version that is written. Version 1, which had no sizes, is read too.
pub const VERSION: u16 = 2;
/// The first version with sizes.
const WITH_SIZES: u16 = 2;

const MAGIC: [u8; 8] = *b"OUTPREFS";
/// A block is closed once its records reach this many bytes: large enough that the 21 bytes of
/// its frame and LZ4's start do not count, small enough for the cache. LZ4 looks back 64 KiB.
const BLOCK_BYTES: usize = 64 << 10;
/// No record is longer: a tag, then five numbers of at most 10 bytes.
const RECORD_BYTES: usize = 51;
/// The header's fields are no longer than this.
const FIELD_BYTES: usize = 4096;
/// The length of the frame of a block.
const FRAME_BYTES: usize = 21;

const BLOCK: u8 = b'b';
const SIZES: u8 = b's';
const END: u8 = b'e';

const WROTE: u8 = 1;
const OBJECT: u8 = 2;
const STRIDE: u8 = 4;
const GAP: u8 = 8;
/// Counts beyond this do not fit into the tag.
const COUNT_IN_TAG: u8 = 15;

/// How faithful a trace is to the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded {
    /// Every change from one page to another is in it.
    Exact,
    /// Only references that missed a resident set of this many pages are in it.
    Filtered {
        /// Pages.
        resident: u64,
    },
}

/// What the header says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bytes a page.
    pub page_bytes: u32,
    /// How it was recorded.
    pub recorded: Recorded,
    /// The program that was recorded, at most 4000 bytes.
    pub program: String,
}

/// One reference to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// The page.
    pub page: PageNo,
    /// What it did.
    pub access: Access,
    /// CPU time since the reference before.
    pub gap: Nanos,
}

/// References to pages that lie `stride` apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first page.
    pub start: PageNo,
    /// From each page to the next, in pages; 0 for one page again and again.
    pub stride: i64,
    /// References, at least one. All pages lie in the object of the first.
    pub count: u32,
    /// What each of them did.
    pub access: Access,
    /// CPU time before each of them.
    pub gap: Nanos,
}

impl Run {
    /// A single reference.
    #[must_use]
    pub const fn one(reference: Reference) -> Self {
        Self {
            start: reference.page,
            stride: 1,
            count: 1,
            access: reference.access,
            gap: reference.gap,
        }
    }

    /// The page of reference `at`, `at < count`.
    #[must_use]
    pub fn page(&self, at: u32) -> PageNo {
        let step = self.stride.wrapping_mul(i64::from(at));
        PageNo::from_raw(self.start.raw().wrapping_add_signed(step))
    }

    /// Whether there is a reference, and all pages lie in the object of the first.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let Some(rest) = self.count.checked_sub(1) else {
            return false;
        };
        let length = i128::from(self.stride) * i128::from(rest);
        let last = i128::from(self.start.index()) + length;
        (0..1 << INDEX_BITS).contains(&last)
    }

    /// The references, one by one.
    pub fn references(self) -> impl Iterator<Item = Reference> {
        (0..self.count).map(move |at| Reference {
            page: self.page(at),
            access: self.access,
            gap: self.gap,
        })
    }
}

/// Why a trace cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It does not begin like a trace.
    NotATrace,
    /// It was written by another version of this format.
    Version(u16),
    /// It ends in the middle, or without an end.
    Truncated,
    /// A checksum does not hold, or it says what cannot be.
    Corrupt,
}

/// A trace that could not be read.
#[derive(Debug)]
pub enum Error {
    /// The bytes are not a whole trace.
    Unreadable {
        /// Byte offset of the part that cannot be read: the header, a block or the end.
        offset: u64,
        /// The reason.
        why: Why,
    },
    /// The source failed.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Unreadable { offset, why } => {
                write!(f, "at byte {offset}: ")?;
                match why {
                    Why::NotATrace => write!(f, "not a trace of page references"),
                    Why::Version(found) => {
                        write!(
                            f,
                            "version {found} of the format; this reads 1 to {VERSION}"
                        )
                    }
                    Why::Truncated => write!(f, "the trace ends in the middle"),
                    Why::Corrupt => write!(f, "the trace is corrupt"),
                }
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Unreadable { .. } => None,
        }
    }
}

/// Bits of a page number that hold the index within its object, as in [`PageNo`].
const INDEX_BITS: u32 = 36;

/// The page at `index` of `object`, unless they are too large for a page number.
fn page(object: u64, index: u64) -> Option<PageNo> {
    let fits = object < 1 << (u64::BITS - INDEX_BITS) && index < 1 << INDEX_BITS;
    fits.then(|| PageNo::new(ObjectId(object as u32), index))
}
