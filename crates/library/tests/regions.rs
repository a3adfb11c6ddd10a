//! Regions of this very process are paged, by one pager and by several, beside each other and under `outpage run`; every byte is compared.
//!
//! Each case runs in a process of its own: limits, forks and signals are the process's.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use outpage::{Advice, Blocks, Builder, Error, Kept, Pager, Place, Region};
use outpage_sys::libc;
use outpage_sys::uffd::{Features, Uffd, Wanted};

#[path = "regions/ends.rs"]
mod ends;
#[path = "regions/threads.rs"]
mod threads;
#[path = "regions/told.rs"]
mod told;

use ends::{forks, loses, signalled, swap_full};
use threads::begins_threads;
use told::{subscribes, subscribes_in_pieces, watches};

const LIMIT: u64 = 8 << 20;
/// Values of 8 bytes within the limit, and in a page.
const WITHIN: usize = LIMIT as usize / 8;
const A_PAGE: usize = outpage::PAGE_BYTES / 8;

type Case = (&'static str, fn(Builder) -> Result<(), Error>);

const CASES: [Case; 15] = [
    ("pages", pages),
    ("resizes", resizes),
    ("pins", pins),
    ("discards", discards),
    ("clears", clears),
    ("advises", advises),
    ("subscribes", subscribes),
    ("subscribes-in-pieces", subscribes_in_pieces),
    ("watches", watches),
    ("reads-files", reads_files),
    ("several", several),
    ("swap-full", swap_full),
    ("loses", loses),
    ("forks", forks),
    ("begins-threads", begins_threads),
];

/// A case that ends by the signal of a lost page.
const SIGNALLED: &str = "signalled";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|a| a == "--case") {
        return run_case(&arguments[at + 1], &arguments[at + 2]);
    }
    let mut counts = [0; 3];
    for (mechanism, feature) in [
        ("move", Features::MOVE),
        ("write-protect", Features::PAGEFAULT_FLAG_WP),
    ] {
        let opened = Uffd::open(&Wanted {
            inherited: None,
            required: feature,
            optional: Features::NONE,
        });
        // What the mechanisms differ in.
        let differs = |name| {
            [
                "pages",
                "discards",
                "advises",
                "watches",
                "swap-full",
                "loses",
            ]
            .contains(&name)
        };
        for (name, _) in CASES {
            if mechanism != "move" && !differs(name) {
                continue;
            }
            if let Err(why) = &opened {
                eprintln!("SKIPPED: {name}, {mechanism}: {why}");
                counts[2] += 1;
                continue;
            }
            let ended = this(name, mechanism).status().is_ok_and(|s| s.success());
            tell(&format!("{name}, {mechanism}"), ended, &mut counts);
        }
        if mechanism == "move" && opened.is_ok() {
            let ended = this(SIGNALLED, mechanism).status();
            let by = ended.ok().and_then(|status| status.signal());
            tell("a lost page signals", by == Some(libc::SIGBUS), &mut counts);
            under_run(&mut counts);
        }
    }
    let [passed, failed, skipped] = counts;
    println!("\nregions: {passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}

fn tell(name: &str, passed: bool, counts: &mut [usize; 3]) {
    println!("{name}: {}", if passed { "passed" } else { "FAILED" });
    counts[usize::from(!passed)] += 1;
}

fn this(case: &str, mechanism: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--case", case, mechanism]);
    command
}

/// A program that runs under a limit of its own, outside of which are those of its pagers.
fn under_run(counts: &mut [usize; 3]) {
    let own = std::env::current_exe().expect("own path");
    let built = own.ancestors().nth(2).map(PathBuf::from).expect("a folder");
    let launcher = built.join("outpage");
    if !launcher.exists() || !built.join("liboutpage_preload.so").exists() {
        eprintln!("SKIPPED: under `outpage run`: it is not built (cargo build --workspace)");
        counts[2] += 1;
        return;
    }
    for case in ["heap-too", "several"] {
        let status = Command::new(&launcher)
            .args(["run", "--memory", "16M", "--quiet", "--"])
            .arg(&own)
            .args(["--case", case, "auto"])
            .status();
        let passed = status.is_ok_and(|status| status.success());
        tell(&format!("{case}, under `outpage run`"), passed, counts);
    }
}

fn run_case(name: &str, mechanism: &str) -> ExitCode {
    let builder = Pager::builder(LIMIT)
        .set("swap", env!("CARGO_TARGET_TMPDIR"))
        .set("mechanism", mechanism)
        .set("encrypt", "off");
    let run = match name {
        SIGNALLED => signalled,
        "heap-too" => heap_too,
        _ => CASES.iter().find(|case| case.0 == name).expect("a case").1,
    };
    match run(builder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{name}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn value(i: usize, round: u64) -> u64 {
    (i as u64 ^ (round << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn fill(values: &mut [u64], round: u64) {
    for (i, to) in values.iter_mut().enumerate() {
        *to = value(i, round);
    }
}

fn check(values: &[u64], round: u64) {
    let wrong = (0..values.len()).find(|&i| values[i] != value(i, round));
    assert_eq!(wrong, None, "of {} values, in round {round}", values.len());
}

fn rss() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.expect("a number of KiB") * 1024
}

/// More than the limit, read and written, within the limit.
fn pages(builder: Builder) -> Result<(), Error> {
    let before = rss();
    let pager = builder.open()?;
    let mut region = pager.zeros::<u64>(4 * WITHIN)?;
    assert!(region.iter().all(|&v| v == 0));
    for round in 1..3 {
        fill(&mut region, round);
        check(&region, round);
    }
    // The limit, and what README and docs name beside it: tables, stacks, lists.
    let took = rss() - before;
    assert!(took <= LIMIT + (4 << 20), "{took} bytes in RAM");
    let stats = pager.stats()?;
    assert!(stats.page_outs > 1000 && stats.page_ins > 1000, "{stats:?}");
    assert!(stats.peak_pages * 4096 <= LIMIT, "{stats:?}");
    let residency = region.residency()?;
    let all = 4 * WITHIN / A_PAGE;
    assert!(residency.in_ram() * 4096 <= LIMIT as usize, "{residency:?}");
    assert_eq!(
        residency.in_ram() + residency.paged_out,
        all,
        "{residency:?}"
    );
    drop(region);
    assert_eq!(pager.stats()?.resident_pages, 0);
    Ok(())
}

fn resizes(builder: Builder) -> Result<(), Error> {
    let pager = builder.open()?;
    let mut region = pager.zeros::<u64>(0)?;
    assert!(region.is_empty());
    let mut neighbour = pager.zeros::<u64>(WITHIN)?;
    fill(&mut neighbour, 9);
    for len in [100, WITHIN / 2 + 3, 3 * WITHIN, 700, 2 * WITHIN + 1] {
        let before = region.len();
        region.resize(len)?;
        assert_eq!(region.len(), len);
        check(&region[..before.min(len)], 1);
        assert!(region[before.min(len)..].iter().all(|&v| v == 0), "{len}");
        fill(&mut region, 1);
    }
    check(&region, 1);
    check(&neighbour, 9);
    let too_much = region.resize(usize::MAX / 16);
    assert!(matches!(too_much, Err(Error::Os(..))), "{too_much:?}");
    assert!(matches!(region.resize(usize::MAX), Err(Error::Bounds)));
    check(&region, 1);
    Ok(())
}

fn pins(builder: Builder) -> Result<(), Error> {
    let pager = builder.open()?;
    let mut region = pager.zeros::<u64>(4 * WITHIN)?;
    fill(&mut region, 1);
    let hot = WITHIN..WITHIN + 100 * A_PAGE;
    let mut other = pager.zeros::<u64>(4 * WITHIN)?;
    let all = region.pin(0..4 * WITHIN);
    assert!(matches!(all, Err(Error::Pinned)), "{all:?}");
    {
        let _much = region.pin(0..WITHIN * 5 / 8)?;
        let _again = region.pin(A_PAGE..WITHIN / 2)?;
        fill(&mut other, 3);
        check(&other, 3);
    }
    {
        let pinned = region.pin(hot.clone())?;
        fill(&mut other, 2);
        let places = region.places(hot.clone())?;
        let stay = |place: &Place| matches!(place, Place::Resident | Place::Staged);
        assert!(places.iter().all(stay), "{places:?}");
        assert_eq!(places.len(), 100);
        assert_eq!(pinned[0], value(WITHIN, 1));
        let more = region.pin(0..WITHIN);
        assert!(matches!(more, Err(Error::Pinned)), "{more:?}");
    }
    let mut pinned = region.pin_mut(hot.clone())?;
    pinned[0] = value(WITHIN, 1);
    drop(pinned);
    // What was refused as a victim is tried again at the pager's next tick, which may be after the first of these passes.
    let mut leaves = false;
    for _ in 0..100 {
        check(&other, 2);
        leaves = region.places(hot.clone())?.contains(&Place::PagedOut);
        if leaves {
            break;
        }
    }
    assert!(leaves, "unpinned pages stay");
    region.prefault(hot.clone())?;
    let back = region.places(hot)?;
    assert!(!back.contains(&Place::PagedOut), "{back:?}");
    assert!(matches!(region.prefault(0..usize::MAX), Err(Error::Bounds)));
    assert!(matches!(
        region.places(5..4 * WITHIN + 1),
        Err(Error::Bounds)
    ));
    check(&region, 1);
    Ok(())
}

fn discards(builder: Builder) -> Result<(), Error> {
    const BLOCK: usize = 64 * A_PAGE;
    let pager = builder.open()?;
    let part = pager.zeros::<u64>(WITHIN)?;
    assert!(matches!(Blocks::new(part, 100), Err(Error::Bounds)));
    let mut blocks = Blocks::new(pager.zeros::<u64>(3 * WITHIN + 10)?, BLOCK)?;
    let (mut whole, mut partly) = (0, 0);
    for round in 1..4 {
        for i in 0..blocks.len() {
            fill(blocks.get_mut(i).expect("not discarded"), round + i as u64);
        }
        for i in (0..blocks.len()).filter(|i| i % 3 != 0) {
            blocks.discard(i)?;
            blocks.discard(i)?;
            assert!(blocks.get(i).is_none() && blocks.get_mut(i).is_none());
        }
        // What is kept fills the limit again.
        for i in (0..blocks.len()).step_by(3) {
            check(blocks.get(i).expect("kept"), round + i as u64);
        }
        for i in 0..blocks.len() {
            let kept = blocks.take_back(i)?;
            let values = blocks.get(i).expect("taken back");
            let lost = match kept {
                Kept::Whole => Vec::new(),
                Kept::Without(lost) => lost,
            };
            assert!(i % 3 != 0 || lost.is_empty());
            for (at, &found) in values.iter().enumerate() {
                let expected = match lost.iter().any(|range| range.contains(&at)) {
                    true => 0,
                    false => value(at, round + i as u64),
                };
                assert_eq!(found, expected, "block {i}, value {at}");
            }
            whole += usize::from(lost.is_empty() && i % 3 != 0);
            partly += usize::from(!lost.is_empty());
        }
    }
    assert!(partly > 0, "nothing was dropped: {whole} blocks whole");
    assert!(matches!(blocks.discard(10_000), Err(Error::Bounds)));
    blocks.discard(1)?;
    fill(blocks.get_mut(2).expect("there"), 77);
    let region = blocks.into_region()?;
    assert!(region[BLOCK..2 * BLOCK].iter().all(|&v| v == 0));
    check(&region[2 * BLOCK..3 * BLOCK], 77);
    Ok(())
}

/// What is said of pages is followed, and no byte depends on it.
fn advises(builder: Builder) -> Result<(), Error> {
    // In order, so that what was filled first is out.
    let builder = builder.set("reclaim", "second-chance");
    let pager = builder.set("readahead", "none").open()?;
    let mut region = pager.zeros::<u64>(3 * WITHIN)?;
    fill(&mut region, 1);
    let faults = |pager: &Pager| pager.stats().map(|stats| stats.major_faults);
    let (plain, advised) = (0..WITHIN / 4, WITHIN / 4..WITHIN / 2);
    let before = faults(&pager)?;
    check(&region[plain.clone()], 1);
    let alone = faults(&pager)? - before;
    assert_eq!(
        alone as usize,
        plain.len() / A_PAGE,
        "a fault for each page"
    );
    region.advise(advised.clone(), Advice::Sequential)?;
    let before = faults(&pager)?;
    let right = (advised.clone()).all(|i| region[i] == value(i, 1));
    let together = faults(&pager)? - before;
    assert!(right && together < alone / 4, "{together} for {alone}");
    // Comes without a touch.
    let needed = WITHIN..WITHIN + WITHIN / 4;
    assert!(region.places(needed.clone())?.contains(&Place::PagedOut));
    region.advise(needed.clone(), Advice::WillNeed)?;
    let came = || -> Result<bool, Error> {
        Ok(!region.places(needed.clone())?.contains(&Place::PagedOut))
    };
    let began = std::time::Instant::now();
    while !came()? {
        assert!(began.elapsed().as_secs() < 60, "it never comes");
        std::thread::yield_now();
    }
    // Leaves though it was touched last.
    let cold = 2 * WITHIN..2 * WITHIN + WITHIN / 8;
    region[cold.clone()].iter_mut().for_each(|v| *v += 1);
    region.advise(cold.clone(), Advice::Cold)?;
    let places = region.places(cold.clone())?;
    assert!(!places.contains(&Place::Resident), "{places:?}");
    region[cold].iter_mut().for_each(|v| *v -= 1);
    region.advise(0..region.len(), Advice::Random)?;
    check(&region, 1);
    region.advise(0..region.len(), Advice::Normal)?;
    region.advise(5..5, Advice::Cold)?;
    let beyond = region.advise(0..region.len() + 1, Advice::Cold);
    assert!(matches!(beyond, Err(Error::Bounds)), "{beyond:?}");
    // Said of what is gone: the next region at these addresses has nothing of it.
    region.advise(0..region.len(), Advice::Sequential)?;
    drop(region);
    let mut next = pager.zeros::<u64>(3 * WITHIN)?;
    fill(&mut next, 2);
    let before = faults(&pager)?;
    check(&next[plain.clone()], 2);
    assert_eq!((faults(&pager)? - before) as usize, plain.len() / A_PAGE);
    Ok(())
}

fn clears(builder: Builder) -> Result<(), Error> {
    let pager = builder.open()?;
    let mut region = pager.zeros::<u64>(2 * WITHIN + 5)?;
    let len = region.len();
    for range in [3..7, 100..3 * A_PAGE + 9, len - 3..len, 5..WITHIN] {
        fill(&mut region, 4);
        region.clear(range.clone())?;
        for (i, &found) in region.iter().enumerate() {
            let expected = if range.contains(&i) { 0 } else { value(i, 4) };
            assert_eq!(found, expected, "value {i} of {range:?}");
        }
    }
    region.clear(0..len)?;
    assert_eq!(region.residency()?.untouched, len.div_ceil(A_PAGE));
    Ok(())
}

fn reads_files(builder: Builder) -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("values");
    let mut values = vec![0_u64; 2 * WITHIN + 77];
    fill(&mut values, 5);
    std::fs::write(&path, outpage::bytemuck::cast_slice::<u64, u8>(&values))?;
    let pager = builder.open()?;
    let region: Region<u64> = pager.from_file(&path)?;
    assert_eq!(region.len(), values.len());
    check(&region, 5);
    std::fs::write(&path, [1, 2, 3])?;
    let odd = pager.from_file::<u16>(&path);
    assert!(matches!(&odd, Err(Error::Io(e)) if e.kind() == std::io::ErrorKind::InvalidData));
    assert_eq!(*pager.from_file::<u8>(&path)?, [1, 2, 3]);
    // What tells no length: a file of /proc, and a pipe.
    let status = pager.from_file::<u8>("/proc/version")?;
    assert_eq!(*status, *std::fs::read("/proc/version")?);
    // One of /sys tells more than it has.
    let online = "/sys/devices/system/cpu/online";
    assert_eq!(*pager.from_file::<u8>(online)?, *std::fs::read(online)?);
    let (reader, mut writer) = std::io::pipe()?;
    let written = std::thread::spawn(move || {
        let all = outpage::bytemuck::cast_slice::<u64, u8>(&values).to_vec();
        writer.write_all(&all).map(|()| values.len())
    });
    let piped: Region<u64> = pager.from_file(format!("/dev/fd/{}", reader.as_raw_fd()))?;
    assert_eq!(written.join().expect("a writer")?, piped.len());
    check(&piped, 5);
    let none = pager.from_file::<u8>(Path::new("/there/is/none"));
    assert!(matches!(none, Err(Error::Io(_))));
    Ok(())
}

/// Four threads in four regions of one pager, and of four pagers.
fn several(builder: Builder) -> Result<(), Error> {
    let one = builder.open()?;
    let more: Vec<Pager> = (0..4).map(|_| open_another()).collect::<Result<_, _>>()?;
    let run = |pager: &Pager, seed: u64| -> Result<(), Error> {
        let mut region = pager.zeros::<u64>(WITHIN + WITHIN / 2)?;
        for round in 1..3 {
            fill(&mut region, seed + round);
            check(&region, seed + round);
        }
        Ok(())
    };
    std::thread::scope(|threads| {
        let of = |pager, seed| threads.spawn(move || run(pager, seed));
        let mut all: Vec<_> = (0..4).map(|i| of(&one, i * 10)).collect();
        all.extend((0..4).map(|i| of(&more[i], 100 + i as u64 * 10)));
        all.into_iter()
            .try_for_each(|thread| thread.join().expect("no panic"))
    })
}

fn open_another() -> Result<Pager, Error> {
    let builder = Pager::builder(LIMIT).set("swap", env!("CARGO_TARGET_TMPDIR"));
    builder.set("encrypt", "off").open()
}

/// The heap is the launcher's to page, the region the library's.
fn heap_too(builder: Builder) -> Result<(), Error> {
    let pager = builder.open()?;
    let mut region = pager.zeros::<u64>(3 * WITHIN)?;
    let mut heap = vec![0_u64; 4 * WITHIN];
    for round in 1..4 {
        fill(&mut region, round);
        fill(&mut heap, round + 1);
        check(&region, round);
        check(&heap, round + 1);
    }
    let stats = pager.stats()?;
    assert!(stats.page_outs > 1000, "{stats:?}");
    drop(region);
    drop(pager);
    check(&heap, 4);
    Ok(())
}
