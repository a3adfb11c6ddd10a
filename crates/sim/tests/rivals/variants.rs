//! LIRS and S3-FIFO as libCacheSim 0.3.5 has them: where it departs from the papers, in the
//! plainest way. When these agree with it, the departures named here explain the difference.

use std::collections::{HashMap, HashSet};

fn take(list: &mut Vec<u64>, page: u64) -> bool {
    let at = list.iter().position(|&other| other == page);
    at.map(|at| list.remove(at)).is_some()
}

/// Three departures from algorithm 1. Until the first eviction, pages that find S full enter M. S
/// is emptied whenever M is not above its share, even when S is below its own, and M gives up no
/// page for one that moves in from S. A page leaves G when it is referenced, before a frame is freed
/// for it.
pub fn s3_fifo(string: &[u64], frames: usize) -> u64 {
    let small_size = frames / 10;
    let ghost_size = frames * 9 / 10;
    let (mut small, mut main, mut ghost) = (Vec::new(), Vec::new(), Vec::new());
    let mut count = HashMap::new();
    let (mut misses, mut evicted) = (0, false);
    for &page in string {
        if let Some(count) = count.get_mut(&page) {
            *count = 3.min(*count + 1);
            continue;
        }
        misses += 1;
        let remembered = take(&mut ghost, page);
        while small.len() + main.len() == frames {
            evicted = true;
            if main.len() > frames - small_size || small.is_empty() {
                evict_main(&mut main, &mut count);
                continue;
            }
            while !small.is_empty() {
                let tail = small.remove(0);
                if count[&tail] >= 2 {
                    count.insert(tail, 0);
                    main.push(tail);
                    continue;
                }
                count.remove(&tail);
                ghost.push(tail);
                if ghost.len() > ghost_size {
                    ghost.remove(0);
                }
                break;
            }
        }
        let filling = !evicted && small.len() >= small_size;
        if remembered || filling {
            main.push(page);
        } else {
            small.push(page);
        }
        count.insert(page, 0);
    }
    misses
}

fn evict_main(main: &mut Vec<u64>, count: &mut HashMap<u64, u32>) {
    loop {
        let tail = main.remove(0);
        match count.get_mut(&tail) {
            Some(0) | None => {
                count.remove(&tail);
                return;
            }
            Some(count) => *count -= 1,
        }
        main.push(tail);
    }
}

/// LIRS with at most `stack_max` pages in S: beyond that, of the pages that are not resident, the one
/// that left Q first is forgotten.
pub fn lirs(string: &[u64], frames: usize, stack_max: usize) -> u64 {
    let hirs = (frames / 100).max(1);
    let (mut s, mut q, mut left): (Vec<u64>, Vec<u64>, Vec<u64>) =
        (Vec::new(), Vec::new(), Vec::new());
    let mut lir = HashSet::new();
    let mut misses = 0;
    for &page in string {
        let in_q = q.contains(&page);
        let is_lir = lir.contains(&page);
        misses += u64::from(!in_q && !is_lir);
        let in_s = take(&mut s, page);
        s.push(page);
        if is_lir || (!in_q && lir.len() < frames - hirs) {
            lir.insert(page);
        } else {
            if !in_q && q.len() == hirs {
                let victim = q.remove(0);
                if s.contains(&victim) {
                    left.push(victim);
                }
            }
            take(&mut q, page);
            take(&mut left, page);
            if in_s {
                lir.insert(page);
                let bottom = s.remove(0);
                lir.remove(&bottom);
                q.push(bottom);
            } else {
                q.push(page);
            }
        }
        while s.first().is_some_and(|bottom| !lir.contains(bottom)) {
            let bottom = s.remove(0);
            take(&mut left, bottom);
        }
        while s.len() > stack_max && !left.is_empty() {
            let forgotten = left.remove(0);
            take(&mut s, forgotten);
        }
    }
    misses
}
