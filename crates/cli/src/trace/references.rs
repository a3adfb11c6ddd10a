//! Page references out of a pager's event log.
//!
//! Every fault is a reference. Touches of pages that are mapped go unseen, so the references are
//! those that miss the resident set of the recording. Two things are inferred:
//! - Whether a page was written: the fault says so, or its content is another when it leaves.
//! - That a page was touched that came along with another (zero-fill around a fault, rescue around
//!   it, adopted at the start): it is, if its content is another when it leaves, and counts as
//!   touched when it came.
//!
//! What a page comes to when it is compressed is known where the pager compressed it with LZ4, or found it zero.
//!
//! Memory that the program gives back is not told: its pages keep their contents in the trace.
//!
//! The log of a forked child begins with its parent's until the fork. Only the child's own faults are
//! its references. What it finds in memory its parent wrote: the pages that it touches and that had
//! contents come first, as written, so that whoever replays the trace has them to read. Pages that were
//! mapped at the fork go unseen, as all that are mapped, until they left.

use std::collections::{HashMap, HashSet};

use outpage_core::contract::{Access, Action, ActionId, Event, Outcome, PageOutcome, Refusal};
use outpage_core::limits::Limits;
use outpage_core::page::ContentHash;
use outpage_core::record::{Logged, Reader, Unreadable, Why};
use outpage_core::tier;
use outpage_core::units::{Nanos, PAGE_BYTES, PageNo, PageRange};
use outpage_sim::sizes::Sizes;
use outpage_sim::trace::{Reference, Run};

/// What a log says about the program's references.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The references.
    pub runs: Vec<Run>,
    /// What LZ4 made of the pages, the last time that each was compressed.
    pub sizes: Sizes,
    /// How many they are.
    pub references: u64,
    /// Pages that were mapped at most: the resident set that references had to miss.
    pub resident: u64,
    /// Touches of pages that the program had given back: they should have found zeroes.
    pub given_back: u64,
    /// The references that begin the trace of a forked child: pages that it found filled.
    pub inherited: u64,
    /// The first fault of the process.
    pub began: Nanos,
    /// Forks between the first process in the log and this one.
    pub forks: usize,
    /// The process ended by `exit` or the end of `main`.
    pub ended: bool,
}

/// What is known of a page that is mapped.
#[derive(Clone, Copy)]
enum Seen {
    /// This reference brought it.
    By(usize),
    /// It came along before the reference of that number.
    Along(usize),
    /// It was mapped when the process was forked.
    Inherited,
}

#[derive(Default)]
struct Gatherer {
    references: Vec<Reference>,
    /// References that were inferred: where they belong, and the page.
    inferred: Vec<(usize, PageNo)>,
    mapped: HashMap<PageNo, Seen>,
    /// Contents when a page last left; `None` for zeroes.
    contents: HashMap<PageNo, Option<ContentHash>>,
    /// Runs of detaches, maps and zero-fills that wait for their answer.
    open: HashMap<ActionId, (Kind, PageRange)>,
    /// The same of compressions.
    compressing: HashMap<ActionId, Vec<PageNo>>,
    /// What pages came to when they were last compressed.
    sizes: HashMap<PageNo, u16>,
    /// Pages that were given back and not touched since.
    gone: HashSet<PageNo>,
    /// When the program last went on.
    resumed: Option<Nanos>,
    /// Pages that a parent filled, not touched since the fork; and those that were, whether they are still
    /// the same or not.
    parents: HashSet<PageNo>,
    inherited: Vec<PageNo>,
    /// The limit, and the most that it was.
    limit: usize,
    frames: usize,
    given_back: u64,
    began: Option<Nanos>,
    forks: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Map,
    Detach,
    Drop,
}

/// The references in the event log `bytes`.
///
/// # Errors
/// Where the log cannot be read. A log without an end is taken: a process that ends leaves one.
pub fn of_log(bytes: &[u8]) -> Result<Recording, Unreadable> {
    let mut reader = Reader::new(bytes)?;
    let buffer = reader.header().pageout_params.buffer_pages as usize;
    let frames = reader.header().frames as usize;
    let tier = tier::Choice::parse(reader.header().tier, tier::Written::Plain);
    // What another codec makes of a page is another size.
    let compresses = tier.is_ok_and(|choice| choice.entry().codec == "lz4");
    let mut gatherer = Gatherer {
        frames,
        limit: frames,
        ..Gatherer::default()
    };
    let mut now = Nanos(0);
    while let Some(entry) = next(&mut reader, bytes.len())? {
        match entry {
            Logged::Event { now: at, event } => {
                now = at;
                gatherer.event(now, event);
            }
            Logged::Action(action) => gatherer.action(now, &action),
        }
    }
    if !compresses {
        gatherer.sizes.clear();
    }
    Ok(Recording {
        ended: reader.ended(),
        ..gatherer.finish(buffer)
    })
}

/// The next entry; a log that stops between two entries has come to its end.
///
/// # Errors
/// Where the log cannot be read.
pub fn next<'a>(
    reader: &'a mut Reader<'_>,
    length: usize,
) -> Result<Option<Logged<'a>>, Unreadable> {
    let whole = reader.offset() == length;
    match reader.next_entry() {
        Err(Unreadable {
            why: Why::Truncated,
            ..
        }) if whole => Ok(None),
        other => other,
    }
}

/// What a log holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// Faults of the process itself, not of those that it was forked from.
    pub faults: u64,
    /// Forks between the first process in the log and this one.
    pub forks: usize,
    /// It has an end mark: the process ended by `exit` or the end of `main`, not by `_exit` or a signal.
    pub ended: bool,
    /// Bytes of whole entries; fewer than there are when it stops within one.
    pub whole: usize,
}

/// Reads the log once.
///
/// # Errors
/// Where the log is damaged.
pub fn extent(bytes: &[u8]) -> Result<Extent, Unreadable> {
    let mut reader = Reader::new(bytes)?;
    let mut extent = Extent::default();
    extent.whole = loop {
        match next(&mut reader, bytes.len()) {
            Ok(Some(Logged::Event { event, .. })) => match event {
                Event::Fault { .. } => extent.faults += 1,
                Event::Forked => (extent.faults, extent.forks) = (0, extent.forks + 1),
                _ => {}
            },
            Ok(Some(Logged::Action(_))) => {}
            Ok(None) => break reader.offset(),
            Err(torn) if torn.why == Why::Truncated => break torn.offset,
            Err(damage) => return Err(damage),
        }
    };
    extent.ended = reader.ended();
    Ok(extent)
}

impl Gatherer {
    fn event(&mut self, now: Nanos, event: Event<'_>) {
        match event {
            Event::Fault { page, access, .. } => {
                let gap = Nanos(
                    self.resumed
                        .map_or(0, |since| now.0.saturating_sub(since.0)),
                );
                self.resumed = Some(now);
                self.began.get_or_insert(now);
                self.given_back += u64::from(self.gone.remove(&page));
                if self.parents.remove(&page) {
                    self.inherited.push(page);
                }
                self.mapped.insert(page, Seen::By(self.references.len()));
                self.references.push(Reference { page, access, gap });
            }
            Event::Done { id, outcome } => self.answered(id, outcome),
            Event::Adopt(run) => self.came_along(run),
            Event::Unmap(run) | Event::Discard(run) => self.forget(run),
            Event::Freeing(run) => self.forget_outside(run),
            Event::Limit(frames) => {
                self.limit = frames;
                self.frames = self.frames.max(frames);
            }
            Event::Forked => self.forked(now),
            _ => {}
        }
    }

    /// What came before was another process.
    fn forked(&mut self, now: Nanos) {
        self.references.clear();
        self.inferred.clear();
        self.inherited.clear();
        self.given_back = 0;
        self.forks += 1;
        (self.began, self.resumed) = (None, Some(now));
        self.frames = self.limit;
        self.mapped
            .values_mut()
            .for_each(|seen| *seen = Seen::Inherited);
        let mapped = &self.mapped;
        let filled = self
            .contents
            .iter()
            .filter(|(_, content)| content.is_some());
        let filled = filled.map(|(page, _)| *page);
        self.parents = filled.filter(|page| !mapped.contains_key(page)).collect();
    }

    fn action(&mut self, now: Nanos, action: &Action) {
        match *action {
            Action::ZeroFill { id, run, .. } | Action::Map { id, run, .. } => {
                self.open.insert(id, (Kind::Map, run));
            }
            Action::Detach { id, run, .. } => {
                self.open.insert(id, (Kind::Detach, run));
            }
            Action::Drop { id, run } => {
                self.open.insert(id, (Kind::Drop, run));
            }
            Action::Compress { id, ref pages, .. } => {
                self.compressing.insert(id, pages.to_vec());
            }
            Action::Wake { .. } => self.resumed = Some(now),
            _ => {}
        }
    }

    fn answered(&mut self, id: ActionId, outcome: Outcome<'_>) {
        if let Outcome::Pages(outcomes) = outcome
            && let Some(pages) = self.compressing.remove(&id)
        {
            return self.compressed(&pages, outcomes);
        }
        let (Some((kind, run)), Outcome::Pages(pages)) = (self.open.remove(&id), outcome) else {
            return;
        };
        for (page, outcome) in run.iter().zip(pages) {
            match (kind, outcome) {
                (Kind::Map, PageOutcome::Done) => self.came_along(PageRange::one(page)),
                (Kind::Drop, PageOutcome::Done) => self.forget(PageRange::one(page)),
                (Kind::Detach, PageOutcome::Detached { hash, zero }) => {
                    self.left(page, (!zero).then_some(*hash));
                }
                _ => {}
            }
        }
    }

    fn compressed(&mut self, pages: &[PageNo], outcomes: &[PageOutcome]) {
        for (&page, outcome) in pages.iter().zip(outcomes) {
            let bytes = match outcome {
                PageOutcome::Kept { bytes } => *bytes,
                PageOutcome::Refused(Refusal::Unfit) => PAGE_BYTES as u16,
                _ => continue,
            };
            self.sizes.insert(page, bytes);
        }
    }

    fn came_along(&mut self, run: PageRange) {
        let at = self.references.len();
        for page in run.iter() {
            self.mapped.entry(page).or_insert(Seen::Along(at));
        }
    }

    fn left(&mut self, page: PageNo, content: Option<ContentHash>) {
        let before = self.contents.insert(page, content).flatten();
        if content.is_none() {
            self.sizes.insert(page, 0);
        }
        let wrote = before != content;
        match self.mapped.remove(&page) {
            Some(Seen::Inherited) if content.is_some() => {
                self.parents.insert(page);
            }
            Some(Seen::By(at)) if wrote => self.references[at].access = Access::Write,
            Some(Seen::Along(at)) if wrote => self.inferred.push((at, page)),
            _ => {}
        }
    }

    fn forget(&mut self, run: PageRange) {
        // A run may be as long as the address space; what is known is not.
        if run.pages <= self.contents.len() as u64 {
            for page in run.iter() {
                if self.contents.remove(&page).is_some() {
                    self.gone.insert(page);
                }
                self.mapped.remove(&page);
                self.parents.remove(&page);
            }
        } else {
            let inside = |page: &PageNo| run.contains(*page);
            self.gone.extend(
                self.contents
                    .extract_if(|page, _| inside(page))
                    .map(|(page, _)| page),
            );
            self.mapped.retain(|page, _| !inside(page));
            self.parents.retain(|page| !inside(page));
        }
    }

    /// The program freed `run`: what it does not have of it is gone.
    fn forget_outside(&mut self, run: PageRange) {
        let known = self.contents.keys().chain(&self.parents).copied();
        let outside = |page: &PageNo| run.contains(*page) && !self.mapped.contains_key(page);
        let gone: Vec<PageNo> = known.filter(outside).collect();
        (gone.into_iter()).for_each(|page| self.forget(PageRange::one(page)));
    }

    fn finish(mut self, buffer: usize) -> Recording {
        self.inferred.sort_by_key(|i| i.0);
        self.inherited.sort_unstable();
        let inherited = self.inherited.len() as u64;
        let own = (self.references.len() + self.inferred.len()) as u64;
        let mut runs = Vec::new();
        self.inherited
            .into_iter()
            .for_each(|page| append(&mut runs, written(page)));
        let mut inferred = self.inferred.into_iter().peekable();
        for (at, reference) in self.references.into_iter().enumerate() {
            while let Some((_, page)) = inferred.next_if(|i| i.0 <= at) {
                append(&mut runs, written(page));
            }
            append(&mut runs, reference);
        }
        inferred.for_each(|(_, page)| append(&mut runs, written(page)));
        let limits = Limits::new(self.frames.max(outpage_core::limits::FRAMES_MIN), buffer);
        Recording {
            runs,
            sizes: Sizes::new(self.sizes),
            references: inherited + own,
            resident: (limits.frames - limits.staged_low) as u64,
            given_back: self.given_back,
            inherited,
            began: self.began.unwrap_or_default(),
            forks: self.forks,
            ended: false,
        }
    }
}

const fn written(page: PageNo) -> Reference {
    Reference {
        page,
        access: Access::Write,
        gap: Nanos(0),
    }
}

/// Appends `reference`; neighbours in ascending order become one run, whose gap is the mean, so
/// that the whole time stays to a nanosecond a reference.
pub fn append(runs: &mut Vec<Run>, reference: Reference) {
    if let Some(run) = runs.last_mut()
        && let Some(next) = run.start.raw().checked_add(u64::from(run.count))
        && run.stride == 1
        && next == reference.page.raw()
        && run.start.object() == reference.page.object()
        && run.access == reference.access
        && run.count < u32::MAX
        && alike(run.gap.0, reference.gap.0)
    {
        let count = u64::from(run.count);
        run.gap = Nanos(
            ((u128::from(run.gap.0) * u128::from(count) + u128::from(reference.gap.0))
                / u128::from(count + 1)) as u64,
        );
        run.count += 1;
        return;
    }
    runs.push(Run::one(reference));
}

/// Whether two gaps may become one mean: neither is more than eight times the other, or both are
/// below 100 us, which no disk's time depends on.
const fn alike(a: u64, b: u64) -> bool {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    high < 100_000 || high / 8 <= low
}

#[cfg(test)]
mod tests;
