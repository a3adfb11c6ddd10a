//! Which frame of a guest holds which page of it.

/// No frame, or no page.
const NONE: u32 = u32::MAX;

/// The frames of a guest. Those freed last are used first, as by the kernel's lists of free pages (Linux, `mm/page_alloc.c`).
pub(super) struct Frames {
    by_page: Vec<u32>,
    page_in: Vec<u32>,
    free: Vec<u32>,
    hidden: Vec<bool>,
    hidden_now: u64,
}

impl Frames {
    /// `frames` free ones, for pages below `pages`.
    pub fn new(frames: u64, pages: u64) -> Self {
        Self {
            by_page: vec![NONE; pages as usize],
            page_in: vec![NONE; frames as usize],
            free: (0..frames as u32).rev().collect(),
            hidden: vec![false; frames as usize],
            hidden_now: 0,
        }
    }

    /// Frames that it has, free ones among them.
    pub const fn len(&self) -> u64 {
        self.page_in.len() as u64
    }

    /// The frame of a page, if it has one.
    pub fn of(&self, page: u64) -> Option<u32> {
        let frame = self.by_page[page as usize];
        (frame != NONE).then_some(frame)
    }

    /// The page in a frame, if there is one.
    pub fn page_in(&self, frame: u32) -> Option<u64> {
        let page = *self.page_in.get(frame as usize)?;
        (page != NONE).then_some(u64::from(page))
    }

    /// Gives a free frame to a page; `None` when there is none.
    pub fn take(&mut self, page: u64) -> Option<u32> {
        let frame = self.free.pop()?;
        self.by_page[page as usize] = frame;
        self.page_in[frame as usize] = page as u32;
        Some(frame)
    }

    /// The page's frame is free again, and hidden no longer.
    pub fn give_back(&mut self, page: u64) {
        let frame = core::mem::replace(&mut self.by_page[page as usize], NONE);
        if frame != NONE {
            self.page_in[frame as usize] = NONE;
            self.hide(frame, false);
            self.free.push(frame);
        }
    }

    /// Whether the page of this frame is hidden.
    pub fn is_hidden(&self, frame: u32) -> bool {
        self.hidden[frame as usize]
    }

    /// Pages that are hidden.
    pub const fn hidden(&self) -> u64 {
        self.hidden_now
    }

    /// Hides or un-hides a frame's page.
    pub fn hide(&mut self, frame: u32, hidden: bool) {
        let was = core::mem::replace(&mut self.hidden[frame as usize], hidden);
        self.hidden_now += u64::from(hidden);
        self.hidden_now -= u64::from(was);
    }

    /// Un-hides all. Returns how many were hidden.
    pub fn show_all(&mut self) -> u64 {
        self.hidden.fill(false);
        core::mem::take(&mut self.hidden_now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_freed_last_is_used_first_and_is_not_hidden() {
        let mut frames = Frames::new(3, 10);
        assert_eq!([7, 8].map(|page| frames.take(page)), [Some(0), Some(1)]);
        frames.hide(0, true);
        frames.hide(0, true);
        assert_eq!(
            (frames.hidden(), frames.page_in(0), frames.of(8)),
            (1, Some(7), Some(1))
        );
        frames.give_back(7);
        assert_eq!(
            (frames.hidden(), frames.page_in(0), frames.of(7)),
            (0, None, None)
        );
        assert_eq!(
            [1, 2, 3].map(|page| frames.take(page)),
            [Some(0), Some(2), None]
        );
        frames.hide(2, true);
        assert_eq!(
            (frames.show_all(), frames.is_hidden(2), frames.hidden()),
            (1, false, 0)
        );
    }
}
