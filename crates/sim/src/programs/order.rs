//! Programs whose order is what they are about: memory that is written once, and then touched in an order.

use std::collections::VecDeque;

use outpage_core::contract::Access;

use super::{Program, Step, run};

/// One touch of an order: pages of its memory, ascending, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The first page.
    pub page: u64,
    /// How many.
    pub pages: u64,
    /// Read or write.
    pub access: Access,
}

impl Touch {
    /// One page is read.
    #[must_use]
    pub const fn read(page: u64) -> Self {
        let (pages, access) = (1, Access::Read);
        Self {
            page,
            pages,
            access,
        }
    }

    /// One page is written.
    #[must_use]
    pub const fn write(page: u64) -> Self {
        let (pages, access) = (1, Access::Write);
        Self {
            page,
            pages,
            access,
        }
    }

    /// One page is written if `writes`, else read.
    #[must_use]
    pub const fn one(page: u64, writes: bool) -> Self {
        if writes {
            Self::write(page)
        } else {
            Self::read(page)
        }
    }
}

/// Touches after touches, over memory of a fixed size.
pub trait Order: Send {
    /// What the program is called.
    const NAME: &'static str;

    /// Pages of its memory.
    fn pages(&self) -> u64;

    /// Pages from the first on that are written, in order, before anything else.
    fn filled(&self) -> u64 {
        self.pages()
    }

    /// What comes next is put behind `touches`: at least one touch, or nothing at the end.
    fn next(&mut self, touches: &mut VecDeque<Touch>);
}

/// The program that touches its memory in an order.
pub struct Ordered<O> {
    order: O,
    object: u32,
    /// CPU time a touch of a page, nanoseconds.
    touch_ns: u32,
    state: State,
    ahead: VecDeque<Touch>,
}

#[derive(Clone, Copy)]
enum State {
    Start,
    Mapped,
    Named,
    Filled,
    Touching,
}

impl<O: Order> Ordered<O> {
    /// The program in memory object `object`, which computes `touch_ns` for each touch of a page.
    #[must_use]
    pub fn new(order: O, object: u32, touch_ns: u32) -> Self {
        Self {
            order,
            object,
            touch_ns,
            state: State::Start,
            ahead: VecDeque::new(),
        }
    }
}

impl<O: Order> Program for Ordered<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn footprint(&self) -> u64 {
        self.order.pages()
    }

    fn step(&mut self) -> Step {
        match self.state {
            State::Start => {
                self.state = State::Mapped;
                Step::Map(run(self.object, 0, self.order.pages()))
            }
            State::Mapped => {
                self.state = State::Named;
                Step::Phase("init")
            }
            State::Named => {
                self.state = State::Filled;
                Step::Touch {
                    run: run(self.object, 0, self.order.filled()),
                    access: Access::Write,
                    page_ns: self.touch_ns,
                }
            }
            State::Filled => {
                self.state = State::Touching;
                Step::Phase("touches")
            }
            State::Touching => {
                if self.ahead.is_empty() {
                    self.order.next(&mut self.ahead);
                }
                self.ahead
                    .pop_front()
                    .map_or(Step::End, |touch| Step::Touch {
                        run: run(self.object, touch.page, touch.pages),
                        access: touch.access,
                        page_ns: self.touch_ns,
                    })
            }
        }
    }
}

/// The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection that leaves no pattern.
#[must_use]
pub const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 64 random bits as a number below `bound`.
#[must_use]
pub const fn scaled(bits: u64, bound: u64) -> u64 {
    ((bits as u128 * bound as u128) >> 64) as u64
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// The pages that `order` touches after they were filled, those touched twice in a row once, a
    /// write counting as such.
    pub fn pages(mut order: impl Order) -> Vec<(u64, Access)> {
        let mut found = Vec::new();
        let mut touches = VecDeque::new();
        loop {
            order.next(&mut touches);
            if touches.is_empty() {
                return collapsed(found);
            }
            for touch in touches.drain(..) {
                assert!(touch.page + touch.pages <= order.pages(), "{touch:?}");
                let pages = touch.page..touch.page + touch.pages;
                found.extend(pages.map(|page| (page, touch.access)));
            }
        }
    }

    /// Touches of the same page in the same way, one behind the other, become one.
    pub fn collapsed(touches: impl IntoIterator<Item = (u64, Access)>) -> Vec<(u64, Access)> {
        let mut found: Vec<_> = touches.into_iter().collect();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages, the last first.
    struct Two(u64);

    impl Order for Two {
        const NAME: &'static str = "two";

        fn pages(&self) -> u64 {
            3
        }

        fn filled(&self) -> u64 {
            2
        }

        fn next(&mut self, touches: &mut VecDeque<Touch>) {
            if self.0 > 0 {
                self.0 -= 1;
                touches.push_back(Touch::read(self.0));
                touches.push_back(Touch::one(2, true));
            }
        }
    }

    #[test]
    fn memory_is_mapped_and_filled_before_it_is_touched_in_order() {
        let mut program = Ordered::new(Two(2), 7, 5);
        let touch = |page, pages, access| Step::Touch {
            run: run(7, page, pages),
            access,
            page_ns: 5,
        };
        let expected = [
            Step::Map(run(7, 0, 3)),
            Step::Phase("init"),
            touch(0, 2, Access::Write),
            Step::Phase("touches"),
            touch(1, 1, Access::Read),
            touch(2, 1, Access::Write),
            touch(0, 1, Access::Read),
            touch(2, 1, Access::Write),
            Step::End,
            Step::End,
        ];
        for step in expected {
            assert_eq!(program.step(), step);
        }
    }
}
