//! Memory shared between processes, and byte locks that say which processes are alive.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use outpage_core::units::PAGE_BYTES;

use crate::fd::{self, Fd};
use crate::map;
use crate::raw::{Errno, syscall3, syscall5};

/// What may be laid over shared memory.
///
/// # Safety
/// The type is `#[repr(C)]` (or transparent), consists of atomics and arrays of them only, holds no
/// pointer, and is valid for every bit pattern, all zeroes being its initial state.
pub unsafe trait Shareable: Sync {}

// SAFETY: an atomic of a plain integer; all bits valid.
unsafe impl Shareable for core::sync::atomic::AtomicU32 {}
// SAFETY: as above.
unsafe impl Shareable for core::sync::atomic::AtomicU64 {}
// SAFETY: as above.
unsafe impl Shareable for core::sync::atomic::AtomicU8 {}
// SAFETY: an array is laid out as its elements.
unsafe impl<T: Shareable, const N: usize> Shareable for [T; N] {}

/// Declares a `#[repr(C)]` structure of atomics that may be laid over shared memory.
///
/// ```
/// outpage_sys::shareable! {
///     /// Counters of a session.
///     pub struct Counters {
///         /// Faults so far.
///         pub faults: core::sync::atomic::AtomicU64,
///     }
/// }
/// ```
#[macro_export]
macro_rules! shareable {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name { $($(#[$field_meta])* $field_vis $field: $type,)* }
        // SAFETY: repr(C), and each field is itself shareable, as the function below has the compiler check.
        unsafe impl $crate::shared::Shareable for $name {}
        const _: () = {
            #[allow(dead_code)]
            fn every_field_is_shareable() {
                fn check<T: $crate::shared::Shareable>() {}
                $(check::<$type>();)*
            }
        };
    };
}

/// A memory file of `bytes` bytes, all zero, sealed: nobody can make it shorter or longer any more.
///
/// # Errors
/// Those of memfd_create(2), ftruncate(2) and fcntl(2).
pub fn create(name: &CStr, bytes: u64) -> Result<Fd, Errno> {
    let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
    // SAFETY: `name` is a valid C string for the length of the call.
    let number = unsafe { syscall3(libc::SYS_memfd_create, name.as_ptr() as usize, flags, 0) }?;
    let file = Fd::adopt(number as i32);
    fd::set_len(file.number(), bytes)?;
    let seals = (libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL) as usize;
    let (number, command) = (file.number() as usize, libc::F_ADD_SEALS as usize);
    // SAFETY: takes numbers only.
    unsafe { syscall3(libc::SYS_fcntl, number, command, seals) }?;
    Ok(file)
}

/// The start of a file, mapped as a `T` that every process mapping the file shares; unmapped when dropped.
///
/// A forked child has a copy, which it may drop.
#[derive(Debug)]
pub struct Mapped<T: Shareable>(ptr::NonNull<T>);

// SAFETY: it is a shared reference to atomics, which `Shareable` requires.
unsafe impl<T: Shareable> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Shareable> Sync for Mapped<T> {}

impl<T: Shareable> core::ops::Deref for Mapped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: page-aligned, long enough, mapped as long as `self` lives; `Shareable` makes any
        // content, and its change by others at any time, valid.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Shareable> Drop for Mapped<T> {
    fn drop(&mut self) {
        // Whole mappings can always be unmapped.
        let _ = map::munmap(self.0.as_ptr().addr(), size_of::<T>());
    }
}

/// Maps the start of `file` as a `T`.
///
/// # Errors
/// Those of mmap(2); `EINVAL` when the file is shorter than `T` (touching the rest would kill the process).
pub fn map<T: Shareable>(file: i32) -> Result<Mapped<T>, Errno> {
    const { assert!(align_of::<T>() <= PAGE_BYTES && size_of::<T>() > 0) };
    if fd::len(file)? < size_of::<T>() as u64 {
        return Err(Errno::EINVAL);
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let start = map::mmap(0, size_of::<T>(), prot, libc::MAP_SHARED, file, 0)?;
    let start = ptr::NonNull::new(ptr::with_exposed_provenance_mut(start));
    start.map(Mapped).ok_or(Errno::EINVAL)
}

/// A whole memory file, mapped as words that every process with the file may change at any time, or memory without a file; unmapped when dropped.
#[derive(Debug)]
pub struct Whole {
    start: usize,
    bytes: usize,
}

impl Whole {
    /// Maps the first `bytes` bytes of `file`, whole pages, without huge pages.
    ///
    /// # Errors
    /// Those of mmap(2); `EINVAL` when there are none, or the file is shorter (touching the rest would kill the process).
    pub fn new(file: i32, bytes: usize) -> Result<Self, Errno> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) || fd::len(file)? < bytes as u64 {
            return Err(Errno::EINVAL);
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let start = map::mmap(0, bytes, prot, libc::MAP_SHARED, file, 0)?;
        let whole = Self { start, bytes };
        map::no_huge_pages(start, bytes)?;
        Ok(whole)
    }

    /// Memory of this process alone, all zero, in the place of a file: `bytes` bytes, whole pages, without huge pages. A forked child has a copy.
    ///
    /// # Errors
    /// Those of mmap(2); `EINVAL` when there are none.
    pub fn anonymous(bytes: usize) -> Result<Self, Errno> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(Errno::EINVAL);
        }
        let start = map::anonymous(bytes)?;
        let whole = Self { start, bytes };
        map::no_huge_pages(start, bytes)?;
        Ok(whole)
    }

    /// Where it is mapped.
    #[must_use]
    pub const fn address(&self) -> usize {
        self.start
    }

    /// How long it is.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its content. A word of a hole gives the file a page, and the process a signal where there is no RAM for it.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        let start = ptr::with_exposed_provenance::<AtomicU64>(self.start);
        // SAFETY: page-aligned, mapped as long as `self` lives; atomics are valid whatever others write.
        unsafe { core::slice::from_raw_parts(start, self.bytes / 8) }
    }

    /// Copies page `index`, word by word: what others write meanwhile is of different moments.
    ///
    /// # Panics
    /// When there is no such page.
    pub fn copy_page(&self, index: usize, out: &mut [u8; PAGE_BYTES]) {
        const WORDS: usize = PAGE_BYTES / 8;
        let words = &self.words()[index * WORDS..][..WORDS];
        for (place, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        // Whole mappings can always be unmapped.
        let _ = map::munmap(self.start, self.bytes);
    }
}

/// The start of a file, mapped as words of 4 bytes that every process mapping the file shares; unmapped when dropped.
///
/// The file has to stay as long as it was: where it is cut short, touching the rest kills the process. A forked child has a copy,
/// which it may drop.
#[derive(Debug)]
pub struct Words {
    start: ptr::NonNull<AtomicU32>,
    count: usize,
}

// SAFETY: it is a shared reference to atomics.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl core::ops::Deref for Words {
    type Target = [AtomicU32];

    fn deref(&self) -> &[AtomicU32] {
        // SAFETY: page-aligned, `count` words long, mapped as long as `self` lives; any content of an atomic is valid, and
        // so is its change by others.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // Whole mappings can always be unmapped.
        let _ = map::munmap(self.start.as_ptr().addr(), self.count * 4);
    }
}

/// `count` words, all zero, that are in no file: a forked child shares them.
///
/// # Errors
/// Those of mmap(2); `EINVAL` for no words.
pub fn new_words(count: usize) -> Result<Words, Errno> {
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED | libc::MAP_ANONYMOUS,
    );
    let start = map::mmap(0, count * 4, prot, flags, -1, 0)?;
    let start = ptr::NonNull::new(ptr::with_exposed_provenance_mut(start));
    let words = start.map(|start| Words { start, count });
    words.ok_or(Errno::EINVAL)
}

/// Maps the first `count` words of `file`.
///
/// # Errors
/// Those of mmap(2); `EINVAL` for no words, and when the file is shorter.
pub fn map_words(file: i32, count: usize) -> Result<Words, Errno> {
    if count == 0 || fd::len(file)? < count as u64 * 4 {
        return Err(Errno::EINVAL);
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let start = map::mmap(0, count * 4, prot, libc::MAP_SHARED, file, 0)?;
    let start = ptr::NonNull::new(ptr::with_exposed_provenance_mut(start));
    let words = start.map(|start| Words { start, count });
    words.ok_or(Errno::EINVAL)
}

/// Copies what lies from byte `offset` of `file` on, which may be anybody's, to `copy`: nothing of the file is mapped, so it may
/// be cut short at any time, and pages that it does not have get no frames.
///
/// Words that others write meanwhile are of different moments.
///
/// # Errors
/// Those of pread(2); `EINVAL` when the file ends before the `T` does, whose rest stays as it was.
pub fn copy_out<T: Shareable>(file: i32, offset: u64, copy: &mut T) -> Result<(), Errno> {
    let (start, bytes) = (ptr::from_mut(copy) as usize, size_of::<T>());
    let mut done = 0;
    while done < bytes {
        let from = offset as usize + done;
        let (to, left) = (start + done, bytes - done);
        // SAFETY: the kernel writes at most the rest of `copy`, which is exclusively borrowed and of which any bytes
        // are a value.
        match unsafe { syscall5(libc::SYS_pread64, file as usize, to, left, from, 0) } {
            Ok(0) => return Err(Errno::EINVAL),
            Ok(more) => done += more,
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Locks byte `index` of `file` for the open file description that `file` refers to.
///
/// The kernel frees the lock when the last descriptor of that description goes, however the process
/// ends. Copies made by fork and dup share it; [`crate::proc::reopen`] gives a description of one's own.
/// Returns whether the lock was free (or already held by this description).
///
/// # Errors
/// Those of fcntl(2) except the conflict.
pub fn lock_byte(file: i32, index: u64) -> Result<bool, Errno> {
    set_lock(file, libc::F_WRLCK, index)
}

fn set_lock(file: i32, kind: libc::c_int, index: u64) -> Result<bool, Errno> {
    match lock_call(file, libc::F_OFD_SETLK, &mut request(kind, index)) {
        Ok(()) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The same, beside others who hold it so: nobody can lock it meanwhile.
///
/// # Errors
/// Those of [`lock_byte`].
pub fn share_byte(file: i32, index: u64) -> Result<bool, Errno> {
    set_lock(file, libc::F_RDLCK, index)
}

/// Gives byte `index` free.
///
/// # Errors
/// Those of fcntl(2).
pub fn unlock_byte(file: i32, index: u64) -> Result<(), Errno> {
    lock_call(file, libc::F_OFD_SETLK, &mut request(libc::F_UNLCK, index))
}

/// Whether another open file description holds byte `index`.
///
/// # Errors
/// Those of fcntl(2).
pub fn is_locked(file: i32, index: u64) -> Result<bool, Errno> {
    let mut lock = request(libc::F_WRLCK, index);
    lock_call(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

/// Whether another open file description holds byte `index` by [`lock_byte`], and not a process by a lock of its own.
///
/// # Errors
/// Those of fcntl(2).
pub fn is_locked_alone(file: i32, index: u64) -> Result<bool, Errno> {
    let mut lock = request(libc::F_RDLCK, index);
    lock_call(file, libc::F_OFD_GETLK, &mut lock)?;
    // Of such a lock there is no process (fcntl(2)).
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short && lock.l_pid == -1)
}

fn request(kind: libc::c_int, index: u64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: index as libc::off_t,
        l_len: 1,
        l_pid: 0,
    }
}

fn lock_call(file: i32, command: i32, lock: &mut libc::flock) -> Result<(), Errno> {
    let at = ptr::from_mut(lock) as usize;
    // SAFETY: the kernel reads and writes one `flock`, exclusively borrowed.
    unsafe { syscall3(libc::SYS_fcntl, file as usize, command as usize, at) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc;
    use core::sync::atomic::{AtomicU64, Ordering};

    shareable! {
        /// A word and three.
        #[derive(Default)]
        struct Pair {
            first: AtomicU64,
            rest: [AtomicU64; 3],
        }
    }

    #[test]
    fn two_mappings_of_a_file_are_one_memory() {
        let file = create(c"outpage-test", 4096).unwrap();
        let [here, there]: [Mapped<Pair>; 2] =
            [map(file.number()).unwrap(), map(file.number()).unwrap()];
        assert_ne!(here.0, there.0);
        here.rest[2].store(7, Ordering::Relaxed);
        assert_eq!(there.rest[2].load(Ordering::Relaxed), 7);
        assert_eq!(there.first.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn memory_without_a_file_is_zero_and_written_like_any_other() {
        let whole = Whole::anonymous(2 * PAGE_BYTES).unwrap();
        assert_eq!((whole.bytes(), whole.words().len()), (2 * PAGE_BYTES, 1024));
        assert!(whole.words().iter().all(|w| w.load(Ordering::Relaxed) == 0));
        whole.words()[1023].store(7, Ordering::Relaxed);
        assert_eq!(whole.words()[1023].load(Ordering::Relaxed), 7);
        assert!(Whole::anonymous(0).is_err() && Whole::anonymous(100).is_err());
    }

    #[test]
    fn short_files_are_refused_and_lengths_are_for_ever() {
        let file = create(c"outpage-test", 31).unwrap();
        assert_eq!(map::<Pair>(file.number()).err(), Some(Errno::EINVAL));
        for bytes in [1, 4096] {
            assert_eq!(fd::set_len(file.number(), bytes), Err(Errno::EPERM));
        }
    }

    #[test]
    fn a_copy_is_of_its_moment_and_of_whole_values_only() {
        let file = create(c"outpage-test", 40).unwrap();
        let mapped: Mapped<Pair> = map(file.number()).unwrap();
        mapped.rest[2].store(7, Ordering::Relaxed);
        let copied = |offset| {
            let mut pair = Pair::default();
            copy_out(file.number(), offset, &mut pair).map(|()| pair)
        };
        let (first, second) = (copied(0).unwrap(), copied(8).unwrap());
        mapped.rest[2].store(8, Ordering::Relaxed);
        let words = |pair: &Pair| [&pair.rest[1], &pair.rest[2]].map(|w| w.load(Ordering::Relaxed));
        assert_eq!((words(&first), words(&second)), ([0, 7], [7, 0]));
        for beyond in [9, 40, 1 << 40] {
            assert_eq!(copied(beyond).err(), Some(Errno::EINVAL), "{beyond}");
        }
    }

    #[test]
    fn a_dropped_mapping_is_gone() {
        let file = create(c"outpage-dropped", 4096).unwrap();
        let maps = || std::fs::read_to_string("/proc/self/maps").unwrap();
        let mapped: Mapped<Pair> = map(file.number()).unwrap();
        assert!(maps().contains("outpage-dropped"));
        drop(mapped);
        assert!(!maps().contains("outpage-dropped"));
    }

    #[test]
    fn a_byte_lock_is_seen_by_other_descriptions_and_ends_with_its_own() {
        let file = create(c"outpage-test", 4096).unwrap();
        let other = proc::reopen(file.number(), libc::O_RDWR).unwrap();
        assert_eq!(lock_byte(other.number(), 5), Ok(true));
        assert_eq!(is_locked(file.number(), 5), Ok(true));
        assert_eq!(is_locked(file.number(), 4), Ok(false));
        assert_eq!(
            is_locked(other.number(), 5),
            Ok(false),
            "one's own lock is no obstacle"
        );
        assert_eq!(lock_byte(file.number(), 5), Ok(false));
        drop(other);
        assert_eq!(lock_byte(file.number(), 5), Ok(true));
        unlock_byte(file.number(), 5).unwrap();
    }
}
