//! A program knows which of its pages are out, and hears of them before they leave.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use outpage::{Builder, Error, Place, Region, RegionStats, Subscription};
use outpage_sys::libc;

use crate::{A_PAGE, WITHIN, check, fill, value};

/// What a subscription and its region say of the region's pages at one moment.
struct Told {
    places: Vec<Place>,
    /// By page, what the subscription drained, what is said last.
    drained: BTreeMap<usize, bool>,
    stats: RegionStats,
}

/// Asks until nothing is on its way: what is being written leaves at any moment, touched or not, and what is being read is `Staged` and out as long as that takes.
fn at_rest(region: &Region<u64>, subscription: &mut Subscription) -> Result<Told, Error> {
    let mut drained = BTreeMap::new();
    let begin = std::time::Instant::now();
    loop {
        let places = region.places(0..region.len())?;
        let said: Vec<_> = (0..places.len())
            .map(|page| subscription.is_out(page * 4096))
            .collect();
        subscription.drain(|at, out| {
            drained.insert(at / 4096, out);
        });
        let stats = region.stats()?;
        if region.places(0..region.len())? != places {
            continue;
        }
        let of_page = said.iter().zip(&places);
        let wrong: Vec<_> = of_page
            .enumerate()
            .filter(|(_, (said, place))| **said != (**place == Place::PagedOut))
            .collect();
        if wrong.is_empty() {
            return Ok(Told {
                places,
                drained,
                stats,
            });
        }
        let is_read = |said: bool, place: Place| said && place == Place::Staged;
        let all_read = wrong
            .iter()
            .all(|(_, (said, place))| is_read(**said, **place));
        let in_time = begin.elapsed().as_secs() < 60;
        assert!(all_read && in_time, "{:?}: {wrong:?}", stats.residency);
    }
}

impl Told {
    /// What was drained and what was counted is where the pages are.
    fn check(&self) {
        let out = |at: usize| self.places[at] == Place::PagedOut;
        let wrong = self
            .drained
            .iter()
            .filter(|&(&page, &told)| out(page) != told);
        assert_eq!(wrong.count(), 0, "what the drain said");
        let traffic = self.stats.traffic.expect("subscribed to");
        let paged_out = self.stats.residency.paged_out as u64;
        assert_eq!(traffic.out - traffic.back, paged_out);
    }
}

/// Several regions of a pager are told of, each of its own pages.
pub fn subscribes(builder: Builder) -> Result<(), Error> {
    const PAGES: usize = 2 * WITHIN / A_PAGE;
    let pager = builder.open()?;
    let mut regions = [pager.zeros::<u64>(2 * WITHIN)?, pager.zeros(2 * WITHIN)?];
    assert_eq!(regions[0].stats()?.traffic, None);
    let first = regions[0].subscribe()?;
    let second = regions[1].subscribe()?;
    let busy = regions[0].subscribe();
    assert!(matches!(busy, Err(Error::Os(_, libc::EBUSY))), "{busy:?}");
    let mut subscriptions = [first, second];
    for round in 1..3 {
        for (region, subscription) in regions.iter_mut().zip(&subscriptions) {
            fill(region, round);
            for page in 0..PAGES {
                let out = subscription.is_out(page * 4096);
                assert_eq!(region[page * A_PAGE], value(page * A_PAGE, round));
                let late = subscription.is_out(page * 4096 + 4095);
                assert!(!late, "page {page} is in use: {out}");
            }
        }
    }
    for (region, subscription) in regions.iter().zip(&mut subscriptions) {
        let told = at_rest(region, subscription)?;
        told.check();
        let traffic = told.stats.traffic.expect("subscribed to");
        assert!(traffic.back > PAGES as u64 / 2, "{traffic:?}");
        assert!(!subscription.is_out(usize::MAX) && !subscription.is_out(PAGES * 4096));
    }
    // What was taken away is told of no more, and a region that moved is told of as before.
    regions[0].resize(WITHIN / 2)?;
    fill(&mut regions[0], 3);
    fill(&mut regions[1], 3);
    assert!((PAGES / 4..PAGES).all(|page| !subscriptions[0].is_out(page * 4096)));
    assert!((0..PAGES / 4).any(|page| subscriptions[0].is_out(page * 4096)));
    regions[0].resize(4 * WITHIN)?;
    let places = regions[0].places(0..regions[0].len())?;
    let grown = &places[PAGES / 4..];
    assert!(grown.iter().all(|&place| place == Place::Untouched));
    at_rest(&regions[0], &mut subscriptions[0])?;
    check(&regions[0][..WITHIN / 2], 3);
    // Whoever goes makes room for others, a region of the same numbers among them.
    let [zeroth, other] = regions;
    drop(other);
    // A call is served after what changed before it.
    pager.stats()?;
    assert!((0..PAGES).all(|page| !subscriptions[1].is_out(page * 4096)));
    let again = pager.zeros::<u64>(2 * WITHIN)?;
    let _third = again.subscribe()?;
    drop(subscriptions);
    drop(zeroth.subscribe()?);
    let many = (0..64)
        .map(|_| pager.zeros::<u64>(1))
        .collect::<Result<Vec<_>, _>>()?;
    let told: Vec<_> = many.iter().map(Region::subscribe).collect();
    assert_eq!(told.iter().filter(|told| told.is_err()).count(), 1);
    Ok(())
}

/// Regions that grow by turns lie in pieces, and are told of as others are.
pub fn subscribes_in_pieces(builder: Builder) -> Result<(), Error> {
    const STEP: usize = WITHIN / 4;
    let pager = builder.open()?;
    let mut regions = [pager.zeros::<u64>(STEP)?, pager.zeros(STEP)?];
    for steps in 2..9 {
        for region in &mut regions {
            region.resize(steps * STEP)?;
        }
    }
    let mut subscriptions = [regions[0].subscribe()?, regions[1].subscribe()?];
    for region in &mut regions {
        fill(region, 4);
    }
    for (region, subscription) in regions.iter().zip(&mut subscriptions) {
        let told = at_rest(region, subscription)?;
        told.check();
        let traffic = told.stats.traffic.expect("subscribed to");
        assert!(traffic.minor_faults > 0, "{traffic:?}");
    }
    for region in &mut regions {
        check(region, 4);
        region.resize(STEP / 2)?;
    }
    pager.stats()?;
    let beyond = STEP / 2 / A_PAGE..8 * STEP / A_PAGE;
    let told = |page: usize| subscriptions[0].is_out(page * 4096);
    assert!(!beyond.into_iter().any(told));
    let traffic = regions[0].stats()?.traffic.expect("subscribed to");
    assert!(traffic.major_faults + traffic.minor_faults > traffic.back / 64);
    Ok(())
}

/// Every page that left was told of before, and who touches what is told of finds its bytes.
pub fn watches(builder: Builder) -> Result<(), Error> {
    const PAGES: usize = 2 * WITHIN / A_PAGE;
    let pager = builder.set("tier", "none").open()?;
    let memory = Arc::new(pager.memory(16 * WITHIN)?);
    let write_all = || {
        (0..PAGES).try_for_each(|page| memory.write(page * 4096, &(page as u64 + 1).to_ne_bytes()))
    };
    // Whatever is told of has its bytes by then.
    write_all()?;
    let told = Arc::new(Mutex::new(vec![0_u32; PAGES]));
    let (heard, weak) = (told.clone(), Arc::downgrade(&memory));
    let watch = memory.watch(move |bytes| {
        assert!(bytes.start.is_multiple_of(4096) && bytes.end.is_multiple_of(4096));
        let mut told = heard.lock().expect("no panic");
        let pages = bytes.start / 4096..bytes.end / 4096;
        told[pages].iter_mut().for_each(|count| *count += 1);
        // The pager serves this touch, too.
        let mut first = [0; 8];
        if let Some(memory) = weak
            .upgrade()
            .filter(|_| bytes.start.is_multiple_of(16 * 4096))
        {
            memory.read(bytes.start, &mut first).expect("a page");
            assert_eq!(u64::from_ne_bytes(first), bytes.start as u64 / 4096 + 1);
        }
    })?;
    let busy = memory.watch(|_| ()).map(drop);
    assert!(matches!(busy, Err(Error::Os(_, libc::EBUSY))), "{busy:?}");
    // Who watches may subscribe as well.
    let subscription = memory.subscribe()?;
    write_all()?;
    let out: Vec<usize> = (0..PAGES)
        .filter(|&page| subscription.is_out(page * 4096))
        .collect();
    assert!(out.len() > PAGES / 4, "{} of {PAGES}", out.len());
    let untold = || {
        let told = told.lock().expect("no panic");
        out.iter().filter(|&&page| told[page] == 0).count()
    };
    // The calls follow what happened, on another thread.
    let begin = std::time::Instant::now();
    while untold() > 0 && begin.elapsed().as_secs() < 60 {
        std::thread::yield_now();
    }
    assert_eq!(untold(), 0, "pages that left, and nobody was told");
    drop(watch);
    let before = told.lock().expect("no panic").clone();
    let mut number = [0; 8];
    for page in 0..PAGES {
        memory.read(page * 4096, &mut number)?;
        assert_eq!(u64::from_ne_bytes(number), page as u64 + 1);
    }
    assert_eq!(
        *told.lock().expect("no panic"),
        before,
        "nobody listens any more"
    );
    // A watch that a call of its own ends.
    let slot = Arc::new(Mutex::new(None));
    let own = slot.clone();
    let other = memory.watch(move |_| drop(own.lock().expect("no panic").take()))?;
    *slot.lock().expect("no panic") = Some(other);
    while slot.lock().expect("no panic").is_some() {
        (0..PAGES).try_for_each(|page| memory.write(page * 4096, &[1]))?;
    }
    memory.watch(|_| ()).map(drop)
}
