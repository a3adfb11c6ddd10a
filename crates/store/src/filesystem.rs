//! File systems, and whether a swap file belongs on them.

use std::fmt;

/// The kind of a file system, by its magic number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filesystem {
    /// ext2, ext3 or ext4: one number for all three.
    Ext,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// ZFS.
    Zfs,
    /// bcachefs.
    Bcachefs,
    /// overlayfs: another file system decides.
    Overlay,
    /// tmpfs, which lives in RAM.
    Tmpfs,
    /// ramfs, which lives in RAM.
    Ramfs,
    /// hugetlbfs, which lives in RAM.
    Hugetlbfs,
    /// NFS.
    Nfs,
    /// CIFS or SMB.
    Cifs,
    /// 9P, often a directory of the host in a virtual machine.
    NineP,
    /// A program serves the files; virtiofs counts as one.
    Fuse,
    /// Ceph.
    Ceph,
    /// AFS.
    Afs,
    /// Another one, by its magic number.
    Other(u32),
}

/// What to make of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Fine,
    /// Every overwrite allocates, so it is slow and may find the disk full in spite of reservation.
    CopyOnWrite,
    /// What lies below cannot be seen.
    Hidden,
    /// Paging out to RAM saves none.
    InMemory,
    /// Page-out may need the very memory it is to free, and a fault may wait for another machine or
    /// program.
    Remote,
}

impl Filesystem {
    /// The kind that the magic number stands for (`statfs(2)`, `linux/magic.h`; ZFS: `zfs_vfsops.c`).
    #[must_use]
    pub const fn from_magic(magic: u32) -> Self {
        match magic {
            0xef53 => Self::Ext,
            0x5846_5342 => Self::Xfs,
            0x9123_683e => Self::Btrfs,
            0x2fc1_2fc1 => Self::Zfs,
            0xca45_1a4e => Self::Bcachefs,
            0x794c_7630 => Self::Overlay,
            0x0102_1994 => Self::Tmpfs,
            0x8584_58f6 => Self::Ramfs,
            0x9584_58f6 => Self::Hugetlbfs,
            0x6969 => Self::Nfs,
            0xff53_4d42 | 0xfe53_4d42 | 0x517b => Self::Cifs,
            0x0102_1997 => Self::NineP,
            0x6573_5546 => Self::Fuse,
            0x00c3_6400 => Self::Ceph,
            0x5346_414f | 0x6b41_4653 => Self::Afs,
            other => Self::Other(other),
        }
    }

    pub(crate) const fn verdict(self) -> Verdict {
        match self {
            Self::Ext | Self::Xfs | Self::Other(_) => Verdict::Fine,
            Self::Btrfs | Self::Zfs | Self::Bcachefs => Verdict::CopyOnWrite,
            Self::Overlay => Verdict::Hidden,
            Self::Tmpfs | Self::Ramfs | Self::Hugetlbfs => Verdict::InMemory,
            Self::Nfs | Self::Cifs | Self::NineP | Self::Fuse | Self::Ceph | Self::Afs => {
                Verdict::Remote
            }
        }
    }
}

impl fmt::Display for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext => "ext2/3/4",
            Self::Xfs => "XFS",
            Self::Btrfs => "btrfs",
            Self::Zfs => "ZFS",
            Self::Bcachefs => "bcachefs",
            Self::Overlay => "overlayfs",
            Self::Tmpfs => "tmpfs",
            Self::Ramfs => "ramfs",
            Self::Hugetlbfs => "hugetlbfs",
            Self::Nfs => "NFS",
            Self::Cifs => "CIFS",
            Self::NineP => "9P",
            Self::Fuse => "FUSE",
            Self::Ceph => "Ceph",
            Self::Afs => "AFS",
            Self::Other(magic) => return write!(f, "file system {magic:#x}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_network_are_told_from_disks() {
        let verdict = |magic: i64| Filesystem::from_magic(magic as u32).verdict();
        assert_eq!(verdict(libc::EXT4_SUPER_MAGIC), Verdict::Fine);
        assert_eq!(verdict(libc::XFS_SUPER_MAGIC), Verdict::Fine);
        assert_eq!(verdict(libc::TMPFS_MAGIC), Verdict::InMemory);
        assert_eq!(verdict(libc::HUGETLBFS_MAGIC), Verdict::InMemory);
        assert_eq!(verdict(libc::NFS_SUPER_MAGIC), Verdict::Remote);
        assert_eq!(verdict(libc::SMB_SUPER_MAGIC), Verdict::Remote);
        assert_eq!(verdict(libc::FUSE_SUPER_MAGIC), Verdict::Remote);
        assert_eq!(verdict(libc::BTRFS_SUPER_MAGIC), Verdict::CopyOnWrite);
        assert_eq!(verdict(libc::OVERLAYFS_SUPER_MAGIC), Verdict::Hidden);
    }
}
