//! The loop on an address space without a kernel: bytes, and who goes on while somebody waits.

mod calls;
mod failing;

use outpage_core::page::State;
use outpage_core::units::{Nanos, PAGE_BYTES};

use crate::call::Call;
use crate::live::DETACH_PAGES;
use crate::session::EXTENT_SLOTS;
use crate::tests::fake::at;
use crate::tests::paged::{DEPTH, LIMIT, Paged};
use crate::tests::random::Random;
use crate::world::Mechanism;

/// A program of so many pages does not fit.
const PAGES: usize = 3 * LIMIT;

fn each(test: impl Fn(Paged)) {
    for mechanism in Mechanism::ALL {
        test(Paged::new(mechanism, PAGES));
    }
}

/// Page 0 is out and being read for thread 1, and the store does not answer before thread 2 went on.
fn reading_until_goes_on(paged: &mut Paged) {
    paged.touch(1, 0, Some(77));
    paged.push_out(0, 600..PAGES);
    paged.settle();
    paged.forget_woken();
    paged.gate.close_until_goes_on(2);
    assert_eq!(paged.fake.touch(1, at(0), None), None);
    paged.rounds_until(|paged| paged.live.store.in_flight() > 0);
    assert!(!paged.gate.is_open());
}

#[test]
fn a_program_larger_than_its_limit_finds_every_byte() {
    each(|mut paged| {
        for page in 0..PAGES {
            paged.touch(1, page, Some((page % 251) as u8));
        }
        for page in (0..PAGES).rev() {
            assert_eq!(paged.touch(2, page, None), (page % 251) as u8);
        }
        let used = paged.live.pager.frames_used();
        assert!(used <= paged.live.pager.limits().frames, "{used} frames");
        assert!(paged.live.pager.stats().page_ins > 0);
    });
}

/// Of what lies scattered; what is copied in place of being moved goes together.
#[test]
fn who_touches_something_waits_for_a_few_of_the_pages_that_leave() {
    let mut paged = Paged::new(Mechanism::Move, PAGES);
    let mut random = Random(7);
    let mut parts = 0;
    for _ in 0..4 * PAGES {
        let (was_detaching, before) = (paged.live.is_detaching(), paged.live.detach_calls);
        let page = random.index(PAGES);
        if paged.fake.touch(1, at(page), Some(1)).is_some() {
            continue;
        }
        paged.live.round();
        // A call for each piece, of one page at least.
        let calls = paged.live.detach_calls - before;
        if was_detaching && paged.live.is_detaching() {
            assert!(calls <= DETACH_PAGES as u64, "{calls} pieces at once");
            parts += usize::from(calls > 0);
        }
        paged.rounds_until(|paged| !paged.fake.sleeps(1));
    }
    assert!(parts > 20, "{parts} parts");
    paged.settle();
    assert!(!paged.live.is_detaching());
    assert_eq!(paged.live.pager.count(State::Detaching), 0);
}

#[test]
fn others_fault_on_while_an_emptied_range_waits_for_its_read() {
    each(|mut paged| {
        reading_until_goes_on(&mut paged);
        paged.fake.remove(0, 1, false);
        assert_eq!(paged.fake.touch(2, at(500), Some(1)), None);
        paged.rounds_until(|paged| !paged.fake.sleeps(1) && !paged.fake.sleeps(2));
        // Not what was on its way.
        assert_eq!(paged.touch(1, 0, None), 0);
        assert_eq!(paged.touch(2, 500, Some(1)), 1);
    });
}

#[test]
fn others_fault_on_while_an_unmapped_range_waits_for_its_read() {
    each(|mut paged| {
        reading_until_goes_on(&mut paged);
        paged.fake.remove(0, 4, true);
        assert_eq!(paged.fake.touch(2, at(500), Some(1)), None);
        paged.rounds_until(|paged| !paged.fake.sleeps(2));
        paged.settle();
        assert!(paged.live.world.space.at(at(3)).is_none());
        // Something else is mapped there, and is empty.
        paged.manage(0, 4);
        assert_eq!(paged.touch(1, 0, None), 0);
    });
}

#[test]
fn others_fault_on_while_something_is_brought_in_for_a_thread() {
    each(|mut paged| {
        reading_until_goes_on(&mut paged);
        assert_eq!(paged.fake.touch(2, at(500), Some(1)), None);
        assert_eq!(paged.call(Call::KeepWord { addr: at(0) }), 0);
        assert!(paged.gate.is_open());
        assert_eq!(paged.fake.filled_with(1), None);
        assert_eq!(paged.touch(1, 0, None), 77);
    });
}

#[test]
fn others_fault_on_while_memory_goes_back() {
    each(|mut paged| {
        reading_until_goes_on(&mut paged);
        assert_eq!(paged.fake.touch(2, at(500), Some(1)), None);
        let len = 8 * PAGE_BYTES;
        assert_eq!(paged.call(Call::TakeBack { addr: at(0), len }), 0);
        assert!(paged.gate.is_open());
        assert_eq!(paged.fake.touch(1, at(0), None), Some(77));
        assert!(paged.live.world.space.at(at(0)).is_none());
    });
}

#[test]
fn a_fault_where_memory_goes_waits_for_its_turn() {
    each(|mut paged| {
        reading_until_goes_on(&mut paged);
        paged.fake.remove(0, 1, false);
        // Before the one that ends the read.
        assert_eq!(paged.fake.touch(3, at(0), Some(5)), None);
        assert_eq!(paged.fake.touch(2, at(500), Some(1)), None);
        paged.rounds_until(|paged| !paged.fake.sleeps(3));
        let woken = paged.fake.state().woken.clone();
        let turn = |tid| woken.iter().position(|&t| t == tid);
        assert!(turn(2) < turn(3), "{woken:?}");
        assert_eq!(paged.touch(3, 0, None), 0);
    });
}

#[test]
fn a_change_during_a_wait_is_attended_to_after_it() {
    each(|mut paged| {
        paged.touch(1, 400, Some(9));
        reading_until_goes_on(&mut paged);
        paged.fake.remove(0, 1, false);
        paged.fake.remove(400, 1, false);
        paged.fake.remap(390, 1400, 20);
        assert_eq!(paged.fake.touch(2, at(500), Some(1)), None);
        paged.rounds_until(|paged| !paged.fake.sleeps(1) && !paged.fake.sleeps(2));
        assert_eq!(paged.touch(3, 1410, None), 0);
        assert!(paged.live.world.space.at(at(400)).is_none());
    });
}

#[test]
fn a_store_that_is_full_keeps_nobody_waiting_but_its_own() {
    each(|mut paged| {
        let readers = 4 * usize::from(DEPTH);
        for i in 0..readers {
            paged.touch(1, i * 16, Some(i as u8));
        }
        for page in 600..PAGES {
            paged.touch(1, page, Some(1));
        }
        paged.settle();
        paged.forget_woken();
        let out: Vec<_> = (0..readers)
            .filter(|i| paged.live.pager.state(paged.number(i * 16)) == State::PagedOut)
            .collect();
        assert!(out.len() > 2 * usize::from(DEPTH));
        paged.gate.close_until_goes_on(2);
        for &i in &out {
            assert_eq!(paged.fake.touch(100 + i as u32, at(i * 16), None), None);
        }
        assert_eq!(paged.fake.touch(2, at(560), Some(1)), None);
        paged.rounds_until(|paged| out.iter().all(|&i| !paged.fake.sleeps(100 + i as u32)));
        for i in out {
            assert_eq!(paged.touch(3, i * 16, None), i as u8);
        }
    });
}

#[test]
fn what_is_mapped_over_without_a_word_is_not_read_back() {
    each(|mut paged| {
        let near = |page: usize| page..page + 64;
        for page in near(0) {
            paged.touch(1, page, Some(7));
        }
        let number = paged.number(8);
        // Written from the program's own memory, as under write-protect: other content by then.
        let mut page = 600;
        while paged.live.pager.state(number) == State::Resident {
            paged.touch(1, page, Some(1));
            page += 1;
        }
        paged.fake.cover(8, 8);
        for page in page..PAGES {
            paged.touch(1, page, Some(1));
        }
        // Its neighbours are read around it.
        for page in near(0).filter(|page| !(8..16).contains(page)) {
            assert_eq!(paged.touch(1, page, None), 7);
        }
        paged.settle();
        let stats = paged.live.pager.stats();
        assert_eq!(stats.checksum_errors, 0);
        assert!(stats.page_ins > 0);
    });
}

#[test]
fn what_moves_away_is_not_taken_for_mapped_over() {
    each(|mut paged| {
        paged.touch(1, 8, Some(7));
        paged.push_out(8, 600..PAGES);
        paged.settle();
        paged.live.world.space.found_covered(at(8));
        paged.fake.remap(8, 2 * PAGES, 8);
        // The kernel's message is read and waits: nothing is registered where the page was.
        paged.live.world.door.let_change_pass();
        paged.live.attend_to_covered();
        assert!(paged.live.world.space.at(at(8)).is_some(), "it was dropped");
        assert_eq!(paged.touch(1, 2 * PAGES, None), 7);
        assert_eq!(paged.live.world.space.covered(), 0);
        assert!(paged.live.world.space.at(at(2 * PAGES)).is_some());
    });
}

#[test]
fn what_was_read_in_passing_is_served_before_the_loop_sleeps() {
    each(|mut paged| {
        assert_eq!(paged.fake.touch(1, at(5), Some(1)), None);
        // As a look at the mappings does.
        paged.live.world.door.let_change_pass();
        assert!(!paged.live.may_sleep());
        paged.live.round();
        assert!(!paged.fake.sleeps(1) && paged.live.may_sleep());
    });
}

#[test]
fn others_fault_on_while_the_file_grows() {
    each(|mut paged| {
        // The first page-out needs slots, and nothing else can leave.
        paged.gate.close_until_goes_on(2);
        let mut page = 0;
        paged.rounds_until(|paged| {
            paged.fake.touch(1, at(page), Some(1));
            page = (page + 1) % PAGES;
            paged.live.beside.is_busy() || !paged.gate.is_open() && paged.live.growth.is_some()
        });
        assert!(!paged.gate.is_open(), "nobody made room yet");
        assert_eq!(paged.fake.touch(2, at(PAGES - 1), Some(2)), None);
        paged.rounds_until(|paged| !paged.fake.sleeps(2));
        paged.rounds_until(|paged| !paged.live.leased.is_empty());
        assert!(!paged.grew_in_vain.load(std::sync::atomic::Ordering::SeqCst));
        for page in 0..PAGES {
            paged.touch(1, page, Some(3));
        }
        assert!(paged.live.pager.stats().page_outs > 0);
    });
}

#[test]
fn a_rest_waits_for_what_is_done_beside() {
    each(|mut paged| {
        paged.gate.close_until_goes_on(2);
        let mut page = 0;
        paged.rounds_until(|paged| {
            paged.fake.touch(1, at(page), Some(1));
            page = (page + 1) % PAGES;
            paged.live.beside.is_busy()
        });
        // A fork waits for it, too: the child would wait for an answer that only the parent gets.
        while paged.live.pager.in_flight() > 0 {
            paged.live.complete_io();
        }
        assert!(paged.live.beside.is_busy() && !paged.live.is_at_rest());
        // Somebody else's doing: the loop serves nobody while it comes to rest.
        paged.fake.state().woken.push(2);
        paged.live.quiesce_all();
        assert!(!paged.live.beside.is_busy() && paged.live.is_at_rest());
        assert_eq!(paged.live.leased.len(), 1);
    });
}

/// Until there is the room that was asked for, without a tick: after some of them what is not needed is given back.
fn until_grown(paged: &mut Paged) {
    while paged.live.growth.is_some() {
        paged.live.next_tick = Nanos(u64::MAX);
        paged.live.round();
        paged.live.between_events();
        paged.live.drive();
    }
}

#[test]
fn room_that_is_given_back_is_nobody_elses_before_it_is_gone() {
    each(|mut paged| {
        let extents = 3;
        paged.live.grow(extents * EXTENT_SLOTS);
        until_grown(&mut paged);
        assert_eq!(paged.live.leased, [0, 1, 2]);
        paged.gate.close_until_goes_on(2);
        // Two of the three are not needed, and one is given back after the other.
        paged.rounds_until(|paged| {
            paged.live.next_tick = Nanos(0);
            paged.live.leased.len() == 1
        });
        assert!(paged.live.beside.is_busy(), "the gate is closed");
        let session = &paged.live.session;
        let leased = session.lease_extent();
        assert_eq!(leased, Some(extents), "those that are not gone are held");
        session.release_extent(extents);
        paged.fake.state().woken.push(2);
        paged.rounds_until(|paged| !paged.live.beside.is_busy() && paged.live.unneeded.is_empty());
        let session = &paged.live.session;
        let kept = paged.live.leased[0];
        let free: Vec<_> = (0..2).map(|_| session.lease_extent()).collect();
        let others = (0..extents).filter(|&extent| extent != kept);
        assert_eq!(free, others.map(Some).collect::<Vec<_>>());
        // It is granted again when it is needed.
        free.into_iter()
            .flatten()
            .for_each(|extent| session.release_extent(extent));
        paged.live.grow(EXTENT_SLOTS);
        paged.rounds_until(|paged| paged.live.growth.is_none());
        assert_eq!(paged.live.leased.len(), 2);
    });
}

#[test]
fn room_that_there_was_not_is_asked_for_again() {
    each(|mut paged| {
        let session = &paged.live.session;
        let others: Vec<_> = std::iter::from_fn(|| session.lease_extent()).collect();
        paged.live.grow(EXTENT_SLOTS);
        paged.rounds_until(|paged| paged.live.growth.is_none() && !paged.live.beside.is_busy());
        assert!(paged.live.leased.is_empty());
        for left in [false, true] {
            if left {
                paged.live.session.release_extent(others[1]);
            }
            assert!(paged.live.beside.asks_again_at_once());
            paged.live.next_tick = Nanos(0);
            paged.rounds_until(|paged| paged.live.growth.is_none() && !paged.live.beside.is_busy());
            for _ in 0..20 {
                paged.live.round();
            }
        }
        paged.rounds_until(|paged| paged.live.leased == [others[1]]);
        assert!(!paged.live.beside.asks_again_at_once());
    });
}

#[test]
fn room_that_is_asked_for_twice_is_had_twice() {
    each(|mut paged| {
        paged.gate.close_until_goes_on(2);
        paged.live.grow(EXTENT_SLOTS);
        assert!(paged.live.beside.is_busy(), "the gate is closed");
        paged.live.grow(2 * EXTENT_SLOTS);
        paged.fake.state().woken.push(2);
        until_grown(&mut paged);
        assert_eq!(paged.live.leased, [0, 1, 2]);
        let next = paged.live.session.lease_extent();
        assert_eq!(next, Some(3), "none is held beside");
    });
}

/// Pages that a thread changes at once.
const CHUNK: usize = 16;

/// A thread empties, unmaps and maps again, or moves a chunk, while others may wait for pages of it.
fn change(paged: &mut Paged, random: &mut Random, bytes: &mut [u8], chunks: &mut [usize]) {
    let chunk = random.index(chunks.len());
    let place = chunks[chunk];
    let content = &mut bytes[chunk * CHUNK..(chunk + 1) * CHUNK];
    match random.index(3) {
        0 => {
            paged.fake.remove(place, CHUNK, false);
            content.fill(0);
        }
        1 => {
            paged.fake.remove(place, CHUNK, true);
            paged.manage(place, CHUNK);
            content.fill(0);
        }
        _ => {
            // To where nothing ever was.
            let to = chunks.iter().max().expect("some") + 2 * CHUNK;
            paged.fake.remap(place, to, CHUNK);
            chunks[chunk] = to;
        }
    }
}

#[test]
fn any_order_of_touches_and_changes_finds_every_byte() {
    for seed in 0..2 {
        each(|mut paged| {
            let mut random = Random(seed);
            let mut bytes = vec![0; PAGES];
            let mut chunks: Vec<_> = (0..PAGES / CHUNK).map(|chunk| chunk * CHUNK).collect();
            for _ in 0..4000 {
                let page = random.index(PAGES);
                let place = chunks[page / CHUNK] + page % CHUNK;
                let tid = 1 + random.index(4) as u32;
                match random.index(40) {
                    0 => change(&mut paged, &mut random, &mut bytes, &mut chunks),
                    // Touched in passing: served with what comes next.
                    1..4 => drop(paged.fake.touch(9, at(place), None)),
                    4..20 => {
                        let byte = random.index(256) as u8;
                        assert_eq!(paged.touch(tid, place, Some(byte)), byte);
                        bytes[page] = byte;
                    }
                    _ => assert_eq!(paged.touch(tid, place, None), bytes[page], "seed {seed}"),
                }
            }
            paged.settle();
            assert!(paged.live.later.is_empty() && paged.live.world.space.is_calm());
            assert!(paged.live.pager.stats().page_ins > 0);
        });
    }
}
