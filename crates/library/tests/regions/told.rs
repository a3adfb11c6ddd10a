//! A program knows which of its pages are out, and hears of them before they leave.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use outpage::{Builder, Error, Place, Region};
use outpage_sys::libc;

use crate::{A_PAGE, WITHIN, check, fill, value};

/// What `look` saw, and where the pages were before and after it: what is being written leaves at any moment, touched or not.
fn while_none_leaves<T>(
    region: &Region<u64>,
    mut look: impl FnMut() -> Result<T, Error>,
) -> Result<(Vec<Place>, T), Error> {
    loop {
        let before = region.places(0..region.len())?;
        let seen = look()?;
        if region.places(0..region.len())? == before {
            return Ok((before, seen));
        }
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
        let mut told = BTreeMap::new();
        let (places, (said, stats)) = while_none_leaves(region, || {
            let said: Vec<_> = (0..PAGES)
                .map(|page| subscription.is_out(page * 4096))
                .collect();
            subscription.drain(|at, out| {
                told.insert(at / 4096, out);
            });
            Ok((said, region.stats()?))
        })?;
        let out = |at: usize| places[at] == Place::PagedOut;
        let wrong = (0..PAGES).filter(|&page| said[page] != out(page));
        assert_eq!(wrong.count(), 0, "{:?}", stats.residency);
        let wrong = told.iter().filter(|&(&page, &told)| out(page) != told);
        assert_eq!(wrong.count(), 0, "what the drain said");
        let traffic = stats.traffic.expect("subscribed to");
        assert_eq!(traffic.out - traffic.back, stats.residency.paged_out as u64);
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
    let (places, said) = while_none_leaves(&regions[0], || {
        let pages = 0..PAGES / 4;
        let said = pages.map(|page| subscriptions[0].is_out(page * 4096));
        Ok(said.collect::<Vec<_>>())
    })?;
    for (page, (&told, place)) in said.iter().zip(&places).enumerate() {
        assert_eq!(told, *place == Place::PagedOut, "page {page}");
    }
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
        let pages = region.len() / A_PAGE;
        let mut told = BTreeMap::new();
        let (places, (said, stats)) = while_none_leaves(region, || {
            let pages = 0..pages;
            let said = pages.map(|page| subscription.is_out(page * 4096));
            let said: Vec<_> = said.collect();
            subscription.drain(|at, out| {
                told.insert(at / 4096, out);
            });
            Ok((said, region.stats()?))
        })?;
        let out: Vec<_> = places.iter().map(|&at| at == Place::PagedOut).collect();
        assert!(said == out && told.iter().all(|(&page, &told)| out[page] == told));
        let traffic = stats.traffic.expect("subscribed to");
        assert_eq!(traffic.out - traffic.back, stats.residency.paged_out as u64);
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
