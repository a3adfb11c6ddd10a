//! What a trace becomes: a string of references for rivals and bounds, a program for the world.

use std::sync::Arc;

use outpage_core::contract::Access;
use outpage_core::units::PageRange;

use super::{PageString, Run};
use crate::programs::{Program, Step};
use crate::seed::mix;
use crate::sizes::Sizes;

/// The references of `runs` as a string over packed page numbers. CPU time is not in it.
///
/// # Errors
/// The first of `runs`, such as those of a [`Reader`](super::Reader).
pub fn string<E>(runs: impl IntoIterator<Item = Result<Run, E>>) -> Result<PageString, E> {
    let mut string = PageString::new();
    for run in runs {
        let run = run?;
        for at in 0..run.count {
            string.push(run.page(at).raw(), run.access);
        }
    }
    Ok(string)
}

/// A recorded program. First it maps every page that it will touch, in ascending order; then it
/// touches them as recorded, each after its CPU gap.
///
/// The runs are held in memory, 32 bytes each, and shared by clones.
#[derive(Clone, Debug)]
pub struct Replayed {
    runs: Arc<[Run]>,
    /// What is mapped: disjoint, ascending.
    extents: Arc<[PageRange]>,
    sizes: Option<Arc<Sizes>>,
    /// How many times as long as recorded each CPU gap takes.
    slowness: f64,
    next: Next,
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Map(usize),
    /// The reference of a run.
    Touch {
        run: usize,
        at: u32,
        /// Its CPU gap, too long for a touch, has passed.
        computed: bool,
    },
}

impl Replayed {
    /// The program that `runs` were recorded from.
    #[must_use]
    pub fn new(runs: Vec<Run>) -> Self {
        Self {
            extents: extents(&runs).into(),
            runs: runs.into(),
            sizes: None,
            slowness: 1.0,
            next: Next::Map(0),
        }
    }

    /// The same on a CPU on which it takes `cpu_ns` in all, each gap in proportion.
    #[must_use]
    pub fn lasting(self, cpu_ns: u64) -> Self {
        let recorded = self.runs.iter().map(|run| run.gap.0 * u64::from(run.count));
        let slowness = cpu_ns as f64 / recorded.sum::<u64>().max(1) as f64;
        Self { slowness, ..self }
    }

    /// A number that two recordings hardly share.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let parts = |run: &Run| {
            let how = u64::from(run.count) << 1 | u64::from(run.access == Access::Write);
            [run.start.raw(), run.stride as u64, how, run.gap.0]
        };
        self.runs.iter().flat_map(parts).fold(0, mix)
    }

    /// The same with what its pages come to, where that was recorded of any.
    #[must_use]
    pub fn with_sizes(self, sizes: Sizes) -> Self {
        let sizes = (!sizes.is_empty()).then(|| Arc::new(sizes));
        Self { sizes, ..self }
    }

    /// Moves on by `count` references of a run.
    fn advance(&mut self, run: usize, at: u32, count: u32) {
        let whole = at + count == self.runs[run].count;
        self.next = Next::Touch {
            run: if whole { run + 1 } else { run },
            at: if whole { 0 } else { at + count },
            computed: false,
        };
    }
}

impl Program for Replayed {
    fn name(&self) -> &'static str {
        "recorded"
    }

    fn step(&mut self) -> Step {
        if let Next::Map(at) = self.next {
            if let Some(&extent) = self.extents.get(at) {
                self.next = Next::Map(at + 1);
                return Step::Map(extent);
            }
            self.next = Next::Touch {
                run: 0,
                at: 0,
                computed: false,
            };
        }
        let Next::Touch { run, at, computed } = self.next else {
            return Step::End;
        };
        let Some(&recorded) = self.runs.get(run) else {
            return Step::End;
        };
        let gap = (recorded.gap.0 as f64 * self.slowness).round() as u64;
        let page_ns = match u32::try_from(gap) {
            Ok(gap) => gap,
            Err(_) if computed => 0,
            Err(_) => {
                let computed = true;
                self.next = Next::Touch { run, at, computed };
                return Step::Compute(gap);
            }
        };
        // Only pages in ascending order are one touch, and only while each has a gap of its own.
        let whole = recorded.stride == 1 && !computed;
        let count = if whole { recorded.count - at } else { 1 };
        self.advance(run, at, count);
        Step::Touch {
            run: PageRange::new(recorded.page(at), u64::from(count)),
            access: recorded.access,
            page_ns,
        }
    }

    fn footprint(&self) -> u64 {
        self.extents.iter().map(|extent| extent.pages).sum()
    }

    fn sizes(&self) -> Option<Arc<Sizes>> {
        self.sizes.clone()
    }
}

/// The pages of all runs, as disjoint ranges in ascending order.
fn extents(runs: &[Run]) -> Vec<PageRange> {
    let mut spans: Vec<PageRange> = Vec::new();
    for run in runs {
        let last = run.page(run.count - 1);
        let (low, high) = (run.start.min(last), run.start.max(last));
        if run.stride.unsigned_abs() <= 1 {
            spans.push(PageRange::new(low, high.raw() - low.raw() + 1));
        } else {
            spans.extend((0..run.count).map(|at| PageRange::one(run.page(at))));
        }
        // Programs come back to the same pages: what is known is not kept twice.
        if spans.len() > 1 << 16 && spans.len().is_power_of_two() {
            merge(&mut spans);
        }
    }
    merge(&mut spans);
    spans
}

fn merge(spans: &mut Vec<PageRange>) {
    spans.sort_unstable_by_key(|span| span.start);
    // By last pages, not by ends: the last page of all has no number after it.
    spans.dedup_by(|span, before| {
        let last = last_page(before);
        let joins = span.start.object() == before.start.object()
            && span.start.raw() <= last.saturating_add(1);
        if joins {
            before.pages = last.max(last_page(span)) - before.start.raw() + 1;
        }
        joins
    });
}

const fn last_page(range: &PageRange) -> u64 {
    range.start.raw() + (range.pages - 1)
}
