//! Traces: the same again, and damage is found.

use outpage_core::contract::{Action, Event, Waiter};
use outpage_core::record::{
    Header, Logged, Reader, Recorder, Unequal, Unreadable, VERSION, Why, replay,
};
use outpage_core::slots;
use outpage_core::units::{Nanos, PageNo, PageRange};
use proptest::prelude::*;

use crate::any::{Step, plan, steps, take};
use crate::body::{Body, page};
use crate::plan::Plan;

fn traced(plan: &Plan, steps: &[Step]) -> Vec<u8> {
    let mut body = Body::new(plan);
    body.record();
    for step in steps {
        take(&mut body, step);
        // Not an event: what it does must not show.
        if body.random.happens(300) {
            body.pager.replenish();
        }
    }
    body.settle();
    body.trace()
}

fn replayed(bytes: &[u8]) -> Result<(u64, u64), Unequal> {
    let setup = Reader::new(bytes)?.header().setup();
    let done = replay(bytes, setup.expect("known policies"))?;
    Ok((done.events, done.actions))
}

/// A short run with a bit of everything.
fn small() -> Vec<u8> {
    let plan = Plan {
        slots: (slots::REGISTRY.iter())
            .position(|entry| entry.name == "log")
            .expect("it is one of them"),
        ..Plan::calm("mclustering", "stream", 256)
    };
    let sweep = |write| Step::Sweep(0, (1, 0, 400), write);
    let steps = [
        sweep(true),
        sweep(false),
        Step::Discard((1, 5, 9)),
        sweep(false),
        Step::Unmap((1, 0, 400)),
        Step::Rest,
        Step::Rest,
        sweep(true),
    ];
    traced(&plan, &steps)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_run_replays_to_the_same_bytes(
        plan in plan(),
        steps in steps(),
        damage in any::<prop::sample::Index>(),
        bits in 1..=255u8,
    ) {
        let bytes = traced(&plan, &steps);
        let header = Reader::new(&bytes).unwrap().header();
        let readahead = plan.readahead().to_string();
        prop_assert_eq!(header, plan.header(&readahead));
        let (events, actions) = replayed(&bytes).unwrap();
        prop_assert!(events >= actions / 1000);

        let at = damage.index(bytes.len());
        let mut damaged = bytes.clone();
        damaged[at] ^= bits;
        match replayed(&damaged) {
            Err(Unequal::Unreadable(found)) => prop_assert!(found.offset <= at),
            other => prop_assert!(false, "byte {} is damaged: {:?}", at, other),
        }
        match replayed(&bytes[..at]) {
            Err(Unequal::Unreadable(Unreadable { offset, why: Why::Truncated })) => {
                prop_assert!(offset <= at);
            }
            other => prop_assert!(false, "cut at {}: {:?}", at, other),
        }
    }
}

#[test]
fn entries_come_back_as_they_were_told() {
    let bytes = small();
    let mut reader = Reader::new(&bytes).unwrap();
    let mut copy = Vec::new();
    let mut recorder = Recorder::begin(&reader.header(), &mut copy);
    let mut shrunk = 0;
    while let Some(entry) = reader.next_entry().unwrap() {
        match entry {
            Logged::Event { now, event } => {
                recorder.event(now, &event, &mut copy);
            }
            Logged::Action(action) => {
                shrunk += u32::from(matches!(action, Action::Shrink { .. }));
                recorder.action(&action, &mut copy);
            }
        }
    }
    recorder.end(&mut copy);
    assert!(copy == bytes && shrunk > 0);
}

#[test]
fn a_pager_that_does_something_else_is_found_out() {
    let bytes = small();
    let mut other = Reader::new(&bytes).unwrap().header();
    other.readahead = "none";
    let found = replay(&bytes, other.setup().unwrap());
    let Err(Unequal::Diverged(divergence)) = found else {
        panic!("{found:?}");
    };
    assert!(divergence.expected.is_some() && divergence.got != divergence.expected);
    assert!(divergence.offset > 0 && divergence.offset < bytes.len());
}

#[test]
fn an_action_too_many_or_too_few_is_found_out() {
    let plan = Plan::calm("bsd", "none", 256);
    let trace = |actions: &[Action]| {
        let mut bytes = Vec::new();
        let mut recorder = Recorder::begin(&plan.header("none"), &mut bytes);
        recorder.event(Nanos(5), &Event::Tick, &mut bytes);
        for action in actions {
            recorder.action(action, &mut bytes);
        }
        recorder.end(&mut bytes);
        bytes
    };
    assert_eq!(replayed(&trace(&[])), Ok((1, 0)));
    let wake = Action::Wake {
        waiter: Waiter(1),
        page: page(0, 0),
    };
    let Err(Unequal::Diverged(divergence)) = replayed(&trace(std::slice::from_ref(&wake))) else {
        panic!("nobody is to be woken");
    };
    assert_eq!(divergence.expected, Some(wake));
    assert_eq!(divergence.got, None);
}

#[test]
fn what_is_no_trace_is_refused() {
    let refused = |bytes: &[u8]| Reader::new(bytes).err().map(|e| (e.offset, e.why));
    assert_eq!(refused(b""), Some((0, Why::Truncated)));
    assert_eq!(refused(b"OUTP"), Some((0, Why::Truncated)));
    assert_eq!(refused(b"#!/bin/sh\n"), Some((0, Why::NotATrace)));
    let mut bytes = small();
    for other in [VERSION - 2, VERSION - 1, VERSION + 1] {
        bytes[8] = other as u8;
        assert_eq!(refused(&bytes), Some((0, Why::Version(other))));
    }
    let mut bytes = small();
    let end = bytes.len();
    bytes.push(0);
    let found = replayed(&bytes).unwrap_err();
    let (offset, why) = (end, Why::Corrupt);
    assert_eq!(found, Unequal::Unreadable(Unreadable { offset, why }));
}

#[test]
fn a_range_without_an_end_is_refused() {
    let last = PageNo::from_raw(u64::MAX);
    let plan = Plan::calm("bsd", "none", 256);
    let header = plan.header("none");
    let before = PageNo::from_raw(u64::MAX - 1);
    for (range, whole) in [
        (PageRange::one(last), false),
        (PageRange::new(before, 2), false),
        (PageRange::one(before), true),
    ] {
        let mut bytes = Vec::new();
        let mut recorder = Recorder::begin(&header, &mut bytes);
        recorder.event(Nanos(1), &Event::Adopt(range), &mut bytes);
        recorder.end(&mut bytes);
        let found = replayed(&bytes);
        let offset = Reader::new(&bytes).expect("a header").offset();
        let why = Why::Corrupt;
        let refused = Unequal::Unreadable(Unreadable { offset, why });
        assert_eq!(found, if whole { Ok((1, 0)) } else { Err(refused) });
    }
}

#[test]
fn unknown_policies_and_sizes_give_no_setup() {
    let plan = Plan::calm("bsd", "none", 256);
    let header = plan.header("none");
    assert!(header.setup().is_some());
    let mut other = header;
    other.pageout = "later";
    assert!(other.setup().is_none());
    let mut other = header;
    other.frames = 1;
    assert!(other.setup().is_none());
    for readahead in ["later", "bsd:max=0", "bsd:windows=8", "asp:window=8,max=4"] {
        let other = Header {
            readahead,
            ..header
        };
        assert!(other.setup().is_none(), "{readahead}");
    }
}
