//! Several engines page memory that this very process handed them; every byte is compared.
//!
//! Each case runs in a process of its own, because it counts the process's threads and mappings.

use std::ops::Range;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use outpage_core::units::PAGE_BYTES;
use outpage_engine::OpenStore;
use outpage_engine::config::{Config, Encrypt, Mechanism, StoreKind, parse_reclaim};
use outpage_engine::scope::{Failure, Scope, ScopeError};
use outpage_sys::map;
use outpage_sys::pagemap::{PageFlags, Pagemap};
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{Features, Uffd, Wanted};

#[path = "scopes/breaking.rs"]
mod breaking;
#[path = "scopes/counting.rs"]
mod counting;
#[path = "scopes/gate.rs"]
mod gate;

use breaking::Breaking;
use counting::{descriptors, file_mappings, own_bytes, resident_bytes, threads};
use gate::Gate;

#[global_allocator]
static ARENA: outpage_sys::arena::Arena = outpage_sys::arena::Arena::new();

const LIMIT: u64 = 8 << 20;
const LIMIT_PAGES: usize = LIMIT as usize / PAGE_BYTES;
const WORDS_A_PAGE: usize = PAGE_BYTES / 8;

type Case = (&'static str, Mechanism, fn(Mechanism) -> Result<(), String>);

const CASES: [Case; 8] = [
    ("one-fails", Mechanism::Move, one_fails),
    ("one-fails-protect", Mechanism::WriteProtect, one_fails),
    ("comes-back", Mechanism::Move, comes_back),
    ("comes-back-protect", Mechanism::WriteProtect, comes_back),
    ("refuses", Mechanism::Move, refuses),
    ("parts", Mechanism::Move, parts),
    ("others-go-on", Mechanism::Move, others_go_on),
    (
        "others-go-on-protect",
        Mechanism::WriteProtect,
        others_go_on,
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|a| a == "--case") {
        let case = CASES.iter().find(|case| case.0 == arguments[at + 1]);
        let (_, mechanism, run) = case.expect("a case of this list");
        return match run(*mechanism) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, mechanism, _) in CASES {
        let required = match mechanism {
            Mechanism::Move => Features::MOVE,
            _ => Features::PAGEFAULT_FLAG_WP,
        };
        let opened = Uffd::open(&Wanted {
            inherited: None,
            required,
            optional: Features::NONE,
        });
        if let Err(why) = opened {
            eprintln!("SKIPPED: {name}: {why}");
            skipped += 1;
            continue;
        }
        let own = std::env::current_exe().expect("own path");
        let status = Command::new(own).args(["--case", name]).status();
        if status.as_ref().is_ok_and(std::process::ExitStatus::success) {
            println!("{name}: passed");
            passed += 1;
        } else {
            println!("{name}: FAILED ({status:?})");
            failed += 1;
        }
    }
    println!("\nscopes: {passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}

fn config(mechanism: Mechanism) -> Config {
    Config {
        swap_dir: env!("CARGO_TARGET_TMPDIR").into(),
        swap_cap: Some(64 << 20),
        mechanism,
        // The pool has threads and the key a page, of which none may be left behind.
        store: match mechanism {
            Mechanism::WriteProtect => StoreKind::Pool,
            _ => StoreKind::Auto,
        },
        encrypt: match mechanism {
            Mechanism::WriteProtect => Encrypt::On,
            _ => Encrypt::Off,
        },
        ..Config::new(LIMIT)
    }
}

fn open(mechanism: Mechanism, store: Option<OpenStore>) -> Result<Scope, String> {
    Scope::open(config(mechanism), store).map_err(|e| e.to_string())
}

fn says(error: ScopeError) -> String {
    error.to_string()
}

/// Memory that a scope gets, and what it has to hold.
struct Memory {
    start: usize,
    /// By page: which round wrote it, 0 for nobody.
    rounds: Vec<u64>,
}

/// Lies in place of a page that was lost, by [`put_in_place`].
const LOST: u64 = 0x1057_1057_1057_1057;

fn word(start: usize, page: usize, round: u64, i: usize) -> u64 {
    let seed = (start / PAGE_BYTES + page) as u64 ^ round << 40;
    (seed ^ (i as u64) << 20).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Memory {
    fn map(pages: usize) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // Pages of a guard keep it from being joined to what lies beside it.
        let len = (pages + 2) * PAGE_BYTES;
        let whole = map::mmap(0, len, libc::PROT_NONE, flags, -1, 0).expect("address space");
        let start = whole + PAGE_BYTES;
        map::mprotect(start, pages * PAGE_BYTES, prot).expect("just mapped");
        Self {
            start,
            rounds: vec![0; pages],
        }
    }

    fn range(&self) -> Range<usize> {
        self.pages(0..self.rounds.len())
    }

    fn pages(&self, pages: Range<usize>) -> Range<usize> {
        self.start + pages.start * PAGE_BYTES..self.start + pages.end * PAGE_BYTES
    }

    fn page(&mut self, page: usize) -> &mut [u64] {
        let at: *mut u64 = std::ptr::with_exposed_provenance_mut(self.start + page * PAGE_BYTES);
        // SAFETY: mapped, of whole words, and borrowed with the only value that knows it.
        unsafe { std::slice::from_raw_parts_mut(at, WORDS_A_PAGE) }
    }

    fn write(&mut self, page: usize, round: u64) {
        let start = self.start;
        for (i, to) in self.page(page).iter_mut().enumerate() {
            *to = word(start, page, round, i);
        }
        self.rounds[page] = round;
    }

    /// Compares every byte. Whether the page is there; false if it is lost.
    fn check(&mut self, page: usize) -> Result<bool, String> {
        let (start, round) = (self.start, self.rounds[page]);
        let words = self.page(page);
        if words.iter().all(|&w| w == LOST) {
            return Ok(false);
        }
        for (i, &found) in words.iter().enumerate() {
            let expected = match round {
                0 => 0,
                round => word(start, page, round, i),
            };
            if found != expected {
                return Err(format!(
                    "page {page}, word {i}: {found:#x} instead of {expected:#x} (round {round})"
                ));
            }
        }
        Ok(true)
    }

    fn check_all(&mut self) -> Result<usize, String> {
        let mut there = 0;
        for page in 0..self.rounds.len() {
            there += usize::from(self.check(page)?);
        }
        Ok(there)
    }

    fn check_whole(&mut self) -> Result<(), String> {
        let there = self.check_all()?;
        require(there == self.rounds.len(), "pages are lost")
    }

    fn present(&self) -> usize {
        let mut flags = vec![PageFlags::default(); self.rounds.len()];
        let pagemap = Pagemap::open().expect("/proc/self/pagemap");
        pagemap.read(self.start, &mut flags).expect("mapped");
        flags.iter().filter(|flags| !flags.empty()).count()
    }

    fn is_present(&self, page: usize) -> bool {
        let pagemap = Pagemap::open().expect("/proc/self/pagemap");
        let flags = pagemap.page(self.start + page * PAGE_BYTES);
        !flags.expect("mapped").empty()
    }

    fn unmap(self) {
        let (start, pages) = (self.start - PAGE_BYTES, self.rounds.len() + 2);
        map::munmap(start, pages * PAGE_BYTES).expect("mapped");
    }
}

fn require(holds: bool, what: &str) -> Result<(), String> {
    holds.then_some(()).ok_or_else(|| what.to_owned())
}

/// Not random, and far apart.
fn scattered(i: usize, pages: usize) -> usize {
    i.wrapping_mul(0x9E37_79B1) % pages
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

/// The page whose touch was signalled gets a content of its own, once: the touch is repeated.
extern "C" fn put_in_place(_: libc::c_int, info: *const libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel fills it in for SIGBUS and SIGSEGV.
    let page = unsafe { (*info).si_addr() }.addr() & !(PAGE_BYTES - 1);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    if map::mmap(page, PAGE_BYTES, prot, flags, -1, 0).is_err() {
        std::process::abort();
    }
    let words: *mut u64 = std::ptr::with_exposed_provenance_mut(page);
    for i in 0..WORDS_A_PAGE {
        // SAFETY: just mapped.
        unsafe { words.add(i).write(LOST) };
    }
    SIGNALS.fetch_add(1, SeqCst);
}

fn expect_signals() {
    for signal in [libc::SIGBUS, libc::SIGSEGV] {
        // SAFETY: plain data, of which zeroes are valid; the handler makes system calls alone.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = put_in_place as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Two engines, each with a limit and a store. One store fails for good while both page: the other's bytes are exact, the
/// scope of the first ends with an error, and each of its pages is exact or signals.
fn one_fails(mechanism: Mechanism) -> Result<(), String> {
    expect_signals();
    let [ailing, sound] = [Breaking::default(), Breaking::default()];
    let one = open(mechanism, Some(ailing.open()))?;
    let other = open(mechanism, Some(sound.open()))?;
    let mut theirs = Memory::map(3 * LIMIT_PAGES);
    let mut ours = Memory::map(3 * LIMIT_PAGES);
    one.manage(theirs.range()).map_err(says)?;
    other.manage(ours.range()).map_err(says)?;
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let sound_one = threads.spawn(|| keep_paging(&mut ours, &done));
        let result = break_store(&one, &mut theirs, &ailing);
        done.store(true, SeqCst);
        sound_one.join().map_err(|_| "a panic")??;
        result
    })?;
    require(sound.paged(), "the sound store was not used both ways")?;
    require(other.ended().is_none(), "the sound scope ended")?;
    let ended = one.ended().ok_or("the ailing scope goes on")?;
    require(
        ended.failure == Failure::SwapFull,
        &format!("ended by: {}", ended.failure),
    )?;
    let there = theirs.check_all()?;
    let lost = theirs.rounds.len() - there;
    println!(
        "{lost} pages of {} lost, {} signals",
        theirs.rounds.len(),
        SIGNALS.load(SeqCst)
    );
    require(
        lost == SIGNALS.load(SeqCst),
        "a page was lost without a signal",
    )?;
    require(ended.pages_lost <= lost && lost > 0, "nothing was lost")?;
    let again = one.manage(theirs.range());
    require(
        again == Err(ScopeError::Ended(ended.clone())),
        "an ended scope takes memory",
    )?;
    require(
        one.close() == Err(ScopeError::Ended(ended)),
        "closing does not tell why it ended",
    )?;
    ours.check_whole()?;
    require(other.close() == Ok(0), "closing the sound scope")?;
    ours.check_whole()
}

/// Pages until it is told to stop, and once more all over.
fn keep_paging(memory: &mut Memory, done: &AtomicBool) -> Result<(), String> {
    let pages = memory.rounds.len();
    let mut round = 0;
    loop {
        round += 1;
        let last = done.load(SeqCst);
        for i in 0..pages {
            let page = scattered(i, pages);
            require(memory.check(page)?, "a page of the sound scope is lost")?;
            memory.write(page, round);
        }
        if last {
            return memory.check_whole();
        }
    }
}

fn break_store(scope: &Scope, memory: &mut Memory, store: &Breaking) -> Result<(), String> {
    let touched = 2 * LIMIT_PAGES;
    (0..touched).for_each(|page| memory.write(page, 1));
    memory.check_all()?;
    require(store.paged(), "the ailing store was not used both ways")?;
    store.break_for_good();
    // What is in RAM changes; what is not is lost, and signals.
    for i in 0..touched {
        let page = scattered(i, touched);
        if memory.check(page)? {
            memory.write(page, 2);
        }
    }
    // A frame for a page more is not to be had, and the scope ends while this thread waits for one.
    for page in touched..memory.rounds.len() {
        memory.write(page, 3);
    }
    let answer = scope.take_back(memory.range());
    let has_ended = matches!(answer, Err(ScopeError::Ended(_)));
    require(has_ended, "the scope does not end")
}

/// A scope that is closed leaves every page with its bytes, and nothing else.
fn comes_back(mechanism: Mechanism) -> Result<(), String> {
    let mut before = None;
    for cycle in 0..6 {
        one_cycle(mechanism, cycle)?;
        let left = (threads(), descriptors(), own_bytes(), file_mappings());
        // What is kept for good is there after the first two.
        if cycle == 1 {
            before = Some(left);
        }
        let same = before.is_none_or(|before| before == left);
        require(same, &format!("left behind: {before:?} became {left:?}"))?;
    }
    Ok(())
}

fn one_cycle(mechanism: Mechanism, cycle: u64) -> Result<(), String> {
    let mut memory = Memory::map(3 * LIMIT_PAGES);
    let pages = memory.rounds.len();
    // Some of it is there before.
    for page in 0..LIMIT_PAGES / 2 {
        memory.write(page, 1 + cycle);
    }
    let base = resident_bytes() - LIMIT / 2;
    let scope = open(mechanism, None)?;
    scope.manage(memory.range()).map_err(says)?;
    let mut most = 0;
    for i in 0..2 * pages {
        let page = scattered(i, pages);
        require(memory.check(page)?, "lost")?;
        // A part stays untouched, a part is zero again.
        match page % 8 {
            0 => {}
            1 => {
                memory.page(page).fill(0);
                memory.rounds[page] = 0;
            }
            _ => memory.write(page, 2 + cycle + i as u64),
        }
        if i % 64 == 0 {
            most = most.max(resident_bytes().saturating_sub(base));
        }
    }
    let present = memory.present();
    require(present <= LIMIT_PAGES, &format!("{present} pages present"))?;
    // Tables, stacks, the pager's lists of 6,000 pages.
    let bound = LIMIT + (2 << 20);
    require(most <= bound, &format!("{most} bytes in RAM"))?;
    if cycle.is_multiple_of(2) {
        require(scope.close() == Ok(0), "closing")?;
    } else {
        drop(scope);
    }
    let before = memory.present();
    memory.check_whole()?;
    // Ordinary memory: nothing was brought in by that but pages of zeroes.
    require(before >= pages / 2, "pages came in after the end")?;
    memory.unmap();
    Ok(())
}

/// What is not the program's to hand over is refused, and nothing is managed then.
fn refuses(mechanism: Mechanism) -> Result<(), String> {
    let [one, other] = [open(mechanism, None)?, open(mechanism, None)?];
    let mut memory = Memory::map(64);
    let range = memory.range();
    let os = |error| Err(ScopeError::Os(error));
    let odd = range.start + 1..range.end;
    require(one.manage(odd) == os(Errno::EINVAL), "parts of pages")?;
    require(one.manage(0..0) == os(Errno::EINVAL), "nothing")?;
    let beyond = range.start..range.end + 4096 * PAGE_BYTES;
    require(
        one.manage(beyond) == os(Errno::EINVAL),
        "what is not mapped",
    )?;
    require(one.manage(memory.pages(32..64)) == Ok(()), "a part")?;
    require(one.manage(range.clone()) == os(Errno::EEXIST), "twice")?;
    require(
        other.manage(range.clone()) == os(Errno::EBUSY),
        "another engine's",
    )?;
    require(other.manage(memory.pages(0..32)) == Ok(()), "the rest")?;
    (0..64).for_each(|page| memory.write(page, 1));
    require(one.take_back(range) == Ok(0), "taking back")?;
    memory.check_whole()?;
    require(other.manage(memory.pages(32..64)) == Ok(()), "handing on")?;
    require(one.close() == Ok(0), "closing")?;
    memory.check_whole()?;
    drop(other);
    memory.check_whole()
}

/// Parts are taken back, unmapped, moved and emptied while the rest goes on.
fn parts(mechanism: Mechanism) -> Result<(), String> {
    let scope = open(mechanism, None)?;
    let mut memory = Memory::map(3 * LIMIT_PAGES);
    let pages = memory.rounds.len();
    scope.manage(memory.range()).map_err(says)?;
    (0..pages).for_each(|page| memory.write(page, 1));
    let half = memory.pages(LIMIT_PAGES / 2..2 * LIMIT_PAGES);
    require(scope.take_back(half.clone()) == Ok(0), "taking back")?;
    memory.check_whole()?;
    (0..pages).for_each(|page| memory.write(page, 2));
    memory.check_whole()?;
    scope.manage(half).map_err(says)?;
    // Emptied behind the hooks' back, of which the kernel tells.
    let emptied = memory.pages(100..200);
    map::release(emptied.start, emptied.len()).map_err(|e| e.to_string())?;
    memory.rounds[100..200].fill(0);
    memory.check_whole()?;
    // Moved away, and back to where it was.
    let moved = memory.pages(300..700);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let elsewhere = Memory::map(400);
    let there = elsewhere.start;
    for (from, to) in [(moved.start, there), (there, moved.start)] {
        let engine = scope.engine();
        let result = engine.mremap(from, moved.len(), moved.len(), flags, to);
        require(result == to as isize, "mremap")?;
    }
    memory.check_whole()?;
    // The end unmapped.
    let end = memory.pages(pages - 100..pages);
    map::munmap(end.start, end.len()).map_err(|e| e.to_string())?;
    memory.rounds.truncate(pages - 100);
    memory.check_whole()?;
    require(scope.close() == Ok(0), "closing")?;
    memory.check_whole()
}

/// The pager waits for the read of a page that was emptied meanwhile. The store does not answer before other threads had the pages that
/// they touched, which take no transfer.
fn others_go_on(mechanism: Mechanism) -> Result<(), String> {
    let (store, gate) = (Breaking::default(), Arc::new(Gate::default()));
    // In order, so that what was written last is in RAM.
    let config = Config {
        reclaim: parse_reclaim("second-chance")?,
        ..config(mechanism)
    };
    let opened = Scope::open(config, Some(gate.over(store.open())));
    let scope = opened.map_err(|e| e.to_string())?;
    let mut memory = Memory::map(3 * LIMIT_PAGES);
    let pages = memory.rounds.len();
    scope.manage(memory.range()).map_err(says)?;
    (0..pages).for_each(|page| memory.write(page, 1));
    // Frames for what is touched later.
    let emptied = memory.pages(pages - 600..pages);
    map::release(emptied.start, emptied.len()).map_err(|e| e.to_string())?;
    memory.rounds[pages - 600..].fill(0);
    let out = (0..pages).find(|&page| !memory.is_present(page));
    let out = out.ok_or("every page is in RAM")?;
    let reads = store.state.reads.load(SeqCst);
    gate.closed.store(true, SeqCst);
    let first_word = memory.pages(out..out + 1).start;
    let found = std::thread::scope(|threads| {
        let reader = threads.spawn(move || read_word(first_word));
        while store.state.reads.load(SeqCst) == reads {
            std::thread::yield_now();
        }
        threads.spawn(|| gate.open_if_nobody_goes_on());
        let gone = memory.pages(out..out + 1);
        map::release(gone.start, gone.len()).map_err(|e| e.to_string())?;
        memory.rounds[out] = 0;
        for page in pages - 600..pages - 472 {
            require(memory.check(page)?, "lost")?;
            memory.write(page, 2);
        }
        gate.closed.store(false, SeqCst);
        reader.join().map_err(|_| "a panic".to_owned())
    })?;
    require(!gate.forced.load(SeqCst), "everybody waits for the store")?;
    require(found == 0, "an emptied page has what it had")?;
    memory.check_whole()?;
    require(scope.close() == Ok(0), "closing")?;
    memory.check_whole()
}

fn read_word(address: usize) -> u64 {
    let word: *const u64 = std::ptr::with_exposed_provenance(address);
    // SAFETY: a word of memory that is mapped while the caller waits.
    unsafe { word.read_volatile() }
}

impl Breaking {
    fn open(&self) -> OpenStore {
        self.over(env!("CARGO_TARGET_TMPDIR").as_ref(), 64 << 20)
    }

    fn paged(&self) -> bool {
        let state = &self.state;
        state.reads.load(SeqCst) > 10 && state.writes.load(SeqCst) > 10
    }

    fn break_for_good(&self) {
        self.state.broken.store(true, SeqCst);
    }
}
