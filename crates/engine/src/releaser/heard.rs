//! What the kernel says while pages go, told apart from what it says of the program's own calls.

use outpage_core::units::PAGE_BYTES;
use outpage_sys::process;
use outpage_sys::uffd::{Message, Uffd};

use super::order::Order;
use super::{CALL_PAGES, Part};

/// What was said of the pages that are thrown away: of each once for ourselves, and as often as the program throws it away besides.
/// Who said it first does not matter, for what is left over is the program's.
pub(super) struct Heard<'a> {
    pub(super) parts: &'a [Part],
    /// Where they are taken to, one behind the other; 0 where they are thrown away.
    landing: usize,
    /// The pages of which it was said, in their order.
    pages: u64,
    /// What the last message said once more.
    again: u64,
}

impl<'a> Heard<'a> {
    /// Nothing yet. `parts` are taken to `landing`, or thrown away if that is 0.
    ///
    /// # Panics
    /// Without pages, or when they are more than an order's.
    pub(super) fn new(parts: &'a [Part], landing: usize) -> Self {
        let pages: usize = parts.iter().map(|part| part.pages).sum();
        assert!((1..=CALL_PAGES).contains(&pages), "{pages} pages at once");
        assert!(parts.iter().all(|part| part.pages > 0), "an empty part");
        Self {
            parts,
            landing,
            pages: 0,
            again: 0,
        }
    }

    /// Hears what is said until `order` is carried out. Returns whether the program moved memory meanwhile.
    pub(super) fn hear(&mut self, order: &Order, uffd: &Uffd) -> bool {
        let mut moved = false;
        while order.is_open() {
            // Before the kernel is asked nothing is said for us. Between being heard and throwing pages away the thread may wait for a
            // CPU: nobody else is heard meanwhile, who would go on and might move something else there.
            if order.asks().is_some_and(|part| !self.all(part)) {
                uffd.gather_but(&mut |message| {
                    let left = self.take(message, order.begun());
                    moved |= matches!(left, Some(Message::Remapped { .. }));
                    left
                });
                self.rest().for_each(|message| uffd.put_back(message));
            }
            process::yield_now();
        }
        moved
    }

    /// How many pages are in the parts before part `i`.
    fn before(&self, i: usize) -> usize {
        self.parts[..i].iter().map(|part| part.pages).sum()
    }

    /// Where part `i` is taken to.
    pub(super) fn landing_of(&self, i: usize) -> usize {
        self.landing + self.before(i) * PAGE_BYTES
    }

    /// Of the pages of `start..end`, which are some of part `i`, each a bit.
    fn mask(&self, i: usize, start: usize, end: usize) -> u64 {
        let first = self.before(i) + (start - self.parts[i].address) / PAGE_BYTES;
        (u64::MAX >> (CALL_PAGES - (end - start) / PAGE_BYTES)) << first
    }

    fn of_part(&self, i: usize) -> u64 {
        self.mask(i, self.parts[i].address, self.parts[i].end())
    }

    /// Whether it was said of all pages of part `i`.
    fn all(&self, i: usize) -> bool {
        self.pages & self.of_part(i) == self.of_part(i)
    }

    /// Whether it was said of a page of part `i`.
    pub(super) fn any(&self, i: usize) -> bool {
        self.pages & self.of_part(i) != 0
    }

    /// Takes what is said for the first time of pages of the first `begun` parts; returns every other message, but what is said again of some, which
    /// [`Self::rest`] has then. Those are the program's, and what it moves or unmaps next is told behind them, so they must not wait.
    fn take(&mut self, message: Message, begun: usize) -> Option<Message> {
        let (start, end) = match message {
            Message::Removed { start, end } => (start, end),
            Message::Remapped { from, to, len } if self.is_taken(to) => (from, from + len),
            _ => return Some(message),
        };
        let within = |part: &Part| part.address <= start && end <= part.end();
        let Some(i) = self.parts[..begun].iter().position(within) else {
            return Some(message);
        };
        let said = self.mask(i, start, end);
        if said & self.pages == said {
            return Some(message);
        }
        self.again = said & self.pages;
        self.pages |= said;
        None
    }

    /// Whether what moved `to` there was taken there.
    const fn is_taken(&self, to: usize) -> bool {
        self.landing != 0 && self.landing <= to && to < self.landing + CALL_PAGES * PAGE_BYTES
    }

    /// What the last message said again.
    fn rest(&mut self) -> impl Iterator<Item = Message> {
        let again = core::mem::take(&mut self.again);
        let pages = |part: &Part| (part.address..part.end()).step_by(PAGE_BYTES);
        let addresses = (0..).zip(self.parts.iter().flat_map(pages));
        let said = addresses.filter(move |(bit, _)| again >> bit & 1 == 1);
        said.map(|(_, start)| Message::Removed {
            start,
            end: start + PAGE_BYTES,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(first: usize, end: usize) -> Message {
        Message::Removed {
            start: first * PAGE_BYTES,
            end: end * PAGE_BYTES,
        }
    }

    fn part(first: usize, pages: usize) -> Part {
        Part {
            address: first * PAGE_BYTES,
            pages,
        }
    }

    #[test]
    fn of_what_is_said_each_page_is_ours_once() {
        let parts = [part(10, 4)];
        let moved = Message::Remapped {
            from: 10 * PAGE_BYTES,
            to: 90 * PAGE_BYTES,
            len: PAGE_BYTES,
        };
        let mut heard = Heard::new(&parts, 0);
        // What reaches beyond cannot be ours.
        for message in [removed(8, 12), removed(13, 15), moved, removed(9, 10)] {
            assert_eq!(heard.take(message, 1), Some(message));
        }
        // The program throws away two of them meanwhile: whoever tells first, that is what is left over.
        for messages in [
            [removed(11, 13), removed(10, 14)],
            [removed(10, 14), removed(11, 13)],
        ] {
            let mut heard = Heard::new(&parts, 0);
            let mut left = Vec::new();
            for message in messages {
                left.extend(heard.take(message, 1));
                left.extend(heard.rest());
            }
            assert!(heard.all(0));
            let in_parts = left == [removed(11, 12), removed(12, 13)];
            assert!(in_parts || left == [removed(11, 13)], "{left:?}");
        }
    }

    #[test]
    fn of_a_run_the_kernel_may_tell_in_parts() {
        let parts = [part(10, CALL_PAGES)];
        let mut heard = Heard::new(&parts, 0);
        assert!(!heard.any(0) && !heard.all(0));
        assert_eq!(heard.take(removed(10, 30), 1), None);
        assert!(heard.any(0) && !heard.all(0));
        assert_eq!(heard.take(removed(30, 74), 1), None);
        assert!(heard.all(0) && heard.rest().next().is_none());
    }

    #[test]
    fn what_is_said_of_a_part_before_it_is_begun_is_the_programs() {
        let parts = [part(10, 2), part(20, 1), part(30, 61)];
        let mut heard = Heard::new(&parts, 0);
        assert_eq!(heard.take(removed(20, 21), 1), Some(removed(20, 21)));
        assert_eq!(heard.take(removed(10, 12), 1), None);
        assert_eq!([0, 1, 2].map(|i| heard.all(i)), [true, false, false]);
        assert_eq!(heard.take(removed(20, 21), 2), None);
        assert_eq!(heard.take(removed(30, 31), 3), None);
        // The program throws away a page that was thrown away, and one that is about to be.
        assert_eq!(heard.take(removed(30, 32), 3), None);
        assert_eq!(heard.rest().collect::<Vec<_>>(), [removed(30, 31)]);
        assert_eq!(heard.take(removed(11, 12), 3), Some(removed(11, 12)));
        assert_eq!(heard.take(removed(32, 91), 3), None);
        assert_eq!([0, 1, 2].map(|i| heard.all(i)), [true; 3]);
    }
}
