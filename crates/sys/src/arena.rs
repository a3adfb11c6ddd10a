//! The pager's own allocator: never touches memory that the pager manages.
//!
//! Up to [`CLASS_BYTES_MAX`] bytes an allocation takes a chunk of the next power of two, carved from
//! mapped blocks and kept on a list of its class when freed; the large of them keep a page of RAM there. One block is mapped ahead of need: at
//! vm.max_map_count the kernel gives none any more. Larger ones are mappings of their own,
//! grown by mremap and unmapped when freed. Everything mapped is entered in [`own`] and inherited by
//! forked children.
//!
//! One spin lock, held for a few instructions (or one mmap), which yields the CPU while it waits. A
//! child of fork finds it free if no other thread allocated at that moment; [`Arena::hold`] around
//! fork makes sure of it. Not to be used in a signal handler that can interrupt its own thread's allocation.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use outpage_core::units::PAGE_BYTES;

use crate::map::{self, OWN_NAME};
use crate::own::{self, Fork};
use crate::raw::{self, Errno};
use crate::{process, say};

/// Smallest chunk: what malloc aligns to, and room for the link of a free list.
const CLASS_BYTES_MIN: usize = 16;
/// Largest chunk that is carved from a block and recycled.
pub const CLASS_BYTES_MAX: usize = 256 << 10;
const CLASSES: usize = (CLASS_BYTES_MAX / CLASS_BYTES_MIN).ilog2() as usize + 1;
/// First block; later ones are a sixteenth of what is mapped already, so that blocks stay few.
const BLOCK_BYTES_MIN: usize = 1 << 20;
const BLOCK_BYTES_MAX: usize = 64 << 20;
/// From this size on a freed chunk keeps the RAM of its first page alone, which has its link. A choice, not varied: lists that grow leave such chunks
/// behind for good, and each that is used again costs a system call and its pages' faults.
const GIVEN_BACK_MIN: usize = 32 << 10;
/// Spins before the CPU is yielded: about as long as the lock is held without a system call.
const SPINS: u32 = 64;

/// A global allocator on mappings of its own. A `static`; see the module for its limits.
pub struct Arena {
    /// What is said when the kernel gives no memory, before the process is killed; without it the
    /// allocation fails.
    last_words: Option<&'static str>,
    locked: AtomicBool,
    mapped: AtomicUsize,
    state: UnsafeCell<State>,
}

/// A freed chunk, holding the link to the next one of its class.
struct Free {
    next: Option<NonNull<Free>>,
}

struct State {
    free: [Option<NonNull<Free>>; CLASSES],
    /// What is left of the newest block: `at..end`.
    at: usize,
    end: usize,
    /// The block after it, mapped ahead: `start..end`; empty where the kernel refused one.
    spare: (usize, usize),
}

// SAFETY: `state` is reached only through `Guard`, which holds the lock.
unsafe impl Sync for Arena {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Arena {}

/// The lock, held.
struct Guard<'a>(&'a Arena);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

/// Keeps every thread out of an arena until it is dropped: taken before fork, dropped in both processes.
///
/// The thread that holds it must not allocate, nor map areas ([`map::Area`]).
#[must_use]
pub struct Held<'a> {
    _ranges: own::Held,
    _arena: Guard<'a>,
}

impl Arena {
    /// An empty arena: maps nothing until it is used.
    #[must_use]
    pub const fn new() -> Self {
        let state = State {
            free: [None; CLASSES],
            at: 0,
            end: 0,
            spare: (0, 0),
        };
        Self {
            last_words: None,
            locked: AtomicBool::new(false),
            mapped: AtomicUsize::new(0),
            state: UnsafeCell::new(state),
        }
    }

    /// The same, but when the kernel gives no memory the process says `words`, a line, on its standard
    /// error and is killed: its threads may wait for faults that nobody would resolve any more.
    #[must_use]
    pub const fn or_die(mut self, words: &'static str) -> Self {
        self.last_words = Some(words);
        self
    }

    fn refused(&self, error: Errno) -> Errno {
        let Some(words) = self.last_words else {
            return error;
        };
        say::say_for_main(&[words]);
        process::kill()
    }

    /// Bytes mapped now, whether allocated, freed for reuse or not carved yet. Frames exist only for
    /// the pages that were touched, so this is an upper bound of the RAM taken.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.mapped.load(Ordering::Relaxed)
    }

    /// Keeps allocations out, for fork.
    pub fn hold(&self) -> Held<'_> {
        // In the order in which an allocation takes them.
        let arena = self.lock();
        Held {
            _ranges: own::hold(),
            _arena: arena,
        }
    }

    fn lock(&self) -> Guard<'_> {
        let mut tries = 0u32;
        while self
            .locked
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            tries = tries.wrapping_add(1);
            if tries.is_multiple_of(SPINS) {
                raw::yield_now();
            } else {
                core::hint::spin_loop();
            }
        }
        Guard(self)
    }

    /// Maps and registers `len` bytes (whole pages), or says the last words.
    fn map(&self, len: usize) -> Result<usize, Errno> {
        self.try_map(len).map_err(|error| self.refused(error))
    }

    fn try_map(&self, len: usize) -> Result<usize, Errno> {
        let start = map::anonymous(len)?;
        if let Err(error) = own::add(start, start + len, Fork::Inherited) {
            let _ = map::munmap(start, len);
            return Err(error);
        }
        dress(start, len);
        self.mapped.fetch_add(len, Ordering::Relaxed);
        Ok(start)
    }

    fn unmap(&self, start: usize, len: usize) {
        own::remove(start);
        let _ = map::munmap(start, len);
        self.mapped.fetch_sub(len, Ordering::Relaxed);
    }

    /// A chunk, and whether nobody had it before: then it is as the kernel gave it, of zeroes.
    fn alloc_class(&self, class: usize) -> Option<(*mut u8, bool)> {
        let guard = self.lock();
        // SAFETY: the lock is held, so this is the only reference to the state.
        let state = unsafe { &mut *guard.0.state.get() };
        if let Some(chunk) = state.free[class] {
            // SAFETY: chunks on a free list are mapped, unused and hold a valid `Free`.
            state.free[class] = unsafe { chunk.as_ref() }.next;
            return Some((chunk.as_ptr().cast(), false));
        }
        Some((self.carve(state, class)?, true))
    }

    /// Cuts a chunk off the newest block, aligned to its size or a page, whichever is less.
    fn carve(&self, state: &mut State, class: usize) -> Option<*mut u8> {
        let bytes = CLASS_BYTES_MIN << class;
        let align = bytes.min(PAGE_BYTES);
        if state.at.next_multiple_of(align) + bytes > state.end {
            let sixteenth = (self.mapped_bytes() / 16).next_power_of_two();
            let len = sixteenth.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
            let (start, end) = match state.spare {
                (start, end) if start < end => (start, end),
                _ => self.map(len).map(|start| (start, start + len)).ok()?,
            };
            state.spare = self
                .try_map(len)
                .map_or((0, 0), |start| (start, start + len));
            let (old_at, old_end) = (state.at, state.end);
            (state.at, state.end) = (start, end);
            state.keep_rest(old_at, old_end);
        }
        let start = state.at.next_multiple_of(align);
        let gap_start = state.at;
        state.at = start + bytes;
        state.keep_rest(gap_start, start);
        Some(ptr::with_exposed_provenance_mut(start))
    }

    fn free_class(&self, chunk: *mut u8, class: usize) {
        let guard = self.lock();
        // SAFETY: the lock is held, so this is the only reference to the state.
        let state = unsafe { &mut *guard.0.state.get() };
        state.push(chunk.expose_provenance(), class);
    }

    fn alloc_large(&self, layout: Layout) -> Option<*mut u8> {
        let len = large_len(layout.size())?;
        let start = if layout.align() <= PAGE_BYTES {
            self.map(len).ok()?
        } else {
            self.map_aligned(len, layout.align())?
        };
        Some(ptr::with_exposed_provenance_mut(start))
    }

    /// Maps more than needed and unmaps what sticks out on both sides of the aligned part.
    fn map_aligned(&self, len: usize, align: usize) -> Option<usize> {
        let whole = len.checked_add(align)?;
        let raw = map::anonymous(whole).map_err(|e| self.refused(e)).ok()?;
        let start = raw.next_multiple_of(align);
        if start > raw {
            let _ = map::munmap(raw, start - raw);
        }
        if raw + whole > start + len {
            let _ = map::munmap(start + len, raw + whole - start - len);
        }
        if own::add(start, start + len, Fork::Inherited).is_err() {
            let _ = map::munmap(start, len);
            return None;
        }
        dress(start, len);
        self.mapped.fetch_add(len, Ordering::Relaxed);
        Some(start)
    }

    /// Moves a large allocation to a mapping of another size without copying.
    ///
    /// The new range is registered before the pages arrive, so that they are at no moment nobody's.
    fn resize_large(&self, start: usize, old_len: usize, new_len: usize) -> Option<usize> {
        if old_len == new_len {
            return Some(start);
        }
        let target = self.map(new_len).ok()?;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        if map::mremap(start, old_len, new_len, flags, target).is_err() {
            self.unmap(target, new_len);
            return None;
        }
        own::remove(start);
        self.mapped.fetch_sub(old_len, Ordering::Relaxed);
        Some(target)
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn push(&mut self, start: usize, class: usize) {
        let chunk: *mut Free = ptr::with_exposed_provenance_mut(start);
        // SAFETY: the chunk is mapped, unused, at least as large as `Free` and aligned to 16.
        unsafe {
            chunk.write(Free {
                next: self.free[class],
            })
        };
        self.free[class] = NonNull::new(chunk);
    }

    /// Puts `at..end`, a piece of a block, on the free lists as the largest chunks that fit.
    fn keep_rest(&mut self, mut at: usize, end: usize) {
        at = at.next_multiple_of(CLASS_BYTES_MIN);
        while at + CLASS_BYTES_MIN <= end {
            let fits = (end - at).ilog2();
            // A chunk is aligned to its size up to a page.
            let aligned = if at.is_multiple_of(PAGE_BYTES) {
                u32::MAX
            } else {
                at.trailing_zeros()
            };
            let class = fits.min(aligned).min(CLASS_BYTES_MAX.ilog2()) - CLASS_BYTES_MIN.ilog2();
            self.push(at, class as usize);
            at += CLASS_BYTES_MIN << class;
        }
    }
}

/// Gives a fresh mapping the marks of the pager's own; cosmetic, so that errors do not matter.
fn dress(start: usize, len: usize) {
    let _ = map::no_huge_pages(start, len);
    let _ = map::set_name(start, len, OWN_NAME);
}

/// The class that serves `layout`; `None` for one that needs a mapping of its own.
fn class_of(layout: Layout) -> Option<usize> {
    if layout.align() > PAGE_BYTES || layout.size() > CLASS_BYTES_MAX {
        return None;
    }
    let bytes = layout
        .size()
        .max(layout.align())
        .max(CLASS_BYTES_MIN)
        .next_power_of_two();
    Some((bytes / CLASS_BYTES_MIN).ilog2() as usize)
}

/// Gives back what a free chunk of `class` has in RAM from `start` on; whether it is of zeroes from there then.
fn give_back(chunk: *mut u8, class: usize, start: usize) -> bool {
    let bytes = CLASS_BYTES_MIN << class;
    bytes >= GIVEN_BACK_MIN && map::release(chunk.addr() + start, bytes - start).is_ok()
}

fn large_len(size: usize) -> Option<usize> {
    size.max(1).checked_next_multiple_of(PAGE_BYTES)
}

// SAFETY: chunks are disjoint, aligned as `class_of` says and stay mapped until freed; the lock orders all
// access to the lists; no method unwinds.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let found = match class_of(layout) {
            Some(class) => self.alloc_class(class).map(|(chunk, _)| chunk),
            None => self.alloc_large(layout),
        };
        found.unwrap_or(ptr::null_mut())
    }

    unsafe fn dealloc(&self, chunk: *mut u8, layout: Layout) {
        match class_of(layout) {
            Some(class) => {
                give_back(chunk, class, PAGE_BYTES);
                self.free_class(chunk, class);
            }
            None => self.unmap(chunk.addr(), large_len(layout.size()).unwrap_or(0)),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // What is fresh from the kernel is of zeroes, and takes no RAM before it is written.
        let found = match class_of(layout) {
            Some(class) => {
                let found = self.alloc_class(class);
                found.map(|(chunk, fresh)| (chunk, fresh || give_back(chunk, class, 0)))
            }
            None => self.alloc_large(layout).map(|chunk| (chunk, true)),
        };
        let Some((chunk, zeroes)) = found else {
            return ptr::null_mut();
        };
        if !zeroes {
            // SAFETY: the chunk has at least `size` bytes.
            unsafe { chunk.write_bytes(0, layout.size()) };
        }
        chunk
    }

    unsafe fn realloc(&self, chunk: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `new_size` does not overflow with this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (class_of(layout), class_of(new_layout)) {
            (Some(old), Some(new)) if old == new => return chunk,
            (None, None) if layout.align() <= PAGE_BYTES => {
                let lens = large_len(layout.size()).zip(large_len(new_size));
                let moved = lens.and_then(|(old, new)| self.resize_large(chunk.addr(), old, new));
                return moved.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut);
            }
            _ => {}
        }
        // SAFETY: the caller's layouts; both chunks have at least the copied bytes and are disjoint.
        unsafe {
            let fresh = self.alloc(new_layout);
            if !fresh.is_null() {
                ptr::copy_nonoverlapping(chunk, fresh, layout.size().min(new_size));
                self.dealloc(chunk, layout);
            }
            fresh
        }
    }
}
