//! The table of managed ranges, with few mappings and with as many as a process may have (vm.max_map_count, 65,530 by default).
#![allow(missing_docs, reason = "criterion's macros")]

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use outpage_core::units::PAGE_BYTES;
use outpage_engine::regions::{Region, Regions, libc_prot};

const RW: i32 = libc_prot::READ | libc_prot::WRITE;
const SIZES: [usize; 3] = [64, 4096, 65_000];
/// Address of the first mapping; they are of four pages, with four between.
const BASE: usize = 0x10_0000_0000;
const STEP: usize = 8 * PAGE_BYTES;
const LEN: usize = 4 * PAGE_BYTES;
/// Where memory is moved to.
const ELSEWHERE: usize = 0x5000_0000_0000;

fn start(i: usize) -> usize {
    BASE + i * STEP
}

fn of(count: usize) -> Regions {
    let mut regions = Regions::new();
    for i in 0..count {
        regions.add(start(i), start(i) + LEN, RW, false);
    }
    regions
}

/// Moves the `i`th mapping, in another order than the first one had.
fn moved(regions: &mut Regions, i: usize, count: usize, out: &mut Vec<Region>) {
    regions.remove(start(i), start(i) + LEN, out);
    let to = ELSEWHERE + (i * 7919 % count) * STEP;
    regions.insert(Region {
        start: to,
        end: to + LEN,
        ..out[0]
    });
}

/// Of `count` mappings every other one was moved, and something else is where it was.
fn half_moved(count: usize) -> Regions {
    let (mut regions, mut out) = (of(count), Vec::new());
    for i in (0..count).step_by(2) {
        moved(&mut regions, i, count, &mut out);
        regions.add(start(i), start(i) + LEN, RW, false);
    }
    regions
}

fn scattered(i: &mut usize, count: usize) -> usize {
    *i = i.wrapping_add(0x9E37_79B1);
    *i % count
}

fn lookups(c: &mut Criterion) {
    for (name, make) in [
        ("", of as fn(usize) -> Regions),
        (" after moves", half_moved),
    ] {
        let mut group = c.benchmark_group(format!("lookup{name}"));
        for count in SIZES {
            let regions = make(count);
            let pages: Vec<_> = regions.all().map(|r| r.first).collect();
            let mut i = 0;
            group.bench_function(BenchmarkId::new("by address", count), |b| {
                b.iter(|| regions.at(start(scattered(&mut i, count)) + PAGE_BYTES));
            });
            group.bench_function(BenchmarkId::new("by page", count), |b| {
                b.iter(|| regions.address(pages[scattered(&mut i, pages.len())]));
            });
        }
    }
}

fn changes(c: &mut Criterion) {
    for (name, make) in [
        ("", of as fn(usize) -> Regions),
        (" after moves", half_moved),
    ] {
        let mut group = c.benchmark_group(format!("change{name}"));
        for count in SIZES {
            let (mut regions, mut out) = (make(count), Vec::new());
            let mut i = 0;
            group.bench_function(BenchmarkId::new("remove and add", count), |b| {
                b.iter(|| {
                    let start = start(scattered(&mut i, count));
                    regions.remove(start, start + LEN, &mut out);
                    regions.add(start, start + LEN, RW, false)
                });
            });
            group.bench_function(BenchmarkId::new("change in the midst", count), |b| {
                b.iter(|| {
                    let page = start(scattered(&mut i, count)) + PAGE_BYTES;
                    for prot in [libc_prot::READ, RW] {
                        regions.update(page, page + PAGE_BYTES, &mut out, |r| r.prot = prot);
                    }
                });
            });
        }
    }
    let mut group = c.benchmark_group("move");
    group.sample_size(10);
    group.bench_function("each of 65000 once", |b| {
        b.iter_batched(
            || of(65_000),
            |mut regions| {
                let mut out = Vec::new();
                (0..65_000).for_each(|i| moved(&mut regions, i, 65_000, &mut out));
                regions
            },
            BatchSize::PerIteration,
        );
    });
}

criterion_group!(benches, lookups, changes);
criterion_main!(benches);
