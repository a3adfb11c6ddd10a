//! Numbers and structures of include/uapi/linux/userfaultfd.h (Linux 6.8, which has MOVE and POISON).

/// `UFFD_API`: the only version of the interface.
pub const API_VERSION: u64 = 0xAA;
/// `UFFD_USER_MODE_ONLY`: faults of the kernel itself (read(2) into a missing page) are not served.
pub const USER_MODE_ONLY: usize = 1;
/// Size of `struct uffd_msg`.
pub const MESSAGE_BYTES: usize = 32;

pub const EVENT_PAGEFAULT: u8 = 0x12;
pub const EVENT_FORK: u8 = 0x13;
pub const EVENT_REMAP: u8 = 0x14;
pub const EVENT_REMOVE: u8 = 0x15;
pub const EVENT_UNMAP: u8 = 0x16;
pub const PAGEFAULT_FLAG_WRITE: u64 = 1;
pub const PAGEFAULT_FLAG_WP: u64 = 1 << 1;
pub const PAGEFAULT_FLAG_MINOR: u64 = 1 << 2;

pub const REGISTER_MODE_MISSING: u64 = 1;
pub const REGISTER_MODE_WP: u64 = 1 << 1;
pub const REGISTER_MODE_MINOR: u64 = 1 << 2;
/// `UFFDIO_*_MODE_DONTWAKE` of COPY and MOVE.
pub const DONTWAKE: u64 = 1;
pub const COPY_MODE_WP: u64 = 1 << 1;
pub const MOVE_MODE_ALLOW_SRC_HOLES: u64 = 1 << 1;
pub const WRITEPROTECT_MODE_WP: u64 = 1;

/// `struct uffdio_api`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Api {
    pub api: u64,
    pub features: u64,
    pub ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub start: u64,
    pub len: u64,
}

impl Range {
    pub const fn new(start: usize, len: usize) -> Self {
        Self {
            start: start as u64,
            len: len as u64,
        }
    }
}

/// `struct uffdio_register`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Register {
    pub range: Range,
    pub mode: u64,
    pub ioctls: u64,
}

/// `struct uffdio_copy` and `struct uffdio_move`: `done` is bytes or a negative error number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    pub dst: u64,
    pub src: u64,
    pub len: u64,
    pub mode: u64,
    pub done: i64,
}

/// `struct uffdio_zeropage`, `uffdio_continue` and `uffdio_poison`: `done` is bytes or a negative error number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    pub range: Range,
    pub mode: u64,
    pub done: i64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WriteProtect {
    pub range: Range,
    pub mode: u64,
}

/// The type byte of every userfaultfd request.
const TYPE: usize = 0xAA;

/// `_IOR(0xAA, nr, T)`.
const fn read<T>(nr: usize) -> usize {
    2 << 30 | size_of::<T>() << 16 | TYPE << 8 | nr
}

/// `_IOWR(0xAA, nr, T)`.
const fn read_write<T>(nr: usize) -> usize {
    3 << 30 | size_of::<T>() << 16 | TYPE << 8 | nr
}

/// `USERFAULTFD_IOC_NEW`: `_IO(0xAA, 0)` on /dev/userfaultfd.
pub const DEVICE_NEW: usize = TYPE << 8;
pub const API: usize = read_write::<Api>(0x3F);
pub const REGISTER: usize = read_write::<Register>(0x00);
pub const UNREGISTER: usize = read::<Range>(0x01);
pub const WAKE: usize = read::<Range>(0x02);
pub const COPY: usize = read_write::<Transfer>(0x03);
pub const ZEROPAGE: usize = read_write::<Fill>(0x04);
pub const MOVE: usize = read_write::<Transfer>(0x05);
pub const WRITEPROTECT: usize = read_write::<WriteProtect>(0x06);
pub const CONTINUE: usize = read_write::<Fill>(0x07);
pub const POISON: usize = read_write::<Fill>(0x08);

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that a C program prints for the header's macros.
    #[test]
    fn request_numbers_are_the_headers() {
        assert_eq!(API, 0xc018_aa3f);
        assert_eq!(REGISTER, 0xc020_aa00);
        assert_eq!(UNREGISTER, 0x8010_aa01);
        assert_eq!(WAKE, 0x8010_aa02);
        assert_eq!(COPY, 0xc028_aa03);
        assert_eq!(ZEROPAGE, 0xc020_aa04);
        assert_eq!(MOVE, 0xc028_aa05);
        assert_eq!(WRITEPROTECT, 0xc018_aa06);
        assert_eq!(CONTINUE, 0xc020_aa07);
        assert_eq!(POISON, 0xc020_aa08);
        assert_eq!(DEVICE_NEW, 0xaa00);
    }
}
