//! The contract between brain and body: events in, actions out.
//!
//! Every action but [`Action::Wake`] is answered once, in any order, by [`Event::Done`] with the
//! action's id. Ranges are those of memory objects; addresses are the body's business.

use crate::page::ContentHash;
use crate::units::{PageNo, PageRange, SlotRange};

/// What a body can tell of the pages it maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Body {
    /// Touches set bits: the body reports each one by [`crate::pager::Pager::touch`] and only those
    /// that need help as a [`Event::Fault`]. Without them a touch of a mapped page goes unseen.
    pub bits: bool,
}

/// Names an action until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ActionId(pub u32);

/// Names who waits for a fault; chosen by the body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Waiter(pub u32);

/// What the faulting instruction did.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// It read.
    Read,
    /// It wrote.
    Write,
}

/// What happened in the world.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A touch of a page that is not mapped (or not writable).
    Fault {
        /// The page.
        page: PageNo,
        /// Read or write.
        access: Access,
        /// Released by [`Action::Wake`].
        waiter: Waiter,
        /// The mapped span around the page: zero-fill-around stays inside it.
        extent: PageRange,
    },
    /// The answer to an action.
    Done {
        /// Which one.
        id: ActionId,
        /// How it went.
        outcome: Outcome<'a>,
    },
    /// These pages are resident although the pager never mapped them.
    Adopt(PageRange),
    /// The range is gone; its contents are not wanted any more.
    Unmap(PageRange),
    /// The contents are not wanted any more; a touch gives zeroes (`MADV_DONTNEED`).
    Discard(PageRange),
    /// The store has more room.
    Grown(SlotRange),
    /// The store cannot grow any more.
    Full,
    /// RAM for this pager, in frames, from now on.
    Limit(usize),
    /// A fork is about to duplicate this pager: slots that it holds now are kept for the child.
    Forking,
    /// This is the copy in the forked child; waiters of other threads are gone.
    Forked,
    /// No process that was forked from this one, or from such a one, lives any more: slots kept for them
    /// may be reused.
    ChildrenGone,
    /// Nothing happened; time passed. To be reported a few times a second while faults wait or
    /// victims are refused: only then is what was refused tried again.
    Tick,
    /// The time that [`crate::pager::Pager::next_deadline`] named has come.
    Timer,
}

/// How an action went.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// Of [`Action::ZeroFill`], [`Action::Map`], [`Action::Detach`]: one outcome a page of the run, in order.
    Pages(&'a [PageOutcome]),
    /// Of [`Action::PageIn`]: the hash of each page read, in order.
    Read(&'a [ContentHash]),
    /// Of [`Action::PageOut`], [`Action::Release`], [`Action::Poison`]: all of it is done. Of
    /// [`Action::PageIn`]: the pages are read, and known to be intact.
    Done,
    /// Of [`Action::PageIn`] or [`Action::PageOut`]: the store failed.
    Failed(IoFailure),
}

/// How one page fared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageOutcome {
    /// Mapped.
    Done,
    /// Detached; its content hashes to this, and `zero` says that it is all zeroes.
    Detached {
        /// The content's hash.
        hash: ContentHash,
        /// All bytes are zero.
        zero: bool,
    },
    /// Nothing was done.
    Refused(Refusal),
}

/// Why the body could not detach or map a page. Races are ordinary values, not errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Detach: pinned, locked or shared by fork; it is no victim for now.
    Busy,
    /// Detach: nothing is mapped there; the content was dropped behind the pager's back.
    Absent,
    /// Map: something is mapped there already.
    Present,
    /// The range is no longer mapped.
    Gone,
}

/// Why a transfer failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoFailure {
    /// The store has no room for what was written (`ENOSPC`).
    NoSpace,
    /// The device failed (`EIO`), or the store was cut short.
    Device,
}

/// What the body is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Map zeroed frames at `run`.
    ZeroFill {
        /// To answer with.
        id: ActionId,
        /// Where.
        run: PageRange,
    },
    /// Map the staged pages of `run`. Of several in a row the one that somebody waits for is best carried out last: the
    /// others are what it touches next.
    Map {
        /// To answer with.
        id: ActionId,
        /// Which.
        run: PageRange,
    },
    /// Take `run` out of the program; contents stay in their frames.
    Detach {
        /// To answer with.
        id: ActionId,
        /// Which.
        run: PageRange,
    },
    /// Read `slots` into free frames, for the pages [`crate::pager::Pager::pages_of`] names.
    PageIn {
        /// To answer with.
        id: ActionId,
        /// From where.
        slots: SlotRange,
    },
    /// Write the staged pages that [`crate::pager::Pager::pages_of`] names to `slots`.
    PageOut {
        /// To answer with.
        id: ActionId,
        /// To where.
        slots: SlotRange,
    },
    /// Free the frames of the staged pages that [`crate::pager::Pager::pages_of`] names. Later
    /// actions count on these frames: they are freed in the order of the actions, whenever that is
    /// answered.
    Release {
        /// To answer with.
        id: ActionId,
    },
    /// Whoever touches the page is to get a signal: its content is lost.
    Poison {
        /// To answer with.
        id: ActionId,
        /// Which.
        page: PageNo,
    },
    /// The waiter goes on. Not answered.
    Wake {
        /// Who.
        waiter: Waiter,
        /// What it waited for.
        page: PageNo,
    },
    /// The store should grow by this many slots: answered by `Grown` or `Full`. Not answered by `Done`.
    Grow {
        /// How many, at least.
        slots: u32,
    },
    /// No frame can be had: nothing can be written or released and somebody waits. Not answered;
    /// repeated after a [`Event::Tick`] while it lasts.
    Exhausted {
        /// The swap store is full (otherwise every page is refused as a victim).
        swap_full: bool,
    },
}
