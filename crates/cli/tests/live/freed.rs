//! Memory that programs free by `MADV_FREE`: what was written again is exact to the byte, what was not is as it was or zeroes.

use super::{Case, Done, harness};

/// Where the kernel has swap of its own freed pages go at once, and there is nothing to see. Says so.
fn skipped_for_swap() -> bool {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let has_swap = swaps.lines().count() > 1;
    if has_swap {
        harness::skipped("the kernel has swap: freed pages go at once");
    }
    has_swap
}

/// `frees` in two threads, whose memory is twice the limit; with children that look and write too, and memory that moves.
fn frees(case: &Case, options: &[&str]) -> Done {
    let program = case.compiled("frees");
    let all = [&["--memory", "32M"], options].concat();
    let done = case.run(&all, &[&program, "32", "4", "2"]);
    done.paged_well();
    done
}

/// The kernel drops pages for the pager, and keeps those that were written again.
pub fn freed_pages_go_unless_written(case: &Case) {
    if skipped_for_swap() {
        return;
    }
    let done = frees(case, &[]);
    done.within_limit_and_duplicates();
    assert!(
        done.count("freed_drops") > 0 && done.count("freed_kept") > 0,
        "{}",
        done.stats
    );
}

/// The same where pages are copied. What is measured counts a page twice that parent and child have together.
pub fn freed_pages_go_where_pages_are_copied(case: &Case) {
    if skipped_for_swap() {
        return;
    }
    let done = frees(case, &[]);
    assert!(
        done.count("freed_drops") > 0 && done.count("freed_kept") > 0,
        "{}",
        done.stats
    );
}

/// As many go as there are, whoever names the victims.
pub fn freed_pages_go_in_their_turn(case: &Case) {
    if skipped_for_swap() {
        return;
    }
    for policy in ["nf", "pf:pages=8", "uf"] {
        let done = frees(case, &["--discard", policy]);
        assert!(done.count("freed_drops") > 0, "{policy}: {}", done.stats);
    }
}

/// Where no page is to be left to the kernel nothing stays.
pub fn freed_pages_go_at_once(case: &Case) {
    let done = frees(case, &[]);
    assert_eq!(done.count("freed_pages"), 0, "{}", done.stats);
}
