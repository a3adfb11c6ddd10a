//! The engine pages this very process: contents are verified, and the recorded run is replayed.
//!
//! Each case runs in a process of its own, because a process has one pager. No test harness: its
//! threads' memory would be managed too.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use outpage_core::record::{Header, Reader, Unequal, replay};
use outpage_core::tier;
use outpage_engine::call::Call;
use outpage_engine::config::{Config, Encrypt, Mechanism, StoreKind};
use outpage_engine::session::SessionPaths;
use outpage_engine::{Engine, Setup};
use outpage_sys::pagemap::Pagemap;
use outpage_sys::uffd::{Features, Uffd, Wanted};

#[global_allocator]
static ARENA: outpage_sys::arena::Arena = outpage_sys::arena::Arena::new();

const LIMIT: u64 = 16 << 20;
const WORDS_A_PAGE: usize = 512;

/// Name, mechanism, store, encryption.
const CASES: [(&str, Mechanism, StoreKind, Encrypt); 3] = [
    ("move", Mechanism::Move, StoreKind::Auto, Encrypt::Off),
    (
        "write-protect",
        Mechanism::WriteProtect,
        StoreKind::Auto,
        Encrypt::On,
    ),
    ("pool", Mechanism::Move, StoreKind::Pool, Encrypt::On),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|a| a == "--case") {
        return match run_case(&arguments[at + 1], Path::new(&arguments[at + 2])) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, mechanism, ..) in CASES {
        let required = if mechanism == Mechanism::Move {
            Features::MOVE
        } else {
            Features::PAGEFAULT_FLAG_WP
        };
        if let Err(why) = Uffd::open(&Wanted {
            inherited: None,
            required,
            optional: Features::NONE,
        }) {
            eprintln!("SKIPPED: {name}: {why}");
            skipped += 1;
        } else if spawn_case(name) {
            println!("{name}: contents exact, replay identical");
            passed += 1;
        } else {
            println!("{name}: FAILED");
            failed += 1;
        }
    }
    println!("\nlive: {passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs a case in a child, then replays what it recorded.
fn spawn_case(name: &str) -> bool {
    let trace = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("trace-{name}-{}", std::process::id()));
    let child = Command::new(std::env::current_exe().expect("own path"))
        .args(["--case", name])
        .arg(&trace)
        .spawn();
    let Ok(mut child) = child else { return false };
    let file = format!("{}.{}", trace.display(), child.id());
    let ended_well = child.wait().is_ok_and(|status| status.success());
    let bytes = std::fs::read(&file);
    let _ = std::fs::remove_file(&file);
    ended_well && bytes.is_ok_and(|bytes| replays(&bytes))
}

/// A process does not end its trace: it may be killed at any moment. All that is there must be equal.
fn replays(bytes: &[u8]) -> bool {
    let header: Header<'_> = match Reader::new(bytes) {
        Ok(reader) => reader.header(),
        Err(why) => {
            eprintln!("{why}");
            return false;
        }
    };
    let setup = header.setup().expect("a pager of this version");
    match replay(bytes, setup) {
        Ok(_) => true,
        Err(Unequal::Unreadable(end)) => bytes.len() > 100_000 && bytes.len() - end.offset < 100,
        Err(why) => {
            eprintln!("{why}");
            false
        }
    }
}

fn run_case(name: &str, trace: &Path) -> Result<(), String> {
    let (_, mechanism, store, encrypt) = CASES
        .into_iter()
        .find(|case| case.0 == name)
        .ok_or("no such case")?;
    let config = Config {
        swap_dir: env!("CARGO_TARGET_TMPDIR").into(),
        mechanism,
        store,
        encrypt,
        record: Some(trace.to_owned()),
        // Frames of a pool would be missing among the few that `forks` leaves.
        tier: tier::Choice::parse("none", tier::Written::Plain).expect("one of them"),
        ..Config::new(LIMIT)
    };
    let engine = Engine::start(Setup {
        config,
        paths: SessionPaths::default(),
        advised: false,
        alone: true,
    })
    .map_err(|e| e.to_string())?;
    let pages = (2 * LIMIT / 4096) as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let at = engine.mmap(0, pages * 4096, prot, flags);
    if at < 0 {
        return Err(format!("mmap: {at}"));
    }
    // SAFETY: just mapped, zeroed, of this length; nobody else refers to it.
    let words = unsafe { std::slice::from_raw_parts_mut(at as *mut u64, pages * WORDS_A_PAGE) };
    sweep(words, pages)?;
    scatter(words, pages)?;
    if mechanism == Mechanism::Move {
        forks(engine, words, pages, encrypt)?;
    }
    discard(engine, words, pages)
}

fn mark(page: usize, round: u64) -> u64 {
    (page as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ round
}

/// Writes and verifies in order, up and down.
fn sweep(words: &mut [u64], pages: usize) -> Result<(), String> {
    for round in 1..=4 {
        for i in 0..pages {
            let page = if round % 2 == 0 { pages - 1 - i } else { i };
            let (first, last) = (page * WORDS_A_PAGE, page * WORDS_A_PAGE + WORDS_A_PAGE - 1);
            let expected = if round == 1 { 0 } else { mark(page, round - 1) };
            if words[first] != expected || words[last] != expected {
                return Err(format!("round {round}, page {page}: a wrong byte"));
            }
            (words[first], words[last]) = (mark(page, round), mark(page, round));
        }
    }
    Ok(())
}

/// Reads and writes at random.
fn scatter(words: &mut [u64], pages: usize) -> Result<(), String> {
    let mut seed = 7u64;
    for _ in 0..4000 {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let page = (seed >> 33) as usize % pages;
        if words[page * WORDS_A_PAGE] != mark(page, 4) {
            return Err(format!("page {page} holds a wrong byte"));
        }
        if seed.is_multiple_of(2) {
            words[page * WORDS_A_PAGE + 1] = seed;
            words[page * WORDS_A_PAGE + 1] = 0;
        }
    }
    Ok(())
}

/// The calling thread's control block, as the preloaded library finds it.
fn thread_block() -> usize {
    let block;
    // SAFETY: the first word of the block is its own address (`tcbhead_t` in glibc).
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) block, options(nostack, readonly)) };
    block
}

/// What a forking thread names stays in the program while the pager rests, however few pages can be
/// victims: the pages that are brought in last must not push out the first. Not with write-protect, which
/// sets a quarter of the limit apart.
fn forks(
    engine: &'static Engine,
    words: &[u64],
    pages: usize,
    encrypt: Encrypt,
) -> Result<(), String> {
    /// Frames for all that is not pinned: 17 are needed. Without the pins of a fork the first page kept
    /// was gone in 10 of 10 runs; with 96 in none of 2.
    const UNPINNED: usize = 32;
    /// Frames that are set apart for what is encrypted: as many as the largest transfer has, a window of `stream`.
    const APART: usize = 128;
    let apart = if encrypt == Encrypt::On { APART } else { 0 };
    let pinned = LIMIT as usize / 4096 - UNPINNED - apart;
    let addr = words.as_ptr() as usize;
    let len = pinned * 4096;
    if engine.call(Call::Pin { addr, len }) != 0 {
        return Err("the first pin is refused".into());
    }
    let exact = |from: usize, to: usize| {
        let wrong = (from..to).find(|&page| words[page * WORDS_A_PAGE] != mark(page, 4));
        wrong.map_or(Ok(()), |page| {
            Err(format!("around a fork, page {page} holds a wrong byte"))
        })
    };
    exact(0, pinned)?;
    // In place of the stack, which is brought in first; the main thread's own is not managed.
    let stack = pages - 200;
    let ticket = engine
        .fork_prepare(addr + stack * 4096, thread_block())
        .map_err(|error| format!("the fork is refused: {error}"))?;
    // Nobody serves faults: nothing that is managed may be touched but the thread's block.
    let missing = Pagemap::open().ok().and_then(|pagemap| {
        (stack - 8..stack + 3).find(|page| {
            !pagemap
                .page(addr + page * 4096)
                .is_ok_and(|flags| flags.present())
        })
    });
    engine.fork_parent(ticket, -libc::EAGAIN);
    engine.call(Call::Unpin { addr, len });
    if let Some(page) = missing {
        return Err(format!("page {page} left before the fork"));
    }
    exact(0, pages)
}

/// Calls that the kernel refuses cost no byte.
fn refused(engine: &Engine, addr: usize, words: &[u64]) -> Result<(), String> {
    let len = words.len() * 8;
    let advise = |advice| engine.madvise(addr, len, advice);
    let remap = |flags, new_addr| engine.mremap(addr, len / 2, len / 2, flags, new_addr);
    engine.call(Call::Mlock { addr, len: 4096 });
    // SAFETY: locks a page of this test's.
    unsafe { libc::mlock(addr as *const _, 4096) };
    let results = [
        advise(libc::MADV_REMOVE),
        advise(libc::MADV_DONTNEED),
        remap(libc::MREMAP_FIXED, addr + len / 2),
        remap(libc::MREMAP_FIXED | libc::MREMAP_MAYMOVE, addr + len / 4),
    ];
    // SAFETY: unlocks it.
    unsafe { libc::munlock(addr as *const _, 4096) };
    engine.call(Call::Munlock { addr, len: 4096 });
    let wrong = |&page: &usize| words[page * WORDS_A_PAGE] != mark(page, 4);
    if let Some(page) = (0..len / 4096).find(wrong) {
        return Err(format!(
            "after refused calls, page {page} holds a wrong byte"
        ));
    }
    if results != [-libc::EINVAL as isize; 4] {
        return Err(format!("the kernel refuses these calls: {results:?}"));
    }
    Ok(())
}

/// Discarded pages read as zeroes, the others keep their content; a moved range keeps its own.
fn discard(engine: &Engine, words: &mut [u64], pages: usize) -> Result<(), String> {
    let half = pages / 2;
    let addr = words.as_mut_ptr() as usize;
    refused(engine, addr, words)?;
    engine.madvise(addr, half * 4096, libc::MADV_DONTNEED);
    for page in 0..pages {
        let expected = if page < half { 0 } else { mark(page, 4) };
        if words[page * WORDS_A_PAGE] != expected {
            return Err(format!("after discard, page {page} holds a wrong byte"));
        }
    }
    let flags = libc::MREMAP_MAYMOVE;
    let len = (pages - half) * 4096;
    let moved = engine.mremap(addr + half * 4096, len, 2 * len, flags, 0);
    if moved < 0 {
        return Err(format!("mremap: {moved}"));
    }
    // SAFETY: the range that mremap returned; the old one is not used any more.
    let moved = unsafe { std::slice::from_raw_parts(moved as *const u64, 2 * len / 8) };
    for page in 0..2 * (pages - half) {
        let expected = if page < pages - half {
            mark(half + page, 4)
        } else {
            0
        };
        if moved[page * WORDS_A_PAGE] != expected {
            return Err(format!("after a move, page {page} holds a wrong byte"));
        }
    }
    Ok(())
}
