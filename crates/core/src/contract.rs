//! The contract between brain and body: events in, actions out.
//!
//! An action is whole: it carries all that carrying it out takes, so that a thread or another process can do it
//! without asking the pager. Actions may be carried out in any order, at any time, but for the one that an
//! action names as `after`, which goes first: it was handed out before, and once it is answered, when its id may be
//! given to another action, there is nothing to wait for. Every action but [`Action::Wake`], [`Action::TakenBack`], [`Action::Grow`],
//! [`Action::Shrink`] and [`Action::Exhausted`] is answered once, in any order, by [`Event::Done`] with its id.
//!
//! Which frames an action takes is the body's business, as addresses are: the pager counts them.
//! A page-in and a zero-fill take one for each page, a release gives back one for each. Ranges are those of memory objects.

mod list;

pub use list::PageList;

use crate::content::ContentHash;
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

/// Names who waits for a fault; chosen by the body, and its own again when it was woken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Waiter(pub u32);

/// Names whose faults are alike, to read-ahead: a task of the program's, a virtual processor, a guest.
/// Chosen by the body, and the same for as long as it lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source(pub u32);

/// What the faulting instruction did.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// It read.
    Read,
    /// It wrote.
    Write,
}

/// What the program says it will do with pages. No bytes depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Advice {
    /// Nothing special: read-ahead finds out by itself.
    Normal,
    /// They are touched one after another, upward: so they are read, from the first fault on.
    Sequential,
    /// They are touched in no order: a fault reads its own page alone.
    Random,
    /// They are touched soon: those that are paged out are brought in without anybody waiting, up to half of the frames.
    WillNeed,
    /// They are not touched for long: they leave before all others.
    Cold,
}

impl Advice {
    /// All of it, by number.
    pub const ALL: [Self; 5] = [
        Self::Normal,
        Self::Sequential,
        Self::Random,
        Self::WillNeed,
        Self::Cold,
    ];
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
        /// Who touched it.
        source: Source,
        /// The mapped span around the page: zero-fill-around stays inside it.
        extent: PageRange,
    },
    /// Whoever waits under this name touches another page since. If it waits for a frame, nothing is brought for it; what is on its way comes, and is
    /// answered by [`Action::Wake`] all the same. Nothing, where nobody waits so. May come at any time.
    Left(Waiter),
    /// The answer to an action.
    Done {
        /// Which one.
        id: ActionId,
        /// How it went.
        outcome: Outcome<'a>,
    },
    /// These pages are resident although the pager never mapped them. No unanswered action touches them.
    Adopt(PageRange),
    /// The range is gone; its contents are not wanted any more. No unanswered action touches it.
    Unmap(PageRange),
    /// The contents are not wanted any more; a touch gives zeroes (`MADV_DONTNEED`). No unanswered action touches
    /// them.
    Discard(PageRange),
    /// What the touched pages of the range hold may be dropped, until they are taken back: it is as it was or zeroes then, and which is told.
    /// What a later touch brings is not meant. May come at any time, whatever is under way; nothing, where the pager keeps no marks.
    Discardable(PageRange),
    /// What the pages of the range hold is wanted from now on. May come at any time, unless an [`Action::Drop`] that touches it is unanswered;
    /// answered by [`Action::TakenBack`]. Freed pages the body has written before, or they may go by themselves.
    TakeBack(PageRange),
    /// Those pages of the range that are discardable may be dropped now; that they are is up to the policy.
    Flush(PageRange),
    /// The program is about to free the range until it writes there (`MADV_FREE`): what it does not have is dropped at once. No unanswered action touches
    /// the range. Where the pager keeps no marks, nothing follows.
    Freeing(PageRange),
    /// It has freed the range: a page is as it was or zeroes until it is written, and what is written is kept, unheard of here. What the program has is
    /// discardable until the body finds it written, and is dropped by [`Action::Drop`] alone. May come at any time, whatever is under way; nothing, where
    /// the pager keeps no marks.
    Freed(PageRange),
    /// What the program says of a range. The first three hold until the next of them, or until the range is unmapped; the others are about what is in
    /// the pages now. May come at any time, whatever is under way; nothing, under a daemon.
    Advise(Advice, PageRange),
    /// The store has more room.
    Grown(SlotRange),
    /// The store cannot grow any more.
    Full,
    /// RAM for this pager, in frames, from now on.
    Limit(usize),
    /// Frames that the pool of compressed pages takes, its tables among them, from now on. Told before the answer to the
    /// action by which that changed.
    Pooled(usize),
    /// A fork is about to duplicate this pager: slots that it holds now are kept for the child.
    Forking,
    /// This is the copy in the forked child; waiters of other threads are gone. What is in frames beyond the limit stays for a tenth of a second, or until
    /// a fault waits for a frame.
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
    /// Of [`Action::ZeroFill`], [`Action::Map`], [`Action::Detach`], [`Action::Drop`], [`Action::Compress`], [`Action::Decompress`], and of [`Action::PageIn`]
    /// where contents are compared: one outcome a page, in order.
    Pages(&'a [PageOutcome]),
    /// Of [`Action::PageOut`], [`Action::Release`], [`Action::Dead`], [`Action::Poison`]: all of it is done. Of
    /// [`Action::PageIn`]: all pages are read and intact.
    Done,
    /// Of [`Action::PageOut`]: the store failed; what is in the slots now is not known. Of [`Action::PageIn`]: as if each page were
    /// answered by [`Refusal::Unread`].
    Failed(IoFailure),
}

/// How one page fared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageOutcome {
    /// Mapped, read and intact, or dropped.
    Done,
    /// Detached; its content hashes to this, and `zero` says that it is all zeroes.
    Detached {
        /// The content's hash.
        hash: ContentHash,
        /// All bytes are zero.
        zero: bool,
    },
    /// Compressed to so many bytes, and kept in the pool.
    Kept {
        /// 0 for a page that is one word again and again, and takes no room.
        bytes: u16,
    },
    /// Detached by a body with bits and without contents: the page's modified bit tells whether it changed.
    Unhashed,
    /// Nothing was done.
    Refused(Refusal),
}

/// Why the body could not detach or map a page. Races are ordinary values, not errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Detach: pinned, locked or shared by fork; it is no victim for now. Drop: written since it was freed, as far as can be told.
    Busy,
    /// Detach: nothing is mapped there; the content was dropped behind the pager's back.
    Absent,
    /// Map: something is mapped there already.
    Present,
    /// The range is no longer mapped. Page-in, Decompress: something else is mapped there, and the content is not what it was.
    Gone,
    /// Page-in: what was read has another hash than it must have.
    Damaged,
    /// Page-in: the store could not read it. Decompress: the pool does not have it.
    Unread,
    /// Compress: it does not get small enough to be kept.
    Unfit,
    /// Compress: the pool would take more frames than were granted.
    NoRoom,
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
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Map zeroed frames at `run`.
    ZeroFill {
        /// To answer with.
        id: ActionId,
        /// Where.
        run: PageRange,
        /// The release that is to be carried out before, if it is not answered yet: its frames may be needed.
        after: Option<ActionId>,
    },
    /// Map the staged pages of `run`. Of several in a row the one that somebody waits for is best carried out last: the
    /// others are what it touches next.
    Map {
        /// To answer with.
        id: ActionId,
        /// Which.
        run: PageRange,
        /// How many pages directly below `run` are not mapped there, or protected in place, up to
        /// [`crate::pager::ABSENT_MAX`]. It stays so until later actions are carried out, or [`Event::Adopt`] says otherwise.
        absent_below: u8,
    },
    /// Take `run` out of the program; contents stay in their frames.
    Detach {
        /// To answer with.
        id: ActionId,
        /// Which.
        run: PageRange,
        /// As of [`Action::Map`].
        absent_below: u8,
    },
    /// Throw those pages of `run` away, all of them freed and mapped, that the program has not written since, frames and all: what it writes at this
    /// moment stays. Answered page by page.
    Drop {
        /// To answer with.
        id: ActionId,
        /// Which.
        run: PageRange,
    },
    /// Read `slots` into free frames, and compare each page with its hash. What is intact is staged, the frames of the
    /// rest are free again: one page that cannot be read does not cost its neighbours.
    PageIn {
        /// To answer with.
        id: ActionId,
        /// From where.
        slots: SlotRange,
        /// For which pages, in the order of the slots, with their hashes.
        pages: PageList,
        /// As of [`Action::ZeroFill`].
        after: Option<ActionId>,
    },
    /// Write staged pages to `slots`. They stay staged.
    PageOut {
        /// To answer with.
        id: ActionId,
        /// To where.
        slots: SlotRange,
        /// Which, in the order of the slots, with their hashes.
        pages: PageList,
        /// The last [`Action::Dead`], if it is not answered yet: its slots may be these.
        after: Option<ActionId>,
    },
    /// Keep staged pages, compressed, in the pool, at `slots`, which are all of the pool. They stay staged.
    Compress {
        /// To answer with.
        id: ActionId,
        /// Where.
        slots: SlotRange,
        /// Which, in the order of the slots, with their hashes.
        pages: PageList,
        /// Frames by which the pool may grow for it.
        grant: u32,
        /// As of [`Action::ZeroFill`].
        after: Option<ActionId>,
    },
    /// Take pages out of the pool into free frames, and compare each with its hash. What is intact is staged; the pool has nothing at `slots` any
    /// more.
    Decompress {
        /// To answer with.
        id: ActionId,
        /// From where.
        slots: SlotRange,
        /// For which pages, in the order of the slots, with their hashes.
        pages: PageList,
        /// As of [`Action::ZeroFill`].
        after: Option<ActionId>,
    },
    /// Free the frames of staged pages.
    Release {
        /// To answer with.
        id: ActionId,
        /// Which.
        pages: PageList,
        /// The release before this one, if it is not answered yet.
        after: Option<ActionId>,
    },
    /// What is in `slots` is not read any more, by this process or one forked from it, unless it is written again: a store may let go
    /// of it. Told a few times a second, in runs as long as can be had, among which slots may be that were told before or never
    /// written. Nobody waits for it.
    Dead {
        /// To answer with.
        id: ActionId,
        /// Which. Others may be dead, too.
        slots: SlotRange,
        /// The one before this, if it is not answered yet.
        after: Option<ActionId>,
    },
    /// Whoever touches the page is to get a signal: its content is lost.
    Poison {
        /// To answer with.
        id: ActionId,
        /// Which.
        page: PageNo,
    },
    /// Ends this wait and no other. A body may let others go on too: their faults come again. Not answered.
    Wake {
        /// Who.
        waiter: Waiter,
        /// What it waited for.
        page: PageNo,
    },
    /// The answer to an [`Event::TakeBack`]. Not answered.
    TakenBack {
        /// The range that was taken back.
        range: PageRange,
        /// Its pages that were dropped since they were marked, ascending: they hold zeroes, or what was written since. All others are as they were.
        lost: PageList,
    },
    /// The store should grow by this many slots: answered by `Grown` or `Full`. Not answered by `Done`.
    Grow {
        /// How many, at least.
        slots: u32,
    },
    /// The pager needs these slots, which it got by one [`Event::Grown`], no more: nothing is in them, no action names them but `after`, and it
    /// does so no more unless they are granted anew. Whose room it is may give it to others. Not answered.
    Shrink {
        /// Which.
        slots: SlotRange,
        /// The one that told slots dead last, if it is not answered yet.
        after: Option<ActionId>,
    },
    /// No frame can be had: nothing can be written or released and somebody waits. Not answered;
    /// repeated after a [`Event::Tick`] while it lasts.
    Exhausted {
        /// The swap store is full (otherwise every page is refused as a victim).
        swap_full: bool,
    },
}

impl Action {
    /// The id that it is answered with; `None` if it is not answered.
    #[must_use]
    pub const fn id(&self) -> Option<ActionId> {
        match *self {
            Self::ZeroFill { id, .. }
            | Self::Map { id, .. }
            | Self::Detach { id, .. }
            | Self::Drop { id, .. }
            | Self::PageIn { id, .. }
            | Self::PageOut { id, .. }
            | Self::Compress { id, .. }
            | Self::Decompress { id, .. }
            | Self::Release { id, .. }
            | Self::Dead { id, .. }
            | Self::Poison { id, .. } => Some(id),
            Self::Wake { .. }
            | Self::TakenBack { .. }
            | Self::Grow { .. }
            | Self::Shrink { .. }
            | Self::Exhausted { .. } => None,
        }
    }

    /// The action that is to be carried out before, unless it is answered.
    #[must_use]
    pub const fn after(&self) -> Option<ActionId> {
        match *self {
            Self::ZeroFill { after, .. }
            | Self::PageIn { after, .. }
            | Self::PageOut { after, .. }
            | Self::Compress { after, .. }
            | Self::Decompress { after, .. }
            | Self::Dead { after, .. }
            | Self::Shrink { after, .. }
            | Self::Release { after, .. } => after,
            _ => None,
        }
    }

    /// The pages of a transfer or release; empty for other actions.
    #[must_use]
    pub fn pages(&self) -> &[PageNo] {
        match self {
            Self::PageIn { pages, .. }
            | Self::PageOut { pages, .. }
            | Self::Compress { pages, .. }
            | Self::Decompress { pages, .. }
            | Self::Release { pages, .. } => pages,
            _ => &[],
        }
    }
}
