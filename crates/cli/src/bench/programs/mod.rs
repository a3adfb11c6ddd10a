//! `outpage bench programs`: real programs at parts of their peak, without a limit, under Outpage, under kernel
//! swap and under kernel swap on zram, with the same RAM in all.

mod options;
mod registry;
mod report;
mod reserve;
mod zram;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::cgroup::Cgroup;
use super::guard::{Guard, Undo};
use super::kernel::SWAP_FOOTPRINTS;
use super::kernel_swap::{Kernel, Measured};
use super::launch::{Ending, OutpageRun, Run, Speaks, launch_as};
use super::machine::{IoCounts, Machine, available_bytes, load_average};
use super::progress::Steps;
use super::{BenchError, describe, problem, read_stats, stats_file, tools, verdict, write_json};
pub use options::Options;
use options::{Kind, System};
use registry::Program;
use report::{Line, Mean, Record, Reference, Skipped};
use reserve::Limits;
use zram::{Seen, Zram};

use crate::output;

/// How often the memory of a run without a limit is looked at: a program that fills 500 MiB in a second is 5 MiB
/// further after it.
const PEAK_INTERVAL: Duration = Duration::from_millis(10);
/// `vm.page-cluster` for the swap file: the kernel's default.
const PAGE_CLUSTER_FILE: u32 = 3;
/// `vm.page-cluster` for zram: reading ahead spares no seek there, so zram is run without.
const PAGE_CLUSTER_ZRAM: u32 = 0;

/// A program that is here, ready to be run.
struct Target {
    program: &'static Program,
    command: Vec<OsString>,
    reference: Reference,
    report: crate::workload::Report,
    /// One for each percentage.
    limits: Vec<Limits>,
}

/// The benchmark while it runs.
struct Bench<'a> {
    options: &'a Options,
    machine: Machine,
    skipped: Vec<Skipped>,
    systems: Vec<System>,
    guard: Guard,
    directory: PathBuf,
    stats: PathBuf,
    /// Absent without root, where no run needs it.
    kernel: Option<Kernel>,
    zram: Option<Zram>,
    steps: Steps,
    targets: Vec<Target>,
    records: Vec<Record>,
    problems: Vec<String>,
}

/// Runs the comparison, prints the tables and writes JSON and picture.
///
/// # Errors
/// When the machine lacks something, no program is here, a run failed other than by the OOM killer or the timeout, or
/// what it printed was wrong.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let machine = Machine::look(&options.swap);
    output::print(&machine.describe())?;
    let (present, skipped) = present(&options.programs);
    for one in &skipped {
        output::print_line(format_args!("SKIPPED {}: {}", one.program, one.why))?;
    }
    if present.is_empty() {
        return Err(BenchError::Lacks(
            "none of the programs is installed here".into(),
        ));
    }
    let mut guard = Guard::start()?;
    let systems = options.systems();
    let swaps = |kind| matches!(kind, Kind::Kernel | Kind::Zram);
    let kernel = match Kernel::without_swap(&options.swap, &mut guard) {
        Ok(kernel) => Some(kernel),
        Err(error) if systems.iter().any(|system| swaps(system.kind)) => return Err(error),
        Err(error) => {
            output::print_line(format_args!("no memory cgroups are used: {error}"))?;
            None
        }
    };
    let cells = options.at.len() * options.rounds as usize * systems.len();
    let measures = options.reserve.is_none()
        && kernel.is_some()
        && systems.iter().any(|system| system.kind == Kind::Outpage);
    let tries = if measures { options.at.len() } else { 0 };
    let mut bench = Bench {
        options,
        machine,
        skipped,
        steps: Steps::new(present.len() * (2 + tries + cells)),
        systems,
        directory: directory(options, &mut guard)?,
        stats: stats_file(&mut guard)?,
        guard,
        kernel,
        zram: None,
        targets: Vec::new(),
        records: Vec::new(),
        problems: Vec::new(),
    };
    let ended = bench.all(&present);
    bench.conclude(ended)
}

/// The programs that are asked for and are here, and those that are not, and why.
fn present(asked: &[&'static Program]) -> (Vec<&'static Program>, Vec<Skipped>) {
    let (mut present, mut skipped) = (Vec::new(), Vec::new());
    let all: Vec<&Program> = registry::PROGRAMS.iter().collect();
    for &program in if asked.is_empty() { &all } else { asked } {
        match program.missing() {
            None => present.push(program),
            Some(why) => skipped.push(Skipped {
                program: program.name,
                why,
            }),
        }
    }
    (present, skipped)
}

/// Makes the directory of the programs' files; the guard removes it.
fn directory(options: &Options, guard: &mut Guard) -> Result<PathBuf, BenchError> {
    let lacks = |path: &Path, error: std::io::Error| {
        let path = path.display();
        BenchError::Lacks(format!("{path}: {error}; choose another one with --swap"))
    };
    let parent = std::fs::canonicalize(&options.swap).map_err(|e| lacks(&options.swap, e))?;
    let path = parent.join(format!(".outpage-bench-{}", std::process::id()));
    guard.note(&Undo::Remove(path.clone()))?;
    std::fs::create_dir(&path).map_err(|error| lacks(&path, error))?;
    Ok(path)
}

impl Bench<'_> {
    /// All runs. Stops at the first problem unless told to go on.
    fn all(&mut self, present: &[&'static Program]) -> Result<(), BenchError> {
        for program in present {
            let target = self.target(program)?;
            self.steps.say(&format!(
                "{}: {:.2} s without a limit, at most {:.1} MiB of anonymous memory",
                program.name,
                target.reference.seconds,
                report::mib(target.reference.peak_bytes)
            ));
            // Said before hours of runs, not after.
            match self.all_limits(&target) {
                Ok(limits) => self.targets.push(Target { limits, ..target }),
                Err(why) => self.leave_out(program.name, why)?,
            }
        }
        if self.targets.is_empty() {
            return Err(BenchError::Usage(
                "every program is too small for its limit; choose a larger --scale or --at".into(),
            ));
        }
        self.make_swap()?;
        for round in 1..=self.options.rounds {
            for &percent in &self.options.at {
                for at in 0..self.targets.len() {
                    self.turn(at, percent, round)?;
                    if !self.problems.is_empty() && !self.options.keep_going {
                        return Ok(());
                    }
                }
            }
            // What was measured for hours outlasts a benchmark that is interrupted.
            self.store()?;
        }
        Ok(())
    }

    /// Writes a program's files, prepares its input, and runs it twice without a limit: once so that its files are in
    /// the page cache, and once for its peak.
    fn target(&mut self, program: &'static Program) -> Result<Target, BenchError> {
        let name = program.name;
        let directory = self.directory.join(name);
        let n = program.scaled(self.options.scale).to_string();
        let fill = |text: &str| {
            text.replace("{n}", &n)
                .replace("{dir}", &directory.to_string_lossy())
        };
        std::fs::create_dir(&directory)
            .and_then(|()| {
                let mut files = program.files.iter();
                files.try_for_each(|(file, text)| std::fs::write(directory.join(file), fill(text)))
            })
            .map_err(|error| BenchError::Failed(format!("{}: {error}", directory.display())))?;
        let command = |words: &[&str]| -> Vec<OsString> {
            let before = std::iter::once("env".into()).chain(registry::environment());
            let words = words.iter().map(|word| fill(word));
            before.chain(words).map(OsString::from).collect()
        };
        self.steps.begin(&format!("{name}: preparing"));
        if !program.prepare.is_empty() {
            let text = format!("cd {{dir}} && {}", program.prepare);
            self.first(name, &command(&["sh", "-c", &text]))?;
        }
        let command = command(program.command);
        self.first(name, &command)?;
        self.steps.begin(&format!("{name} without a limit"));
        let (run, peak_bytes) = self.peak(&command)?;
        let Ending::Finished { report } = run.ending else {
            return Err(without_a_limit(name, &run.ending));
        };
        let reference = Reference {
            program: name,
            kind: program.kind,
            size: program.scaled(self.options.scale),
            seconds: run.wall_seconds,
            checksum: report.checksum.clone(),
            peak_bytes,
            charged_peak_bytes: run.cgroup_peak_bytes,
        };
        Ok(Target {
            program,
            command,
            reference,
            report,
            limits: Vec::new(),
        })
    }

    /// A run that is not measured.
    fn first(&self, name: &str, command: &[OsString]) -> Result<(), BenchError> {
        let run = launch_as(command, None, self.options.timeout(), Speaks::Anything)?;
        match run.ending {
            Ending::Finished { .. } => Ok(()),
            other => Err(without_a_limit(name, &other)),
        }
    }

    /// A run without a limit, and the most anonymous memory that its processes had.
    fn peak(&mut self, command: &[OsString]) -> Result<(Run, u64), BenchError> {
        let timeout = self.options.timeout();
        let mut peak = 0;
        let run = match &mut self.kernel {
            Some(kernel) => {
                let measured = kernel.within(total_bytes(), None, &mut self.guard, |cgroup| {
                    let look = || peak = peak.max(cgroup.anonymous_bytes().unwrap_or(0));
                    tools::while_looking(PEAK_INTERVAL, look, || {
                        launch_as(command, Some(cgroup), timeout, Speaks::Anything)
                    })
                })?;
                measured.run
            }
            None => {
                let me = std::process::id();
                let before = tools::anonymous_of_descendants(me);
                let look =
                    || peak = peak.max(tools::anonymous_of_descendants(me).saturating_sub(before));
                tools::while_looking(PEAK_INTERVAL, look, || {
                    launch_as(command, None, timeout, Speaks::Anything)
                })?
            }
        };
        Ok((run, peak))
    }

    /// A program that is too small for its limit is an error where somebody named it, and one less where all are run.
    fn leave_out(&mut self, program: &'static str, why: BenchError) -> Result<(), BenchError> {
        if !self.options.programs.is_empty() && !self.options.keep_going {
            return Err(why);
        }
        let why = why.to_string();
        self.steps.say(&format!("SKIPPED {program}: {why}"));
        self.skipped.push(Skipped { program, why });
        Ok(())
    }

    /// Makes what kernel swap needs, now that it is known how much that is.
    fn make_swap(&mut self) -> Result<(), BenchError> {
        let peaks = self.targets.iter().map(|one| one.reference.peak_bytes);
        let bytes = SWAP_FOOTPRINTS * peaks.max().unwrap_or(0).next_multiple_of(1 << 20);
        let wanted = |kind| self.systems.iter().any(|system| system.kind == kind);
        let (file, device) = (wanted(Kind::Kernel), wanted(Kind::Zram));
        if let (true, Some(kernel)) = (file, &mut self.kernel) {
            kernel.make_swap(bytes, &mut self.guard)?;
        }
        if device {
            self.zram = Some(Zram::create(bytes, &mut self.guard)?);
        }
        Ok(())
    }

    /// A program once under each system, another one first each time.
    fn turn(&mut self, at: usize, percent: u32, round: u32) -> Result<(), BenchError> {
        let systems = self.systems.clone();
        let first = (round as usize - 1 + at) % systems.len();
        for system in systems[first..].iter().chain(&systems[..first]) {
            let name = self.targets[at].program.name;
            let what = format!("{name} at {percent} %, {}, round {round}", system.name);
            self.steps
                .begin(&format!("{what} of {}", self.options.rounds));
            let mut same = self.records.iter().filter(|record| {
                (record.program, record.at_percent, &record.system) == (name, percent, &system.name)
            });
            if same.any(|record| record.run.ending == Ending::TimedOut) {
                continue;
            }
            let record = self.one(at, percent, round, system)?;
            match &record.run.ending {
                Ending::TimedOut => self.steps.say(&format!(
                    "{what}: more than {:.0} s",
                    record.run.wall_seconds
                )),
                ending @ Ending::OomKilled { .. }
                    if matches!(system.kind, Kind::Kernel | Kind::Zram) =>
                {
                    self.steps.say(&format!("{what}: {}", describe(ending)));
                }
                ending => {
                    let wrong = problem(ending, &self.targets[at].report);
                    self.problems
                        .extend(wrong.map(|wrong| format!("{what}: {wrong}")));
                }
            }
            self.records.push(record);
        }
        Ok(())
    }

    /// One run in a fresh cgroup.
    fn one(
        &mut self,
        at: usize,
        percent: u32,
        round: u32,
        system: &System,
    ) -> Result<Record, BenchError> {
        let Limits {
            limit_bytes,
            given_bytes: given,
            ..
        } = self.targets[at].limits(percent);
        let load_average = load_average();
        let mut command = self.targets[at].command.clone();
        let _ = std::fs::remove_file(&self.stats);
        let (mut given_bytes, mut zram) = (None, None);
        let measured = match system.kind {
            Kind::Unlimited => self.plain(&command, total_bytes(), None)?,
            Kind::Kernel => self.plain(&command, limit_bytes, Some(PAGE_CLUSTER_FILE))?,
            Kind::Zram => {
                let (measured, seen) = self.on_zram(&command, limit_bytes)?;
                zram = Some(seen);
                measured
            }
            Kind::Outpage => {
                let outpage = OutpageRun {
                    limit_bytes: given,
                    swap: &self.options.swap,
                    options: &system.run_args,
                    stats: &self.stats,
                };
                command = outpage.wrap(command)?;
                given_bytes = Some(given);
                self.plain(&command, limit_bytes, None)?
            }
        };
        Ok(Record {
            program: self.targets[at].program.name,
            at_percent: percent,
            round,
            system: system.name.clone(),
            load_average,
            limit_bytes: (system.kind != Kind::Unlimited).then_some(limit_bytes),
            given_bytes,
            run: measured.run,
            io: measured.io,
            zram,
            outpage_stats: read_stats(&self.stats),
        })
    }

    /// A run under this limit, and with the kernel's swap file at this setting of `vm.page-cluster`.
    fn plain(
        &mut self,
        command: &[OsString],
        limit_bytes: u64,
        swap: Option<u32>,
    ) -> Result<Measured, BenchError> {
        let timeout = self.options.timeout();
        if let Some(kernel) = &mut self.kernel {
            let what = (command, Speaks::Anything);
            return kernel.run(what, limit_bytes, swap, timeout, &mut self.guard);
        }
        let io = IoCounts::read(&self.options.swap);
        let run = launch_as(command, None, timeout, Speaks::Anything)?;
        Ok(Measured {
            run,
            io: IoCounts::read(&self.options.swap).since(io),
            page_cluster: [0; 2],
        })
    }

    /// A run with kernel swap on zram, the limit following what that takes. One that finished with more than the limit
    /// is tried again, with what it took too much kept free.
    fn on_zram(
        &mut self,
        command: &[OsString],
        limit_bytes: u64,
    ) -> Result<(Measured, Seen), BenchError> {
        let (Some(kernel), Some(zram)) = (&mut self.kernel, &self.zram) else {
            return Err(BenchError::Failed("zram was not prepared".into()));
        };
        let timeout = self.options.timeout();
        let (mut slack_bytes, mut tries) = (0, 1);
        loop {
            let mut seen = Seen {
                slack_bytes,
                ..Seen::default()
            };
            zram.on(limit_bytes)?;
            let body = |cgroup: &Cgroup| {
                let follow = || zram.follow(cgroup, limit_bytes, slack_bytes, &mut seen);
                tools::while_looking(zram::FOLLOW_INTERVAL, follow, || {
                    launch_as(command, Some(cgroup), timeout, Speaks::Anything)
                })
            };
            let swap = Some(PAGE_CLUSTER_ZRAM);
            let measured = kernel.within(limit_bytes - slack_bytes, swap, &mut self.guard, body)?;
            zram.off()?;
            let over = seen.over(limit_bytes);
            let finished = matches!(measured.run.ending, Ending::Finished { .. });
            if over == 0 || !finished || tries == zram::TRIES {
                return Ok((measured, seen));
            }
            slack_bytes = (slack_bytes + over).min(limit_bytes / 2);
            tries += 1;
        }
    }

    /// What there is to print and to store.
    fn summary(&self) -> (Vec<Line>, Vec<Mean>, Vec<String>) {
        let references: Vec<&Reference> = self.targets.iter().map(|one| &one.reference).collect();
        let names: Vec<String> = self.systems.iter().map(|one| one.name.clone()).collect();
        let lines = report::summarise(&references, &self.records, &names, &self.options.at);
        let means = report::means(&lines, &names, &self.options.at);
        (lines, means, names)
    }

    /// Writes all that there is so far where `--json` and `--svg` say.
    fn store(&self) -> Result<(), BenchError> {
        let options = self.options;
        let (lines, means, names) = self.summary();
        let references: Vec<&Reference> = self.targets.iter().map(|one| &one.reference).collect();
        let results = json!({
            "benchmark": "programs",
            "machine": self.machine,
            "rounds": options.rounds,
            "scale": options.scale,
            "timeout_seconds": options.timeout,
            "systems": names,
            "skipped": self.skipped,
            "references": references,
            "runs": self.records,
            "summary": lines,
            "means": means,
            "problems": self.problems,
        });
        write_json(options.json.as_deref(), &results)?;
        let Some(file) = &options.svg else {
            return Ok(());
        };
        std::fs::write(file, report::svg(&lines, &names, options.rounds)).map_err(|error| {
            BenchError::Failed(format!("cannot write {}: {error}", file.display()))
        })
    }

    /// Stores and prints what there is, and cleans up.
    fn conclude(self, ended: Result<(), BenchError>) -> Result<(), BenchError> {
        let written = self.store();
        let (lines, means, names) = self.summary();
        let Self {
            guard,
            steps,
            records,
            problems,
            ..
        } = self;
        drop(steps);
        let cleaned = guard.finish();
        output::print(&report::render(&lines, &means, &names, &records))?;
        ended.and(verdict(&problems)).and(cleaned).and(written)
    }
}

fn without_a_limit(name: &str, ending: &Ending) -> BenchError {
    BenchError::Failed(format!("{name} without a limit: {}", describe(ending)))
}

/// What the machine has: a limit that limits nothing.
fn total_bytes() -> u64 {
    available_bytes().unwrap_or(1 << 40)
}
