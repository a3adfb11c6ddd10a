//! A policy that the pager drives, over a body with bits: what a page held is told by its modified
//! bit, and a daemon is refused where there are no bits.

use outpage_core::contract::{Access, Action, Body, Event, Outcome, PageOutcome, Source, Waiter};
use outpage_core::page::State;
use outpage_core::pager::{Pager, Setup};
use outpage_core::settings::Values;
use outpage_core::units::{Nanos, PageRange, SlotNo, SlotRange};
use outpage_core::{pageout, readahead, reclaim, slots};

use crate::machine::page;

const PAGES: u64 = 1500;

fn pager() -> Pager {
    let (out, ahead) = (
        pageout::find("packed").unwrap(),
        readahead::find("stream").unwrap(),
    );
    let body = Body { bits: true };
    let mut pager = Pager::new(Setup {
        reclaim: reclaim::Choice::parse("second-chance", body)
            .unwrap()
            .build(),
        pageout: (out.build)(out.params()),
        readahead: readahead::Choice::ungoverned(ahead).build(),
        slots: slots::find("log").unwrap().build,
        tier: None,
        discard: None,
        frames: 1000,
        slots_max: 1 << 14,
        zero_around: 16,
        rescue_around: 8,
        body,
    });
    pager.handle(Nanos(0), Event::Grown(SlotRange::new(SlotNo(0), 1 << 14)));
    pager.handle(Nanos(0), Event::Full);
    drive(&mut pager);
    pager
}

fn drive(pager: &mut Pager) {
    while let Some(action) = pager.poll_action() {
        let (id, outcomes) = match action {
            Action::ZeroFill { id, run, .. } | Action::Map { id, run, .. } => {
                (id, run.iter().map(|_| PageOutcome::Done).collect())
            }
            Action::Detach { id, run, .. } => {
                (id, run.iter().map(|_| PageOutcome::Unhashed).collect())
            }
            Action::PageIn { id, .. } | Action::PageOut { id, .. } | Action::Release { id, .. } => {
                (id, Vec::new())
            }
            _ => continue,
        };
        let outcome = if outcomes.is_empty() {
            Outcome::Done
        } else {
            Outcome::Pages(&outcomes)
        };
        pager.handle(Nanos(1), Event::Done { id, outcome });
    }
}

/// Touches all pages in order; returns how many faults that took.
fn sweep(pager: &mut Pager, access: Access) -> u64 {
    let (mut at, mut faults) = (0, 0);
    while at < PAGES {
        at += pager.touch(PageRange::new(page(1, at), PAGES - at), access);
        if at < PAGES {
            faults += 1;
            let event = Event::Fault {
                page: page(1, at),
                access,
                waiter: Waiter(0),
                source: Source(0),
                extent: PageRange::new(page(1, 0), PAGES),
            };
            pager.handle(Nanos(1), event);
            drive(pager);
            assert_eq!(pager.state(page(1, at)), State::Resident);
        }
    }
    faults
}

#[test]
fn pages_that_were_read_only_are_never_written() {
    let mut pager = pager();
    sweep(&mut pager, Access::Read);
    sweep(&mut pager, Access::Read);
    let stats = *pager.stats();
    assert_eq!(stats.page_outs, 0);
    assert!(stats.found_zero > 500);
    sweep(&mut pager, Access::Write);
    sweep(&mut pager, Access::Write);
    let written = pager.stats().page_outs;
    assert!(written >= PAGES, "{written}");
    // Pages that come back and are only read leave clean, without a write.
    sweep(&mut pager, Access::Read);
    let written = pager.stats().page_outs;
    sweep(&mut pager, Access::Read);
    assert_eq!(pager.stats().page_outs, written);
    assert!(pager.stats().found_clean > 1000);
}

#[test]
fn resident_pages_are_mapped_and_writable_and_no_others() {
    let mut pager = pager();
    for _ in 0..3 {
        sweep(&mut pager, Access::Write);
        for index in 0..PAGES {
            let resident = pager.state(page(1, index)) == State::Resident;
            let place = pager.place_of(page(1, index));
            let bits = place.map(|p| (p.mapped, p.writable));
            assert_eq!(
                bits.unwrap_or((false, false)),
                (resident, resident),
                "{index}"
            );
        }
    }
}

#[test]
fn a_daemon_is_refused_by_name_where_there_are_no_bits() {
    let refused = reclaim::Choice::parse("bsd-6.2", Body::default());
    let names = |body| {
        let names = reclaim::offered(body).map(|entry| entry.name);
        names.collect::<Vec<_>>().join(", ")
    };
    let offered = names(Body::default());
    assert!(offered.contains("second-chance") && !offered.contains("bsd"));
    assert_eq!(
        refused.err().unwrap().to_string(),
        format!(
            "reclaim policy bsd-6.2 needs referenced bits, which cannot be had here; there are: {offered}"
        )
    );
    let unknown = reclaim::Choice::parse("bsd-9", Body { bits: true })
        .err()
        .unwrap();
    assert_eq!(
        unknown.to_string(),
        format!(
            "there is no reclaim policy 'bsd-9'; there are: {}",
            names(Body { bits: true })
        )
    );
    for entry in reclaim::REGISTRY {
        let policy = (entry.build)(&Values::defaults(entry.settings));
        assert_eq!(policy.needs_referenced(), entry.needs_referenced);
    }
}

#[test]
#[should_panic(expected = "needs a body with bits")]
fn a_pager_with_a_daemon_and_no_bits_is_not_made() {
    let (out, ahead) = (
        pageout::find("bsd").unwrap(),
        readahead::find("bsd").unwrap(),
    );
    let _ = Pager::new(Setup {
        reclaim: reclaim::Choice::parse("bsd-8.2", Body { bits: true })
            .unwrap()
            .build(),
        pageout: (out.build)(out.params()),
        readahead: readahead::Choice::ungoverned(ahead).build(),
        slots: slots::find("blist").unwrap().build,
        tier: None,
        discard: None,
        frames: 1000,
        slots_max: 1 << 10,
        zero_around: 1,
        rescue_around: 0,
        body: Body::default(),
    });
}
