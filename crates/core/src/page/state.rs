//! Where a page can be, and the transitions it may take.
//!
//! | from \ to    | Resident | Detaching | Staged | Writing | Reading | Mapping | PagedOut | Untouched | Poisoned |
//! |--------------|----------|-----------|--------|---------|---------|---------|----------|-----------|----------|
//! | Untouched    | adopt    |           |        |         |         | zero-fill |        |           |          |
//! | Resident     |          | victim    |        |         |         |         |          | unmap     |          |
//! | Detaching    | refused  |           | detached |       |         |         |          | zero, unmap |        |
//! | Staged       |          |           |        | page-out |        | rescue  | release  | unmap     |          |
//! | Writing      |          |           | Done   |         |         |         |          | unmap     |          |
//! | Reading      |          |           | Done   |         |         |         |          | unmap     | failed   |
//! | Mapping      | Done     |           | refused |        |         |         |          | unmap     |          |
//! | PagedOut     |          |           |        |         | page-in |         |          | unmap     |          |
//! | Poisoned     |          |           |        |         |         |         |          | unmap     |          |
//!
//! Under a daemon (`reclaim::bsd`) pages are mapped and unmapped by their bits alone, and are written
//! where they are; it never detaches. These are allowed then too:
//!
//! | from \ to    | Resident | Staged | Writing |
//! |--------------|----------|--------|---------|
//! | Resident     |          | unmap  | page-out |
//! | Staged       | soft fault |      |         |
//! | Writing      | Done     |        |         |
//! | Reading      | Done     |        |         |
//!
//! Mapped is Resident, and Writing where the page was mapped before; Staged is in memory and not mapped.

/// Where a page is. See this module's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// Never touched, or dropped: the next touch gives zeroes.
    Untouched = 0,
    /// Mapped in the program.
    Resident,
    /// Being detached from the program.
    Detaching,
    /// Out of the program, content in a frame.
    Staged,
    /// Staged, and being written to its slot.
    Writing,
    /// Being read from its slot into a frame.
    Reading,
    /// Being put into the program.
    Mapping,
    /// Only in its slot.
    PagedOut,
    /// Its slot could not be read back; a touch signals.
    Poisoned,
}

impl State {
    pub(super) const ALL: [Self; 9] = [
        Self::Untouched,
        Self::Resident,
        Self::Detaching,
        Self::Staged,
        Self::Writing,
        Self::Reading,
        Self::Mapping,
        Self::PagedOut,
        Self::Poisoned,
    ];

    /// Whether a page in this state occupies a frame.
    #[must_use]
    pub const fn has_frame(self) -> bool {
        !matches!(self, Self::Untouched | Self::PagedOut | Self::Poisoned)
    }

    /// Whether the program does not have such a page.
    #[must_use]
    pub const fn absent(self) -> bool {
        matches!(
            self,
            Self::Untouched | Self::Staged | Self::Writing | Self::PagedOut | Self::Reading
        )
    }

    /// Whether the table above allows going from `self` to `to`.
    #[must_use]
    pub const fn may_become(self, to: Self) -> bool {
        use State::{
            Detaching, Mapping, PagedOut, Poisoned, Reading, Resident, Staged, Untouched, Writing,
        };
        matches!(
            (self, to),
            (Untouched, Resident | Mapping)
                | (Resident, Detaching | Untouched)
                | (Detaching, Resident | Staged | Untouched)
                | (Staged, Writing | Mapping | PagedOut | Untouched)
                | (Writing, Staged | Untouched)
                | (Reading, Staged | Poisoned | Untouched)
                | (Mapping, Resident | Staged | Untouched)
                | (PagedOut, Reading | Untouched)
                | (Poisoned, Untouched)
        )
    }

    /// What may become each state by the table above, and by the second one besides: a bit a state.
    /// Looked up at every transition.
    pub(super) const LEGAL: [[u16; Self::ALL.len()]; 2] = {
        let mut legal = [[0; Self::ALL.len()]; 2];
        let mut pair = 0;
        while pair < Self::ALL.len() * Self::ALL.len() {
            let (from, to) = (pair / Self::ALL.len(), pair % Self::ALL.len());
            let driven = Self::ALL[from].may_become(Self::ALL[to]);
            let daemon = driven || Self::ALL[from].may_become_under_daemon(Self::ALL[to]);
            legal[0][to] |= (driven as u16) << from;
            legal[1][to] |= (daemon as u16) << from;
            pair += 1;
        }
        legal
    };

    /// Whether the second table above allows it besides.
    const fn may_become_under_daemon(self, to: Self) -> bool {
        use State::{Reading, Resident, Staged, Writing};
        matches!(
            (self, to),
            (Resident, Staged | Writing) | (Staged | Writing | Reading, Resident)
        )
    }
}

/// The states, rounded up: what is indexed by a masked state needs no check.
pub(super) const STATES: usize = State::ALL.len().next_power_of_two();

/// States of pages that occupy a frame, a bit a state.
pub(super) const FRAMED: usize = {
    let (mut framed, mut state) = (0, 0);
    while state < State::ALL.len() {
        framed |= (State::ALL[state].has_frame() as usize) << state;
        state += 1;
    }
    framed
};
