//! The orders that the paper's tables show, and where they hold here.

use super::setups::{ASP, EVERY_FIND, OF_ASP, by_memory, variations};
use super::{Point, each_draw, head};
use crate::paper::runs::Runs;
use crate::paper::spread::Spread;
use crate::paper::table::{Table, short};

/// An order, in words, and by how much it holds in a run: above 0 where it does.
type Order = (&'static str, fn(Point) -> Option<f64>);

const LINUX: &str = "page-cluster 3";

const ORDERS: [Order; 8] = [
    (
        "hit rate falls from page-cluster 3 to 4 to 5, points",
        |p| {
            let rates = [3, 4, 5].map(|n| p.hit_rate(&format!("page-cluster {n}")));
            let [three, four, five] = rates;
            Some((three? - four?).min(four? - five?))
        },
    ),
    ("hit rate of ASP within 5 points of page-cluster 3", |p| {
        Some(5.0 - (p.hit_rate(ASP)? - p.hit_rate(LINUX)?).abs())
    }),
    ("ASP reads more pages a page-in than page-cluster 3", |p| {
        Some(p.pages_a_swap_in(ASP)? - p.pages_a_swap_in(LINUX)?)
    }),
    ("ASP ahead of page-cluster 3 under CFQ, %", |p| {
        p.asp_gain("cfq")
    }),
    ("ASP ahead of page-cluster 3 under anticipatory, %", |p| {
        p.asp_gain("anticipatory")
    }),
    ("ASP with two slots ahead of one under CFQ, %", |p| {
        p.gain(["cfq", "asp"], ["cfq", ASP])
    }),
    ("anticipatory ahead of CFQ with page-cluster 3, %", |p| {
        p.anticipatory_gain(LINUX)
    }),
    ("anticipatory ahead of CFQ with ASP, %", |p| {
        p.anticipatory_gain(ASP)
    }),
];

/// By how much an order holds in each run of a variant.
fn margins(runs: &Runs, variant: &str, (name, margin): Order) -> Vec<f64> {
    // Under a variation of ASP with one slot all else is as at 512 MB.
    let of_asp = OF_ASP.iter().any(|of| of.0.name() == variant);
    if of_asp && (!name.contains("ASP") || name.contains("two slots")) {
        return Vec::new();
    }
    if EVERY_FIND.name() == variant && !name.contains("hit rate") {
        return Vec::new();
    }
    each_draw(runs, variant, margin)
}

/// The median, and in how many of the runs the order holds.
fn cell(margins: &[f64]) -> String {
    let held = margins.iter().filter(|by| **by > 0.0).count();
    let Some(by) = Spread::of(margins.iter().copied()) else {
        return "-".to_owned();
    };
    let sign = if by.median > 0.0 { "+" } else { "" };
    format!("{sign}{}: {held} of {}", short(by.median), margins.len())
}

/// How many of a variant's orders hold by the median.
fn held(all: &[Vec<f64>]) -> String {
    let medians = all.iter().filter_map(|of| Spread::of(of.iter().copied()));
    let medians: Vec<f64> = medians.map(|by| by.median).collect();
    let held = medians.iter().filter(|by| **by > 0.0).count();
    format!("{held} of {}", medians.len())
}

/// By memory size, then by what is varied at 512 MB.
pub(super) fn orders(runs: &Runs) -> Table {
    let sizes = by_memory().into_iter();
    let mut variants: Vec<(String, String)> = sizes
        .map(|(percent, variant)| (format!("memory {percent} %"), variant))
        .collect();
    for variation in variations() {
        let name = variation.name();
        if variants.iter().all(|known| known.1 != name) {
            variants.push((name.clone(), name));
        }
    }
    let row = |(title, variant): (String, String)| {
        let all = ORDERS.map(|order| margins(runs, &variant, order));
        let cells = all.iter().map(|of| cell(of));
        [title, held(&all)].into_iter().chain(cells).collect()
    };
    let rows = variants.into_iter().map(row).collect();
    Table {
        title: "Which orders of the paper hold: how many, then by how much each (the median; above 0 it holds) and in how \
                many of the runs; by memory, and at 512 MB (53.3 %) by what is varied"
            .to_owned(),
        head: [head(&["", "hold by the median"]), ORDERS.map(|order| order.0.to_owned()).to_vec()].concat(),
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_holds_by_its_median_and_says_in_how_many_runs() {
        assert_eq!(cell(&[-1.0, 3.0, 2.0]), "+2: 2 of 3");
        assert_eq!(cell(&[-1.0, -3.0, 2.0]), "-1: 1 of 3");
        assert_eq!(cell(&[]), "-");
        assert_eq!(held(&[vec![1.0], vec![-1.0, -2.0, 9.0], vec![]]), "1 of 2");
    }
}
