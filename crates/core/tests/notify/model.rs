//! What the guest believes is what holds; and nothing that it writes stops the host.

use std::sync::atomic::{AtomicU32, Ordering};

use outpage_core::notify::{Guest, Host, Layout, Refused};
use proptest::prelude::*;

use crate::area::{made, put, word};

const FRAMES: u32 = 70;

#[derive(Clone, Debug)]
enum Step {
    Out(u32),
    In(u32),
    Drain,
    /// A mad guest: any word at any place.
    Spoil(usize, u32),
}

fn tellings() -> impl Strategy<Value = Step> {
    // Two frames beyond the guest's among them.
    let frame = || 0..FRAMES + 2;
    prop_oneof![
        8 => frame().prop_map(Step::Out),
        8 => frame().prop_map(Step::In),
        1 => Just(Step::Drain),
    ]
}

fn anything() -> impl Strategy<Value = Step> {
    let value = prop_oneof![
        any::<u32>(),
        0..40_u32,
        (0..40_u32).prop_map(u32::wrapping_neg)
    ];
    let place = prop_oneof![0..40_usize, 0..1100_usize];
    prop_oneof![
        3 => tellings(),
        1 => (place, value).prop_map(|(at, value)| Step::Spoil(at, value)),
    ]
}

fn words(area: &[AtomicU32]) -> Vec<u32> {
    area.iter()
        .map(|word| word.load(Ordering::Relaxed))
        .collect()
}

fn is_out(area: &[AtomicU32], frame: u32) -> bool {
    let byte = word(area, 32) + frame / 32 * 4;
    word(area, byte as usize) >> (frame % 32) & 1 == 1
}

proptest! {
    #[test]
    fn the_guest_believes_what_holds_after_each_drain(steps in prop::collection::vec(tellings(), 0..200)) {
        let (area, mut host) = made(FRAMES, 16);
        let mut guest = Guest::attach(&area).expect("an area");
        // The naive notifier: a flag a frame, read whole.
        let mut naive = [false; FRAMES as usize];
        let mut believed = naive;
        for step in steps.into_iter().chain([Step::Drain]) {
            match step {
                Step::Out(frame) | Step::In(frame) if frame >= FRAMES => {
                    prop_assert!(!host.paged_out(&area, frame), "there is no such frame");
                }
                Step::Out(frame) => {
                    let known = std::mem::replace(&mut naive[frame as usize], true);
                    prop_assert_eq!(host.paged_out(&area, frame), !known);
                }
                Step::In(frame) => {
                    let known = std::mem::replace(&mut naive[frame as usize], false);
                    prop_assert_eq!(host.paged_in(&area, frame), known);
                }
                Step::Drain => {
                    let (lost, seen) = (host.lost(), word(&area, 136));
                    let told = guest.drain(&area, |frame, out| believed[frame as usize] = out);
                    prop_assert_eq!(believed, naive);
                    prop_assert_eq!(told.all, lost != seen, "all frames only after a loss");
                    prop_assert_eq!(word(&area, 136), lost);
                }
                Step::Spoil(..) => unreachable!("nobody is mad here"),
            }
        }
        let out: Vec<bool> = (0..FRAMES).map(|frame| is_out(&area, frame)).collect();
        prop_assert_eq!(out, naive.to_vec());
    }

    /// Each call ends, and writes at most a word of bits, then an entry and its head, or the count of lost ones.
    #[test]
    fn a_mad_guest_stops_nothing(steps in prop::collection::vec(anything(), 0..300)) {
        let (mut area, mut host) = made(FRAMES, 16);
        let layout = Layout::new(FRAMES, 16).expect("a sound layout");
        let bits = (4096 + 2 * 64) / 4;
        area.push(AtomicU32::new(0xdead_beef));
        let mut guest = Guest::attach(&area).expect("an area");
        for step in steps {
            let before = words(&area);
            let (ring, head) = match step {
                Step::Out(frame) => {
                    host.paged_out(&area, frame);
                    (1024, 16)
                }
                Step::In(frame) => {
                    host.paged_in(&area, frame);
                    (1024 + 16, 17)
                }
                Step::Drain => {
                    guest.drain(&area, |frame, _| assert!(frame < FRAMES));
                    continue;
                }
                Step::Spoil(at, value) => {
                    area[at.min(layout.words() - 1)].store(value, Ordering::Relaxed);
                    continue;
                }
            };
            for (at, (was, is)) in before.iter().zip(words(&area)).enumerate() {
                let own = at == head || at == 18 || (ring..ring + 16).contains(&at)
                    || (bits..bits + 3).contains(&at);
                prop_assert!(own || *was == is, "word {}", at);
            }
        }
        prop_assert_eq!(area[layout.words()].load(Ordering::Relaxed), 0xdead_beef);
    }
}

#[test]
fn a_guest_that_never_reads_loses_entries_and_finds_every_bit_later() {
    let (area, mut host) = made(FRAMES, 16);
    for frame in 0..FRAMES {
        host.paged_out(&area, frame);
    }
    assert_eq!(
        (word(&area, 64), host.lost(), word(&area, 72)),
        (16, 54, 54)
    );
    let mut guest = Guest::attach(&area).expect("an area");
    let mut out = 0;
    let told = guest.drain(&area, |_, is_out| out += u32::from(is_out));
    assert!(told.all && out == FRAMES, "{told:?}, {out}");
    // Told again, the same has no entry.
    host.paged_out(&area, 3);
    host.paged_in(&area, 3);
    let mut seen = Vec::new();
    guest.drain(&area, |frame, out| seen.push((frame, out)));
    assert_eq!(seen, [(3, false)]);
}

#[test]
fn a_tail_where_nobody_can_have_read_to_is_a_full_ring() {
    for tail in [1, 17, u32::MAX, 1 << 31] {
        let (area, mut host) = made(FRAMES, 16);
        put(&area, 128, tail);
        host.paged_out(&area, 5);
        let expected = if tail == u32::MAX { (1, 0) } else { (0, 1) };
        assert_eq!((word(&area, 64), host.lost()), expected, "{tail}");
        assert!(is_out(&area, 5));
    }
}

#[test]
fn entries_go_round_and_counts_wrap() {
    let (area, mut host) = made(FRAMES, 16);
    let mut guest = Guest::attach(&area).expect("an area");
    for round in 0..100 {
        host.paged_out(&area, round % FRAMES);
        host.paged_in(&area, round % FRAMES);
        let mut seen = Vec::new();
        let told = guest.drain(&area, |frame, out| seen.push((frame, out)));
        assert_eq!((told.entries, told.all), (2, false));
        assert_eq!(
            seen,
            [(round % FRAMES, false); 2],
            "the bit decides, not the ring"
        );
    }
    assert_eq!(
        (word(&area, 64), word(&area, 132), host.lost()),
        (100, 100, 0)
    );
}

#[test]
fn what_is_no_area_is_refused() {
    let refused = |offset: usize, value| {
        let (area, _) = made(FRAMES, 16);
        put(&area, offset, value);
        Guest::attach(&area).err()
    };
    assert_eq!(refused(0, 7), Some(Refused::NoArea));
    assert_eq!(refused(4, 2), Some(Refused::Version(2)));
    for (offset, value) in [
        (8, 4),
        (12, 0),
        (16, 4),
        (20, 15),
        (24, 4096),
        (28, 32),
        (32, 0),
    ] {
        assert_eq!(
            refused(offset, value),
            Some(Refused::Damaged),
            "at {offset}"
        );
    }
    let (area, _) = made(FRAMES, 16);
    assert_eq!(Guest::attach(&area[..1024]).err(), Some(Refused::Damaged));
    assert_eq!(Guest::attach::<AtomicU32>(&[]).err(), Some(Refused::NoArea));
    let layout = Layout::new(FRAMES, 16).expect("a sound layout");
    assert!(Host::new(&area[1..], layout).is_none());
}

#[test]
fn a_report_stands_where_people_look() {
    let (area, _) = made(FRAMES, 16);
    let guest = Guest::attach(&area).expect("an area");
    guest.report(&area, 1, 2, 3);
    assert_eq!([140, 144, 148].map(|at| word(&area, at)), [1, 2, 3]);
}
