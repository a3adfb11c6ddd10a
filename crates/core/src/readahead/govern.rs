//! How much a policy may read ahead: as much as what it read before was of use.
//!
//! The policy names slots, the governor says how many of them are read. Pages that are read ahead are paid
//! for from three accounts, the stream's, the memory object's and the process's ([`account`](super::account)):
//! the lowest decides. What is used comes back with a bonus, what is not is lost, and so is a page that
//! had to leave for it and came back soon ([`ghost`](super::ghost)). With empty accounts only the faulted page
//! is read, and now and then one more, to try again: where that is used, windows grow by half with each fault.
//!
//! Of the pages that are mapped along a sample stays staged, so that touches of it show
//! ([`sample`](super::sample)): all of them where an account is nearly empty, one in [`INTERVAL_MAX`]
//! where nothing was in vain for long.

use alloc::vec;
use alloc::vec::Vec;

use super::account::{Account, Amount};
use super::cost::Cost;
use super::follow::{Follow, Read, Wanted};
use super::ghost::Ghosts;
use super::objects::{Object, Objects};
use super::sample::{Sample, Samples};
use super::stride::DEPTH_MAX;
use super::{StreamId, TAGS};
use crate::units::{Nanos, PageNo, SlotNo, SlotRange};

/// At most one in so many pages that are mapped along is sampled. A sampled page costs a minor fault,
/// 7 us, one mapped along is read in 4 us and more: this is less than a hundredth.
const INTERVAL_MAX: u32 = 256;

/// Samples used in a row after which half as many are taken.
const ROW: u32 = 4;

/// Accounts begin with a page for so many frames of memory, by and by: of what is read ahead much is judged only when memory has been
/// taken once, and LU of 256 MiB under 115 MiB has a third of it waiting for that. With 1,840 pages in all it had 17,600 major faults
/// for 6,100 and took 2.47 s for 1.64 (medians of 3, load 1); with 32 pages 19,011.
const FIRST_SHARE: u64 = 4;

/// Of that at once: a first window.
const FIRST: Amount = Amount::pages(32);

/// What accounts hold at least, in pages: a window and the next one.
const LEAST: u64 = 256;

/// Major faults in a row where slow streams went on, about, before what their windows cost is lent: a fault elsewhere
/// takes back [`SLOW_NOT`], so that more than three in four must be such.
const SLOW_SURE: u8 = 32;
const SLOW_NOT: u8 = 3;
const SLOW_MAX: u8 = 2 * SLOW_SURE;

/// A slow stream's window is at most so many times the last one. A choice, 2 to 16 are plausible: 64 pages at its third fault. Only 4, which it was, and 8 were
/// tried, and not apart from what else came with 8.
const SLOW_GROWTH: u32 = 8;

/// A stream with less is poor, where its object is not. A choice; `moc --cluster 1` of 256 MiB under 115 MiB had 573 major faults
/// [185-1080] without this rule, 140 [117-213] with it.
const POOR: u32 = 8;

/// Ranges read ahead whose stream is remembered: those that a few streams have in memory.
const RANGES: usize = 32;

/// The account of a stream.
#[derive(Clone, Copy)]
struct Stream {
    begun: u32,
    account: Account,
}

/// What is read because a slow stream goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slow {
    /// So many pages, the one that is demanded included.
    pub(crate) pages: u32,
    /// It and those below it.
    pub(crate) downward: bool,
}

/// What became of a sampled page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    /// The page.
    pub(crate) page: PageNo,
    /// How many pages mapped along it stands for, beside itself.
    pub(crate) others: u32,
    /// Touched in time.
    pub(crate) used: bool,
}

/// Says how much is read ahead.
pub(crate) struct Governor {
    frames: usize,
    /// Frames taken since the start: the time of this module.
    taken: u64,
    whole: Account,
    objects: Objects,
    streams: Vec<Option<Stream>>,
    samples: Samples,
    ghosts: Ghosts,
    follow: Follow,
    /// What is read next is for a slow stream.
    lent: bool,
    cost: Cost,
    /// Pages read in vain while the last memory's worth of frames was taken, about.
    vain: u64,
    /// When `vain` was last lowered.
    lowered: u64,
    /// Ranges read ahead, a ring, and where the next one goes.
    ranges: [(SlotRange, Option<StreamId>); RANGES],
    range: usize,
    /// The stream that is being read for.
    stream: Option<StreamId>,
    random: u64,
}

impl Governor {
    /// For a memory of `frames` frames.
    pub(crate) fn new(frames: usize) -> Self {
        let mut governor = Self {
            frames,
            taken: 0,
            whole: Account::starting(FIRST, first(frames), first(frames)),
            objects: Objects::new(),
            streams: vec![None; TAGS],
            samples: Samples::new(),
            ghosts: Ghosts::new(frames),
            follow: Follow::new(),
            lent: false,
            cost: Cost::default(),
            vain: 0,
            lowered: 0,
            ranges: [(SlotRange::new(SlotNo(0), 0), None); RANGES],
            range: 0,
            stream: None,
            random: 1,
        };
        governor.resize(frames);
        governor
    }

    /// The memory has `frames` frames from now on.
    pub(crate) fn resize(&mut self, frames: usize) {
        self.frames = frames;
        self.ghosts.resize(frames);
        self.follow.resize(frames);
        let most = self.most();
        self.objects.resize(most);
        self.whole.resize(most);
    }

    /// What accounts of objects hold at most.
    fn most(&self) -> Amount {
        Amount::pages(LEAST.max(self.frames as u64 / 2))
    }

    fn object(&mut self, page: PageNo) -> &mut Object {
        let (taken, most, frames) = (self.taken, self.most(), self.frames);
        let first = || Account::starting(FIRST, first(frames), most);
        self.objects.get(page.object(), taken, first, most)
    }

    /// The account of `stream`. A new stream may spend half of what its object has, and so may one that began when that was little and
    /// has little left: of what it reads too few pages are sampled to fill its account where those of its object are of use.
    fn stream(&mut self, stream: StreamId, page: PageNo) -> &mut Account {
        let object = self.object(page).account;
        let most = Amount::pages(LEAST.max(self.frames as u64 / 8));
        let stays = |known: &Stream| known.account.credit() >= FIRST || !object.is_rich();
        let place = &mut self.streams[usize::from(stream.place) % TAGS];
        let known = place.filter(|known| known.begun == stream.begun && stays(known));
        let known = known.unwrap_or_else(|| Stream {
            begun: stream.begun,
            account: Account::new(object.credit().half(), most),
        });
        &mut place.insert(known).account
    }

    /// The account of a stream that still goes on.
    fn known_stream(&mut self, stream: Option<StreamId>) -> Option<&mut Account> {
        let stream = stream?;
        let place = self.streams[usize::from(stream.place) % TAGS].as_mut();
        place
            .filter(|known| known.begun == stream.begun)
            .map(|known| &mut known.account)
    }

    /// Calls `change` with every account that a page for `stream` is paid from.
    fn each(&mut self, page: PageNo, stream: Option<StreamId>, change: impl Fn(&mut Account)) {
        change(&mut self.whole);
        change(&mut self.object(page).account);
        if let Some(account) = self.known_stream(stream) {
            change(account);
        }
    }

    /// How many pages may be read ahead for `page`, which is demanded or was hit.
    pub(crate) fn allows(&mut self, page: PageNo, stream: Option<StreamId>) -> u32 {
        self.stream = stream;
        let whole = self
            .whole
            .affords()
            .min(self.object(page).account.affords());
        match stream {
            Some(stream) => whole.min(self.stream(stream, page).affords()),
            None => whole,
        }
    }

    /// How many pages may be read ahead in several runs: they stay staged until they are touched, so that mapped ones, which
    /// may all be used, have so many frames fewer. A choice: a cliff of a 512th of memory.
    pub(crate) const fn scattered_max(&self) -> u32 {
        const DEPTH: usize = DEPTH_MAX as usize;
        match self.frames / 512 {
            few @ 0..DEPTH => few as u32,
            _ => DEPTH as u32,
        }
    }

    /// A major fault on `page`.
    pub(crate) fn demanded(&mut self, page: PageNo, stream: Option<StreamId>) {
        self.each(page, stream, Account::demanded);
        self.object(page).loan.earn(Amount::DEMAND);
    }

    /// How many pages are read at a major fault on `page`, its own included, because a slow stream goes on there
    /// ([`follow`](super::follow)) and memory holds so much of all of them; what is read next is for it. A `stream` that is seen for the first
    /// time here is one that the policy has lost: it follows [`TAGS`] at most.
    pub(crate) fn slow_stream(&mut self, page: PageNo, stream: Option<StreamId>) -> Option<Slow> {
        let lost = stream.is_some() && self.known_stream(stream).is_none();
        let wanted = self.follow.wanted(page, self.taken, self.frames, lost);
        let object = self.object(page);
        let (fits, meant, downward) = match wanted {
            Wanted::Followed => return None,
            Wanted::Behind {
                fits,
                meant,
                downward,
            } if fits > 1 => {
                object.slow = (object.slow + 1).min(SLOW_MAX);
                (fits, meant, downward)
            }
            Wanted::Behind { .. } | Wanted::Elsewhere => {
                object.slow = object.slow.saturating_sub(SLOW_NOT);
                return None;
            }
        };
        if object.slow < SLOW_SURE {
            return None;
        }
        let lends = object.loan.affords();
        self.lent = true;
        let pages = fits.min(meant * SLOW_GROWTH).min(lends + 1);
        Some(Slow { pages, downward })
    }

    /// Pages are read in a row.
    pub(crate) fn reads_row(&mut self, read: Read) {
        self.follow.read(read, self.taken);
    }

    /// A page that was not in memory is touched: where it was watched, it is used all the same.
    pub(crate) fn missed(&mut self, page: PageNo) -> Option<Verdict> {
        let sample = self.samples.take(page)?;
        Some(self.used(sample))
    }

    /// `page` is read. Where it left for what was read in vain, or for what was read ahead and is not wanted yet, that costs
    /// what a used one brings, and its price. `early` pages that were read ahead wait for their touch.
    pub(crate) fn returns(&mut self, page: PageNo, early: usize) {
        if let Some((pages, since)) = self.ghosts.back(page, self.taken)
            && since <= self.vain + early as u64
        {
            let price = Amount::pages(2 * pages);
            self.each(page, None, |account| account.pay(price));
            let object = self.object(page);
            if object.slow >= SLOW_SURE {
                object.loan.pay(Amount::pages(pages));
            }
        }
    }

    /// `slots` are read; `ahead` of their pages are not asked for. One of them is `page`.
    pub(crate) fn reads(&mut self, page: PageNo, slots: SlotRange, ahead: u32) {
        let price = Amount::pages(ahead.into());
        if core::mem::take(&mut self.lent) {
            return self.object(page).loan.pay(price);
        }
        if ahead == 0 {
            return;
        }
        let stream = self.stream;
        self.each(page, stream, |account| account.pay(price));
        self.ranges[self.range] = (slots, stream);
        self.range = (self.range + 1) % RANGES;
    }

    /// A read of `pages` pages that somebody waited for took so long.
    pub(crate) fn read_took(&mut self, pages: u32, took: Nanos) {
        self.cost.observe(pages, took);
    }

    /// A page that was read ahead from `slot` is touched, and that is seen.
    pub(crate) fn hit(&mut self, page: PageNo, slot: SlotNo) -> Option<Verdict> {
        if let Some(sample) = self.samples.take(page) {
            return Some(self.used(sample));
        }
        let back = self.back(1);
        let stream = self.stream_of(slot);
        self.give_back(page, stream, back);
        None
    }

    /// A page that was read ahead, and was not touched, is released.
    pub(crate) fn wasted(&mut self, page: PageNo) {
        if !self.samples.has(page) {
            self.vain += 1;
        }
    }

    /// `page` is released.
    pub(crate) fn left(&mut self, page: PageNo) {
        self.ghosts.left(page, self.taken);
    }

    /// The content of `page` is gone: whether reading it was of use nobody can tell.
    pub(crate) fn dropped(&mut self, page: PageNo, read_ahead: bool) {
        let sample = self.samples.take(page);
        let pages = sample.map_or(u64::from(read_ahead), |sample| sample.weight.into());
        if pages > 0 {
            let stream = sample.and_then(|sample| sample.stream);
            self.each(page, stream, |account| account.earn(Amount::pages(pages)));
        }
    }

    /// Whether `page`, which was read ahead from `slot` and could be mapped along, stays staged.
    pub(crate) fn samples(&mut self, page: PageNo, slot: SlotNo) -> bool {
        if self.samples.has(page) {
            return true;
        }
        let stream = self.stream_of(slot);
        let weight = if self.is_poor(stream, page) {
            Some(1)
        } else {
            self.counted_down(page)
        };
        let Some(weight) = weight else {
            return false;
        };
        if self.samples.full() {
            return false;
        }
        self.samples.watch(Sample {
            page,
            weight,
            since: self.taken,
            stream,
        });
        true
    }

    /// Counts `page` towards the next sample of its object. How many pages it stands for if it is the one.
    fn counted_down(&mut self, page: PageNo) -> Option<u32> {
        let (interval, random) = (self.interval(page), self.draw());
        self.object(page).counted_down(interval, random)
    }

    fn draw(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        self.random
    }

    /// Whether `stream` has next to nothing though the object of `page` has much: all of what it reads is sampled, so that it has soon
    /// what it is good for.
    fn is_poor(&mut self, stream: Option<StreamId>, page: PageNo) -> bool {
        let well_off = self.object(page).account.is_well_off();
        let poor = |account: &mut Account| account.affords() < POOR;
        well_off && self.known_stream(stream).is_some_and(poor)
    }

    /// One in how many pages mapped along is sampled.
    fn interval(&mut self, page: PageNo) -> u32 {
        let crowded = 1 + u32::from(self.samples.crowded());
        let most = (self.frames as u32 / 64).clamp(8, INTERVAL_MAX);
        let object = self.object(page);
        // Staged pages leave sooner than mapped ones: where slow streams are read for, few may be.
        let pays = [&object.account, &object.loan][usize::from(object.slow >= SLOW_SURE)];
        let credit = (pays.affords() / 16).max(1);
        object.interval.min(credit).min(most) * crowded
    }

    /// The stream for which `slot` was read ahead.
    fn stream_of(&self, slot: SlotNo) -> Option<StreamId> {
        let holds = |range: &SlotRange| range.start <= slot && slot < range.end();
        let found = self.ranges.iter().find(|(range, _)| holds(range));
        found.and_then(|&(_, stream)| stream)
    }

    /// So many frames were taken.
    pub(crate) fn took(&mut self, frames: u64) {
        self.taken += frames;
        let eighth = self.frames as u64 / 8;
        while self.taken - self.lowered >= eighth {
            self.vain -= self.vain.div_ceil(8);
            self.lowered += eighth;
        }
    }

    /// A sampled page that was not touched for so long that a mapped one would have left; to be asked
    /// until there is none.
    pub(crate) fn expired(&mut self) -> Option<Verdict> {
        let until = self.taken.checked_sub(self.frames as u64)?;
        let sample = self.samples.expired(until)?;
        self.vain += u64::from(sample.weight);
        let object = self.object(sample.page);
        object.row = 0;
        object.interval = (object.interval / 2).max(1);
        Some(verdict(sample, false))
    }

    fn used(&mut self, sample: Sample) -> Verdict {
        let back = self.back(sample.weight);
        self.give_back(sample.page, sample.stream, back);
        let object = self.object(sample.page);
        object.row += 1;
        if object.row >= ROW {
            object.row = 0;
            object.interval = (object.interval * 2).min(INTERVAL_MAX);
        }
        verdict(sample, true)
    }

    /// What was lent is paid back first.
    fn give_back(&mut self, page: PageNo, stream: Option<StreamId>, amount: Amount) {
        let left = self.object(page).loan.fill(amount);
        self.each(page, stream, |account| account.earn(left));
    }

    /// What `pages` used pages bring.
    fn back(&self, pages: u32) -> Amount {
        let bonus = self
            .cost
            .known()
            .map_or(Amount::BONUS_MAX, |(alone, along)| {
                Amount::bonus(alone, along)
            });
        Amount::back(pages.into(), bonus)
    }
}

/// What accounts begin with in a memory of `frames` frames.
const fn first(frames: usize) -> Amount {
    Amount::pages(frames as u64 / FIRST_SHARE)
}

const fn verdict(sample: Sample, used: bool) -> Verdict {
    Verdict {
        page: sample.page,
        others: sample.weight - 1,
        used,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ObjectId;

    /// What the accounts of `page` have after it left and came back 20 frames later, while so many pages that were read ahead wait.
    fn after_a_return(governor: &mut Governor, page: PageNo, early: usize) -> u32 {
        governor.left(page);
        governor.took(20);
        governor.returns(page, early);
        governor.allows(page, None)
    }

    #[test]
    fn what_comes_back_is_charged_to_what_was_read_ahead_alone() {
        let mut governor = Governor::new(1024);
        let page = PageNo::new(ObjectId(1), 7);
        assert_eq!(after_a_return(&mut governor, page, 0), 32);
        governor.reads(page, SlotRange::new(SlotNo(0), 25), 24);
        assert_eq!(governor.allows(page, None), 8);
        assert_eq!(after_a_return(&mut governor, page, 24), 6);
        assert_eq!(after_a_return(&mut governor, page, 16), 6, "too few wait");
    }

    #[test]
    fn a_stream_that_began_poor_may_spend_when_its_object_is_rich() {
        let mut governor = Governor::new(8192);
        let page = PageNo::new(ObjectId(1), 7);
        let stream = Some(StreamId { place: 0, begun: 1 });
        // What accounts begin with is spent, for others.
        assert_eq!(governor.allows(page, None), 32);
        governor.reads(page, SlotRange::new(SlotNo(0), 33), 32);
        assert_eq!(governor.allows(page, stream), 0);
        let hit = |governor: &mut Governor| governor.hit(page, SlotNo(9000));
        (0..500).for_each(|_| assert_eq!(hit(&mut governor), None));
        assert!(governor.allows(page, None) > 600);
        assert_eq!(governor.allows(page, stream), 0, "that is no proof yet");
        (0..2000).for_each(|_| assert_eq!(hit(&mut governor), None));
        assert!(governor.allows(page, stream) >= 1024);
    }

    #[test]
    fn samples_of_an_object_stand_for_its_pages_whatever_goes_on_beside() {
        const PAGES: u64 = 20_000;
        let mut governor = Governor::new(1 << 20);
        let (rich, poor) = (ObjectId(1), ObjectId(2));
        governor.object(PageNo::new(rich, 0)).interval = INTERVAL_MAX;
        (0..10_000).for_each(|n| assert_eq!(governor.hit(PageNo::new(rich, n), SlotNo(0)), None));
        let mut stood_for = [0, 0];
        for index in 0..PAGES {
            for (sum, object) in stood_for.iter_mut().zip([rich, poor]) {
                let page = PageNo::new(object, index);
                assert_eq!(
                    governor.samples(page, SlotNo(0)),
                    governor.samples.has(page)
                );
                *sum += governor
                    .samples
                    .take(page)
                    .map_or(0, |sample| u64::from(sample.weight));
            }
        }
        assert!(
            governor.interval(PageNo::new(rich, 0)) > 8 * governor.interval(PageNo::new(poor, 0))
        );
        let fair = PAGES * 4 / 5..PAGES * 6 / 5;
        assert!(
            stood_for.iter().all(|sum| fair.contains(sum)),
            "{stood_for:?}"
        );
    }
}
