//! How much of a limit Outpage is given for the program's pages, so that all sides have the same RAM in all: what it and the program take
//! beside those pages is measured in a run that does not count.

use super::super::kernel::reserve_bytes;
use super::super::launch::{Ending, OutpageRun, Speaks, launch_as};
use super::options::Kind;
use super::{Bench, BenchError, PEAK_INTERVAL, Target, report, tools, total_bytes};

/// The least that `outpage run` takes as a limit, in bytes.
const LIMIT_MIN_BYTES: u64 = 8 << 20;
/// What each process more of a program takes that is not paged, in bytes, where it is not measured: loader, libc, data segments, the main
/// thread's stack and the pager's fixed tables. The tests of `outpage run` measured up to 1.5 MiB in python3 and sort, and allow this.
const PROCESS_BYTES: u64 = 2 << 20;
/// What is left free beyond what was measured, in bytes, and as a part of the limit: runs differ, the measurement looks 100 times a second,
/// and the kernel charges memory 64 pages ahead for each CPU (`MEMCG_CHARGE_BATCH` in mm/memcontrol.c, Linux 6.12).
const MARGIN_BYTES: u64 = 1 << 20;
const MARGIN_PART: u64 = 50;
/// What was measured is not believed below this part of the estimate: peaks may be shorter than a look.
const LEAST_PART: u64 = 2;

/// A program's limit.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// In percent of its peak.
    percent: u32,
    /// Of all sides, in bytes.
    pub limit_bytes: u64,
    /// What of it Outpage is given for the program's pages, in bytes.
    pub given_bytes: u64,
}

impl Target {
    /// The limit at `percent` of the peak.
    ///
    /// # Panics
    /// If that is not among those that were asked for.
    pub(super) fn limits(&self, percent: u32) -> Limits {
        let mut found = self.limits.iter().filter(|one| one.percent == percent);
        *found.next().expect("each percentage has a limit")
    }
}

impl Bench<'_> {
    /// The limits of a program.
    pub(super) fn all_limits(&mut self, target: &Target) -> Result<Vec<Limits>, BenchError> {
        let mut limits = Vec::new();
        for &percent in &self.options.at {
            let limit_bytes = (target.reference.peak_bytes * u64::from(percent) / 100) & !0xfff;
            let reserve = match self.options.reserve {
                Some(reserve) => reserve,
                None => self.reserve(target, percent, limit_bytes)?,
            };
            let given_bytes = limit_bytes.saturating_sub(reserve) & !0xfff;
            let pages = self.systems.iter().any(|one| one.kind == Kind::Outpage);
            if pages && given_bytes < LIMIT_MIN_BYTES {
                return Err(BenchError::Usage(format!(
                    "{percent} % of the peak of {} are {:.1} MiB, which leaves less than {} MiB beside the {:.1} MiB that \
                     Outpage needs itself; choose a larger --scale or --at, or leave it out (--programs)",
                    target.program.name,
                    report::mib(limit_bytes),
                    LIMIT_MIN_BYTES >> 20,
                    report::mib(reserve)
                )));
            }
            limits.push(Limits {
                percent,
                limit_bytes,
                given_bytes,
            });
        }
        Ok(limits)
    }

    /// What Outpage and the program need beside the program's pages, in bytes: measured where there are cgroups, else estimated. Where there are
    /// several systems of Outpage's, by the first: all are given as much.
    fn reserve(
        &mut self,
        target: &Target,
        percent: u32,
        limit_bytes: u64,
    ) -> Result<u64, BenchError> {
        let more = PROCESS_BYTES * u64::from(target.program.processes - 1);
        let estimated = reserve_bytes(target.reference.peak_bytes) + more;
        let tried = limit_bytes.saturating_sub(estimated) & !0xfff;
        let mut systems = self.systems.iter();
        let Some(system) = systems.find(|one| one.kind == Kind::Outpage) else {
            return Ok(estimated);
        };
        let options = system.run_args.clone();
        let Some(kernel) = &mut self.kernel else {
            return Ok(estimated);
        };
        let name = target.program.name;
        self.steps
            .begin(&format!("{name} at {percent} %, what Outpage needs itself"));
        let tried = tried.max(LIMIT_MIN_BYTES);
        let outpage = OutpageRun {
            limit_bytes: tried,
            swap: &self.options.swap,
            options: &options,
            stats: &self.stats,
        };
        let command = outpage.wrap(target.command.clone())?;
        let (timeout, mut kept) = (self.options.timeout(), 0);
        let measured = kernel.within(total_bytes(), None, &mut self.guard, |cgroup| {
            let look = || kept = kept.max(cgroup.kept_bytes().unwrap_or(0));
            tools::while_looking(PEAK_INTERVAL, look, || {
                launch_as(&command, Some(cgroup), timeout, Speaks::Anything)
            })
        })?;
        let ended = matches!(
            measured.run.ending,
            Ending::Finished { .. } | Ending::TimedOut
        );
        // A run that did not fill what it was given tells nothing.
        if !ended || kept <= tried {
            return Ok(estimated);
        }
        let margin = MARGIN_BYTES + limit_bytes / MARGIN_PART;
        Ok((kept - tried + margin).max(estimated / LEAST_PART))
    }
}
