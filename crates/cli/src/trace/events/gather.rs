//! An event log as intervals of time, transfers and faults.

use std::collections::HashMap;

use outpage_core::contract::{Action, ActionId, Event, Waiter};
use outpage_core::record::{Reader, Unreadable};
use outpage_core::swap_cache::SwapCache;
use outpage_core::units::{Nanos, PageNo};
use outpage_stats::Histogram;

use super::super::references::next;
use super::objects::{Object, Objects};
use outpage_core::record::Logged;

/// Intervals that the whole time is cut into: as many as a chart has places for.
const INTERVALS: u64 = 240;

/// What is counted in an interval. Pages unless said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Columns {
    /// Read.
    pub page_ins: u64,
    /// Reads.
    pub reads: u64,
    /// Written.
    pub page_outs: u64,
    /// Writes.
    pub writes: u64,
    /// Faults answered without a read.
    pub minor_faults: u64,
    /// Faults that waited for a read.
    pub major_faults: u64,
    /// Mapped as zeroes.
    pub zero_fills: u64,
    /// Moved out of the program.
    pub detached: u64,
    /// Read without anybody waiting for them.
    pub ahead: u64,
    /// Of those, touched later.
    pub hits: u64,
    /// Of those, mapped together with a touched page: their use cannot be seen.
    pub along: u64,
    /// Of those, released untouched.
    pub waste: u64,
}

/// A column: its name and its value.
type Column = (&'static str, fn(&Columns) -> u64);

impl Columns {
    /// Names and values, in order.
    pub const NAMES: [Column; 12] = [
        ("page_ins", |c| c.page_ins),
        ("reads", |c| c.reads),
        ("page_outs", |c| c.page_outs),
        ("writes", |c| c.writes),
        ("minor_faults", |c| c.minor_faults),
        ("major_faults", |c| c.major_faults),
        ("zero_fills", |c| c.zero_fills),
        ("detached", |c| c.detached),
        ("read_ahead", |c| c.ahead),
        ("read_ahead_hits", |c| c.hits),
        ("read_ahead_along", |c| c.along),
        ("read_ahead_waste", |c| c.waste),
    ];
}

/// One interval.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interval {
    /// What was counted.
    pub columns: Columns,
    /// Reads in flight, writes in flight and faults waiting, at most.
    pub most: [u32; 3],
    /// Latencies of the faults that ended in it.
    pub waits: Histogram,
}

/// Something with a beginning and an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// What.
    pub kind: Kind,
    /// From the first event on, in nanoseconds.
    pub from_ns: u64,
    /// The same.
    pub to_ns: u64,
    /// Pages; 1 for a fault.
    pub pages: u64,
    /// The first page.
    pub page: u64,
}

/// What takes time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A read of the swap file.
    Read,
    /// A write of it.
    Write,
    /// A fault answered without a read.
    Minor,
    /// A fault that waited for a read.
    Major,
}

/// A whole log.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The policies, for titles.
    pub policies: String,
    /// The whole time, in nanoseconds.
    pub end_ns: u64,
    /// The length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// In order.
    pub intervals: Vec<Interval>,
    /// Over the whole time.
    pub total: Columns,
    /// In order of their ends.
    pub spans: Vec<Span>,
    /// Latencies of minor faults.
    pub minor: Histogram,
    /// Latencies of major faults.
    pub major: Histogram,
    /// Reads by their pages.
    pub read_sizes: Vec<(u64, u64)>,
    /// Memory objects that something was read of, the most first.
    pub objects: Vec<Object>,
}

struct Waiting {
    page: PageNo,
    since: u64,
    read: bool,
}

#[derive(Default)]
struct Gatherer {
    timeline: Timeline,
    now: u64,
    faults: HashMap<Waiter, Waiting>,
    /// Transfers under way: kind, since, pages.
    transfers: HashMap<ActionId, (Kind, u64, Vec<PageNo>)>,
    /// Pages that were read ahead and not touched yet.
    ahead: HashMap<PageNo, ()>,
    read_sizes: HashMap<u64, u64>,
    objects: Objects,
}

impl Timeline {
    /// The log `bytes` as a timeline.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub fn of(bytes: &[u8]) -> Result<Self, Unreadable> {
        let (start, end) = span(bytes)?;
        let mut reader = Reader::new(bytes)?;
        let header = reader.header();
        let policies = format!(
            "page-out {}, read-ahead {}, slots {}",
            header.pageout, header.readahead, header.slots
        );
        let end_ns = end - start;
        let interval_ns = (end_ns / INTERVALS).max(1_000) + 1;
        let intervals = vec![Interval::default(); (end_ns / interval_ns + 1) as usize];
        let timeline = Self {
            policies,
            end_ns,
            interval_ns,
            intervals,
            ..Self::default()
        };
        let fresh = || Gatherer {
            timeline: timeline.clone(),
            ..Gatherer::default()
        };
        let mut gatherer = fresh();
        while let Some(entry) = next(&mut reader, bytes.len())? {
            match entry {
                Logged::Event { now, .. } if now.0 < start => {}
                Logged::Event {
                    event: Event::Forked,
                    ..
                } => gatherer = fresh(),
                Logged::Event { now, event } => gatherer.event(now.0 - start, event),
                Logged::Action(action) => gatherer.action(&action),
            }
        }
        Ok(gatherer.finish())
    }
}

/// The times of the first and the last event; a forked child's first is its fork.
fn span(bytes: &[u8]) -> Result<(u64, u64), Unreadable> {
    let mut reader = Reader::new(bytes)?;
    let mut span: Option<(Nanos, Nanos)> = None;
    while let Some(entry) = next(&mut reader, bytes.len())? {
        if let Logged::Event { now, event } = entry {
            let first = span.filter(|_| !matches!(event, Event::Forked));
            span = Some((first.map_or(now, |s| s.0), now));
        }
    }
    Ok(span.map_or((0, 0), |(first, last)| (first.0, last.0.max(first.0))))
}

impl Gatherer {
    fn at(&self) -> usize {
        let last = self.timeline.intervals.len() - 1;
        last.min((self.now / self.timeline.interval_ns) as usize)
    }

    fn interval(&mut self) -> &mut Interval {
        let at = self.at();
        &mut self.timeline.intervals[at]
    }

    /// Counts in the interval for the object of `page`.
    fn count_of(&mut self, page: PageNo, count: impl Fn(&mut SwapCache)) {
        let (at, intervals) = (self.at(), self.timeline.intervals.len());
        self.objects.count(page, at, intervals, count);
    }

    /// Counts in the interval.
    fn count(&mut self, column: impl Fn(&mut Columns) -> &mut u64, by: u64) {
        *column(&mut self.interval().columns) += by;
        *column(&mut self.timeline.total) += by;
    }

    fn note_queues(&mut self) {
        let of = |kind| self.transfers.values().filter(|t| t.0 == kind).count() as u32;
        let now = [of(Kind::Read), of(Kind::Write), self.faults.len() as u32];
        let most = &mut self.interval().most;
        for (most, now) in most.iter_mut().zip(now) {
            *most = (*most).max(now);
        }
    }

    fn event(&mut self, now: u64, event: Event<'_>) {
        self.now = now;
        match event {
            Event::Fault { page, waiter, .. } => {
                if self.ahead.remove(&page).is_some() {
                    self.count(|c| &mut c.hits, 1);
                    let late = self.is_read(page);
                    self.count_of(page, |c| {
                        c.hits += 1;
                        c.late += u64::from(late);
                    });
                }
                self.faults.insert(
                    waiter,
                    Waiting {
                        page,
                        since: now,
                        read: false,
                    },
                );
                self.note_queues();
            }
            Event::Left(waiter) => {
                // A page that is on its way is nobody's wait any more.
                self.faults.remove(&waiter);
            }
            Event::Done { id, .. } => {
                if let Some((kind, since, pages)) = self.transfers.remove(&id) {
                    let first = pages.first().map_or(0, |p| p.raw());
                    self.span(kind, since, pages.len() as u64, first);
                }
            }
            Event::Unmap(run) | Event::Discard(run) | Event::Freeing(run) => {
                let pages = self.ahead.keys().copied();
                let gone: Vec<PageNo> = pages.filter(|page| run.contains(*page)).collect();
                self.wasted(&gone);
            }
            _ => {}
        }
    }

    fn action(&mut self, action: &Action) {
        let pages = action.pages();
        match *action {
            Action::PageIn { id, .. } => self.page_in(id, pages),
            Action::PageOut { id, .. } => {
                self.count(|c| &mut c.page_outs, pages.len() as u64);
                self.count(|c| &mut c.writes, 1);
                self.transfers
                    .insert(id, (Kind::Write, self.now, pages.to_vec()));
                self.note_queues();
            }
            Action::ZeroFill { run, .. } => self.count(|c| &mut c.zero_fills, run.pages),
            Action::Detach { run, .. } => self.count(|c| &mut c.detached, run.pages),
            Action::Map { run, .. } => {
                for page in run.iter() {
                    if self.ahead.remove(&page).is_some() {
                        self.count(|c| &mut c.along, 1);
                        self.count_of(page, |c| c.mapped += 1);
                    }
                }
            }
            Action::Release { .. } => self.wasted(pages),
            Action::Wake { waiter, .. } => self.wake(waiter),
            Action::Drop { .. }
            | Action::Compress { .. }
            | Action::Decompress { .. }
            | Action::Dead { .. }
            | Action::Poison { .. }
            | Action::TakenBack { .. }
            | Action::Grow { .. }
            | Action::Shrink { .. }
            | Action::Exhausted { .. } => {}
        }
    }

    /// Pages that are no longer there; those that were read ahead were not touched.
    fn wasted(&mut self, pages: &[PageNo]) {
        for &page in pages {
            if self.ahead.remove(&page).is_some() {
                self.count(|c| &mut c.waste, 1);
                self.count_of(page, |c| c.waste += 1);
            }
        }
    }

    /// Whether the page is being read.
    fn is_read(&self, page: PageNo) -> bool {
        (self.transfers.values())
            .any(|(kind, _, pages)| *kind == Kind::Read && pages.contains(&page))
    }

    fn page_in(&mut self, id: ActionId, pages: &[PageNo]) {
        self.count(|c| &mut c.page_ins, pages.len() as u64);
        self.count(|c| &mut c.reads, 1);
        *self.read_sizes.entry(pages.len() as u64).or_default() += 1;
        let mut ahead = 0;
        for &page in pages {
            let mut awaited = false;
            for fault in self.faults.values_mut().filter(|f| f.page == page) {
                (fault.read, awaited) = (true, true);
            }
            if !awaited {
                ahead += 1;
                self.ahead.insert(page, ());
            }
            self.count_of(page, |c| {
                c.page_ins += 1;
                c.major_faults += u64::from(awaited);
                c.read_ahead += u64::from(!awaited);
            });
        }
        self.count(|c| &mut c.ahead, ahead);
        self.transfers
            .insert(id, (Kind::Read, self.now, pages.to_vec()));
        self.note_queues();
    }

    fn wake(&mut self, waiter: Waiter) {
        let Some(fault) = self.faults.remove(&waiter) else {
            return;
        };
        let ns = self.now - fault.since;
        let kind = if fault.read { Kind::Major } else { Kind::Minor };
        if fault.read {
            self.timeline.major.record(ns);
            self.count(|c| &mut c.major_faults, 1);
        } else {
            self.timeline.minor.record(ns);
            self.count(|c| &mut c.minor_faults, 1);
        }
        self.interval().waits.record(ns);
        self.span(kind, fault.since, 1, fault.page.raw());
    }

    fn span(&mut self, kind: Kind, from_ns: u64, pages: u64, page: u64) {
        self.timeline.spans.push(Span {
            kind,
            from_ns,
            to_ns: self.now,
            pages,
            page,
        });
    }

    fn finish(mut self) -> Timeline {
        self.timeline.read_sizes = self.read_sizes.into_iter().collect();
        self.timeline.read_sizes.sort_unstable();
        self.timeline.objects = self.objects.sorted();
        self.timeline
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use outpage_core::contract::{Access, Outcome, PageList, Source};
    use outpage_core::page::ContentHash;
    use outpage_core::pageout::{self, ClusterWindow};
    use outpage_core::record::{Header, Recorder};
    use outpage_core::units::{ObjectId, PageRange, SlotNo, SlotRange};

    fn header() -> Header<'static> {
        Header {
            reclaim: "second-chance",
            pageout: "packed",
            pageout_params: pageout::Params {
                buffer_pages: 16,
                window: ClusterWindow::Kernel,
            },
            readahead: "none",
            tier: "none",
            discard: "none",
            slots: "log",
            frames: 256,
            measured: 256,
            slots_max: 1000,
            zero_around: 1,
            rescue_around: 0,
        }
    }

    pub fn page(object: u32, index: u64) -> PageNo {
        PageNo::new(ObjectId(object), index)
    }

    /// A fault on page 7 that reads 7 and 8 in 2 us, then one on 8 that is there; page 9 is
    /// written, in 5 us. Then page 21 of another object, read with 20 and 22, which are released.
    pub fn log() -> Vec<u8> {
        let mut bytes = Vec::new();
        let out = &mut bytes;
        let mut recorder = Recorder::begin(&header(), out);
        let of_first = |index| page(0, index);
        let fault = |at: u64, waiter: u32| Event::Fault {
            page: of_first(at),
            access: Access::Read,
            waiter: Waiter(waiter),
            source: Source(waiter),
            extent: PageRange::new(of_first(0), 100),
        };
        let id = ActionId;
        recorder.event(Nanos(1000), &fault(7, 1), out);
        let slots = SlotRange::new(SlotNo(4), 2);
        recorder.action(&read(0, slots, &[of_first(7), of_first(8)]), out);
        recorder.event(
            Nanos(3000),
            &Event::Done {
                id: id(0),
                outcome: Outcome::Done,
            },
            out,
        );
        recorder.action(
            &Action::Wake {
                waiter: Waiter(1),
                page: of_first(7),
            },
            out,
        );
        recorder.event(Nanos(4000), &fault(8, 1), out);
        recorder.action(
            &Action::Wake {
                waiter: Waiter(1),
                page: of_first(8),
            },
            out,
        );
        let slots = SlotRange::new(SlotNo(9), 1);
        let write = Action::PageOut {
            id: id(1),
            slots,
            pages: PageList::new(vec![of_first(9)], vec![ContentHash::default()]),
            after: None,
        };
        recorder.action(&write, out);
        recorder.event(
            Nanos(9000),
            &Event::Done {
                id: id(1),
                outcome: Outcome::Done,
            },
            out,
        );
        read_three(&mut recorder, out);
        recorder.end(out);
        bytes
    }

    fn read(id: u32, slots: SlotRange, pages: &[PageNo]) -> Action {
        let hashes = vec![ContentHash::default(); pages.len()];
        Action::PageIn {
            id: ActionId(id),
            slots,
            pages: PageList::new(pages.to_vec(), hashes),
            after: None,
        }
    }

    fn read_three(recorder: &mut Recorder, out: &mut Vec<u8>) {
        let fault = Event::Fault {
            page: page(1, 21),
            access: Access::Read,
            waiter: Waiter(1),
            source: Source(1),
            extent: PageRange::new(page(1, 20), 3),
        };
        recorder.event(Nanos(10_000), &fault, out);
        let slots = SlotRange::new(SlotNo(10), 3);
        let pages = [20, 21, 22].map(|index| page(1, index));
        recorder.action(&read(2, slots, &pages), out);
        let done = Event::Done {
            id: ActionId(2),
            outcome: Outcome::Done,
        };
        recorder.event(Nanos(11_000), &done, out);
        let (waiter, page) = (Waiter(1), pages[1]);
        recorder.action(&Action::Wake { waiter, page }, out);
        let release = Action::Release {
            id: ActionId(3),
            pages: PageList::new(vec![pages[0], pages[2]], Vec::new()),
            after: None,
        };
        recorder.action(&release, out);
    }

    #[test]
    fn everything_is_counted_once() {
        let timeline = Timeline::of(&log()).expect("a whole log");
        let expected = Columns {
            page_ins: 5,
            reads: 2,
            page_outs: 1,
            writes: 1,
            minor_faults: 1,
            major_faults: 2,
            ahead: 3,
            hits: 1,
            waste: 2,
            ..Columns::default()
        };
        assert_eq!(timeline.total, expected);
        assert_eq!(
            (timeline.end_ns, timeline.read_sizes.as_slice()),
            (10_000, &[(2, 1), (3, 1)][..])
        );
        assert_eq!(timeline.major.quantile(0.99).map(|ns| ns / 100), Some(20));
        let sums: u64 = timeline.intervals.iter().map(|i| i.columns.page_ins).sum();
        assert_eq!(sums, 5);
        assert_eq!(timeline.spans.len(), 6);
        assert!(timeline.intervals.iter().any(|i| i.most == [1, 0, 1]));
    }

    #[test]
    fn a_cut_log_is_refused_within_an_entry_only() {
        let whole = log();
        let mut whole_at = 0;
        for length in 0..whole.len() {
            match Timeline::of(&whole[..length]) {
                Ok(_) => whole_at += 1,
                Err(unreadable) => assert!(unreadable.offset <= length),
            }
        }
        // After the header and after each of the 13 entries but the last, the end.
        assert_eq!(whole_at, 14);
    }
}
