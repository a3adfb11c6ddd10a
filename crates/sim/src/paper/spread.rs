//! A figure over several runs that differ in nothing but their random numbers.

use std::fmt;

use super::table::short;

/// The median of a figure, and the least and the most of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The middle one; of an even number of them, the mean of the middle two.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Spread {
    /// Of these values; `None` where there is none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() {
            0 => return None,
            n if n % 2 == 1 => values[middle],
            _ => f64::midpoint(values[middle - 1], values[middle]),
        };
        Some(Self {
            median,
            low: values[0],
            high: values[values.len() - 1],
        })
    }

    /// With two decimals: for ratios.
    pub(super) fn ratio(self) -> String {
        self.words(|v| format!("{v:.2}"))
    }

    fn words(self, word: impl Fn(f64) -> String) -> String {
        let [median, low, high] = [self.median, self.low, self.high].map(word);
        if low == high {
            return median;
        }
        format!("{median} ({low} to {high})")
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(short))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_middle_one_and_the_ends_in_any_order() {
        let spread = Spread::of([3.0, 1.0, 1000.0, 2.0, 7.0]).expect("five");
        assert_eq!((spread.median, spread.low, spread.high), (3.0, 1.0, 1000.0));
        assert_eq!(spread.to_string(), "3 (1 to 1,000)");
        assert_eq!(Spread::of([1.0, 4.0]).map(|s| s.median), Some(2.5));
        assert_eq!(Spread::of([]), None);
        assert_eq!(
            Spread::of([0.25]).map(Spread::ratio),
            Some("0.25".to_owned())
        );
    }
}
