//! Arrays by rows that are walked by columns, and the transposition.

use std::collections::VecDeque;

use outpage_core::units::PAGE_BYTES;
use serde::{Deserialize, Serialize};

use super::order::{Order, Touch};

const PAGE: u64 = PAGE_BYTES as u64;

/// Parameters of the walk down the columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColumnParams {
    /// Pages of the array, or of both.
    pub pages: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Bytes from a place that is walked to the next one of its row.
    pub step_bytes: u64,
    /// With 2, what is read goes to a second array of the same size, in the order of that one.
    pub arrays: u64,
    /// Whether what is read is written as well.
    pub writes: bool,
    /// Walks over all columns.
    pub passes: u64,
    /// CPU time of a touch, nanoseconds.
    pub touch_ns: u32,
}

impl Default for ColumnParams {
    /// 64 MiB, in rows that are no multiple of a page. The time is what `outpage workload column` takes
    /// without a limit: 14 ms for 1,048,500 touches.
    fn default() -> Self {
        Self {
            pages: 16_384,
            row_bytes: 24_000,
            step_bytes: 64,
            arrays: 1,
            writes: false,
            passes: 1,
            touch_ns: 13,
        }
    }
}

impl ColumnParams {
    const fn rows(&self) -> u64 {
        self.pages / self.arrays * PAGE / self.row_bytes
    }

    const fn array_pages(&self) -> u64 {
        (self.rows() * self.row_bytes).div_ceil(PAGE)
    }

    /// Touches of the walked array in a pass.
    const fn touches(&self) -> u64 {
        self.rows() * (self.row_bytes / self.step_bytes)
    }

    /// What is wrong with the parameters, if anything.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self) -> Result<(), String> {
        if !matches!(self.arrays, 1 | 2) {
            return Err(format!("arrays is {}, but must be 1 or 2", self.arrays));
        }
        if self.step_bytes == 0 || self.row_bytes < self.step_bytes || self.rows() == 0 {
            let (row, step) = (self.row_bytes, self.step_bytes);
            return Err(format!(
                "rows of {row} bytes, every {step}: a step must be shorter than a row, a row than the array"
            ));
        }
        Ok(())
    }
}

/// Down the first column, then down the next one.
pub struct Column {
    params: ColumnParams,
    nth: u64,
}

impl Column {
    /// # Panics
    /// With parameters that [`ColumnParams::check`] refuses.
    #[must_use]
    pub fn new(params: ColumnParams) -> Self {
        params.check().expect("parameters were checked");
        Self { params, nth: 0 }
    }
}

impl Order for Column {
    const NAME: &'static str = "column";

    fn pages(&self) -> u64 {
        self.params.array_pages() * self.params.arrays
    }

    fn next(&mut self, touches: &mut VecDeque<Touch>) {
        let p = &self.params;
        if self.nth == p.touches() * p.passes {
            return;
        }
        let nth = self.nth % p.touches();
        self.nth += 1;
        let (row, column) = (nth % p.rows(), nth / p.rows());
        let place = row * p.row_bytes + column * p.step_bytes;
        touches.push_back(Touch::one(place / PAGE, p.writes));
        if p.arrays == 2 {
            let beside = nth * p.step_bytes / PAGE;
            touches.push_back(Touch::write(p.array_pages() + beside));
        }
    }
}

/// Parameters of the transposition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransposeParams {
    /// Pages of both matrices.
    pub pages: u64,
    /// Elements of a tile's side; 0 transposes row by row, without tiles.
    pub tile: u64,
    /// Bytes of an element.
    pub element_bytes: u64,
    /// CPU time of a touch, nanoseconds.
    pub touch_ns: u32,
}

impl Default for TransposeParams {
    /// 64 MiB. The time is what `outpage workload transpose` takes without a limit: 33 ms for 2048 times
    /// 2048 words.
    fn default() -> Self {
        Self {
            pages: 16_384,
            tile: 0,
            element_bytes: 8,
            touch_ns: 8,
        }
    }
}

impl TransposeParams {
    /// Rows and columns.
    const fn n(&self) -> u64 {
        (self.pages / 2 * PAGE / self.element_bytes).isqrt()
    }

    const fn matrix_pages(&self) -> u64 {
        (self.n() * self.n() * self.element_bytes).div_ceil(PAGE)
    }
}

/// Row by row of the first matrix, or of each of its tiles, a column of the second.
pub struct Transpose {
    params: TransposeParams,
    n: u64,
    tile: u64,
    /// The upper left of the tile, and the element within it that comes next, row and column.
    corner: (u64, u64),
    at: (u64, u64),
}

impl Transpose {
    /// The order with these parameters.
    ///
    /// # Panics
    /// When a matrix has no element.
    #[must_use]
    pub fn new(params: TransposeParams) -> Self {
        let n = params.n();
        assert!(n > 0, "a matrix has elements");
        let tile = if params.tile == 0 { n } else { params.tile };
        Self {
            params,
            n,
            tile: tile.min(n),
            corner: (0, 0),
            at: (0, 0),
        }
    }

    const fn page(&self, row: u64, column: u64) -> u64 {
        (row * self.n + column) * self.params.element_bytes / PAGE
    }

    /// To the element behind the present one: in its row of the tile, the next row, the next tile.
    const fn advance(&mut self) {
        let (top, left) = self.corner;
        self.at.1 += 1;
        if self.at.1 < self.tile && left + self.at.1 < self.n {
            return;
        }
        self.at = (self.at.0 + 1, 0);
        if self.at.0 < self.tile && top + self.at.0 < self.n {
            return;
        }
        self.at = (0, 0);
        self.corner = if left + self.tile < self.n {
            (top, left + self.tile)
        } else {
            (top + self.tile, 0)
        };
    }
}

impl Order for Transpose {
    const NAME: &'static str = "transpose";

    fn pages(&self) -> u64 {
        2 * self.params.matrix_pages()
    }

    fn next(&mut self, touches: &mut VecDeque<Touch>) {
        if self.corner.0 >= self.n {
            return;
        }
        let (row, column) = (self.corner.0 + self.at.0, self.corner.1 + self.at.1);
        let to = self.params.matrix_pages() + self.page(column, row);
        touches.push_back(Touch::read(self.page(row, column)));
        touches.push_back(Touch::write(to));
        self.advance();
    }
}

#[cfg(test)]
mod tests {
    use outpage_core::contract::Access::{Read, Write};

    use super::super::order::testing::{collapsed, pages};
    use super::*;

    #[test]
    fn a_walk_is_the_two_loops_of_a_program() {
        for (row_bytes, step_bytes, arrays) in [(24_000, 64, 1), (1000, 72, 2), (4096, 1024, 2)] {
            for writes in [false, true] {
                let params = ColumnParams {
                    pages: 100,
                    row_bytes,
                    step_bytes,
                    arrays,
                    writes,
                    passes: 2,
                    touch_ns: 1,
                };
                let rows = 100 / arrays * 4096 / row_bytes;
                let beside = (rows * row_bytes).div_ceil(4096);
                let mut naive = Vec::new();
                for _ in 0..2 {
                    let mut to = 0;
                    for column in (0..row_bytes / step_bytes).map(|c| c * step_bytes) {
                        for row in 0..rows {
                            let access = if writes { Write } else { Read };
                            naive.push(((row * row_bytes + column) / 4096, access));
                            if arrays == 2 {
                                naive.push((beside + to / 4096, Write));
                                to += step_bytes;
                            }
                        }
                    }
                }
                assert_eq!(pages(Column::new(params)), collapsed(naive), "{params:?}");
            }
        }
    }

    #[test]
    fn a_transposition_is_the_loops_of_a_program() {
        for tile in [0, 1, 7, 32, 1000] {
            let params = TransposeParams {
                pages: 100,
                tile,
                ..TransposeParams::default()
            };
            let n = (50_u64 * 512).isqrt();
            let side = if tile == 0 { n } else { tile };
            let to = (n * n * 8).div_ceil(4096);
            let mut naive = Vec::new();
            for top in (0..n).step_by(side as usize) {
                for left in (0..n).step_by(side as usize) {
                    for i in top..(top + side).min(n) {
                        for j in left..(left + side).min(n) {
                            naive.push(((i * n + j) * 8 / 4096, Read));
                            naive.push((to + (j * n + i) * 8 / 4096, Write));
                        }
                    }
                }
            }
            assert_eq!(pages(Transpose::new(params)), collapsed(naive), "{tile}");
        }
    }

    #[test]
    fn shapes_without_a_row_or_a_column_are_refused() {
        let refused = |row_bytes, step_bytes, arrays| {
            let params = ColumnParams {
                pages: 2,
                row_bytes,
                step_bytes,
                arrays,
                ..ColumnParams::default()
            };
            params.check().is_err()
        };
        assert!(!refused(8192, 8192, 1));
        assert!(refused(8192, 8, 2) && refused(8, 16, 1) && refused(8, 0, 1) && refused(8, 8, 3));
    }
}
