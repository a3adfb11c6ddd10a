//! Writes a trace.

use std::io::{self, Write};

use outpage_core::contract::Access;
use outpage_core::units::{Nanos, PageNo};

use super::bytes::{put, put_signed};
use super::sizes;
use super::{
    BLOCK, BLOCK_BYTES, COUNT_IN_TAG, END, FIELD_BYTES, FRAME_BYTES, GAP, Header, MAGIC, OBJECT,
    RECORD_BYTES, Recorded, Reference, Run, SIZES, STRIDE, VERSION, WROTE,
};
use crate::sizes::Sizes;

/// Writes references as a trace. Without [`Writer::finish`] the trace has no end and is refused.
pub struct Writer<W: Write> {
    sink: W,
    /// The run that the next reference may join.
    open: Option<Run>,
    block: Vec<u8>,
    packed: Vec<u8>,
    block_references: u32,
    references: u64,
    last: PageNo,
    last_gap: Nanos,
}

/// What each block starts from.
pub(super) const START: PageNo = PageNo::from_raw(0);

impl<W: Write> Writer<W> {
    /// Begins a trace on `sink`, which is written in pieces of up to 64 KiB.
    ///
    /// # Errors
    /// Those of `sink`, and `InvalidInput` when the program name is longer than 4000 bytes.
    pub fn new(mut sink: W, header: &Header) -> io::Result<Self> {
        sink.write_all(&header_bytes(header)?)?;
        Ok(Self {
            sink,
            open: None,
            block: Vec::with_capacity(BLOCK_BYTES + RECORD_BYTES),
            packed: Vec::new(),
            block_references: 0,
            references: 0,
            last: START,
            last_gap: Nanos(0),
        })
    }

    /// Appends one reference. It joins the run before it when it can.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn reference(&mut self, reference: Reference) -> io::Result<()> {
        if let Some(run) = &mut self.open
            && let Some(longer) = joined(run, &reference)
        {
            *run = longer;
            return Ok(());
        }
        match self.open.replace(Run::one(reference)) {
            Some(run) => self.record(run),
            None => Ok(()),
        }
    }

    /// Appends `run`, as it is.
    ///
    /// # Errors
    /// Those of the sink, and `InvalidInput` when the run is empty or leaves its object.
    pub fn run(&mut self, run: Run) -> io::Result<()> {
        if !run.is_valid() {
            let text = format!("{run:?} is empty or leaves its object");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if let Some(open) = self.open.take() {
            self.record(open)?;
        }
        self.record(run)
    }

    /// Ends the trace and hands the sink back, flushed.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn finish(self) -> io::Result<W> {
        self.finish_with(&Sizes::default())
    }

    /// The same, with what the pages come to when they are compressed.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn finish_with(mut self, sizes: &Sizes) -> io::Result<W> {
        if let Some(run) = self.open.take() {
            self.record(run)?;
        }
        self.close_block()?;
        let (sink, packed) = (&mut self.sink, &mut self.packed);
        sizes::blocks(sizes, |pages, block| {
            put_block(sink, packed, SIZES, pages, block)
        })?;
        let mut end = vec![END];
        end.extend_from_slice(&self.references.to_le_bytes());
        end.extend_from_slice(&(sizes.len() as u64).to_le_bytes());
        end.extend_from_slice(&crc32fast::hash(&end).to_le_bytes());
        self.sink.write_all(&end)?;
        self.sink.flush()?;
        Ok(self.sink)
    }

    fn record(&mut self, run: Run) -> io::Result<()> {
        // A block's count of references has 32 bits.
        if self.block_references.checked_add(run.count).is_none() {
            self.close_block()?;
        }
        let tag_at = self.block.len();
        let mut tag = if run.access == Access::Write {
            WROTE
        } else {
            0
        };
        self.block.push(0);
        if run.start.object() != self.last.object() {
            tag |= OBJECT;
            let step = i64::from(run.start.object().0) - i64::from(self.last.object().0);
            put_signed(&mut self.block, step);
        }
        let step = run.start.index() as i64 - self.last.index() as i64;
        put_signed(&mut self.block, step);
        if run.stride != 1 {
            tag |= STRIDE;
            put_signed(&mut self.block, run.stride);
        }
        if run.gap != self.last_gap {
            tag |= GAP;
            put(&mut self.block, run.gap.0);
        }
        let beyond = (run.count - 1).min(u32::from(COUNT_IN_TAG));
        tag |= (beyond as u8) << 4;
        if beyond == u32::from(COUNT_IN_TAG) {
            put(&mut self.block, u64::from(run.count - 1 - beyond));
        }
        self.block[tag_at] = tag;
        self.last = run.page(run.count - 1);
        self.last_gap = run.gap;
        self.references += u64::from(run.count);
        self.block_references += run.count;
        if self.block.len() >= BLOCK_BYTES {
            self.close_block()?;
        }
        Ok(())
    }

    fn close_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let (sink, packed) = (&mut self.sink, &mut self.packed);
        put_block(sink, packed, BLOCK, self.block_references, &self.block)?;
        self.block.clear();
        self.block_references = 0;
        self.last = START;
        self.last_gap = Nanos(0);
        Ok(())
    }
}

/// Writes a block of kind `tag` that holds `count` references or pages.
fn put_block(
    sink: &mut impl Write,
    packed: &mut Vec<u8>,
    tag: u8,
    count: u32,
    block: &[u8],
) -> io::Result<()> {
    let most = lz4_flex::block::get_maximum_output_size(block.len());
    packed.resize(most, 0);
    let length = lz4_flex::block::compress_into(block, packed).map_err(io::Error::other)?;
    let data = &packed[..length];
    let mut frame = [tag; FRAME_BYTES];
    let numbers = [
        count,
        block.len() as u32,
        length as u32,
        crc32fast::hash(data),
    ];
    for (at, number) in numbers.into_iter().enumerate() {
        frame[1 + 4 * at..5 + 4 * at].copy_from_slice(&number.to_le_bytes());
    }
    let check = crc32fast::hash(&frame[..FRAME_BYTES - 4]);
    frame[FRAME_BYTES - 4..].copy_from_slice(&check.to_le_bytes());
    sink.write_all(&frame)?;
    sink.write_all(data)
}

/// `run` with `reference` at its end, if it continues it: the next page, the page before, or the
/// same once more. Wider strides are left to LZ4, for two references far apart are rarely the
/// beginning of a run.
fn joined(run: &Run, reference: &Reference) -> Option<Run> {
    let alike = run.access == reference.access
        && run.gap == reference.gap
        && run.start.object() == reference.page.object()
        && run.count < u32::MAX;
    if !alike {
        return None;
    }
    let last = run.page(run.count - 1).index();
    let stride = reference.page.index() as i64 - last as i64;
    let continues = match run.count {
        1 => stride.abs() <= 1,
        _ => stride == run.stride,
    };
    continues.then_some(Run {
        stride,
        count: run.count + 1,
        ..*run
    })
}

fn header_bytes(header: &Header) -> io::Result<Vec<u8>> {
    let mut fields = Vec::new();
    put(&mut fields, u64::from(header.page_bytes));
    match header.recorded {
        Recorded::Exact => fields.push(0),
        Recorded::Filtered { resident } => {
            fields.push(1);
            put(&mut fields, resident);
        }
    }
    put(&mut fields, header.program.len() as u64);
    fields.extend_from_slice(header.program.as_bytes());
    if fields.len() > FIELD_BYTES {
        let text = "the program name is longer than 4000 bytes";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(fields.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&fields);
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    Ok(bytes)
}
