//! What an evaluation answers claims with, and what its variations make of each answer.

use super::claims::{Claim, Published};
use super::ensemble::COMPARED;
use super::evaluation::{Moves, Nearest, Ours, Row, deviation};
use super::runs::{Runs, Variation};
use super::table::{Table, short};
use super::verdict::{Class, Verdict};

/// What an evaluation answers claims with.
pub(super) struct Answers<'a> {
    pub runs: &'a Runs,
    pub variations: &'a [Variation],
    /// The answer to a claim from the runs of a variant; [`COMPARED`] is that of the runs without variation which the others are
    /// compared with.
    pub answer: fn(&Runs, &str, &[&str]) -> Ours,
    /// What a claim's row rests on.
    pub class: fn(&[&str]) -> Class,
    /// What is said of a claim that is not met, besides the variations.
    pub remark: fn(&[&str]) -> &'static str,
}

/// What the rows that a variation has figures for come to.
struct Joint {
    name: String,
    /// Independent rows with a figure under it, and how many of them it meets.
    of: usize,
    met: usize,
    /// How many of the same are met without it.
    unvaried: usize,
}

impl Answers<'_> {
    /// All rows.
    pub fn rows(&self, claims: Vec<Claim>) -> Vec<Row> {
        let joint = self.joint(&claims);
        let row = |claim| self.row(claim, &joint);
        claims.into_iter().map(row).collect()
    }

    /// How many independent rows each variation meets together.
    pub fn joint_table(&self, claims: &[Claim]) -> Table {
        let rows = self.joint(claims).into_iter().map(|joint| {
            let without = joint.unvaried.to_string();
            vec![
                joint.name,
                joint.met.to_string(),
                without,
                joint.of.to_string(),
            ]
        });
        Table {
            title: "Independent rows that each variation meets together: of those it has figures for, by as many runs without it".to_owned(),
            head: ["", "met with it", "without it", "rows"].map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    }

    fn joint(&self, claims: &[Claim]) -> Vec<Joint> {
        let of = |name: String| {
            let mut joint = Joint {
                name,
                of: 0,
                met: 0,
                unvaried: 0,
            };
            for claim in claims
                .iter()
                .filter(|claim| (self.class)(&claim.keys()) == Class::Independent)
            {
                let keys = claim.keys();
                let varied = (self.answer)(self.runs, &joint.name, &keys);
                let unvaried = (self.answer)(self.runs, COMPARED, &keys);
                let met = |ours: &Ours| ours.verdict(&claim.published, points(claim));
                if varied == Ours::None || met(&varied) == Verdict::NotJudged {
                    continue;
                }
                joint.of += 1;
                joint.met += usize::from(met(&varied) == Verdict::Met);
                joint.unvaried += usize::from(met(&unvaried) == Verdict::Met);
            }
            joint
        };
        let all = self.variations.iter().map(|variation| of(variation.name()));
        all.filter(|joint| joint.of > 0).collect()
    }

    fn row(&self, claim: Claim, joint: &[Joint]) -> Row {
        let keys = claim.keys();
        let ours = (self.answer)(self.runs, "", &keys);
        let class = (self.class)(&keys);
        let points = match &ours {
            Ours::Against(against) => against.points,
            _ => points(&claim),
        };
        let verdict = ours.verdict(&claim.published, points);
        let published = published(&claim, &ours);
        let deviation = published
            .zip(ours.number())
            .and_then(|(p, o)| deviation(p, o, points));
        let mut row = Row {
            claim,
            ours,
            class,
            verdict,
            deviation,
            points,
            remark: "",
            note: String::new(),
            moves: None,
            nearest: None,
        };
        if matches!(verdict, Verdict::Missed | Verdict::Undetermined) {
            self.explain(&mut row, joint);
        }
        row
    }

    /// Fills in the remark, what each varied cause makes of our figure, and the variation that comes nearest to the published one.
    fn explain(&self, row: &mut Row, joint: &[Joint]) {
        let keys = row.claim.keys();
        let mut parts: Vec<String> = Vec::new();
        row.remark = (self.remark)(&keys);
        if !row.remark.is_empty() {
            parts.push(row.remark.to_owned());
        }
        let mut causes: Vec<(&str, Vec<String>)> = Vec::new();
        let (mut numbers, mut idle) = (Vec::new(), Vec::new());
        let compared = (self.answer)(self.runs, COMPARED, &keys);
        for variation in self.variations {
            let varied = (self.answer)(self.runs, &variation.name(), &keys);
            if varied == compared {
                idle.push(variation.name());
                continue;
            }
            if let Some(ours) = varied.number() {
                numbers.push((variation, ours));
            }
            let text = match varied {
                Ours::Number(ours) => short(ours),
                Ours::Spread(ours) => ours.to_string(),
                Ours::Against(against) => against.text,
                Ours::Text(text, _) => text,
                Ours::None => continue,
            };
            let value = format!("{} gives {text}", variation.value);
            match causes.iter_mut().find(|c| c.0 == variation.cause) {
                Some(cause) => cause.1.push(value),
                None => causes.push((variation.cause, vec![value])),
            }
        }
        if let (false, Some(base)) = (numbers.is_empty(), compared.number()) {
            parts.push(format!("Compared with {}, at the same draws.", short(base)));
        }
        let causes = causes.iter();
        parts.extend(causes.map(|(cause, values)| format!("{cause}: {}.", values.join(", "))));
        if !idle.is_empty() {
            parts.push(format!("Without effect: {}.", idle.join("; ")));
        }
        row.note = parts.join(" ");
        let Some(base) = compared.number() else {
            return;
        };
        row.nearest = published(&row.claim, &row.ours)
            .and_then(|published| nearest_of(published, base, &numbers, joint));
        row.moves = Some(moves_of(base, &numbers));
    }
}

/// The number that ours is compared with.
const fn published(claim: &Claim, ours: &Ours) -> Option<f64> {
    match (&claim.published, ours) {
        (_, Ours::Against(against)) => Some(against.published),
        (Published::Number(number), _) => Some(*number),
        (Published::Text(_), _) => None,
    }
}

fn points(claim: &Claim) -> bool {
    claim.path.iter().any(|key| key.contains("percent"))
}

/// Variations that a page names of a row: more are a wall of words.
const NAMED: usize = 4;

/// Those that move our figure furthest; of equal ones the first.
fn moves_of(base: f64, varied: &[(&Variation, f64)]) -> Moves {
    let by = |ours: f64| (ours - base).abs();
    let mut order = varied.to_vec();
    order.sort_by(|a, b| by(b.1).total_cmp(&by(a.1)));
    let most = order.iter().take(NAMED);
    Moves {
        from: base,
        most: most.map(|(varied, ours)| (varied.name(), *ours)).collect(),
        others: order.len().saturating_sub(NAMED),
    }
}

/// The variation that comes nearest to the published figure; none where nothing that was varied comes nearer than the runs without.
fn nearest_of(
    published: f64,
    base: f64,
    varied: &[(&Variation, f64)],
    joint: &[Joint],
) -> Option<Nearest> {
    let off = |ours: f64| (ours - published).abs();
    let (variation, ours) = varied.iter().min_by(|a, b| off(a.1).total_cmp(&off(b.1)))?;
    let name = variation.name();
    let together = joint.iter().find(|joint| joint.name == name);
    (off(*ours) < off(base)).then(|| Nearest {
        joint: together.map_or((0, 0, 0), |joint| (joint.met, joint.of, joint.unvaried)),
        name,
        ours: *ours,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_variation_is_nearer_than_none() {
        let variation = |value| Variation {
            cause: "cause",
            value,
            workloads: &[],
            apply: |_| {},
        };
        let (a, b) = (variation("a"), variation("b"));
        let joint = [Joint {
            name: "cause: a".to_owned(),
            of: 6,
            met: 2,
            unvaried: 4,
        }];
        let nearest = |varied: &[(&Variation, f64)]| nearest_of(75.0, 50.0, varied, &joint);
        let found = nearest(&[(&a, 90.0), (&b, 30.0)]).expect("a is nearer");
        assert_eq!(
            (found.name.as_str(), found.ours, found.joint),
            ("cause: a", 90.0, (2, 6, 4))
        );
        assert_eq!(nearest(&[(&b, 20.0)]), None);
        assert_eq!(nearest(&[]), None);
    }

    #[test]
    fn what_moves_a_row_furthest_is_named_first_and_the_rest_is_counted() {
        let variation = |value| Variation {
            cause: "cause",
            value,
            workloads: &[],
            apply: |_| {},
        };
        let all = ["a", "b", "c", "d", "e", "f"].map(variation);
        let figures = [11.0, 40.0, -30.0, 10.5, 9.0, 12.0];
        let varied: Vec<_> = all.iter().zip(figures).collect();
        let moves = moves_of(10.0, &varied);
        let names: Vec<_> = moves.most.iter().map(|most| most.0.as_str()).collect();
        assert_eq!(names, ["cause: c", "cause: b", "cause: f", "cause: a"]);
        assert_eq!(
            (moves.from, moves.most[0].1, moves.others),
            (10.0, -30.0, 2)
        );
        assert_eq!(moves_of(10.0, &varied[..1]).others, 0);
    }
}
