//! What compressing a page takes on this machine.

use std::time::Instant;

use outpage_core::units::PAGE_BYTES;
use outpage_sim::world::CodecCosts;
use outpage_store::compressed::{Codec, Memory, Pool};

use crate::workload::data::Data;
use crate::workload::rng::mix;

/// Pages that go in and out: 32 MiB, more than a core's caches hold, as pages that leave have not been used for long.
const PAGES: usize = 8192;
/// Pages that one look at the clock covers, which takes less than a hundredth of compressing them.
const BATCH: usize = 64;

/// A page of memory.
type Page = [u8; PAGE_BYTES];

/// Memory of a pool that keeps what it has.
struct Plain(Vec<u8>);

impl Memory for Plain {
    fn capacity(&self) -> usize {
        self.0.len() / PAGE_BYTES
    }

    fn bytes(&self, start: usize, end: usize) -> &[u8] {
        &self.0[start..end]
    }

    fn bytes_mut(&mut self, start: usize, end: usize) -> &mut [u8] {
        &mut self.0[start..end]
    }

    fn give_back(&mut self, _first: usize, _count: usize) {}
}

/// Pages as `data` has them, the first `PAGES`.
fn pages(data: Data) -> Vec<Page> {
    let page = |index: usize| {
        let looks = data.looks(index, mix(index as u64));
        let mut page = [0; PAGE_BYTES];
        for (at, word) in page.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&looks.word(at).to_ne_bytes());
        }
        page
    };
    (0..PAGES).map(page).collect()
}

/// Nanoseconds a page, the median of batches, of `each` of `pages`.
fn median(pages: &[Page], mut each: impl FnMut(usize, &Page)) -> u32 {
    let mut taken: Vec<u64> = Vec::with_capacity(pages.len().div_ceil(BATCH));
    for (batch, part) in pages.chunks_exact(BATCH).enumerate() {
        let began = Instant::now();
        for (at, page) in part.iter().enumerate() {
            each(batch * BATCH + at, page);
        }
        taken.push(began.elapsed().as_nanos() as u64 / BATCH as u64);
    }
    taken.sort_unstable();
    taken[taken.len() / 2].clamp(1, u64::from(u32::MAX)) as u32
}

/// Nanoseconds of a page into the pool of `codec`, of one that it refuses, and of one out again.
fn of(codec: Codec, heap: &[Page], random: &[Page]) -> (u32, u32, u32) {
    let mut pool = Pool::new(Plain(vec![0; 2 * PAGES * PAGE_BYTES]), PAGES as u32, codec);
    pool.set_limit(2 * PAGES);
    // Once before, so that neither its memory nor its tables are touched for the first time.
    let fits = |(slot, page): &(usize, &Page)| pool.put(*slot as u32, page).is_ok();
    let fitting = heap.iter().enumerate().filter(fits);
    let fitting: Vec<Page> = fitting.map(|(_, page)| *page).collect();
    let compress = median(&fitting, |slot, page| {
        pool.put(slot as u32, page).expect("it was kept before");
    });
    let mut page = [0; PAGE_BYTES];
    let decompress = median(&fitting, |slot, _| {
        pool.take(slot as u32, &mut page).expect("it is there");
    });
    let unfit = median(random, |slot, page| {
        let refused = pool.put(slot as u32, page);
        assert!(refused.is_err(), "random bytes");
    });
    (compress, unfit, decompress)
}

/// Measures: pages as the heaps of five programs have them, and random ones for what is refused.
pub fn measure() -> CodecCosts {
    let (heap, random) = (pages(Data::Heap), pages(Data::Incompressible));
    let (compress_ns, unfit_ns, decompress_ns) = of(Codec::Lz4, &heap, &random);
    let (zstd_compress_ns, _, zstd_decompress_ns) = of(Codec::Zstd, &heap, &random);
    CodecCosts {
        compress_ns,
        unfit_ns,
        decompress_ns,
        zstd_compress_ns,
        zstd_decompress_ns,
    }
}

/// The line of the table's end that says so.
pub fn text(costs: &CodecCosts) -> String {
    let us = |ns: u32| format!("{:.2}", f64::from(ns) / 1e3);
    format!(
        "LZ4 takes {} us to compress a page and {} us to decompress one, Zstandard {} and {}; a page that does not compress is \
         refused in {} us\n",
        us(costs.compress_ns),
        us(costs.decompress_ns),
        us(costs.zstd_compress_ns),
        us(costs.zstd_decompress_ns),
        us(costs.unfit_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cost_is_measured_of_pages_that_come_back() {
        let costs = measure();
        let all = [
            costs.compress_ns,
            costs.unfit_ns,
            costs.decompress_ns,
            costs.zstd_compress_ns,
            costs.zstd_decompress_ns,
        ];
        assert!(all.iter().all(|&ns| ns > 0));
        let heap = pages(Data::Heap);
        let fits = |page: &&Page| lz4_flex::block::compress(&page[..]).len() < 3500;
        assert!(heap.iter().filter(fits).count() > PAGES * 9 / 10);
    }
}
