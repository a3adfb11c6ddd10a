//! Scans by address: pages that are touched one after another, and whose slots lie apart.
//!
//! Memory that was written at random, or that went to the pool and came back, is in slots in no order. Who then reads it in order finds no
//! neighbours in slots. The pages are known all the same, so each is read by itself, several at a time, as Linux does
//! (`mm/swap_state.c`: `swap_vma_readahead`). Where slots follow each other like pages, streams of slots are better: one read for many.

use super::stride::DEPTH_MAX;
use super::{SlotView, Touch, Window};
use crate::units::{ObjectId, PageNo, SlotNo, SlotRange};

/// Scans told apart: more arrays than a loop usually reads at once.
const SCANS: usize = 8;

/// Of these, so many may be sure; the rest is for scans that begin, which random faults would otherwise crowd out, or be crowded out by.
const SURE_MAX: usize = SCANS - 2;

/// Faults in a row, each on the first page behind the last one that is out, before more than the faulted page is read. Where half of the pages
/// are out, random faults lie so once in many thousand.
const SURE: u32 = 3;

/// Pages in memory over which a scan goes on: the largest window of a stream that read some of them.
const PASSED_MAX: u64 = 128;

/// Slots lie apart where runs of them are shorter than so many pages in the mean. A choice: a run of a stream costs a wait, of a scan one in
/// several.
const RUN: usize = 3;

/// Slots of one run lie so close: streams go on over as many (`STRIDE` in `stream.rs`).
const GAP: u32 = 8;

/// Pages that a fault has read beside its own: as many as a walk's.
const DEPTH: usize = DEPTH_MAX as usize;

/// Pages that are read together when half of the last ones were touched.
const BATCH: usize = DEPTH / 2;

/// Pages that are looked at for each one to read.
const LOOK: u64 = 4;

#[derive(Clone, Copy)]
struct Scan {
    object: ObjectId,
    /// The index of the page that was touched last.
    last: u64,
    /// Which way it goes; `None` as long as that was one page.
    downward: Option<bool>,
    /// Faults that continued it.
    row: u32,
    /// At the last fault slots lay apart.
    scattered: bool,
    /// The index of the page whose touch has the next batch read, and pages of a batch that were not named yet.
    mark: u64,
    left: usize,
    /// The time of the last use, on a clock that counts touches.
    used: u64,
}

/// The scans that are followed.
pub(super) struct Scans {
    scans: [Option<Scan>; SCANS],
    clock: u64,
}

impl Scans {
    /// None known.
    pub(super) const fn new() -> Self {
        Self {
            scans: [None; SCANS],
            clock: 0,
        }
    }

    /// The window of a fault that continues a scan of pages whose slots lie apart. Looks at up to [`PASSED_MAX`] pages for each scan near by.
    pub(super) fn fault(&mut self, fault: &Touch, view: &dyn SlotView) -> Option<Window> {
        let Some(i) = self.go_on(fault.page, view) else {
            self.begin(fault.page);
            return None;
        };
        let scan = self.scans[i].as_mut()?;
        if scan.row < SURE {
            return None;
        }
        let (mut slots, mut count) = ([fault.slot.0; DEPTH + 1], 1);
        let mut mark = 0;
        for (n, slot) in scan.next(view).take(DEPTH) {
            slots[count] = slot.0;
            count += 1;
            mark = if count <= BATCH { n } else { mark };
        }
        scan.mark = scan.last_but(mark);
        let slots = &mut slots[..count];
        // A few say little: what was before goes on.
        if slots.len() > BATCH {
            scan.scattered = scattered(slots);
        }
        scan.scattered.then(|| Window::of(fault.slot, slots))
    }

    /// What a scan reads first when a page is touched that was read for it: nothing, until it comes to the last pages that were. Then [`BATCH`] pages are read
    /// together, so that the disk has several reads at a time.
    pub(super) fn hit(&mut self, touch: &Touch, view: &dyn SlotView) -> Option<SlotRange> {
        let i = self.go_on(touch.page, view)?;
        let scan = self.scans[i].as_mut().filter(|scan| scan.scattered)?;
        if !scan.is_at_mark() {
            return None;
        }
        scan.left = BATCH;
        let (n, _) = scan.next(view).next()?;
        scan.mark = scan.last_but(n);
        scan.name(view)
    }

    /// What it reads beside.
    pub(super) fn more(&mut self, touch: &Touch, view: &dyn SlotView) -> Option<SlotRange> {
        let here = |scan: &&mut Scan| {
            scan.object == touch.page.object() && scan.last == touch.page.index()
        };
        self.scans.iter_mut().flatten().find(here)?.name(view)
    }

    /// The scan that a touch of `page` continues, as it is from then on.
    fn go_on(&mut self, page: PageNo, view: &dyn SlotView) -> Option<usize> {
        self.clock += 1;
        let distance = |scan: &Option<Scan>| scan.as_ref()?.distance(page, view);
        let found = self.scans.iter().enumerate();
        let found = found.filter_map(|(i, scan)| Some((distance(scan)?, i)));
        let (_, i) = found.min()?;
        let scan = self.scans[i].as_mut()?;
        scan.downward = Some(page.index() < scan.last);
        scan.last = page.index();
        scan.row = scan.row.saturating_add(1);
        scan.used = self.clock;
        Some(i)
    }

    fn begin(&mut self, page: PageNo) {
        let sure = |scan: &Scan| scan.row >= SURE;
        let spare = self.scans.iter().flatten().filter(|s| sure(s)).count() <= SURE_MAX;
        let age = |scan: &Option<Scan>| scan.map(|s| (spare && sure(&s), s.used));
        let scan = Scan {
            object: page.object(),
            last: page.index(),
            downward: None,
            row: 0,
            scattered: false,
            mark: 0,
            left: 0,
            used: self.clock,
        };
        if let Some(place) = self.scans.iter_mut().min_by_key(|scan| age(scan)) {
            *place = Some(scan);
        }
    }
}

impl Scan {
    /// How far it is to `page`, if the scan may go that way and none of the pages between is out.
    fn distance(&self, page: PageNo, view: &dyn SlotView) -> Option<u64> {
        let distance = page.index().abs_diff(self.last);
        let downward = page.index() < self.last;
        let near = page.object() == self.object && (1..=PASSED_MAX).contains(&distance);
        if !near || self.downward.is_some_and(|down| down != downward) {
            return None;
        }
        let last = PageNo::new(self.object, self.last);
        let mut between = (1..distance).filter_map(|n| last.beyond(n, downward));
        let all_there = between.all(|page| view.slot_of(page).is_none());
        all_there.then_some(distance)
    }

    /// The `n`-th page from the last one on.
    fn page(&self, n: u64) -> Option<PageNo> {
        PageNo::new(self.object, self.last).beyond(n, self.downward == Some(true))
    }

    /// Of the next pages that are out, which page from the last one on each is, and its slot, in the order in which the scan gets there.
    fn next<'a>(&'a self, view: &'a dyn SlotView) -> impl Iterator<Item = (u64, SlotNo)> + 'a {
        let pages = 1..=LOOK * DEPTH as u64;
        let pages = pages.map_while(|n| Some((n, self.page(n)?)));
        pages.filter_map(|(n, page)| Some((n, view.slot_of(page)?)))
    }

    /// The index of the `n`-th page from the last one on.
    const fn last_but(&self, n: u64) -> u64 {
        match self.downward {
            Some(true) => self.last.saturating_sub(n),
            _ => self.last.saturating_add(n),
        }
    }

    /// Whether the scan has come to its mark.
    const fn is_at_mark(&self) -> bool {
        match self.downward {
            Some(true) => self.last <= self.mark,
            _ => self.last >= self.mark,
        }
    }

    /// One more page of a batch.
    fn name(&mut self, view: &dyn SlotView) -> Option<SlotRange> {
        self.left = self.left.checked_sub(1)?;
        let (_, slot) = self.next(view).next()?;
        Some(SlotRange::new(slot, 1))
    }
}

/// Whether `slots`, which it sorts, are too many runs for streams of slots. Those between may be of pages in memory, or of another array that is read in turn.
fn scattered(slots: &mut [u32]) -> bool {
    slots.sort_unstable();
    let apart = slots.windows(2).filter(|two| two[1] - two[0] > GAP);
    RUN * (1 + apart.count()) > slots.len()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::contract::Source;
    use crate::units::Nanos;

    const PAGES: u64 = 4096;

    /// Where the pages of an object are; those that were read are not out any more.
    struct Store {
        slots: Vec<u32>,
        out: Vec<bool>,
    }

    impl SlotView for Store {
        fn paged_out(&self, slot: SlotNo) -> Option<PageNo> {
            let at = self.slots.iter().position(|&at| at == slot.0)?;
            self.out[at].then(|| page(at as u64))
        }

        fn slot_of(&self, page: PageNo) -> Option<SlotNo> {
            let at = usize::try_from(page.index()).ok()?;
            let out = *self.out.get(at)?;
            out.then(|| SlotNo(self.slots[at]))
        }
    }

    fn page(index: u64) -> PageNo {
        PageNo::new(ObjectId(1), index)
    }

    /// Pages whose slots lie in groups of `together`, the groups in no order.
    fn store(together: u64) -> Store {
        let slot = |index: u64| {
            let group = (index / together).wrapping_mul(2_654_435_761) % (PAGES / together);
            (group * together + index % together) as u32
        };
        Store {
            slots: (0..PAGES).map(slot).collect(),
            out: alloc::vec![true; PAGES as usize],
        }
    }

    impl Store {
        fn read(&mut self, range: SlotRange) {
            for slot in range.iter() {
                let at = self.slots.iter().position(|&at| at == slot.0);
                self.out[at.expect("a slot of a page")] = false;
            }
        }

        fn read_window(&mut self, window: &Window) {
            self.read(window.now);
            window
                .rest
                .as_slice()
                .iter()
                .for_each(|&run| self.read(run));
        }

        fn touch(&self, index: u64) -> Touch {
            Touch {
                now: Nanos(0),
                page: page(index),
                slot: SlotNo(self.slots[index as usize]),
                source: Source(0),
            }
        }
    }

    /// Touches the pages in the order of `indices`; how many were faults.
    fn touched(store: &mut Store, indices: impl Iterator<Item = u64>) -> usize {
        let (mut scans, mut faults) = (Scans::new(), 0);
        for index in indices {
            let touch = store.touch(index);
            if store.out[index as usize] {
                faults += 1;
                match scans.fault(&touch, store) {
                    Some(window) => store.read_window(&window),
                    None => store.read(SlotRange::new(touch.slot, 1)),
                }
                continue;
            }
            let mut next = scans.hit(&touch, store);
            while let Some(range) = next {
                store.read(range);
                next = scans.more(&touch, store);
            }
        }
        faults
    }

    #[test]
    fn pages_in_order_are_read_ahead_wherever_their_slots_are() {
        for together in [1, 2] {
            assert_eq!(touched(&mut store(together), 0..PAGES), 4, "upward");
            let downward = (0..PAGES).rev();
            assert_eq!(touched(&mut store(together), downward), 4, "downward");
        }
    }

    #[test]
    fn slots_in_order_are_left_to_streams() {
        for together in [4, 16, PAGES] {
            let mut store = store(together);
            let faults = touched(&mut store, 0..PAGES);
            assert_eq!(faults, PAGES as usize, "{together} together");
        }
    }

    #[test]
    fn pages_in_memory_are_passed_over() {
        let mut store = store(1);
        (0..PAGES)
            .filter(|n| n % 5 > 1)
            .for_each(|n| store.out[n as usize] = false);
        // Of five pages two are out.
        assert_eq!(touched(&mut store, (0..PAGES).filter(|n| n % 5 < 2)), 4);
        let mut holes = super::tests::store(PAGES);
        (0..PAGES)
            .filter(|n| n % 5 > 1)
            .for_each(|n| holes.out[n as usize] = false);
        let out = || (0..PAGES).filter(|n| n % 5 < 2);
        assert_eq!(
            touched(&mut holes, out()),
            out().count(),
            "slots lie like pages"
        );
    }

    #[test]
    fn several_scans_in_turn_are_told_apart_and_random_faults_do_not_end_them() {
        let mut store = store(1);
        let (each, mut random) = (PAGES / 8, 1_u64);
        let mut faults = 0;
        let mut scans = Scans::new();
        for n in 0..each {
            for scan in 0..4 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let elsewhere = PAGES / 2 + (random >> 33) % (PAGES / 2);
                for index in [scan * each + n, elsewhere] {
                    let touch = store.touch(index);
                    if !store.out[index as usize] {
                        let mut next = scans.hit(&touch, &store);
                        while let Some(range) = next {
                            store.read(range);
                            next = scans.more(&touch, &store);
                        }
                    } else if let Some(window) = scans.fault(&touch, &store) {
                        store.read_window(&window);
                    } else {
                        faults += usize::from(index < PAGES / 2);
                        store.read(SlotRange::new(touch.slot, 1));
                    }
                }
            }
        }
        assert!(faults < 4 * 16, "{faults} faults alone");
    }

    #[test]
    fn random_faults_are_no_scans() {
        let (mut scans, mut random, mut named) = (Scans::new(), 1_u64, 0);
        let store = store(1);
        for _ in 0..10_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let touch = store.touch((random >> 33) % PAGES);
            named += u32::from(scans.fault(&touch, &store).is_some());
        }
        assert!(named < 20, "{named}");
    }
}
