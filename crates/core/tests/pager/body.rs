//! A body with real contents: it carries out actions, checks what they do, and lets the world
//! misbehave as the contract allows.

use std::collections::{BTreeMap, BTreeSet};

use outpage_core::contract::{
    Access, Action, ActionId, Event, IoFailure, Outcome, PageOutcome, Refusal, Waiter,
};
use outpage_core::page::{ContentHash, State};
use outpage_core::pager::Pager;
use outpage_core::record::Recorder;
use outpage_core::units::{Nanos, ObjectId, PageNo, PageRange, SlotRange};

use crate::plan::{Answers, Plan, Random};
use crate::store::{Content, Store};

/// Memory objects and the pages of each.
pub const OBJECTS: u32 = 3;
pub const OBJECT_PAGES: u64 = 400;
pub const THREADS: usize = 6;

/// Faults for one access after which the program counts as not getting on.
const FAULTS_MAX: u32 = 2000;
/// Failed reads in a row that a page must survive.
const READ_FAILURES_MAX: u32 = 4;

pub fn page(object: u32, index: u64) -> PageNo {
    PageNo::new(ObjectId(object), index)
}

pub fn hash_of(content: Content) -> ContentHash {
    ContentHash([content as u32, (content >> 32) as u32, 0x5eed])
}

/// Where the content of a page is, apart from the store.
#[derive(Clone, Copy, Default)]
struct Truth {
    /// What the program wrote last.
    value: Content,
    /// In a frame that the program sees.
    mapped: Option<Content>,
    /// In a frame that it does not see.
    staged: Option<Content>,
    /// Mapped without the pager's knowledge.
    unknown: bool,
    /// A touch signals.
    poisoned: bool,
    pinned: bool,
    read_failures: u32,
    /// The tick after which it was mapped.
    mapped_in: u32,
}

#[derive(Clone, Copy)]
struct Touch {
    page: PageNo,
    /// What to write; a read otherwise.
    write: Option<Content>,
    waiter: Option<Waiter>,
    faults: u32,
}

struct Op {
    id: ActionId,
    action: Action,
    pages: Vec<PageNo>,
    /// The outcomes, once it was carried out.
    done: Option<Vec<PageOutcome>>,
}

pub struct Body {
    pub plan: Plan,
    pub pager: Pager,
    pub store: Store,
    pub random: Random,
    pub now: Nanos,
    /// Pages of each memory object.
    pub object_pages: u64,
    /// That no frame can be had was reported since the last tick.
    pub exhausted: bool,
    pages: BTreeMap<PageNo, Truth>,
    threads: [Option<Touch>; THREADS],
    ops: Vec<Op>,
    grow: Option<u32>,
    waiters: u32,
    contents: Content,
    buffers: usize,
    /// The most frames that may be in use.
    ceiling: usize,
    /// Refused as victims when they were tried last.
    refused: BTreeSet<PageNo>,
    write_failures: u32,
    pub ticks: u32,
    in_drive: bool,
    recorder: Option<Recorder>,
    trace: Vec<u8>,
}

impl Body {
    pub fn new(plan: &Plan) -> Self {
        Self {
            pager: Pager::new(plan.setup()),
            store: Store::default(),
            random: Random(plan.seed | 1),
            now: Nanos(0),
            object_pages: OBJECT_PAGES,
            exhausted: false,
            pages: BTreeMap::new(),
            threads: [None; THREADS],
            ops: Vec::new(),
            grow: None,
            waiters: 0,
            contents: 0,
            buffers: 0,
            ceiling: plan.frames,
            refused: BTreeSet::new(),
            write_failures: 0,
            ticks: 0,
            in_drive: false,
            recorder: None,
            trace: Vec::new(),
            plan: plan.clone(),
        }
    }

    fn truth(&mut self, page: PageNo) -> &mut Truth {
        self.pages.entry(page).or_default()
    }

    fn fresh(&mut self) -> Content {
        self.contents += 1;
        self.contents
    }

    /// Frames in use, as far as the pager can know.
    pub fn frames(&self) -> usize {
        let held = |t: &Truth| {
            usize::from(t.mapped.is_some() && !t.unknown) + usize::from(t.staged.is_some())
        };
        self.pages.values().map(held).sum::<usize>() + self.buffers
    }

    fn event(&mut self, event: Event<'_>) {
        self.now.0 += 1 + self.random.below(1000) as u64;
        if let Some(recorder) = &mut self.recorder {
            let sink = &mut |bytes: &[u8]| self.trace.extend_from_slice(bytes);
            recorder.event(self.now, &event, sink);
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
        let sink = &mut |bytes: &[u8]| self.trace.extend_from_slice(bytes);
        self.recorder = Some(Recorder::begin(&self.plan.header(), sink));
    }

    /// Ends the trace.
    pub fn trace(mut self) -> Vec<u8> {
        let sink = &mut |bytes: &[u8]| self.trace.extend_from_slice(bytes);
        self.recorder.expect("a trace was begun").end(sink);
        self.trace
    }

    fn next_action(&mut self) -> Option<Action> {
        let action = self.pager.poll_action()?;
        if let Some(recorder) = &mut self.recorder {
            let sink = &mut |bytes: &[u8]| self.trace.extend_from_slice(bytes);
            let pages = match action {
                Action::PageIn { id, .. } | Action::PageOut { id, .. } | Action::Release { id } => {
                    self.pager.pages_of(id)
                }
                _ => &[],
            };
            recorder.action(&action, pages, sink);
        }
        Some(action)
    }

    /// Carries out actions until there are none; then the invariants hold.
    fn drive(&mut self) {
        if std::mem::replace(&mut self.in_drive, true) {
            return;
        }
        let mut woken = Vec::new();
        let mut actions = 0;
        while let Some(action) = self.next_action() {
            actions += 1;
            assert!(actions < 100_000, "the pager never comes to rest");
            self.act(action, &mut woken);
            let (frames, ceiling) = (self.frames(), self.ceiling);
            assert!(frames <= ceiling, "{frames} frames, {ceiling} allowed");
        }
        self.in_drive = false;
        self.check();
        woken.into_iter().for_each(|thread| self.go_on(thread));
    }

    fn check(&mut self) {
        let used = self.pager.frames_used();
        assert!(self.frames() <= used, "{} > {used}", self.frames());
        assert!(used <= self.ceiling, "{used} > {}", self.ceiling);
        self.ceiling = self.pager.limits().frames.max(used);
        assert_eq!(self.pager.slots_used(), self.store.bound());
        assert_eq!(self.pager.in_flight(), self.ops.len());
        if self.ops.is_empty() {
            assert_eq!(self.frames(), used);
        }
    }

    fn act(&mut self, action: Action, woken: &mut Vec<usize>) {
        let at_once = self.plan.answers != Answers::Late;
        match action {
            Action::Wake { waiter, page } => {
                let of = |t: &Option<Touch>| t.is_some_and(|t| t.waiter == Some(waiter));
                let thread = self.threads.iter().position(of);
                let thread = thread.expect("a waiter is woken once");
                let touch = self.threads[thread].as_mut().unwrap();
                assert_eq!(touch.page, page);
                touch.waiter = None;
                woken.push(thread);
            }
            Action::Grow { slots } => {
                assert_eq!(self.grow.replace(slots), None, "one question at a time");
                if at_once {
                    self.answer_grow();
                }
            }
            Action::Exhausted { swap_full } => self.check_exhausted(swap_full),
            Action::PageIn { id, .. } | Action::PageOut { id, .. } => {
                let at = self.begin(id, action);
                if self.plan.answers == Answers::AtOnce {
                    self.answer(at);
                }
            }
            Action::ZeroFill { id, .. }
            | Action::Map { id, .. }
            | Action::Detach { id, .. }
            | Action::Release { id }
            | Action::Poison { id, .. } => {
                let at = self.begin(id, action);
                if at_once {
                    self.answer(at);
                }
            }
        }
    }

    /// What takes effect at once: frames are released and read buffers allocated in the order of
    /// the actions. Mapping and detaching may happen now or later.
    fn begin(&mut self, id: ActionId, action: Action) -> usize {
        let pages = match action {
            Action::PageIn { .. } | Action::PageOut { .. } | Action::Release { .. } => {
                self.pager.pages_of(id).to_vec()
            }
            _ => Vec::new(),
        };
        let mut op = Op {
            id,
            action,
            pages,
            done: None,
        };
        match action {
            Action::Release { .. } => {
                for &page in &op.pages {
                    let staged = self.truth(page).staged.take();
                    assert!(staged.is_some(), "{page:?} released without a frame");
                }
            }
            Action::PageIn { slots, .. } => {
                self.buffers += slots.slots as usize;
                for (&page, slot) in op.pages.iter().zip(slots.iter()) {
                    assert_eq!(self.store.slot(page), Some(slot), "{page:?} is elsewhere");
                }
            }
            Action::PageOut { slots, .. } => {
                assert_eq!(op.pages.len(), slots.slots as usize);
                for (&page, slot) in op.pages.iter().zip(slots.iter()) {
                    let content = self.truth(page).staged.expect("a staged page is written");
                    assert_ne!(Some(content), self.store.copy_of(page), "already there");
                    self.store.begin_write(page, slot);
                }
            }
            Action::Poison { page, .. } => self.begin_poison(page),
            _ if self.random.happens(500) => op.done = Some(self.carry_out(action)),
            _ => {}
        }
        assert!(self.ops.iter().all(|other| other.id != id), "{id:?} reused");
        self.ops.push(op);
        self.ops.len() - 1
    }

    fn begin_poison(&mut self, page: PageNo) {
        if self.truth(page).poisoned {
            return;
        }
        let slot = self.store.slot(page).expect("a lost page had a slot");
        assert!(
            self.bad(slot.0),
            "{page:?} was given up although {slot:?} can be read"
        );
        self.store.lose(page);
        let truth = self.truth(page);
        assert!(truth.mapped.is_none() && truth.staged.is_none());
        truth.poisoned = true;
    }

    /// Slots that can be written and never read.
    fn bad(&self, slot: u32) -> bool {
        let mixed = (u64::from(slot) + self.plan.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        mixed % 1000 < u64::from(self.plan.bad_slots)
    }

    fn carry_out(&mut self, action: Action) -> Vec<PageOutcome> {
        let (run, act): (PageRange, fn(&mut Self, PageNo) -> PageOutcome) = match action {
            Action::ZeroFill { run, .. } => (run, Self::zero_fill),
            Action::Map { run, .. } => (run, Self::map),
            Action::Detach { run, .. } => (run, Self::detach),
            other => unreachable!("{other:?} names no run"),
        };
        run.iter().map(|page| act(self, page)).collect()
    }

    fn zero_fill(&mut self, page: PageNo) -> PageOutcome {
        let refusals = self.plan.refusals;
        if self.random.happens(refusals) && self.truth(page).mapped.is_none() {
            return PageOutcome::Refused(match self.random.below(3) {
                0 => Refusal::Gone,
                1 => Refusal::Busy,
                _ => {
                    let content = self.fresh();
                    let truth = self.truth(page);
                    (truth.mapped, truth.value) = (Some(content), content);
                    truth.unknown = true;
                    Refusal::Present
                }
            });
        }
        let ticks = self.ticks;
        let truth = self.truth(page);
        if truth.mapped.is_some() {
            assert!(truth.unknown, "{page:?} zero-filled while mapped");
            return PageOutcome::Refused(Refusal::Present);
        }
        assert_eq!(truth.value, 0, "{page:?} had content");
        assert!(truth.staged.is_none() && !truth.poisoned);
        (truth.mapped, truth.mapped_in) = (Some(0), ticks);
        PageOutcome::Done
    }

    fn map(&mut self, page: PageNo) -> PageOutcome {
        let refusals = self.plan.refusals;
        let strange = self.random.happens(refusals).then(|| self.random.below(3));
        let (written, ticks) = (self.fresh(), self.ticks);
        let truth = self.truth(page);
        let content = truth.staged.expect("a staged page is mapped");
        assert!(truth.mapped.is_none(), "{page:?} mapped twice");
        match strange {
            Some(0) => {
                (truth.staged, truth.value) = (None, 0);
                PageOutcome::Refused(Refusal::Gone)
            }
            Some(1) => {
                (truth.staged, truth.mapped, truth.value) = (None, Some(written), written);
                PageOutcome::Refused(Refusal::Present)
            }
            Some(_) => PageOutcome::Refused(Refusal::Busy),
            None => {
                (truth.staged, truth.mapped) = (None, Some(content));
                truth.mapped_in = ticks;
                PageOutcome::Done
            }
        }
    }

    fn detach(&mut self, page: PageNo) -> PageOutcome {
        let refusals = self.plan.refusals;
        let strange = self.random.happens(refusals).then(|| self.random.below(3));
        let truth = self.truth(page);
        let content = truth.mapped.expect("a mapped page is detached");
        assert!(!truth.unknown && truth.staged.is_none());
        match strange {
            Some(0) if !truth.pinned => {
                (truth.mapped, truth.value) = (None, 0);
                PageOutcome::Refused(Refusal::Absent)
            }
            Some(1) if !truth.pinned => {
                (truth.mapped, truth.value) = (None, 0);
                PageOutcome::Refused(Refusal::Gone)
            }
            None if !truth.pinned => {
                (truth.mapped, truth.staged) = (None, Some(content));
                self.refused.remove(&page);
                let (hash, zero) = (hash_of(content), content == 0);
                PageOutcome::Detached { hash, zero }
            }
            _ => {
                self.refused.insert(page);
                PageOutcome::Refused(Refusal::Busy)
            }
        }
    }

    /// Actions that wait for an answer.
    pub fn unanswered(&self) -> usize {
        self.ops.len() + usize::from(self.grow.is_some())
    }

    /// Answers any one of them.
    pub fn answer_any(&mut self) {
        let n = self.unanswered();
        match self.random.below(n) {
            at if at < self.ops.len() => self.answer(at),
            _ => {
                self.answer_grow();
                self.drive();
            }
        }
    }

    fn answer_grow(&mut self) {
        let slots = self.grow.take().expect("the pager asked");
        match self.store.grow(slots.max(64), self.plan.slots_max) {
            Some(range) => self.event(Event::Grown(range)),
            None => self.event(Event::Full),
        }
    }

    fn answer(&mut self, at: usize) {
        let op = self.ops.swap_remove(at);
        match op.action {
            Action::PageIn { slots, .. } => self.answer_read(&op, slots),
            Action::PageOut { slots, .. } => self.answer_write(&op, slots),
            Action::Release { .. } | Action::Poison { .. } => self.done(op.id, Outcome::Done),
            action => {
                let outcomes = op.done.unwrap_or_else(|| self.carry_out(action));
                self.note(action, &outcomes);
                self.done(op.id, Outcome::Pages(&outcomes));
            }
        }
        self.drive();
    }

    fn done(&mut self, id: ActionId, outcome: Outcome<'_>) {
        self.event(Event::Done { id, outcome });
    }

    /// What the pager learns from `outcomes` about slots and pages that it did not know.
    fn note(&mut self, action: Action, outcomes: &[PageOutcome]) {
        let (Action::ZeroFill { run, .. } | Action::Map { run, .. } | Action::Detach { run, .. }) =
            action
        else {
            unreachable!()
        };
        for (page, outcome) in run.iter().zip(outcomes) {
            let awaited = self.threads.iter().flatten();
            let awaited = awaited
                .into_iter()
                .any(|t| t.page == page && t.waiter.is_some());
            let keeps_slot = match *outcome {
                PageOutcome::Detached { hash, zero } => {
                    let same = self.store.copy_of(page).map(hash_of) == Some(hash);
                    same && (!zero || awaited)
                }
                PageOutcome::Refused(Refusal::Gone | Refusal::Absent) => false,
                PageOutcome::Refused(Refusal::Present) => {
                    let ticks = self.ticks;
                    let truth = self.truth(page);
                    (truth.unknown, truth.mapped_in) = (false, ticks);
                    true
                }
                PageOutcome::Refused(Refusal::Busy) | PageOutcome::Done => true,
            };
            if !keeps_slot {
                self.store.unbind(page);
            }
        }
    }

    fn answer_read(&mut self, op: &Op, slots: SlotRange) {
        self.buffers -= slots.slots as usize;
        let failures = self.plan.read_failures;
        let bad = slots.iter().any(|slot| self.bad(slot.0));
        let may_fail = |body: &mut Self| {
            let spent = |page: &PageNo| body.pages[page].read_failures >= READ_FAILURES_MAX;
            !op.pages.iter().any(spent) && body.random.happens(failures)
        };
        if bad || may_fail(self) {
            for &page in &op.pages {
                self.truth(page).read_failures += 1;
            }
            return self.done(op.id, Outcome::Failed(IoFailure::Device));
        }
        let mut hashes = Vec::new();
        for (&page, slot) in op.pages.iter().zip(slots.iter()) {
            let content = self.store.content(slot);
            let spent = self.truth(page).read_failures >= READ_FAILURES_MAX;
            if !spent && self.random.happens(failures) {
                self.truth(page).read_failures += 1;
                hashes.push(hash_of(Content::MAX));
                continue;
            }
            let truth = self.truth(page);
            (truth.read_failures, truth.staged) = (0, Some(content));
            hashes.push(hash_of(content));
        }
        self.done(op.id, Outcome::Read(&hashes));
    }

    fn answer_write(&mut self, op: &Op, slots: SlotRange) {
        let failures = self.plan.write_failures;
        let failed = self.random.happens(failures);
        let why = match self.random.below(4) {
            0 => IoFailure::NoSpace,
            _ => IoFailure::Device,
        };
        for (&page, slot) in op.pages.iter().zip(slots.iter()) {
            let content = self.truth(page).staged.expect("a staged page was written");
            if failed {
                let retire = why == IoFailure::Device;
                self.store.fail_write(page, slot, retire);
            } else {
                self.store.end_write(page, slot, content);
            }
        }
        self.write_failures = if failed { self.write_failures + 1 } else { 0 };
        let outcome = if failed {
            Outcome::Failed(why)
        } else {
            Outcome::Done
        };
        self.done(op.id, outcome);
    }

    /// Giving up is right only if no frame can be had in any way.
    fn check_exhausted(&mut self, swap_full: bool) {
        self.exhausted = true;
        assert!(
            self.ops.is_empty() && self.grow.is_none(),
            "answers are due"
        );
        let broken = self.write_failures >= 64;
        let may_write = self.store.free() > 0 && !broken;
        for (page, truth) in &self.pages {
            if truth.mapped.is_some() && truth.mapped_in < self.ticks {
                assert!(self.refused.contains(page), "{page:?} was not tried");
            }
            if let Some(content) = truth.staged {
                assert!(swap_full, "{page:?} is staged and there is room for it");
                assert!(!may_write, "{page:?} could be written");
                let clean = self.store.copy_of(*page) == Some(content);
                assert!(!clean, "{page:?} could be released");
            }
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

    fn go_on(&mut self, thread: usize) {
        let Some(touch) = self.threads[thread].filter(|t| t.waiter.is_none()) else {
            return;
        };
        let truth = self.truth(touch.page);
        if let Some(content) = truth.mapped {
            assert_eq!(content, truth.value, "{:?} has another content", touch.page);
            if let Some(written) = touch.write {
                (truth.mapped, truth.value) = (Some(written), written);
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
        }
        self.report(event(range));
    }

    /// Pages appear without the pager's doing.
    pub fn adopt(&mut self, range: PageRange) {
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
