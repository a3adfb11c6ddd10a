//! Transfers under way, by the number of their action: how they begin, and what their ends are answered by.
//!
//! A store that is full is not waited for: what it has no room for stands in line, and the loop goes on.

use outpage_core::contract::{ActionId, IoFailure, Outcome, PageList};
use outpage_core::units::{Nanos, PageRange, SlotRange};
use outpage_store::{Completion, Direction, Frame, PageBits, Request, SubmitError, Token};
use outpage_sys::clock;

use crate::frames::FrameNo;
use crate::live::Live;

/// A transfer under way, or the place of one.
#[derive(Default)]
pub(crate) struct Transfer {
    /// None of a place.
    pub(crate) pages: PageList,
    pub(crate) places: Vec<FrameNo>,
    pub(crate) reading: bool,
    pub(crate) since: Nanos,
}

impl Transfer {
    /// Of pages that go to the pool of compressed pages or come from it.
    pub(crate) fn of_pool(pages: PageList, places: Vec<FrameNo>) -> Self {
        Self {
            pages,
            places,
            ..Self::default()
        }
    }

    /// Whether a page of it is in `range`.
    pub(crate) fn touches(&self, range: PageRange) -> bool {
        self.pages.iter().any(|&page| range.contains(page))
    }
}

/// A transfer that the store had no room for yet.
pub(crate) struct Unsent {
    id: ActionId,
    slots: SlotRange,
    direction: Direction,
    /// One for each slot.
    frames: Vec<Frame>,
    awaited: bool,
}

impl Live {
    /// Starts a transfer, or has it wait where the store has room for no more.
    pub(crate) fn submit(
        &mut self,
        id: ActionId,
        slots: SlotRange,
        pages: PageList,
        direction: Direction,
    ) {
        let index = id.0 as usize;
        let mut places = self.transfer_of(id);
        let reading = direction == Direction::PageIn;
        let mut frames = std::mem::take(&mut self.frames);
        let mut awaited = false;
        if reading {
            awaited = self.world.waiting.reads(&pages);
            self.world.frames_to_read(&pages, &mut places);
            frames.clear();
            frames.extend(places.iter().map(|&place| self.world.frames.frame(place)));
        } else {
            self.world.frames_to_write(&pages, &mut frames);
        }
        let since = clock::now();
        self.transfers[index] = Transfer {
            pages,
            places,
            reading,
            since,
        };
        // Nobody passes one of his own direction. A read does not wait for the memory that a write is encrypted in.
        let next = (self.unsent.iter()).all(|unsent| unsent.direction != direction);
        if !next || !self.send(id, slots, direction, &frames, awaited) {
            self.unsent.push_back(Unsent {
                id,
                slots,
                direction,
                frames: frames.clone(),
                awaited,
            });
        }
        self.frames = frames;
    }

    /// Whether the store took it.
    fn send(
        &mut self,
        id: ActionId,
        slots: SlotRange,
        direction: Direction,
        frames: &[Frame],
        awaited: bool,
    ) -> bool {
        let request = Request {
            token: Token(u64::from(id.0)),
            direction,
            slots,
            frames,
            awaited,
        };
        // It can be full only.
        self.store.submit(&request) != Err(SubmitError::Full)
    }

    /// Hands over what the store had no room for, in its order.
    fn send_unsent(&mut self) {
        let (mut at, mut full) = (0, [false; 2]);
        while at < self.unsent.len() && full != [true; 2] {
            let direction = self.unsent[at].direction;
            let kind = usize::from(direction == Direction::PageIn);
            if full[kind] {
                at += 1;
                continue;
            }
            let Some(unsent) = self.unsent.remove(at) else {
                return;
            };
            if !self.send(
                unsent.id,
                unsent.slots,
                direction,
                &unsent.frames,
                unsent.awaited,
            ) {
                full[kind] = true;
                self.unsent.insert(at, unsent);
                at += 1;
            }
        }
    }

    /// Makes a place for the transfer, and lends the list of places that lies there.
    pub(crate) fn transfer_of(&mut self, id: ActionId) -> Vec<FrameNo> {
        let index = id.0 as usize;
        if self.transfers.len() <= index {
            self.transfers.resize_with(index + 1, Transfer::default);
        }
        std::mem::take(&mut self.transfers[index].places)
    }

    /// Takes what the store has ended, and has some pages compressed; answers what is done.
    pub(crate) fn complete_io(&mut self) -> usize {
        let mut answered = self.compress_some() + self.take_what_was_done_beside();
        self.collect_io();
        if !self.unsent.is_empty() {
            self.send_unsent();
        }
        while let Some(completion) = self.completions.pop() {
            self.answer_io(completion);
            answered += 1;
        }
        answered
    }

    fn collect_io(&mut self) {
        if self.completions.len() == self.completions.capacity() {
            self.completions.reserve(64);
        }
        self.store.poll(&mut self.completions);
    }

    fn answer_io(&mut self, completion: Completion) {
        self.world.waiting.wakes_are_old();
        let id = ActionId(completion.token.0 as u32);
        let mut transfer = std::mem::take(&mut self.transfers[id.0 as usize]);
        // Dropped before the pager hears of it, which can use the list again then.
        let pages = std::mem::take(&mut transfer.pages);
        if transfer.reading {
            let alone = transfer.places.len() == 1 && self.world.waiting.len() == 1;
            if alone && completion.result.is_ok() {
                let now = clock::now();
                self.placement.read(Nanos(now.0 - transfer.since.0), now);
            }
            self.read_done(id, pages, &transfer.places, &completion.failed);
        } else {
            drop(pages);
            self.done(
                id,
                match completion.result {
                    Ok(()) => Outcome::Done,
                    Err(error) if error.is_no_space() => Outcome::Failed(IoFailure::NoSpace),
                    Err(_) => Outcome::Failed(IoFailure::Device),
                },
            );
        }
        let Transfer { mut places, .. } = transfer;
        places.clear();
        self.transfers[id.0 as usize].places = places;
    }

    /// What was read is compared with the hashes that came with the action.
    pub(crate) fn read_done(
        &mut self,
        id: ActionId,
        pages: PageList,
        places: &[FrameNo],
        failed: &PageBits,
    ) {
        self.pages_done(id, |world, out| {
            world.stage_intact(&pages, places, failed, out);
            drop(pages);
        });
    }
}
