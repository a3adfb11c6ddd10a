//! What all clients share: the store, its slots, and the transfers under way.

use std::collections::VecDeque;

use outpage_core::contract::{ActionId, PageList};
use outpage_core::units::SlotRange;
use outpage_engine::hash::Hasher;
use outpage_engine::placement::Placement;
use outpage_store::{
    Completion, Direction, Frame, PageBits, Request, StoreError, SubmitError, SwapStore, Token,
};

use crate::extents::Extents;

/// A transfer of a client's pages.
pub struct Transfer {
    /// Whose: its place among the clients.
    pub client: usize,
    /// What it answers.
    pub id: ActionId,
    /// Which pages.
    pub pages: PageList,
    /// Whether it is read.
    pub reading: bool,
}

/// A transfer that has ended.
pub struct Ended {
    /// Which.
    pub transfer: Transfer,
    /// What went wrong first, if anything did.
    pub result: Result<(), StoreError>,
    /// The pages that were not transferred.
    pub failed: PageBits,
}

/// A transfer that the store has no room for yet.
struct Unsent {
    token: usize,
    slots: SlotRange,
    direction: Direction,
    frames: Vec<Frame>,
}

/// The store and what belongs to it.
pub struct Common {
    /// Where pages go.
    pub store: Box<dyn SwapStore + Send>,
    /// Who has which part of it.
    pub extents: Extents,
    /// The server's hash function.
    pub hasher: Hasher,
    /// On which CPU the server runs, and the thread that it wakes.
    pub placement: Placement,
    transfers: Vec<Option<Transfer>>,
    unsent: VecDeque<Unsent>,
    completions: Vec<Completion>,
}

impl Common {
    /// Nothing is under way.
    pub fn new(store: Box<dyn SwapStore + Send>, hasher: Hasher) -> Self {
        let mut placement = Placement::new();
        // What a client's thread begins nobody here sees.
        placement.be_brief();
        Self {
            placement,
            extents: Extents::new(store.capacity_slots()),
            completions: Vec::with_capacity(store.depth()),
            store,
            hasher,
            transfers: Vec::new(),
            unsent: VecDeque::new(),
        }
    }

    /// Starts a transfer, or has it wait where the store has no room.
    pub fn submit(
        &mut self,
        transfer: Transfer,
        slots: SlotRange,
        direction: Direction,
        frames: Vec<Frame>,
    ) {
        let token = self.transfers.iter().position(Option::is_none);
        let token = token.unwrap_or_else(|| {
            self.transfers.push(None);
            self.transfers.len() - 1
        });
        self.transfers[token] = Some(transfer);
        let unsent = Unsent {
            token,
            slots,
            direction,
            frames,
        };
        if !self.unsent.is_empty() || !self.send(&unsent) {
            self.unsent.push_back(unsent);
        }
    }

    fn send(&mut self, unsent: &Unsent) -> bool {
        let request = Request {
            token: Token(unsent.token as u64),
            direction: unsent.direction,
            slots: unsent.slots,
            frames: &unsent.frames,
            // Pages are read because a client touched them, with what lies beside them.
            awaited: unsent.direction == Direction::PageIn,
        };
        self.store.submit(&request) != Err(SubmitError::Full)
    }

    /// A transfer that has ended; others go to the store in their order as it has room.
    pub fn next_ended(&mut self) -> Option<Ended> {
        if self.completions.is_empty() {
            self.store.poll(&mut self.completions);
        }
        while let Some(unsent) = self.unsent.pop_front() {
            if !self.send(&unsent) {
                self.unsent.push_front(unsent);
                break;
            }
        }
        let completion = self.completions.pop()?;
        let transfer = self.transfers[completion.token.0 as usize].take();
        Some(Ended {
            transfer: transfer.expect("a completion of a transfer under way"),
            result: completion.result,
            failed: completion.failed,
        })
    }

    /// Whether pages are being read.
    pub fn is_reading(&self) -> bool {
        self.transfers.iter().flatten().any(|t| t.reading)
    }

    /// Transfers of a client that have not ended.
    pub fn under_way(&self, client: usize) -> usize {
        let all = self.transfers.iter().flatten();
        all.filter(|transfer| transfer.client == client).count()
    }
}
