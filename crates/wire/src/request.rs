//! What a client asks for.

use alloc::vec::Vec;

use crate::{MAGIC, Malformed, Numbers, TAKE_BACK_PAGES_MAX, VERSION, WEIGHTS, Writer};

mod kind {
    pub const HELLO: u16 = 1;
    pub const CREATE: u16 = 2;
    pub const MAP: u16 = 3;
    pub const FLUSH: u16 = 4;
    pub const TAKE_BACK: u16 = 5;
    pub const DESTROY: u16 = 6;
    pub const STATS: u16 = 7;
}

/// Who a client is, and what part of the limit it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// What of the limit it is to have whatever others do, in pages.
    pub minimum_pages: u64,
    /// Its part of what is left, beside those of others that want more; of [`WEIGHTS`].
    pub weight: u32,
}

/// Pages of an object, half-open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    /// The object, by the number that [`crate::Reply::Created`] gave it.
    pub object: u32,
    /// The first page, from 0 on.
    pub first: u64,
    /// How many, 1 at least.
    pub pages: u64,
}

/// A message of a client. Every one has an answer, and the next may be sent once it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// The first message, and no other. With one descriptor: the client's userfaultfd.
    Hello(Hello),
    /// A memory object of so many pages, all zero (ObjectCreate).
    Create {
        /// How many, 1 at least.
        pages: u64,
    },
    /// The object is mapped whole, shared and writable, and its faults come to the userfaultfd.
    Map {
        /// Which.
        object: u32,
        /// The address of its first byte: a multiple of the page size.
        address: u64,
    },
    /// Pages that the attribute object says are given up may be dropped now (FlushDiscardable).
    Flush(Pages),
    /// The pages are wanted again: what became of those that were given up?
    TakeBack(Pages),
    /// The object is not wanted any more (ObjectDestroy). It was unmapped before.
    Destroy {
        /// Which.
        object: u32,
    },
    /// What was counted for this client.
    Stats,
}

impl Request {
    /// Writes it over what is in `out`.
    pub fn encode(&self, tag: u32, out: &mut Vec<u8>) {
        match *self {
            Self::Hello(hello) => {
                Writer::begin(out, kind::HELLO, tag)
                    .word(MAGIC)
                    .word(VERSION)
                    .long(hello.minimum_pages)
                    .word(hello.weight)
                    .word(0);
            }
            Self::Create { pages } => {
                Writer::begin(out, kind::CREATE, tag).long(pages);
            }
            Self::Map { object, address } => {
                Writer::begin(out, kind::MAP, tag)
                    .word(object)
                    .word(0)
                    .long(address);
            }
            Self::Flush(pages) => encode_pages(Writer::begin(out, kind::FLUSH, tag), pages),
            Self::TakeBack(pages) => encode_pages(Writer::begin(out, kind::TAKE_BACK, tag), pages),
            Self::Destroy { object } => {
                Writer::begin(out, kind::DESTROY, tag).word(object).word(0);
            }
            Self::Stats => {
                Writer::begin(out, kind::STATS, tag);
            }
        }
    }

    /// Reads a request that came with so many descriptors, and its tag.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(bytes: &[u8], descriptors: usize) -> Result<(u32, Self), Malformed> {
        let mut numbers = Numbers(bytes);
        let (kind, tag) = numbers.head()?;
        let request = match kind {
            kind::HELLO => Self::Hello(hello(&mut numbers)?),
            kind::CREATE => Self::Create {
                pages: numbers.long()?,
            },
            kind::MAP => {
                let object = numbers.word()?;
                numbers.zero()?;
                let address = numbers.long()?;
                Self::Map { object, address }
            }
            kind::FLUSH => Self::Flush(pages(&mut numbers)?),
            kind::TAKE_BACK => {
                let pages = pages(&mut numbers)?;
                if pages.pages > TAKE_BACK_PAGES_MAX {
                    return Err(Malformed::Value);
                }
                Self::TakeBack(pages)
            }
            kind::DESTROY => {
                let object = numbers.word()?;
                numbers.zero()?;
                Self::Destroy { object }
            }
            kind::STATS => Self::Stats,
            other => return Err(Malformed::Kind(other)),
        };
        numbers.end()?;
        let expected = usize::from(matches!(request, Self::Hello(_)));
        if descriptors != expected {
            return Err(Malformed::Descriptors);
        }
        Ok((tag, request))
    }
}

fn hello(numbers: &mut Numbers<'_>) -> Result<Hello, Malformed> {
    if numbers.word()? != MAGIC {
        return Err(Malformed::Magic);
    }
    let version = numbers.word()?;
    if version != VERSION {
        return Err(Malformed::Version(version));
    }
    let minimum_pages = numbers.long()?;
    let weight = numbers.word()?;
    numbers.zero()?;
    if !WEIGHTS.contains(&weight) {
        return Err(Malformed::Value);
    }
    Ok(Hello {
        minimum_pages,
        weight,
    })
}

fn encode_pages(writer: Writer<'_>, pages: Pages) {
    let writer = writer.word(pages.object).word(0);
    writer.long(pages.first).long(pages.pages);
}

fn pages(numbers: &mut Numbers<'_>) -> Result<Pages, Malformed> {
    let object = numbers.word()?;
    numbers.zero()?;
    let (first, pages) = (numbers.long()?, numbers.long()?);
    if pages == 0 || first.checked_add(pages).is_none() {
        return Err(Malformed::Value);
    }
    Ok(Pages {
        object,
        first,
        pages,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn all() -> Vec<Request> {
        let pages = Pages {
            object: 3,
            first: 7,
            pages: 100,
        };
        vec![
            Request::Hello(Hello {
                minimum_pages: 300,
                weight: 100,
            }),
            Request::Create { pages: 1 << 20 },
            Request::Map {
                object: 2,
                address: 0x7000_0000_0000,
            },
            Request::Flush(pages),
            Request::TakeBack(pages),
            Request::Destroy { object: 9 },
            Request::Stats,
        ]
    }

    #[test]
    fn what_was_written_is_read() {
        let mut bytes = Vec::new();
        for (tag, request) in all().into_iter().enumerate() {
            request.encode(tag as u32, &mut bytes);
            let descriptors = usize::from(tag == 0);
            assert_eq!(
                Request::decode(&bytes, descriptors),
                Ok((tag as u32, request))
            );
            assert_eq!(Request::decode(&bytes, 2), Err(Malformed::Descriptors));
            for length in 0..bytes.len() {
                assert_eq!(
                    Request::decode(&bytes[..length], descriptors),
                    Err(Malformed::Length)
                );
            }
            bytes.push(0);
            assert_eq!(Request::decode(&bytes, descriptors), Err(Malformed::Length));
        }
    }

    #[test]
    fn numbers_outside_of_their_ranges_are_refused() {
        let mut bytes = Vec::new();
        let mut decode = |request: Request, at: usize, byte: u8, descriptors| {
            request.encode(1, &mut bytes);
            bytes[at] = byte;
            Request::decode(&bytes, descriptors)
        };
        let hello = all()[0];
        assert_eq!(decode(hello, 8, b'o', 1), Err(Malformed::Magic));
        assert_eq!(decode(hello, 12, 9, 1), Err(Malformed::Version(9)));
        assert_eq!(decode(hello, 24, 0, 1), Err(Malformed::Value), "weight");
        assert_eq!(decode(hello, 28, 1, 1), Err(Malformed::Value), "reserved");
        assert_eq!(decode(Request::Stats, 2, 1, 0), Err(Malformed::Value));
        assert_eq!(
            decode(Request::Stats, 0, 0x70, 0),
            Err(Malformed::Kind(0x70))
        );
        let none = all()[3];
        assert_eq!(decode(none, 24, 0, 0), Err(Malformed::Value), "no pages");
        assert_eq!(
            decode(all()[4], 26, 1, 0),
            Err(Malformed::Value),
            "too many pages"
        );
        let mut far = |first| {
            let pages = Pages {
                object: 0,
                first,
                pages: 2,
            };
            Request::Flush(pages).encode(1, &mut bytes);
            Request::decode(&bytes, 0).is_ok()
        };
        assert!(far(u64::MAX - 2) && !far(u64::MAX - 1));
    }
}
