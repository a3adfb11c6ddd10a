//! How the model body carries out actions, and what it answers.

use outpage_core::contract::{Action, ActionId, Event, IoFailure, Outcome, PageOutcome, Refusal};
use outpage_core::page::State;
use outpage_core::units::{PageNo, PageRange, SlotNo, SlotRange};

use crate::body::{Body, Op, READ_FAILURES_MAX, Touch, hash_of, hashes, names, slot_of, stored};
use crate::plan::Answers;
use crate::store::Content;

impl Body {
    pub fn act(&mut self, action: Action, woken: &mut Vec<usize>) {
        let at_once = self.plan.answers != Answers::Late;
        match action {
            Action::Wake { waiter, page } => {
                if self.elsewhere.remove(&waiter.0) {
                    return;
                }
                let of = |t: &Option<Touch>| t.is_some_and(|t| t.waiter == Some(waiter));
                let thread = self.threads.iter().position(of);
                let thread = thread.expect("a waiter is woken once");
                let touch = self.threads[thread].as_mut().unwrap();
                assert_eq!(touch.page, page);
                touch.waiter = None;
                let lost =
                    |op: &Op| matches!(op.action, Action::Poison { page: p, .. } if p == page);
                let lost = self.ops.iter().any(lost) && !self.truth(page).poisoned;
                assert!(!lost, "{page:?} does not signal yet");
                woken.push(thread);
            }
            Action::Grow { slots } => {
                assert_eq!(self.grow.replace(slots), None, "one question at a time");
                if at_once {
                    self.answer_grow();
                }
            }
            Action::Shrink { slots, .. } => {
                let named = self.ops.iter().any(|op| names(&op.action, slots));
                assert!(!named, "{slots:?} are in transfer");
                self.store.shrink(slots);
            }
            Action::TakenBack { range, lost } => self.told(range, &lost),
            Action::Exhausted { swap_full } => self.check_exhausted(swap_full),
            Action::PageIn { id, .. }
            | Action::PageOut { id, .. }
            | Action::Compress { id, .. }
            | Action::Decompress { id, .. } => {
                let at = self.take(id, action);
                if self.plan.answers == Answers::AtOnce {
                    self.answer(at);
                }
            }
            Action::ZeroFill { id, .. }
            | Action::Map { id, .. }
            | Action::Detach { id, .. }
            | Action::Drop { id, .. }
            | Action::Release { id, .. }
            | Action::Dead { id, .. }
            | Action::Poison { id, .. } => {
                let at = self.take(id, action);
                if at_once {
                    self.answer(at);
                }
            }
        }
    }

    /// Takes the action in. It is carried out now or later: when it is answered, or when one is that names it.
    fn take(&mut self, id: ActionId, action: Action) -> usize {
        let pages = action.pages().to_vec();
        if let Action::PageIn { slots, .. } | Action::PageOut { slots, .. } = action {
            assert!(slots.slots <= self.transfer_max, "{action:?}");
        }
        match action {
            Action::PageIn { slots, .. } | Action::Decompress { slots, .. } => {
                for (&page, slot) in pages.iter().zip(slots.iter()) {
                    assert_eq!(self.store.slot(page), Some(slot), "{page:?} is elsewhere");
                }
            }
            Action::PageOut { slots, .. } | Action::Compress { slots, .. } => {
                let pooled = matches!(action, Action::Compress { .. });
                assert_eq!(pooled, slots.start.is_pooled());
                if pooled {
                    pages.iter().for_each(|&page| self.store.enter_pool(page));
                }
                assert_eq!(pages.len(), slots.slots as usize);
                let hashes = hashes(&action).to_vec();
                for ((&page, slot), hash) in pages.iter().zip(slots.iter()).zip(hashes) {
                    let content = self.truth(page).staged.expect("a staged page is written");
                    assert_eq!(hash, hash_of(content), "{page:?} is said to be another");
                    assert_ne!(Some(content), self.store.copy_of(page), "already there");
                    self.store.begin_write(page, slot);
                }
            }
            Action::Map {
                run, absent_below, ..
            }
            | Action::Detach {
                run, absent_below, ..
            } => {
                self.expect_absent(run, absent_below);
                if matches!(action, Action::Map { .. }) {
                    self.leave_pool(run);
                }
            }
            Action::Release { .. } => self.drops(&pages),
            Action::Poison { page, .. } => self.expect_lost(page),
            Action::Dead { slots, .. } => {
                if slots.start.is_pooled() {
                    let pager = &self.pager;
                    self.store.cede(slots, |page| slot_of(pager, page));
                }
                self.store.expect_dead(slots);
            }
            _ => {}
        }
        assert!(self.ops.iter().all(|other| other.id != id), "{id:?} reused");
        // Its id may be another action's when it is answered.
        let waits = |after: &ActionId| self.ops.iter().any(|op| op.id == *after);
        self.ops.push(Op {
            id,
            after: action.after().filter(waits),
            action,
            pages,
            begun: false,
            done: None,
        });
        if self.plan.answers != Answers::Late || self.random.happens(300) {
            self.begin(id);
        }
        self.ops.len() - 1
    }

    /// Pages whose frames are freed and that are in no slot were dropped, unless they are zeroes: only those that are discardable are.
    fn drops(&mut self, pages: &[PageNo]) {
        for &page in pages {
            // Or touched already, and read again.
            let paged_out = matches!(self.pager.state(page), State::PagedOut | State::Reading);
            let truth = self.truth(page);
            if paged_out {
                continue;
            }
            if truth.value != 0 {
                self.lose(page);
            } else if truth.discardable {
                (truth.zeroes, truth.discardable) = (true, false);
            }
        }
    }

    /// Carries out what takes or frees frames, after what is to be carried out before.
    fn begin(&mut self, id: ActionId) {
        let Some(at) = self.ops.iter().position(|op| op.id == id && !op.begun) else {
            return;
        };
        self.ops[at].begun = true;
        let (action, pages) = (self.ops[at].action.clone(), self.ops[at].pages.clone());
        if let Some(before) = self.ops[at].after {
            self.begin(before);
        }
        match action {
            Action::Release { .. } => {
                for &page in &pages {
                    let staged = self.truth(page).staged.take();
                    assert!(staged.is_some(), "{page:?} released without a frame");
                }
            }
            Action::PageIn { slots, .. } | Action::Decompress { slots, .. } => {
                self.buffers += slots.slots as usize;
            }
            Action::Poison { page, .. } => self.poison(page),
            Action::Dead { slots, .. } => self.store.forget(slots),
            Action::PageOut { .. } | Action::Compress { .. } => {}
            _ => self.ops[at].done = Some(self.carry_out(&action)),
        }
        let (frames, ceiling) = (self.frames(), self.ceiling);
        assert!(
            frames <= ceiling,
            "{frames} frames, {ceiling} allowed: {action:?}"
        );
    }

    /// Frames that the pager does not count any more and that are not free yet.
    pub fn unreleased(&self) -> usize {
        let waits = |op: &&Op| !op.begun && matches!(op.action, Action::Release { .. });
        self.ops.iter().filter(waits).map(|op| op.pages.len()).sum()
    }

    /// A page is given up only where its slot cannot be read, and has none from then on.
    fn expect_lost(&mut self, page: PageNo) {
        let lost = |op: &Op| matches!(op.action, Action::Poison { page: p, .. } if p == page);
        if self.truth(page).poisoned || self.ops.iter().any(lost) {
            return;
        }
        let slot = self.store.slot(page).expect("a lost page had a slot");
        assert!(
            self.bad(slot.0),
            "{page:?} was given up although {slot:?} can be read"
        );
        self.store.lose(page);
    }

    fn poison(&mut self, page: PageNo) {
        let truth = self.truth(page);
        assert!(truth.mapped.is_none() && truth.staged.is_none());
        truth.poisoned = true;
    }

    /// Slots that can be written and never read.
    fn bad(&self, slot: u32) -> bool {
        let mixed = (u64::from(slot) + self.plan.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        mixed % 1000 < u64::from(self.plan.bad_slots)
    }

    fn carry_out(&mut self, action: &Action) -> Vec<PageOutcome> {
        let (run, act): (PageRange, fn(&mut Self, PageNo) -> PageOutcome) = match *action {
            Action::ZeroFill { run, .. } => (run, Self::zero_fill),
            Action::Map { run, .. } => (run, Self::map),
            Action::Detach { run, .. } => (run, Self::detach),
            Action::Drop { run, .. } => (run, Self::drop_unwritten),
            _ => unreachable!("{action:?} names no run"),
        };
        run.iter().map(|page| act(self, page)).collect()
    }

    /// What is mapped is not in the pool, too.
    fn leave_pool(&mut self, run: PageRange) {
        for page in run.iter() {
            if self.store.slot(page).is_some_and(SlotNo::is_pooled) {
                let slot = slot_of(&self.pager, page);
                self.store.leave_place(page, slot);
            }
        }
    }

    /// Nothing is mapped at so many pages below `run`, but for what came unseen.
    fn expect_absent(&mut self, run: PageRange, below: u8) {
        for n in 1..=u64::from(below) {
            let page = run.start.checked_sub(n).expect("a page of the object");
            let truth = self.truth(page);
            assert!(truth.mapped.is_none() || truth.unknown, "{page:?} is there");
        }
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

    /// A page that was written since it was freed stays, and now and then any other.
    fn drop_unwritten(&mut self, page: PageNo) -> PageOutcome {
        let refusals = self.plan.refusals;
        let strange = self.random.happens(refusals);
        let truth = self.truth(page);
        assert!(truth.mapped.is_some() && !truth.unknown && truth.staged.is_none());
        if strange || truth.pinned || !truth.freed {
            self.refused.insert(page);
            return PageOutcome::Refused(Refusal::Busy);
        }
        (truth.mapped, truth.value) = (None, 0);
        (truth.freed, truth.lost) = (false, true);
        PageOutcome::Done
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
            Some(range) => {
                self.store.full = false;
                self.event(Event::Grown(range));
            }
            None => {
                self.store.full = true;
                self.event(Event::Full);
            }
        }
    }

    fn answer(&mut self, at: usize) {
        self.begin(self.ops[at].id);
        let op = self.ops.swap_remove(at);
        for other in &mut self.ops {
            other.after = other.after.filter(|&after| after != op.id);
        }
        match op.action {
            Action::PageIn { slots, .. } => self.answer_read(&op, slots),
            Action::PageOut { slots, .. } => self.answer_write(&op, slots),
            Action::Compress { slots, grant, .. } => self.answer_compress(&op, slots, grant),
            Action::Decompress { slots, .. } => self.answer_decompress(&op, slots),
            Action::Dead { slots, .. } if slots.start.is_pooled() => {
                self.tell_pooled();
                self.done(op.id, Outcome::Done);
            }
            Action::Release { .. } | Action::Dead { .. } | Action::Poison { .. } => {
                self.done(op.id, Outcome::Done);
            }
            action => {
                let outcomes = op.done.expect("it was carried out");
                self.note(&action, &outcomes);
                self.done(op.id, Outcome::Pages(&outcomes));
            }
        }
        self.drive();
    }

    fn done(&mut self, id: ActionId, outcome: Outcome<'_>) {
        self.event(Event::Done { id, outcome });
    }

    /// What the pager learns from `outcomes` about slots and pages that it did not know.
    fn note(&mut self, action: &Action, outcomes: &[PageOutcome]) {
        let (Action::ZeroFill { run, .. }
        | Action::Map { run, .. }
        | Action::Detach { run, .. }
        | Action::Drop { run, .. }) = *action
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
                PageOutcome::Refused(Refusal::Gone | Refusal::Absent) => {
                    self.truth(page).discardable = false;
                    false
                }
                // A page that got no zeroes is not known any more.
                PageOutcome::Refused(Refusal::Busy)
                    if matches!(action, Action::ZeroFill { .. }) =>
                {
                    self.truth(page).discardable = false;
                    true
                }
                PageOutcome::Refused(Refusal::Present) => {
                    let ticks = self.ticks;
                    let truth = self.truth(page);
                    (truth.unknown, truth.mapped_in) = (false, ticks);
                    true
                }
                PageOutcome::Done => !matches!(action, Action::Drop { .. }),
                PageOutcome::Refused(_) | PageOutcome::Unhashed => true,
                PageOutcome::Kept { .. } => unreachable!("of a compression"),
            };
            if !keeps_slot {
                self.store.unbind(page);
            }
        }
    }

    fn answer_read(&mut self, op: &Op, slots: SlotRange) {
        self.buffers -= slots.slots as usize;
        let failures = self.plan.read_failures;
        // A store may tell which pages it could not read, or only that it failed.
        let whole = self.random.happens(500);
        let bad = whole && slots.iter().any(|slot| self.bad(slot.0));
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
        let mut outcomes = Vec::new();
        for ((&page, slot), &hash) in op.pages.iter().zip(slots.iter()).zip(hashes(&op.action)) {
            if self.bad(slot.0) {
                self.truth(page).read_failures += 1;
                outcomes.push(PageOutcome::Refused(Refusal::Unread));
                continue;
            }
            let content = self.store.content(slot);
            let spent = self.truth(page).read_failures >= READ_FAILURES_MAX;
            if !spent && self.random.happens(failures) {
                self.truth(page).read_failures += 1;
                assert_ne!(hash, hash_of(Content::MAX));
                let why = [Refusal::Damaged, Refusal::Unread, Refusal::Gone][self.random.below(3)];
                if why == Refusal::Gone {
                    self.covered(page);
                }
                outcomes.push(PageOutcome::Refused(why));
                continue;
            }
            assert_eq!(
                hash,
                hash_of(content),
                "{page:?} has another content in {slot:?}"
            );
            let truth = self.truth(page);
            (truth.read_failures, truth.staged) = (0, Some(content));
            outcomes.push(PageOutcome::Done);
        }
        self.done(op.id, Outcome::Pages(&outcomes));
    }

    /// Something else is mapped over a page that is out: zeroes, if it is touched.
    fn covered(&mut self, page: PageNo) {
        let truth = self.truth(page);
        (truth.value, truth.read_failures, truth.discardable) = (0, 0, false);
        self.store.unbind(page);
    }

    fn tell_pooled(&mut self) {
        self.event(Event::Pooled(self.store.pool_frames()));
    }

    fn answer_compress(&mut self, op: &Op, slots: SlotRange, grant: u32) {
        let mut grant = grant as usize;
        let mut outcomes = Vec::new();
        for (&page, slot) in op.pages.iter().zip(slots.iter()) {
            let content = self.truth(page).staged.expect("a staged page is kept");
            let stored = stored(&self.pager, page);
            let outcome = (self.store).keep(page, slot, content, &mut grant, stored);
            outcomes.push(outcome);
        }
        self.tell_pooled();
        self.done(op.id, Outcome::Pages(&outcomes));
    }

    fn answer_decompress(&mut self, op: &Op, slots: SlotRange) {
        self.buffers -= slots.slots as usize;
        let mut outcomes = Vec::new();
        for ((&page, slot), &hash) in op.pages.iter().zip(slots.iter()).zip(hashes(&op.action)) {
            // Damaged or not, it is out.
            let content = self.store.take_out(slot);
            if self.bad(slot.0) {
                self.store.damaged(page, stored(&self.pager, page));
                outcomes.push(PageOutcome::Refused(Refusal::Damaged));
                continue;
            }
            let failures = self.plan.read_failures / 4;
            if self.random.happens(failures) {
                self.covered(page);
                outcomes.push(PageOutcome::Refused(Refusal::Gone));
                continue;
            }
            assert_eq!(hash, hash_of(content), "{page:?} has another content");
            let slot = stored(&self.pager, page);
            self.store.leave_place(page, slot);
            self.truth(page).staged = Some(content);
            outcomes.push(PageOutcome::Done);
        }
        self.tell_pooled();
        self.done(op.id, Outcome::Pages(&outcomes));
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
        if failed && why == IoFailure::NoSpace {
            self.store.full = true;
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
        let idle = |op: &Op| matches!(op.action, Action::Dead { .. });
        assert!(
            self.ops.iter().all(idle) && self.grow.is_none(),
            "answers are due"
        );
        let broken = self.write_failures >= 64;
        let may_write = self.store.free() > 0 && !broken;
        for (page, truth) in &self.pages {
            if truth.mapped.is_some() && truth.mapped_in < self.ticks {
                assert!(self.refused.contains(page), "{page:?} was not tried");
            }
            if let Some(content) = truth.staged {
                assert!(!truth.discardable, "{page:?} could be dropped");
                assert!(swap_full, "{page:?} is staged and there is room for it");
                assert!(!may_write, "{page:?} could be written");
                let clean = self.store.copy_of(*page) == Some(content);
                assert!(!clean, "{page:?} could be released");
            }
        }
    }
}
