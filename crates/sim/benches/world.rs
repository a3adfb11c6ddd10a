//! How fast the simulator is: touches, faults, whole programs, and that it is linear in each.
#![allow(missing_docs, reason = "criterion's macros")]

use criterion::{BenchmarkId, Criterion, Throughput};
use outpage_sim::programs::{SorParams, Spec};
use outpage_sim::world::speed::{alone, timed, timed_passes};
use outpage_sim::world::{Setup, World};

/// Touches of mapped pages. The first pass, which faults, is not timed.
fn resident(c: &mut Criterion) {
    let mut group = c.benchmark_group("resident touches");
    for pages in [10_000_u64, 100_000, 1_000_000] {
        group.throughput(Throughput::Elements(pages));
        group.bench_with_input(BenchmarkId::from_parameter(pages), &pages, |b, &pages| {
            b.iter_custom(|passes| {
                let (_, first) = timed_passes(pages * 3 / 2, pages, 1);
                timed_passes(pages * 3 / 2, pages, 1 + passes)
                    .1
                    .saturating_sub(first)
            });
        });
    }
    group.finish();
}

/// First touches, without paging; then a program twice as large as memory.
fn faults(c: &mut Criterion) {
    let mut group = c.benchmark_group("faults");
    for pages in [50_000_u64, 500_000] {
        group.throughput(Throughput::Elements(pages));
        group.bench_with_input(BenchmarkId::new("zero-fill", pages), &pages, |b, &pages| {
            b.iter_custom(|n| {
                (0..n)
                    .map(|_| timed_passes(pages * 3 / 2, pages, 1).1)
                    .sum()
            });
        });
        // A fault is one page read, one taken out of the program and written, and one released.
        let (id, setup) = (
            BenchmarkId::new("page by page", pages),
            alone(pages / 2, "none"),
        );
        group.bench_with_input(id, &pages, |b, &pages| {
            b.iter_custom(|passes| {
                let (_, first) = timed(&setup, pages, 1);
                timed(&setup, pages, 1 + passes).1.saturating_sub(first)
            });
        });
        group.bench_with_input(BenchmarkId::new("paging", pages), &pages, |b, &pages| {
            b.iter_custom(|n| (0..n).map(|_| timed_passes(pages / 2, pages, 1).1).sum());
        });
    }
    group.finish();
}

/// SOR in three quarters of its memory, by size and by number of programs that page at once.
fn programs(c: &mut Criterion) {
    let mut group = c.benchmark_group("SOR, three sweeps");
    group.sample_size(10);
    for (n, count) in [
        (1000_u64, 1_u64),
        (2000, 1),
        (4000, 1),
        (1000, 2),
        (1000, 4),
    ] {
        let sor = Spec::Sor(SorParams {
            n,
            sweeps: 3,
            ..SorParams::default()
        });
        let pages = n * n.div_ceil(512) * count;
        let mut setup = Setup::bsd("6.2", "moc", pages * 3 / 4, vec![sor; count as usize]);
        // Slices so short that none ends before the last begins.
        setup.quantum_ms = 1;
        let id = BenchmarkId::from_parameter(format!("{count} of {n} x {n}"));
        group.throughput(Throughput::Elements(pages));
        group.bench_with_input(id, &setup, |b, setup| {
            b.iter(|| {
                World::new(setup)
                    .expect("sound")
                    .run(&mut |_| {})
                    .expect("swap is large")
            });
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    resident(&mut criterion);
    faults(&mut criterion);
    programs(&mut criterion);
    criterion.final_summary();
}
