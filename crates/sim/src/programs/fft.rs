//! A fast Fourier transform in place, radix 2, and its inverse, page by page.
//!
//! Butterflies of blocks of several pages go over both halves in step. All stages within a page are one
//! touch of it.

use std::collections::VecDeque;

use outpage_core::units::PAGE_BYTES;
use serde::{Deserialize, Serialize};

use super::order::{Order, Touch};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FftParams {
    /// Pages of the array; the largest power of two in it counts.
    pub pages: u64,
    /// Stage by stage over the whole array; else each half goes through all its stages before the other.
    pub breadth: bool,
    /// The spectrum is brought into its natural order and back in between.
    pub reversal: bool,
    /// CPU time of a touch, nanoseconds.
    pub touch_ns: u32,
}

impl Default for FftParams {
    /// 64 MiB. The time is that of the 512 words of a page in one stage, at 4 ns a butterfly.
    fn default() -> Self {
        Self {
            pages: 16_384,
            breadth: false,
            reversal: false,
            touch_ns: 1_000,
        }
    }
}

/// Words of a page, as a power of two.
const PAGE_WORD_BITS: u32 = (PAGE_BYTES / 8).ilog2();

/// What is still to be done: a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    /// All stages of a block, from the largest butterflies to the smallest.
    Forward(Block),
    /// All stages of a block, the other way.
    Inverse(Block),
    /// The butterflies of all blocks of so many pages, from this block on.
    Stage(u64, u64),
    /// The butterflies of a block: `done` pages of each half are behind.
    Butterflies(Block, u64),
    /// Swaps of words with those at the places with reversed bits; this word is next.
    Reverse(u64),
}

/// So many pages, a power of two, from this one on.
type Block = (u64, u64);

/// The order of the pages.
pub struct Fft {
    pages: u64,
    tasks: Vec<Task>,
}

impl Fft {
    /// The order with these parameters.
    ///
    /// # Panics
    /// Without a page.
    #[must_use]
    pub fn new(params: FftParams) -> Self {
        assert!(params.pages > 0, "an array has pages");
        let pages = 1_u64 << params.pages.ilog2();
        let stages = || (0..=pages.ilog2()).map(|bits| Task::Stage(1 << bits, 0));
        let reversals = vec![Task::Reverse(0); if params.reversal { 2 } else { 0 }];
        // A stack: what is done last comes first.
        let tasks = if params.breadth {
            let (inverse, forward) = (stages().rev(), stages());
            inverse.chain(reversals).chain(forward).collect()
        } else {
            let (inverse, forward) = (Task::Inverse((0, pages)), Task::Forward((0, pages)));
            [vec![inverse], reversals, vec![forward]].concat()
        };
        Self { pages, tasks }
    }

    /// Puts the parts of a task on the stack, or what it touches behind `touches`.
    fn carry_out(&mut self, task: Task, touches: &mut VecDeque<Touch>) {
        match task {
            Task::Forward((first, 1)) | Task::Inverse((first, 1)) => {
                touches.push_back(Touch::write(first));
            }
            Task::Forward(block) => {
                let [low, high] = halves(block);
                let tasks = [Task::Forward(high), Task::Forward(low)];
                self.tasks.extend(tasks);
                self.tasks.push(Task::Butterflies(block, 0));
            }
            Task::Inverse(block) => {
                let [low, high] = halves(block);
                self.tasks.push(Task::Butterflies(block, 0));
                self.tasks.extend([Task::Inverse(high), Task::Inverse(low)]);
            }
            Task::Stage(pages, at) => {
                if (at + 1) * pages < self.pages {
                    self.tasks.push(Task::Stage(pages, at + 1));
                }
                self.tasks.push(Task::Butterflies((at * pages, pages), 0));
            }
            Task::Butterflies((first, pages), done) => {
                touches.push_back(Touch::write(first + done));
                if pages > 1 {
                    touches.push_back(Touch::write(first + pages / 2 + done));
                }
                if done + 1 < pages / 2 {
                    self.tasks.push(Task::Butterflies((first, pages), done + 1));
                }
            }
            Task::Reverse(word) => self.reverse(word, touches),
        }
    }

    /// The swap of the next word that is not behind its partner.
    fn reverse(&mut self, word: u64, touches: &mut VecDeque<Touch>) {
        let bits = self.pages.ilog2() + PAGE_WORD_BITS;
        let partner = |word: u64| word.reverse_bits() >> (u64::BITS - bits);
        let Some(word) = (word..1 << bits).find(|&word| word < partner(word)) else {
            return;
        };
        touches.push_back(Touch::write(word >> PAGE_WORD_BITS));
        touches.push_back(Touch::write(partner(word) >> PAGE_WORD_BITS));
        self.tasks.push(Task::Reverse(word + 1));
    }
}

const fn halves((first, pages): Block) -> [Block; 2] {
    [(first, pages / 2), (first + pages / 2, pages / 2)]
}

impl Order for Fft {
    const NAME: &'static str = "fft";

    fn pages(&self) -> u64 {
        self.pages
    }

    fn next(&mut self, touches: &mut VecDeque<Touch>) {
        while touches.is_empty()
            && let Some(task) = self.tasks.pop()
        {
            self.carry_out(task, touches);
        }
    }
}

#[cfg(test)]
mod tests {
    use outpage_core::contract::Access::Write;

    use super::super::order::testing::{collapsed, pages};
    use super::*;

    const WORDS: u64 = 512;

    /// The places of all butterflies of a block of words, as a program's loop has them, in pages.
    fn butterflies(first: u64, words: u64, found: &mut Vec<u64>) {
        for at in 0..words / 2 {
            found.push((first + at) / WORDS);
            found.push((first + words / 2 + at) / WORDS);
        }
    }

    fn forward(first: u64, words: u64, found: &mut Vec<u64>) {
        if words == 1 {
            return;
        }
        butterflies(first, words, found);
        forward(first, words / 2, found);
        forward(first + words / 2, words / 2, found);
    }

    fn inverse(first: u64, words: u64, found: &mut Vec<u64>) {
        if words == 1 {
            return;
        }
        inverse(first, words / 2, found);
        inverse(first + words / 2, words / 2, found);
        butterflies(first, words, found);
    }

    fn by_stages(words: u64, sizes: impl Iterator<Item = u64>, found: &mut Vec<u64>) {
        for size in sizes {
            (0..words / size).for_each(|at| butterflies(at * size, size, found));
        }
    }

    fn reverse(words: u64, found: &mut Vec<u64>) {
        for word in 0..words {
            let partner = word.reverse_bits() >> (64 - words.ilog2());
            if word < partner {
                found.extend([word / WORDS, partner / WORDS]);
            }
        }
    }

    /// Pages by turns, as often as there are words in a page, count once: two pages in step are `a b`.
    fn in_step(found: &[u64]) -> Vec<u64> {
        let mut pairs: Vec<[u64; 2]> = found.chunks_exact(2).map(|c| [c[0], c[1]]).collect();
        pairs.dedup();
        pairs.concat()
    }

    fn expected(found: &[u64]) -> Vec<(u64, outpage_core::contract::Access)> {
        collapsed(in_step(found).into_iter().map(|page| (page, Write)))
    }

    fn order(breadth: bool, reversal: bool) -> Fft {
        Fft::new(FftParams {
            pages: 19,
            breadth,
            reversal,
            touch_ns: 1,
        })
    }

    #[test]
    fn halves_go_through_all_their_stages_one_by_one() {
        let mut naive = Vec::new();
        forward(0, 16 * WORDS, &mut naive);
        inverse(0, 16 * WORDS, &mut naive);
        assert_eq!(pages(order(false, false)), expected(&naive));
    }

    #[test]
    fn stages_go_over_the_whole_array() {
        let (mut naive, words) = (Vec::new(), 16 * WORDS);
        // The stages within a page are passes of their own in a program, all of the same pages in order;
        // here they are one.
        let sizes = || (9..=13).map(|bits| 1 << bits);
        by_stages(words, sizes().rev(), &mut naive);
        by_stages(words, sizes(), &mut naive);
        assert_eq!(pages(order(true, false)), expected(&naive));
    }

    #[test]
    fn a_reversal_swaps_each_pair_once_and_undoes_it() {
        let (mut naive, words) = (Vec::new(), 16 * WORDS);
        forward(0, words, &mut naive);
        let mut touches = in_step(&naive);
        let mut swaps = Vec::new();
        (0..2).for_each(|_| reverse(words, &mut swaps));
        touches.extend(swaps);
        let mut after = Vec::new();
        inverse(0, words, &mut after);
        touches.extend(in_step(&after));
        let touches = collapsed(touches.into_iter().map(|page| (page, Write)));
        assert_eq!(pages(order(false, true)), touches);
    }
}
