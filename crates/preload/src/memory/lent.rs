//! Shared memory that the home of the run keeps (`--shared tree`), as the hooks map it.

use outpage_core::units::PAGE_BYTES;
use outpage_engine::Engine;

use super::{TOO_LARGE_BYTES, none, run};
use crate::mode::{self, Path};
use crate::order::Order;
use crate::{files, lifecycle, raw};

/// What the home of the run keeps at `addr` may be there still.
pub(super) fn not_replaced(addr: usize, len: usize) {
    // What is not aligned the kernel refuses before it looks at anything.
    if addr.is_multiple_of(PAGE_BYTES) && len > 0 && (len as u64) < TOO_LARGE_BYTES {
        let again = |engine: &'static Engine| {
            let _order = Order::take();
            engine.not_replaced(addr, len);
            0
        };
        run(none, || 0, again);
    }
}

/// mmap(2) of shared anonymous memory that the home of the run is to keep.
pub(super) fn lend(engine: &Engine, [addr, len]: [usize; 2], prot: i32, flags: i32) -> isize {
    // Populating here would bring in pages that nobody counts.
    let populates = flags & (libc::MAP_POPULATE | libc::MAP_LOCKED);
    let flags = flags & !populates;
    // SAFETY: the program's own call, but for pages that it asks for at once.
    let at = engine.placing(|| unsafe { raw::mmap(addr, len, prot, flags, -1, 0) });
    if at >= 0 && !engine.lend(at as usize, len, prot) && populates != 0 {
        // SAFETY: locks the memory that was just mapped, or touches it. What is refused is not told of a mapping either.
        unsafe {
            let range = [at as usize, len, MADV_POPULATE_WRITE, 0, 0, 0];
            match populates & libc::MAP_LOCKED {
                0 => raw::call(libc::SYS_madvise, range),
                _ => raw::call(libc::SYS_mlock, range),
            };
        }
    }
    at
}

/// From include/uapi/asm-generic/mman-common.h (Linux 5.14).
const MADV_POPULATE_WRITE: usize = 23;

/// mmap(2) of a file that the home of the run keeps. What takes the place of something else is served before it is there: somebody may touch it at once.
pub(super) fn map_kept(
    engine: &Engine,
    id: u64,
    [addr, len]: [usize; 2],
    [prot, flags]: [i32; 2],
    (fd, off): (i32, usize),
) -> isize {
    let replaces = flags & libc::MAP_FIXED != 0 && flags & libc::MAP_FIXED_NOREPLACE == 0;
    let hint = if replaces { 0 } else { addr };
    let plain = flags & !(libc::MAP_POPULATE | libc::MAP_LOCKED | libc::MAP_FIXED);
    // SAFETY: maps where nothing is.
    let map = || unsafe { raw::mmap(hint, len, prot, plain, fd, off) };
    let Some(at) = engine.mmap_kept(len, id, map) else {
        // One that may not be written cannot be served (userfaultfd(2)): the file is the kernel's from now on.
        files::touched(fd);
        // SAFETY: the program's own call.
        return engine.placing(|| unsafe { raw::mmap(addr, len, prot, flags, fd, off) });
    };
    if at < 0 || !replaces {
        return at;
    }
    let at = at as usize;
    let moves = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let moved = engine.mremap(at, len, len, moves, addr);
    if moved < 0 {
        engine.munmap(at, len);
    }
    moved
}

/// Starts the pager however little there is to page: what is lent needs one.
pub(super) fn have_pager() {
    match mode::enter() {
        Path::Direct(at_work) if !at_work.is_nested() => drop(at_work),
        _ => return,
    }
    lifecycle::start_pager();
}
