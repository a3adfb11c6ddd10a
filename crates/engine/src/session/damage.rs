//! A process of the tree that writes anywhere in the shared memory: others end with an error, and nothing
//! else happens to them.

use outpage_sys::fd;

use super::*;
use crate::tests::random::Random;

/// Writes up to 64 random bytes, most often where the head, the entries or the table of extents lie.
fn scribble(file: &Fd, random: &mut Random) {
    let len = size_of::<Layout>() as u64;
    let extents = std::mem::offset_of!(Layout, extents) as u64;
    let bids = std::mem::offset_of!(Layout, board.bids) as u64;
    let (from, room) = match random.below(5) {
        3 => (bids, 1024),
        0 => (0, std::mem::offset_of!(Layout, board.ledgers) as u64),
        1 => (extents, 4096),
        2 => (std::mem::offset_of!(Layout, board.members) as u64, 1024),
        _ => (0, len),
    };
    let offset = from + random.below(room);
    let bytes: Vec<u8> = (0..1 + random.below(64).min(len - offset - 1))
        .map(|_| random.next() as u8)
        .collect();
    // The numbers of entries' states are few: random ones would hardly ever be real.
    let bytes = if random.below(3) == 0 {
        vec![random.below(4) as u8, 0, 0, 0]
    } else {
        bytes
    };
    if offset + bytes.len() as u64 <= len {
        fd::pwrite(file.number(), &bytes, offset).expect("write");
    }
}

/// One of everything that a process does with its session. Errors are answers like any other.
fn do_something(view: &mut Session, leased: &mut Vec<u32>, random: &mut Random) {
    if view.me().is_none() {
        leased.clear();
        let _ = match random.below(2) {
            0 => view.join().map(drop),
            _ => view.join_direct(),
        };
        return;
    }
    match random.below(12) {
        0 => drop(view.reserve(random.below(200))),
        1 => view.release(random.below(view.held_pages() + 1)),
        2 => view.want(random.next()),
        3 => {
            view.bid(&Worth {
                gains: std::array::from_fn(|_| random.next()),
                near: random.next(),
                ..Worth::default()
            });
            let claims = &mut Vec::new();
            view.target(claims);
            assert!(claims.len() <= MEMBERS_MAX);
        }
        4 => leased.extend(view.lease_extent()),
        5 => {
            if let Some(extent) = leased.pop() {
                view.release_extent(extent);
            }
        }
        6 => {
            if let Ok(child) = view.begin_fork() {
                view.fork_done(child, random.below(1 << 22) as u32);
                view.cancel_fork(child);
            }
        }
        7 => drop(view.leave()),
        8 => drop((view.reap(), view.reap_all())),
        9 => drop((view.totals(), view.waits().minor.quantile(0.5))),
        10 => drop((view.object_uses(4), view.members().count())),
        _ => view.counters().count_write(random.below(64)),
    }
    assert!(leased.iter().all(|&extent| extent < view.extents_cap()));
}

#[test]
fn random_bytes_lead_to_errors_and_to_nothing_else() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let (watcher, file) = Session::create(100, 40 * EXTENT_BYTES).expect("session");
        watcher.keep(tests::this_process());
        let mut views: Vec<_> = (0..3)
            .filter_map(|_| Session::from_fd(file.number()).ok())
            .map(|view| (view, Vec::new()))
            .collect();
        for _ in 0..60 {
            if random.below(8) == 0 {
                scribble(&file, &mut random);
            }
            let which = random.below(3) as usize;
            let (view, leased) = &mut views[which];
            if view.me().is_some() && view.shares_any(leased) && random.below(2) == 0 {
                let _ = view.check();
            }
            do_something(view, leased, &mut random);
        }
        let _ = (
            watcher.wait_launcher_gone(),
            Session::from_fd(file.number()).map(drop),
        );
    }
}

/// The same while others do it at the same time: nothing waits for what a scribble took away.
#[test]
fn random_bytes_from_beside_stop_nobody() {
    let (watcher, file) = Session::create(100, 40 * EXTENT_BYTES).expect("session");
    watcher.keep(tests::this_process());
    let views: Vec<_> = (0..3)
        .map(|_| Session::from_fd(file.number()).expect("view"))
        .collect();
    std::thread::scope(|scope| {
        for (seed, mut view) in views.into_iter().enumerate() {
            scope.spawn(move || {
                let (mut random, mut leased) = (Random(seed as u64), Vec::new());
                (0..2_000).for_each(|_| do_something(&mut view, &mut leased, &mut random));
            });
        }
        let mut random = Random(99);
        (0..2_000).for_each(|_| scribble(&file, &mut random));
    });
}

#[test]
fn what_a_process_needs_is_missed_at_its_next_look() {
    let fresh = || {
        let (watcher, file) = Session::create(100, 4 * EXTENT_BYTES).expect("session");
        let mut view = Session::from_fd(file.number()).expect("view");
        view.join().expect("join");
        assert_eq!((view.reserve(10), view.lease_extent()), (10, Some(0)));
        assert_eq!(view.check(), Ok(()));
        (watcher, file, view)
    };
    let damaged = |damage: &dyn Fn(&Session), what: &'static str| {
        let (watcher, _file, view) = fresh();
        damage(&watcher);
        assert_eq!(view.check(), Err(SessionError::Damaged(what)));
    };
    damaged(&|s| s.head().magic.store(1, SeqCst), "its head");
    damaged(&|s| s.head().limit_pages.store(1 << 40, SeqCst), "its head");
    damaged(&|s| s.head().extents_cap.store(0, SeqCst), "its head");
    let lent = "the sum of what is lent";
    damaged(&|s| s.head().reserved.word.store(101, SeqCst), lent);
    let entry = "the entry of this process";
    damaged(&|s| s.board().members[0].state.store(7, SeqCst), entry);
    damaged(&|s| s.board().members[0].state.store(0, SeqCst), entry);
    damaged(&|s| s.board().members[0].generation.store(0, SeqCst), entry);
    damaged(
        &|s| s.board().members[0].held_pages.store(11, SeqCst),
        entry,
    );
    let extents = "the extents of this process";
    damaged(&|s| s.extents().drop_all(MemberId(0)), extents);
}

#[test]
fn an_extent_is_not_leased_twice_by_one_process() {
    let (watcher, file) = Session::create(100, 4 * EXTENT_BYTES).expect("session");
    let mut view = Session::from_fd(file.number()).expect("view");
    let me = view.join().expect("join");
    assert_eq!(view.lease_extent(), Some(0));
    watcher.extents().drop_all(me);
    assert_eq!(view.lease_extent(), None);
    assert_eq!(watcher.check(), Err(SessionError::Damaged("its head")));
}

#[test]
fn a_size_beyond_the_table_is_refused_when_opened() {
    let (watcher, file) = Session::create(100, 4 * EXTENT_BYTES).expect("session");
    let cap = &watcher.head().extents_cap;
    cap.store(EXTENTS_MAX as u64 + 1, SeqCst);
    let opened = Session::from_fd(file.number());
    assert!(matches!(opened, Err(SessionError::Damaged(_))));
}

#[test]
fn nobody_makes_the_file_shorter() {
    let (_watcher, file) = Session::create(100, 4 * EXTENT_BYTES).expect("session");
    assert_eq!(fd::set_len(file.number(), 0), Err(Errno::EPERM));
}
