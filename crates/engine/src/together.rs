//! Actions of one kind that follow each other are carried out together, so that runs that lie close move in one call.

use core::ops::Range;

use outpage_core::contract::{Action, ActionId, Event, Outcome, PageOutcome};
use outpage_core::units::PageRange;
use outpage_sys::clock;

use crate::leaving::Listeners;
use crate::live::Live;
use crate::world::{GAP_MAX, RUN_PAGES};

/// Actions of one kind, their runs and how those fared. Holds [`RUN_PAGES`] pages, so no list ever grows.
pub(crate) struct Together {
    /// The actions, as they came: they are answered in this order.
    members: Vec<Member>,
    /// The outcome of each page, by member.
    outcomes: Vec<PageOutcome>,
    /// The members in the order of their pages, and their runs.
    order: Vec<u16>,
    runs: Vec<PageRange>,
    /// Of `runs`: parts that one call may move, and whether somebody waits there; those last.
    pieces: Vec<(Range<usize>, bool)>,
    /// The piece that is carried out next.
    next: usize,
    scratch: Vec<PageOutcome>,
}

#[derive(Clone, Copy)]
struct Member {
    id: ActionId,
    run: PageRange,
    /// So many pages directly below are not in the program.
    absent_below: u8,
    /// Where its outcomes begin.
    at: usize,
}

impl Together {
    pub(crate) fn new() -> Self {
        Self {
            members: Vec::with_capacity(RUN_PAGES),
            outcomes: Vec::with_capacity(RUN_PAGES),
            order: Vec::with_capacity(RUN_PAGES),
            runs: Vec::with_capacity(RUN_PAGES),
            pieces: Vec::with_capacity(RUN_PAGES),
            next: 0,
            scratch: Vec::with_capacity(RUN_PAGES),
        }
    }

    /// Whether there are pieces that are not carried out.
    const fn is_open(&self) -> bool {
        self.next < self.pieces.len()
    }

    /// Takes the action in, if there is room for its pages.
    fn push(&mut self, (id, run, absent_below): One) -> bool {
        let at = self
            .members
            .last()
            .map_or(0, |m| m.at + m.run.pages as usize);
        let fits = at == 0 || at + run.pages as usize <= RUN_PAGES;
        if fits {
            self.members.push(Member {
                id,
                run,
                absent_below,
                at,
            });
        }
        fits
    }

    /// Puts the runs in the order of their pages.
    fn sort(&mut self) {
        let members = &self.members;
        self.order.clear();
        self.order.extend(0..members.len() as u16);
        self.order
            .sort_unstable_by_key(|&m| members[usize::from(m)].run.start);
        self.runs.clear();
        let sorted = self.order.iter().map(|&m| members[usize::from(m)].run);
        self.runs.extend(sorted);
    }

    /// Notes how the pages of `piece` fared.
    fn note(&mut self, piece: Range<usize>) {
        let mut from = self.scratch.as_slice();
        for &m in &self.order[piece] {
            let Member { run, at, .. } = self.members[usize::from(m)];
            let (pages, rest) = from.split_at(run.pages as usize);
            self.outcomes[at..at + pages.len()].copy_from_slice(pages);
            from = rest;
        }
        debug_assert!(from.is_empty());
    }
}

/// What an action says: its number, its run, and how many pages below are not in the program.
type One = (ActionId, PageRange, u8);

/// How many pages lie between two runs, if they are few.
fn gap(below: PageRange, above: PageRange) -> Option<u64> {
    let end = below.start.raw() + below.pages;
    let pages = above.start.raw().checked_sub(end)?;
    let near = pages <= GAP_MAX && below.start.object() == above.start.object();
    near.then_some(pages)
}

impl Live {
    /// Begins to take `run` out of the program, and the runs of the detaches that follow.
    pub(crate) fn detach(&mut self, id: ActionId, run: PageRange, absent_below: u8) {
        self.detach_some(usize::MAX);
        let mut all = self.detaching.take().expect("always there");
        self.gather(&mut all, (id, run, absent_below), |action| match action {
            &Action::Detach {
                id,
                run,
                absent_below,
            } => Some((id, run, absent_below)),
            _ => None,
        });
        self.cut(
            &mut all,
            |live, pair| live.world.are_copied(pair),
            |_, runs| runs.len(),
        );
        self.detaching = Some(all);
    }

    /// Whether pages are being taken out of the program, a part of them at a time.
    pub(crate) fn is_detaching(&self) -> bool {
        self.detaching.as_ref().is_some_and(Together::is_open)
    }

    /// Takes `pages` of these pages out, or a few more, or all that are left. False if there is none.
    pub(crate) fn detach_some(&mut self, pages: usize) -> bool {
        if !self.is_detaching() {
            return false;
        }
        let mut all = self.detaching.take().expect("looked at");
        self.world.waiting.wakes_are_old();
        let mut taken = 0;
        while taken < pages && all.is_open() {
            taken += self.carry_out_piece(&mut all, |live, runs, _, out| {
                live.detach_calls += 1;
                live.world.detach(runs, out);
            });
        }
        if !all.is_open() {
            self.answer(&all, Listeners::taken);
            self.world.listeners.ring();
        }
        self.detaching = Some(all);
        true
    }

    /// Maps the staged pages of `run`, and those of the maps that follow. Who waits is woken last: or it would meet the
    /// others still missing.
    pub(crate) fn map(&mut self, id: ActionId, run: PageRange, absent_below: u8) {
        self.together(
            (id, run, absent_below),
            |action| match action {
                &Action::Map {
                    id,
                    run,
                    absent_below,
                } => Some((id, run, absent_below)),
                _ => None,
            },
            |_, _| false,
            |live, runs| live.world.in_step(runs),
            |live, runs, awaited, out| live.world.map(runs, awaited, out),
            Listeners::came_back,
        );
    }

    fn together(
        &mut self,
        first: One,
        same: impl Fn(&Action) -> Option<One>,
        apart: impl Fn(&Self, [PageRange; 2]) -> bool,
        cut: impl Fn(&Self, &[PageRange]) -> usize,
        act: impl Fn(&mut Self, &[PageRange], bool, &mut Vec<PageOutcome>),
        tell: impl Fn(&mut Listeners, PageRange, &[PageOutcome]),
    ) {
        let mut all = self.together.take().expect("not in the midst of another");
        self.gather(&mut all, first, same);
        self.cut(&mut all, apart, cut);
        while all.is_open() {
            self.carry_out_piece(&mut all, &act);
        }
        self.answer(&all, tell);
        self.together = Some(all);
    }

    /// Has `act` carry out the next piece; how many pages that were.
    fn carry_out_piece(
        &mut self,
        all: &mut Together,
        act: impl Fn(&mut Self, &[PageRange], bool, &mut Vec<PageOutcome>),
    ) -> usize {
        let (piece, awaited) = all.pieces[all.next].clone();
        all.next += 1;
        all.scratch.clear();
        self.world.waiting.maps(clock::now());
        act(self, &all.runs[piece.clone()], awaited, &mut all.scratch);
        all.note(piece);
        all.scratch.len()
    }

    /// Answers the actions, whose pieces are carried out.
    fn answer(&mut self, all: &Together, tell: impl Fn(&mut Listeners, PageRange, &[PageOutcome])) {
        let now = clock::now();
        for member in &all.members {
            let pages = &all.outcomes[member.at..member.at + member.run.pages as usize];
            tell(&mut self.world.listeners, member.run, pages);
            let (id, outcome) = (member.id, Outcome::Pages(pages));
            self.pager.handle(now, Event::Done { id, outcome });
        }
    }

    /// Takes the actions of the same kind that follow; the next of another kind is kept for later.
    fn gather(&mut self, all: &mut Together, first: One, same: impl Fn(&Action) -> Option<One>) {
        all.members.clear();
        all.push(first);
        while let Some(next) = self.pager.poll_action() {
            if !same(&next).is_some_and(|one| all.push(one)) {
                self.held = Some(next);
                break;
            }
        }
    }

    /// Sorts the runs, and cuts them where they lie too far apart for one call or the program has a page between, unless they go together `apart` as they are; and
    /// where `cut` says.
    fn cut(
        &self,
        all: &mut Together,
        apart: impl Fn(&Self, [PageRange; 2]) -> bool,
        cut: impl Fn(&Self, &[PageRange]) -> usize,
    ) {
        all.sort();
        all.pieces.clear();
        all.next = 0;
        let mut start = 0;
        while start < all.runs.len() {
            let first = all.runs[start].start.raw();
            let joins = |(pair, above): (&[PageRange], &u16)| {
                let reach = pair[1].start.raw() + pair[1].pages - first;
                let absent = all.members[usize::from(*above)].absent_below;
                let near = reach <= RUN_PAGES as u64
                    && gap(pair[0], pair[1]).is_some_and(|gap| gap <= absent.into());
                near || apart(self, [pair[0], pair[1]])
            };
            let rest = &all.runs[start..];
            let pairs = rest.windows(2).zip(&all.order[start + 1..]);
            let near = 1 + pairs.take_while(|pair| joins(*pair)).count();
            let piece = start..start + cut(self, &rest[..near]);
            let awaited =
                (all.runs[piece.clone()].iter()).any(|&run| self.world.waiting.any_in(run));
            start = piece.end;
            all.pieces.push((piece, awaited));
        }
        all.pieces
            .sort_unstable_by_key(|(piece, awaited)| (*awaited, piece.start));
        let pages: usize = all.runs.iter().map(|run| run.pages as usize).sum();
        all.outcomes.clear();
        all.outcomes.resize(pages, PageOutcome::Done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outpage_core::units::PageNo;

    fn run(first: u64, pages: u64) -> PageRange {
        PageRange::new(PageNo::from_raw(first), pages)
    }

    #[test]
    fn runs_are_near_up_to_the_largest_gap() {
        assert_eq!(gap(run(10, 2), run(12, 1)), Some(0));
        assert_eq!(gap(run(10, 2), run(12 + GAP_MAX, 1)), Some(GAP_MAX));
        assert_eq!(gap(run(10, 2), run(13 + GAP_MAX, 1)), None);
    }

    #[test]
    fn outcomes_go_back_to_the_actions_in_their_order() {
        let mut all = Together::new();
        let runs = [run(20, 2), run(10, 1), run(30, 3)];
        for (id, &run) in runs.iter().enumerate() {
            assert!(all.push((ActionId(id as u32), run, 0)));
        }
        assert!(!all.push((ActionId(3), run(40, RUN_PAGES as u64 - 5), 0)));
        all.sort();
        assert_eq!(all.runs, [run(10, 1), run(20, 2), run(30, 3)]);
        let refused = PageOutcome::Refused(outpage_core::contract::Refusal::Busy);
        all.outcomes.resize(6, PageOutcome::Done);
        all.scratch.extend([refused, PageOutcome::Done, refused]);
        all.note(0..2);
        let at = |n: usize| all.outcomes[all.members[n].at];
        assert_eq!(
            [at(0), at(1), at(2)],
            [PageOutcome::Done, refused, PageOutcome::Done]
        );
        assert_eq!(all.outcomes[1], refused, "the second page of the first");
    }
}
