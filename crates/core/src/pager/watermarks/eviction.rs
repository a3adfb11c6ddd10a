//! How pages leave: which, and when.

mod detached;
mod exchange;
mod pace;

use alloc::boxed::Box;

use super::discards::{
    Drops, detach_discardable, drop_discardable, first_is_due, first_is_left, stage_first,
};
use super::transfers::Transfers;
use crate::contract::Action;
use crate::limits::FRAMES_MIN;
use crate::page::{DIRTY, PageId, Pages, Queue, READ_AHEAD, State};
use crate::pager::drops::{Leaving, is_discardable, leaves_first, outward, settled};
use crate::pager::ledger::Ledger;
use crate::pager::ops::Kind;
use crate::pager::room;
use crate::pager::tiering::{Batch, COMPRESS_PAGES};
use crate::reclaim::{Mapped, Reclaim};
use crate::units::{Nanos, PageNo, PageRange};
use exchange::Exchange;
use pace::Pace;
pub(super) use pace::Taken;

/// The queues of mapped pages. What is mapped anew comes to the end of one.
const MAPPED: [Queue; 2] = [Queue::Active, Queue::Second];

/// Pages that stay mapped where a limit was lowered below what cannot leave: what one instruction may touch, twice. With fewer a page left before it was used.
const MAPPED_MIN: usize = 16;

/// Of a limit that was exceeded this part is staged at once beyond the watermark, or one batch. A choice: half a megabyte of eight, and of 32 as much as the
/// store has under way.
const STAGED_PART: usize = 16;

/// So long a forked child keeps what it began with, unless one of its faults waits. A choice: many times what it takes to end or to execute a program, and
/// what its copies may exceed the limit by meanwhile is bounded by what it writes in that time.
const CHILD_RESTS: Nanos = Nanos(100_000_000);

/// How far the search for a frame has come since the last tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Search {
    /// Not begun.
    Idle,
    /// So many mapped pages are left to look at, of each of [`MAPPED`].
    Left([usize; 2]),
    /// All of them were looked at.
    Over,
}

/// Finds frames: brings the queues to their watermarks, and releases clean pages for whoever needs one at once.
pub(super) struct Eviction {
    /// Which pages leave.
    pub reclaim: Box<dyn Reclaim>,
    pace: Pace,
    exchange: Exchange,
    search: Search,
    /// Somebody who waited for a frame got one since the last tick.
    served: bool,
    /// In a forked child: until then nothing leaves that nobody waits for.
    rests_until: Nanos,
}

impl Eviction {
    /// Nothing due.
    pub fn new(reclaim: Box<dyn Reclaim>) -> Self {
        Self {
            reclaim,
            pace: Pace::default(),
            exchange: Exchange::default(),
            search: Search::Idle,
            served: false,
            rests_until: Nanos(0),
        }
    }

    /// Frames that can be had at once, up to `wanted`: free ones, then clean pages released for it.
    pub fn room(&mut self, ledger: &mut Ledger, wanted: usize) -> usize {
        let (goal, most) = (ledger.frames_used() + wanted, ledger.frames_max());
        if goal > most {
            self.release_clean(ledger, goal - most);
        }
        ledger.frames_free().min(wanted)
    }

    /// Whether a page that somebody waits for can have a frame at once: one of [`Self::room`], or where the limit is exceeded that of pages that left.
    pub fn has_frame(&mut self, ledger: &mut Ledger) -> bool {
        if self.rests(ledger) && self.exchanges(ledger) {
            return true;
        }
        let room = self.room(ledger, 1) > 0;
        self.begin_exchange(ledger);
        room || self.exchanges(ledger)
    }

    fn exchanges(&mut self, ledger: &Ledger) -> bool {
        exceeds_limit(ledger) && self.exchange.grants(ledger.frames_used())
    }

    /// To be said before the limit is lowered, or pages come that it does not hold back: what left until then is not exchanged. Nothing where it is exceeded
    /// already.
    pub fn begin_exchange(&mut self, ledger: &Ledger) {
        if !exceeds_limit(ledger) {
            let at_once = if self.rests(ledger) { FRAMES_MIN } else { 0 };
            self.exchange.begin(ledger.frames_used(), at_once);
        }
    }

    /// This is a forked child's. What it has it shares with its parent: leaving would free nothing, and cost a copy of each page. Most children have ended
    /// soon, or are another program.
    pub fn forked(&mut self, ledger: &Ledger) {
        self.rests_until = Nanos(ledger.now.0 + CHILD_RESTS.0);
    }

    /// Whether nothing leaves that nobody waits for.
    pub fn rests(&self, ledger: &Ledger) -> bool {
        ledger.now < self.rests_until
    }

    /// As [`Self::room`], for what nobody waits for: so many are left to demanded pages.
    pub fn room_to_spare(&mut self, ledger: &mut Ledger, wanted: usize) -> usize {
        let reserve = ledger.limits.reserve;
        self.room(ledger, wanted + reserve).saturating_sub(reserve)
    }

    /// So many frames were taken.
    pub fn took_frames(&mut self, ledger: &mut Ledger, what: Taken, frames: usize) {
        let most = self.reclaim.staged_low(&ledger.limits);
        self.pace.taken(what, frames, most);
        self.exchange.took(frames);
        ledger.took_frames(frames);
    }

    /// Somebody who waited for a frame gets one.
    pub const fn serves(&mut self) {
        self.served = true;
    }

    fn release_clean(&mut self, ledger: &mut Ledger, wanted: usize) {
        let mut op = None;
        for _ in 0..wanted {
            let Some(id) = self.next_clean(ledger) else {
                break;
            };
            let nowhere = PageRange::new(PageNo::from_raw(0), 0);
            let op = *op.get_or_insert_with(|| ledger.start(Kind::Release, nowhere));
            let page = ledger.pages.number(id);
            ledger.ops[op].add(id, page);
            if is_discardable(ledger, id) {
                drop_discardable(ledger, id);
                continue;
            }
            if ledger.pages.is_read(id) {
                ledger.pages.set_read(id, false);
            } else {
                self.reclaim.left(&ledger.pages, id);
            }
            ledger.give_up_frame(id);
        }
        ledger.release(op);
    }

    /// The next clean page whose frame is given up. Where there is a pool, none that might go there is passed by.
    fn next_clean(&mut self, ledger: &mut Ledger) -> Option<PageId> {
        if ledger.tier.policy.is_some() {
            return ledger.pages.pop(Queue::Cache);
        }
        self.reclaim.release(&mut ledger.pages)
    }

    /// So many frames are to be free or hold staged pages. Those that are watched are not to be had.
    fn staged_low(&self, ledger: &Ledger) -> usize {
        self.reclaim.staged_low(&ledger.limits) + ledger.pages.queued(Queue::Watched)
    }

    /// Victims of one scan.
    fn batch(&self, ledger: &Ledger) -> usize {
        let half = self.reclaim.victims(&ledger.pages) / 2;
        ledger.limits.detach_batch.min(half)
    }

    /// Whether [`Self::balance`] has nothing to do, as after nearly every event.
    pub fn balanced(&self, ledger: &mut Ledger, transfers: &Transfers) -> bool {
        if self.rests(ledger) && ledger.waits.frames() == 0 {
            return true;
        }
        let Some(free) = ledger.frames_max().checked_sub(ledger.frames_used()) else {
            return false;
        };
        let free = free + ledger.pages.count(State::Writing);
        let staged = free + ledger.pages.count(State::Staged);
        let clean = free + ledger.pages.queued(Queue::Cache);
        ledger.waits.frames() == 0
            && !first_is_due(ledger)
            && (staged >= self.staged_low(ledger) || self.pace.victims < self.batch(ledger))
            && (clean >= ledger.limits.clean_low
                || self.pace.writes < write_due(ledger, transfers) && !transfers.wants_room(ledger))
    }

    /// Brings the queues back to their watermarks.
    pub fn balance(&mut self, ledger: &mut Ledger, transfers: &mut Transfers) {
        if ledger.waits.frames() > 0 {
            self.rests_until = Nanos(0);
        }
        if self.rests(ledger) {
            return;
        }
        stage_first(ledger);
        self.detach_victims(ledger);
        self.page_out_scan(ledger, transfers);
        transfers.demote(ledger, self);
        self.shrink(ledger);
        if ledger.waits.frames() > 0 && at_rest(ledger) && !self.has_frame(ledger) {
            if stop_watching(ledger) {
                self.page_out_scan(ledger, transfers);
            }
            if at_rest(ledger) && !self.has_frame(ledger) {
                self.search(ledger, transfers);
            }
        }
    }

    /// The watermarks are met or nothing can be written, and still no frame is to be had for
    /// somebody who waits: looks for clean pages behind dirty ones, then, a batch at a time, for
    /// clean pages and stale slots among the mapped ones. Each of these is looked at once a tick;
    /// otherwise a page would leave again before the thread that waited for it could use it.
    fn search(&mut self, ledger: &mut Ledger, transfers: &Transfers) {
        let mut left = match self.search {
            Search::Over => return,
            Search::Idle => MAPPED.map(|queue| ledger.pages.queued(queue)),
            Search::Left(left) => left,
        };
        if self.sort_out_clean(ledger) {
            return;
        }
        let batch = ledger.limits.detach_batch;
        // Not by the policy's choice: it may name a page that came back before others were looked at.
        let found = detach_each(ledger, batch, |pages| next_of(&mut left, pages));
        self.search = Search::Left(left);
        if found {
            return;
        }
        self.search = Search::Over;
        if !self.served {
            let full = ledger.swap_full || transfers.store_fails();
            let dirty = [Queue::Inactive, Queue::Outward].map(|queue| ledger.pages.queued(queue));
            let swap_full = full && dirty != [0, 0];
            ledger.actions.push_back(Action::Exhausted { swap_full });
        }
    }

    /// Moves clean pages from behind dirty ones to the cache. Whether there were any.
    fn sort_out_clean(&mut self, ledger: &mut Ledger) -> bool {
        let mut found = false;
        for _ in 0..ledger.pages.queued(Queue::Inactive) {
            let Some(id) = self.reclaim.launder(&mut ledger.pages) else {
                break;
            };
            if is_discardable(ledger, id) {
                leaves_first(ledger, id);
                found = true;
            } else if ledger.pages.has(id, DIRTY) {
                self.reclaim.not_written(&mut ledger.pages, id);
            } else {
                self.reclaim.cleaned(&mut ledger.pages, id);
                found = true;
            }
        }
        found
    }

    /// Time passed: what was refused may be tried again, a part of it at a time, because refusals
    /// cost time too. All of it when somebody waits.
    pub fn tick(&mut self, ledger: &mut Ledger, transfers: &mut Transfers) {
        (self.search, self.served) = (Search::Idle, false);
        transfers.try_store_again();
        let refused = ledger.pages.queued(Queue::Refused);
        let again = if ledger.waits.frames() == 0 {
            refused.min(ledger.limits.detach_batch.max(refused / 64))
        } else {
            refused
        };
        for _ in 0..again {
            let id = ledger.pages.head(Queue::Refused).expect("counted");
            ledger.pages.unqueue(id);
            self.reclaim.mapped(&mut ledger.pages, id, Mapped::Refused);
            settled(ledger, id);
        }
        // With nothing to write to, a lowered limit is reached by dropping what is clean.
        let over = over_limit(ledger) > 0 && !self.rests(ledger);
        if over && at_rest(ledger) && !transfers.may_write(ledger) {
            stop_watching(ledger);
            let batch = ledger.limits.detach_batch;
            let _ = self.sort_out_clean(ledger) || self.detach_oldest(ledger, batch);
        }
    }

    /// After the limit was lowered: gives frames back as fast as pages become clean.
    fn shrink(&mut self, ledger: &mut Ledger) {
        let over = over_limit(ledger);
        if over > 0 {
            self.release_clean(ledger, over);
        }
    }

    fn detach_victims(&mut self, ledger: &mut Ledger) {
        let batch = self.batch(ledger);
        let due = self.pace.victims.max(needed(ledger, batch));
        if due < batch {
            return;
        }
        let staged = [State::Staged, State::Writing].map(|s| ledger.pages.count(s));
        let have = ledger.frames_max() + staged.iter().sum::<usize>();
        // Where most frames cannot be had, pages in the others must not leave before they were used.
        let held = ledger.pages.queued(Queue::Refused)
            + ledger.pages.count(State::Reading)
            + ledger.tier.charged();
        let low = self
            .staged_low(ledger)
            .min(ledger.frames_max().saturating_sub(held) / 2);
        // Where the limit was lowered or a fork doubled what is there, no more is staged at once than can soon leave: of what a fork left shared each
        // staged page is a copy.
        let beyond =
            over_limit(ledger).saturating_sub((ledger.frames_max() / STAGED_PART).max(batch));
        let wanted = ledger.frames_used() - beyond + low + ledger.waits.frames();
        if have >= wanted || ledger.pages.count(State::Detaching) > 0 {
            return;
        }
        let mut most = (wanted - have).max(batch).min(due);
        if held >= ledger.frames_max() {
            most = most.min((self.reclaim.victims(&ledger.pages)).saturating_sub(MAPPED_MIN));
        }
        self.pace.detached(most);
        self.detach_oldest(ledger, most);
    }

    /// Detaches up to `most` victims. False if there is none.
    fn detach_oldest(&mut self, ledger: &mut Ledger, most: usize) -> bool {
        let first = if ledger.discarding.leaves_first() {
            detach_discardable(ledger, most)
        } else {
            0
        };
        detach_each(ledger, most - first, |pages| self.reclaim.victim(pages)) || first > 0
    }

    /// Pages out from the inactive queue's head until enough pages are clean.
    fn page_out_scan(&mut self, ledger: &mut Ledger, transfers: &mut Transfers) {
        if ledger.tier.policy.is_some() {
            // What the pool took of the frames that are kept for it comes back first.
            self.shrink(ledger);
        }
        let wanted = ledger.limits.clean_low + over_limit(ledger) + ledger.waits.frames();
        if nearly_free(ledger) >= wanted {
            return;
        }
        if !transfers.may_begin_write(ledger) && !room::may_compress(ledger) {
            return;
        }
        let chunk = transfers.chunk_pages() as usize;
        let least = write_due(ledger, transfers);
        let due = self.pace.writes.max(needed(ledger, chunk.max(least)));
        if due < least || !pages_can_leave(ledger) || first_is_left(ledger) {
            return;
        }
        let enough = (wanted + chunk).min(nearly_free(ledger) + due);
        let left = self.send(ledger, transfers, enough);
        self.pace.written(left);
    }

    /// Sends victims to the pool and to the store until `enough` frames are nearly free, or one cannot go where it belongs: no younger one goes
    /// before it. How many went.
    fn send(&mut self, ledger: &mut Ledger, transfers: &mut Transfers, enough: usize) -> usize {
        let mut looks = ledger.pages.queued(Queue::Inactive);
        let (mut sent, mut dropped) = (0, Drops::default());
        let mut batch = Batch::default();
        while looks > 0
            && nearly_free(ledger) + sent < enough
            && (room::may_compress(ledger) || transfers.may_write(ledger))
        {
            looks -= 1;
            let Some(id) = self.reclaim.launder(&mut ledger.pages) else {
                break;
            };
            if is_discardable(ledger, id) && ledger.pages.has(id, DIRTY) {
                dropped.in_place_of_write(ledger, id);
            } else if !ledger.pages.has(id, DIRTY) && !keeps_better(ledger, id) {
                self.reclaim.cleaned(&mut ledger.pages, id);
            } else if ledger.tier.policy.is_none() {
                sent += transfers.collect(ledger, self, id);
            } else if !room::pools(ledger, id) || stuck(ledger) {
                self.passes_pool(ledger, id);
                sent += 1;
            } else if room::may_compress(ledger) {
                batch.add(id);
                sent += 1;
                if batch.is_full() {
                    transfers.compress(ledger, &core::mem::take(&mut batch));
                }
            } else {
                ledger.pages.push_first(Queue::Inactive, id);
                break;
            }
        }
        transfers.compress(ledger, &batch);
        self.send_outward(ledger, transfers);
        transfers.finish(ledger, self);
        dropped.with_victims(ledger, sent);
        sent
    }

    /// A victim that is not to be kept goes to the store, where it may be already.
    pub(super) fn passes_pool(&mut self, ledger: &mut Ledger, id: PageId) {
        if ledger.pages.has(id, DIRTY) {
            outward(ledger, id);
        } else {
            self.reclaim.cleaned(&mut ledger.pages, id);
        }
    }

    /// Writes what is to go to the store once it makes a chunk, or at once where frames are wanted.
    fn send_outward(&mut self, ledger: &mut Ledger, transfers: &mut Transfers) {
        let chunk = (transfers.chunk_pages() as usize).min(ledger.limits.staged_low);
        if !urgent(ledger) && ledger.pages.queued(Queue::Outward) < chunk {
            return;
        }
        // In this order: asking whether there are slots asks for more.
        while ledger.pages.queued(Queue::Outward) > 0 && transfers.may_write(ledger) {
            let id = ledger.pages.pop(Queue::Outward).expect("counted");
            transfers.collect(ledger, self, id);
        }
    }
}

/// Whether there is a place for a page that leaves.
fn pages_can_leave(ledger: &Ledger) -> bool {
    ledger.slots.available() > 0 || room::may_compress(ledger)
}

/// Frames are needed, whatever would be seen: watched pages may leave as others do. Whether there were any.
fn stop_watching(ledger: &mut Ledger) -> bool {
    let watched = ledger.pages.queued(Queue::Watched);
    while let Some(id) = ledger.pages.pop(Queue::Watched) {
        let dirty = ledger.pages.has(id, DIRTY);
        let queue = if dirty { Queue::Inactive } else { Queue::Cache };
        ledger.pages.push(queue, id);
    }
    watched > 0
}

/// Frames above the limit, after it was lowered, or above what the pool leaves of it.
fn over_limit(ledger: &Ledger) -> usize {
    ledger.frames_used().saturating_sub(ledger.frames_max())
}

/// Whether more frames are in use than there are to be, the pool's among them.
fn exceeds_limit(ledger: &Ledger) -> bool {
    ledger.frames_used() > ledger.limits.frames
}

/// As many writes must be due before any is begun. A compression is as cheap by itself as in a chunk.
fn write_due(ledger: &Ledger, transfers: &Transfers) -> usize {
    if room::may_compress(ledger) {
        return COMPRESS_PAGES;
    }
    (transfers.chunk_pages() as usize).min(ledger.limits.staged_low)
}

/// Nothing is under way from which frames could come.
fn at_rest(ledger: &Ledger) -> bool {
    ledger.ops.at_rest() && !ledger.growing
}

/// Pages that must go, whatever was earned: `batch` beyond those over the limit when there are
/// any, or when somebody waits for a frame.
fn needed(ledger: &Ledger, batch: usize) -> usize {
    if urgent(ledger) {
        over_limit(ledger) + batch
    } else {
        0
    }
}

/// Whether frames are needed at once.
fn urgent(ledger: &Ledger) -> bool {
    over_limit(ledger) > 0 || ledger.waits.frames() > 0
}

/// Whether a clean page may be worth a place in the pool beside its slot: it was in use, and would have to be read again.
fn keeps_better(ledger: &Ledger, id: PageId) -> bool {
    let policy = ledger.tier.policy.as_ref();
    policy.is_some_and(|policy| policy.pools_clean())
        && !ledger.tier.takes_all
        && !ledger.pages.has(id, READ_AHEAD)
        && !ledger.pages.slot(id).is_pooled()
}

/// Frames are needed, the pool takes nothing, and nothing is under way by which it might.
fn stuck(ledger: &Ledger) -> bool {
    urgent(ledger)
        && !room::may_compress(ledger)
        && ledger.tier.is_idle()
        && ledger.pages.queued(Queue::Cache) == 0
}

fn nearly_free(ledger: &Ledger) -> usize {
    ledger.frames_free() + ledger.pages.queued(Queue::Cache) + ledger.pages.count(State::Writing)
}

/// The next page that a search looks at, off its queue.
fn next_of(left: &mut [usize; 2], pages: &mut Pages) -> Option<PageId> {
    for (left, queue) in left.iter_mut().zip(MAPPED) {
        while *left > 0 {
            *left -= 1;
            // Fewer are left where some were unmapped meanwhile.
            if let Some(id) = pages.pop(queue) {
                return Some(id);
            }
        }
    }
    None
}

/// Detaches up to `most` of the pages that `next` takes off their queues. False if there is none.
fn detach_each(
    ledger: &mut Ledger,
    most: usize,
    mut next: impl FnMut(&mut Pages) -> Option<PageId>,
) -> bool {
    let mut leaving = Leaving::by(Kind::Detach);
    for _ in 0..most {
        let Some(id) = next(&mut ledger.pages) else {
            break;
        };
        leaving.add(ledger, id);
    }
    leaving.end(ledger)
}
