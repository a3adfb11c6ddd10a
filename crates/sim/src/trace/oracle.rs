//! Imports and exports libCacheSim's oracleGeneral traces.
//!
//! A record is 24 bytes, little-endian, without a header: time in seconds (u32), object (u64),
//! size in bytes (u32), and the index of the next record with the same object, from 0, or -1
//! (i64). The objects are page numbers; what a reference did is not in it.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use outpage_core::contract::Access;
use outpage_core::units::{Nanos, PageNo};

use super::{Error, Reference, Why};

const RECORD_BYTES: usize = 24;
const SECOND: u64 = 1_000_000_000;
/// "Not referenced again".
const NEVER: i64 = -1;

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OracleRecord {
    /// Seconds.
    pub time: u32,
    /// The object.
    pub object: u64,
    /// Its size in bytes.
    pub size: u32,
    /// The index of the next record with this object.
    pub next: Option<u64>,
}

impl OracleRecord {
    fn from_bytes(bytes: [u8; RECORD_BYTES], index: u64) -> Option<Self> {
        let [t0, t1, t2, t3, rest @ ..] = bytes;
        let [o0, o1, o2, o3, o4, o5, o6, o7, rest @ ..] = rest;
        let [s0, s1, s2, s3, next @ ..] = rest;
        let next = match i64::from_le_bytes(next) {
            // Writers differ: some put the largest number for "never".
            NEVER | i64::MAX => None,
            next => Some(u64::try_from(next).ok().filter(|&next| next > index)?),
        };
        Some(Self {
            time: u32::from_le_bytes([t0, t1, t2, t3]),
            object: u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            size: u32::from_le_bytes([s0, s1, s2, s3]),
            next,
        })
    }

    fn bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let next = self.next.map_or(NEVER, |next| next as i64);
        bytes[..4].copy_from_slice(&self.time.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.object.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.size.to_le_bytes());
        bytes[16..].copy_from_slice(&next.to_le_bytes());
        bytes
    }
}

/// Reads records. Refused with the offset of the record: one that is not whole, whose next
/// reference does not lie ahead, or whose time lies before that of the record before it.
pub struct OracleReader<R: Read> {
    source: R,
    index: u64,
    time: u32,
    over: bool,
}

impl<R: Read> OracleReader<R> {
    /// Reads from `source`; hand in a buffered one.
    pub const fn new(source: R) -> Self {
        Self {
            source,
            index: 0,
            time: 0,
            over: false,
        }
    }

    /// The records as references: one each, whatever its size, that reads the page whose packed
    /// number is the object. The gap is the time since the record before.
    pub fn references(self) -> impl Iterator<Item = Result<Reference, Error>> {
        let mut before = None;
        self.map(move |record| {
            let OracleRecord { time, object, .. } = record?;
            let gap = time - before.replace(time).unwrap_or(time);
            Ok(Reference {
                page: PageNo::from_raw(object),
                access: Access::Read,
                gap: Nanos(u64::from(gap) * SECOND),
            })
        })
    }

    fn advance(&mut self) -> Result<Option<OracleRecord>, Error> {
        let mut bytes = [0; RECORD_BYTES];
        let mut have = 0;
        while have < RECORD_BYTES {
            match self.source.read(&mut bytes[have..]) {
                Ok(0) => break,
                Ok(read) => have += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Io(error)),
            }
        }
        let refuse = |why| Error::Unreadable {
            offset: self.index * RECORD_BYTES as u64,
            why,
        };
        match have {
            0 => return Ok(None),
            RECORD_BYTES => {}
            _ => return Err(refuse(Why::Truncated)),
        }
        let record = OracleRecord::from_bytes(bytes, self.index)
            .filter(|record| record.time >= self.time)
            .ok_or_else(|| refuse(Why::Corrupt))?;
        self.time = record.time;
        self.index += 1;
        Ok(Some(record))
    }
}

/// The records; after an error, nothing.
impl<R: Read> Iterator for OracleReader<R> {
    type Item = Result<OracleRecord, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.advance();
        self.over = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

/// Writes `references` as an oracleGeneral trace whose objects all have `page_bytes` bytes, and
/// returns the number of records. Times are whole seconds of the summed gaps, from 0. All
/// references are held in memory, 16 bytes each, for the next ones are known from the end only.
///
/// # Errors
/// Those of `sink`, and `InvalidInput` when the trace lasts longer than 2^32 seconds.
pub fn write_oracle(
    references: impl IntoIterator<Item = Reference>,
    page_bytes: u32,
    mut sink: impl Write,
) -> io::Result<u64> {
    let mut records = Vec::new();
    let mut now = 0u64;
    for reference in references {
        now = now.saturating_add(reference.gap.0);
        let time = u32::try_from(now / SECOND)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "longer than 2^32 seconds"))?;
        records.push((reference.page.raw(), time));
    }
    let mut next = vec![NEVER; records.len()];
    let mut seen = HashMap::new();
    for (at, (page, _)) in records.iter().enumerate().rev() {
        if let Some(later) = seen.insert(*page, at as i64) {
            next[at] = later;
        }
    }
    for (&(object, time), next) in records.iter().zip(next) {
        let record = OracleRecord {
            time,
            object,
            size: page_bytes,
            next: u64::try_from(next).ok(),
        };
        sink.write_all(&record.bytes())?;
    }
    sink.flush()?;
    Ok(records.len() as u64)
}
