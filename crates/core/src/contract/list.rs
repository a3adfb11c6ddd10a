//! The pages that an action carries.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use crate::content::ContentHash;
use crate::units::PageNo;

/// Pages in order, and of a transfer the hash that each must have. A copy shares them: an action can be handed
/// to another thread for the price of a counter, and the pager uses the memory again when nobody else holds it.
#[derive(Clone, Default)]
pub struct PageList(Option<Arc<Lists>>);

#[derive(Default)]
struct Lists {
    pages: Vec<PageNo>,
    hashes: Vec<ContentHash>,
}

impl PageList {
    /// `pages`, and a hash for each or none at all.
    ///
    /// # Panics
    /// When there are hashes for some pages only.
    #[must_use]
    pub fn new(pages: Vec<PageNo>, hashes: Vec<ContentHash>) -> Self {
        assert!(hashes.is_empty() || hashes.len() == pages.len());
        Self(Some(Arc::new(Lists { pages, hashes })))
    }

    /// The hash that the content of each page must have; empty where nothing is transferred.
    #[must_use]
    pub fn hashes(&self) -> &[ContentHash] {
        self.0.as_ref().map_or(&[], |lists| &lists.hashes)
    }

    /// The lists, emptied, with room for `pages` pages; other ones where somebody holds a copy.
    pub(crate) fn take(&mut self, pages: usize, hashed: bool) -> (Vec<PageNo>, Vec<ContentHash>) {
        let mut lists = Lists::default();
        match self.0.as_mut().and_then(Arc::get_mut) {
            Some(own) => lists = core::mem::take(own),
            None => self.0 = None,
        }
        lists.pages.clear();
        lists.hashes.clear();
        lists.pages.reserve(pages);
        if hashed {
            lists.hashes.reserve(pages);
        }
        (lists.pages, lists.hashes)
    }

    /// Puts lists in that [`Self::take`] gave.
    pub(crate) fn put(&mut self, pages: Vec<PageNo>, hashes: Vec<ContentHash>) {
        match self.0.as_mut().and_then(Arc::get_mut) {
            Some(lists) => (lists.pages, lists.hashes) = (pages, hashes),
            None => *self = Self::new(pages, hashes),
        }
    }
}

impl Deref for PageList {
    type Target = [PageNo];

    fn deref(&self) -> &[PageNo] {
        self.0.as_ref().map_or(&[], |lists| &lists.pages)
    }
}

impl PartialEq for PageList {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..] && self.hashes() == other.hashes()
    }
}

impl Eq for PageList {}

impl fmt::Debug for PageList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_used_again_unless_somebody_holds_it() {
        let mut list = PageList::default();
        let (mut pages, hashes) = list.take(8, true);
        assert!(pages.capacity() >= 8 && hashes.capacity() >= 8);
        let room = pages.as_ptr();
        pages.push(PageNo::from_raw(7));
        list.put(pages, hashes);

        let held = list.clone();
        let (other, _) = list.take(8, true);
        assert_ne!(other.as_ptr(), room);
        assert_eq!(held[..], [PageNo::from_raw(7)]);

        let mut list = held;
        let (pages, _) = list.take(8, true);
        assert!(pages.is_empty());
        assert_eq!(pages.as_ptr(), room);
    }
}
