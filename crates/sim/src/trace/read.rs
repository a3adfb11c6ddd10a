//! Reads a trace, block by block.

use std::io::{self, Read};

use outpage_core::contract::Access;
use outpage_core::units::Nanos;

use super::bytes::Cursor;
use super::sizes;
use super::write::START;
use super::{
    BLOCK, BLOCK_BYTES, COUNT_IN_TAG, END, Error, FIELD_BYTES, FRAME_BYTES, GAP, Header, MAGIC,
    OBJECT, RECORD_BYTES, Recorded, Run, SIZES, STRIDE, VERSION, WITH_SIZES, WROTE, Why, page,
};
use crate::sizes::Sizes;

/// Unpacked bytes of a block, at most.
const UNPACKED_MAX: usize = BLOCK_BYTES + RECORD_BYTES;

/// A trace being read. Every block is checked whole before any of its runs is handed out; memory
/// grows by the sizes alone, two bytes a page.
pub struct Reader<R: Read> {
    source: R,
    header: Header,
    version: u16,
    sizes: Sizes,
    /// Bytes taken from the source.
    offset: u64,
    /// Where the current block begins.
    block_offset: u64,
    packed: Vec<u8>,
    block: Vec<u8>,
    /// What of `block` is decoded.
    at: usize,
    state: State,
    /// References that the current block still owes.
    owed: u32,
    references: u64,
    over: bool,
}

/// What the next record is told relative to.
#[derive(Clone, Copy)]
struct State {
    object: u64,
    index: u64,
    gap: u64,
}

const FRESH: State = State {
    object: START.object().0 as u64,
    index: START.index(),
    gap: 0,
};

impl<R: Read> Reader<R> {
    /// Reads the header. The source is read in small pieces: hand in a buffered one.
    ///
    /// # Errors
    /// When there is no whole header of a version that is known, or the source fails.
    pub fn new(source: R) -> Result<Self, Error> {
        let mut reader = Self {
            source,
            header: Header {
                page_bytes: 0,
                recorded: Recorded::Exact,
                program: String::new(),
            },
            version: VERSION,
            sizes: Sizes::default(),
            offset: 0,
            block_offset: 0,
            packed: Vec::new(),
            block: Vec::new(),
            at: 0,
            state: FRESH,
            owed: 0,
            references: 0,
            over: false,
        };
        reader.header = reader.read_header()?;
        Ok(reader)
    }

    /// What the header says.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// What its pages come to when they are compressed: known once the last run was handed out. Empty where the recording saw none, as
    /// in all traces of version 1.
    #[must_use]
    pub fn into_sizes(self) -> Sizes {
        self.sizes
    }

    /// Bytes read so far, for a progress bar.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The next run, `None` after the end of the trace.
    ///
    /// # Errors
    /// When what follows is not a whole trace, or the source fails; it stays so.
    pub fn next_run(&mut self) -> Result<Option<Run>, Error> {
        while self.at == self.block.len() {
            if self.over || !self.next_block()? {
                return Ok(None);
            }
        }
        match self.decode() {
            Some(run) => Ok(Some(run)),
            None => Err(self.refuse(self.block_offset, Why::Corrupt)),
        }
    }

    /// Nothing is handed out after an error: the position in the trace is lost.
    fn refuse(&mut self, offset: u64, why: Why) -> Error {
        self.over = true;
        self.at = self.block.len();
        Error::Unreadable { offset, why }
    }

    fn take(&mut self, bytes: &mut [u8], part: u64) -> Result<(), Error> {
        match self.source.read_exact(bytes) {
            Ok(()) => {
                self.offset += bytes.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.refuse(part, Why::Truncated))
            }
            Err(error) => {
                self.over = true;
                Err(Error::Io(error))
            }
        }
    }

    fn read_header(&mut self) -> Result<Header, Error> {
        let mut bytes = vec![0; MAGIC.len() + 6];
        self.take(&mut bytes, 0)?;
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(self.refuse(0, Why::NotATrace));
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if !(1..=VERSION).contains(&version) {
            return Err(self.refuse(0, Why::Version(version)));
        }
        self.version = version;
        let length = u32_at(&bytes, 10) as usize;
        if length > FIELD_BYTES {
            return Err(self.refuse(0, Why::Corrupt));
        }
        let start = bytes.len();
        bytes.resize(start + length + 4, 0);
        let (_, rest) = bytes.split_at_mut(start);
        self.take(rest, 0)?;
        let checked = start + length;
        let whole = crc32fast::hash(&bytes[..checked]) == u32_at(&bytes, checked);
        let header = fields(&bytes[start..checked]).filter(|_| whole);
        header.ok_or_else(|| self.refuse(0, Why::Corrupt))
    }

    /// Reads the next block, of either kind; false at the end of the trace.
    fn next_block(&mut self) -> Result<bool, Error> {
        self.block_offset = self.offset;
        let offset = self.offset;
        if self.owed > 0 {
            return Err(self.refuse(offset, Why::Corrupt));
        }
        let mut frame = [0; FRAME_BYTES];
        self.take(&mut frame[..1], offset)?;
        let of_sizes = frame[0] == SIZES;
        match frame[0] {
            // References do not go on behind sizes.
            BLOCK if self.sizes.is_empty() => {}
            SIZES if self.version >= WITH_SIZES => {}
            END => return self.end(offset),
            _ => return Err(self.refuse(offset, Why::Corrupt)),
        }
        self.take(&mut frame[1..], offset)?;
        let checked = FRAME_BYTES - 4;
        let unpacked = u32_at(&frame, 5) as usize;
        let packed = u32_at(&frame, 9) as usize;
        let possible = (1..=UNPACKED_MAX).contains(&unpacked)
            && packed <= lz4_flex::block::get_maximum_output_size(unpacked);
        if crc32fast::hash(&frame[..checked]) != u32_at(&frame, checked) || !possible {
            return Err(self.refuse(offset, Why::Corrupt));
        }
        let mut data = std::mem::take(&mut self.packed);
        data.resize(packed, 0);
        self.take(&mut data, offset)?;
        self.block.clear();
        self.block.resize(unpacked, 0);
        let whole = crc32fast::hash(&data) == u32_at(&frame, 13)
            && lz4_flex::block::decompress_into(&data, &mut self.block)
                .is_ok_and(|length| length == unpacked);
        self.packed = data;
        if !whole {
            return Err(self.refuse(offset, Why::Corrupt));
        }
        if of_sizes {
            self.at = self.block.len();
            let read = sizes::read(&mut self.sizes, u32_at(&frame, 1), &self.block);
            return match read {
                Some(()) => Ok(true),
                None => Err(self.refuse(offset, Why::Corrupt)),
            };
        }
        self.at = 0;
        self.state = FRESH;
        self.owed = u32_at(&frame, 1);
        self.references += u64::from(self.owed);
        Ok(true)
    }

    /// The end mark was read: the rest of it, and then nothing.
    fn end(&mut self, offset: u64) -> Result<bool, Error> {
        let mut end = [END; 21];
        let checked = match self.version >= WITH_SIZES {
            true => 17,
            false => 9,
        };
        self.take(&mut end[1..checked + 4], offset)?;
        let mut counts = self.references.to_le_bytes().to_vec();
        counts.extend_from_slice(&(self.sizes.len() as u64).to_le_bytes());
        let whole = crc32fast::hash(&end[..checked]) == u32_at(&end, checked)
            && end[1..checked] == counts[..checked - 1];
        if !whole {
            return Err(self.refuse(offset, Why::Corrupt));
        }
        let after = self.offset;
        match io::copy(&mut (&mut self.source).take(1), &mut io::sink()) {
            Ok(0) => {
                self.over = true;
                Ok(false)
            }
            Ok(_) => Err(self.refuse(after, Why::Corrupt)),
            Err(error) => {
                self.over = true;
                Err(Error::Io(error))
            }
        }
    }

    fn decode(&mut self) -> Option<Run> {
        let bytes = &self.block[self.at..];
        let mut cursor = Cursor(bytes);
        let run = record(&mut cursor, &mut self.state)?;
        self.at = self.block.len() - cursor.0.len();
        self.owed = self.owed.checked_sub(run.count)?;
        // The last record settles the block's count.
        let settled = self.at < self.block.len() || self.owed == 0;
        settled.then_some(run)
    }
}

/// The runs; after an error, nothing.
impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Run, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_run().transpose()
    }
}

fn record(cursor: &mut Cursor<'_>, state: &mut State) -> Option<Run> {
    let tag = cursor.byte()?;
    if tag & OBJECT != 0 {
        state.object = state.object.checked_add_signed(cursor.signed()?)?;
    }
    state.index = state.index.checked_add_signed(cursor.signed()?)?;
    let stride = if tag & STRIDE != 0 {
        cursor.signed()?
    } else {
        1
    };
    if tag & GAP != 0 {
        state.gap = cursor.number()?;
    }
    let mut count = u64::from(tag >> 4) + 1;
    if tag >> 4 == COUNT_IN_TAG {
        count = count.checked_add(cursor.number()?)?;
    }
    let run = Run {
        start: page(state.object, state.index)?,
        stride,
        count: u32::try_from(count).ok()?,
        access: if tag & WROTE != 0 {
            Access::Write
        } else {
            Access::Read
        },
        gap: Nanos(state.gap),
    };
    if !run.is_valid() {
        return None;
    }
    state.index = run.page(run.count - 1).index();
    Some(run)
}

fn fields(bytes: &[u8]) -> Option<Header> {
    let mut cursor = Cursor(bytes);
    let page_bytes = u32::try_from(cursor.number()?).ok()?;
    let recorded = match cursor.byte()? {
        0 => Recorded::Exact,
        1 => Recorded::Filtered {
            resident: cursor.number()?,
        },
        _ => return None,
    };
    let length = usize::try_from(cursor.number()?).ok()?;
    let program = std::str::from_utf8(cursor.0).ok()?;
    (page_bytes > 0 && program.len() == length).then(|| Header {
        page_bytes,
        recorded,
        program: program.to_owned(),
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}
