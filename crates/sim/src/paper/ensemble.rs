//! Answers over many draws: one run is a throw of dice.

use std::ops::RangeInclusive;

use super::draw::DRAWS;
use super::evaluation::Ours;
use super::runs::{RunKey, Runs};
use super::spread::Spread;
use super::verdict::Held;
use crate::world::Report;

/// A variant's name: the runs without any variation, at the draws that variations have. These are compared.
pub(super) const COMPARED: &str = "as in all runs";

/// The runs of one variant at one draw.
#[derive(Clone, Copy)]
pub(super) struct Sample<'a> {
    pub runs: &'a Runs,
    pub variant: &'a str,
    pub draw: u64,
}

impl<'a> Sample<'a> {
    /// The report of a run, if there is one and it came to its end.
    pub fn report(self, memory: &str, workload: &str, policy: &str) -> Option<&'a Report> {
        let key = RunKey::new(memory, workload, policy);
        self.runs.get(&key.varied(self.variant).seeded(self.draw))
    }

    /// Those of two policies.
    pub fn pair(
        self,
        memory: &str,
        workload: &str,
        policies: [&str; 2],
    ) -> Option<[&'a Report; 2]> {
        let [first, second] = policies.map(|p| self.report(memory, workload, p));
        Some([first?, second?])
    }

    /// The same draw without variation.
    pub const fn unvaried(self) -> Self {
        Self {
            variant: "",
            ..self
        }
    }
}

/// The draws of a variant: all of them without one, `varied` under one and where the two are compared.
pub(super) fn samples<'a>(
    runs: &'a Runs,
    variant: &'a str,
    varied: RangeInclusive<u64>,
) -> impl Iterator<Item = Sample<'a>> {
    let draws = if variant.is_empty() { DRAWS } else { varied };
    let variant = if variant == COMPARED { "" } else { variant };
    draws.map(move |draw| Sample {
        runs,
        variant,
        draw,
    })
}

/// A figure over all draws; `None` where no run has it.
pub(super) fn middle(runs: &Runs, figure: impl Fn(Sample) -> Option<f64>) -> Option<Spread> {
    Spread::of(samples(runs, "", 0..=0).filter_map(figure))
}

/// One answer of those at each draw: a spread of numbers; words as at the first draw, and in how many they hold. Nothing
/// where a single draw has none.
pub(super) fn combined(answers: impl Iterator<Item = Ours>) -> Ours {
    let (mut numbers, mut words, mut held) = (Vec::new(), None, None);
    for answer in answers {
        match answer {
            Ours::Number(number) => numbers.push(number),
            Ours::Text(text, holds) => {
                words.get_or_insert(text);
                if let Some(holds) = holds {
                    let so_far: &mut Held = held.get_or_insert(Held { held: 0, of: 0 });
                    so_far.held += holds.held;
                    so_far.of += holds.of;
                }
            }
            Ours::Spread(_) | Ours::Against(_) | Ours::None => return Ours::None,
        }
    }
    match (words, Spread::of(numbers)) {
        (Some(text), _) => Ours::Text(text, held),
        (None, Some(spread)) => Ours::Spread(spread),
        (None, None) => Ours::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_a_spread_and_words_are_counted() {
        let numbers = [3.0, 1.0, 2.0].map(Ours::Number);
        let Ours::Spread(spread) = combined(numbers.into_iter()) else {
            panic!("a spread");
        };
        assert_eq!((spread.median, spread.low, spread.high), (2.0, 1.0, 3.0));
        let word = |text: &str, holds| Ours::Text(text.to_owned(), Some(Held::once(holds)));
        let words = [
            word("first", true),
            word("second", false),
            word("third", true),
        ];
        let held = Held { held: 2, of: 3 };
        assert_eq!(
            combined(words.into_iter()),
            Ours::Text("first".to_owned(), Some(held))
        );
    }

    #[test]
    fn a_draw_without_result_leaves_no_answer() {
        assert_eq!(
            combined([Ours::Number(1.0), Ours::None].into_iter()),
            Ours::None
        );
        assert_eq!(combined(std::iter::empty()), Ours::None);
    }
}
