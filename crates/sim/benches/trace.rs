//! The rates of a trace: references a second, written and read.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use outpage_core::contract::Access;
use outpage_core::units::{Nanos, ObjectId, PageNo};
use outpage_sim::trace::{Header, Reader, Recorded, Reference, Writer};

/// References in each trace.
const REFERENCES: u64 = 1 << 20;
/// Pages of the programs, 256 MiB.
const PAGES: u64 = 1 << 16;

/// Sweeps over all pages, in rows of 64 with a write after each row: what a grid program does.
fn sweeps() -> Vec<Reference> {
    let reference = |at: u64| Reference {
        page: PageNo::new(ObjectId(1), at % PAGES),
        access: if at % 64 == 63 {
            Access::Write
        } else {
            Access::Read
        },
        gap: Nanos(1000),
    };
    (0..REFERENCES).map(reference).collect()
}

/// Pages without order, with gaps without order: nothing for runs or compression to find.
fn scattered() -> Vec<Reference> {
    let mut state = 1u64;
    let mut reference = |_| {
        // Knuth's MMIX generator.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Reference {
            page: PageNo::new(ObjectId(1), (state >> 40) % PAGES),
            access: if state >> 63 == 1 {
                Access::Write
            } else {
                Access::Read
            },
            gap: Nanos((state >> 20) % 1000),
        }
    };
    (0..REFERENCES).map(&mut reference).collect()
}

fn encode(references: &[Reference]) -> Vec<u8> {
    let header = Header {
        page_bytes: 4096,
        recorded: Recorded::Exact,
        program: "bench".to_owned(),
    };
    let mut writer = Writer::new(Vec::new(), &header).expect("the header fits");
    for &reference in references {
        writer.reference(reference).expect("memory takes all");
    }
    writer.finish().expect("memory takes all")
}

/// The sum keeps the decoder from being optimised away; every reference is visited.
fn decode(bytes: &[u8]) -> u64 {
    let reader = Reader::new(bytes).expect("a whole header");
    let runs = reader.map(|run| run.expect("a whole trace"));
    let pages = runs.flat_map(|run| run.references().map(|reference| reference.page.raw()));
    pages.fold(0, u64::wrapping_add)
}

/// Data references of a small real program, as lackey saw them.
fn recorded(criterion: &mut Criterion) {
    let bytes: &[u8] = include_bytes!("../tests/trace/data/sort.refs");
    let runs = Reader::new(bytes).expect("a whole header");
    let references: u64 = runs
        .map(|run| u64::from(run.expect("a whole trace").count))
        .sum();
    let mut group = criterion.benchmark_group("trace");
    group.throughput(Throughput::Elements(references));
    group.bench_function("decode sort", |bencher| {
        bencher.iter(|| decode(black_box(bytes)));
    });
    group.finish();
}

fn rates(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trace");
    group.throughput(Throughput::Elements(REFERENCES));
    group.sample_size(20);
    for (name, references) in [("sweeps", sweeps()), ("scattered", scattered())] {
        let bytes = encode(&references);
        eprintln!(
            "{name}: {:.5} bytes a reference",
            bytes.len() as f64 / REFERENCES as f64
        );
        group.bench_function(format!("decode {name}"), |bencher| {
            bencher.iter(|| decode(black_box(&bytes)));
        });
        group.bench_function(format!("encode {name}"), |bencher| {
            bencher.iter_batched_ref(|| (), |()| encode(&references), BatchSize::PerIteration);
        });
    }
    group.finish();
    recorded(criterion);
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    rates(&mut criterion);
    criterion.final_summary();
}
