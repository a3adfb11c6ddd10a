//! What a userfaultfd tells: decoded once, here.

use super::abi;

/// One message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Message {
    /// A thread waits.
    Fault(Fault),
    /// Pages were thrown away (madvise); the caller of madvise waited until this was read.
    Removed {
        /// First byte.
        start: usize,
        /// First byte after it.
        end: usize,
    },
    /// A range was unmapped.
    Unmapped {
        /// First byte.
        start: usize,
        /// First byte after it.
        end: usize,
    },
    /// A range moved, with its registration.
    Remapped {
        /// Old address.
        from: usize,
        /// New address.
        to: usize,
        /// Length in bytes.
        len: usize,
    },
    /// The process forked; the descriptor is the child's userfaultfd.
    Forked(i32),
    /// A message of a later kernel, by number; also the filler of fresh buffers.
    #[default]
    Other,
}

/// A fault that somebody waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The address touched; start of its page unless `EXACT_ADDRESS` is enabled.
    pub address: usize,
    /// Why it faulted.
    pub kind: FaultKind,
    /// What the thread was about to do.
    pub access: FaultAccess,
    /// The thread; 0 unless `THREAD_ID` is enabled.
    pub tid: u32,
}

/// The kernel's kinds of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// No page is there.
    Missing,
    /// The page is there and write-protected.
    WriteProtect,
    /// Shared memory has the page, and the mapping does not.
    Minor,
}

/// A touch's direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultAccess {
    /// Reading or executing.
    Read,
    /// Writing.
    Write,
}

impl Message {
    /// Decodes a `struct uffd_msg`: the event in byte 0, its arguments from byte 8 on.
    pub(super) fn decode(bytes: &[u8; abi::MESSAGE_BYTES]) -> Self {
        let words = bytes.as_chunks::<8>().0;
        let word = |index: usize| u64::from_ne_bytes(words[1 + index]);
        let (start, end) = (word(0) as usize, word(1) as usize);
        match bytes[0] {
            abi::EVENT_PAGEFAULT => Self::Fault(Fault::decode(word(0), word(1), word(2))),
            abi::EVENT_REMOVE => Self::Removed { start, end },
            abi::EVENT_UNMAP => Self::Unmapped { start, end },
            abi::EVENT_REMAP => Self::Remapped {
                from: start,
                to: end,
                len: word(2) as usize,
            },
            abi::EVENT_FORK => Self::Forked(word(0) as u32 as i32),
            _ => Self::Other,
        }
    }
}

impl Fault {
    fn decode(flags: u64, address: u64, extra: u64) -> Self {
        let protect = flags & abi::PAGEFAULT_FLAG_WP != 0;
        let write = protect || flags & abi::PAGEFAULT_FLAG_WRITE != 0;
        Self {
            address: address as usize,
            kind: if protect {
                FaultKind::WriteProtect
            } else if flags & abi::PAGEFAULT_FLAG_MINOR != 0 {
                FaultKind::Minor
            } else {
                FaultKind::Missing
            },
            access: if write {
                FaultAccess::Write
            } else {
                FaultAccess::Read
            },
            tid: extra as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(event: u8, words: [u64; 3]) -> Message {
        let mut bytes = [0u8; 32];
        bytes[0] = event;
        for (index, word) in words.iter().enumerate() {
            bytes[8 + index * 8..][..8].copy_from_slice(&word.to_ne_bytes());
        }
        Message::decode(&bytes)
    }

    fn fault(kind: FaultKind, access: FaultAccess) -> Message {
        Message::Fault(Fault {
            address: 0x7000_1000,
            kind,
            access,
            tid: 77,
        })
    }

    #[test]
    fn faults_are_decoded() {
        let decode = |flags| message(0x12, [flags, 0x7000_1000, 77]);
        assert_eq!(decode(0), fault(FaultKind::Missing, FaultAccess::Read));
        assert_eq!(decode(1), fault(FaultKind::Missing, FaultAccess::Write));
        assert_eq!(
            decode(3),
            fault(FaultKind::WriteProtect, FaultAccess::Write)
        );
        assert_eq!(decode(5), fault(FaultKind::Minor, FaultAccess::Write));
        assert_eq!(
            decode(2),
            fault(FaultKind::WriteProtect, FaultAccess::Write)
        );
    }

    #[test]
    fn layout_changes_are_decoded() {
        assert_eq!(
            message(0x15, [16, 32, 0]),
            Message::Removed { start: 16, end: 32 }
        );
        assert_eq!(
            message(0x16, [16, 32, 0]),
            Message::Unmapped { start: 16, end: 32 }
        );
        assert_eq!(
            message(0x14, [1, 2, 3]),
            Message::Remapped {
                from: 1,
                to: 2,
                len: 3
            }
        );
        assert_eq!(message(0x13, [9, 0, 0]), Message::Forked(9));
        assert_eq!(message(0x77, [0; 3]), Message::Other);
    }
}
