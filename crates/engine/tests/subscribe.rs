//! A program that learns which of its pages are paged out, before it touches them; every byte is compared.

use std::collections::BTreeSet;
use std::process::ExitCode;

use outpage_core::units::PAGE_BYTES;
use outpage_engine::config::{Config, Encrypt};
use outpage_engine::scope::{Scope, ScopeError};
use outpage_sys::map;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{Features, Uffd, Wanted};

#[global_allocator]
static ARENA: outpage_sys::arena::Arena = outpage_sys::arena::Arena::new();

const LIMIT: u64 = 8 << 20;
const PAGES: usize = 2 * LIMIT as usize / PAGE_BYTES;
/// How often it is asked whether two answers agree, while pages are on their way.
const TRIES: usize = 10_000;

fn main() -> ExitCode {
    let opened = Uffd::open(&Wanted {
        inherited: None,
        required: Features::PAGEFAULT_FLAG_WP,
        optional: Features::NONE,
    });
    if let Err(why) = opened {
        eprintln!("SKIPPED: subscribe: {why}");
        return ExitCode::SUCCESS;
    }
    match subscribed() {
        Ok(()) => {
            println!("subscribe: passed");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("subscribe: FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

fn word(start: usize, page: usize) -> &'static mut u64 {
    let at: *mut u64 = std::ptr::with_exposed_provenance_mut(start + page * PAGE_BYTES);
    // SAFETY: mapped by `subscribed` for good, and only one is in use at a time.
    unsafe { &mut *at }
}

fn subscribed() -> Result<(), String> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let bytes = PAGES * PAGE_BYTES;
    let start = map::mmap(0, bytes, prot, flags, -1, 0).map_err(|e| e.to_string())?;
    let config = Config {
        swap_dir: env!("CARGO_TARGET_TMPDIR").into(),
        swap_cap: Some(64 << 20),
        encrypt: Encrypt::Off,
        ..Config::new(LIMIT)
    };
    let scope = Scope::open(config, None).map_err(|e| e.to_string())?;
    let says = |error: ScopeError| error.to_string();
    let range = start..start + bytes;
    let unmanaged = scope.subscribe(range.clone()).map(drop);
    scope.manage(range.clone()).map_err(says)?;
    let ragged = scope.subscribe(start + 1..start + PAGE_BYTES).map(drop);
    let invalid = Err(ScopeError::Os(Errno::EINVAL));
    if (unmanaged, ragged) != (invalid.clone(), invalid) {
        return Err("a range that cannot be subscribed to is not refused".into());
    }
    (0..PAGES / 2 + 512).for_each(|page| *word(start, page) = page as u64 + 1);
    // What left before is told of as well.
    let mut subscription = scope.subscribe(range.clone()).map_err(says)?;
    if scope.subscribe(range).map(drop) != Err(ScopeError::Os(Errno::EBUSY)) {
        return Err("a second subscription is not refused".into());
    }
    (PAGES / 2 + 512..PAGES).for_each(|page| *word(start, page) = page as u64 + 1);
    let mut out = BTreeSet::new();
    let mut drain = |subscription: &mut outpage_engine::scope::Subscription| {
        subscription.drain(|address, is_out| {
            if is_out {
                out.insert(address);
            } else {
                out.remove(&address);
            }
        });
        out.clone()
    };
    let told = drain(&mut subscription);
    let early = told
        .iter()
        .filter(|&&at| at < start + 256 * PAGE_BYTES)
        .count();
    // What has a frame is at most the limit; pages that left before the subscription are among those told of.
    if told.len() < PAGES / 2 - 64 || early == 0 {
        return Err(format!(
            "{} pages told of, {early} of the first",
            told.len()
        ));
    }
    for page in 0..PAGES {
        let address = start + page * PAGE_BYTES;
        if *word(start, page) != page as u64 + 1 {
            return Err(format!("page {page} is not what was written"));
        }
        if subscription.is_out(address) {
            return Err(format!("page {page} is called out while it is in use"));
        }
    }
    // What is on its way leaves or comes between two questions: asked again until nothing does.
    let mut wrong_ones = || {
        let now = drain(&mut subscription);
        let addresses = (0..PAGES).map(|page| start + page * PAGE_BYTES);
        let wrong = addresses.filter(|at| now.contains(at) != subscription.is_out(*at));
        wrong.count()
    };
    let agree = (0..TRIES).map(|_| wrong_ones()).find(|&wrong| wrong == 0);
    if agree.is_none() {
        return Err("pages are not what the drain said".into());
    }
    scope.close().map_err(says)?;
    let still = (0..PAGES)
        .filter(|page| subscription.is_out(start + page * PAGE_BYTES))
        .count();
    match still {
        0 => Ok(()),
        still => Err(format!(
            "{still} pages are called out after they were given back"
        )),
    }
}
