//! Streams through what is out: touches of one page after another, by which it is known what is touched next.
//!
//! By pages, not by slots: in the pool what lies beside a page is no cheaper to get than anything else, so what counts is what the program does. Up or down,
//! and pages that are there already are passed over. For touches in the store they also tell which pages reading ahead would have brought along: such
//! touches say nothing of how far apart the program's are.

use crate::units::PageNo;

/// Streams that are known at once in the pool. A choice: more than a program's threads walk along as a rule, and few, so that it is soon seen that one has ended.
pub(super) const IN_POOL: usize = 8;
/// In the store: more than read-ahead follows, since those that it loses are looked for. A choice, few enough to look at all of them for each read that is waited for; others were not tried.
pub(super) const IN_STORE: usize = 64;
/// A touch behind so many, each of which was the next page in the next slot and was read alone, is one that reading ahead has lost: `stream` begins with
/// 16 slots at most (`FIRST_WINDOW_MAX`), and follows 16 streams. Of runs that are that long or shorter nothing changes; others were not tried.
const NEXT_TO: u32 = 16;
/// Pages of a round, at most: a fault and what belongs to it take 8 us and a page that comes along 2, so that with 8 of them most of that is saved, and
/// whoever waits for the first of them waits for 25 us.
pub(super) const ALONG_MAX: usize = 8;
/// A touch continues a stream when it is no farther ahead than that: pages between are in the program still. At random, one touch in 1,000 does so
/// in 64 MiB where eight streams are known.
const NEAR: u64 = 4;
/// Pages that a stream passes over at once beyond that, as many at most as it went on for before: so where every skip is as long, half of what comes along
/// is touched still. An interpreter that walks its objects class by class passes over the blocks of the others, of 4 pages in CPython. A dictionary's pages
/// (`outpage replay --tier lz4 --memory 50%` of a trace of 120,000 keys) are touched 156,000 times in the pool with a maximum of 1, 148,000 with 4 and 16,
/// 141,000 with 64. A choice among these: the farther a stream may go on, the more of what is touched at random counts as its next.
const SKIP_MAX: u64 = 16;
/// Touches in a row after which pages come along: between these, as it turns out. What comes along in vain is compressed twice and displaces others: each
/// stream that ends with pages that nobody touched doubles it, and each time that one goes on behind its pages takes one off. So where most streams are
/// short, only longer ones count; seven pages at most are in vain where one ends. A choice: with a maximum of 64, 16, 8 and 4 the dictionary's touches are
/// 171,000, 154,000, 148,000 and 141,000 and its compressions 214,000, 216,000, 214,000 and 212,000; Perl's, awk's and Ruby's change by 6 % at most.
const TOUCHES_MIN: u32 = 3;
const TOUCHES_MAX: u32 = 8;

/// Pages that were touched one after another.
#[derive(Clone, Copy, Default)]
struct Stream {
    /// The last page of them that was taken out, or read.
    last: u64,
    /// Pages from where it last passed over more than `NEAR` to the last one.
    run: u64,
    /// Towards lower pages.
    downward: bool,
    /// Touches so far: at one the direction is not known, at none there is no stream.
    touches: u32,
    /// Pages that were taken out at once.
    pages: usize,
    /// It went on since it was last looked for one to give up.
    used: bool,
    /// What was read at its last touch was cut short for want of frames.
    cut: bool,
    /// The page behind its last touch lay beside it in the store, and was not read.
    leads_on: bool,
    /// Its last touches, each of which was led to so.
    next_to: u32,
}

/// What goes on at a touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ahead {
    at: usize,
    /// Pages to take out, the one that is touched included.
    pub pages: usize,
    /// Those beyond it are below.
    pub downward: bool,
    /// A touch before it led there.
    pub led: bool,
    /// Reading ahead would have brought it, had there been frames at the touch before, or if it followed as many streams as are known here.
    pub lost: bool,
}

/// All streams that are known.
pub(super) struct Streams<const KNOWN: usize> {
    all: [Stream; KNOWN],
    /// Touches in a row after which pages come along.
    touches: u32,
    /// Where it is looked for one to give up.
    hand: usize,
}

impl Stream {
    /// Whether a touch of `page` is its next, and whether it leads downward then.
    fn goes_on(&self, page: u64) -> Option<bool> {
        let (up, down) = (page.wrapping_sub(self.last), self.last.wrapping_sub(page));
        let near = NEAR.max(1 + self.run.min(SKIP_MAX));
        match self.touches {
            0 => None,
            1 if up == 1 => Some(false),
            1 if down == 1 => Some(true),
            1 => None,
            _ if self.downward && 1 <= down && down <= near => Some(true),
            _ if !self.downward && 1 <= up && up <= near => Some(false),
            _ => None,
        }
    }

    /// It goes on to `page`, which is touched, towards lower pages or higher ones.
    fn advance(&mut self, page: u64, downward: bool) {
        let distance = page.abs_diff(self.last);
        let skips = self.touches == 0 || distance > NEAR;
        self.run = if skips { 1 } else { self.run + distance };
        let led_on = core::mem::take(&mut self.leads_on);
        self.next_to = if distance == 1 && led_on {
            self.next_to.saturating_add(1)
        } else {
            0
        };
        (self.last, self.downward) = (page, downward);
        self.touches += 1;
    }
}

impl<const KNOWN: usize> Default for Streams<KNOWN> {
    fn default() -> Self {
        Self {
            all: [Stream::default(); KNOWN],
            touches: TOUCHES_MIN,
            hand: 0,
        }
    }
}

impl<const KNOWN: usize> Streams<KNOWN> {
    /// `page` is touched, which is out.
    pub fn touched(&mut self, page: PageNo) -> Ahead {
        let page = page.raw();
        let found = (self.all.iter().enumerate())
            .find_map(|(at, stream)| stream.goes_on(page).map(|downward| (at, downward)));
        let (at, downward) = found.unwrap_or_else(|| (self.give_up_one(), false));
        let stream = &mut self.all[at];
        stream.advance(page, downward);
        stream.used = stream.touches > 1;
        if stream.pages > 1 {
            self.touches = (self.touches - 1).max(TOUCHES_MIN);
        }
        stream.pages = if stream.touches >= self.touches {
            (2 * stream.pages).clamp(2, ALONG_MAX)
        } else {
            1
        };
        Ahead {
            at,
            pages: stream.pages,
            downward,
            led: stream.touches > 1,
            lost: core::mem::take(&mut stream.cut) || stream.next_to >= NEXT_TO,
        }
    }

    /// `last` is the last page that comes along, or is read.
    pub fn reached(&mut self, ahead: Ahead, last: PageNo) {
        let stream = &mut self.all[ahead.at];
        stream.run += last.raw().abs_diff(stream.last);
        stream.last = last.raw();
        stream.leads_on = false;
    }

    /// The page behind the one that is touched lies beside it in the store. If more is read than the latter, [`Self::reached`] tells.
    pub const fn leads_on(&mut self, ahead: Ahead) {
        self.all[ahead.at].leads_on = true;
    }

    /// What is read at the touch was cut short for want of frames.
    pub const fn cut(&mut self, ahead: Ahead) {
        self.all[ahead.at].cut = true;
    }

    /// The place of one that did not go on lately, empty.
    fn give_up_one(&mut self) -> usize {
        loop {
            self.hand = (self.hand + 1) % KNOWN;
            if !core::mem::take(&mut self.all[self.hand].used) {
                break;
            }
        }
        let stream = core::mem::take(&mut self.all[self.hand]);
        if stream.pages > 1 {
            self.touches = (2 * self.touches).min(TOUCHES_MAX);
        }
        self.hand
    }
}

/// So far the last page lies from the touched one at most: pages that are there already are passed over, as many between two as between two touches.
pub(super) const REACH_MAX: u64 = (ALONG_MAX as u64 - 1) * NEAR;

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(streams: &mut Streams<IN_POOL>, page: u64) -> (usize, bool) {
        let ahead = streams.touched(PageNo::from_raw(page));
        let beyond = ahead.pages as u64 - 1;
        let last = if ahead.downward {
            page - beyond
        } else {
            page + beyond
        };
        streams.reached(ahead, PageNo::from_raw(last));
        (ahead.pages, ahead.downward)
    }

    #[test]
    fn a_stream_takes_more_pages_each_time_up_to_a_round() {
        let mut streams = Streams::default();
        let mut page = 1000;
        for pages in [1, 1, 2, 4, 8, 8] {
            assert_eq!(touch(&mut streams, page), (pages, false));
            page += pages as u64;
        }
        // Three pages were in the program still.
        assert_eq!(touch(&mut streams, page + 3), (8, false));
        assert_eq!(
            touch(&mut streams, page + 3 + 8 + SKIP_MAX + 1),
            (1, false),
            "too far ahead"
        );
    }

    #[test]
    fn a_stream_may_lead_downward() {
        let mut streams = Streams::default();
        assert_eq!(touch(&mut streams, 1000), (1, false));
        assert_eq!(touch(&mut streams, 999), (1, true));
        assert_eq!(touch(&mut streams, 998), (2, true));
        assert_eq!(touch(&mut streams, 996), (4, true));
        assert_eq!(touch(&mut streams, 997), (1, false), "back");
    }

    #[test]
    fn streams_beside_each_other_and_among_others_are_kept_apart() {
        let mut streams = Streams::default();
        let mut pages = [10_000, 50_000];
        let mut other = 1_000_000;
        for round in 0..20 {
            for page in &mut pages {
                let (taken, downward) = touch(&mut streams, *page);
                assert_eq!((taken, downward), ([1, 1, 2, 4, 8][round.min(4)], false));
                *page += taken as u64;
                other += 1000;
                assert_eq!(touch(&mut streams, other).0, 1);
            }
        }
    }

    #[test]
    fn a_stream_passes_over_as_many_pages_as_it_went_on_for() {
        // Blocks of pages that are touched between others of as many that are not.
        let blocks = |touched: u64, passed: u64| {
            let mut streams = Streams::default();
            let (mut page, mut touches) = (1000, 0);
            while page < 101_000 {
                if page % (touched + passed) >= touched {
                    page += 1;
                } else {
                    page += touch(&mut streams, page).0 as u64;
                    touches += 1;
                }
            }
            touches * (touched + passed) as usize * 100 / (100_000 * touched as usize)
        };
        for run in [4, 8, 16] {
            let percent = blocks(run, run);
            assert!(percent <= 50, "{run} pages: {percent} % are touches");
        }
        assert!(blocks(4, 16) >= 99, "too many at once");
        assert_eq!(blocks(2, 6), 100, "more than it went on for");
    }

    /// A touch of the store, whose next page lies beside it, and for which `read` pages are read.
    fn miss(streams: &mut Streams<IN_STORE>, page: u64, read: u64) -> Ahead {
        let ahead = streams.touched(PageNo::from_raw(page));
        streams.leads_on(ahead);
        if read > 1 {
            streams.reached(ahead, PageNo::from_raw(page + read - 1));
        }
        ahead
    }

    #[test]
    fn a_stream_goes_on_behind_what_is_read() {
        let mut streams = Streams::default();
        for page in [1000, 1001, 1002] {
            miss(&mut streams, page, 1);
        }
        assert!(miss(&mut streams, 1003, 32).led);
        assert!(miss(&mut streams, 1035, 32).led);
        assert!(!miss(&mut streams, 1200, 1).led, "too far ahead");
    }

    #[test]
    fn what_was_not_read_for_want_of_frames_is_lost() {
        let mut streams = Streams::default();
        let ahead = miss(&mut streams, 1000, 1);
        streams.cut(ahead);
        let ahead = miss(&mut streams, 1001, 1);
        assert!(ahead.led && ahead.lost);
        let ahead = miss(&mut streams, 1002, 1);
        assert!(ahead.led && !ahead.lost, "there were frames at 1001");
    }

    #[test]
    fn a_long_walk_is_lost_that_is_read_page_by_page() {
        let mut streams = Streams::default();
        let mut lost = |page| miss(&mut streams, page, 1).lost;
        assert!(!(1000..=1000 + u64::from(NEXT_TO) - 1).any(&mut lost));
        assert!((1000 + u64::from(NEXT_TO)..1100).all(&mut lost));
        // Every second page is another order.
        assert!(!(0..100).map(|n| 5000 + 2 * n).any(&mut lost));
        let mut read = |page, pages| miss(&mut streams, page, pages).lost;
        assert!(!(0..100).any(|n| read(9000 + 8 * n, 8)), "read ahead");
        let apart = |n: u64| streams.touched(PageNo::from_raw(20_000 + n)).lost;
        assert!(!(0..100).any(apart), "in slots that lie apart");
    }

    #[test]
    fn touches_at_random_take_nothing_along() {
        let mut streams = Streams::default();
        let mut x = 1_u64;
        let along = |_| {
            x = x.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            touch(&mut streams, (1 << 20) + (x >> 33) % 16_384).0 > 1
        };
        let taken = (0..100_000).map(along).filter(|&more| more).count();
        assert!(taken < 20, "{taken} of 100,000");
    }

    #[test]
    fn where_streams_are_short_pages_come_along_after_longer_ones() {
        let mut streams = Streams::default();
        let mut along = |base: u64, length: u64| {
            let (mut page, mut along) = (base, 0);
            while page < base + length {
                let (pages, _) = touch(&mut streams, page);
                (page, along) = (page + pages as u64, along + pages - 1);
            }
            along
        };
        let first: usize = (0..20).map(|n| along(n << 20, 3)).sum();
        let later: usize = (20..1000).map(|n| along(n << 20, 3)).sum();
        assert!(first > 0 && later == 0, "{first} {later}");
        assert!(along(1 << 40, 1000) > 800, "a long one");
        assert!(along(1 << 41, 100) > 60, "and others behind it");
    }
}
