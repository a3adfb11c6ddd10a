//! Memory by `/dev/zero`, as programs ask for it that are older than `MAP_ANONYMOUS`.
//!
//! Private, it is anonymous memory that differs by its name in `/proc/PID/maps` alone; shared, it is what `MAP_SHARED | MAP_ANONYMOUS` makes (`mmap_zero` of
//! drivers/char/mem.c, Linux 6.18). Mapped without the device either is the same memory, and managed as other memory is.

use outpage_core::units::PAGE_BYTES;
use outpage_sys::fd;

/// The device (Documentation/admin-guide/devices.txt of Linux).
const ZERO: (u32, u32) = (1, 5);

/// Flags that change nothing of that.
const PLAIN: i32 = libc::MAP_FIXED
    | libc::MAP_FIXED_NOREPLACE
    | libc::MAP_NORESERVE
    | libc::MAP_POPULATE
    | libc::MAP_NONBLOCK
    | libc::MAP_LOCKED
    | libc::MAP_STACK
    | libc::MAP_32BIT;

/// The flags by which mmap(2) makes the same memory without the file behind `fd`, if it does.
pub fn without_device(prot: i32, flags: i32, fd: i32, off: usize) -> Option<i32> {
    let shared = match flags & !PLAIN {
        libc::MAP_PRIVATE => false,
        libc::MAP_SHARED => true,
        _ => return None,
    };
    // Whether a file may be executed, its file system says.
    if prot & libc::PROT_EXEC != 0 || !off.is_multiple_of(PAGE_BYTES) {
        return None;
    }
    if fd::character_device(fd) != Ok(Some(ZERO)) {
        return None;
    }
    let opened = fd::open_flags(fd).ok()?;
    let readable = match opened & libc::O_ACCMODE {
        libc::O_RDWR => true,
        libc::O_RDONLY => !shared,
        _ => false,
    };
    (readable && opened & libc::O_PATH == 0).then_some(flags | libc::MAP_ANONYMOUS)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd;

    use super::*;

    const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

    #[test]
    fn only_what_may_be_read_of_the_device_is_mapped_without_it() {
        let open = |path, read, write| OpenOptions::new().read(read).write(write).open(path);
        let both = open("/dev/zero", true, true).expect("the device");
        let read = open("/dev/zero", true, false).expect("the device");
        let write = open("/dev/zero", false, true).expect("the device");
        let other = open("/dev/null", true, true).expect("a device");
        let exe = open("/proc/self/exe", true, false).expect("a file");
        let ask = |file: &std::fs::File, prot, flags, off| {
            without_device(prot, flags, file.as_raw_fd(), off)
        };
        let (private, shared) = (libc::MAP_PRIVATE, libc::MAP_SHARED);
        for flags in [private, private | libc::MAP_FIXED, shared] {
            let anonymous = Some(flags | libc::MAP_ANONYMOUS);
            assert_eq!(ask(&both, RW, flags, 8 * PAGE_BYTES), anonymous);
            assert_eq!(ask(&write, RW, flags, 0), None);
            assert_eq!(ask(&other, RW, flags, 0), None);
            assert_eq!(ask(&exe, RW, flags, 0), None);
            assert_eq!(ask(&both, RW, flags, 1), None);
            assert_eq!(ask(&both, RW | libc::PROT_EXEC, flags, 0), None);
        }
        let anonymous = private | libc::MAP_ANONYMOUS;
        assert_eq!(ask(&read, RW, private, 0), Some(anonymous));
        assert_eq!(ask(&read, RW, shared, 0), None);
        for flags in [libc::MAP_SHARED_VALIDATE, private | libc::MAP_HUGETLB] {
            assert_eq!(ask(&both, RW, flags, 0), None);
        }
        assert_eq!(without_device(RW, private, -1, 0), None);
        assert_eq!(without_device(RW, anonymous, both.as_raw_fd(), 0), None);
    }
}
