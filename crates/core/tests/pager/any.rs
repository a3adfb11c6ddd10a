//! Any interleaving of faults, answers, failures and changes of mind: nothing is lost, nobody
//! waits in vain, and the limit holds.

use outpage_core::contract::Body as Offered;
use outpage_core::contract::{Advice, Event};
use outpage_core::limits::FRAMES_MIN;
use outpage_core::units::PageRange;
use outpage_core::{pageout, readahead, reclaim, slots, tier};
use proptest::prelude::*;

use crate::body::{Body, OBJECT_PAGES, OBJECTS, THREADS, page};
use crate::plan::{Answers, Plan};

/// Pages of a span: object, first index, how many.
type Span = (u32, u64, u64);

#[derive(Clone, Debug)]
pub enum Step {
    /// One access; skipped while the thread waits.
    Touch(usize, u32, u64, bool),
    /// The thread does not wait any more.
    Leave(usize),
    /// Accesses one after the other, as far as they get.
    Sweep(usize, Span, bool),
    Answer(usize),
    AnswerAll,
    Discard(Span),
    Unmap(Span),
    Adopt(Span),
    Limit(usize),
    Tick,
    /// So many ticks that room is given up, if there is too much.
    Rest,
    Pin(Span, bool),
    Fork(bool),
    ChildrenGone,
    Discardable(Span),
    TakeBack(Span),
    Flush(Span),
    Free(Span),
    Advise(Advice, Span),
}

/// Longer than the patience of `slot_pool/spare.rs`, by several extents.
pub const RESTS: usize = 60;

fn range((object, start, pages): Span) -> PageRange {
    PageRange::new(page(object, start), pages.min(OBJECT_PAGES - start))
}

pub fn take(body: &mut Body, step: &Step) {
    match *step {
        Step::Touch(thread, object, index, write) => {
            if body.idle(thread) {
                body.touch(thread, page(object, index), write);
            }
        }
        Step::Leave(thread) => body.leave(thread),
        Step::Sweep(thread, span, write) => {
            for page in range(span).iter() {
                if !body.idle(thread) || !body.touch_and_wait(thread, page, write) {
                    return;
                }
            }
        }
        Step::Answer(count) => {
            for _ in 0..count.min(body.unanswered()) {
                if body.unanswered() > 0 {
                    body.answer_any();
                }
            }
        }
        Step::AnswerAll => body.settle(),
        Step::Discard(span) => body.drop_range(range(span), Event::Discard),
        Step::Unmap(span) => body.drop_range(range(span), Event::Unmap),
        Step::Adopt(span) => body.adopt(range(span)),
        Step::Limit(frames) => body.limit(frames),
        Step::Tick => body.tick(),
        Step::Rest => (0..RESTS).for_each(|_| body.tick()),
        Step::Pin(span, pinned) => body.pin(range(span), pinned),
        Step::Fork(in_child) => body.fork(in_child),
        Step::ChildrenGone => body.children_gone(),
        Step::Discardable(span) => body.mark(range(span)),
        Step::TakeBack(span) => body.take_back(range(span)),
        Step::Flush(span) => body.report(Event::Flush(range(span))),
        Step::Free(span) => body.free(range(span)),
        Step::Advise(advice, span) => body.report(Event::Advise(advice, range(span))),
    }
}

fn span(pages: u64) -> impl Strategy<Value = Span> {
    (0..OBJECTS, 0..OBJECT_PAGES, 1..=pages)
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        12 => (0..THREADS, 0..OBJECTS, 0..OBJECT_PAGES, any::<bool>())
            .prop_map(|(t, o, i, w)| Step::Touch(t, o, i, w)),
        2 => (0..THREADS).prop_map(Step::Leave),
        12 => (0..THREADS, span(OBJECT_PAGES), any::<bool>()).prop_map(|(t, s, w)| Step::Sweep(t, s, w)),
        10 => (1..20usize).prop_map(Step::Answer),
        2 => Just(Step::AnswerAll),
        2 => span(150).prop_map(Step::Discard),
        1 => span(OBJECT_PAGES).prop_map(Step::Unmap),
        1 => span(60).prop_map(Step::Adopt),
        1 => (FRAMES_MIN..2 * FRAMES_MIN).prop_map(Step::Limit),
        3 => Just(Step::Tick),
        1 => Just(Step::Rest),
        1 => (span(OBJECT_PAGES), any::<bool>()).prop_map(|(s, on)| Step::Pin(s, on)),
        1 => any::<bool>().prop_map(Step::Fork),
        1 => Just(Step::ChildrenGone),
        4 => span(OBJECT_PAGES).prop_map(Step::Discardable),
        3 => span(OBJECT_PAGES).prop_map(Step::TakeBack),
        1 => span(OBJECT_PAGES).prop_map(Step::Flush),
        4 => span(OBJECT_PAGES).prop_map(Step::Free),
        4 => (0..Advice::ALL.len(), span(OBJECT_PAGES)).prop_map(|(at, s)| Step::Advise(Advice::ALL[at], s)),
    ];
    prop::collection::vec(one, 1..60)
}

/// The discard policies, and `pf` with few pages.
const DISCARDS: &[&str] = &[
    "none",
    "nf",
    "pf",
    "pf:pages=3",
    "uf",
    "on-demand",
    "on-demand",
];

fn now_and_then(permille: u32) -> impl Strategy<Value = u32> {
    prop_oneof![2 => Just(0), 1 => 1..=permille]
}

/// The tier policies with a pool.
fn tiers() -> Vec<&'static str> {
    let offered = tier::offered(tier::Written::Plain);
    let pooling = offered.filter(|entry| !entry.codec.is_empty());
    pooling.map(|entry| entry.name).collect()
}

/// Reclaim policies, the default with more pages staged too.
fn reclaims() -> Vec<&'static str> {
    let names = reclaim::offered(Offered::default()).map(|entry| entry.name);
    let staged = ["second-chance:staged=333", "second-chance:staged=500"];
    names.chain(staged).collect()
}

pub fn plan() -> impl Strategy<Value = Plan> {
    let policies = (
        0..pageout::REGISTRY.len(),
        0..readahead::REGISTRY.len(),
        0..slots::REGISTRY.len(),
        0..reclaims().len(),
        prop::sample::select(DISCARDS),
    );
    let tier = prop_oneof![
        1 => Just("none".to_owned()),
        1 => (0..tiers().len(), 5..=90u32).prop_map(|(at, percent)| format!("{}:pool={percent}", tiers()[at])),
    ];
    let chunk = prop_oneof![4 => Just(16u32), 2 => 1..=64u32, 1 => Just(1024)];
    let sizes = (chunk, 1..=64u32, FRAMES_MIN..2 * FRAMES_MIN);
    let room = prop_oneof![3 => Just(1 << 14), 1 => 1..=600u32];
    let around = (
        prop_oneof![Just(1u32), Just(16)],
        prop_oneof![Just(0u32), Just(8)],
    );
    let answers = prop_oneof![
        Just(Answers::AtOnce),
        Just(Answers::TransfersLate),
        Just(Answers::Late)
    ];
    let failures = (
        prop_oneof![4 => now_and_then(200), 1 => Just(1000)],
        now_and_then(200),
        now_and_then(30),
        now_and_then(50),
    );
    (
        (policies, tier),
        sizes,
        room,
        around,
        answers,
        failures,
        any::<u64>(),
    )
        .prop_map(
            |((policies, tier), sizes, slots_max, around, answers, failures, seed)| Plan {
                tier,
                discard: policies.4,
                reclaim: reclaims()[policies.3],
                pageout: policies.0,
                readahead: policies.1,
                slots: policies.2,
                chunk: sizes.0,
                window: sizes.1,
                frames: sizes.2,
                slots_max,
                zero_around: around.0,
                rescue_around: around.1,
                answers,
                write_failures: failures.0,
                read_failures: failures.1,
                bad_slots: failures.2,
                refusals: failures.3,
                seed,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_nobody_waits_in_vain(plan in plan(), steps in steps()) {
        let mut body = Body::new(&plan);
        for step in &steps {
            take(&mut body, step);
        }
        body.settle();
        body.read_all();
    }
}
