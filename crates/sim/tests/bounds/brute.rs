//! The exact optimum by trying every victim.

use std::collections::HashMap;

/// What is to be as little as possible.
#[derive(Clone, Copy)]
pub struct Cost {
    /// A reference that finds its page not resident.
    pub miss: u64,
    /// Of those, one to a page that was written before.
    pub page_in: u64,
    /// A dirty page that leaves.
    pub page_out: u64,
}

/// The least cost of `references` in `frames` frames over all policies: every state of memory that
/// can be reached, with the least cost of reaching it. Pages leave when a frame is needed; leaving
/// earlier saves nothing.
pub fn least(references: &[(u8, bool)], frames: usize, cost: Cost) -> u64 {
    // Bits of resident pages, bits of dirty ones.
    let mut states = HashMap::from([((0u32, 0u32), 0u64)]);
    let mut written = 0u32;
    for &(page, wrote) in references {
        let bit = 1u32 << page;
        let dirtied = if wrote { bit } else { 0 };
        let mut next: HashMap<(u32, u32), u64> = HashMap::new();
        let mut reach = |resident: u32, dirty: u32, spent: u64| {
            let known = next
                .entry((resident | bit, dirty | dirtied))
                .or_insert(spent);
            *known = spent.min(*known);
        };
        for (&(resident, dirty), &spent) in &states {
            if resident & bit != 0 {
                reach(resident, dirty, spent);
                continue;
            }
            let read = if written & bit != 0 { cost.page_in } else { 0 };
            let spent = spent + cost.miss + read;
            if (resident.count_ones() as usize) < frames {
                reach(resident, dirty, spent);
                continue;
            }
            for victim in (0..32)
                .map(|at| 1u32 << at)
                .filter(|victim| resident & victim != 0)
            {
                let write = if dirty & victim != 0 {
                    cost.page_out
                } else {
                    0
                };
                reach(resident & !victim, dirty & !victim, spent + write);
            }
        }
        states = next;
        written |= dirtied;
    }
    states.into_values().min().unwrap_or(0)
}
