//! The features of userfaultfd, as bits of the handshake.

use core::fmt;

/// A set of features (`UFFD_FEATURE_*`).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(u64);

/// Declares the features that have a constant and a name.
macro_rules! features {
    ($($name:ident $bit:literal $doc:literal)*) => {
        impl Features {
            $(#[doc = $doc]
            pub const $name: Self = Self(1 << $bit);)*

            /// Every feature known here with the kernel's name of it.
            pub const NAMES: &[(Self, &str)] = &[$((Self::$name, stringify!($name)),)*];
        }
    };
}

features! {
    PAGEFAULT_FLAG_WP 0 "Write-protection of private anonymous memory (Linux 5.7)."
    EVENT_FORK 1 "Messages about fork (4.11)."
    EVENT_REMAP 2 "Messages about mremap (4.11)."
    EVENT_REMOVE 3 "Messages about MADV_DONTNEED and MADV_REMOVE (4.11)."
    MISSING_SHMEM 5 "Missing faults of shared memory (4.11)."
    EVENT_UNMAP 6 "Messages about munmap (4.11)."
    SIGBUS 7 "A signal in place of a message (4.14)."
    THREAD_ID 8 "Messages name the faulting thread (4.14)."
    MINOR_SHMEM 10 "Faults of pages that shared memory has and the mapping does not (5.14)."
    EXACT_ADDRESS 11 "Messages give the address within the page (5.18)."
    WP_HUGETLBFS_SHMEM 12 "Write-protection of shared memory (5.19)."
    WP_UNPOPULATED 13 "Write-protection of pages that are not there yet (6.4)."
    POISON 14 "Marking pages so that touching them is a SIGBUS (6.6)."
    WP_ASYNC 15 "Write-protect faults resolved by the kernel, for dirty tracking (6.7)."
    MOVE 16 "Moving pages between two places of one address space (6.8)."
    RWP 17 "Read-write protection of pages that stay mapped (in 7.3, not in 6.18)."
    RWP_ASYNC 18 "The same, resolved by the kernel: which pages were touched is told by PAGEMAP_SCAN (as above)."
}

impl Features {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The set with exactly these bits, known or not.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Features in either set.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Features of this set that are not in `other`.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Features in both sets.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether all of `other` is in this set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for Features {
    /// The names, separated by blanks; unknown bits as a number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = *self;
        let mut gap = "";
        for &(feature, name) in Self::NAMES {
            if self.has(feature) {
                write!(f, "{gap}{name}")?;
                gap = " ";
                rest = rest.minus(feature);
            }
        }
        if rest == Self::NONE {
            Ok(())
        } else {
            write!(f, "{gap}{:#x}", rest.0)
        }
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn sets_print_their_names_and_unknown_bits() {
        let set = Features::MOVE
            .plus(Features::THREAD_ID)
            .plus(Features::from_bits(1 << 40));
        assert_eq!(format!("{set}"), "THREAD_ID MOVE 0x10000000000");
        assert_eq!(format!("{}", Features::NONE), "");
    }

    #[test]
    fn sets_combine() {
        let (a, b) = (Features::MOVE.plus(Features::POISON), Features::POISON);
        assert!(a.has(b) && !b.has(a));
        assert_eq!((a.minus(b), a.common(b)), (Features::MOVE, b));
    }
}
