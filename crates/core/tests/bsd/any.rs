//! Random programs under the daemon: no illegal transition (the page table aborts on one), never
//! more frames than there are, no page lost, whatever the order of answers.

use outpage_core::contract::{Access, Event};
use outpage_core::reclaim::bsd::{
    AtLimit, Buffered, CleanPage, LimitUnit, Params, Release, SecondLook, ShortageUnit,
};
use outpage_core::slots::ShrinkRule;
use outpage_core::units::PageRange;
use outpage_core::{pageout, readahead, slots};
use proptest::prelude::*;

use crate::machine::{Machine, Plan, page};

const OBJECTS: u32 = 3;
const PAGES: u64 = 600;

#[derive(Clone, Debug)]
enum Step {
    /// One touch that need not end.
    Begin(u32, u64, bool),
    /// Touches one after the other, to their ends.
    Sweep(u32, u64, u64, bool),
    /// A transfer is answered, well or not.
    Answer(usize, bool),
    AnswerAll,
    Hold(bool, bool),
    Pass(u64),
    Drop(u32, u64, u64, bool),
    Limit(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let object = 1..=OBJECTS;
    prop_oneof![
        6 => (object.clone(), 0..PAGES, any::<bool>()).prop_map(|(o, i, w)| Step::Begin(o, i, w)),
        6 => (object.clone(), 0..PAGES, 1..300u64, any::<bool>())
            .prop_map(|(o, i, n, w)| Step::Sweep(o, i, n, w)),
        6 => (any::<usize>(), prop::bool::weighted(0.95)).prop_map(|(at, w)| Step::Answer(at, w)),
        2 => Just(Step::AnswerAll),
        2 => any::<(bool, bool)>().prop_map(|(w, r)| Step::Hold(w, r)),
        2 => (0..6_000_000_000u64).prop_map(Step::Pass),
        1 => (object, 0..PAGES, 1..100u64, any::<bool>())
            .prop_map(|(o, i, n, u)| Step::Drop(o, i, n, u)),
        1 => (300..700usize).prop_map(Step::Limit),
    ]
}

fn params() -> impl Strategy<Value = Params> {
    let release = prop_oneof![Just(Release::V6_2), Just(Release::V8_2)];
    (release, any::<[bool; 6]>(), 0..3usize, 1..5usize).prop_map(
        |(release, on, unit, writes_max)| {
            let kernel = Params::new(release);
            Params {
                limit_unit: [LimitUnit::Cluster, LimitUnit::Flush][usize::from(on[0])],
                shortage_unit: [
                    ShortageUnit::Cluster,
                    ShortageUnit::Flush,
                    ShortageUnit::Page,
                ][unit],
                second_look: [SecondLook::FirstPass, SecondLook::Always][usize::from(on[1])],
                at_limit: [AtLimit::GoOn, AtLimit::Stop][usize::from(on[2])],
                clean: [CleanPage::Cached, CleanPage::Freed][usize::from(on[3])],
                buffered: [Buffered::Busy, Buffered::Revalidated][usize::from(on[4])],
                shrink: [ShrinkRule::Halve, ShrinkRule::ByOne][usize::from(on[5])],
                writes_max,
                ..kernel
            }
        },
    )
}

fn take(machine: &mut Machine, step: &Step) {
    let access = |write: bool| if write { Access::Write } else { Access::Read };
    match *step {
        Step::Begin(object, index, write) => {
            if machine.waiting.len() < 8 {
                machine.begin(page(object, index), access(write));
            }
        }
        Step::Sweep(object, index, count, write) => {
            for index in index..PAGES.min(index + count) {
                machine.touch(page(object, index), access(write));
            }
        }
        Step::Answer(at, well) => {
            if !machine.held.is_empty() {
                machine.answer(at % machine.held.len(), well);
            }
        }
        Step::AnswerAll => machine.answer_all(),
        Step::Hold(writes, reads) => (machine.hold_writes, machine.hold_reads) = (writes, reads),
        Step::Pass(nanos) => machine.pass(nanos),
        Step::Drop(object, index, count, unmap) => {
            let range = PageRange::new(page(object, index), count);
            while machine.pager.busy(range) && !machine.held.is_empty() {
                machine.answer(0, true);
            }
            machine.forget(range);
            machine.event(if unmap {
                Event::Unmap(range)
            } else {
                Event::Discard(range)
            });
        }
        Step::Limit(frames) => {
            let frames = frames.max(machine.pager.frames_used());
            machine.event(Event::Limit(frames));
        }
    }
    machine.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nothing_is_lost_and_the_limit_holds(
        params in params(),
        pageout in 0..pageout::REGISTRY.len(),
        readahead in 0..readahead::REGISTRY.len(),
        allocator in 0..slots::REGISTRY.len(),
        slots in prop_oneof![Just(400u32), Just(1500), Just(8000)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let plan = Plan {
            params,
            pageout: pageout::REGISTRY[pageout].name,
            readahead: readahead::REGISTRY[readahead].name,
            allocator: slots::REGISTRY[allocator].name,
            slots,
            ..Plan::new(params.release, 500)
        };
        let mut machine = plan.start();
        machine.lenient = true;
        for step in &steps {
            take(&mut machine, step);
        }
        (machine.hold_writes, machine.hold_reads) = (false, false);
        machine.answer_all();
        machine.check();
        // Whoever still waits gets its page once there is memory enough.
        machine.event(Event::Limit(10_000));
        for _ in 0..20 {
            machine.pass(500_000_000);
        }
        prop_assert!(machine.waiting.is_empty(), "{:?}", machine.waiting);
        let pages: Vec<_> = machine.truth.keys().copied().collect();
        machine.read(pages);
        machine.check();
    }
}
