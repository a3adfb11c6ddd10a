//! What the server answers.

use alloc::vec;
use alloc::vec::Vec;

use crate::{MESSAGE_BYTES_MAX, Malformed, Numbers, TAKE_BACK_PAGES_MAX, Writer};

mod kind {
    pub const WELCOME: u16 = 0x81;
    pub const CREATED: u16 = 0x82;
    pub const DONE: u16 = 0x83;
    pub const TAKEN: u16 = 0x84;
    pub const STATS: u16 = 0x85;
    pub const REFUSED: u16 = 0x86;
}

/// Why the server does not do what it was asked. The connection lives on, but after [`Refusal::Malformed`] and [`Refusal::Full`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// What arrived is no message, or not one that may come now. The server has closed the connection.
    Malformed,
    /// There is no room for another client, or not for the minimum that this one wants. The server has closed the connection.
    Full,
    /// There is no such object, or it is not mapped yet.
    NoObject,
    /// The object, or what it was asked of it, is too large, or outside of the object; or it has as many objects as it may.
    Bounds,
    /// The operating system has no memory, descriptors or mappings for it.
    NoMemory,
}

impl Refusal {
    const ALL: [Self; 5] = [
        Self::Malformed,
        Self::Full,
        Self::NoObject,
        Self::Bounds,
        Self::NoMemory,
    ];

    const fn code(self) -> u32 {
        self as u32 + 1
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the server did not understand a message; client and server must be of one version",
            Self::Full => "the server has no room for another client: raise its --memory, or ask for a smaller minimum",
            Self::NoObject => "there is no such memory object, or it is not mapped",
            Self::Bounds => "too large, too many, or outside of the memory object; see the bounds in `outpage serve --help`",
            Self::NoMemory => "the server's machine has no memory, descriptors or mappings left",
        })
    }
}

/// Declares the counters of a client, in the order in which they are sent.
macro_rules! stats {
    ($($name:ident $doc:literal)*) => {
        /// What was counted for a client since it connected.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Stats { $(#[doc = $doc] pub $name: u64,)* }

        impl Stats {
            /// The counters in their order.
            #[must_use]
            pub const fn values(&self) -> [u64; STATS.len()] {
                [$(self.$name),*]
            }

            const fn of([$($name),*]: [u64; STATS.len()]) -> Self {
                Self { $($name),* }
            }
        }

        /// Name and meaning of each counter, in the order in which they are sent.
        pub const STATS: [(&str, &str); [$($doc),*].len()] = [$((stringify!($name), $doc)),*];
    };
}

stats! {
    limit_frames "Frames that the client may have now."
    frames "Frames that it has."
    objects "Memory objects that it has."
    minor_faults "Faults that needed no read."
    major_faults "Faults that waited for a read."
    zero_fills "Pages that were filled with zeroes."
    paged_in "Pages that were read from the store."
    paged_out "Pages that were written to the store."
    marked "Pages that the attribute objects gave up, as far as the server looked."
    dropped_for_write "Dirty discardable pages that were dropped in place of being written."
    dropped_clean "Discardable pages that were dropped and equalled their slot."
    dropped_in_slots "Discardable pages that were only in the store, and were dropped there."
    flushed "Discardable pages that were dropped ahead of need."
    filled_for_dropped "Touches of dropped pages that got zeroes in place of a read."
    kept "Pages that were taken back as they were, of those that were staged."
    lost "Pages that were taken back and had been dropped."
}

/// Which pages of a range were lost: a bit each, the first page's the lowest of the first byte.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    pages: u64,
    bits: Vec<u8>,
}

impl Lost {
    /// None of `pages` pages.
    #[must_use]
    pub fn none(pages: u64) -> Self {
        Self {
            pages,
            bits: vec![0; pages.div_ceil(8) as usize],
        }
    }

    /// How many pages the range has.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// How many were lost.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.bits
            .iter()
            .map(|byte| u64::from(byte.count_ones()))
            .sum()
    }

    /// The bits, and zeroes behind the last page's.
    #[must_use]
    pub fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// Page `index` of the range was lost.
    ///
    /// # Panics
    /// When it is not in the range.
    pub fn set(&mut self, index: u64) {
        assert!(index < self.pages);
        self.bits[(index / 8) as usize] |= 1 << (index % 8);
    }

    /// Whether page `index` of the range was lost.
    ///
    /// # Panics
    /// When it is not in the range.
    #[must_use]
    pub fn contains(&self, index: u64) -> bool {
        assert!(index < self.pages);
        self.bits[(index / 8) as usize] >> (index % 8) & 1 == 1
    }
}

/// A message of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// To [`crate::Request::Hello`].
    Welcome {
        /// Most pages of all objects of this client.
        pages_max: u64,
        /// The server's limit, in pages.
        limit_pages: u64,
    },
    /// To [`crate::Request::Create`]. With two descriptors: the primary object and the attribute object, memory files that cannot change their length.
    Created {
        /// Its number.
        object: u32,
        /// Length of the attribute object in bytes.
        attribute_bytes: u64,
    },
    /// To [`crate::Request::Map`], [`crate::Request::Flush`] and [`crate::Request::Destroy`].
    Done,
    /// To [`crate::Request::TakeBack`].
    Taken(Lost),
    /// To [`crate::Request::Stats`].
    Stats(Stats),
    /// To any.
    Refused(Refusal),
}

impl Reply {
    /// Descriptors that come with it.
    #[must_use]
    pub const fn descriptors(&self) -> usize {
        match self {
            Self::Created { .. } => 2,
            _ => 0,
        }
    }

    /// Writes it over what is in `out`.
    pub fn encode(&self, tag: u32, out: &mut Vec<u8>) {
        match self {
            Self::Welcome {
                pages_max,
                limit_pages,
            } => {
                Writer::begin(out, kind::WELCOME, tag)
                    .long(*pages_max)
                    .long(*limit_pages);
            }
            Self::Created {
                object,
                attribute_bytes,
            } => {
                Writer::begin(out, kind::CREATED, tag)
                    .word(*object)
                    .word(0)
                    .long(*attribute_bytes);
            }
            Self::Done => {
                Writer::begin(out, kind::DONE, tag);
            }
            Self::Taken(lost) => {
                let writer = Writer::begin(out, kind::TAKEN, tag)
                    .long(lost.pages)
                    .long(0);
                writer.0.extend_from_slice(&lost.bits);
            }
            Self::Stats(stats) => {
                let values = stats.values();
                let mut writer = Writer::begin(out, kind::STATS, tag)
                    .word(values.len() as u32)
                    .word(0);
                for value in values {
                    writer = writer.long(value);
                }
            }
            Self::Refused(refusal) => {
                Writer::begin(out, kind::REFUSED, tag)
                    .word(refusal.code())
                    .word(0);
            }
        }
        debug_assert!(out.len() <= MESSAGE_BYTES_MAX);
    }

    /// Reads a reply that came with so many descriptors, and its tag.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(bytes: &[u8], descriptors: usize) -> Result<(u32, Self), Malformed> {
        let mut numbers = Numbers(bytes);
        let (kind, tag) = numbers.head()?;
        let reply = match kind {
            kind::WELCOME => Self::Welcome {
                pages_max: numbers.long()?,
                limit_pages: numbers.long()?,
            },
            kind::CREATED => {
                let object = numbers.word()?;
                numbers.zero()?;
                let attribute_bytes = numbers.long()?;
                Self::Created {
                    object,
                    attribute_bytes,
                }
            }
            kind::DONE => Self::Done,
            kind::TAKEN => Self::Taken(taken(&mut numbers)?),
            kind::STATS => Self::Stats(stats(&mut numbers)?),
            kind::REFUSED => {
                let code = numbers.word()?;
                numbers.zero()?;
                let refusal = Refusal::ALL
                    .into_iter()
                    .find(|refusal| refusal.code() == code);
                Self::Refused(refusal.ok_or(Malformed::Value)?)
            }
            other => return Err(Malformed::Kind(other)),
        };
        numbers.end()?;
        if descriptors != reply.descriptors() {
            return Err(Malformed::Descriptors);
        }
        Ok((tag, reply))
    }
}

fn taken(numbers: &mut Numbers<'_>) -> Result<Lost, Malformed> {
    let pages = numbers.long()?;
    if numbers.long()? != 0 || pages > TAKE_BACK_PAGES_MAX {
        return Err(Malformed::Value);
    }
    let bytes = core::mem::take(&mut numbers.0);
    if bytes.len() as u64 != pages.div_ceil(8) {
        return Err(Malformed::Length);
    }
    // Behind the last page there are no bits.
    let spare = bytes
        .last()
        .map_or(0, |last| u32::from(*last) >> ((pages + 7) % 8 + 1));
    if spare != 0 {
        return Err(Malformed::Value);
    }
    Ok(Lost {
        pages,
        bits: bytes.to_vec(),
    })
}

fn stats(numbers: &mut Numbers<'_>) -> Result<Stats, Malformed> {
    let count = numbers.word()?;
    numbers.zero()?;
    if count as usize != STATS.len() {
        return Err(Malformed::Value);
    }
    let mut values = [0; STATS.len()];
    for value in &mut values {
        *value = numbers.long()?;
    }
    Ok(Stats::of(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Reply> {
        let mut lost = Lost::none(13);
        lost.set(0);
        lost.set(12);
        assert!(lost.contains(12) && !lost.contains(11));
        let mut values = [0; STATS.len()];
        values.iter_mut().zip(7..).for_each(|(value, n)| *value = n);
        let mut all = vec![
            Reply::Welcome {
                pages_max: 5,
                limit_pages: 6,
            },
            Reply::Created {
                object: 1,
                attribute_bytes: 8192,
            },
            Reply::Done,
            Reply::Taken(lost),
            Reply::Taken(Lost::none(16)),
            Reply::Stats(Stats::of(values)),
        ];
        all.extend(Refusal::ALL.map(Reply::Refused));
        all
    }

    #[test]
    fn what_was_written_is_read() {
        let mut bytes = Vec::new();
        for (tag, reply) in all().into_iter().enumerate() {
            reply.encode(tag as u32, &mut bytes);
            let descriptors = reply.descriptors();
            assert_eq!(Reply::decode(&bytes, descriptors), Ok((tag as u32, reply)));
            assert_eq!(Reply::decode(&bytes, 1), Err(Malformed::Descriptors));
            for length in 0..bytes.len() {
                assert_eq!(
                    Reply::decode(&bytes[..length], descriptors),
                    Err(Malformed::Length)
                );
            }
        }
    }

    #[test]
    fn bits_behind_the_last_page_are_refused() {
        let mut bytes = Vec::new();
        Reply::Taken(Lost::none(13)).encode(1, &mut bytes);
        let last = bytes.len() - 1;
        bytes[last] = 1 << 4;
        assert!(Reply::decode(&bytes, 0).is_ok());
        bytes[last] = 1 << 5;
        assert_eq!(Reply::decode(&bytes, 0), Err(Malformed::Value));
    }
}
