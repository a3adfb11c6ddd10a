//! Arrays that lie by rows and are walked by columns: the walk alone, and the transposition.
//!
//! Neighbours in time are a row apart. A walk down the columns needs a page of each row at once, for as
//! long as the columns of a page last; what comes along with such a page is of no use before that.

use super::report::{Progress, Recorder};
use super::words::{WORD_BYTES, check, expect, filled, word, words_of};
use super::{Args, Outcome, WorkloadError};

/// The array that is walked, and the one beside it.
const WALKED: u64 = 1;
const BESIDE: u64 = 2;

/// An array by rows, of which each column's words are `step` apart in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    rows: usize,
    row_words: usize,
    step: usize,
}

impl Shape {
    /// As many rows of `row_bytes` as `words` hold, walked every `step_bytes`.
    fn new(words: usize, row_bytes: u32, step_bytes: u32) -> Result<Self, WorkloadError> {
        let whole = |bytes: u32| (bytes as usize).is_multiple_of(WORD_BYTES).then_some(bytes);
        let shape = |row: u32, step: u32| Self {
            rows: words * WORD_BYTES / row as usize,
            row_words: row as usize / WORD_BYTES,
            step: step as usize / WORD_BYTES,
        };
        match (whole(row_bytes), whole(step_bytes)) {
            (Some(row), Some(step)) if step <= row && shape(row, step).rows > 0 => {
                Ok(shape(row, step))
            }
            _ => Err(WorkloadError(format!(
                "rows of {row_bytes} bytes, every {step_bytes}: both must be multiples of {WORD_BYTES}, a step must \
                 not be longer than a row, nor a row than the array"
            ))),
        }
    }

    const fn words(self) -> usize {
        self.rows * self.row_words
    }

    /// Columns that are walked.
    const fn columns(self) -> usize {
        self.row_words / self.step
    }

    /// Words that a walk touches.
    const fn touched(self) -> usize {
        self.rows * self.columns()
    }

    /// The place of the `nth` word that a walk touches: down the first column, then the next one.
    const fn place(self, nth: usize) -> usize {
        (nth % self.rows) * self.row_words + nth / self.rows * self.step
    }

    /// Whether a walk touches this place.
    const fn walks(self, index: usize) -> bool {
        let column = index % self.row_words;
        column.is_multiple_of(self.step) && column / self.step < self.columns()
    }
}

/// One array that is read down its columns; with `--writes` each word is counted up as well. With
/// `--arrays 2`, half of `--mib` each, what is read is added to the second array in the order of
/// that one.
pub fn walk(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let orders = &args.orders;
    let arrays = orders.arrays as usize;
    let shape = Shape::new(
        words_of(args.mib) / arrays,
        orders.row_bytes,
        orders.step_bytes,
    )?;
    let (mut words, mut beside) = recorder.phase("init", |progress| {
        let words = filled(shape.words(), progress, |i| word(WALKED, i));
        let len = if arrays == 2 { shape.words() } else { 0 };
        (words, filled(len, progress, |i| word(BESIDE, i)))
    });
    let passes = u64::from(args.passes.unwrap_or(1));
    recorder.phase("walk", |progress| {
        for pass in 0..passes {
            let version = if orders.writes { pass } else { 0 };
            let mut walk = Walk {
                shape,
                writes: orders.writes,
                version,
            };
            walk.pass(&mut words, &mut beside, progress)?;
        }
        Ok(())
    })?;
    let added = if orders.writes { passes } else { 0 };
    let sum = check("check", &words, recorder, |i| {
        word(WALKED, i).wrapping_add(if shape.walks(i) { added } else { 0 })
    })?;
    // 0 + 1 + ... : a word that is counted up is one more in each pass.
    let versions = if orders.writes {
        passes * passes.saturating_sub(1) / 2
    } else {
        0
    };
    let more = check("beside", &beside, recorder, |i| {
        let read = i.is_multiple_of(shape.step) && i / shape.step < shape.touched();
        let of_walked = || word(WALKED, shape.place(i / shape.step));
        let sum = |first: u64| first.wrapping_mul(passes).wrapping_add(versions);
        word(BESIDE, i).wrapping_add(if read { sum(of_walked()) } else { 0 })
    })?;
    Ok(Outcome {
        checksum: sum ^ more.rotate_left(1),
        verified: passes * shape.touched() as u64 + (words.len() + beside.len()) as u64,
    })
}

/// One pass down all columns.
#[derive(Clone, Copy)]
struct Walk {
    shape: Shape,
    writes: bool,
    /// How often each word that is walked was counted up before.
    version: u64,
}

impl Walk {
    fn pass(
        &mut self,
        words: &mut [u64],
        beside: &mut [u64],
        progress: &mut Progress,
    ) -> Result<(), WorkloadError> {
        let shape = self.shape;
        for nth in 0..shape.touched() {
            let place = shape.place(nth);
            let found = words[place];
            let expected = word(WALKED, place).wrapping_add(self.version);
            expect("walk", place, found, expected)?;
            if self.writes {
                words[place] = found.wrapping_add(1);
            }
            if let Some(sum) = beside.get_mut(nth * shape.step) {
                *sum = sum.wrapping_add(found);
            }
            if nth % shape.rows == 0 {
                progress.at(nth as u64, shape.touched() as u64);
            }
        }
        Ok(())
    }
}

/// A square matrix of words written, transposed, to another one: row by row, or by square tiles.
pub fn transpose(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let n = (words_of(args.mib) / 2).isqrt();
    let tile = args.orders.tile.map_or(n, |tile| tile as usize);
    let (from, mut to) = recorder.phase("init", |progress| {
        let from = filled(n * n, progress, |i| word(WALKED, i));
        (from, filled(n * n, progress, |i| word(BESIDE, i)))
    });
    recorder.phase("transpose", |progress| {
        for top in (0..n).step_by(tile) {
            for left in (0..n).step_by(tile) {
                let corner = (top, left);
                transpose_tile(&from, &mut to, n, corner, tile);
                progress.at((top * n + left * tile) as u64, (n * n) as u64);
            }
        }
    });
    let checksum = check("check", &to, recorder, |i| word(WALKED, i % n * n + i / n))?;
    Ok(Outcome {
        checksum,
        verified: (n * n) as u64,
    })
}

/// The tile with its upper left at `corner`, cut at the edges of the matrices.
fn transpose_tile(from: &[u64], to: &mut [u64], n: usize, corner: (usize, usize), tile: usize) {
    let (top, left) = corner;
    for i in top..(top + tile).min(n) {
        for j in left..(left + tile).min(n) {
            to[j * n + i] = from[i * n + j];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::args;
    use super::*;

    #[test]
    fn a_walk_goes_down_each_column() {
        let shape = Shape::new(24, 32, 16).unwrap();
        assert_eq!((shape.rows, shape.row_words, shape.step), (6, 4, 2));
        let places: Vec<usize> = (0..shape.touched()).map(|n| shape.place(n)).collect();
        assert_eq!(places, [0, 4, 8, 12, 16, 20, 2, 6, 10, 14, 18, 22]);
        assert!((0..24).all(|i| shape.walks(i) == places.contains(&i)));
    }

    #[test]
    fn rows_and_steps_that_leave_a_rest_are_cut() {
        // Three words of five: the column at word 4 would have no whole step.
        let shape = Shape::new(17, 40, 16).unwrap();
        assert_eq!((shape.rows, shape.columns()), (3, 2));
        let places: Vec<usize> = (0..shape.touched()).map(|n| shape.place(n)).collect();
        assert_eq!(places, [0, 5, 10, 2, 7, 12]);
        assert!((0..15).all(|i| shape.walks(i) == places.contains(&i)));
        for (row, step) in [(24_001, 64), (24_000, 60), (64, 128), (1024, 8)] {
            assert!(Shape::new(64, row, step).is_err(), "{row} {step}");
        }
    }

    #[test]
    fn walks_of_all_kinds_hold_what_they_wrote() {
        for more in [
            "",
            "--arrays 2",
            "--writes --passes 3",
            "--arrays 2 --writes --passes 3 --row-bytes 1000 --step-bytes 72",
        ] {
            let args = args(&format!("column --mib 1 {more}"));
            let outcome = walk(&args, &mut Recorder::new(false)).unwrap();
            assert!(outcome.verified > 0, "{more}");
        }
    }

    #[test]
    fn a_word_that_changes_in_between_is_found() {
        let shape = Shape::new(24, 32, 16).unwrap();
        let mut recorder = Recorder::new(false);
        let mut walk = |words: &mut [u64], version| {
            let mut walk = Walk {
                shape,
                writes: true,
                version,
            };
            recorder.phase("walk", |p| walk.pass(words, &mut [], p))
        };
        let mut words: Vec<u64> = (0..24).map(|i| word(WALKED, i)).collect();
        walk(&mut words, 0).unwrap();
        walk(&mut words, 1).unwrap();
        words[12] ^= 1;
        let error = walk(&mut words, 2).unwrap_err();
        assert!(error.to_string().contains("word 12:"), "{error}");
    }

    #[test]
    fn tiles_of_any_size_transpose() {
        for tile in ["", "--tile 1", "--tile 100", "--tile 4096"] {
            let args = args(&format!("transpose --mib 1 {tile}"));
            transpose(&args, &mut Recorder::new(false)).unwrap();
        }
        let mut to = [0; 9];
        transpose_tile(&[1, 2, 3, 4, 5, 6, 7, 8, 9], &mut to, 3, (1, 0), 2);
        assert_eq!(to, [0, 4, 7, 0, 5, 8, 0, 0, 0]);
    }
}
