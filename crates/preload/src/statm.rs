//! What the kernel counts of this process's memory, in `/proc/thread-self/statm` (proc(5); that of a first thread that has ended says 0): 2 us, and no allocation.

use outpage_core::units::PAGE_BYTES;
use outpage_sys::fd;

/// Bytes of private writable mappings and stacks, files included, by the kernel's own count.
///
/// The sixth field, "data + stack".
pub fn private_writable_bytes() -> Option<u64> {
    let [data] = statm([5])?;
    Some(data * PAGE_BYTES as u64)
}

/// Anonymous pages that this process has in RAM; 0 where that cannot be told.
///
/// The second field, less the third, which is of files and shared memory.
pub fn touched_pages() -> u64 {
    statm([1, 2]).map_or(0, |[resident, shared]| resident.saturating_sub(shared))
}

/// Fields, in pages, by their places from 0 on.
fn statm<const N: usize>(places: [usize; N]) -> Option<[u64; N]> {
    let mut text = [0u8; 128];
    let file = fd::open(c"/proc/thread-self/statm", libc::O_RDONLY).ok()?;
    let len = fd::read(file.number(), &mut text).ok()?;
    let mut fields = [0; N];
    for (field, place) in fields.iter_mut().zip(places) {
        let text = text[..len].split(|&byte| byte == b' ').nth(place)?;
        *field = core::str::from_utf8(text).ok()?.trim().parse().ok()?;
    }
    Some(fields)
}
