//! Runs on a real machine, beside the simulated ones.

use super::super::evaluation::Evaluation;
use super::super::spread::Spread;
use super::super::table::Table;
use super::setups::{CONFIGURATIONS, TEXTURE, WORKLOADS};
use super::{EQUAL, TEXTURE_TITLE, published, title};
use crate::programs::{MlParams, MlWork, Spec, TextureParams};

/// Pages of the collector's heap: the middle of what the simulated runs draw.
const HEAP_PAGES: u32 = 7_680;
/// Memory of a live run in pages: half of that heap.
pub const LIVE_PAGES: u64 = HEAP_PAGES as u64 / 2;
/// How much faster on-demand is to be than no discarding, with half of the heap in memory. Our own bar, the paper has none.
const FACTOR: f64 = 3.0;
/// What on-demand may be slower than the best of the paper's three and still count as level: what two runs of one configuration differ by.
const LEVEL: f64 = 1.05;

/// The kernel's own swap, which knows nothing of what is given up.
pub const SWAP: &str = "kernel swap";
/// The kernel's own swap, which is told by `MADV_FREE`.
pub const LAZY: &str = "kernel swap, MADV_FREE";

/// What one run came to: pages, but for the time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LiveRun {
    /// Elapsed, in seconds.
    pub seconds: f64,
    /// Read.
    pub read: u64,
    /// Filled with zeroes in place of a read.
    pub filled: u64,
    /// Written.
    pub written: u64,
    /// Dropped in place of a write.
    pub dropped: u64,
    /// Dropped ahead of need.
    pub flushed: u64,
    /// Dropped where no write was due: clean, or in the store alone.
    pub dropped_unwritten: u64,
}

/// The runs of one configuration, a round each.
#[derive(Clone, PartialEq, Debug)]
pub struct Live {
    /// compile, sort or texture.
    pub workload: String,
    /// A configuration of the paper's, on-demand, [`SWAP`] or [`LAZY`].
    pub configuration: String,
    /// By rounds; `None` for one that the kernel ended, because its memory and swap were not enough for it.
    pub runs: Vec<Option<LiveRun>>,
}

/// Configurations of live runs, and their discard policies; `None` for the kernel's own swap.
#[must_use]
pub fn live_configurations() -> Vec<(&'static str, Option<&'static str>)> {
    let served = CONFIGURATIONS.map(|(name, policy)| (name, Some(policy)));
    served
        .into_iter()
        .chain([(SWAP, None), (LAZY, None)])
        .collect()
}

/// Workloads of live runs: the middle of what the simulated runs draw, of the paper's size.
#[must_use]
pub fn live_workloads() -> [(&'static str, Spec); 3] {
    let ml = |work, allocated_pages| {
        Spec::Ml(MlParams {
            work,
            heap_pages: HEAP_PAGES,
            old_percent: 42,
            take_back_pages: 32,
            allocated_pages,
            environment_pages: 1_125,
            ..MlParams::default()
        })
    };
    let [compile, sort] = WORKLOADS;
    [
        (compile, ml(MlWork::Compile, 33_051)),
        (sort, ml(MlWork::Sort, 24_491)),
        (TEXTURE, Spec::Texture(TextureParams::default())),
    ]
}

impl Evaluation {
    /// Adds live runs: rows to the tables of the simulated ones, and a table of what they are to show.
    pub fn add_live(&mut self, live: &[Live]) {
        for runs in live {
            let table = if runs.workload == TEXTURE {
                TEXTURE_TITLE.to_owned()
            } else {
                title(&runs.workload)
            };
            let found = self.tables.iter_mut().find(|known| known.title == table);
            if let Some(table) = found {
                let row = row(runs, table.head.len());
                // Behind the simulated rows of the same configuration, else at the end.
                let mine =
                    |row: &Vec<String>| row[0].split(',').next() == Some(&runs.configuration);
                let at = table.rows.iter().rposition(mine);
                table
                    .rows
                    .insert(at.map_or(table.rows.len(), |at| at + 1), row);
            }
        }
        self.tables.push(ratios(live));
        self.tables.push(shown(live));
    }
}

fn spread(runs: &Live, figure: impl Fn(&LiveRun) -> f64) -> Option<Spread> {
    Spread::of(runs.runs.iter().flatten().map(figure))
}

fn cell(found: Option<String>) -> String {
    found.unwrap_or_else(|| "-".to_owned())
}

fn row(runs: &Live, columns: usize) -> Vec<String> {
    let of = |figure: fn(&LiveRun) -> f64| cell(spread(runs, figure).map(|s| s.to_string()));
    let mut row = vec![format!("{}, live", runs.configuration)];
    if runs.workload == TEXTURE {
        row.extend([
            of(|r| r.seconds),
            of(|r| r.read as f64),
            of(|r| r.written as f64),
            of(|r| (r.dropped + r.dropped_unwritten) as f64),
        ]);
    } else {
        row.extend([
            "-".to_owned(),
            "-".to_owned(),
            of(|r| r.seconds),
            of(|r| r.read as f64),
            of(|r| r.filled as f64),
            of(|r| r.written as f64),
            of(|r| r.dropped as f64),
            of(|r| r.flushed as f64),
        ]);
    }
    row.resize(columns, "-".to_owned());
    row
}

fn of<'a>(live: &'a [Live], workload: &str, configuration: &str) -> Option<&'a Live> {
    live.iter()
        .find(|runs| runs.workload == workload && runs.configuration == configuration)
}

/// A figure of one configuration by that of another, round by round.
fn by(
    live: &[Live],
    workload: &str,
    [configuration, other]: [&str; 2],
    figure: fn(&LiveRun) -> f64,
) -> Option<Spread> {
    let (ours, theirs) = (
        of(live, workload, configuration)?,
        of(live, workload, other)?,
    );
    let rounds = ours.runs.iter().zip(&theirs.runs);
    let both = rounds.filter_map(|(ours, theirs)| ours.as_ref().zip(theirs.as_ref()));
    Spread::of(both.map(|(ours, theirs)| figure(ours) / figure(theirs)))
        .filter(|ratio| ratio.median.is_finite())
}

fn transfers(run: &LiveRun) -> f64 {
    (run.read + run.written) as f64
}

/// Elapsed times and transfers by those of `NoPager`.
fn ratios(live: &[Live]) -> Table {
    let rows =
        live.iter().map(|runs| {
            let pair = [runs.configuration.as_str(), "NoPager"];
            let of_paper = published(&runs.workload, &runs.configuration, "elapsed")
                .zip(published(&runs.workload, "NoPager", "elapsed"));
            vec![
                runs.workload.clone(),
                runs.configuration.clone(),
                cell(by(live, &runs.workload, pair, |r| r.seconds).map(Spread::ratio)),
                cell(of_paper.map(|(ours, none)| format!("{:.2}", ours / none))),
                cell(by(live, &runs.workload, pair, transfers).map(Spread::ratio)),
                match runs.runs.iter().filter(|run| run.is_none()).count() {
                    0 => runs.runs.len().to_string(),
                    ended => format!("{}, {ended} out of memory", runs.runs.len()),
                },
            ]
        });
    let head = [
        "",
        "configuration",
        "elapsed by NoPager",
        "the same, published",
        "read and written by NoPager",
        "rounds",
    ];
    Table {
        title: format!(
            "Live: {LIVE_PAGES} pages of memory, medians of rounds by turns. The programs' own CPU times are not in it: they \
             write pages and compare them"
        ),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

/// What the live runs are to show, and whether they do, by the medians.
fn shown(live: &[Live]) -> Table {
    let mut rows = Vec::new();
    let mut say = |what: String, found: String, holds: bool| {
        let holds = if holds { "yes" } else { "no" };
        rows.push(vec![what, found, holds.to_owned()]);
    };
    for workload in WORKLOADS {
        let seconds = |name| of(live, workload, name).and_then(|runs| spread(runs, |r| r.seconds));
        let four = CONFIGURATIONS.map(|(name, _)| Some((name, seconds(name)?.median)));
        if let [Some(none), Some(nf), Some(pf), Some(uf), _] = four {
            let flushed = match workload {
                "compile" => pf.1 < uf.1,
                _ => (pf.1 / uf.1 - 1.0).abs() <= EQUAL,
            };
            let holds = flushed && pf.1.max(uf.1) < nf.1 && nf.1 < none.1;
            let mut in_order = [none, nf, pf, uf];
            in_order.sort_by(|a, b| a.1.total_cmp(&b.1));
            let words = in_order.map(|(name, s)| format!("{name} {s:.2} s"));
            say(
                format!("{workload}: the order as published"),
                words.join(" < "),
                holds,
            );
        }
    }
    for workload in WORKLOADS.into_iter().chain([TEXTURE]) {
        let ratio = |pair| by(live, workload, pair, |r| r.seconds);
        let three = ["PagerNF", "PagerPF", "PagerUF"].map(|name| ratio(["on-demand", name]));
        let worst = three.into_iter().flatten();
        if let Some(worst) = worst.max_by(|a, b| a.median.total_cmp(&b.median)) {
            let what = format!("{workload}: on-demand no slower than the best of the three");
            say(what, worst.ratio(), worst.median <= LEVEL);
        }
        if let Some(factor) = ratio(["NoPager", "on-demand"]).filter(|_| workload != TEXTURE) {
            let what = format!("{workload}: on-demand {FACTOR} times as fast as NoPager");
            say(what, factor.ratio(), factor.median >= FACTOR);
        }
        if let Some(part) = ratio(["on-demand", LAZY]) {
            let what = format!("{workload}: on-demand faster than {LAZY}");
            say(what, part.ratio(), part.median < 1.0);
        }
    }
    Table {
        title: "Live: what is to be shown, by medians of ratios within a round".to_owned(),
        head: ["", "found", "holds"].map(str::to_owned).to_vec(),
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{evaluation, setups};
    use super::*;
    use crate::paper::runs::testing::alike;

    fn live(workload: &str, seconds: [f64; 7]) -> Vec<Live> {
        let names = live_configurations().into_iter().zip(seconds);
        names
            .map(|((name, _), seconds)| Live {
                workload: workload.to_owned(),
                configuration: name.to_owned(),
                runs: [1.0, 1.0, 4.0]
                    .map(|part| {
                        Some(LiveRun {
                            seconds: part * seconds,
                            read: 30,
                            written: 12,
                            dropped: 5,
                            dropped_unwritten: 2,
                            ..LiveRun::default()
                        })
                    })
                    .to_vec(),
            })
            .collect()
    }

    fn held(table: &Table, what: &str) -> String {
        let row = table.rows.iter().find(|row| row[0].contains(what));
        row.unwrap_or_else(|| panic!("{what}"))[2].clone()
    }

    #[test]
    fn live_rows_stand_behind_those_of_their_configuration() {
        let mut evaluation = evaluation(&alike(setups()));
        let before = evaluation.tables.len();
        let mut all = live("sort", [6.0, 3.0, 1.5, 1.5, 1.0, 8.0, 5.0]);
        all.extend(live(TEXTURE, [6.0, 3.0, 1.5, 1.5, 1.0, 8.0, 5.0]));
        evaluation.add_live(&all);
        assert_eq!(evaluation.tables.len(), before + 2);
        let named = |title: &str| {
            let table = evaluation.tables.iter().find(|t| t.title.contains(title));
            table.expect("it is there").rows.clone()
        };
        let sort = named("3-4");
        let at = |name: &str| sort.iter().position(|row| row[0] == name).expect("a row");
        assert_eq!(at("PagerNF, live"), at("PagerNF, published") + 1);
        assert_eq!(at("on-demand, live"), at("on-demand") + 1);
        assert_eq!(sort[at("kernel swap, MADV_FREE, live")][3], "5 (5 to 20)");
        assert!(sort.iter().all(|row| row.len() == sort[0].len()));
        let texture = named("Texture");
        let row = texture.iter().find(|row| row[0] == "NoPager, live");
        assert_eq!(row.expect("a row")[1..], ["6 (6 to 24)", "30", "12", "7"]);
        let ended = Live {
            runs: vec![None, all[0].runs[0]],
            ..all[6].clone()
        };
        let one = [all[0].clone(), ended];
        assert_eq!(
            ratios(&one).rows[1][2..6],
            ["1.00", "-", "1.00", "2, 1 out of memory"]
        );
        assert!(named("3-3").iter().all(|row| !row[0].ends_with("live")));
    }

    #[test]
    fn what_is_to_be_shown_can_fail() {
        let good = shown(&live("sort", [6.0, 3.0, 1.5, 1.6, 1.0, 8.0, 5.0]));
        assert!(good.rows.len() == 4 && good.rows.iter().all(|row| row[2] == "yes"));
        let bad = shown(&live("sort", [6.0, 7.0, 1.5, 2.6, 2.5, 8.0, 2.4]));
        assert!(bad.rows.iter().all(|row| row[2] == "no"), "{:?}", bad.rows);
        // The compiler's own order: PagerPF before PagerUF.
        let compile = shown(&live("compile", [6.0, 3.0, 1.6, 1.5, 1.5, 8.0, 5.0]));
        assert_eq!(held(&compile, "order"), "no");
        assert_eq!(held(&compile, "no slower"), "yes");
        // Without the kernel's runs nothing is said of them.
        let some = &live("sort", [6.0, 3.0, 1.5, 1.6, 1.0, 8.0, 5.0])[..5];
        assert_eq!(shown(some).rows.len(), 3);
    }
}
