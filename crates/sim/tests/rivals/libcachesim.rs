//! The rivals beside libCacheSim, by hand: it needs Python, the registry and a minute.
//!
//! LRU, CLOCK, 2Q, ARC and OPT are compared as they are. LIRS and S3-FIFO differ by departures of
//! libCacheSim from the papers, which `variants` makes as well: those are what must agree. CLOCK-Pro
//! is printed only: libCacheSim's misses far more often than LRU does on every string here.
//!
//! `cargo test -p outpage-sim --test rivals -- --ignored --nocapture libcachesim`

use std::collections::BTreeMap;
use std::fs;
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;

use outpage_core::contract::Access;
use outpage_core::units::{Nanos, PageNo};
use outpage_sim::bounds::opt;
use outpage_sim::rivals::{OPT, find};
use outpage_sim::trace::{PageString, Reader, Reference, string, write_oracle};

use crate::strings::{scans, zipf};
use crate::variants;

/// What the script ends with when the package cannot be installed.
const SKIPPED: i32 = 77;

/// Misses by policy and frames, as libCacheSim counts them; `None` when it cannot be had.
fn theirs(
    pages: &PageString,
    frames: &[u32],
    folder: &Path,
) -> Option<BTreeMap<(String, u32), u64>> {
    let trace = folder.join("trace.oracleGeneral");
    let file = fs::File::create(&trace).expect("a temporary file");
    let references = pages.numbers().map(|number| Reference {
        // libCacheSim takes object 0 for none.
        page: PageNo::from_raw(u64::from(number) + 1),
        access: Access::Read,
        gap: Nanos(0),
    });
    let requests = write_oracle(references, 4096, BufWriter::new(file)).expect("the disk has room");
    let output = Command::new("python3")
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/rivals/compare_libcachesim.py"
        ))
        .arg(folder.join("python"))
        .arg(&trace)
        .arg(requests.to_string())
        .args(frames.iter().map(u32::to_string))
        .output()
        .expect("python3 runs");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(SKIPPED) {
        return None;
    }
    assert!(
        output.status.success(),
        "the script failed: {}",
        output.status
    );
    let text = String::from_utf8(output.stdout).expect("names and numbers");
    let cell = |line: &str| {
        let mut words = line.split_whitespace();
        let mut word = || words.next().expect("three words a line");
        let name = word().to_owned();
        let mut number = || word().parse::<u64>().expect("a number");
        ((name, number() as u32), number())
    };
    Some(text.lines().map(cell).collect())
}

fn strings() -> Vec<(&'static str, PageString, Vec<u32>)> {
    let bytes = include_bytes!("../trace/data/sort.refs");
    let recorded = string(Reader::new(&bytes[..]).expect("a trace")).expect("a whole trace");
    vec![
        (
            "zipf",
            zipf(20_000, 300_000, 11).into_iter().collect(),
            vec![200, 2000, 8000],
        ),
        (
            "scans",
            scans(5000, 200_000, 5000, 2500).into_iter().collect(),
            vec![200, 1000, 3000],
        ),
        ("sort, recorded", recorded, vec![20, 50]),
    ]
}

/// What libCacheSim's own departures from the papers give.
fn departed(name: &str, pages: &[u64], frames: usize) -> Option<u64> {
    match name {
        // It holds at most twice as many pages in S as there are frames.
        "lirs" => Some(variants::lirs(pages, frames, 2 * frames)),
        "s3-fifo" => Some(variants::s3_fifo(pages, frames)),
        _ => None,
    }
}

#[test]
#[ignore = "installs a Python package from the registry"]
fn libcachesim_misses_as_often() {
    let folder = std::env::temp_dir().join("outpage-libcachesim");
    fs::create_dir_all(&folder).expect("a temporary folder");
    let mut beyond = Vec::new();
    for (what, string, frames) in strings() {
        let Some(theirs) = theirs(&string, &frames, &folder) else {
            eprintln!("SKIPPED: nothing was compared with libCacheSim");
            return;
        };
        let pages: Vec<u64> = string.numbers().map(u64::from).collect();
        println!(
            "{what}: {} references, {} pages",
            string.len(),
            string.distinct()
        );
        println!("policy      frames     ours   theirs  difference  with its departures");
        for ((name, frames), theirs) in theirs {
            let ours = match find(&name) {
                Some(rival) => rival.misses(&string, frames),
                None => {
                    assert_eq!(name, OPT);
                    opt(&string, frames).misses
                }
            };
            let percent = |ours: u64| 100.0 * (ours as f64 / theirs as f64 - 1.0);
            print!(
                "{name:10} {frames:7} {ours:8} {theirs:8}  {:+8.2} %",
                percent(ours)
            );
            let departed = departed(&name, &pages, frames as usize);
            match departed {
                Some(misses) => println!("  {misses:8} {:+8.2} %", percent(misses)),
                None => println!(),
            }
            let difference = percent(departed.unwrap_or(ours));
            if difference.abs() > 1.0 && name != "clock-pro" {
                beyond.push(format!(
                    "{what}: {name} in {frames} frames {difference:+.2} %"
                ));
            }
        }
    }
    assert!(beyond.is_empty(), "beyond 1 %:\n{}", beyond.join("\n"));
}
