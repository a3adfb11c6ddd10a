//! Programs in ML with a copying collector that says which pages it leaves empty: the clients of Subramanian, "Managing Discardable Pages with an
//! External Pager", 1991.
//!
//! They are programs: the collector copies objects, and what it and they touch is what it takes to do so.

mod compile;
mod heap;
mod sort;

use serde::{Deserialize, Serialize};

use super::{Program, Step, run};
use compile::Compile;
use heap::{Heap, PAGE_WORDS, Sizes};
use sort::Sort;

/// Which program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MlWork {
    /// Units are compiled: trees that are made anew, and an environment that stays.
    #[default]
    Compile,
    /// A list is sorted by tasks that take turns.
    Sort,
}

/// A program and the sizes of its collector.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MlParams {
    /// Which.
    pub work: MlWork,
    /// Of the heap, in pages.
    pub heap_pages: u32,
    /// The old region is collected when it has so many percent of the heap.
    pub old_percent: u32,
    /// Pages that are taken back at a time.
    pub take_back_pages: u32,
    /// What is allocated in all, in pages: a sort's list is as long as that takes, about.
    pub allocated_pages: u32,
    /// What the compiler's environment takes to begin with, in pages.
    pub environment_pages: u32,
    /// CPU time in all, milliseconds, spread evenly over what is allocated; of a sort about.
    pub user_ms: u32,
    /// Of its random numbers.
    pub seed: u64,
}

impl Default for MlParams {
    fn default() -> Self {
        Self {
            work: MlWork::Compile,
            heap_pages: 7_000,
            old_percent: 50,
            take_back_pages: 16,
            allocated_pages: 33_051,
            environment_pages: 1_250,
            user_ms: 169_000,
            seed: 1,
        }
    }
}

/// A repeatable stream of numbers (splitmix64, Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Copy, Debug)]
pub(in crate::programs) struct Random(u64);

impl Random {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    const fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        (((mixed >> 32) * end as u64) >> 32) as u32
    }
}

/// What works on a heap.
trait Mutator: Send {
    /// Works for a while. False when it is over.
    fn work(&mut self, heap: &mut Heap) -> bool;
}

/// The program.
pub struct Ml {
    params: MlParams,
    object: u32,
    heap: Heap,
    mutator: Box<dyn Mutator>,
    mapped: bool,
}

impl Ml {
    /// The program with its heap in memory object `object`.
    #[must_use]
    pub fn new(params: MlParams, object: u32) -> Self {
        let pages = params.heap_pages.max(64) as usize;
        let sizes = Sizes {
            pages,
            old_limit: pages * (params.old_percent.min(50) as usize) / 100,
            take_back: params.take_back_pages.max(1) as usize,
        };
        let words = u64::from(params.allocated_pages) * PAGE_WORDS as u64;
        let word_ns = u64::from(params.user_ms) * 1_000_000 * 65_536 / words.max(1);
        let random = Random::new(params.seed);
        let mutator: Box<dyn Mutator> = match params.work {
            MlWork::Compile => {
                // Five words a name.
                let names = u64::from(params.environment_pages) * PAGE_WORDS as u64 / 5;
                Box::new(Compile::new(words, names as u32, random))
            }
            MlWork::Sort => Box::new(Sort::new(list_for(words), random)),
        };
        Self {
            params,
            object,
            heap: Heap::new(sizes, object, word_ns),
            mutator,
            mapped: false,
        }
    }
}

/// Elements of a list whose sort allocates `words` words, about: cells of 3 words, one for each of 1.39 n (log2 n - 2.05) comparisons
/// (Sedgewick, "Implementing quicksort programs", CACM 21(10), 1978: 2 (n + 1) H(n + 1) - 4 n - 2), and two for each of the half that is below when
/// parts are joined.
fn list_for(words: u64) -> u32 {
    let cells = |n: f64| n * (1.0 + 2.0 * 1.386 * (n.log2() - 2.05).max(0.0));
    let (mut least, mut most) = (2.0, 1e8);
    for _ in 0..60 {
        let middle = f64::midpoint(least, most);
        if 3.0 * cells(middle) < words as f64 {
            least = middle;
        } else {
            most = middle;
        }
    }
    least as u32
}

impl Program for Ml {
    fn name(&self) -> &'static str {
        match self.params.work {
            MlWork::Compile => "ml-compile",
            MlWork::Sort => "ml-sort",
        }
    }

    fn step(&mut self) -> Step {
        if !self.mapped {
            self.mapped = true;
            return Step::Map(run(self.object, 0, self.footprint()));
        }
        loop {
            if let Some(step) = self.heap.step() {
                return step;
            }
            if !self.mutator.work(&mut self.heap) {
                return Step::End;
            }
        }
    }

    fn footprint(&self) -> u64 {
        u64::from(self.params.heap_pages.max(64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_and_allocation_are_those_asked_for() {
        for work in [MlWork::Compile, MlWork::Sort] {
            let params = MlParams {
                work,
                heap_pages: 900,
                allocated_pages: 4_000,
                environment_pages: 100,
                user_ms: 2_000,
                ..MlParams::default()
            };
            let mut program = Ml::new(params, 1);
            let (mut ns, mut steps) = (0, 0);
            loop {
                match program.step() {
                    Step::Touch { page_ns, run, .. } => ns += u64::from(page_ns) * run.pages,
                    Step::End => break,
                    _ => {}
                }
                steps += 1;
            }
            assert!(
                (1_700_000_000..=2_300_000_000).contains(&ns),
                "{ns} {work:?}"
            );
            let pages = program.heap.work.allocated / PAGE_WORDS as u64;
            assert!((3_400..4_700).contains(&pages), "{pages} {work:?}");
            assert!(steps > 10_000, "{steps}");
        }
    }
}
