//! How much is read ahead: what the policy names, and what the governor leaves of it.

use alloc::boxed::Box;

use super::view::View;
use crate::page::Pages;
use crate::readahead::{
    Arrival, Govern, Governor, Manner, Read, ReadAhead, Short, SlotView, Slow, Touch, Verdict,
    Window,
};
use crate::units::{PageNo, SlotNo, SlotRange};

/// The policy, and what became of what it named before.
pub(super) struct Ahead {
    pub policy: Box<dyn ReadAhead>,
    /// Says how much of what the policy names is read; `None` for all of it.
    pub governor: Option<Box<Governor>>,
    /// What becomes of pages that a read brings along.
    pub arrival: Arrival,
    /// The most slots of one read.
    pub read_max: u32,
}

/// What is to be read for a fault, as far as there are frames.
pub(super) struct Cut {
    pub window: Window,
    /// The governor named it in the policy's place.
    slow: Option<Slow>,
}

impl Cut {
    /// All that `window` names.
    pub const fn whole(window: Window) -> Self {
        Self { window, slow: None }
    }
}

/// How many of the next `most` slots hold the pages behind that of `fault`, its own included; below it, where they are looked for `downward`.
pub(super) fn row(fault: &Touch, most: u32, downward: bool, view: &View<'_>) -> u32 {
    let slot = |n| match downward {
        true => fault.slot.0.checked_sub(n),
        false => fault.slot.0.checked_add(n),
    };
    let goes_on = |&n: &u32| {
        let page = fault.page.beyond(n.into(), downward);
        page.is_some() && slot(n).and_then(|slot| view.paged_out(SlotNo(slot))) == page
    };
    1 + (1..most).take_while(goes_on).count() as u32
}

/// The first page from `next` on that is out: pages on the way that are in RAM, of an earlier read say, end no stream.
fn first_out(next: Option<PageNo>, downward: bool, view: &View<'_>) -> Option<PageNo> {
    /// More of them in a row mean that memory holds what the stream goes to. A choice, others than 16 were not tried.
    const PASSED_MAX: u64 = 16;
    let pages = (0..PASSED_MAX).map_while(|n| next?.beyond(n, downward));
    let mut out = pages.filter(|&page| view.slot_of(page).is_some());
    out.next()
}

/// The page behind those in `range`, if they lie there one after another.
fn behind_row(range: SlotRange, view: &View<'_>) -> Option<PageNo> {
    let first = view.paged_out(range.start)?;
    let last = first.checked_add(u64::from(range.slots) - 1)?;
    let lie_so = view.paged_out(SlotNo(range.end().0 - 1)) == Some(last);
    lie_so.then(|| last.checked_add(1))?
}

/// Where a stream may go on behind what is read for `fault`: above or below it, as a slow stream ran before or the window tells. A page alone tells nothing; where
/// the one above it is in RAM, or is none, and the one below is out, it may be below, too. `several` pages were named, however many of them are read.
fn ends(
    window: &Window,
    several: bool,
    slow: Option<Slow>,
    fault: &Touch,
    view: &View<'_>,
) -> [Option<Read>; 2] {
    let end = |downward: bool| {
        let reach = match downward {
            true => fault.slot.0 - window.now.start.0 + 1,
            false => window.now.end().0 - fault.slot.0,
        };
        let pages = row(fault, reach, downward, view);
        let next = fault.page.beyond(pages.into(), downward);
        Some(Read {
            next: first_out(next, downward, view)?,
            pages,
            meant: pages,
            downward,
        })
    };
    if let Some(slow) = slow {
        return [end(slow.downward), None];
    }
    if several {
        return [end(window.downward), None];
    }
    let out = |downward| {
        let page = fault.page.beyond(1, downward);
        page.is_some_and(|page| view.slot_of(page).is_some())
    };
    let may_be_below = out(true) && !out(false);
    [end(false), may_be_below.then(|| end(true)).flatten()]
}

impl Ahead {
    /// Under `manner`, with `frames` frames of RAM.
    pub fn governed(policy: Box<dyn ReadAhead>, manner: &Manner, frames: usize) -> Self {
        let governs = manner.govern == Govern::On;
        Self {
            policy,
            governor: governs.then(|| Box::new(Governor::new(frames))),
            arrival: manner.arrival,
            read_max: manner.read_max,
        }
    }

    /// All that the policy names is read, as by kernels.
    pub fn whole(policy: Box<dyn ReadAhead>) -> Self {
        let manner = policy.manner();
        Self {
            policy,
            governor: None,
            arrival: manner.arrival,
            read_max: manner.read_max,
        }
    }

    /// There are `frames` frames from now on.
    pub fn resize(&mut self, frames: usize) {
        if let Some(governor) = &mut self.governor {
            governor.resize(frames);
        }
    }

    /// What the policy names for a major fault, before it is cut.
    pub fn window(&mut self, fault: &Touch, pages: &Pages) -> Window {
        self.policy.major_fault(fault, &View(pages))
    }

    /// What is to be read for `fault`, for which the policy named `window`.
    pub fn cut(&mut self, window: Window, fault: &Touch, pages: &Pages) -> Cut {
        let Some(governor) = &mut self.governor else {
            return Cut::whole(window);
        };
        let stream = self.policy.stream();
        let slow = governor.slow_stream(fault.page, stream);
        let most = governor.allows(fault.page, stream);
        let scattered = !window.rest.as_slice().is_empty();
        let most = if scattered {
            most.min(governor.scattered_max())
        } else {
            most
        };
        governor.demanded(fault.page, stream);
        let view = View(pages);
        let window = if let Some(Slow { pages, downward }) = slow {
            self.policy.shorten(&window, fault, 0, Short::InVain, &view);
            let slots = row(fault, pages.min(self.read_max), downward, &view);
            let below = if downward { slots - 1 } else { 0 };
            Window {
                downward,
                ..Window::run(SlotRange::new(SlotNo(fault.slot.0 - below), slots))
            }
        } else if window.ahead() <= most {
            window
        } else {
            self.policy
                .shorten(&window, fault, most, Short::InVain, &view)
        };
        Cut { window, slow }
    }

    /// What is read of it where there are `frames` frames for the fault's page and those that lie beside it. The policy is told, unless the governor named the
    /// row: it would take what was not read for what nobody wanted.
    pub fn within(&mut self, cut: Cut, fault: &Touch, frames: u32, pages: &Pages) -> Window {
        let Cut { window, slow } = cut;
        let Some(governor) = &mut self.governor else {
            return window;
        };
        let view = View(pages);
        let named = window.now.slots;
        let window = if named <= frames {
            window
        } else if slow.is_some() {
            window.within(fault.slot, frames - 1)
        } else {
            self.policy
                .shorten(&window, fault, frames - 1, Short::OfFrames, &view)
        };
        let short = (window.now.slots < named).then_some(named);
        let meant = slow.map_or(short, |slow| Some(slow.pages.min(self.read_max)));
        let reads = ends(&window, named > 1, slow, fault, &view);
        for read in reads.into_iter().flatten() {
            governor.reads_row(Read {
                meant: meant.unwrap_or(read.pages),
                ..read
            });
        }
        window
    }

    /// What the policy names when `touch` finds a page that was read ahead.
    pub fn behind(&mut self, touch: &Touch, pages: &Pages) -> Option<SlotRange> {
        self.policy.hit(touch, &View(pages))
    }

    /// What else it names for `touch`, where what it named before is under way.
    pub fn more(&mut self, touch: &Touch, pages: &Pages) -> Option<SlotRange> {
        self.policy.more(touch, &View(pages))
    }

    /// What is read of `range`, which the policy named when `page` was hit.
    pub fn cut_behind(
        &mut self,
        range: SlotRange,
        page: PageNo,
        pages: &Pages,
    ) -> Option<SlotRange> {
        let Some(governor) = &mut self.governor else {
            return Some(range);
        };
        let most = governor.allows(page, self.policy.stream());
        let view = View(pages);
        let range = if range.slots <= most {
            range
        } else {
            self.policy.shorten_behind(range, most, &view)?
        };
        if let Some(next) = first_out(behind_row(range, &view), false, &view) {
            governor.reads_row(Read {
                next,
                pages: range.slots,
                meant: range.slots,
                downward: false,
            });
        }
        Some(range)
    }

    /// Whether `page`, which was read ahead from `slot`, stays staged in place of being mapped along.
    pub fn samples(&mut self, page: PageNo, slot: SlotNo) -> bool {
        self.governor
            .as_mut()
            .is_some_and(|governor| governor.samples(page, slot))
    }

    /// A page that was read ahead is wanted; what its touch tells if it was sampled.
    pub fn hit(&mut self, touch: &Touch) -> Option<Verdict> {
        let governor = self.governor.as_mut()?;
        governor.hit(touch.page, touch.slot)
    }

    /// A major fault on `page`; what it tells of a sample.
    pub fn missed(&mut self, page: PageNo) -> Option<Verdict> {
        self.governor.as_mut()?.missed(page)
    }

    /// `page`, which was read ahead from `slot`, leaves untouched.
    pub fn wasted(&mut self, page: PageNo, slot: SlotNo) {
        self.policy.wasted(page, slot);
        if let Some(governor) = &mut self.governor {
            governor.wasted(page);
        }
    }
}
