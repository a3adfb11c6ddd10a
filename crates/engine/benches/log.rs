//! What the pager's event log costs: entries told with and without one.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use outpage_core::contract::{
    Access, Action, ActionId, Event, Outcome, PageList, PageOutcome, Source, Waiter,
};
use outpage_core::page::ContentHash;
use outpage_core::pageout;
use outpage_core::pager::Pager;
use outpage_core::record::{Header, Recorder};
use outpage_core::units::{Nanos, ObjectId, PageNo, PageRange, SlotNo, SlotRange};
use outpage_engine::brain::Brain;

/// Faults in a round.
const FAULTS: u64 = 4096;
/// Entries that a fault on a paged-out page takes, with one victim: see [`fault`].
const ENTRIES: u64 = 9;
/// Pages of the program, 128 MiB.
const PAGES: u64 = 1 << 15;

fn header() -> Header<'static> {
    Header {
        reclaim: "second-chance",
        pageout: "packed",
        pageout_params: pageout::find("packed").expect("a policy").params(),
        readahead: "none",
        slots: "log",
        frames: 4096,
        measured: 4096,
        tier: "none",
        discard: "none",
        slots_max: 1 << 20,
        zero_around: 1,
        rescue_around: 0,
    }
}

/// Tells what one fault leads to: a page is read and mapped, another one leaves.
fn fault(recorder: &mut Recorder, out: &mut Vec<u8>, number: u64, random: u64) {
    let now = Nanos(number * 50_000 + random % 20_000);
    let page = |random: u64| PageNo::new(ObjectId(1), random % PAGES);
    let (read, victim) = (page(random >> 8), page(random >> 24));
    let hash = ContentHash([random as u32, (random >> 16) as u32, (random >> 32) as u32]);
    let id = |of: u64| ActionId((number * 3 + of) as u32 % 512);
    let one = PageRange::one;
    let slots = SlotRange::new(SlotNo((random >> 40) as u32 % (2 * PAGES as u32)), 1);
    let missing = Event::Fault {
        page: read,
        access: Access::Write,
        waiter: Waiter(7),
        source: Source(7),
        extent: PageRange::new(page(0), PAGES),
    };
    let mut event = |after, event: Event<'_>, out: &mut Vec<u8>| {
        recorder.event(Nanos(now.0 + after), &event, out);
    };
    event(0, missing, out);
    event(
        4_000,
        done(
            id(1),
            Outcome::Pages(&[PageOutcome::Detached { hash, zero: false }]),
        ),
        out,
    );
    event(
        30_000,
        done(id(0), Outcome::Pages(&[PageOutcome::Done])),
        out,
    );
    event(
        33_000,
        done(id(2), Outcome::Pages(&[PageOutcome::Done])),
        out,
    );
    let mut action = |action| recorder.action(&action, out);
    action(Action::PageIn {
        id: id(0),
        slots,
        pages: PageList::new(vec![read], vec![hash]),
        after: None,
    });
    action(Action::Detach {
        id: id(1),
        run: one(victim),
        absent_below: 0,
    });
    action(Action::Map {
        id: id(2),
        run: one(read),
        absent_below: 0,
    });
    action(Action::Wake {
        waiter: Waiter(7),
        page: read,
    });
    action(Action::Release {
        id: id(1),
        pages: PageList::new(vec![victim], Vec::new()),
        after: None,
    });
}

fn done(id: ActionId, outcome: Outcome<'_>) -> Event<'_> {
    Event::Done { id, outcome }
}

/// Faults on random pages, which step and jump more than any others.
fn encode(c: &mut Criterion) {
    let mut group = c.benchmark_group("log");
    group.throughput(Throughput::Elements(FAULTS * ENTRIES));
    let mut out = Vec::with_capacity(1 << 20);
    let mut recorder = Recorder::begin(&header(), &mut out);
    let mut state = 1u64;
    group.bench_function("entries", |b| {
        b.iter(|| {
            out.clear();
            for number in 0..FAULTS {
                // Knuth's MMIX generator.
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                fault(&mut recorder, &mut out, number, state >> 3);
            }
            black_box(out.len())
        });
    });
    group.finish();
}

/// An event and an action that is asked for and not there, which a pager answers at once: alone, and through
/// the door that has the log behind it.
fn off(c: &mut Criterion) {
    let pager = || Pager::new(header().setup().expect("policies of the registry"));
    let mut group = c.benchmark_group("log off");
    let mut alone = pager();
    group.bench_function("pager alone", |b| {
        b.iter(|| {
            alone.handle(Nanos(1), black_box(Event::Timer));
            black_box(alone.poll_action())
        });
    });
    let mut brain = Brain::new(pager());
    group.bench_function("with the door", |b| {
        b.iter(|| {
            brain.handle(Nanos(1), black_box(Event::Timer));
            black_box(brain.poll_action())
        });
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    encode(&mut criterion);
    off(&mut criterion);
    criterion.final_summary();
}
