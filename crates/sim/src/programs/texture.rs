//! Texture synthesis in two stages, after Subramanian, "Managing Discardable Pages with an External Pager", 1991, section 1.
//!
//! The first stage makes 26 matrices of 512 x 512 doubles, of which 6 are not wanted then; the second reads the other 20 one after the other, and
//! adds them to one more.

use std::collections::VecDeque;

use outpage_core::contract::Access;
use serde::{Deserialize, Serialize};

use super::{Program, Step, run};

/// Matrices that the first stage makes.
const FIRST: u64 = 26;
/// Of those, what the second stage reads.
const SECOND: u64 = 20;

/// Sizes and times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextureParams {
    /// Pages of a matrix; 512 have 512 x 512 doubles.
    pub matrix_pages: u32,
    /// CPU time a page in each stage, nanoseconds.
    pub page_ns: u32,
}

impl Default for TextureParams {
    fn default() -> Self {
        Self {
            matrix_pages: 512,
            // A choice: 512 doubles at 10 operations each and 2 Mflop/s, which compiled code reached on an R3000 of 25 MHz.
            page_ns: 2_500_000,
        }
    }
}

/// The program.
pub struct Texture {
    params: TextureParams,
    steps: VecDeque<Step>,
}

impl Texture {
    /// The program with its matrices in memory object `object`.
    #[must_use]
    pub fn new(params: TextureParams, object: u32) -> Self {
        let pages = u64::from(params.matrix_pages.max(1));
        let matrix = |n: u64| run(object, n * pages, pages);
        let write = |n| Step::Touch {
            run: matrix(n),
            access: Access::Write,
            page_ns: params.page_ns,
        };
        let mut steps = VecDeque::from([
            Step::Map(run(object, 0, (FIRST + 1) * pages)),
            Step::Phase("first"),
        ]);
        steps.extend((0..FIRST).map(write));
        steps.extend((SECOND..FIRST).map(|n| Step::Discardable(matrix(n))));
        steps.push_back(Step::Flush(run(object, 0, FIRST * pages)));
        steps.push_back(Step::Phase("second"));
        for n in 0..SECOND {
            let read = (matrix(n), Access::Read);
            let sum = (matrix(FIRST), Access::Write);
            steps.push_back(Step::Together {
                runs: [read, sum, Step::NO_RUN, Step::NO_RUN],
                page_ns: params.page_ns,
            });
            steps.push_back(Step::Discardable(matrix(n)));
            steps.push_back(Step::Flush(matrix(n)));
        }
        Self { params, steps }
    }
}

impl Program for Texture {
    fn name(&self) -> &'static str {
        "texture"
    }

    fn step(&mut self) -> Step {
        self.steps.pop_front().unwrap_or(Step::End)
    }

    fn footprint(&self) -> u64 {
        (FIRST + 1) * u64::from(self.params.matrix_pages.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::testing::touches;

    #[test]
    fn what_is_touched_and_given_up_is_what_the_paper_says() {
        let params = TextureParams::default();
        let mut program = Texture::new(params, 1);
        // 26 matrices written; 20 read, and one written as often.
        assert_eq!(touches(&mut program), (20 * 512, 46 * 512));
        let mut program = Texture::new(params, 1);
        let mut given_up = 0;
        loop {
            match program.step() {
                Step::Discardable(range) => given_up += range.pages,
                Step::End => break,
                _ => {}
            }
        }
        assert_eq!(given_up, 26 * 512);
    }
}
