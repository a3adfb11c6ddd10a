//! Clusters, buffers and slots of the laundering, from queues that a test lays out.

use alloc::vec::Vec;

use super::super::{Driver, Pager, Setup};
use super::PageDaemon;
use crate::contract::{Access, Action, Body, Event, Outcome, Source, Waiter};
use crate::page::{Bit, DIRTY, PageId, Queue, State};
use crate::pager::ledger::Ledger;
use crate::readahead::Choice;
use crate::reclaim::Policy;
use crate::reclaim::bsd::{Buffered, Params, Release};
use crate::units::{Nanos, ObjectId, PageNo, PageRange, SlotNo, SlotRange};
use crate::{pageout, readahead, slots};

const A: u32 = 1;
const B: u32 = 2;
const C: u32 = 3;

fn page(object: u32, index: u64) -> PageNo {
    PageNo::new(ObjectId(object), index)
}

fn pages(object: u32, indices: core::ops::Range<u64>) -> Vec<PageNo> {
    indices.map(|index| page(object, index)).collect()
}

struct Machine {
    pager: Pager,
    /// Answers to writes wait until they are asked for.
    holds: bool,
    held: Vec<crate::contract::ActionId>,
    written: Vec<Vec<PageNo>>,
    to: Vec<SlotRange>,
    woken: Vec<u32>,
}

impl Machine {
    fn new(pageout: &str, buffer_pages: u32, params: Params) -> Self {
        let out = pageout::find(pageout).expect("registered");
        let ahead = readahead::find("bsd").expect("registered");
        let pager = Pager::new(Setup {
            reclaim: Policy::Daemon(params),
            pageout: (out.build)(pageout::Params {
                buffer_pages,
                ..out.params()
            }),
            readahead: Choice::ungoverned(ahead).build(),
            slots: slots::find("blist").expect("registered").build,
            tier: None,
            discard: None,
            frames: 4000,
            slots_max: 1 << 12,
            zero_around: 1,
            rescue_around: 0,
            body: Body { bits: true },
        });
        Self {
            pager,
            holds: false,
            held: Vec::new(),
            written: Vec::new(),
            to: Vec::new(),
            woken: Vec::new(),
        }
    }

    fn kernel(pageout: &str, buffer_pages: u32) -> Self {
        let mut machine = Self::new(pageout, buffer_pages, Params::new(Release::V6_2));
        machine.swap(2..4096);
        machine
    }

    fn parts(&mut self) -> (&mut PageDaemon, &mut Ledger) {
        let Driver::Daemon(driver) = &mut self.pager.driver else {
            unreachable!("the policy is a daemon")
        };
        (driver, &mut self.pager.ledger)
    }

    fn launder(&mut self, victim: PageId) {
        let (driver, ledger) = self.parts();
        driver.laundry.launder(ledger, &driver.reserve, victim);
    }

    fn flush_on(&mut self) -> bool {
        let (driver, ledger) = self.parts();
        driver.flush_on(ledger)
    }

    fn event(&mut self, event: Event<'_>) {
        self.pager.handle(Nanos(1), event);
        self.drive();
    }

    fn swap(&mut self, slots: core::ops::Range<u32>) {
        let count = slots.end - slots.start;
        self.event(Event::Grown(SlotRange::new(SlotNo(slots.start), count)));
        self.event(Event::Full);
    }

    fn drive(&mut self) {
        while let Some(action) = self.pager.poll_action() {
            match action {
                Action::PageOut {
                    id, slots, pages, ..
                } => {
                    self.written.push(pages.to_vec());
                    self.to.push(slots);
                    self.held.push(id);
                    if !self.holds {
                        self.answer();
                    }
                }
                Action::Wake { waiter, .. } => self.woken.push(waiter.0),
                other => panic!("{other:?}"),
            }
        }
    }

    fn answer(&mut self) {
        let id = self.held.remove(0);
        let outcome = Outcome::Done;
        self.event(Event::Done { id, outcome });
    }

    /// A mapped, dirty page at the end of the inactive queue.
    fn put(&mut self, page: PageNo) -> PageId {
        let pages = &mut self.pager.ledger.pages;
        let id = pages.create(page, State::Mapping);
        pages.set_state(id, State::Resident);
        pages.set_bit(id, Bit::Writable, true);
        pages.set_flag(id, DIRTY, true);
        pages.push(Queue::Inactive, id);
        id
    }

    fn put_all(&mut self, pages: &[PageNo]) {
        pages.iter().for_each(|&page| {
            self.put(page);
        });
    }

    /// The daemon names the page as a victim, unless it is busy by now.
    fn victim(&mut self, page: PageNo) {
        let id = self.pager.ledger.pages.find(page).expect("put before");
        let collected = self.pager.ledger.pages.has(id, crate::page::COLLECTED);
        if !collected && self.pager.ledger.pages.has(id, DIRTY) {
            self.launder(id);
            self.flush();
        }
    }

    fn flush(&mut self) {
        while !self.flush_on() {
            assert!(!self.holds);
            self.drive();
        }
        self.drive();
    }

    fn walk(&mut self, victims: &[PageNo]) {
        victims.iter().for_each(|&page| self.victim(page));
        let (driver, ledger) = self.parts();
        driver.laundry.flush_buffer(ledger);
        self.flush();
    }

    fn sizes(&self) -> Vec<usize> {
        self.written.iter().map(Vec::len).collect()
    }

    fn fault(&mut self, page: PageNo, access: Access) {
        self.event(Event::Fault {
            page,
            access,
            waiter: Waiter(7),
            source: Source(7),
            extent: PageRange::new(self::page(page.object().0, 0), 1000),
        });
    }
}

#[test]
fn section_6_cluster_examples() {
    let examples = [
        (0..200, 100, 96..112),
        (0..200, 111, 96..112),
        (0..200, 112, 97..113),
        (0..200, 113, 112..128),
        (0..200, 127, 112..128),
        (0..23, 20, 7..23),
        (10..38, 35, 22..38),
        (4..41, 8, 4..20),
    ];
    for (dirty, victim, expected) in examples {
        let mut machine = Machine::kernel("bsd", 16);
        machine.put_all(&pages(A, dirty));
        machine.victim(page(A, victim));
        assert_eq!(machine.written, [pages(A, expected)], "victim {victim}");
    }
}

#[test]
fn section_6_who_goes_along() {
    let mut machine = Machine::kernel("bsd", 16);
    machine.put_all(&pages(A, 0..16));
    let id = |machine: &Machine, index| machine.pager.ledger.pages.find(page(A, index)).unwrap();
    // Referenced, noted, seen or not, old or young: all the same.
    let seven = id(&machine, 7);
    for bit in [Bit::Referenced, Bit::Noted] {
        machine.pager.ledger.pages.set_bit(seven, bit, true);
    }
    machine.pager.ledger.pages.set_age(seven, 9);
    // Dirty by its mapping only.
    let six = id(&machine, 6);
    machine.pager.ledger.pages.set_flag(six, DIRTY, false);
    machine.pager.ledger.pages.set_bit(six, Bit::Modified, true);
    // Clean, active, and of another object.
    let four = id(&machine, 4);
    machine.pager.ledger.pages.set_flag(four, DIRTY, false);
    let eleven = id(&machine, 11);
    machine.pager.ledger.pages.unqueue(eleven);
    machine.pager.ledger.pages.push(Queue::Active, eleven);
    machine.put(page(B, 12));
    machine.victim(page(A, 8));
    assert_eq!(machine.written, [pages(A, 5..11)]);
    // What is being written does not go along.
    machine.holds = true;
    machine.put_all(&pages(C, 0..4));
    machine.victim(page(C, 0));
    machine.put(page(C, 4));
    machine.victim(page(C, 4));
    assert_eq!(machine.written[1..], [pages(C, 0..4), pages(C, 4..5)]);
}

#[test]
fn section_7_a_broken_up_store_halves_requests() {
    // Runs of four: 16, 8, 4; 12, 6, 3; 9, 4; 5, 2; 3.
    let mut machine = Machine::new("bsd", 16, Params::new(Release::V6_2));
    for start in (2..200).step_by(8) {
        machine.swap(start..start + 4);
    }
    machine.put_all(&pages(A, 0..16));
    machine.victim(page(A, 3));
    assert_eq!(machine.sizes(), [4, 3, 4, 2, 3]);
    assert_eq!(machine.pager.stats().write_pages.0[2..5], [1, 2, 2]);
    // Runs of two: 16, 8, 4 give up four pages, 12, 6, 3 three, 9, 4 four; 5, 2 finds one.
    let mut machine = Machine::new("bsd", 16, Params::new(Release::V6_2));
    for start in (2..200).step_by(8) {
        machine.swap(start..start + 2);
    }
    machine.put_all(&pages(A, 0..16));
    machine.victim(page(A, 3));
    assert_eq!(machine.written, [pages(A, 11..13)]);
    for page in pages(A, 0..16) {
        let place = machine.pager.place_of(page).expect("stays");
        let written = place.slot.is_some();
        assert_eq!(written, (11..13).contains(&page.index()));
        let queue = if written {
            Queue::Inactive
        } else {
            Queue::Active
        };
        assert_eq!((place.queue, place.dirty), (queue, !written), "{page:?}");
    }
}

#[test]
fn moc_figure_4() {
    for (pageout, sizes) in [("bsd", &[14, 1, 1][..]), ("moc", &[16])] {
        let mut machine = Machine::kernel(pageout, 16);
        machine.put_all(&pages(A, 1..15));
        machine.put_all(&[page(B, 5), page(C, 9)]);
        machine.walk(&[page(A, 4), page(B, 5), page(C, 9)]);
        assert_eq!(machine.sizes(), sizes, "{pageout}");
        assert_eq!(machine.pager.stats().page_outs, 16);
    }
}

#[test]
fn moc_figure_5() {
    let mut machine = Machine::kernel("moc", 16);
    let singles: Vec<_> = (0..16).map(|i| page(A, 10 * i)).collect();
    machine.put_all(&singles);
    machine.put_all(&pages(B, 0..2));
    machine.put_all(&pages(C, 0..2));
    let mut victims = singles;
    victims.extend([page(B, 0), page(C, 1)]);
    machine.walk(&victims);
    assert_eq!(machine.sizes(), [16, 4]);
}

#[test]
fn moc_figure_6() {
    let mut machine = Machine::kernel("moc", 16);
    machine.put_all(&pages(A, 0..9));
    machine.put_all(&[page(B, 10), page(B, 20)]);
    machine.put_all(&pages(B, 30..32));
    machine.put_all(&pages(C, 0..5));
    let victims = [
        page(A, 4),
        page(B, 10),
        page(B, 20),
        page(B, 31),
        page(C, 4),
    ];
    machine.walk(&victims);
    assert_eq!(machine.sizes(), [13, 5]);
}

#[test]
fn moc_figure_7() {
    for (pageout, together) in [("moc", true), ("mclustering", false)] {
        let mut machine = Machine::kernel(pageout, 16);
        machine.put_all(&pages(A, 50..53));
        machine.put(page(B, 7));
        machine.victim(page(A, 51));
        machine.victim(page(B, 7));
        // These reach the queue when the others sit in the buffer.
        machine.put_all(&pages(A, 48..50));
        machine.walk(&[page(A, 48)]);
        assert_eq!(machine.sizes(), [6]);
        let slot = |index| machine.pager.place_of(page(A, index)).unwrap().slot.0;
        assert_eq!(slot(52) - slot(50), 2);
        assert_eq!(slot(50) == slot(49) + 1, together, "{pageout}");
    }
}

#[test]
fn mclustering_figures_1_and_2() {
    let mut machine = Machine::kernel("mclustering", 6);
    machine.put_all(&pages(A, 1..5));
    machine.put_all(&[page(B, 6), page(C, 8)]);
    machine.walk(&[page(A, 2), page(B, 6), page(C, 8)]);
    assert_eq!(machine.sizes(), [6]);
    let mut machine = Machine::kernel("mclustering", 6);
    machine.put_all(&pages(A, 1..3));
    machine.put_all(&pages(B, 4..6));
    machine.put_all(&pages(C, 7..10));
    machine.walk(&[page(A, 1), page(B, 4), page(C, 7)]);
    assert_eq!(
        machine.written[0],
        [pages(A, 1..3), pages(B, 4..6)].concat()
    );
    assert_eq!(machine.written[1], pages(C, 7..10));
}

#[test]
fn mclustering_falls_back_to_a_run_for_each_cluster() {
    for (pageout, sizes) in [("mclustering", &[4, 2][..]), ("moc", &[3, 3])] {
        let mut machine = Machine::new(pageout, 6, Params::new(Release::V6_2));
        for start in (2..100).step_by(8) {
            machine.swap(start..start + 4);
        }
        machine.put_all(&pages(A, 0..4));
        machine.put_all(&pages(B, 0..2));
        machine.walk(&[page(A, 0), page(B, 0)]);
        assert_eq!(machine.sizes(), sizes, "{pageout}");
    }
}

#[test]
fn buffered_pages_are_busy_until_they_are_written() {
    let mut machine = Machine::kernel("moc", 16);
    machine.put_all(&pages(A, 0..3));
    machine.victim(page(A, 1));
    assert_eq!(machine.written.len(), 0);
    let place = machine.pager.place_of(page(A, 0)).unwrap();
    assert!(place.mapped && !place.writable && place.queue == Queue::Inactive);
    machine.fault(page(A, 0), Access::Write);
    assert_eq!(machine.woken, [], "it waits for the write");
    machine.walk(&[]);
    assert_eq!(
        (machine.sizes(), &machine.woken[..]),
        (Vec::from([3]), &[7][..])
    );
    let place = machine.pager.place_of(page(A, 0)).unwrap();
    assert!(place.dirty && place.slot == SlotNo::NONE && place.queue == Queue::Active);
}

#[test]
fn buffered_pages_can_be_taken_back() {
    let params = Params {
        buffered: Buffered::Revalidated,
        ..Params::new(Release::V6_2)
    };
    let mut machine = Machine::new("moc", 16, params);
    machine.swap(2..4096);
    machine.put_all(&pages(A, 0..3));
    for index in [0, 2] {
        let id = machine.pager.ledger.pages.find(page(A, index)).unwrap();
        crate::reclaim::bsd::unmap(&mut machine.pager.ledger.pages, id);
    }
    machine.victim(page(A, 1));
    machine.fault(page(A, 0), Access::Read);
    assert_eq!(machine.woken, [7]);
    machine.walk(&[]);
    assert_eq!(machine.written, [pages(A, 1..3)]);
}

#[test]
fn a_range_that_goes_away_leaves_the_buffer() {
    let mut machine = Machine::kernel("moc", 16);
    machine.put_all(&pages(A, 0..3));
    machine.put_all(&pages(B, 0..3));
    machine.victim(page(A, 1));
    machine.victim(page(B, 1));
    machine.fault(page(A, 0), Access::Write);
    machine.event(Event::Unmap(PageRange::new(page(A, 0), 3)));
    assert_eq!(machine.woken, [7]);
    machine.walk(&[]);
    assert_eq!(machine.written, [pages(B, 0..3)]);
}

#[test]
fn the_fifth_write_waits_with_its_slots_in_hand() {
    let mut machine = Machine::kernel("single", 1);
    machine.holds = true;
    machine.put_all(&pages(A, 0..5));
    for index in 0..4 {
        machine.victim(page(A, index));
    }
    let id = machine.pager.ledger.pages.find(page(A, 4)).unwrap();
    machine.launder(id);
    assert!(!machine.flush_on());
    assert_eq!(machine.pager.state(page(A, 4)), State::Resident);
    machine.answer();
    assert!(machine.flush_on());
    assert_eq!(machine.pager.state(page(A, 4)), State::Writing);
}
