//! This process's share of the tree's limit.

use outpage_core::contract::Event;
use outpage_core::limits::FRAMES_MIN;
use outpage_core::page::{Queue, State};
use outpage_core::units::{Nanos, PAGE_BYTES};
use outpage_sys::clock;

use crate::door::CALL_PAGES;
use crate::live::Live;
use crate::notify::Notifier;
use crate::scope::{Failure, Reach};
use crate::session::Worth;
use crate::worth::Did;
use outpage_stats::Counts;

/// A process looks at its share this often while there are events: what it needs changes as fast. A look costs microseconds.
const SHARE_LOOK: Nanos = Nanos(20_000_000);
/// While frames go or come it looks this often whether more can: a few page-outs take as long.
const SHARE_STEP: Nanos = Nanos(2_000_000);

/// Frames that may be free in the staging area beyond the limit, and are taken off it, where frames are freed and taken all the time: so they are not
/// given back one by one, three system calls for each run. A choice.
const SLACK: usize = 32;
/// Half of them are for copies of pages that cannot be moved: those that are free and these are never more than all. So the two switches of threads that
/// dropping the originals takes, 10 us and more, are a sixteenth of that for each page. A choice: all would halve that once more.
const FOR_COPIES: usize = SLACK / 2;
/// Where all pages leave by copies these are this part of the limit, [`CALL_PAGES`] at most. A choice: 64 of them, from 32 MiB on, make a stream a tenth
/// faster than sixteen (docs/performance.md, "Memory that cannot be moved").
const COPIES_SHARE: u64 = 128;

impl Live {
    /// Takes what the limit has left, up to this process's fair part of it.
    pub(crate) fn take_share(&mut self) {
        let total = self.session.limit_pages();
        let held = self.session.held_pages();
        // Until the first look at what it needs, so that the others make room.
        self.session.want(total.saturating_sub(held));
        let target = self.session.target(&mut self.worth.claims).min(total);
        if held < target {
            self.session.reserve(target - held);
        }
        self.share = target;
        self.apply_share();
    }

    /// Sets memory for transfers apart, if the process has enough; the share is to be applied afterwards.
    pub(crate) fn set_apart(&mut self) {
        self.pool = self.apart.set_apart(self.session.held_pages());
    }

    /// Keeps frames for copies of pages that cannot be moved, where [`Self::slack`] has room for them.
    pub(crate) fn keep_for_copies(&mut self) {
        if !self.world.mechanism.moves() {
            let part = self.session.limit_pages() / COPIES_SHARE;
            self.world.kept_for_copies = (part as usize).clamp(FOR_COPIES, CALL_PAGES);
        } else if self.compressed.is_some() {
            self.world.kept_for_copies = FOR_COPIES;
        }
    }

    /// Frames that may lie free beyond the limit.
    pub(crate) fn slack(&self) -> usize {
        if !self.world.mechanism.moves() {
            return SLACK / FOR_COPIES * self.world.kept_for_copies;
        }
        // What is copied frees frames and takes others all the time, as the pool does.
        if self.compressed.is_some() || !self.world.views.is_empty() {
            SLACK
        } else {
            0
        }
    }

    /// Frames that the pager may not use: those set apart for copies and transfers, what a store keeps in RAM beyond them, and what a pool of compressed
    /// pages takes before anything is in it.
    pub(crate) fn set_aside(&self) -> usize {
        let store = self.store.ram_bytes().div_ceil(PAGE_BYTES as u64);
        self.pool.max(store as usize) + self.slack() + self.pool_fixed_frames()
    }

    /// The pager may use what is held. A process that got less than can work uses the least that
    /// can: what that exceeds is counted as overhead.
    pub(crate) fn apply_share(&mut self) {
        let held = self.session.held_pages() as usize;
        let frames = held
            .saturating_sub(self.set_aside())
            .max(FRAMES_MIN)
            .min(self.frames_max);
        if frames != self.pager.limits().frames {
            self.pager.handle(clock::now(), Event::Limit(frames));
            self.drive();
        }
    }

    /// Every 100 ms while there are events: forked processes, the shared budget, counters.
    pub(crate) fn tick(&mut self, now: Nanos) {
        self.end_if_alone(now);
        self.end_with_the_program();
        self.require_whole_session();
        self.look_for_home();
        self.free_kept_slots();
        self.let_ended_threads_go();
        self.set_apart();
        self.compact();
        self.let_calls_end();
        self.next_share = Nanos(now.0 + SHARE_LOOK.0);
        if self.rebalance(now) {
            self.bury_the_dead();
        }
        self.ask_again(now);
        self.pager.handle(now, Event::Tick);
        self.drive();
        self.trim();
        if self.world.failing.reach() == Reach::Process {
            let lent = &self.lent;
            self.shared
                .look(now, &self.world.space, |mapping| lent.keep(mapping));
        }
        self.check_mappings(now);
        self.publish();
        self.pager.flush(true);
    }

    /// What the processes share divides the limit and the swap file: without it nothing is certain.
    fn require_whole_session(&self) {
        if let Err(error) = self.session.check() {
            self.world.failing.fail(Failure::Session(error));
        }
    }

    /// Says what frames are worth to this process, and follows the share that comes of it. Whether it was to have more, and nothing was left.
    fn rebalance(&mut self, now: Nanos) -> bool {
        self.measure(now);
        let limits = self.pager.limits();
        let held = self.session.held_pages();
        let least = (self.set_aside() + FRAMES_MIN) as u64;
        let near = limits.clean_low.max(self.pager.queued(Queue::Cache)) as u64;
        // A pager that pages could use more; one that has free frames needs no more.
        let short = self.worth.pages() || self.pager.frames_free() < limits.reserve * 2;
        let spare = if short {
            0
        } else {
            held.saturating_sub(self.in_use())
        };
        let worth = self.worth.worth(&Worth {
            near_pages: near,
            spare_pages: spare,
            least_pages: least,
            fixed_pages: self.pager.queued(Queue::Refused) as u64,
            ..Worth::default()
        });
        self.session.bid(&worth);
        let total = self.session.limit_pages();
        let wants = if short && !worth.asleep { total } else { 0 };
        self.session.want(wants.saturating_sub(held));
        let target = self.session.target(&mut self.worth.claims).min(total);
        // Who has enough takes nothing.
        self.share = if wants > 0 { target } else { target.min(held) };
        self.follow_share()
    }

    /// Between two ticks: looks at the share, or goes on towards it.
    pub(crate) fn share_if_due(&mut self, now: Nanos) {
        if now >= self.next_share {
            self.next_share = Nanos(now.0 + SHARE_LOOK.0);
            self.rebalance(now);
            self.drive();
        } else if now >= self.next_step && self.follows_share() {
            let held = self.session.held_pages();
            self.follow_share();
            self.drive();
            let moved = self.session.held_pages() != held;
            let wait = if moved { SHARE_STEP } else { SHARE_LOOK };
            self.next_step = Nanos(now.0 + wait.0);
        }
    }

    /// Frames of the limit that hold something, in pages.
    fn in_use(&self) -> u64 {
        (self.pager.frames_used() + self.world.frames.free() + self.set_aside()) as u64
    }

    /// Takes and gives back frames towards the share. Whether it was to have more, and nothing was left.
    fn follow_share(&mut self) -> bool {
        let (held, share) = (self.session.held_pages(), self.share);
        let mut refused = false;
        if held < share {
            refused = self.session.reserve(share - held) == 0;
        } else if held > share {
            let keep = share.max(self.in_use()).max(FRAMES_MIN as u64);
            if keep < held {
                self.session.release(held - keep);
            }
        }
        let goal = self.session.held_pages().min(share) as usize;
        let frames = goal
            .saturating_sub(self.set_aside())
            .max(FRAMES_MIN)
            .min(self.frames_max);
        if frames != self.pager.limits().frames {
            self.pager.handle(clock::now(), Event::Limit(frames));
        }
        refused
    }

    /// Whether frames are still to be taken or given back.
    pub(crate) fn follows_share(&self) -> bool {
        self.session.held_pages() != self.share
    }

    /// Looks at what was counted since it last did.
    fn measure(&mut self, now: Nanos) {
        let stats = self.pager.stats();
        let did = Did {
            faults: stats.minor_faults + stats.major_faults,
            ran: clock::process_ran().0.saturating_sub(clock::thread_ran().0),
            wait: !self.world.waiting.is_empty() || self.stuck_since.is_some(),
        };
        self.worth.look(now, self.pager.refaults(), &did);
    }

    /// Slots that were kept for forked processes are reused when no process needs them: a child that is
    /// gone may have left children of its own, whose pages are in the same slots.
    fn free_kept_slots(&mut self) {
        if !self.keeps_slots {
            return;
        }
        // Of those that died since, the next tick hears.
        self.bury_the_dead();
        if !self.session.shares_any(&self.leased) {
            self.keeps_slots = false;
            self.pager.handle(clock::now(), Event::ChildrenGone);
        }
    }

    /// Copies the counters to where others see them.
    pub(crate) fn publish(&mut self) {
        self.publish_objects();
        let (s, counters) = (*self.pager.stats(), self.session.counters());
        let before = counters.read();
        let swap_slots_used = self.pager.slots_used() as u64;
        let overhead_bytes = self.pager.heap_bytes() as u64;
        let count = |states: [State; 3]| states.map(|x| self.pager.count(x)).iter().sum::<usize>();
        let resident = count([State::Resident, State::Mapping, State::Detaching]);
        let staged = count([State::Staged, State::Writing, State::Reading]);
        let pool = self.pool_frames() as u64;
        let told = Notifier::told(&self.world.notifiers);
        let touched = resident + staged + self.pager.count(State::PagedOut);
        counters.write(&Counts {
            page_ins: s.page_ins,
            page_in_reads: s.page_in_reads,
            page_outs: s.page_outs,
            page_out_writes: s.page_out_writes,
            bytes_in: s.page_ins * PAGE_BYTES as u64,
            bytes_out: s.page_outs * PAGE_BYTES as u64,
            read_ahead_pages: s.read_ahead,
            read_ahead_mapped: s.read_ahead_mapped,
            read_ahead_hits: s.read_ahead_hits,
            read_ahead_late: s.read_ahead_late,
            read_ahead_waste: s.read_ahead_waste,
            read_ahead_along_used: s.along_used,
            read_ahead_along_unused: s.along_unused,
            read_ahead_along_squares: s.along_squares,
            minor_faults: s.minor_faults,
            major_faults: s.major_faults,
            spurious_faults: s.spurious_faults,
            fault_ns: self.fault_ns,
            zero_fills: s.zero_fills,
            zero_drops: s.found_zero,
            clean_drops: s.found_clean,
            rescues: s.rescues,
            freed_pages: s.freed,
            freed_drops: s.freed_dropped,
            freed_kept: s.freed_kept,
            compressed_pages: s.compressed,
            compressed_bytes: s.compressed_bytes,
            compressed_hits: s.pool_hits,
            compressed_demoted: s.demoted,
            compressed_unfit: s.unfit,
            pool_pages: pool,
            peak_pool_pages: before.peak_pool_pages.max(pool),
            detached_pages: s.detached,
            detach_calls: self.detach_calls,
            unmanaged_shared_bytes: self.shared.bytes(),
            refused_busy: s.refused,
            cow_duplicates: self.world.cow_duplicates,
            poisoned: s.lost,
            notified_out: told.out,
            notified_in: told.back,
            notified_lost: told.lost,
            swap_full: s.not_placed,
            clusters: s.clusters,
            store_errors: s.write_errors + s.read_errors,
            checksum_errors: s.checksum_errors,
            resident_pages: resident as u64,
            staged_pages: staged as u64,
            shared_pages: self.world.views.frames(),
            swap_slots_used,
            overhead_bytes,
            peak_pages: s.frames_peak,
            peak_overhead_bytes: before.peak_overhead_bytes.max(overhead_bytes),
            peak_swap_slots: before.peak_swap_slots.max(swap_slots_used),
            peak_touched_pages: before.peak_touched_pages.max(touched as u64),
            write_sizes: s.write_sizes,
        });
    }

    /// Copies the counters of memory objects, as far as they changed.
    fn publish_objects(&mut self) {
        let changed = self.pager.take_changed_objects();
        if changed != 0 {
            (self.session).publish_objects(self.pager.objects(), changed);
        }
    }

    /// Frames that an earlier call allocated beside the pool go back to the kernel.
    pub(crate) fn trim(&mut self) {
        let (used, limit) = (self.pager.frames_used(), self.pager.limits().frames);
        let excess = self.world.frames_too_many(used, limit);
        if excess > self.slack() {
            self.world.give_back(excess);
        }
    }
}
