//! The runs of an evaluation, and what is measured of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::kept::{How, found_or_run};
use super::table::{Table, short};
use crate::disk::{self, Params, RotatingParams};
use crate::guests::{self, Machine};
use crate::programs::{SorParams, Spec};
use crate::sweep::{Outcome, run_each};
use crate::world::{DiskSpec, Report, Setup, ShortageSetting, WindowSetting};

/// Names a run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RunKey {
    /// The variation; empty for the evaluation itself.
    pub variant: String,
    /// Memory size, of the machine or of the program: whatever the paper varies.
    pub memory: String,
    /// What ran.
    pub workload: String,
    /// Page-out policy.
    pub policy: String,
    /// Which draw of what nobody knows; 0 for the constants as they are written down.
    pub seed: u64,
}

impl RunKey {
    /// A run of the evaluation itself.
    #[must_use]
    pub fn new(memory: &str, workload: &str, policy: &str) -> Self {
        Self {
            variant: String::new(),
            memory: memory.to_owned(),
            workload: workload.to_owned(),
            policy: policy.to_owned(),
            seed: 0,
        }
    }

    /// The same run at another draw.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same run under a variation.
    #[must_use]
    pub fn varied(&self, variant: &str) -> Self {
        Self {
            variant: variant.to_owned(),
            ..self.clone()
        }
    }
}

/// One thing that is not known of the paper's machine, at another value.
#[derive(Clone, Copy)]
pub struct Variation {
    /// What is varied: several values of one thing share it.
    pub cause: &'static str,
    /// The value.
    pub value: &'static str,
    /// For which workloads.
    pub workloads: &'static [&'static str],
    /// Makes it so.
    pub apply: fn(&mut Setup),
}

impl Variation {
    /// The variant's name in [`RunKey`].
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}: {}", self.cause, self.value)
    }
}

/// Finished runs.
pub struct Runs {
    outcomes: BTreeMap<RunKey, Outcome>,
    /// Those with guests.
    guests: BTreeMap<RunKey, Result<guests::Report, String>>,
}

/// What is written down of every run.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// Until the last program ended, nanoseconds.
    pub elapsed_ns: u64,
    /// Pages read; of runs with guests by the host, as the next three.
    pub page_ins: u64,
    /// Reads.
    pub page_in_reads: u64,
    /// Pages written.
    pub page_outs: u64,
    /// Writes.
    pub page_out_writes: u64,
    /// Nanoseconds during which the disk was busy.
    pub busy_ns: u64,
}

impl Runs {
    /// Runs them all: those of the evaluation itself before its variations, and of these and those the ones that take longest first. What is the same
    /// set-up under several names is run once.
    #[must_use]
    pub fn run(setups: Vec<(RunKey, Setup)>, how: How) -> Self {
        let mut distinct: BTreeMap<String, (Setup, Vec<RunKey>)> = BTreeMap::new();
        for (key, setup) in setups {
            let text = serde_json::to_string(&setup).expect("plain data");
            let entry = distinct.entry(text).or_insert((setup, Vec::new()));
            entry.1.push(key);
        }
        let mut distinct: Vec<_> = distinct.into_iter().collect();
        distinct.sort_by_key(|(_, (setup, keys))| {
            let varied = keys.iter().all(|key| !key.variant.is_empty());
            (varied, Reverse(weight(setup)))
        });
        let done = AtomicUsize::new(0);
        let one = |(text, (setup, keys)): &(String, (Setup, Vec<RunKey>))| {
            let outcome = found_or_run(setup, text, how);
            let before = done.fetch_add(keys.len(), Ordering::Relaxed);
            (how.progress)(before + keys.len());
            outcome
        };
        let outcomes = run_each(&distinct, how.threads, &|_| {}, one);
        let named = distinct.into_iter().zip(outcomes);
        let outcomes = named.flat_map(|((_, (_, keys)), outcome)| {
            keys.into_iter().map(move |key| (key, outcome.clone()))
        });
        Self {
            outcomes: outcomes.collect(),
            guests: BTreeMap::new(),
        }
    }

    /// The same with guests. They are not kept.
    #[must_use]
    pub fn run_guests(setups: &[(RunKey, guests::Setup)], how: How) -> Self {
        let one = |(_, setup): &(RunKey, guests::Setup)| {
            let machine = Machine::new(setup).map_err(|e| e.to_string())?;
            machine.run().map_err(|e| e.to_string())
        };
        let reports = run_each(setups, how.threads, how.progress, one);
        let keys = setups.iter().map(|(key, _)| key.clone());
        Self {
            outcomes: BTreeMap::new(),
            guests: keys.zip(reports).collect(),
        }
    }

    /// The report of a run with guests, if there is such a run and it came to its end.
    #[must_use]
    pub fn guests(&self, key: &RunKey) -> Option<&guests::Report> {
        self.guests.get(key)?.as_ref().ok()
    }

    /// What is written down of all runs, or why they came to no end.
    #[must_use]
    pub fn lines(&self) -> BTreeMap<RunKey, Result<Line, String>> {
        let of = |r: &Report| Line {
            elapsed_ns: r.elapsed_ns,
            page_ins: r.page_ins,
            page_in_reads: r.page_in_reads,
            page_outs: r.page_outs,
            page_out_writes: r.page_out_writes,
            busy_ns: r.disk.busy_ns,
        };
        let of_guests = |r: &guests::Report| Line {
            elapsed_ns: r.elapsed_ns,
            page_ins: r.page_ins,
            page_in_reads: r.page_in_reads,
            page_outs: r.page_outs,
            page_out_writes: r.page_out_writes,
            busy_ns: r.disk.busy_ns,
        };
        let alone = self.outcomes.iter();
        let alone = alone.map(|(key, o)| (key.clone(), o.as_ref().map(of).map_err(Clone::clone)));
        let guests = self.guests.iter();
        let guests =
            guests.map(|(key, o)| (key.clone(), o.as_ref().map(of_guests).map_err(Clone::clone)));
        alone.chain(guests).collect()
    }

    /// The report of a run, if there is such a run and it came to its end.
    #[must_use]
    pub fn get(&self, key: &RunKey) -> Option<&Report> {
        self.outcomes.get(key)?.as_ref().ok()
    }

    /// The report of a run under `variant`.
    #[must_use]
    pub fn report(
        &self,
        variant: &str,
        memory: &str,
        workload: &str,
        policy: &str,
    ) -> Option<&Report> {
        self.get(&RunKey::new(memory, workload, policy).varied(variant))
    }

    /// The reports of two policies under `variant`, if both came to their ends.
    #[must_use]
    pub fn pair(
        &self,
        variant: &str,
        memory: &str,
        workload: &str,
        policies: [&str; 2],
    ) -> Option<[&Report; 2]> {
        let [first, second] = policies.map(|p| self.report(variant, memory, workload, p));
        Some([first?, second?])
    }

    /// Runs that did not come to their ends, and why.
    pub fn failures(&self) -> impl Iterator<Item = (&RunKey, &str)> {
        let failed = self.outcomes.iter();
        failed.filter_map(|(key, outcome)| Some((key, outcome.as_ref().err()?.as_str())))
    }
}

/// Roughly how long a run takes beside others: what does not fit, by how many programs share it.
fn weight(setup: &Setup) -> u64 {
    let pages: u64 = setup.programs.iter().map(|p| p.build(1).footprint()).sum();
    pages.saturating_sub(setup.frames) * setup.programs.len() as u64
}

/// The scheduler of both BSD papers' kernels, FreeBSD 6.2 and 8.2: that of ata(4), which served their disks.
pub(super) const ATA: &str = "ata";

/// Changes a set-up's disk, which rotates.
///
/// # Panics
/// When there is no such disk.
pub(super) fn disk_with(setup: &mut Setup, change: impl Fn(&mut RotatingParams)) {
    let params = match &setup.disk {
        DiskSpec::Named(name) => disk::model(name).expect("registered").params,
        DiskSpec::Params(params) => *params,
    };
    if let Params::Rotating(mut params) = params {
        change(&mut params);
        setup.disk = DiskSpec::Params(Params::Rotating(params));
    }
}

/// Changes every SOR of a set-up.
pub(super) fn each_sor(setup: &mut Setup, change: impl Fn(&mut SorParams)) {
    for program in &mut setup.programs {
        if let Spec::Sor(params) = program {
            change(params);
        }
    }
}

/// A scan that ends at its limit and spares every dirty page once: both papers.
pub(super) fn scan_of_the_papers(setup: &mut Setup) {
    setup.policies.bsd.stop_at_limit = true;
    setup.policies.bsd.second_look_always = true;
}

/// The page daemon as the text of both papers has it, where that is not what the kernel does.
pub(super) const AS_THE_TEXT: &str = "the page daemon as the paper's text has it";

/// A scan that ends at its limit, counts writes against it and pages against the shortage, and spares every dirty page once; clusters of 8 pages to each
/// side; buffered pages that stay usable; requests for slots that shrink by one; page-ins of up to 16 pages.
pub(super) fn as_the_text(setup: &mut Setup) {
    scan_of_the_papers(setup);
    let bsd = &mut setup.policies.bsd;
    bsd.limit_counts_writes = true;
    bsd.shortage = ShortageSetting::Page;
    bsd.revalidate = true;
    bsd.shrink_by_one = true;
    setup.policies.window = WindowSetting::Paper;
    setup.policies.max_window = Some(16);
}

/// What each variation does to a workload: the second policy's savings, and the counts of both.
pub(super) fn variation_table(
    runs: &Runs,
    variations: &[Variation],
    memory: &str,
    workload: &str,
    policies: [&str; 2],
) -> Table {
    let mut names = vec![String::new()];
    names.extend(variations.iter().map(Variation::name));
    let rows = names.iter().filter_map(|name| {
        let [first, second] = runs.pair(name, memory, workload, policies)?;
        let counts = [
            Measure::Seconds,
            Measure::Writes,
            Measure::PagesWritten,
            Measure::Reads,
        ];
        let saved = |m: Measure| format!("{:.1}", m.saved_percent(first, second));
        let mut row = vec![
            if name.is_empty() {
                "as in all runs"
            } else {
                name
            }
            .to_owned(),
        ];
        row.extend([saved(Measure::Seconds), saved(Measure::Writes)]);
        row.extend(
            counts
                .iter()
                .flat_map(|m| [short(m.of(first)), short(m.of(second))]),
        );
        Some(row)
    });
    let mut head = vec![
        String::new(),
        "time saved, %".to_owned(),
        "writes saved, %".to_owned(),
    ];
    for what in ["s", "writes", "pages written", "reads"] {
        head.extend(policies.map(|p| format!("{what}, {p}")));
    }
    Table {
        rows: rows.collect(),
        title: format!("What was varied: {workload}, {memory}"),
        head,
    }
}

/// What is measured of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Seconds.
    Seconds,
    /// Pages written.
    PagesWritten,
    /// Writes.
    Writes,
    /// Reads.
    Reads,
}

impl Measure {
    /// The figure.
    #[must_use]
    pub fn of(self, report: &Report) -> f64 {
        match self {
            Self::Seconds => report.seconds(),
            Self::PagesWritten => report.page_outs as f64,
            Self::Writes => report.page_out_writes as f64,
            Self::Reads => report.page_in_reads as f64,
        }
    }

    /// What the second run saves of the first, percent. 0 when the first has nothing.
    #[must_use]
    pub fn saved_percent(self, first: &Report, second: &Report) -> f64 {
        let (first, second) = (self.of(first), self.of(second));
        if first == 0.0 {
            0.0
        } else {
            100.0 * (1.0 - second / first)
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use crate::programs::{MicroParams, Spec};
    use crate::seed::mix;
    use crate::sweep::run;

    /// On two threads.
    pub(in crate::paper) fn quietly() -> How<'static> {
        How {
            threads: 2,
            progress: &|_| {},
            keep: None,
            ns2: None,
        }
    }

    /// The same short run under every key.
    pub(in crate::paper) fn alike(setups: Vec<(RunKey, Setup)>) -> Runs {
        let micro = Spec::Micro(MicroParams {
            pages: 2000,
            ..MicroParams::default()
        });
        let outcome = run(&Setup::live(500, vec![micro]));
        assert!(outcome.is_ok());
        let outcomes = setups.into_iter().map(|(key, _)| (key, outcome.clone()));
        Runs {
            outcomes: outcomes.collect(),
            guests: BTreeMap::new(),
        }
    }

    /// Those of `runs` under every key, with counts and times that differ from run to run as nothing that is simulated does: by up to a factor of three
    /// either way, one of sixteen by forty more.
    pub(in crate::paper) fn scattered(mut runs: Runs) -> Runs {
        for ((_, outcome), nth) in runs.outcomes.iter_mut().zip(0..) {
            let Ok(report) = outcome else {
                continue;
            };
            let by = |what: u64, n: &mut u64| {
                let random = mix(nth, what);
                let factor = 3_f64.powf((random >> 8) as f64 / (1_u64 << 55) as f64 - 1.0);
                let far = if random & 15 == 0 { 40.0 } else { 1.0 };
                *n = (*n as f64 * factor * far) as u64 + 1;
            };
            by(0, &mut report.elapsed_ns);
            by(1, &mut report.page_outs);
            by(2, &mut report.page_out_writes);
            by(3, &mut report.page_ins);
            by(4, &mut report.page_in_reads);
            by(5, &mut report.major_faults);
            for size in report.write_sizes.iter_mut().chain(&mut report.windows) {
                by(u64::from(size.0) + 6, &mut size.1);
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::paper::kept::Keep;
    use crate::programs::MicroParams;

    /// Nothing is ever found; what is asked for is written down.
    #[derive(Default)]
    struct Asked(Mutex<Vec<String>>);

    impl Keep for Asked {
        fn found(&self, _: &str) -> Option<Vec<u8>> {
            None
        }

        fn keep(&self, _: &str, bytes: &[u8]) {
            let text = String::from_utf8(bytes.to_vec()).expect("JSON");
            self.0.lock().expect("whole").push(text);
        }
    }

    #[test]
    fn the_same_set_up_is_run_once_and_variations_come_last() {
        let setup = |frames| {
            let micro = Spec::Micro(MicroParams {
                pages: 2_000,
                ..MicroParams::default()
            });
            Setup::live(frames, vec![micro])
        };
        let key = RunKey::new("", "micro", "bsd");
        let setups = vec![
            (key.varied("smaller"), setup(400)),
            (key.varied("the same"), setup(500)),
            (key.clone(), setup(500)),
            (key.clone().seeded(1), setup(600)),
        ];
        let (asked, done) = (Asked::default(), AtomicUsize::new(0));
        let how = How {
            threads: 1,
            progress: &|count| done.store(count, Ordering::Relaxed),
            keep: Some(&asked),
            ns2: None,
        };
        let runs = Runs::run(setups, how);
        assert_eq!(done.into_inner(), 4, "each name counts");
        assert_eq!(runs.get(&key), runs.get(&key.varied("the same")));
        assert!(runs.get(&key.varied("smaller")).is_some() && runs.get(&key).is_some());
        let order = asked.0.into_inner().expect("whole");
        let frames = [500, 600, 400].map(|n| format!("frames\\\":{n}"));
        assert_eq!(order.len(), 3);
        for (run, frames) in order.iter().zip(&frames) {
            assert!(run.contains(frames), "{frames}: {run}");
        }
    }
}
