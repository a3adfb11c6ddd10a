//! SciMark2's SOR: a matrix of separately allocated rows, swept again and again.
//!
//! SciMark2 C: each row is allocated and filled with random numbers, then sweeps in place: row i is
//! written from rows i-1, i+1 and itself, for all but the first and the last row. The program
//! sweeps 1, 2, 4 ... times until one such group took two seconds of CPU time.

use outpage_core::contract::Access;
use outpage_core::units::PageRange;
use serde::{Deserialize, Serialize};

use super::{Layout, Program, Rows, Step, run};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SorParams {
    /// Rows and columns.
    pub n: u64,
    /// Sweeps in all. 7 are three groups: 1 + 2 + 4.
    pub sweeps: u32,
    /// How the rows lie.
    pub layout: Layout,
    /// CPU time to fill a page with random numbers, nanoseconds.
    pub init_ns: u32,
    /// CPU time to compute a page of a row, nanoseconds.
    pub sweep_ns: u32,
}

impl Default for SorParams {
    /// The MOC paper's matrix. The two CPU times stand in the ratio of a measured run on today's
    /// machine (0.55 s for the initialisation, 0.20 s a sweep) and add up, with 7 sweeps and the
    /// zero-fill faults, to the paper's 5 s without paging (Table 1, 1 GB).
    fn default() -> Self {
        Self {
            n: 8000,
            sweeps: 7,
            layout: Layout::Phkmalloc,
            init_ns: 9_400,
            sweep_ns: 4_000,
        }
    }
}

/// The generator. The program's array of row pointers lies before the rows.
pub struct Sor {
    params: SorParams,
    object: u32,
    rows: Rows,
    pointer_pages: u64,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Start,
    Named,
    Init(u64),
    Sweep { sweep: u32, row: u64 },
}

impl Sor {
    /// The program in memory object `object`.
    ///
    /// # Panics
    /// With less than 3 rows.
    #[must_use]
    pub fn new(params: SorParams, object: u32) -> Self {
        assert!(params.n >= 3, "SOR needs an inner row");
        // Pointers of 8 bytes; 4 on i386, which is a few pages less.
        let pointer_pages = (8 * params.n).div_ceil(4096);
        Self {
            params,
            object,
            rows: Rows::new(params.layout, object, pointer_pages, params.n, 8 * params.n),
            pointer_pages,
            state: State::Start,
        }
    }

    fn sweep_row(&self, i: u64) -> Step {
        let own = self.rows.row(i);
        Step::Together {
            runs: [
                (self.rows.row(i - 1), Access::Read),
                (self.rows.row(i + 1), Access::Read),
                (own, Access::Write),
                Step::NO_RUN,
            ],
            page_ns: self.params.sweep_ns,
        }
    }
}

impl Program for Sor {
    fn name(&self) -> &'static str {
        "sor"
    }

    fn footprint(&self) -> u64 {
        self.pointer_pages + self.rows.touched()
    }

    fn step(&mut self) -> Step {
        let n = self.params.n;
        match self.state {
            State::Start => {
                self.state = State::Named;
                let pages = self.pointer_pages + self.rows.span().pages;
                Step::Map(run(self.object, 0, pages))
            }
            State::Named => {
                self.state = State::Init(0);
                Step::Phase("init")
            }
            State::Init(row) if row < n => {
                self.state = State::Init(row + 1);
                let pointer = run(self.object, row * 8 / 4096, 1);
                Step::Together {
                    runs: [
                        (self.rows.row(row), Access::Write),
                        (pointer, Access::Write),
                        Step::NO_RUN,
                        Step::NO_RUN,
                    ],
                    page_ns: self.params.init_ns,
                }
            }
            State::Init(_) => {
                self.state = State::Sweep { sweep: 0, row: 1 };
                Step::Phase("sweeps")
            }
            State::Sweep { sweep, .. } if sweep == self.params.sweeps => Step::End,
            State::Sweep { sweep, row } => {
                let last = row == n - 2;
                self.state = State::Sweep {
                    sweep: sweep + u32::from(last),
                    row: if last { 1 } else { row + 1 },
                };
                self.sweep_row(row)
            }
        }
    }
}

/// The pages of one row, for tests and examples.
impl Sor {
    /// Where row `i` lies.
    #[must_use]
    pub fn row(&self, i: u64) -> PageRange {
        self.rows.row(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::testing::touches;

    #[test]
    fn the_footprint_is_the_papers_502_mb() {
        let sor = Sor::new(SorParams::default(), 1);
        // 500 MiB of rows and the pointers; the paper's 502 MB hold the program as well.
        assert_eq!(sor.footprint(), 128_000 + 16);
    }

    #[test]
    fn a_sweep_touches_three_rows_for_each_inner_row() {
        let touched = |sweeps| {
            touches(&mut Sor::new(
                SorParams {
                    sweeps,
                    ..SorParams::default()
                },
                1,
            ))
        };
        let (init, one) = (touched(0), touched(1));
        assert_eq!(init, (0, 128_000 + 8_000));
        assert_eq!(
            (one.0 - init.0, one.1 - init.1),
            (2 * 7_998 * 16, 7_998 * 16)
        );
    }

    #[test]
    fn rows_come_in_order() {
        let params = SorParams {
            n: 512,
            sweeps: 1,
            ..SorParams::default()
        };
        let mut sor = Sor::new(params, 3);
        let mut firsts = Vec::new();
        loop {
            match sor.step() {
                Step::Together { runs, .. } => firsts.push(runs[0].0.start.index()),
                Step::End => break,
                _ => {}
            }
        }
        // A row is one page, behind one page of pointers.
        assert_eq!(firsts[..3], [1, 2, 3]);
        assert_eq!(firsts[512..515], [1, 2, 3]);
        assert_eq!(firsts.len(), 512 + 510);
    }
}
