//! The log of a forked child: it goes on where its parent's stood, so only what is new is written.

use alloc::vec::Vec;

use super::bytes::{Check, Cursor, put, put_text};
use super::{Unreadable, VERSION, Why};

const MAGIC: [u8; 8] = *b"OUTPFORK";

/// How the file of a forked child's log begins: with where the rest of the log is. Behind it come
/// entries as a trace has them, checked over all bytes of the whole log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Branch<'a> {
    /// The name of the parent's file, as whoever made the files tells them apart.
    pub parent: &'a str,
    /// Bytes at the beginning of the parent's file that belong to the child's log too.
    pub shared: u64,
}

impl<'a> Branch<'a> {
    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        put_text(out, self.parent);
        put(out, self.shared);
        let mut check = Check::new();
        check.add(&out[start..]);
        out.extend_from_slice(&check.bytes());
    }

    /// What the file `bytes` begins with, and how many bytes that is; `None` for a log of its own.
    ///
    /// # Errors
    /// When it is damaged or cut short.
    pub fn read(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Unreadable> {
        if !bytes.starts_with(&MAGIC) {
            return Ok(None);
        }
        let mut cursor = Cursor {
            bytes,
            at: MAGIC.len(),
        };
        Self::fields(&mut cursor)
            .map(|branch| Some((branch, cursor.at)))
            .map_err(|why| Unreadable { offset: 0, why })
    }

    fn fields(cursor: &mut Cursor<'a>) -> Result<Self, Why> {
        let version = u16::from_le_bytes(cursor.array()?);
        if version != VERSION {
            return Err(Why::Version(version));
        }
        let branch = Self {
            parent: cursor.text()?,
            shared: cursor.number()?,
        };
        let mut check = Check::new();
        check.add(&cursor.bytes[..cursor.at]);
        if cursor.array()? != check.bytes() {
            return Err(Why::Corrupt);
        }
        Ok(branch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_read_back_whole_or_not_at_all() {
        let branch = Branch {
            parent: "4711.2",
            shared: 1 << 40,
        };
        let mut bytes = Vec::new();
        branch.put(&mut bytes);
        let whole = bytes.len();
        bytes.extend_from_slice(b"entries");
        assert_eq!(Branch::read(&bytes), Ok(Some((branch, whole))));
        for cut in MAGIC.len()..whole {
            let why = Why::Truncated;
            assert_eq!(
                Branch::read(&bytes[..cut]),
                Err(Unreadable { offset: 0, why })
            );
        }
        for at in MAGIC.len()..whole {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Branch::read(&damaged).is_err(), "byte {at}");
        }
        assert_eq!(Branch::read(b"OUTPAGE\0"), Ok(None));
    }
}
