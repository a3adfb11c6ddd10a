//! What regions cost: `figures regions | held | gib | touches | heap | alone | one | four`.
//!
//! `regions` makes and drops 100,000 regions one after the other, `held` has all of them at once, both beside plain mappings. `gib` touches each page of 1 GiB for the
//! first time, within the limit, beside a plain mapping. `touches` touches pages of a region of twice the limit in no order, of which most are read, and then again and
//! again most pages that the limit holds, of which most are staged when they are; `heap` does so with the heap, to be run under
//! `outpage run --memory 16M`. `one` and `four` have four threads do it in four regions, of one pager and of four, beside one thread alone;
//! `alone` is that thread.
#![forbid(unsafe_code)]

use std::time::Instant;

use outpage::{Error, PAGE_BYTES, Pager};
use outpage_sys::raw::Errno;
use outpage_sys::{libc, map};

const LIMIT: u64 = 16 << 20;
const WORDS: usize = 2 * LIMIT as usize / 8;
const A_PAGE: usize = PAGE_BYTES / 8;
const TOUCHES: usize = 20_000;
const REGIONS: u32 = 100_000;
const REGION_BYTES: usize = 1 << 16;
const GIB: usize = 1 << 30;
/// A touch that took longer than this waited for its page: one that finds it takes a tenth.
const FAULT_NS: u128 = 1000;

/// Fills `words`, then touches pages at random: the nanoseconds of each touch that waited.
fn touch(words: &mut [u64], touches: usize) -> Vec<u128> {
    for (i, word) in words.iter_mut().enumerate() {
        *word = (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    let mut random = 0x1234_5678_9ABC_DEF1_u64;
    let mut waits = Vec::with_capacity(touches);
    for _ in 0..touches {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let page = random as usize % (words.len() / A_PAGE);
        let began = Instant::now();
        words[page * A_PAGE] += 1;
        let took = began.elapsed().as_nanos();
        if took > FAULT_NS {
            waits.push(took);
        }
    }
    waits.sort_unstable();
    waits
}

/// Of the pages that the limit holds these parts are touched again and again, and of the others one for so many of them, as `outpage bench faults` does it.
const HOT: (usize, usize) = (3, 4);
const COLD_PART: usize = 32;
/// Passes over the hot pages, of which the first are not timed.
const PASSES: usize = 64;
const WARM_UP: usize = 16;

/// Touches hot pages in an order that is none, and a few others before each pass: the nanoseconds of each touch that waited.
fn pass_again(words: &mut [u64]) -> Vec<u128> {
    let pages = words.len() / A_PAGE;
    let hot = LIMIT as usize / PAGE_BYTES * HOT.0 / HOT.1;
    let mut cold = (hot..pages).cycle();
    let mut waits = Vec::with_capacity(TOUCHES);
    for pass in 0..PASSES {
        for page in cold.by_ref().take(hot / COLD_PART) {
            words[page * A_PAGE] += 1;
        }
        for page in (0..hot).map(|n| n.wrapping_mul(2_654_435_761) % hot) {
            let began = Instant::now();
            words[page * A_PAGE] += 1;
            let took = began.elapsed().as_nanos();
            if took > FAULT_NS && pass >= WARM_UP {
                waits.push(took);
            }
        }
    }
    waits.sort_unstable();
    waits
}

fn tell(what: &str, words: &mut [u64]) {
    let most_read = touch(words, TOUCHES);
    for (kind, waits) in [
        ("in no order", most_read),
        ("again and again", pass_again(words)),
    ] {
        let at = |part: usize| waits.get(waits.len() * part / 100).copied().unwrap_or(0) as f64;
        println!(
            "{what}: {} touches {kind} waited; {:.1} us at the 10th percentile, {:.1} at the 50th, {:.1} at the 90th",
            waits.len(),
            at(10) / 1e3,
            at(50) / 1e3,
            at(90) / 1e3
        );
    }
}

fn threads(pagers: &[Pager]) -> Result<f64, Error> {
    let began = Instant::now();
    std::thread::scope(|threads| {
        let work = |pager: &Pager| -> Result<(), Error> {
            touch(&mut pager.zeros(WORDS)?, TOUCHES / 4);
            Ok(())
        };
        let all: Vec<_> = (pagers
            .iter()
            .map(|pager| threads.spawn(move || work(pager))))
        .collect();
        all.into_iter()
            .try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    Ok(began.elapsed().as_secs_f64())
}

/// Seconds.
fn took(act: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let began = Instant::now();
    act()?;
    Ok(began.elapsed().as_secs_f64())
}

/// A mapping as a region is one, without a pager: made and dropped.
fn plain(bytes: usize) -> Result<(), Error> {
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    let refused = |error: Errno| Error::Os("map memory", error.number());
    let start = map::mmap(0, bytes, prot, flags, -1, 0).map_err(refused)?;
    map::munmap(start, bytes).map_err(refused)
}

/// Seconds for the first touch of each page.
fn first_touches(bytes: &mut [u8]) -> f64 {
    let began = Instant::now();
    bytes
        .iter_mut()
        .step_by(PAGE_BYTES)
        .for_each(|byte| *byte = 1);
    began.elapsed().as_secs_f64()
}

fn regions() -> Result<(), Error> {
    let pager = Pager::new(LIMIT)?;
    let each = |seconds: f64| seconds * 1e6 / f64::from(REGIONS);
    let of_pager =
        took(|| (0..REGIONS).try_for_each(|_| pager.zeros::<u8>(REGION_BYTES).map(drop)))?;
    let of_kernel = took(|| (0..REGIONS).try_for_each(|_| plain(REGION_BYTES)))?;
    println!(
        "{:.1} us for a region, {:.1} for a plain mapping",
        each(of_pager),
        each(of_kernel)
    );
    Ok(())
}

fn held() -> Result<(), Error> {
    let pager = Pager::new(LIMIT)?;
    let mut all = Vec::with_capacity(REGIONS as usize);
    let made = took(|| {
        (0..REGIONS).try_for_each(|_| {
            all.push(pager.zeros::<u8>(REGION_BYTES)?);
            Ok(())
        })
    });
    let count = all.len();
    let began = Instant::now();
    drop(all);
    let dropped = began.elapsed().as_secs_f64();
    match made {
        Ok(made) => println!("{count} regions: made in {made:.2} s, dropped in {dropped:.2}"),
        Err(why) => println!("after {count} regions: {why}; dropped in {dropped:.2} s"),
    }
    Ok(())
}

fn gib() -> Result<(), Error> {
    let pager = Pager::new(GIB as u64 + GIB as u64 / 8)?;
    let mut region = pager.zeros::<u8>(GIB)?;
    let of_pager = first_touches(&mut region);
    drop((region, pager));
    let of_kernel = first_touches(&mut vec![0; GIB]);
    println!("1 GiB touched: a region in {of_pager:.2} s, a plain mapping in {of_kernel:.2}");
    Ok(())
}

fn main() -> Result<(), Error> {
    match std::env::args().nth(1).as_deref() {
        Some("regions") => regions()?,
        Some("held") => held()?,
        Some("gib") => gib()?,
        Some("touches") => {
            let pager = Pager::new(LIMIT)?;
            tell("region", &mut pager.zeros(WORDS)?);
        }
        Some("heap") => tell("heap", &mut vec![0; WORDS]),
        Some("alone") => {
            let pager = Pager::new(LIMIT)?;
            println!("{:.2} s", threads(std::slice::from_ref(&pager))?);
        }
        Some(kind @ ("one" | "four")) => {
            let pager = Pager::new(LIMIT)?;
            let alone = threads(std::slice::from_ref(&pager))?;
            let pagers = match kind {
                "one" => vec![pager; 4],
                _ => (0..4)
                    .map(|_| Pager::new(LIMIT))
                    .collect::<Result<_, _>>()?,
            };
            let four = threads(&pagers)?;
            println!("{kind}: one thread {alone:.2} s, four of as much each {four:.2} s");
        }
        _ => println!("figures regions | held | gib | touches | heap | alone | one | four"),
    }
    Ok(())
}
