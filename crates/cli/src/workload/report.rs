//! Measuring the phases of a workload, and the line of JSON that says what came out.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Outcome;
use super::data::Data;
use super::rng::fold;

use crate::message;

/// Ticks a second of the CPU times in `/proc/PID/stat`: `USER_HZ`, 100 on every Linux port we run on.
pub const TICKS_PER_SECOND: f64 = 100.0;

/// How often `--progress` may write a line: often enough for a smooth bar.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// One phase of a workload.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// Short name, unique in the report.
    pub name: String,
    /// Elapsed seconds, monotonic clock.
    pub seconds: f64,
    /// CPU seconds in user mode, all threads of the process.
    pub user_seconds: f64,
    /// CPU seconds in system mode, all threads of the process.
    pub system_seconds: f64,
    /// Faults that the kernel resolved without I/O.
    pub minor_faults: u64,
    /// Faults for which the kernel did I/O.
    pub major_faults: u64,
}

/// Percentiles of the time that touches took, in ns; zero for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Latencies {
    /// Touches.
    pub count: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 90 % of them took no longer.
    pub p90_ns: u64,
    /// 99 % of them took no longer.
    pub p99_ns: u64,
    /// 99.9 % of them took no longer.
    pub p999_ns: u64,
}

impl Latencies {
    /// Of `times`, which are sorted on the way.
    pub fn of(times: &mut [u64]) -> Self {
        times.sort_unstable();
        let count = times.len();
        let at = |permille: usize| {
            let rank = (count * permille).div_ceil(1000);
            times.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Self {
            count: count as u64,
            p50_ns: at(500),
            p90_ns: at(900),
            p99_ns: at(990),
            p999_ns: at(999),
        }
    }
}

/// What a workload prints.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Name of the workload.
    pub workload: String,
    /// Memory it was asked to touch, in MiB.
    pub mib: u32,
    /// How far its contents compress, where that can be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
    /// The phases, in order.
    pub phases: Vec<Phase>,
    /// Checksum of the final contents: equal in every run with the same options.
    pub checksum: String,
    /// Pages or objects whose contents were checked.
    pub verified: u64,
    /// All phases together.
    pub total: Phase,
    /// What touches took, where the workload times them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latencies: Option<Latencies>,
    /// Touches beside those that must have read their page.
    #[serde(default)]
    pub untimed_reads: u64,
}

impl Report {
    /// What is known of a program that is no workload: what it printed, as a checksum, and how long it
    /// took. It checks nothing itself.
    pub fn of_output(output: &str, seconds: f64) -> Self {
        let words = output.bytes().map(u64::from);
        let outcome = Outcome {
            checksum: words.fold(output.len() as u64, fold),
            verified: 0,
        };
        let mut report = Recorder::new(false).finish("command", 0, outcome);
        report.total.seconds = seconds;
        report
    }

    /// Seconds of the phases that are about the workload's order: all but the one that fills its memory
    /// and those that only look whether everything is right at the end.
    pub fn own_seconds(&self) -> f64 {
        let beside = |phase: &&Phase| ["init", "check", "beside", "gaps"].contains(&&*phase.name);
        let seconds = self.phases.iter().filter(beside).map(|phase| phase.seconds);
        self.total.seconds - seconds.sum::<f64>()
    }

    /// One line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report has only strings and numbers")
    }
}

/// CPU ticks and faults of a process, from `/proc/PID/stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcStat {
    /// Faults resolved without I/O.
    pub minor_faults: u64,
    /// Faults resolved with I/O.
    pub major_faults: u64,
    /// Ticks in user mode.
    pub user_ticks: u64,
    /// Ticks in system mode.
    pub system_ticks: u64,
}

impl ProcStat {
    /// The counters of this process; zeros where `/proc` is not mounted.
    pub fn read() -> Self {
        std::fs::read_to_string("/proc/self/stat")
            .ok()
            .and_then(|line| Self::parse(&line))
            .unwrap_or_default()
    }

    /// Parses a line of `/proc/PID/stat` (proc(5)); the name in parentheses may hold anything.
    fn parse(line: &str) -> Option<Self> {
        let after_name = line.get(line.rfind(')')? + 1..)?;
        // The first field after the name is number 3.
        let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        Some(Self {
            minor_faults: field(10)?,
            major_faults: field(12)?,
            user_ticks: field(14)?,
            system_ticks: field(15)?,
        })
    }
}

/// Where a phase stands: the workloads call [`Progress::at`] from their loops.
#[derive(Debug)]
pub struct Progress {
    phase: &'static str,
    last: Option<Instant>,
}

impl Progress {
    /// `done` of `total` steps are behind. Cheap enough for every row and every 64th page.
    pub fn at(&mut self, done: u64, total: u64) {
        let Some(last) = self.last else { return };
        if last.elapsed() >= PROGRESS_INTERVAL {
            message::line(format_args!(
                "{} {:.3}",
                self.phase,
                done as f64 / total.max(1) as f64
            ));
            self.last = Some(Instant::now());
        }
    }
}

/// Collects the phases of one run.
#[derive(Debug)]
pub struct Recorder {
    progress: bool,
    phases: Vec<Phase>,
}

impl Recorder {
    /// A recorder; with `progress` it writes "phase fraction" lines to stderr.
    pub const fn new(progress: bool) -> Self {
        Self {
            progress,
            phases: Vec::new(),
        }
    }

    /// Runs and measures one phase.
    pub fn phase<T>(&mut self, name: &'static str, work: impl FnOnce(&mut Progress) -> T) -> T {
        let mut progress = Progress {
            phase: name,
            last: self.progress.then(Instant::now),
        };
        let before = ProcStat::read();
        let start = Instant::now();
        let result = work(&mut progress);
        let seconds = start.elapsed().as_secs_f64();
        let after = ProcStat::read();
        if self.progress {
            message::line(format_args!("{name} 1.000"));
        }
        self.phases.push(Phase {
            name: name.to_owned(),
            seconds,
            user_seconds: (after.user_ticks - before.user_ticks) as f64 / TICKS_PER_SECOND,
            system_seconds: (after.system_ticks - before.system_ticks) as f64 / TICKS_PER_SECOND,
            minor_faults: after.minor_faults - before.minor_faults,
            major_faults: after.major_faults - before.major_faults,
        });
        result
    }

    /// The report.
    pub fn finish(self, workload: &str, mib: u32, outcome: Outcome) -> Report {
        let sum = |field: fn(&Phase) -> f64| self.phases.iter().map(field).sum();
        let total = Phase {
            name: "total".to_owned(),
            seconds: sum(|p| p.seconds),
            user_seconds: sum(|p| p.user_seconds),
            system_seconds: sum(|p| p.system_seconds),
            minor_faults: self.phases.iter().map(|p| p.minor_faults).sum(),
            major_faults: self.phases.iter().map(|p| p.major_faults).sum(),
        };
        Report {
            workload: workload.to_owned(),
            mib,
            data: None,
            phases: self.phases,
            checksum: format!("{:016x}", outcome.checksum),
            verified: outcome.verified,
            total,
            latencies: None,
            untimed_reads: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_stat_with_a_name_of_parentheses_and_spaces() {
        let line = "42 (a) b (c)) R 1 42 42 0 -1 4194304 101 2 33 4 55 66 7 8 20 0 1 0 9";
        let expected = ProcStat {
            minor_faults: 101,
            major_faults: 33,
            user_ticks: 55,
            system_ticks: 66,
        };
        assert_eq!(ProcStat::parse(line), Some(expected));
        assert_eq!(ProcStat::parse("42 (short) R 1"), None);
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let mut times: Vec<u64> = (1..=1000).rev().collect();
        let all = Latencies::of(&mut times);
        assert_eq!((all.p50_ns, all.p90_ns, all.p99_ns), (500, 900, 990));
        assert_eq!((all.p999_ns, all.count), (999, 1000));
        assert_eq!(Latencies::of(&mut [7]).p50_ns, 7);
        assert_eq!(Latencies::of(&mut []), Latencies::default());
    }

    #[test]
    fn own_seconds_leave_out_filling_and_checking() {
        let mut report = Report::of_output("", 10.0);
        assert!((report.own_seconds() - 10.0).abs() < 1e-9);
        let phase = |name: &str, seconds| Phase {
            name: name.to_owned(),
            seconds,
            ..report.total.clone()
        };
        let phases = vec![phase("init", 2.0), phase("walk", 7.0), phase("check", 1.0)];
        report.phases = phases;
        assert!((report.own_seconds() - 7.0).abs() < 1e-9);
    }

    #[test]
    fn report_survives_json() {
        let mut recorder = Recorder::new(false);
        recorder.phase("one", |_| ());
        recorder.phase("two", |_| ());
        let report = recorder.finish(
            "seq",
            64,
            Outcome {
                checksum: 0xabc,
                verified: 7,
            },
        );
        assert_eq!(report.checksum, "0000000000000abc");
        assert_eq!(report.phases.len(), 2);
        let back: Report = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(back, report);
    }
}
