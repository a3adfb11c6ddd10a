//! Streams of slots against a small pager with a fixed number of frames.

use std::collections::VecDeque;

use outpage_core::readahead::{ReadAhead, Short, SlotView};
use outpage_core::units::{PageNo, SlotNo, SlotRange};

use crate::world::{Random, page, read_ahead, touch};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    Out,
    /// In a frame; whether it was touched since.
    In {
        touched: bool,
    },
    /// Read behind a window, not in the program yet.
    Staged,
}

/// All pages in slots of the same number; frames recycled first in, first out.
struct Memory {
    places: Vec<Place>,
    queue: VecDeque<u32>,
    frames: usize,
    policy: Box<dyn ReadAhead>,
    /// Major faults.
    faults: u32,
    /// Pages evicted after they were read for nothing.
    in_vain: u32,
    /// Slots of each `now` and of each range read behind one.
    windows: Vec<u32>,
    behind: Vec<u32>,
}

struct View<'a>(&'a [Place]);

impl SlotView for View<'_> {
    fn paged_out(&self, slot: SlotNo) -> Option<PageNo> {
        let out = self.0.get(slot.0 as usize) == Some(&Place::Out);
        out.then(|| page(1, slot.0.into()))
    }

    fn slot_of(&self, page: PageNo) -> Option<SlotNo> {
        let slot = SlotNo(page.index() as u32);
        self.paged_out(slot).map(|_| slot)
    }
}

impl Memory {
    fn new(slots: u32, frames: usize, max_window: u32) -> Self {
        Self {
            places: vec![Place::Out; slots as usize],
            queue: VecDeque::new(),
            frames,
            policy: read_ahead("stream", &format!("max={max_window}")),
            faults: 0,
            in_vain: 0,
            windows: Vec::new(),
            behind: Vec::new(),
        }
    }

    fn touch(&mut self, slot: u32) {
        match self.places[slot as usize] {
            Place::Out => {
                self.faults += 1;
                let fault = touch(page(1, slot.into()), slot);
                let window = self.policy.major_fault(&fault, &View(&self.places));
                self.windows.push(window.now.slots);
                self.read(window.now, Place::In { touched: false });
                self.read_behind(window.behind);
            }
            Place::Staged => {
                let touched = page(1, slot.into());
                let next = self.policy.hit(&touch(touched, slot), &View(&self.places));
                self.read_behind(next);
            }
            Place::In { .. } => {}
        }
        self.places[slot as usize] = Place::In { touched: true };
    }

    fn read_behind(&mut self, range: Option<SlotRange>) {
        if let Some(range) = range {
            self.behind.push(range.slots);
            self.read(range, Place::Staged);
        }
    }

    fn read(&mut self, range: SlotRange, place: Place) {
        for slot in range.iter() {
            self.places[slot.0 as usize] = place;
            self.queue.push_back(slot.0);
        }
        while self.queue.len() > self.frames {
            let slot = self.queue.pop_front().unwrap();
            match std::mem::replace(&mut self.places[slot as usize], Place::Out) {
                Place::In { touched: true } => {}
                Place::In { touched: false } => self.in_vain += 1,
                Place::Staged => {
                    self.in_vain += 1;
                    self.policy.wasted(page(1, slot.into()), SlotNo(slot));
                }
                Place::Out => panic!("{slot} had a frame and was paged out"),
            }
        }
    }

    /// Runs `work` and returns (major faults, pages read in vain) in it.
    fn count(&mut self, work: impl FnOnce(&mut Self)) -> (u32, u32) {
        let before = (self.faults, self.in_vain);
        work(self);
        (self.faults - before.0, self.in_vain - before.1)
    }
}

const SLOTS: u32 = 1 << 16;
const FRAMES: usize = 1 << 12;

fn memory() -> Memory {
    Memory::new(SLOTS, FRAMES, 64)
}

fn singles(memory: &mut Memory, n: u32, random: &mut Random) {
    for _ in 0..n {
        memory.touch(random.below(SLOTS));
    }
}

/// Touches `n` rows, picked at random, of `slots` slots each.
fn rows(memory: &mut Memory, n: u32, slots: u32, downward: bool, random: &mut Random) {
    for _ in 0..n {
        let start = random.below(SLOTS / slots) * slots;
        for at in 0..slots {
            memory.touch(start + if downward { slots - 1 - at } else { at });
        }
    }
}

#[test]
fn a_sweep_reaches_the_largest_window_in_both_directions() {
    for max in [1, 8, 64, 256] {
        for downward in [false, true] {
            let mut memory = Memory::new(SLOTS, FRAMES, max);
            for n in 0..SLOTS {
                memory.touch(if downward { SLOTS - 1 - n } else { n });
            }
            let steady = &memory.behind[10..memory.behind.len() - 1];
            assert!(
                steady.iter().all(|&slots| slots == max),
                "{max} {downward}: {steady:?}"
            );
            assert!(
                memory.faults <= 10,
                "{max} {downward}: {:?}",
                memory.windows
            );
            assert_eq!(memory.in_vain, 0);
        }
    }
}

#[test]
fn the_first_windows_of_a_sweep() {
    let mut memory = memory();
    (1000..1100).for_each(|slot| memory.touch(slot));
    assert_eq!(memory.windows, [1, 2, 4]);
    assert_eq!(memory.behind[..4], [4, 8, 16, 32]);
}

#[test]
fn sixteen_streams_at_once() {
    let mut memory = memory();
    let part = SLOTS / 16;
    for n in 0..part {
        for stream in 0..16 {
            let at = if stream % 2 == 0 { n } else { part - 1 - n };
            memory.touch(stream * part + at);
        }
    }
    assert!(memory.faults <= 16 * 8, "{}", memory.faults);
    assert!(memory.in_vain <= 16 * 64, "{}", memory.in_vain);
}

#[test]
fn random_single_touches_come_down_to_one_page() {
    let mut random = Random(7);
    let mut memory = memory();
    // Much was learnt from rows before.
    rows(&mut memory, 300, 17, false, &mut random);
    singles(&mut memory, 600, &mut random);
    let before = memory.windows.len();
    let (faults, in_vain) = memory.count(|memory| singles(memory, 10_000, &mut random));
    assert!(
        in_vain * 50 < faults,
        "{in_vain} pages in vain in {faults} faults"
    );
    let ones = memory.windows[before..]
        .iter()
        .filter(|&&slots| slots == 1)
        .count() as u32;
    assert!(
        ones * 100 > faults * 98,
        "{ones} windows of one in {faults}"
    );
}

#[test]
fn random_single_touches_do_not_continue_streams_of_the_past() {
    let mut random = Random(19);
    let mut memory = memory();
    // Twenty sweeps end with the largest window.
    for sweep in 0..20 {
        (0..1000).for_each(|n| memory.touch(sweep * 3000 + n));
    }
    singles(&mut memory, 5000, &mut random);
    let (faults, in_vain) = memory.count(|memory| singles(memory, 10_000, &mut random));
    assert!(
        in_vain * 50 < faults,
        "{in_vain} pages in vain in {faults} faults"
    );
}

#[test]
fn a_slow_sweep_among_random_touches_stays_ahead() {
    let mut random = Random(23);
    let mut memory = Memory::new(2 * SLOTS, FRAMES, 64);
    let sweep = 10_000;
    let (mut faults, mut in_vain) = (0, 0);
    for n in 0..sweep {
        let counted = memory.count(|memory| memory.touch(SLOTS + n));
        (faults, in_vain) = (faults + counted.0, in_vain + counted.1);
        let counted = memory.count(|memory| singles(memory, 10, &mut random));
        in_vain += counted.1;
    }
    assert!(faults <= 20, "{faults} faults of the sweep");
    assert!(in_vain <= 500, "{in_vain} pages in vain");
}

#[test]
fn random_single_touches_among_resident_pages_come_down_to_one_page() {
    let mut random = Random(17);
    // Half of the pages have a frame.
    let mut memory = Memory::new(1 << 13, 1 << 12, 64);
    let touch = |memory: &mut Memory, n: u32, random: &mut Random| {
        (0..n).for_each(|_| memory.touch(random.below(1 << 13)));
    };
    touch(&mut memory, 1000, &mut random);
    let (faults, in_vain) = memory.count(|memory| touch(memory, 10_000, &mut random));
    assert!(
        in_vain * 50 < faults,
        "{in_vain} pages in vain in {faults} faults"
    );
}

#[test]
fn random_rows_come_in_few_reads() {
    for slots in [16, 17, 18, 20] {
        for downward in [false, true] {
            let mut random = Random(11);
            let mut memory = memory();
            // Single touches have taught it to read nothing along.
            singles(&mut memory, 1000, &mut random);
            rows(&mut memory, 300, slots, downward, &mut random);
            let before = memory.windows.len();
            let n = 2000;
            let (faults, in_vain) =
                memory.count(|memory| rows(memory, n, slots, downward, &mut random));
            assert!(
                faults * 10 < n * 21,
                "{slots} {downward}: {faults} faults for {n} rows"
            );
            assert!(
                in_vain * 2 < n,
                "{slots} {downward}: {in_vain} in vain for {n} rows"
            );
            let useful = memory.windows[before..]
                .iter()
                .filter(|slots| (8..=16).contains(*slots));
            assert!(
                useful.count() as u32 * 10 > n * 9,
                "{slots} {downward}: first windows"
            );
        }
    }
}

#[test]
fn random_rows_among_single_touches_are_still_read_ahead() {
    let mut random = Random(13);
    let mut memory = memory();
    let rounds = 2000;
    let (faults, in_vain) = memory.count(|memory| {
        for _ in 0..rounds {
            rows(memory, 1, 64, false, &mut random);
            singles(memory, 2, &mut random);
        }
    });
    // Two for the single touches, and a few that find out how the row goes on.
    assert!(faults < rounds * 6, "{faults} faults");
    assert!(in_vain < rounds * 12, "{in_vain} in vain");
}

#[test]
fn a_sweep_goes_on_over_small_gaps() {
    let mut memory = memory();
    // Three of every sixteen pages are resident already, in a row.
    for slot in (0..SLOTS).filter(|slot| slot % 16 < 3) {
        memory.places[slot as usize] = Place::In { touched: true };
    }
    let sweep = 4000;
    (0..sweep).for_each(|slot| memory.touch(slot));
    // Windows end at resident pages, but the reads stay ahead of the program.
    assert!(memory.faults <= 10, "{} faults", memory.faults);
    let read = memory.windows.iter().chain(&memory.behind).sum::<u32>();
    assert!(read <= sweep / 16 * 13 + 128, "{read} slots read");
}

#[test]
fn pages_lost_before_their_touch_shrink_the_window() {
    let mut memory = memory();
    (0..500).for_each(|slot| memory.touch(slot));
    let staged: Vec<_> = (0..SLOTS)
        .filter(|&slot| memory.places[slot as usize] == Place::Staged)
        .collect();
    assert_eq!(memory.behind.last(), Some(&64));
    // The rest belongs to the range that is being touched.
    let staged = &staged[staged.len() - 64..];
    for &slot in staged {
        memory.places[slot as usize] = Place::Out;
        memory.policy.wasted(page(1, slot.into()), SlotNo(slot));
    }
    memory.queue.retain(|slot| !staged.contains(slot));
    let faults = memory.faults;
    (500..*staged.last().unwrap()).for_each(|slot| memory.touch(slot));
    assert!(memory.faults > faults);
    let window = memory.windows.last().copied();
    assert_eq!(window, Some(32), "halved once");
}

#[test]
fn the_window_of_a_sweep_grows_though_there_are_no_frames_for_it() {
    let mut memory = memory();
    let named = (0..20).map(|slot| {
        let (fault, view) = (touch(page(1, slot.into()), slot), View(&memory.places));
        let window = memory.policy.major_fault(&fault, &view);
        let read = memory
            .policy
            .shorten(&window, &fault, 0, Short::OfFrames, &view);
        let alone = SlotRange::new(SlotNo(slot), 1);
        assert_eq!((read.now, read.behind), (alone, None));
        memory.places[slot as usize] = Place::In { touched: true };
        window.now.slots
    });
    let named: Vec<_> = named.collect();
    assert!(named[10..].iter().all(|&slots| slots == 64), "{named:?}");
}
