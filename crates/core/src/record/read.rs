//! Traces read back.

use alloc::vec::Vec;

use super::bytes::{Check, Cursor};
use super::{Header, MAGIC, Unreadable, VERSION, Why, outcome, page_outcome, tag};
use crate::contract::{
    Access, Action, ActionId, Advice, Event, IoFailure, Outcome, PageList, PageOutcome, Refusal,
    Source, Waiter,
};
use crate::page::ContentHash;
use crate::pageout::{self, ClusterWindow};
use crate::units::{Nanos, PageNo, PageRange, SlotNo, SlotRange};

/// The most pages that one event adopts: as many as the live body looks up at once. A state is kept for each, and nothing in
/// the trace vouches for them.
const ADOPTED_MAX: u64 = 4096;
/// The most pages of a zero-fill: the largest run of other actions, four times what the live body has.
const ZERO_AROUND_MAX: u32 = crate::pager::RUN_PAGES_MAX as u32;

/// One entry of a trace.
#[derive(Clone, Debug)]
pub enum Logged<'a> {
    /// What the pager was told.
    Event {
        /// When.
        now: Nanos,
        /// What.
        event: Event<'a>,
    },
    /// What it answered.
    Action(Action),
}

/// Reads the entries of a trace in order.
pub struct Reader<'a> {
    header: Header<'a>,
    cursor: Cursor<'a>,
    check: Check,
    now: u64,
    page: u64,
    ended: bool,
    outcomes: Vec<PageOutcome>,
}

/// An entry without its lists.
enum Bare {
    Event(Nanos, BareEvent),
    Action(Action),
    End,
}

enum BareEvent {
    Whole(Event<'static>),
    Done(ActionId, BareOutcome),
}

enum BareOutcome {
    Whole(Outcome<'static>),
    Pages,
}

impl<'a> Reader<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// When `bytes` do not begin with a whole header of this version.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        let mut cursor = Cursor { bytes, at: 0 };
        let mut check = Check::new();
        let header = read_header(&mut cursor)
            .and_then(|header| verify(&mut cursor, 0, &mut check).map(|()| header))
            .map_err(|why| Unreadable { offset: 0, why })?;
        Ok(Self {
            header,
            cursor,
            check,
            now: 0,
            page: 0,
            ended: false,
            outcomes: Vec::new(),
        })
    }

    /// What the traced pager was made of.
    #[must_use]
    pub const fn header(&self) -> Header<'a> {
        self.header
    }

    /// Byte offset of the next entry.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.cursor.at
    }

    /// The next entry; `None` after the end.
    ///
    /// # Errors
    /// When what follows is no whole entry. Nothing after it can be read.
    pub fn next_entry(&mut self) -> Result<Option<Logged<'_>>, Unreadable> {
        let offset = self.cursor.at;
        let why = |why| Unreadable { offset, why };
        if self.ended {
            let at_end = offset == self.cursor.bytes.len();
            return if at_end {
                Ok(None)
            } else {
                Err(why(Why::Corrupt))
            };
        }
        let bare = self.bare().map_err(why)?;
        if let Err(reason) = verify(&mut self.cursor, offset, &mut self.check) {
            self.cursor.at = offset;
            return Err(why(reason));
        }
        Ok(match bare {
            Bare::End => {
                self.ended = true;
                return self.next_entry();
            }
            Bare::Event(now, event) => Some(Logged::Event {
                now,
                event: self.whole(event),
            }),
            Bare::Action(action) => Some(Logged::Action(action)),
        })
    }

    /// Whether the end mark was read.
    #[must_use]
    pub const fn ended(&self) -> bool {
        self.ended
    }

    fn whole(&self, event: BareEvent) -> Event<'_> {
        match event {
            BareEvent::Whole(event) => event,
            BareEvent::Done(id, outcome) => {
                let outcome = match outcome {
                    BareOutcome::Whole(outcome) => outcome,
                    BareOutcome::Pages => Outcome::Pages(&self.outcomes),
                };
                Event::Done { id, outcome }
            }
        }
    }

    fn bare(&mut self) -> Result<Bare, Why> {
        match self.cursor.byte()? {
            tag::END => Ok(Bare::End),
            tag if tag < tag::ACTIONS => {
                self.now = self.cursor.step(self.now)?;
                Ok(Bare::Event(Nanos(self.now), self.event(tag)?))
            }
            tag => Ok(Bare::Action(self.action(tag)?)),
        }
    }

    fn event(&mut self, tag: u8) -> Result<BareEvent, Why> {
        Ok(BareEvent::Whole(match tag {
            tag::FAULT => self.fault()?,
            tag::DONE => {
                let id = ActionId(self.cursor.number_u32()?);
                return Ok(BareEvent::Done(id, self.outcome()?));
            }
            tag::LEFT => Event::Left(Waiter(self.cursor.number_u32()?)),
            tag::ADOPT => {
                let run = self.run()?;
                if run.pages > ADOPTED_MAX {
                    return Err(Why::Corrupt);
                }
                Event::Adopt(run)
            }
            tag::UNMAP => Event::Unmap(self.run()?),
            tag::DISCARD => Event::Discard(self.run()?),
            tag::DISCARDABLE => Event::Discardable(self.run()?),
            tag::TAKE_BACK => Event::TakeBack(self.run()?),
            tag::FLUSH => Event::Flush(self.run()?),
            tag::FREEING => Event::Freeing(self.run()?),
            tag::FREED => Event::Freed(self.run()?),
            tag::ADVISE => {
                let advice = Advice::ALL.get(usize::from(self.cursor.byte()?));
                Event::Advise(*advice.ok_or(Why::Corrupt)?, self.run()?)
            }
            tag::GROWN => Event::Grown(self.slots()?),
            tag::FULL => Event::Full,
            tag::LIMIT => Event::Limit(self.frames()?),
            tag::FORKING => Event::Forking,
            tag::FORKED => Event::Forked,
            tag::CHILDREN_GONE => Event::ChildrenGone,
            tag::TICK => Event::Tick,
            tag::TIMER => Event::Timer,
            tag::POOLED => Event::Pooled(self.frames()?),
            _ => return Err(Why::Corrupt),
        }))
    }

    fn frames(&mut self) -> Result<usize, Why> {
        // More than there can be in an address space; sums of them do not overflow.
        let frames = self.cursor.number()?;
        let fits = frames <= 1 << 48;
        usize::try_from(frames)
            .ok()
            .filter(|_| fits)
            .ok_or(Why::Corrupt)
    }

    fn fault(&mut self) -> Result<Event<'static>, Why> {
        let page = self.page()?;
        let access = match self.cursor.byte()? {
            0 => Access::Read,
            1 => Access::Write,
            _ => return Err(Why::Corrupt),
        };
        let waiter = Waiter(self.cursor.number_u32()?);
        let source = Source(self.cursor.number_u32()?);
        let start = PageNo::from_raw(self.cursor.step(page.raw())?);
        let extent = PageRange::checked(start, self.cursor.number()?).ok_or(Why::Corrupt)?;
        Ok(Event::Fault {
            page,
            access,
            waiter,
            source,
            extent,
        })
    }

    fn outcome(&mut self) -> Result<BareOutcome, Why> {
        Ok(match self.cursor.byte()? {
            outcome::DONE => BareOutcome::Whole(Outcome::Done),
            outcome::NO_SPACE => BareOutcome::Whole(Outcome::Failed(IoFailure::NoSpace)),
            outcome::DEVICE => BareOutcome::Whole(Outcome::Failed(IoFailure::Device)),
            outcome::ALL_DONE => {
                // Pages of a run, of a zero-filled block or of a window.
                const {
                    assert!(
                        *crate::readahead::MAX_WINDOW.end() as u64 <= crate::pager::RUN_PAGES_MAX
                    )
                };
                let most = u64::from(self.header.zero_around);
                let count = self.count(most.max(crate::pager::RUN_PAGES_MAX))?;
                self.outcomes.clear();
                self.outcomes.resize(count, PageOutcome::Done);
                BareOutcome::Pages
            }
            outcome::PAGES => {
                self.outcomes.clear();
                for _ in 0..self.cursor.number()? {
                    let outcome = self.page_outcome()?;
                    self.outcomes.push(outcome);
                }
                BareOutcome::Pages
            }
            _ => return Err(Why::Corrupt),
        })
    }

    fn page_outcome(&mut self) -> Result<PageOutcome, Why> {
        Ok(match self.cursor.byte()? {
            page_outcome::DONE => PageOutcome::Done,
            tag @ (page_outcome::DETACHED | page_outcome::ZERO) => PageOutcome::Detached {
                hash: self.hash()?,
                zero: tag == page_outcome::ZERO,
            },
            page_outcome::BUSY => PageOutcome::Refused(Refusal::Busy),
            page_outcome::ABSENT => PageOutcome::Refused(Refusal::Absent),
            page_outcome::PRESENT => PageOutcome::Refused(Refusal::Present),
            page_outcome::GONE => PageOutcome::Refused(Refusal::Gone),
            page_outcome::DAMAGED => PageOutcome::Refused(Refusal::Damaged),
            page_outcome::UNREAD => PageOutcome::Refused(Refusal::Unread),
            page_outcome::UNHASHED => PageOutcome::Unhashed,
            page_outcome::KEPT => {
                let bytes = self.cursor.number_u32()?;
                let bytes = u16::try_from(bytes).map_err(|_| Why::Corrupt)?;
                PageOutcome::Kept { bytes }
            }
            page_outcome::UNFIT => PageOutcome::Refused(Refusal::Unfit),
            page_outcome::NO_ROOM => PageOutcome::Refused(Refusal::NoRoom),
            _ => return Err(Why::Corrupt),
        })
    }

    fn action(&mut self, tag: u8) -> Result<Action, Why> {
        let number = self.cursor.number_u32()?;
        let id = ActionId(number);
        Ok(match tag {
            tag::ZERO_FILL => Action::ZeroFill {
                id,
                run: self.run()?,
                after: self.after()?,
            },
            tag::MAP => Action::Map {
                id,
                run: self.run()?,
                absent_below: self.cursor.byte()?,
            },
            tag::DETACH => Action::Detach {
                id,
                run: self.run()?,
                absent_below: self.cursor.byte()?,
            },
            tag::DROP => self.run().map(|run| Action::Drop { id, run })?,
            tag::PAGE_IN => Action::PageIn {
                id,
                slots: self.slots()?,
                pages: self.pages(true)?,
                after: self.after()?,
            },
            tag::PAGE_OUT => Action::PageOut {
                id,
                slots: self.slots()?,
                pages: self.pages(true)?,
                after: self.after()?,
            },
            tag::COMPRESS => Action::Compress {
                id,
                slots: self.slots()?,
                pages: self.pages(true)?,
                after: self.after()?,
                grant: self.cursor.number_u32()?,
            },
            tag::DECOMPRESS => Action::Decompress {
                id,
                slots: self.slots()?,
                pages: self.pages(true)?,
                after: self.after()?,
            },
            tag::DEAD => Action::Dead {
                id,
                slots: self.slots()?,
                after: self.after()?,
            },
            tag::RELEASE => Action::Release {
                id,
                pages: self.pages(false)?,
                after: self.after()?,
            },
            tag::POISON => self.page().map(|page| Action::Poison { id, page })?,
            tag::WAKE => Action::Wake {
                waiter: Waiter(number),
                page: self.page()?,
            },
            tag::TAKEN_BACK => self.taken_back()?,
            tag::GROW => Action::Grow { slots: number },
            tag::SHRINK => self.shrink()?,
            tag::EXHAUSTED => Action::Exhausted {
                swap_full: number != 0,
            },
            _ => return Err(Why::Corrupt),
        })
    }

    fn shrink(&mut self) -> Result<Action, Why> {
        Ok(Action::Shrink {
            slots: self.slots()?,
            after: self.after()?,
        })
    }

    fn taken_back(&mut self) -> Result<Action, Why> {
        Ok(Action::TakenBack {
            range: self.run()?,
            lost: self.pages(false)?,
        })
    }

    /// A count that no bytes vouch for.
    fn count(&mut self, most: u64) -> Result<usize, Why> {
        let count = self.cursor.number()?;
        if count > most {
            return Err(Why::Corrupt);
        }
        Ok(count as usize)
    }

    fn page(&mut self) -> Result<PageNo, Why> {
        self.page = self.cursor.step(self.page)?;
        let page = PageNo::from_raw(self.page);
        PageRange::checked(page, 1).map_or(Err(Why::Corrupt), |one| Ok(one.start))
    }

    fn pages(&mut self, hashed: bool) -> Result<PageList, Why> {
        let (mut pages, mut hashes) = (Vec::new(), Vec::new());
        for _ in 0..self.cursor.number()? {
            pages.push(self.page()?);
        }
        if hashed {
            for _ in 0..pages.len() {
                hashes.push(self.hash()?);
            }
        }
        Ok(PageList::new(pages, hashes))
    }

    fn after(&mut self) -> Result<Option<ActionId>, Why> {
        Ok(self.cursor.number_u32()?.checked_sub(1).map(ActionId))
    }

    fn run(&mut self) -> Result<PageRange, Why> {
        PageRange::checked(self.page()?, self.cursor.number()?).ok_or(Why::Corrupt)
    }

    fn slots(&mut self) -> Result<SlotRange, Why> {
        let (start, slots) = (self.cursor.number_u32()?, self.cursor.number_u32()?);
        start.checked_add(slots).ok_or(Why::Corrupt)?;
        Ok(SlotRange::new(SlotNo(start), slots))
    }

    fn hash(&mut self) -> Result<ContentHash, Why> {
        let mut words = [0; 3];
        for word in &mut words {
            *word = u32::from_le_bytes(self.cursor.array()?);
        }
        Ok(ContentHash(words))
    }
}

/// Whether the check after the part that began at `from` holds.
fn verify(cursor: &mut Cursor<'_>, from: usize, check: &mut Check) -> Result<(), Why> {
    check.add(&cursor.bytes[from..cursor.at]);
    let found: [u8; Check::BYTES] = cursor.array()?;
    if found == check.bytes() {
        Ok(())
    } else {
        Err(Why::Corrupt)
    }
}

fn read_header<'a>(cursor: &mut Cursor<'a>) -> Result<Header<'a>, Why> {
    if !cursor.bytes.starts_with(&MAGIC) {
        let whole = cursor.bytes.len() >= MAGIC.len() || !MAGIC.starts_with(cursor.bytes);
        return Err(if whole {
            Why::NotATrace
        } else {
            Why::Truncated
        });
    }
    cursor.at = MAGIC.len();
    let version = u16::from_le_bytes(cursor.array()?);
    if version != VERSION {
        return Err(Why::Version(version));
    }
    let [reclaim, pageout, readahead, slots, tier, discard] = [
        cursor.text()?,
        cursor.text()?,
        cursor.text()?,
        cursor.text()?,
        cursor.text()?,
        cursor.text()?,
    ];
    let pageout_params = pageout::Params {
        buffer_pages: cursor.number_u32()?,
        window: match cursor.byte()? {
            0 => ClusterWindow::Kernel,
            1 => ClusterWindow::Paper,
            _ => return Err(Why::Corrupt),
        },
    };
    let header = Header {
        reclaim,
        pageout,
        pageout_params,
        readahead,
        slots,
        tier,
        discard,
        frames: cursor.number()?,
        measured: cursor.number_u32()?,
        slots_max: cursor.number_u32()?,
        zero_around: cursor.number_u32()?,
        rescue_around: cursor.number_u32()?,
    };
    if header.zero_around > ZERO_AROUND_MAX {
        return Err(Why::Corrupt);
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::Recorder;
    use super::*;

    fn header() -> Header<'static> {
        Header {
            reclaim: "two-queue",
            pageout: "packed",
            pageout_params: crate::pageout::REGISTRY[0].params(),
            readahead: "stream:govern=on",
            slots: "log",
            tier: "lz4:pool=50",
            discard: "pf:pages=9",
            frames: 300,
            measured: 300,
            slots_max: 900,
            zero_around: 1,
            rescue_around: 0,
        }
    }

    fn begun(header: &Header<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        Recorder::begin(header, &mut bytes);
        bytes
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let header = header();
        let mut bytes = begun(&header);
        assert_eq!(
            Reader::new(&bytes).map(|reader| reader.header()),
            Ok(header)
        );
        for other in [6, 9, 10, VERSION + 1] {
            bytes[MAGIC.len()..][..2].copy_from_slice(&other.to_le_bytes());
            let (offset, why) = (0, Why::Version(other));
            assert_eq!(Reader::new(&bytes).err(), Some(Unreadable { offset, why }));
        }
    }
}
