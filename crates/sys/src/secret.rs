//! Secrets: random bytes, and RAM that the kernel writes to no disk.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use outpage_core::units::PAGE_BYTES;
use zeroize::Zeroize;

use crate::map::{self, Area};
use crate::own::Fork;
use crate::raw::{Errno, syscall3};

/// Bytes of stack below a function that has put a secret together: what it called has left copies there.
const STACK_BYTES: usize = 16 << 10;

/// Fills `bytes` from the kernel's generator (getrandom(2)); waits until it is seeded, which it is soon after the machine's start.
///
/// # Errors
/// Those of getrandom(2).
pub fn random(bytes: &mut [u8]) -> Result<(), Errno> {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        filled += draw(rest.as_mut_ptr() as usize, rest.len())?;
    }
    Ok(())
}

fn draw(at: usize, len: usize) -> Result<usize, Errno> {
    // SAFETY: the callers own `len` writable bytes at `at`.
    match unsafe { syscall3(libc::SYS_getrandom, at, len, 0) } {
        Err(Errno::EINTR) => Ok(0),
        result => result,
    }
}

/// Locks a page of this process and keeps it out of core dumps.
fn lock(start: usize) -> Result<(), Errno> {
    map::mlock(start, PAGE_BYTES, false)?;
    map::madvise(start, PAGE_BYTES, libc::MADV_DONTDUMP)
}

/// Whether this process may lock a page more (`RLIMIT_MEMLOCK`).
///
/// # Errors
/// As [`Locked::new`].
pub fn can_lock() -> Result<(), Errno> {
    Locked::new(|| 0_u8).map(drop)
}

/// A value in a page of its own that stays in RAM, is left out of core dumps, and is wiped when the value is dropped.
#[derive(Debug)]
pub struct Locked<T> {
    area: Area,
    /// Whether it does stay in RAM, which it does but for [`Locked::where_possible`].
    locked: AtomicBool,
    value: PhantomData<T>,
}

impl<T> Locked<T> {
    /// What `make` returns. Copies that this leaves on the stack are wiped.
    ///
    /// # Errors
    /// Those of mmap(2) and mlock(2): `ENOMEM` and `EPERM` where `RLIMIT_MEMLOCK` allows no page more.
    pub fn new(make: impl FnOnce() -> T) -> Result<Self, Errno> {
        let area = Area::new(PAGE_BYTES, Fork::Inherited)?;
        lock(area.start())?;
        Ok(Self::put(area, true, make))
    }

    /// As [`Self::new`], but for a page that may be written to the kernel's swap where it cannot be locked; then with the reason.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn where_possible(make: impl FnOnce() -> T) -> Result<(Self, Option<Errno>), Errno> {
        let area = Area::new(PAGE_BYTES, Fork::Inherited)?;
        let locked = lock(area.start());
        if locked.is_err() {
            map::madvise(area.start(), PAGE_BYTES, libc::MADV_DONTDUMP)?;
        }
        Ok((Self::put(area, locked.is_ok(), make), locked.err()))
    }

    fn put(area: Area, locked: bool, make: impl FnOnce() -> T) -> Self {
        const { assert!(size_of::<T>() <= PAGE_BYTES && align_of::<T>() <= PAGE_BYTES) };
        put(area.start(), make);
        wipe_stack();
        Self {
            area,
            locked: AtomicBool::new(locked),
            value: PhantomData,
        }
    }

    /// Locks it again in a forked child, whose memory is not locked, if it was locked in the parent.
    ///
    /// # Errors
    /// As [`Self::new`], once; the child's children do not try again.
    pub fn lock_again(&self) -> Result<(), Errno> {
        if !self.locked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let locked = lock(self.area.start());
        self.locked.store(locked.is_ok(), Ordering::Relaxed);
        locked
    }

    fn at(&self) -> *mut T {
        ptr::with_exposed_provenance_mut(self.area.start())
    }
}

#[inline(never)]
fn put<T>(start: usize, make: impl FnOnce() -> T) {
    // SAFETY: a fresh page, large and aligned enough.
    unsafe { ptr::with_exposed_provenance_mut::<T>(start).write(make()) }
}

#[inline(never)]
fn wipe_stack() {
    [0_u8; STACK_BYTES].zeroize();
}

impl<T> Deref for Locked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: written in `new`, there until the drop.
        unsafe { &*self.at() }
    }
}

impl<T> DerefMut for Locked<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { &mut *self.at() }
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        // SAFETY: the value is dropped once, here.
        unsafe { self.at().drop_in_place() }
        self.area.bytes_mut(0, PAGE_BYTES).zeroize();
    }
}

/// A page of a memory file that stays in RAM as long as this value lives, whoever else maps or reads it.
#[derive(Debug)]
pub struct LockedPage {
    start: usize,
}

impl LockedPage {
    /// The page of `file` at byte `offset`, a multiple of the page size.
    ///
    /// # Errors
    /// Those of mmap(2), and of mlock(2) as for [`Locked::new`].
    pub fn of(file: i32, offset: u64) -> Result<Self, Errno> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let start = map::mmap(0, PAGE_BYTES, prot, libc::MAP_SHARED, file, offset)?;
        let page = Self { start };
        lock(start)?;
        Ok(page)
    }

    /// Fills `len` bytes from byte `at` on with random ones.
    ///
    /// # Errors
    /// Those of getrandom(2).
    ///
    /// # Panics
    /// When they leave the page.
    pub fn randomize(&self, at: usize, len: usize) -> Result<(), Errno> {
        assert!(at <= PAGE_BYTES && len <= PAGE_BYTES - at);
        let mut filled = 0;
        while filled < len {
            filled += draw(self.start + at + filled, len - filled)?;
        }
        Ok(())
    }

    /// Makes the page all zero, for everybody.
    pub fn wipe(&self) {
        let words = ptr::with_exposed_provenance_mut::<u64>(self.start);
        for i in 0..PAGE_BYTES / size_of::<u64>() {
            // SAFETY: mapped writable and as long as `self` lives; volatile, as others may read it meanwhile.
            unsafe { words.add(i).write_volatile(0) }
        }
    }
}

impl Drop for LockedPage {
    fn drop(&mut self) {
        let _ = map::munmap(self.start, PAGE_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fd, shared};
    use std::fs;
    use std::string::String;

    /// The lines of /proc/self/smaps for the mapping at `address`.
    fn mapping(address: usize) -> String {
        let all = fs::read_to_string("/proc/self/smaps").unwrap();
        let start = std::format!("{address:x}-");
        let from = all.find(&start).expect("a mapping of its own");
        let end = all[from..].find("VmFlags").unwrap();
        let line = all[from + end..].find('\n').unwrap();
        all[from..from + end + line].into()
    }

    #[test]
    fn a_locked_value_is_locked_and_not_dumped() {
        let value = match Locked::new(|| [7_u8; 64]) {
            Ok(value) => value,
            Err(error) => return std::eprintln!("SKIPPED: no page can be locked: {error}"),
        };
        assert_eq!(*value, [7; 64]);
        let smaps = mapping(value.area.start());
        let flags = smaps.lines().last().unwrap();
        assert!(flags.contains(" lo") && flags.contains(" dd"), "{smaps}");
        assert!(smaps.contains("Locked:                4 kB"), "{smaps}");
    }

    #[test]
    fn a_value_that_was_unlocked_is_locked_again_if_it_was_locked_at_first() {
        let (value, refused) = Locked::where_possible(|| 7_u8).unwrap();
        let is_locked = || mapping(value.area.start()).contains(" lo");
        assert_eq!(is_locked(), refused.is_none());
        map::munlock(value.area.start(), PAGE_BYTES).unwrap();
        assert!(!is_locked() && *value == 7);
        value.lock_again().unwrap();
        assert_eq!(is_locked(), refused.is_none());
    }

    #[test]
    fn a_dropped_value_is_dropped_once() {
        use core::sync::atomic::{AtomicU32, Ordering};
        static DROPS: AtomicU32 = AtomicU32::new(0);
        struct Counted;
        impl Drop for Counted {
            fn drop(&mut self) {
                DROPS.fetch_add(1, Ordering::Relaxed);
            }
        }
        let Ok(value) = Locked::new(|| Counted) else {
            return std::eprintln!("SKIPPED: no page can be locked");
        };
        assert_eq!(DROPS.load(Ordering::Relaxed), 0);
        drop(value);
        assert_eq!(DROPS.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_page_of_a_file_is_locked_filled_and_wiped_for_all() {
        let file = shared::create(c"outpage-test", 2 * PAGE_BYTES as u64).unwrap();
        let page = match LockedPage::of(file.number(), PAGE_BYTES as u64) {
            Ok(page) => page,
            Err(error) => return std::eprintln!("SKIPPED: no page can be locked: {error}"),
        };
        page.randomize(64, 64).unwrap();
        let smaps = mapping(page.start);
        let flags = smaps.lines().last().unwrap();
        assert!(flags.contains(" lo") && flags.contains(" dd"), "{smaps}");
        let mut bytes = [0_u8; 192];
        let read = |bytes: &mut [u8]| fd::pread(file.number(), bytes, PAGE_BYTES as u64);
        assert_eq!(read(&mut bytes), Ok(192));
        assert!(bytes[..64] == [0; 64] && bytes[128..] == [0; 64]);
        assert!(bytes[64..128].iter().any(|&b| b != 0));
        page.wipe();
        assert_eq!(read(&mut bytes), Ok(192));
        assert_eq!(bytes, [0; 192]);
    }

    #[test]
    fn random_bytes_fill_all_and_differ() {
        let (mut one, mut other) = ([0_u8; 300], [0_u8; 300]);
        random(&mut one).unwrap();
        random(&mut other).unwrap();
        assert_ne!(one, other);
        // Two of 300 bytes are 0 on average; 40 have probability below 1e-30.
        assert!(one.iter().filter(|&&b| b == 0).count() < 40);
    }
}
