//! What is left of regions when the swap file fails, and in forked children.

use outpage::{Builder, Error, Pager, Place, Reason};
use outpage_sys::libc;

use crate::{A_PAGE, LIMIT, WITHIN, check, fill, value};

/// The swap file is full: the pager ends with an error, and what it had is ordinary memory.
pub fn swap_full(builder: Builder) -> Result<(), Error> {
    let pager = builder.set("swap-cap", "16M").open()?;
    let mut region = pager.zeros::<u64>(4 * WITHIN)?;
    fill(&mut region, 1);
    // While it winds up calls wait.
    assert!(matches!(pager.stats(), Err(Error::Ended(_))));
    let ended = pager.ended().expect("the swap file is full");
    assert_eq!((ended.reason, ended.pages_lost), (Reason::SwapFull, 0));
    check(&region, 1);
    for error in [
        pager.stats().err(),
        pager.zeros::<u64>(1).err(),
        region.resize(5).err(),
        region.pin(0..1).err(),
        region.residency().err(),
    ] {
        assert!(matches!(error, Some(Error::Ended(_))), "{error:?}");
    }
    let mut values = [0; 3];
    region.read(7, &mut values)?;
    assert_eq!(values, [value(7, 1), value(8, 1), value(9, 1)]);
    Ok(())
}

/// Reads fail: who asks hears of lost pages, and no page is zeroes.
pub fn loses(builder: Builder) -> Result<(), Error> {
    let pager = builder
        .set("faults", "seed=3,read=1000")
        .set("readahead", "none")
        .open()?;
    let mut region = pager.zeros::<u64>(4 * WITHIN)?;
    fill(&mut region, 1);
    let mut lost = 0;
    for page in 0..4 * WITHIN / A_PAGE {
        let mut found = [0; 2];
        match region.read(page * A_PAGE + 5, &mut found) {
            Ok(()) => check(&[found[0] ^ value(page * A_PAGE + 5, 1) ^ value(0, 1)], 1),
            Err(Error::Lost(1)) => lost += 1,
            Err(other) => return Err(other),
        }
    }
    assert!(lost > 1000, "{lost}");
    assert_eq!(region.residency()?.lost, lost);
    let page = region
        .places(0..4 * WITHIN)?
        .iter()
        .position(|&place| place == Place::Lost);
    let at = page.expect("one is lost") * A_PAGE;
    assert!(matches!(region.write(at, &[1]), Err(Error::Lost(1))));
    assert!(matches!(region.prefault(at..at + 1), Err(Error::Lost(1))));
    Ok(())
}

pub fn signalled(builder: Builder) -> Result<(), Error> {
    let pager = builder.set("faults", "seed=3,read=1000").open()?;
    let mut region = pager.zeros::<u64>(4 * WITHIN)?;
    fill(&mut region, 1);
    assert_eq!(region.iter().filter(|&&v| v == 0).count(), 0);
    Ok(())
}

/// A child has no part of it, and may drop what it has; the parent goes on.
pub fn forks(builder: Builder) -> Result<(), Error> {
    let pager = builder.open()?;
    let mut region = pager.zeros::<u64>(2 * WITHIN)?;
    fill(&mut region, 1);
    let (told, heard) = std::sync::mpsc::channel();
    let watch = region.watch(move |_| {
        let _ = told.send(());
    })?;
    // SAFETY: the child calls this library, and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = [
            pager.stats().err(),
            pager.zeros::<u64>(1).err(),
            region.resize(5).err(),
            region.clear(0..1).err(),
            region.read(0, &mut [0]).err(),
        ];
        let all = refused.iter().all(|e| matches!(e, Some(Error::Forked)));
        drop((watch, region, pager));
        let own = Pager::new(LIMIT).and_then(|pager| pager.zeros::<u64>(2 * WITHIN));
        let pages = own.map(|mut region| {
            fill(&mut region, 3);
            check(&region, 3);
        });
        // SAFETY: ends the child without what it inherited to be done at exit.
        unsafe { libc::_exit(i32::from(!all || pages.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child");
    check(&region, 1);
    // The child's end of its copy was none of this one's.
    heard.try_iter().for_each(drop);
    check(&region, 1);
    let minute = std::time::Duration::from_secs(60);
    assert!(heard.recv_timeout(minute).is_ok(), "nobody listens");
    drop(watch);
    Ok(())
}
