//! A figure over several runs that differ in what was drawn.

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
    /// Where the middle 95 % of the values lie: between the 2.5th and the 97.5th percentile, by straight lines between the values.
    pub interval: (f64, f64),
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
            interval: (percentile(&values, 0.025), percentile(&values, 0.975)),
        })
    }

    /// The same figure in other units, which may turn it round.
    pub(super) fn map(self, unit: impl Fn(f64) -> f64) -> Self {
        let in_order = |(a, b): (f64, f64)| (unit(a).min(unit(b)), unit(a).max(unit(b)));
        let (low, high) = in_order((self.low, self.high));
        Self {
            median: unit(self.median),
            low,
            high,
            interval: in_order(self.interval),
        }
    }

    /// The interval in words; nothing for a single value.
    pub(super) fn interval_words(self, word: impl Fn(f64) -> String) -> String {
        let (low, high) = self.interval;
        if low == high {
            return String::new();
        }
        format!("{} to {}", word(low), word(high))
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

/// Of values in order.
fn percentile(values: &[f64], part: f64) -> f64 {
    let at = part * (values.len() - 1) as f64;
    let below = values[at.floor() as usize];
    below + (values[at.ceil() as usize] - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_leaves_a_fortieth_out_at_each_end() {
        let spread = Spread::of((0..=40).map(f64::from)).expect("41");
        assert_eq!(spread.interval, (1.0, 39.0));
        let part = spread.map(|v| -v);
        assert_eq!(
            (part.low, part.high, part.interval),
            (-40.0, 0.0, (-39.0, -1.0))
        );
        assert_eq!(Spread::of([7.0]).map(|s| s.interval), Some((7.0, 7.0)));
    }

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
