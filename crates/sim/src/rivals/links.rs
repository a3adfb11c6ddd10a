//! Doubly linked lists of page numbers, linked by index.

/// "No page".
pub(super) const NONE: u32 = u32::MAX;

/// The links of all pages, for lists of which each page lies on at most one.
pub(super) struct Links {
    next: Vec<u32>,
    prev: Vec<u32>,
}

impl Links {
    /// Links for pages `0..pages`, all on no list.
    pub(super) fn new(pages: u32) -> Self {
        Self {
            next: vec![NONE; pages as usize],
            prev: vec![NONE; pages as usize],
        }
    }
}

/// One list; its links are passed with each call. Which pages lie on it, its user knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
    len: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
        len: 0,
    };

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    /// The first page, the one that came earliest when pages are only pushed.
    pub(super) const fn first(&self) -> Option<u32> {
        if self.first == NONE {
            None
        } else {
            Some(self.first)
        }
    }

    /// Appends `page`, which lies on no list of these links.
    pub(super) fn push(&mut self, links: &mut Links, page: u32) {
        links.next[page as usize] = NONE;
        links.prev[page as usize] = self.last;
        match self.last {
            NONE => self.first = page,
            last => links.next[last as usize] = page,
        }
        self.last = page;
        self.len += 1;
    }

    /// Takes out `page`, which lies on this list.
    pub(super) fn remove(&mut self, links: &mut Links, page: u32) {
        let (before, after) = (links.prev[page as usize], links.next[page as usize]);
        match before {
            NONE => self.first = after,
            before => links.next[before as usize] = after,
        }
        match after {
            NONE => self.last = before,
            after => links.prev[after as usize] = before,
        }
        self.len -= 1;
    }

    /// Takes out the first page.
    pub(super) fn pop(&mut self, links: &mut Links) -> Option<u32> {
        let page = self.first()?;
        self.remove(links, page);
        Some(page)
    }

    /// Moves `page`, which lies on this list, to its end.
    pub(super) fn renew(&mut self, links: &mut Links, page: u32) {
        if self.last != page {
            self.remove(links, page);
            self.push(links, page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_order() {
        let mut links = Links::new(4);
        let mut list = List::EMPTY;
        assert_eq!(list.pop(&mut links), None);
        for page in [2, 0, 3, 1] {
            list.push(&mut links, page);
        }
        list.renew(&mut links, 2);
        list.renew(&mut links, 2);
        list.remove(&mut links, 3);
        assert_eq!(list.len(), 3);
        let order: Vec<_> = std::iter::from_fn(|| list.pop(&mut links)).collect();
        assert_eq!(order, [0, 1, 2]);
        assert_eq!((list.len(), list.first()), (0, None));
    }
}
