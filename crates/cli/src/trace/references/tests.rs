use super::*;
use outpage_core::contract::{PageList, Source, Waiter};
use outpage_core::units::{SlotNo, SlotRange};

fn page(index: u64) -> PageNo {
    PageNo::from_raw(index)
}

fn fault(gatherer: &mut Gatherer, now: u64, at: u64, access: Access) {
    let extent = PageRange::one(page(at));
    gatherer.event(
        Nanos(now),
        Event::Fault {
            page: page(at),
            access,
            waiter: Waiter(1),
            source: Source(1),
            extent,
        },
    );
    gatherer.action(
        Nanos(now + 5),
        &Action::Wake {
            waiter: Waiter(1),
            page: page(at),
        },
    );
}

fn detach(gatherer: &mut Gatherer, at: u64, word: u32) {
    let (id, run) = (ActionId(9), PageRange::one(page(at)));
    let detach = Action::Detach {
        id,
        run,
        absent_below: 0,
    };
    gatherer.action(Nanos(0), &detach);
    let outcome = PageOutcome::Detached {
        hash: ContentHash([word; 3]),
        zero: word == 0,
    };
    gatherer.event(
        Nanos(0),
        Event::Done {
            id,
            outcome: Outcome::Pages(&[outcome]),
        },
    );
}

#[test]
fn a_page_whose_content_changed_was_written() {
    let mut g = Gatherer {
        frames: 2048,
        ..Gatherer::default()
    };
    fault(&mut g, 100, 1, Access::Read);
    fault(&mut g, 200, 2, Access::Read);
    detach(&mut g, 1, 7);
    detach(&mut g, 2, 0);
    fault(&mut g, 300, 1, Access::Read);
    detach(&mut g, 1, 7);
    let accesses: Vec<Access> = g.references.iter().map(|r| r.access).collect();
    assert_eq!(accesses, [Access::Write, Access::Read, Access::Read]);
    assert_eq!(g.references[2].gap, Nanos(95));
}

#[test]
fn a_page_that_came_along_counts_when_it_was_written() {
    let mut g = Gatherer {
        frames: 2048,
        ..Gatherer::default()
    };
    fault(&mut g, 100, 1, Access::Write);
    let id = ActionId(3);
    let zero_fill = Action::ZeroFill {
        id,
        run: PageRange::new(page(1), 3),
        after: None,
    };
    g.action(Nanos(100), &zero_fill);
    g.event(
        Nanos(110),
        Event::Done {
            id,
            outcome: Outcome::Pages(&[PageOutcome::Done; 3]),
        },
    );
    fault(&mut g, 200, 50, Access::Write);
    detach(&mut g, 2, 4);
    detach(&mut g, 3, 0);
    let recording = g.finish(64);
    let pages: Vec<u64> = recording
        .runs
        .iter()
        .flat_map(|r| r.references())
        .map(|r| r.page.raw())
        .collect();
    assert_eq!(pages, [1, 2, 50]);
    assert_eq!(recording.references, 3);
}

#[test]
fn what_pages_come_to_is_what_they_last_came_to() {
    let mut g = Gatherer::default();
    let id = ActionId(4);
    let kept = |bytes| PageOutcome::Kept { bytes };
    let unfit = PageOutcome::Refused(Refusal::Unfit);
    let no_room = PageOutcome::Refused(Refusal::NoRoom);
    for outcomes in [[kept(9), kept(700)], [kept(800), unfit], [no_room; 2]] {
        let pages = PageList::new(vec![page(1), page(2)], vec![ContentHash::default(); 2]);
        g.action(
            Nanos(0),
            &Action::Compress {
                id,
                slots: SlotRange::new(SlotNo::POOL_START, 2),
                pages,
                grant: 5,
                after: None,
            },
        );
        let outcome = Outcome::Pages(&outcomes);
        g.event(Nanos(0), Event::Done { id, outcome });
    }
    detach(&mut g, 5, 0);
    detach(&mut g, 6, 1);
    let sizes = g.finish(64).sizes;
    let sizes: Vec<_> = sizes.iter().map(|(page, n)| (page.raw(), n)).collect();
    assert_eq!(sizes, [(1, 800), (2, 4096), (5, 0)]);
}

#[test]
fn a_forked_child_has_what_it_found_before_its_own() {
    let mut g = Gatherer {
        frames: 4096,
        limit: 2048,
        ..Gatherer::default()
    };
    // 1 and 3 left with contents, 2 without, 4 is mapped at the fork.
    for at in 1..=4 {
        fault(&mut g, 100 * at, at, Access::Write);
    }
    for (at, word) in [(3, 7), (1, 7), (2, 0)] {
        detach(&mut g, at, word);
    }
    g.event(Nanos(1000), Event::Forked);
    for at in [3, 1, 2, 9] {
        fault(&mut g, 1000 + 10 * at, at, Access::Read);
    }
    detach(&mut g, 4, 5);
    fault(&mut g, 2000, 4, Access::Read);
    detach(&mut g, 3, 7);
    detach(&mut g, 1, 8);
    let recording = g.finish(64);
    let references = recording.runs.iter().flat_map(|run| run.references());
    let told: Vec<_> = references
        .map(|r| (r.page.raw(), r.access == Access::Write))
        .collect();
    let found = [(1, true), (3, true), (4, true)];
    let own = [(3, false), (1, true), (2, false), (9, false), (4, false)];
    assert_eq!(told, [&found[..], &own[..]].concat());
    assert_eq!((recording.inherited, recording.references), (3, 8));
    assert_eq!((recording.forks, recording.began), (1, Nanos(1030)));
    // The resident set is the child's, not its parent's.
    let resident = |frames| {
        let limits = Limits::new(frames, 64);
        (limits.frames - limits.staged_low) as u64
    };
    assert_eq!(recording.resident, resident(2048));
}

#[test]
fn neighbours_become_runs_of_the_same_total_time() {
    let mut runs = Vec::new();
    for (at, gap) in [(4, 100), (5, 200), (6, 300), (9, 50), (10, 2_000_000)] {
        append(
            &mut runs,
            Reference {
                page: page(at),
                access: Access::Read,
                gap: Nanos(gap),
            },
        );
    }
    let shape: Vec<_> = runs
        .iter()
        .map(|r| (r.start.raw(), r.count, r.gap.0))
        .collect();
    assert_eq!(shape, [(4, 3, 200), (9, 1, 50), (10, 1, 2_000_000)]);
}
