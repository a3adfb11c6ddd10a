//! A body with real contents: it carries out actions, checks what they do, and lets the world
//! misbehave as the contract allows.

use std::collections::{BTreeMap, BTreeSet};

use outpage_core::contract::{Access, Action, ActionId, Event, PageOutcome, Source, Waiter};
use outpage_core::limits::FRAMES_MIN;
use outpage_core::page::{ContentHash, State};
use outpage_core::pager::Pager;
use outpage_core::record::Recorder;
use outpage_core::units::{Nanos, ObjectId, PageNo, PageRange, SlotNo, SlotRange};

use crate::plan::{Plan, Random};
use crate::store::{Content, Store};

/// Memory objects and the pages of each.
pub const OBJECTS: u32 = 3;
pub const OBJECT_PAGES: u64 = 400;
pub const THREADS: usize = 6;

/// Faults for one access after which the program counts as not getting on.
const FAULTS_MAX: u32 = 2000;
/// Failed reads in a row that a page must survive.
pub const READ_FAILURES_MAX: u32 = 4;

pub fn page(object: u32, index: u64) -> PageNo {
    PageNo::new(ObjectId(object), index)
}

pub fn hash_of(content: Content) -> ContentHash {
    ContentHash([content as u32, (content >> 32) as u32, 0x5eed])
}

/// Where the content of a page is, apart from the store.
#[derive(Clone, Copy, Default)]
pub struct Truth {
    /// What the program wrote last.
    pub value: Content,
    /// In a frame that the program sees.
    pub mapped: Option<Content>,
    /// In a frame that it does not see.
    pub staged: Option<Content>,
    /// Mapped without the pager's knowledge.
    pub unknown: bool,
    /// A touch signals.
    pub poisoned: bool,
    /// The program gave its content up until it takes it back.
    pub discardable: bool,
    /// The program gave its content up until it writes there, which it has not done yet.
    pub freed: bool,
    /// It was given up, and the pager dropped it: nobody was told yet.
    pub lost: bool,
    /// So it may be, and held zeroes.
    pub zeroes: bool,
    pub pinned: bool,
    pub read_failures: u32,
    /// The tick after which it was mapped.
    pub mapped_in: u32,
}

#[derive(Clone, Copy)]
pub struct Touch {
    pub page: PageNo,
    /// What to write; a read otherwise.
    pub write: Option<Content>,
    pub waiter: Option<Waiter>,
    pub faults: u32,
}

pub struct Op {
    pub id: ActionId,
    pub action: Action,
    pub pages: Vec<PageNo>,
    /// What is to be carried out before, as long as it is unanswered.
    pub after: Option<ActionId>,
    /// It is being carried out, or was.
    pub begun: bool,
    /// The outcomes, once it was carried out.
    pub done: Option<Vec<PageOutcome>>,
}

pub struct Body {
    pub plan: Plan,
    pub pager: Pager,
    pub store: Store,
    pub random: Random,
    pub now: Nanos,
    /// The most pages of one read or write.
    pub transfer_max: u32,
    /// Pages of each memory object.
    pub object_pages: u64,
    /// That no frame can be had was reported since the last tick.
    pub exhausted: bool,
    pub pages: BTreeMap<PageNo, Truth>,
    pub threads: [Option<Touch>; THREADS],
    pub ops: Vec<Op>,
    pub grow: Option<u32>,
    pub waiters: u32,
    /// Those who left, each for another page.
    pub elsewhere: BTreeSet<u32>,
    pub contents: Content,
    pub buffers: usize,
    /// The most frames that may be in use.
    pub ceiling: usize,
    /// Frames in use at the last look.
    used: usize,
    /// Frames that left since the limit was exceeded, and whose place nothing took.
    left: usize,
    /// A forked child's pages may stay until then.
    rests_until: Nanos,
    /// Refused as victims when they were tried last.
    pub refused: BTreeSet<PageNo>,
    pub write_failures: u32,
    pub ticks: u32,
    pub in_drive: bool,
    /// What is being taken back.
    pub taken_back: Option<PageRange>,
    pub recorder: Option<Recorder>,
    pub trace: Vec<u8>,
}

impl Body {
    pub fn new(plan: &Plan) -> Self {
        Self {
            pager: Pager::new(plan.setup()),
            store: Store::default(),
            random: Random(plan.seed | 1),
            now: Nanos(0),
            transfer_max: (plan.readahead().max_window()).max(plan.pageout_params().buffer_pages),
            object_pages: OBJECT_PAGES,
            exhausted: false,
            pages: BTreeMap::new(),
            threads: [None; THREADS],
            ops: Vec::new(),
            grow: None,
            waiters: 0,
            elsewhere: BTreeSet::new(),
            contents: 0,
            buffers: 0,
            ceiling: plan.frames,
            used: 0,
            left: 0,
            rests_until: Nanos(0),
            refused: BTreeSet::new(),
            write_failures: 0,
            ticks: 0,
            in_drive: false,
            taken_back: None,
            recorder: None,
            trace: Vec::new(),
            plan: plan.clone(),
        }
    }

    pub fn truth(&mut self, page: PageNo) -> &mut Truth {
        self.pages.entry(page).or_default()
    }

    pub fn fresh(&mut self) -> Content {
        self.contents += 1;
        self.contents
    }

    /// Frames in use, as far as the pager can know.
    pub fn frames(&self) -> usize {
        let held = |t: &Truth| {
            usize::from(t.mapped.is_some() && !t.unknown) + usize::from(t.staged.is_some())
        };
        let pages = self.pages.values().map(held).sum::<usize>();
        pages + self.buffers + self.store.pool_frames()
    }

    pub fn event(&mut self, event: Event<'_>) {
        self.now.0 += 1 + self.random.below(1000) as u64;
        if let Some(recorder) = &mut self.recorder {
            recorder.event(self.now, &event, &mut self.trace);
        }
        self.pager.handle(self.now, event);
    }

    /// Reports `event` and carries out what follows.
    pub fn report(&mut self, event: Event<'_>) {
        self.event(event);
        self.drive();
    }

    /// Keeps a trace from now on.
    pub fn record(&mut self) {
        let readahead = self.plan.readahead().to_string();
        let header = self.plan.header(&readahead);
        let recorder = Recorder::begin(&header, &mut self.trace);
        self.recorder = Some(recorder);
    }

    /// Ends the trace.
    pub fn trace(mut self) -> Vec<u8> {
        let recorder = self.recorder.expect("a trace was begun");
        recorder.end(&mut self.trace);
        self.trace
    }

    fn next_action(&mut self) -> Option<Action> {
        let action = self.pager.poll_action()?;
        if let Some(recorder) = &mut self.recorder {
            recorder.action(&action, &mut self.trace);
        }
        Some(action)
    }

    /// Carries out actions until there are none; then the invariants hold.
    pub fn drive(&mut self) {
        if std::mem::replace(&mut self.in_drive, true) {
            return;
        }
        let mut woken = Vec::new();
        let mut actions = 0;
        while let Some(action) = self.next_action() {
            actions += 1;
            assert!(actions < 100_000, "the pager never comes to rest");
            let told = action.clone();
            self.act(action, &mut woken);
            let (frames, ceiling) = (self.frames(), self.ceiling);
            assert!(
                frames <= ceiling,
                "{frames} frames, {ceiling} allowed after {told:?}"
            );
        }
        self.in_drive = false;
        self.check();
        woken.into_iter().for_each(|thread| self.go_on(thread));
    }

    fn check(&mut self) {
        let used = self.pager.frames_used();
        let held = used + self.unreleased();
        assert!(self.frames() <= held, "{} > {held}", self.frames());
        assert!(used <= self.ceiling, "{used} > {}", self.ceiling);
        // What a release is to free first takes no other page meanwhile.
        let limit = self.pager.limits().frames;
        // Above the limit a page that somebody waits for takes the place of four that left.
        let left = self.used.saturating_sub(used);
        let taken = used.saturating_sub(self.used.max(limit));
        self.left = (self.left + left).saturating_sub(4 * taken);
        if used <= limit {
            let at_once = if self.now < self.rests_until {
                FRAMES_MIN
            } else {
                0
            };
            self.left = 4 * at_once;
            self.ceiling = self.ceiling.max(held + at_once);
        }
        self.used = used;
        self.ceiling = limit.max((held + self.left / 4).min(self.ceiling));
        let pager = &self.pager;
        (self.store).follow(pager.slots_used(), |page| stored(pager, page));
        assert_eq!(self.pager.slots_used(), self.store.bound());
        assert_eq!(self.pager.in_flight(), self.ops.len());
        if self.ops.is_empty() {
            assert_eq!(self.frames() + self.pager.frames_aside(), used);
        }
    }

    /// Whether the thread waits for nothing.
    pub fn idle(&self, thread: usize) -> bool {
        self.threads[thread].is_none()
    }

    /// The thread reads or writes the page; at most one access a thread at a time.
    pub fn touch(&mut self, thread: usize, page: PageNo, write: bool) {
        assert!(self.idle(thread));
        let write = write.then(|| self.fresh());
        self.threads[thread] = Some(Touch {
            page,
            write,
            waiter: None,
            faults: 0,
        });
        self.go_on(thread);
    }

    /// As [`Self::touch`], and waits as long as something is under way. False if it still waits.
    pub fn touch_and_wait(&mut self, thread: usize, page: PageNo, write: bool) -> bool {
        self.touch(thread, page, write);
        while !self.idle(thread) && self.unanswered() > 0 {
            self.answer_any();
        }
        self.idle(thread)
    }

    /// The thread touches another page; it may touch the same one later.
    pub fn leave(&mut self, thread: usize) {
        if let Some(waiter) = self.threads[thread].take().and_then(|touch| touch.waiter) {
            self.elsewhere.insert(waiter.0);
            self.report(Event::Left(waiter));
        }
    }

    fn go_on(&mut self, thread: usize) {
        let Some(touch) = self.threads[thread].filter(|t| t.waiter.is_none()) else {
            return;
        };
        let truth = self.truth(touch.page);
        if let Some(content) = truth.mapped {
            assert_eq!(content, truth.value, "{:?} has another content", touch.page);
            if let Some(written) = touch.write {
                (truth.mapped, truth.value) = (Some(written), written);
                truth.freed = false;
            }
            self.threads[thread] = None;
        } else if truth.poisoned {
            self.threads[thread] = None;
        } else {
            self.fault(thread);
        }
    }

    fn fault(&mut self, thread: usize) {
        let waiter = Waiter(self.waiters);
        self.waiters += 1;
        let touch = self.threads[thread].as_mut().unwrap();
        touch.waiter = Some(waiter);
        touch.faults += 1;
        assert!(touch.faults < FAULTS_MAX, "{:?} never comes", touch.page);
        let page = touch.page;
        let access = match touch.write {
            Some(_) => Access::Write,
            None => Access::Read,
        };
        let extent = PageRange::new(self::page(page.object().0, 0), self.object_pages);
        self.report(Event::Fault {
            page,
            access,
            waiter,
            source: Source(thread as u32),
            extent,
        });
    }

    /// The program gives the range up.
    pub fn drop_range(&mut self, range: PageRange, event: fn(PageRange) -> Event<'static>) {
        while self.pager.busy(range) {
            self.answer_any();
        }
        for page in range.iter() {
            self.store.unbind(page);
            let truth = self.truth(page);
            (truth.value, truth.mapped) = (0, None);
            (truth.unknown, truth.poisoned) = (false, false);
            (truth.discardable, truth.lost, truth.zeroes) = (false, false, false);
            truth.freed = false;
        }
        self.report(event(range));
    }

    /// The program frees the range: until it writes there a page is as it was, or zeroes.
    pub fn free(&mut self, range: PageRange) {
        while self.pager.busy(range) {
            self.answer_any();
        }
        if self.plan.discard == "none" {
            self.report(Event::Freeing(range));
            return self.report(Event::Freed(range));
        }
        for page in range.iter() {
            let resident = self.pager.state(page) == State::Resident;
            if !resident {
                self.store.unbind(page);
            }
            let truth = self.truth(page);
            (truth.discardable, truth.lost, truth.zeroes) = (false, false, false);
            truth.freed = resident;
            if !resident && !truth.unknown {
                (truth.value, truth.poisoned) = (0, false);
            }
        }
        self.report(Event::Freeing(range));
        // Other things happen before the call is known to be over.
        for _ in 0..range.start.raw() % 4 {
            if self.unanswered() > 0 {
                self.answer_any();
            }
        }
        self.report(Event::Freed(range));
    }

    /// No page of the range is one that is freed any more, nor is one being dropped.
    fn keep_freed(&mut self, range: PageRange) {
        let freed = |body: &Self| {
            let mut pages = body
                .pages
                .range(range.start..)
                .take_while(|(page, _)| range.contains(**page));
            pages.any(|(_, truth)| truth.freed)
        };
        let drops = |op: &Op| {
            let run = |run: PageRange| run.iter().any(|page| range.contains(page));
            matches!(op.action, Action::Drop { run: r, .. } if run(r))
        };
        while self.ops.iter().any(drops) {
            self.answer_any();
        }
        if freed(self) {
            range.iter().for_each(|page| self.truth(page).freed = false);
        }
    }

    /// The program gives up what is in the range until it takes it back.
    pub fn mark(&mut self, range: PageRange) {
        let kept = self.plan.discard != "none";
        self.keep_freed(range);
        for page in range.iter() {
            // What the pager does not know it does not mark.
            let known = !matches!(self.pager.state(page), State::Untouched | State::Poisoned);
            self.truth(page).discardable |= kept && known;
            if kept && self.pager.state(page) == State::PagedOut {
                self.lose(page);
            }
        }
        self.report(Event::Discardable(range));
    }

    /// The pager drops what is in the page.
    pub fn lose(&mut self, page: PageNo) {
        self.store.unbind(page);
        let truth = self.truth(page);
        assert!(truth.discardable, "{page:?} is wanted");
        (truth.value, truth.lost, truth.discardable) = (0, true, false);
    }

    /// The program wants what is in the range, and is told which pages were dropped.
    pub fn take_back(&mut self, range: PageRange) {
        assert_eq!(self.taken_back, None);
        self.keep_freed(range);
        self.taken_back = Some(range);
        self.report(Event::TakeBack(range));
        assert_eq!(self.taken_back, None, "no answer");
    }

    /// The answer: exactly those are lost that the pager dropped.
    pub fn told(&mut self, range: PageRange, lost: &[PageNo]) {
        assert_eq!(self.taken_back.take(), Some(range));
        assert!(lost.is_sorted() && lost.iter().all(|&page| range.contains(page)));
        for page in range.iter() {
            let truth = self.truth(page);
            let told = lost.contains(&page);
            assert!(
                told == truth.lost || told && truth.zeroes,
                "{page:?}: {told}"
            );
            (truth.lost, truth.zeroes) = (false, false);
            truth.discardable = false;
        }
    }

    /// Pages appear without the pager's doing.
    pub fn adopt(&mut self, range: PageRange) {
        while self.pager.busy(range) {
            self.answer_any();
        }
        for page in range.iter() {
            if self.pager.state(page) != State::Untouched {
                continue;
            }
            let (content, ticks) = (self.fresh(), self.ticks);
            let truth = self.truth(page);
            if truth.mapped.is_none() {
                (truth.mapped, truth.value) = (Some(content), content);
            }
            (truth.unknown, truth.mapped_in) = (false, ticks);
            self.ceiling += 1;
            self.used += 1;
            self.left = self.left.saturating_sub(1);
        }
        let known = self.pager.frames_used();
        self.ceiling = self.ceiling.max(known + range.pages as usize);
        self.report(Event::Adopt(range));
    }

    pub fn limit(&mut self, frames: usize) {
        self.plan.frames = frames;
        self.ceiling = self.ceiling.max(frames);
        self.report(Event::Limit(frames));
    }

    pub fn tick(&mut self) {
        self.ticks += 1;
        self.exhausted = false;
        self.report(Event::Tick);
    }

    pub fn pin(&mut self, range: PageRange, pinned: bool) {
        for page in range.iter() {
            self.truth(page).pinned = pinned;
        }
    }

    /// The process forks; the run goes on in the child or in the parent.
    pub fn fork(&mut self, in_child: bool) {
        while self.unanswered() > 0 {
            self.answer_any();
        }
        self.store.keep_for_child();
        self.report(Event::Forking);
        while self.unanswered() > 0 {
            self.answer_any();
        }
        if in_child {
            self.threads = [None; THREADS];
            self.store.disown();
            // The pager's tenth of a second, and the times of the events until it begins.
            self.rests_until = Nanos(self.now.0 + 101_000_000);
            self.report(Event::Forked);
        }
    }

    pub fn children_gone(&mut self) {
        self.store.children_gone();
        self.report(Event::ChildrenGone);
    }

    /// Answers everything; then whoever waits does so because no frame can be had.
    pub fn settle(&mut self) {
        while self.unanswered() > 0 {
            self.answer_any();
        }
        for _ in 0..=FAULTS_MAX {
            if self.exhausted || (0..THREADS).all(|t| self.idle(t)) {
                return;
            }
            self.tick();
            while self.unanswered() > 0 {
                self.answer_any();
            }
        }
        panic!("somebody waits in vain");
    }

    /// Reads every page back: with enough frames nothing is missing.
    pub fn read_all(&mut self) {
        self.plan.refusals = 0;
        for object in 0..OBJECTS {
            self.pin(PageRange::new(page(object, 0), OBJECT_PAGES), false);
        }
        self.settle();
        self.tick();
        self.settle();
        let pages = self.pages.len() + 1000;
        self.limit(pages.max(self.plan.frames));
        self.settle();
        assert!((0..THREADS).all(|t| self.idle(t)), "frames for everybody");
        self.store.check_kept();
        let pages: Vec<_> = self.pages.keys().copied().collect();
        for page in pages {
            assert!(self.touch_and_wait(0, page, false), "{page:?} never came");
        }
        self.settle();
    }
}

/// The hashes that the pages of a transfer must have.
pub fn hashes(action: &Action) -> &[ContentHash] {
    match action {
        Action::PageIn { pages, .. }
        | Action::PageOut { pages, .. }
        | Action::Compress { pages, .. }
        | Action::Decompress { pages, .. } => pages.hashes(),
        _ => unreachable!("{action:?} is no transfer"),
    }
}

/// Whether the action transfers pages to one of `slots`, or from there.
pub fn names(action: &Action, slots: SlotRange) -> bool {
    match action {
        Action::PageIn { slots: its, .. } | Action::PageOut { slots: its, .. } => {
            its.start < slots.end() && slots.start < its.end()
        }
        _ => false,
    }
}

/// The slot of the store that has what the pool keeps of the page, as the pager says.
pub fn stored(pager: &Pager, page: PageNo) -> Option<SlotNo> {
    let place = pager.place_of(page)?;
    Some(place.stored).filter(|slot| slot.is_some())
}

/// The slot that the page has, as the pager says.
pub fn slot_of(pager: &Pager, page: PageNo) -> Option<SlotNo> {
    let place = pager.place_of(page)?;
    Some(place.slot).filter(|slot| slot.is_some())
}
