//! What people write: sizes, policies with their settings, variables, settings files.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use outpage_core::{pageout, readahead, reclaim, slots};
use outpage_engine::config::{Config, format_size, parse_size};
use outpage_engine::session::SessionPaths;
use outpage_fuzz_cli::sim::machine::{self, Machine};
use outpage_fuzz_cli::sim::programs::Source;
use outpage_fuzz_cli::sim::{File, programs};
use outpage_fuzz_cli::trace::load::Format;
use outpage_sim::disk::{self, Op, Params, Queue, Request};

use crate::cursor::Cursor;

fn one_line(text: &str) {
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// A size; what is printed of it is a size as well, no larger by more than its rounding.
pub fn size(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match parse_size(text) {
        Ok(bytes) => {
            let printed = format_size(bytes);
            let printed = printed.strip_suffix(" bytes").unwrap_or(&printed);
            let Ok(again) = parse_size(printed) else {
                return assert!(bytes > i64::MAX as u64 / 2, "{printed}");
            };
            // One decimal of at least 1.
            assert!(again.abs_diff(bytes) <= bytes / 20 + 1, "{bytes} {printed}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Policies by name with their settings.
pub fn policies(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut lines = text.lines();
    let first = lines.next().unwrap_or("");
    let (name, _) = first.split_once(':').unwrap_or((text, ""));
    match first.parse::<readahead::Choice>() {
        Ok(choice) => {
            for frames in [256, 1 << 20] {
                let choice = choice.for_frames(frames);
                assert_eq!(choice.to_string().parse(), Ok(choice));
                drop(choice.build());
            }
        }
        Err(refused) => one_line(&refused.to_string()),
    }
    if let Err(refused) = disk::scheduler(lines.next().unwrap_or(text)).map(drop) {
        assert!(!refused.to_string().is_empty());
    }
    let _ = (pageout::find(name), slots::find(name));
    match reclaim::Choice::parse(text, outpage_core::contract::Body::default()) {
        Ok(choice) => {
            let told = choice.to_string();
            let again = reclaim::Choice::parse(&told, outpage_core::contract::Body::default());
            assert_eq!(again, Ok(choice), "{told}");
            drop(choice.build());
        }
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
}

/// Variables, `NAME=VALUE` each, apart by NUL; what was read is the same when it is handed on.
pub fn environment(data: &[u8]) {
    let var = |name: &str| {
        let mut entries = data.split(|&byte| byte == 0);
        let value = entries.find_map(|entry| {
            entry
                .strip_prefix(b"OUTPAGE_")?
                .strip_prefix(name.strip_prefix("OUTPAGE_")?.as_bytes())?
                .strip_prefix(b"=")
        });
        value.map(|value| OsString::from(std::ffi::OsStr::from_bytes(value)))
    };
    let lookup = |vars: Vec<(&'static str, OsString)>| {
        move |name: &str| {
            let found = vars.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone())
        }
    };
    let paths = SessionPaths::from_env(var);
    assert_eq!(SessionPaths::from_env(lookup(paths.to_env())), paths);
    match Config::from_env(var) {
        Ok(None) => {}
        Ok(Some(config)) => {
            let again = Config::from_env(lookup(config.to_env()));
            assert_eq!(again.as_ref(), Ok(&Some(config.clone())));
            match config.fitted_readahead() {
                Ok(choice) => drop(choice.build()),
                Err(error) => one_line(&error.to_string()),
            }
            let _ = (config.limit_pages(), config.swap_cap_bytes());
        }
        Err(error) => one_line(&error.to_string()),
    }
}

/// A settings file of `outpage sim`, TOML or JSON: what it describes is built, and not run.
pub fn machine(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let file = match File::parse(text, kind & 1 != 0) {
        Ok(file) => file,
        Err(why) => return assert!(!why.contains('\n'), "{why}"),
    };
    if names_files(&file) || too_many(&file.machine) {
        return;
    }
    let sources = match programs::parse_all(&file.programs, Format::Auto) {
        Ok(sources) => sources,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    if too_large(&sources) {
        return;
    }
    match file.machine.jobs(&sources) {
        Ok(jobs) => {
            for job in &jobs {
                let _ = machine::bandwidth(&job.setup);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Files of this machine are not to be read.
fn names_files(file: &File) -> bool {
    let programs = file.programs.iter().any(|text| text.starts_with("trace:"));
    let disks = file.machine.disk.iter();
    programs
        || disks
            .clone()
            .any(|text| disk::model(text.trim()).is_none() && !text.is_empty())
}

/// An empty world has a byte for each slot, and two slots for each page: for a program of 4 TiB, the most there may be, the target took 2.2 GiB, as time(1) says.
/// So a quarter of that at most.
fn too_large(sources: &[Source]) -> bool {
    const PAGES_MAX: u64 = 1 << 28;
    sources.iter().map(Source::footprint).sum::<u64>() > PAGES_MAX
}

/// Each is built, which takes its time.
fn too_many(machine: &Machine) -> bool {
    let lists = [
        &machine.memory,
        &machine.disk,
        &machine.scheduler,
        &machine.system,
        &machine.reclaim,
        &machine.pageout,
        &machine.readahead,
        &machine.slots,
    ];
    lists
        .iter()
        .map(|list| list.len().max(1))
        .product::<usize>()
        > 8
}

/// The parameters of a disk, and requests to such a disk.
pub fn disk(data: &[u8]) {
    let end = data
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(data.len());
    let (text, rest) = data.split_at(end);
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    match machine::read_disk(text) {
        Ok((params, _)) => serve(params, Cursor(rest)),
        Err(why) => assert!(!why.is_empty()),
    }
}

/// Blocks of the largest swap space that is simulated.
const BLOCKS: u64 = 1 << 31;

fn serve(params: Params, mut choices: Cursor<'_>) {
    choices.byte();
    let names: Vec<_> = disk::SCHEDULERS.iter().map(|entry| entry.name).collect();
    let name = names[choices.byte() as usize % names.len()];
    let mut queue = Queue::new(params.device(), disk::scheduler(name).expect("a name"));
    let (mut now, mut submitted, mut finished) = (0_u64, 0, 0);
    while !choices.is_empty() && submitted < 64 {
        now += choices.number() & 0xffff_ffff;
        while queue.poll(now).is_some() {
            finished += 1;
        }
        let blocks = 1 + (choices.byte() & 0x7f);
        queue.submit(
            now,
            Request {
                id: submitted,
                op: if choices.byte() & 1 == 0 {
                    Op::Read
                } else {
                    Op::Write
                },
                block: choices.number() % BLOCKS,
                blocks: u32::from(blocks),
                from: u32::from(choices.byte() % 3),
            },
        );
        submitted += 1;
    }
    while let Some(next) = queue.next_event() {
        assert!(next >= now, "time goes on");
        now = next;
        while queue.poll(now).is_some() {
            finished += 1;
        }
    }
    assert_eq!(finished, submitted, "a request was forgotten");
}
