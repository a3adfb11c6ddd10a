//! Clients of a server in this process: what they read is what they wrote, whatever left in between, and what was dropped they are told.

use std::sync::atomic::{AtomicBool, Ordering};

use outpage_client::Share;

mod common;
use common::{Random, Served, WORDS, can_be_served, check, check_zero, wait_within, write};

#[test]
fn objects_of_several_clients_at_four_times_the_limit_are_read_as_they_were_written() {
    if !can_be_served() {
        return;
    }
    let limit = 3072;
    let served = Served::start(limit, |_| {});
    let clients: Vec<_> = (0..3).map(|_| served.connect()).collect();
    let pages = limit * 4 / 6;
    std::thread::scope(|scope| {
        for (seed, client) in (1..).zip(&clients) {
            scope.spawn(move || {
                let objects: Vec<_> = (0..2)
                    .map(|_| client.create(pages * 4096).unwrap())
                    .collect();
                let mut random = Random(seed);
                for (i, object) in (0..).zip(&objects) {
                    (0..pages).for_each(|page| write(object, seed * 2 + i, page));
                }
                for _ in 0..2 * pages {
                    let (i, page) = (random.below(2), random.below(pages));
                    check(&objects[i as usize], seed * 2 + i, page);
                    write(&objects[i as usize], seed * 2 + i, page);
                }
                for (i, object) in (0..).zip(&objects) {
                    (0..pages).for_each(|page| check(object, seed * 2 + i, page));
                }
            });
        }
        // The server answers between two steps of its own: what it says of all of them together is of one moment as far as it grows.
        for _ in 0..20 {
            let frames: u64 = clients
                .iter()
                .map(|client| client.stats().unwrap().frames)
                .sum();
            assert!(frames <= limit + limit / 8, "{frames} frames");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
    let stats: Vec<_> = clients
        .iter()
        .map(|client| client.stats().unwrap())
        .collect();
    assert!(
        stats
            .iter()
            .all(|stats| stats.paged_in > 0 && stats.paged_out > 0),
        "{stats:?}"
    );
    drop(clients);
    served.end_empty();
}

/// Pages of the tests of discarding, and frames for a part of them.
const PAGES: u64 = 4096;
const FRAMES: u64 = 1024;

#[test]
fn under_every_policy_kept_pages_are_kept_and_lost_ones_are_zero_and_told() {
    if !can_be_served() {
        return;
    }
    for policy in ["none", "nf", "pf", "uf", "on-demand"] {
        let served = Served::start(FRAMES, |options| options.discard = policy.to_owned());
        let client = served.connect();
        let object = client.create(PAGES * 4096).unwrap();
        (0..PAGES).for_each(|page| write(&object, 1, page));
        // Every other block of 32 pages.
        let marked = |page: u64| page / 32 % 2 == 1;
        for first in (32..PAGES).step_by(64) {
            object.mark(first, 32);
        }
        object.flush(0, PAGES).unwrap();
        // Pressure: the others are touched twice.
        for _ in 0..2 {
            (0..PAGES)
                .filter(|&page| !marked(page))
                .for_each(|page| check(&object, 1, page));
        }
        let lost = object.take_back(0, PAGES).unwrap();
        for page in 0..PAGES {
            assert!(
                marked(page) || !lost.contains(page),
                "{policy}: page {page} was not given up"
            );
            if lost.contains(page) {
                check_zero(&object, page);
            } else {
                check(&object, 1, page);
            }
        }
        assert_eq!(lost.count() > 0, policy != "none", "{policy}");
        let again = object.take_back(0, PAGES).unwrap();
        assert_eq!(again.count(), 0, "{policy}: told twice");
        let stats = client.stats().unwrap();
        println!("{policy}: {stats:?}");
        assert_eq!(stats.lost, lost.count());
        drop((object, client));
        served.end_empty();
    }
}

#[test]
fn dropped_pages_cost_no_writes() {
    if !can_be_served() {
        return;
    }
    let written = |policy: &str| {
        let served = Served::start(FRAMES, |options| options.discard = policy.to_owned());
        let client = served.connect();
        let object = client.create(PAGES * 4096).unwrap();
        // A buffer of half the frames goes round and round; nothing of it is needed later.
        for round in 0..8 {
            let first = round * FRAMES / 2 % PAGES;
            let pages = first..first + FRAMES / 2;
            object.take_back(first, FRAMES / 2).unwrap();
            pages.clone().for_each(|page| write(&object, round, page));
            object.mark(first, FRAMES / 2);
        }
        let stats = client.stats().unwrap();
        stats.paged_out
    };
    let (with, without) = (written("on-demand"), written("none"));
    assert!(
        without > FRAMES && with == 0,
        "{with} pages written, {without} without discarding"
    );
}

/// Writers that never wait for each other, each with a word of its own in every page.
#[test]
fn no_write_is_lost_while_its_page_leaves() {
    if !can_be_served() {
        return;
    }
    let served = Served::start(FRAMES, |_| {});
    let client = served.connect();
    let object = client.create(PAGES * 4096).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let object = &object;
            scope.spawn(move || {
                let mut last = vec![0; PAGES as usize];
                let mut random = Random(thread + 11);
                for step in 1..60_000u64 {
                    // A hot part, whose pages leave and come while they are written.
                    let within = if random.below(4) == 0 { PAGES } else { FRAMES };
                    let page = random.below(within) as usize;
                    let word = &object.words()[page * WORDS + 100 * thread as usize];
                    assert_eq!(
                        word.load(Ordering::Relaxed),
                        last[page],
                        "page {page}, thread {thread}"
                    );
                    word.store(step, Ordering::Relaxed);
                    last[page] = step;
                }
            });
        }
    });
    let stats = client.stats().unwrap();
    println!("{stats:?}");
    assert!(stats.paged_out > 1000);
}

/// What is written to a page that is given up is kept, or the page is told lost.
#[test]
fn a_write_that_races_with_the_drop_is_kept_or_told_lost() {
    if !can_be_served() {
        return;
    }
    for policy in ["nf", "uf", "on-demand"] {
        let served = Served::start(FRAMES, |options| options.discard = policy.to_owned());
        let client = served.connect();
        let object = client.create(PAGES * 4096).unwrap();
        let scratch = 256;
        let (mut kept, mut lost_pages) = (0, 0);
        for round in 1..30u64 {
            (0..scratch).for_each(|page| write(&object, round, page));
            object.mark(0, scratch);
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut random = Random(round);
                    while !done.load(Ordering::Relaxed) {
                        let page = random.below(scratch) as usize;
                        object.words()[page * WORDS + 3].store(round << 32, Ordering::Relaxed);
                    }
                });
                object.flush(0, scratch).unwrap();
                // Pressure, as much as drops a part of them.
                let mut random = Random(round ^ 99);
                for _ in 0..FRAMES {
                    write(&object, 7, scratch + random.below(PAGES - scratch));
                }
                done.store(true, Ordering::Relaxed);
            });
            let lost = object.take_back(0, scratch).unwrap();
            for page in 0..scratch {
                let words = &object.words()[page as usize * WORDS..][..WORDS];
                for (word, at) in words.iter().zip(0..) {
                    let found = word.load(Ordering::Relaxed);
                    let written = if at == 3 {
                        round << 32
                    } else {
                        common::content(round, page, at)
                    };
                    let first = common::content(round, page, at);
                    let fits = if lost.contains(page) {
                        found == 0 || at == 3 && found == written
                    } else {
                        found == written || found == first
                    };
                    assert!(
                        fits,
                        "{policy}: page {page}, word {at}: {found:#x}, lost: {}",
                        lost.contains(page)
                    );
                }
            }
            lost_pages += lost.count();
            kept += scratch - lost.count();
        }
        println!("{policy}: {kept} kept, {lost_pages} lost");
        assert!(lost_pages > 0, "{policy}");
    }
}

#[test]
fn a_guaranteed_minimum_is_had_whatever_others_do() {
    if !can_be_served() {
        return;
    }
    let limit = 2048;
    let served = Served::start(limit, |_| {});
    let greedy = served.connect();
    let heap = greedy.create(4 * limit * 4096).unwrap();
    (0..4 * limit).for_each(|page| write(&heap, 1, page));
    let minimum_bytes = limit / 2 * 4096;
    let modest = served.connect_with(Share {
        minimum_bytes,
        weight: 1,
    });
    common::wait_until("the frames of the minimum", || {
        (0..4 * limit)
            .step_by(5)
            .for_each(|page| check(&heap, 1, page));
        modest.stats().unwrap().limit_frames >= limit / 2
    });
    assert!(greedy.stats().unwrap().limit_frames <= limit / 2);
    let error = outpage_client::Client::connect(
        served.socket(),
        Share {
            minimum_bytes: limit * 4096,
            weight: 1,
        },
    );
    let full = outpage_client::Error::Refused(outpage_client::Refusal::Full);
    assert_eq!(error.err(), Some(full));
}

#[test]
fn bounds_are_told_and_the_connection_lives_on() {
    if !can_be_served() {
        return;
    }
    let served = Served::start(1024, |options| options.client_pages_max = 100);
    let client = served.connect();
    let refused = outpage_client::Error::Refused(outpage_client::Refusal::Bounds);
    assert_eq!(client.bytes_max(), 100 * 4096);
    assert_eq!(client.create(101 * 4096).err(), Some(refused));
    let objects: Vec<_> = (0..64).map(|_| client.create(1).unwrap()).collect();
    assert_eq!(client.create(1).err(), Some(refused));
    write(&objects[63], 1, 0);
    drop(objects);
    let whole = client.create(100 * 4096).unwrap();
    assert_eq!(
        whole.take_back(99, 2).err(),
        Some(outpage_client::Error::Bounds)
    );
    write(&whole, 2, 99);
    check(&whole, 2, 99);
    drop((whole, client));
    served.end_empty();
}

/// The library unmaps an object before it has it destroyed, and meanwhile its pages are in the middle of leaving.
/// A client that was large goes on: what it has no more of the store is for others, who write there, and its own stays right.
#[test]
fn room_that_a_client_needs_no_more_is_for_others() {
    if !can_be_served() {
        return;
    }
    let served = Served::start(FRAMES, |_| {});
    let (client, other) = (served.connect(), served.connect());
    let kept = client.create(FRAMES / 2 * 4096).unwrap();
    (0..FRAMES / 2).for_each(|page| write(&kept, 1, page));
    let large = client.create(2 * PAGES * 4096).unwrap();
    (0..2 * PAGES).for_each(|page| write(&large, 2, page));
    let before = served.extents();
    assert!(before >= 6, "{before} extents");
    drop(large);
    // It takes 6 s on an idle machine.
    let never = std::time::Duration::from_secs(120);
    let is_small = || served.extents() <= before / 2;
    wait_within(never, "room is given up", is_small);
    let next = other.create(2 * PAGES * 4096).unwrap();
    (0..2 * PAGES).for_each(|page| write(&next, 3, page));
    (0..2 * PAGES).for_each(|page| check(&next, 3, page));
    (0..FRAMES / 2).for_each(|page| check(&kept, 1, page));
    drop((kept, next, client, other));
    served.end_empty();
}

#[test]
fn objects_go_while_their_pages_leave() {
    if !can_be_served() {
        return;
    }
    let served = Served::start(FRAMES, |_| {});
    let client = served.connect();
    let stays = client.create(PAGES * 4096).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(4);
            (0..PAGES).for_each(|page| write(&stays, 1, page));
            while !done.load(Ordering::Relaxed) {
                let page = random.below(PAGES);
                check(&stays, 1, page);
                write(&stays, 1, page);
            }
        });
        for seed in 2..42 {
            let goes = client.create(FRAMES * 4096).unwrap();
            (0..FRAMES).for_each(|page| write(&goes, seed, page));
            drop(goes);
        }
        done.store(true, Ordering::Relaxed);
    });
    client.check().unwrap();
    (0..PAGES).for_each(|page| check(&stays, 1, page));
    drop((stays, client));
    served.end_empty();
}
