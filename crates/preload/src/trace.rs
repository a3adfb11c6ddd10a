//! `OUTPAGE_TRACE_HOOKS=FILE`: at exit, appends one line to the file about what the hooks saw.
//!
//! For tests and for finding out what goes past the hooks. A set of ranges is kept from what the
//! hooks see, seeded from the list of mappings at start, and compared with that list at exit:
//! `missed_bytes` are mapped without a hook having seen it, `stale_bytes` the reverse. While
//! tracing, hooks run one at a time and allocate; without it, each costs one load.

use core::cell::UnsafeCell;
use core::fmt::Write;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use outpage_sys::{fd, maps, own, process};

use crate::raw::SignalsBlocked;
use crate::{budget, mode};

/// The hooks that are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// mmap.
    Mmap,
    /// munmap.
    Munmap,
    /// mremap.
    Mremap,
    /// madvise and posix_madvise.
    Madvise,
    /// mprotect and pkey_mprotect.
    Mprotect,
    /// brk.
    Brk,
    /// mlock, munlock and theirs.
    Mlock,
    /// fork, and clone with a copy of the memory.
    Fork,
    /// execve and execveat.
    Exec,
}

const NAMES: [&str; 9] = [
    "mmap", "munmap", "mremap", "madvise", "mprotect", "brk", "mlock", "fork", "exec",
];
static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];
/// Path of the file; null while tracing is off.
static FILE: AtomicPtr<libc::c_char> = AtomicPtr::new(core::ptr::null_mut());
static LOCKED: AtomicBool = AtomicBool::new(false);
static SEEN: Seen = Seen(UnsafeCell::new(Ranges(Vec::new())));

struct Seen(UnsafeCell<Ranges>);

// SAFETY: reached only with `LOCKED` held.
unsafe impl Sync for Seen {}

/// Disjoint half-open ranges in ascending order.
struct Ranges(Vec<(usize, usize)>);

impl Ranges {
    fn remove(&mut self, start: usize, end: usize) {
        let first = self.0.partition_point(|&(_, e)| e <= start);
        let last = self.0.partition_point(|&(s, _)| s < end);
        if first >= last {
            return;
        }
        let head = (self.0[first].0, start);
        let tail = (end, self.0[last - 1].1);
        let rest = [head, tail].into_iter().filter(|(s, e)| s < e);
        self.0.splice(first..last, rest);
    }

    fn insert(&mut self, start: usize, end: usize) {
        self.remove(start, end);
        let at = self.0.partition_point(|&(s, _)| s < start);
        self.0.insert(at, (start, end));
    }

    /// Bytes of `start..end` that are in no range.
    fn missing(&self, start: usize, end: usize) -> usize {
        let first = self.0.partition_point(|&(_, e)| e <= start);
        let overlaps = self.0[first..].iter().take_while(|&&(s, _)| s < end);
        let covered: usize = overlaps.map(|&(s, e)| e.min(end) - s.max(start)).sum();
        (end - start) - covered
    }
}

/// Whether the hooks are traced.
pub fn is_on() -> bool {
    !FILE.load(Ordering::Acquire).is_null()
}

/// Held by a hook from before its system call until its effect is noted; empty when nothing is traced.
pub struct Tracing(Option<SignalsBlocked>);

impl Drop for Tracing {
    fn drop(&mut self) {
        if self.0.is_some() {
            LOCKED.store(false, Ordering::Release);
        }
    }
}

/// Counts a hook and keeps the others out until the result is dropped. What the pager does for
/// itself is not traced.
#[inline]
pub fn begin(hook: Hook) -> Tracing {
    if !is_on() || mode::is_pager() {
        return Tracing(None);
    }
    let signals = SignalsBlocked::new();
    while LOCKED.swap(true, Ordering::Acquire) {
        process::yield_now();
    }
    count(hook);
    Tracing(Some(signals))
}

/// Counts a hook.
pub fn count(hook: Hook) {
    if is_on() {
        COUNTS[hook as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Rounds a length in bytes up to pages.
fn pages(len: usize) -> usize {
    len.next_multiple_of(outpage_core::units::PAGE_BYTES)
}

impl Tracing {
    fn note(&self, change: impl FnOnce(&mut Ranges)) {
        if self.0.is_some() {
            // SAFETY: this value holds the lock, so that this is the only reference.
            change(unsafe { &mut *SEEN.0.get() });
        }
    }

    /// `len` bytes were mapped at `addr`.
    pub fn mapped(&self, addr: usize, len: usize, anonymous: bool) {
        self.note(|seen| {
            let end = addr + pages(len);
            if anonymous {
                seen.insert(addr, end)
            } else {
                seen.remove(addr, end)
            }
        });
    }

    /// `len` bytes were unmapped at `addr`.
    pub fn unmapped(&self, addr: usize, len: usize) {
        self.note(|seen| seen.remove(addr, addr + pages(len)));
    }

    /// A mapping moved or changed its size; one of a file stays one.
    pub fn moved(&self, old: usize, old_len: usize, new: usize, new_len: usize, keeps_old: bool) {
        self.note(|seen| {
            let anonymous = seen.missing(old, old + 1) == 0;
            if !keeps_old {
                seen.remove(old, old + pages(old_len));
            }
            let end = new + pages(new_len);
            if anonymous {
                seen.insert(new, end)
            } else {
                seen.remove(new, end)
            }
        });
    }

    /// The break went from `before` to `after`.
    pub fn break_moved(&self, before: usize, after: usize) {
        let (before, after) = (pages(before), pages(after));
        self.note(|seen| {
            if after > before {
                seen.insert(before, after);
            } else {
                seen.remove(after, before);
            }
        });
    }
}

/// Calls `visit` with every private anonymous range that belongs to the program.
fn for_each_range(mut visit: impl FnMut(usize, usize)) {
    let mut buffer = vec![0; 16 << 10];
    let _ = maps::for_each(&mut buffer, |entry| {
        if entry.is_private_anonymous() && !own::contains(entry.start) {
            visit(entry.start, entry.end);
        }
        ControlFlow::Continue(())
    });
}

/// Switches tracing on, to the file that the variable names. Called by the constructor.
pub fn start(file: &core::ffi::CStr) {
    let copy = file.to_owned().into_raw();
    let mut found = Vec::new();
    for_each_range(|start, end| found.push((start, end)));
    FILE.store(copy, Ordering::Release);
    begin(Hook::Munmap).note(|seen| {
        found
            .iter()
            .for_each(|&(start, end)| seen.insert(start, end))
    });
}

/// Appends the line. Called when the program exits.
pub fn finish() {
    let file = FILE.load(Ordering::Acquire);
    if file.is_null() {
        return;
    }
    let mut line = format!(
        "pid={} name={} mode={:?}",
        process::pid(),
        own_name(),
        mode::current()
    );
    for (name, count) in NAMES.iter().zip(&COUNTS) {
        let _ = write!(line, " {name}={}", count.load(Ordering::Relaxed));
    }
    let (mut mapped, mut missed, mut kept) = (0, 0, 0);
    let mut gaps = Vec::new();
    begin(Hook::Munmap).note(|seen| {
        for_each_range(|start, end| {
            let missing = seen.missing(start, end);
            mapped += end - start;
            missed += missing;
            if missing > 0 {
                gaps.push((start, end, missing));
            }
        });
        kept = seen.0.iter().map(|(start, end)| end - start).sum();
    });
    // What was seen and is there is counted in both; the rest of what was seen has gone unseen.
    let stale: usize = kept + missed - mapped;
    let _ = write!(
        line,
        " mapped_bytes={mapped} missed_bytes={missed} stale_bytes={stale} counted_bytes={} reserved_bytes={}",
        budget::counted_bytes(),
        budget::reserved_bytes()
    );
    for (start, end, missing) in gaps.iter().take(8) {
        let _ = write!(line, " gap={start:x}-{end:x}:{missing}");
    }
    line.push('\n');
    // SAFETY: a C string that `start` leaked.
    let path = unsafe { core::ffi::CStr::from_ptr(file) };
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
    if let Ok(file) = fd::open(path, flags) {
        let _ = fd::write(file.number(), line.as_bytes());
    }
}

/// The program's name as the kernel shows it.
fn own_name() -> String {
    let mut text = [0; 32];
    let len = fd::open(c"/proc/self/comm", libc::O_RDONLY)
        .and_then(|file| fd::read(file.number(), &mut text))
        .unwrap_or(0);
    String::from_utf8_lossy(&text[..len])
        .trim()
        .replace(' ', "_")
}

#[cfg(test)]
mod tests;
