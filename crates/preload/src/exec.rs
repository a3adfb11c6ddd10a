//! What a new program must find in its environment to be managed as well.
//!
//! Every execution by libc ends in `execve` or `execveat`, that of `posix_spawn` and `system`
//! included; an environment without the shim gets it back: in `LD_PRELOAD` before what stands
//! there, and the `OUTPAGE_` variables unless another limit is set. `ASAN_OPTIONS` get what lets a
//! program with AddressSanitizer start with a library preloaded.
//!
//! The caller may be a child of vfork, on its parent's memory: nothing is allocated on a heap, no
//! lock is taken, and nothing static is written.

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::checked::Reader;
use crate::{raw, trace};

/// An array of strings that ends with a null pointer.
pub type Strings = *const *const c_char;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const PREFIX: &[u8] = b"OUTPAGE_";
const LIMIT: &[u8] = b"OUTPAGE_MEMORY=";
const ASAN: &[u8] = b"ASAN_OPTIONS=";
/// Without it the runtime ends the program: it wants to be the first library.
const ANY_ORDER: &[u8] = b"verify_asan_link_order=0";
/// The option's name: whoever set it knows why.
const ORDER: &[u8] = b"verify_asan_link_order=";
const OWN_ASAN: &CStr = c"ASAN_OPTIONS=verify_asan_link_order=0";

/// `OUTPAGE_` variables that are carried along: more than there are.
const CARRIED_MAX: usize = 32;
/// Environment entries that are copied on the stack; posix_spawn gives its child 32 KiB of it.
const ON_STACK: usize = 512;
/// Longest `LD_PRELOAD` that is built on the stack, in bytes.
const TEXT_ON_STACK: usize = 1024;

/// The variables of this process's own start, in memory of the shim's.
static CARRIED: [AtomicPtr<c_char>; CARRIED_MAX] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; CARRIED_MAX];
static CARRIED_COUNT: AtomicUsize = AtomicUsize::new(0);
/// `LD_PRELOAD=` and the shim's path.
static OWN_PRELOAD: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Bytes of the string at `text`.
///
/// # Safety
/// A C string lies there, valid as long as the result is used.
unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: passed on from the caller.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// Remembers the environment of the program's start, and `path`, where the shim was loaded from.
///
/// Copies are leaked on the shim's heap: programs may overwrite the originals.
///
/// # Safety
/// `envp` is an environment.
pub unsafe fn remember(envp: Strings, path: &CStr) {
    let leak = |text: &[u8]| {
        let mut copy = Vec::with_capacity(text.len() + 1);
        copy.extend_from_slice(text);
        copy.push(0);
        copy.leak().as_mut_ptr().cast::<c_char>()
    };
    OWN_PRELOAD.store(
        leak(&[PRELOAD, path.to_bytes()].concat()),
        Ordering::Release,
    );
    let mut count = 0;
    // SAFETY: passed on from the caller.
    for entry in unsafe { entries(envp) } {
        // SAFETY: an entry of the environment.
        let text = unsafe { bytes(entry) };
        if text.starts_with(PREFIX) && count < CARRIED_MAX {
            CARRIED[count].store(leak(text), Ordering::Release);
            count += 1;
        }
    }
    CARRIED_COUNT.store(count, Ordering::Release);
}

/// The entries of an environment, which may be null.
///
/// # Safety
/// `envp` is null or ends with a null pointer.
pub unsafe fn entries(envp: Strings) -> impl Iterator<Item = *const c_char> {
    let mut at = envp;
    core::iter::from_fn(move || {
        if at.is_null() {
            return None;
        }
        // SAFETY: `at` has not passed the null pointer that ends the array.
        let entry = unsafe { *at };
        if entry.is_null() {
            return None;
        }
        // SAFETY: an entry, so that another follows.
        at = unsafe { at.add(1) };
        Some(entry)
    })
}

/// What an environment has of what the shim needs.
struct Found {
    count: usize,
    /// The `LD_PRELOAD` entry, and whether the shim is in it.
    preload: *const c_char,
    has_shim: bool,
    has_limit: bool,
    /// The `ASAN_OPTIONS` entry, and whether it says something about the order of libraries.
    asan: *const c_char,
    has_order: bool,
}

/// `None` where the array or an entry cannot be read to its end.
fn search(envp: Strings, shim: &[u8]) -> Option<Found> {
    let mut found = Found {
        count: 0,
        preload: core::ptr::null(),
        has_shim: false,
        has_limit: false,
        asan: core::ptr::null(),
        has_order: false,
    };
    let (mut list, mut texts) = (Reader::default(), Reader::default());
    let mut at = envp as usize;
    while at != 0 {
        let entry: *const c_char = list.value(at)?;
        if entry.is_null() {
            break;
        }
        at += size_of::<usize>();
        // SAFETY: the program's own environment, which it leaves alone during its call.
        let text = unsafe { texts.string(entry) }?;
        found.count += 1;
        found.has_limit |= text.starts_with(LIMIT);
        if text.starts_with(ASAN) && found.asan.is_null() {
            found.asan = entry;
            found.has_order = text.windows(ORDER.len()).any(|part| part == ORDER);
        }
        // The loader takes the first of several.
        if let Some(list) = text
            .strip_prefix(PRELOAD)
            .filter(|_| found.preload.is_null())
        {
            found.preload = entry;
            found.has_shim = list
                .split(|&b| b == b':' || b == b' ')
                .any(|part| part == shim);
        }
    }
    Some(found)
}

/// What [`build`] needs: entries of the array, and bytes of the text.
///
/// # Safety
/// `found` is of an environment that is still there.
unsafe fn room(found: &Found, own: &[u8]) -> (usize, usize) {
    let mut list_bytes = 0;
    if !found.preload.is_null() && !found.has_shim {
        // SAFETY: an entry of the environment.
        list_bytes += own.len() + unsafe { bytes(found.preload) }.len() - PRELOAD.len() + 2;
    }
    if !found.asan.is_null() && !found.has_order {
        // SAFETY: an entry of the environment.
        list_bytes += unsafe { bytes(found.asan) }.len() + ANY_ORDER.len() + 2;
    }
    (found.count + CARRIED_MAX + 3, list_bytes)
}

/// Makes `call` with an environment that has what `envp` lacks; `envp` itself if it lacks nothing.
pub fn with_environment(envp: Strings, call: impl Fn(Strings) -> isize) -> isize {
    trace::count(trace::Hook::Exec);
    let own = OWN_PRELOAD.load(Ordering::Acquire);
    // A bad pointer, here or in the list, fails in the kernel: EFAULT.
    if own.is_null() {
        return call(envp);
    }
    // SAFETY: set by `remember`, and never freed.
    let own_text = unsafe { bytes(own) };
    let Some(found) = search(envp, &own_text[PRELOAD.len()..]) else {
        return call(envp);
    };
    if found.has_shim && found.has_limit && found.has_order {
        return call(envp);
    }
    // SAFETY: found in the environment above.
    let (pointers, list_bytes) = unsafe { room(&found, own_text) };
    if pointers <= ON_STACK && list_bytes <= TEXT_ON_STACK {
        let mut array = [MaybeUninit::<*const c_char>::uninit(); ON_STACK];
        let mut text = [MaybeUninit::<u8>::uninit(); TEXT_ON_STACK];
        // SAFETY: both are large enough, as compared above.
        unsafe {
            build(
                envp,
                &found,
                array.as_mut_ptr().cast(),
                text.as_mut_ptr().cast(),
            )
        };
        return call(array.as_ptr().cast());
    }
    let len = pointers * size_of::<usize>() + list_bytes;
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a fresh mapping replaces nothing.
    let space = unsafe { raw::mmap(0, len, prot, flags, -1, 0) };
    if space < 0 {
        return space;
    }
    let array = space as usize as *mut *const c_char;
    // SAFETY: the mapping has room for the array and the text behind it.
    unsafe { build(envp, &found, array, array.add(pointers).cast()) };
    let result = call(array);
    // Reached only if the execution failed; a child of vfork that goes on leaves this to its parent.
    // SAFETY: the mapping made above.
    unsafe { raw::munmap(space as usize, len) };
    result
}

/// Writes `pieces` and a null byte to `at`; returns the byte behind.
///
/// # Safety
/// There is room for them.
unsafe fn join(mut at: *mut u8, pieces: [&[u8]; 3]) -> *mut u8 {
    for piece in pieces.into_iter().chain([&b"\0"[..]]) {
        // SAFETY: passed on from the caller.
        unsafe {
            at.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
            at = at.add(piece.len());
        }
    }
    at
}

/// Writes the completed environment to `array`, and a joined `LD_PRELOAD` and `ASAN_OPTIONS` to `text`.
///
/// # Safety
/// Both have room for what `found` of `envp` calls for.
unsafe fn build(envp: Strings, found: &Found, array: *mut *const c_char, mut text: *mut u8) {
    let own = OWN_PRELOAD.load(Ordering::Acquire);
    let mut preload = found.preload;
    if preload.is_null() {
        preload = own;
    } else if !found.has_shim {
        preload = text.cast();
        // SAFETY: two C strings; the caller made room for both.
        unsafe {
            let (own, theirs) = (bytes(own), &bytes(found.preload)[PRELOAD.len()..]);
            text = join(text, [own, b":", theirs]);
        }
    }
    let mut asan = found.asan;
    if asan.is_null() {
        asan = OWN_ASAN.as_ptr();
    } else if !found.has_order {
        asan = text.cast();
        // SAFETY: a C string; the caller made room for it.
        unsafe { join(text, [bytes(found.asan), b":", ANY_ORDER]) };
    }
    let mut at = array;
    let mut push = |entry: *const c_char| {
        // SAFETY: at most `found.count` entries, those carried, `LD_PRELOAD`, `ASAN_OPTIONS` and the end.
        unsafe {
            at.write(entry);
            at = at.add(1);
        }
    };
    push(preload);
    push(asan);
    // SAFETY: passed on from the caller.
    unsafe { entries(envp) }
        .filter(|&entry| entry != found.preload && entry != found.asan)
        .for_each(&mut push);
    if !found.has_limit {
        for entry in &CARRIED[..CARRIED_COUNT.load(Ordering::Acquire)] {
            push(entry.load(Ordering::Acquire));
        }
    }
    push(core::ptr::null());
}

#[cfg(test)]
mod tests;
