//! What can go wrong with a transfer, with its slots, the bytes done and what to do about it.

use std::fmt;
use std::io;

use outpage_core::units::{PAGE_BYTES, SlotRange};

use crate::Direction;

/// A request that was not carried out whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreError {
    /// Which way the bytes went.
    pub direction: Direction,
    /// The slots of the request.
    pub slots: SlotRange,
    /// Bytes transferred, in whole pages: [`crate::Completion::failed`] says which pages they are not. Those have unspecified content:
    /// a direct read past the end of a file, for one, fills frames with zeroes that it then does not report.
    pub bytes_done: u64,
    /// Why the first page failed that did.
    pub cause: Cause,
}

/// Why a transfer failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The kernel's error number.
    Errno(i32),
    /// A page-in met the end of the store: these slots were never paged out to.
    EndOfStore,
    /// A page-in met slots that hold nothing: they were never paged out to, or forgotten since.
    Empty,
    /// The device kept taking fewer bytes than a page.
    NoProgress,
}

impl StoreError {
    /// The error number, where the kernel gave one.
    #[must_use]
    pub const fn errno(&self) -> Option<i32> {
        match self.cause {
            Cause::Errno(errno) => Some(errno),
            Cause::EndOfStore | Cause::Empty | Cause::NoProgress => None,
        }
    }

    /// Whether there was no room: a full disk, an exhausted quota or a file size limit. Other slots,
    /// already written once, still work.
    #[must_use]
    pub const fn is_no_space(&self) -> bool {
        matches!(
            self.cause,
            Cause::Errno(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
        )
    }

    const fn remedy(&self) -> &'static str {
        match (self.cause, self.direction) {
            (Cause::Errno(libc::ENOSPC), _) => {
                "free space on the file system of the swap directory, or choose another directory"
            }
            (Cause::Errno(libc::EDQUOT), _) => {
                "the disk quota is used up: raise it, or choose another swap directory"
            }
            (Cause::Errno(libc::EFBIG), _) => {
                "raise the file size limit (ulimit -f), or lower the swap cap"
            }
            (Cause::Errno(libc::EIO), _) => {
                "the disk failed: look into the kernel log (dmesg), choose another swap directory"
            }
            (Cause::EndOfStore, _) => {
                "the swap file is shorter than it was: something truncated it"
            }
            (_, Direction::PageIn) => "the pages are lost; choose another swap directory",
            (_, Direction::PageOut) => "the pages are still in memory; choose another directory",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => io::Error::from_raw_os_error(*errno).fmt(f),
            Self::Empty => f.write_str("nothing is in the slots"),
            Self::EndOfStore => f.write_str("end of the swap file"),
            Self::NoProgress => f.write_str("the device takes no whole page"),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.direction {
            Direction::PageIn => "page-in from",
            Direction::PageOut => "page-out to",
        };
        let (start, end) = (self.slots.start.0, self.slots.end().0);
        let bytes = u64::from(self.slots.slots) * PAGE_BYTES as u64;
        let (done, cause, remedy) = (self.bytes_done, self.cause, self.remedy());
        write!(
            f,
            "{verb} slots {start}..{end} failed but for {done} of {bytes} bytes: {cause}; {remedy}"
        )
    }
}

impl std::error::Error for StoreError {}

#[cfg(test)]
mod tests {
    use outpage_core::units::SlotNo;

    use super::*;

    #[test]
    fn names_slots_bytes_cause_and_remedy() {
        let error = StoreError {
            direction: Direction::PageOut,
            slots: SlotRange::new(SlotNo(5), 16),
            bytes_done: 8192,
            cause: Cause::Errno(libc::ENOSPC),
        };
        let text = error.to_string();
        assert!(
            text.contains("page-out to slots 5..21 failed but for 8192 of 65536 bytes"),
            "{text}"
        );
        assert!(
            text.contains("No space left") && text.contains("choose another"),
            "{text}"
        );
        assert!(error.is_no_space());
    }

    #[test]
    fn a_disk_failure_is_not_no_space() {
        let error = StoreError {
            direction: Direction::PageIn,
            slots: SlotRange::new(SlotNo(0), 1),
            bytes_done: 0,
            cause: Cause::Errno(libc::EIO),
        };
        assert!(!error.is_no_space());
        assert_eq!(error.errno(), Some(libc::EIO));
        assert!(error.to_string().contains("dmesg"));
    }
}
