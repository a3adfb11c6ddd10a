//! Memory of the program and its libraries: data segments, and what the loader may take away again.

use core::ffi::{c_int, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, Ordering};

use outpage_core::units::PAGE_BYTES;
use outpage_sys::maps::{self, Kind};
use outpage_sys::own::{self, Fork};

use crate::raw;

/// Smallest data segment that is made anonymous; smaller ones are part of the stated overhead.
const SEGMENT_BYTES_MIN: usize = 1 << 20;

/// Where a program's addresses end, in bytes: 47 bits, but for whoever asks for more.
const ADDRESSES_END: usize = 1 << 47;

/// Address ranges, half-open.
type Ranges = Vec<(usize, usize)>;

/// Loaded objects.
#[derive(Default)]
struct Loaded {
    /// The span of each.
    spans: Ranges,
    /// Whether one of them may have a data segment of [`SEGMENT_BYTES_MIN`].
    large_data: bool,
}

/// What was loaded before the program began: never unloaded.
static AT_START: AtomicPtr<Loaded> = AtomicPtr::new(core::ptr::null_mut());

/// Remembers what is loaded now. Called by the constructor.
pub fn remember() {
    let loaded = Box::new(loaded_now());
    AT_START.store(Box::into_raw(loaded), Ordering::Release);
}

fn remembered() -> Option<&'static Loaded> {
    // SAFETY: null, or set once by `remember` and never freed.
    unsafe { AT_START.load(Ordering::Acquire).as_ref() }
}

fn at_start() -> &'static [(usize, usize)] {
    remembered().map_or(&[], |loaded| &loaded.spans)
}

/// All loaded objects. Takes the loader's lock: for the constructor only.
fn loaded_now() -> Loaded {
    extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> c_int {
        // SAFETY: the loader's record, and the value passed below.
        let (info, out) = unsafe { (&*info, &mut *out.cast::<Loaded>()) };
        // SAFETY: the loader says that `dlpi_phnum` headers lie there.
        let headers =
            unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
        let loads = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD);
        // Of a segment's first and last page parts may belong to others.
        let data = |h: &libc::Elf64_Phdr| h.p_flags & libc::PF_W != 0;
        out.large_data |= loads.clone().any(|header| {
            data(header) && header.p_filesz as usize + 2 * PAGE_BYTES > SEGMENT_BYTES_MIN
        });
        let spans = loads.map(|h| (h.p_vaddr as usize, (h.p_vaddr + h.p_memsz) as usize));
        if let Some((start, end)) = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) {
            let base = info.dlpi_addr as usize;
            out.spans.push((
                page_down(base + start),
                (base + end).next_multiple_of(PAGE_BYTES),
            ));
        }
        0
    }
    let mut out = Loaded::default();
    // SAFETY: the callback matches what it is given.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut out).cast()) };
    out
}

fn page_down(address: usize) -> usize {
    address & !(PAGE_BYTES - 1)
}

fn contains(ranges: &[(usize, usize)], address: usize) -> bool {
    ranges
        .iter()
        .any(|&(start, end)| (start..end).contains(&address))
}

/// Runs `adopt` while libraries loaded since the start pass for the pager's own memory.
///
/// The loader maps and unmaps them with system calls of its own, which no hook sees, so nothing in
/// them may be managed: their .bss is anonymous and looks as if it could. Afterwards other memory
/// may lie there, so they are taken off the list again.
pub fn without_later<R>(adopt: impl FnOnce() -> R) -> R {
    let mut spans = loaded_later();
    // A full list would be one of two thousand libraries.
    spans.retain(|&(start, end)| own::add(start, end, Fork::Inherited).is_ok());
    let result = adopt();
    spans.iter().for_each(|&(start, _)| own::remove(start));
    result
}

/// Spans of libraries loaded since the start.
fn loaded_later() -> Ranges {
    let mut out = Ranges::new();
    let mut buffer = vec![0; 16 << 10];
    let _ = maps::for_each(&mut buffer, |entry| {
        let first = entry.kind() == Kind::File && entry.offset == 0;
        if first
            && !contains(at_start(), entry.start)
            && let Some(bytes) = elf_span_bytes(entry.start)
        {
            out.push((entry.start, entry.start + bytes));
        }
        ControlFlow::Continue(())
    });
    out
}

/// Length of the library mapped at `start`, .bss included; `None` if there is none.
///
/// A program maps other ELF files as well, and damaged ones: what the loader would not load passes for no library, lest the
/// memory behind it pass for one. Read through the kernel: another thread may be unloading it.
fn elf_span_bytes(start: usize) -> Option<usize> {
    /// Program headers looked at; libraries have about ten.
    const HEADERS_MAX: usize = 32;
    // SAFETY: plain numbers, for which all zeroes is a valid value.
    let mut header: libc::Elf64_Ehdr = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    let mut headers: [libc::Elf64_Phdr; HEADERS_MAX] = unsafe { core::mem::zeroed() };
    let known = read_own(start, &mut header) && header.e_ident[..4] == *b"\x7fELF";
    let table = start.checked_add(header.e_phoff as usize)?;
    if !known || header.e_type != libc::ET_DYN || !read_own(table, &mut headers) {
        return None;
    }
    let count = HEADERS_MAX.min(header.e_phnum.into());
    let bytes = span_bytes(&headers[..count])?;
    (start.checked_add(bytes)? <= ADDRESSES_END).then_some(bytes)
}

/// Bytes from the first page of what `headers` have loaded to its last; `None` if that is nothing, or no range.
fn span_bytes(headers: &[libc::Elf64_Phdr]) -> Option<usize> {
    let (mut low, mut high) = (usize::MAX, 0);
    for load in headers.iter().filter(|h| h.p_type == libc::PT_LOAD) {
        let start = load.p_vaddr as usize;
        low = low.min(page_down(start));
        high = high.max(start.checked_add(load.p_memsz as usize)?);
    }
    let bytes = high
        .checked_next_multiple_of(PAGE_BYTES)?
        .checked_sub(low)?;
    (bytes > 0).then_some(bytes)
}

/// Copies the value at `address` of this process's memory; `false` if it is not (wholly) there.
fn read_own<T>(address: usize, to: &mut T) -> bool {
    let iov = |base: usize| libc::iovec {
        iov_base: base as *mut c_void,
        iov_len: size_of::<T>(),
    };
    let (local, remote) = (iov(core::ptr::from_mut(to) as usize), iov(address));
    // SAFETY: takes nothing.
    let pid = unsafe { raw::call(libc::SYS_getpid, [0; 6]) } as usize;
    let (local_at, remote_at) = ((&raw const local) as usize, (&raw const remote) as usize);
    let args = [pid, local_at, 1, remote_at, 1, 0];
    // SAFETY: the kernel writes at most the size of the value into it.
    unsafe { raw::call(libc::SYS_process_vm_readv, args) == size_of::<T>() as isize }
}

/// Replaces large writable data segments by anonymous copies, which can be managed.
///
/// Only for a process with one thread whose program has not begun: between copying and replacing,
/// nobody may write. The list of mappings is read only if there can be one: few programs have any, and all
/// pay for the look.
pub fn make_data_anonymous() {
    if !remembered().is_some_and(|loaded| loaded.large_data) {
        return;
    }
    let mut segments = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    let _ = maps::for_each(&mut buffer, |entry| {
        let private = entry.kind() == Kind::File && !entry.shared;
        let data = entry.prot == libc::PROT_READ | libc::PROT_WRITE && private;
        if data && entry.len() >= SEGMENT_BYTES_MIN && contains(at_start(), entry.start) {
            segments.push((entry.start, entry.end));
        }
        ControlFlow::Continue(())
    });
    for (start, end) in segments {
        replace_by_copy(start, end - start);
    }
}

/// Replaces `len` bytes at `start`; leaves them as they are if the kernel refuses.
fn replace_by_copy(start: usize, len: usize) {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping replaces nothing.
    let copy = unsafe { raw::mmap(0, len, prot, flags, -1, 0) };
    if copy < 0 {
        return;
    }
    for offset in (0..len).step_by(PAGE_BYTES) {
        // SAFETY: page-aligned, within the segment, which nobody writes now.
        let from = unsafe { &*((start + offset) as *const [u64; PAGE_BYTES / 8]) };
        // Zero pages of the copy need no frame.
        if from.iter().any(|&word| word != 0) {
            // SAFETY: the same page of the copy, which is ours.
            unsafe { *((copy as usize + offset) as *mut [u64; PAGE_BYTES / 8]) = *from };
        }
    }
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // SAFETY: the copy equals the segment, so that nobody sees the exchange; it is one step.
    let moved = unsafe { raw::call(libc::SYS_mremap, [copy as usize, len, len, flags, start, 0]) };
    if moved < 0 {
        // SAFETY: the copy is still ours.
        unsafe { raw::munmap(copy as usize, len) };
    }
}

#[cfg(test)]
mod tests;
