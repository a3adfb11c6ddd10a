//! Medians, intervals and text tables.

use serde::Serialize;

/// Median and range of some runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// Median; the mean of the two middle values for an even count.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// How many values there were.
    pub count: usize,
}

impl Spread {
    /// The spread of `values`; `None` for none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        Some(Self {
            median: median_of_sorted(&sorted),
            min,
            max,
            count: sorted.len(),
        })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} [{:.2}-{:.2}]", self.median, self.min, self.max)
    }
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// A mean with the interval that holds it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// Mean of the values.
    pub mean: f64,
    /// Median of the values.
    pub median: f64,
    /// Lower end of the 95 % interval of the mean.
    pub low: f64,
    /// Upper end of the 95 % interval of the mean.
    pub high: f64,
    /// Ends of the 95 % interval of the median; `None` for fewer than 6 values.
    pub median_between: Option<(f64, f64)>,
    /// How many values there were.
    pub count: usize,
}

impl Interval {
    /// Mean and 95 % percentile-bootstrap interval (Efron 1979) from 10,000 resamples with a fixed
    /// seed; `None` for no values.
    pub fn bootstrap(values: &[f64]) -> Option<Self> {
        const RESAMPLES: usize = 10_000;
        let spread = Spread::of(values)?;
        let count = values.len();
        let mut state = 95_u64;
        let mut draw = || {
            // The generator of Knuth's MMIX; its high bits are good enough to pick values.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            values[((u128::from(state) * count as u128) >> 64) as usize]
        };
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| (0..count).map(|_| draw()).sum::<f64>() / count as f64)
            .collect();
        means.sort_by(f64::total_cmp);
        Some(Self {
            mean: values.iter().sum::<f64>() / count as f64,
            median: spread.median,
            low: means[RESAMPLES * 25 / 1000],
            high: means[RESAMPLES * 975 / 1000],
            median_between: median_between(values),
            count,
        })
    }
}

/// The 95 % interval of the median by ranks (that of the sign test), whatever the values' distribution: a
/// run that was disturbed counts as one, however much it was. `None` for fewer than 6 values.
fn median_between(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // Half of 1.96 standard deviations of the number of values below the median.
    let rank = ((count + 1) as f64 / 2.0 - 0.98 * (count as f64).sqrt()).floor();
    (rank >= 1.0).then(|| (sorted[rank as usize - 1], sorted[count - rank as usize]))
}

/// Lines up cells: the first column to the left, the others to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            line += &if column == 0 {
                format!("{cell:<width$}")
            } else {
                format!("  {cell:>width$}")
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The same as a Markdown table; the first row is its head.
pub fn markdown(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        text += &format!("| {} |\n", row.join(" | "));
        if at == 0 {
            text += &format!("|{}\n", "---|".repeat(row.len()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(
            Spread::of(&[3.0, 1.0, 2.0]).unwrap().to_string(),
            "2.00 [1.00-3.00]"
        );
        assert!((Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median - 2.5).abs() < 1e-12);
    }

    #[test]
    fn bootstrap_holds_the_mean_and_narrows_with_agreement() {
        let wide = Interval::bootstrap(&[0.9, 1.0, 1.1, 1.2, 0.8, 1.0]).unwrap();
        assert!(wide.low < wide.mean && wide.mean < wide.high);
        assert!((wide.mean - 1.0).abs() < 1e-12);
        // The interval of the mean of n values is about 2 x 1.96 standard errors wide.
        assert!((0.12..0.24).contains(&(wide.high - wide.low)), "{wide:?}");
        let same = Interval::bootstrap(&[1.5; 15]).unwrap();
        assert!((same.high - same.low).abs() < 1e-12);
    }

    #[test]
    fn median_lies_between_the_ranks_of_the_sign_test() {
        let between = |count: u32| median_between(&(1..=count).map(f64::from).collect::<Vec<_>>());
        // Of the binomial tables: at most 2.5 % lie beyond each rank.
        for (count, low, high) in [(6, 1, 6), (15, 4, 12), (20, 6, 15), (40, 14, 27)] {
            assert_eq!(
                between(count),
                Some((f64::from(low), f64::from(high))),
                "{count}"
            );
        }
        assert_eq!(between(5), None);
    }

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".into(), "10".into()],
            vec!["bbb".into(), "7".into()],
        ];
        assert_eq!(table(&rows), "a    10\nbbb   7\n");
        assert_eq!(markdown(&rows), "| a | 10 |\n|---|---|\n| bbb | 7 |\n");
    }
}
