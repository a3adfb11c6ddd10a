//! Transfers under way, by the number of their action.

use outpage_core::contract::PageList;
use outpage_core::units::{Nanos, PageRange};

use crate::frames::Place;

/// A transfer under way, or the place of one.
#[derive(Default)]
pub(crate) struct Transfer {
    /// None of a place.
    pub(crate) pages: PageList,
    pub(crate) places: Vec<Place>,
    pub(crate) reading: bool,
    pub(crate) since: Nanos,
}

impl Transfer {
    /// Of pages that go to the pool of compressed pages or come from it.
    pub(crate) fn of_pool(pages: PageList, places: Vec<Place>) -> Self {
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
