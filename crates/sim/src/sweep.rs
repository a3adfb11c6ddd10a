//! Many runs at once: policies, sizes and disks crossed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use crate::world::{DiskSpec, Report, Setup, World};

/// What became of a run: a report, or why there is none.
pub type Outcome = Result<Report, String>;

/// Runs all set-ups on `threads` threads and returns their outcomes in the order of the set-ups,
/// whatever the number of threads. `progress` is told how many are done, from any of the threads.
///
/// # Panics
/// When a run panics: that is a defect of a policy or of the simulator.
#[must_use]
pub fn run_all(
    setups: &[Setup],
    threads: usize,
    progress: &(dyn Fn(usize) + Sync),
) -> Vec<Outcome> {
    run_each(setups, threads, progress, run)
}

/// The same for set-ups of any kind.
pub(crate) fn run_each<S: Sync, T: Send>(
    setups: &[S],
    threads: usize,
    progress: &(dyn Fn(usize) + Sync),
    run: impl Fn(&S) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Option<T>>> = Mutex::new(setups.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, setups.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(setup) = setups.get(at) else {
                        return;
                    };
                    let outcome = run(setup);
                    let mut outcomes = outcomes.lock().expect("no thread panics with the lock");
                    outcomes[at] = Some(outcome);
                    drop(outcomes);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("the threads are gone");
    outcomes
        .into_iter()
        .map(|o| o.expect("every set-up was run"))
        .collect()
}

/// One run.
///
/// # Errors
/// Why the set-up cannot be built or the run ended early.
pub fn run(setup: &Setup) -> Outcome {
    let world = World::new(setup).map_err(|e| e.to_string())?;
    world.run(&mut |_| {}).map_err(|e| e.to_string())
}

/// A set-up and what to vary in it. An empty list leaves what the set-up says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// What stays.
    pub base: Setup,
    /// Reclaim policies.
    #[serde(default)]
    pub reclaim: Vec<String>,
    /// Page-out policies.
    #[serde(default)]
    pub pageout: Vec<String>,
    /// Read-ahead policies.
    #[serde(default)]
    pub readahead: Vec<String>,
    /// Slot allocators.
    #[serde(default)]
    pub slots: Vec<String>,
    /// Memory sizes, in frames.
    #[serde(default)]
    pub frames: Vec<u64>,
    /// Disks, by name.
    #[serde(default)]
    pub disks: Vec<String>,
    /// Schedulers.
    #[serde(default)]
    pub schedulers: Vec<String>,
}

impl Sweep {
    /// Nothing varied yet.
    #[must_use]
    pub const fn of(base: Setup) -> Self {
        Self {
            base,
            reclaim: Vec::new(),
            pageout: Vec::new(),
            readahead: Vec::new(),
            slots: Vec::new(),
            frames: Vec::new(),
            disks: Vec::new(),
            schedulers: Vec::new(),
        }
    }

    /// All combinations, the last list varying fastest.
    #[must_use]
    pub fn setups(&self) -> Vec<Setup> {
        let mut all = vec![self.base.clone()];
        all = cross(all, &self.reclaim, |s, v| s.policies.reclaim.clone_from(v));
        all = cross(all, &self.pageout, |s, v| s.policies.pageout.clone_from(v));
        all = cross(all, &self.readahead, |s, v| {
            s.policies.readahead.clone_from(v)
        });
        all = cross(all, &self.slots, |s, v| s.policies.slots.clone_from(v));
        all = cross(all, &self.frames, |s, v| s.frames = *v);
        all = cross(all, &self.disks, |s, v| s.disk = DiskSpec::Named(v.clone()));
        cross(all, &self.schedulers, |s, v| s.scheduler.clone_from(v))
    }

    /// Runs them all, as [`run_all`].
    #[must_use]
    pub fn run(&self, threads: usize, progress: &(dyn Fn(usize) + Sync)) -> Vec<Line> {
        let setups = self.setups();
        let outcomes = run_all(&setups, threads, progress);
        setups
            .into_iter()
            .zip(outcomes)
            .map(|(setup, outcome)| Line { setup, outcome })
            .collect()
    }
}

fn cross<T>(all: Vec<Setup>, values: &[T], set: impl Fn(&mut Setup, &T)) -> Vec<Setup> {
    if values.is_empty() {
        return all;
    }
    let with = |setup: Setup| {
        let set = &set;
        values.iter().map(move |value| {
            let mut setup = setup.clone();
            set(&mut setup, value);
            setup
        })
    };
    all.into_iter().flat_map(with).collect()
}

/// A run of a sweep.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Line {
    /// What ran.
    pub setup: Setup,
    /// What became of it.
    pub outcome: Outcome,
}

/// The columns of [`csv`].
const CSV_HEADER: &str = "reclaim,pageout,readahead,slots,frames,disk,scheduler,elapsed_s,\
major_faults,minor_faults,page_ins,page_in_reads,page_outs,page_out_writes,pages_per_write,error";

/// Lines as CSV, with a header. A run that failed has only its error.
#[must_use]
pub fn csv(lines: &[Line]) -> String {
    let mut out = format!("{CSV_HEADER}\n");
    for Line { setup, outcome } in lines {
        let p = &setup.policies;
        let disk = match &setup.disk {
            DiskSpec::Named(name) => name,
            DiskSpec::Params(_) => "given",
        };
        let figures = match outcome {
            Ok(r) => format!(
                "{:.3},{},{},{},{},{},{},{:.3},",
                r.seconds(),
                r.major_faults,
                r.minor_faults,
                r.page_ins,
                r.page_in_reads,
                r.page_outs,
                r.page_out_writes,
                r.pages_a_write(),
            ),
            Err(why) => format!(",,,,,,,,\"{}\"", why.replace('"', "'")),
        };
        let named = [&p.reclaim, &p.pageout, &p.readahead, &p.slots]
            .map(String::as_str)
            .join(",");
        out += &format!(
            "{named},{},{disk},{},{figures}\n",
            setup.frames, setup.scheduler
        );
    }
    out
}

/// Lines as JSON: an array of set-ups with their reports.
#[must_use]
pub fn json(lines: &[Line]) -> String {
    serde_json::to_string_pretty(lines).expect("plain data")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::{LuParams, Spec};

    fn sweep() -> Sweep {
        let lu = Spec::Lu(LuParams {
            n: 500,
            ..LuParams::default()
        });
        let names = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect();
        Sweep {
            pageout: names(&["bsd", "moc"]),
            frames: vec![300, 400, 1000],
            disks: names(&["barracuda-7200.9", "nvme"]),
            ..Sweep::of(Setup::live(0, vec![lu]))
        }
    }

    #[test]
    fn every_combination_comes_once_in_order() {
        let setups = sweep().setups();
        assert_eq!(setups.len(), 12);
        let frames: Vec<_> = setups.iter().map(|s| s.frames).collect();
        assert_eq!(frames, [300, 300, 400, 400, 1000, 1000].repeat(2));
        assert!(setups[..6].iter().all(|s| s.policies.pageout == "bsd"));
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let sweep = sweep();
        let [one, four] = [1, 4].map(|threads| csv(&sweep.run(threads, &|_| {})));
        assert_eq!(one, four);
        assert_eq!(one.lines().count(), 13);
    }

    #[test]
    fn a_run_that_fails_has_its_line_and_its_reason() {
        let mut sweep = sweep();
        sweep.frames = vec![10];
        let lines = sweep.run(2, &|_| {});
        assert!(csv(&lines).contains("memory in pages is 10"));
        assert!(json(&lines).contains("\"Err\""));
    }
}
