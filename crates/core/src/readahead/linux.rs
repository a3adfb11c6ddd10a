//! The kernel's rule for the size of a read-ahead window, which both its ways share.

/// What the kernel's counters of hits start with.
pub(super) const FIRST_HITS: u32 = 4;

/// The size of the next window (Linux 3.14 and later, `mm/swap_state.c:__swapin_nr_pages`).
///
/// Two more than the hits, rounded up to a power of two from 4 on. Without hits: two where the
/// fault lies next to the one before, else one. At most `max`, at least half the last window.
pub(super) fn size(previous: Option<u64>, at: u64, hits: u32, max: u32, last: u32) -> u32 {
    let wanted = if hits == 0 {
        let near = previous.is_some_and(|previous| previous.abs_diff(at) == 1);
        if near { 2 } else { 1 }
    } else {
        (hits.saturating_add(2)).next_power_of_two().max(4)
    };
    wanted.min(max).max(last / 2)
}
