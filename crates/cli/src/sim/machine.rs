//! The simulated machine as people write it down: options and settings file alike.

use std::path::Path;

use outpage_core::units::PAGE_BYTES;
use outpage_engine::config::{parse_chunk, parse_size, parse_window};
use outpage_sim::disk::{self, Params};
use outpage_sim::world::{
    BsdSwitches, CodecCosts, Costs, DiskSpec, POOL_LOSS_PERCENT, Ratio, Setup, WindowSetting, World,
};
use serde::Deserialize;

use super::jobs::Job;
use super::programs::Source;
use crate::error::{CliError, code};

/// Memory, disk and policies. Several values, separated by commas, are crossed.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(
    next_help_heading = "Machine and policies (several values, separated by commas, are crossed)"
)]
pub struct Machine {
    /// RAM for the programs: a size, or a share of what they touch like 50% [default: 50%]
    #[arg(long, short, value_name = "SIZE", value_delimiter = ',')]
    pub memory: Vec<String>,
    /// Swap space [default: twice what the programs touch, at least 2G]
    #[arg(long, value_name = "SIZE")]
    pub swap_cap: Option<String>,
    /// A disk by name, or a file of `outpage disk measure` [default: barracuda-7200.9]
    #[arg(long, value_name = "NAME", value_delimiter = ',', long_help = disks())]
    pub disk: Vec<String>,
    /// A disk scheduler, some with settings [default: elevator]
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]", value_delimiter = ',', long_help = schedulers())]
    pub scheduler: Vec<String>,
    /// A whole set of policies: live, linux, bsd-6.2 or bsd-8.2 [default: live]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub system: Vec<String>,
    /// Which pages leave, with settings as in s3-fifo:small=20 [default: the system's]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub reclaim: Vec<String>,
    /// How pages are grouped for writing [default: the system's]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub pageout: Vec<String>,
    /// What else is read with a page, with settings as in asp:window=8,max=32 [default: the system's]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub readahead: Vec<String>,
    /// Where in the swap space pages go [default: the system's]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub slots: Vec<String>,
    /// Which victims are kept compressed in RAM, with settings as in lz4:pool=50 [default: none]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub tier: Vec<String>,
    /// When discardable pages are dropped, with settings as in pf:pages=64 [default: none]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub discard: Vec<String>,
    /// How far pages compress: 1 to 16; heap, as the heaps of five programs; trace, as recorded [default: trace
    /// where a trace has sizes, else heap]
    #[arg(long, value_name = "RATIO", value_delimiter = ',')]
    pub ratio: Vec<String>,
    /// Of the frames with compressed pages, how many percent hold nothing, 0 to 50 [default: 8]
    #[arg(long, value_name = "PERCENT", value_parser = pool_loss)]
    pub pool_loss: Option<u32>,
    /// Largest write in pages, 1 to 1024 [default: the policy's]
    #[arg(long, value_name = "PAGES", value_parser = parse_chunk)]
    pub chunk: Option<u32>,
    /// Largest read-ahead window in pages, 1 to 256 [default: the policy's]
    #[arg(long, value_name = "PAGES", value_parser = parse_window)]
    pub window: Option<u32>,
    /// Which neighbours of a victim go along: kernel or paper [default: kernel]
    #[arg(long, value_name = "NAME", value_parser = ["kernel", "paper"])]
    pub cluster_window: Option<String>,
    /// CPU time of the kernel, nanoseconds; in a settings file only.
    #[arg(skip)]
    pub costs: Option<Costs>,
    /// The longest that a program computes while another could; in a settings file only.
    #[arg(skip)]
    pub quantum_ms: Option<u32>,
    /// Where the BSD page daemon departs from its kernel; in a settings file only.
    #[arg(skip)]
    pub bsd: Option<BsdSwitches>,
}

fn pool_loss(text: &str) -> Result<u32, String> {
    let allowed = POOL_LOSS_PERCENT;
    let percent = text
        .parse()
        .ok()
        .filter(|percent| allowed.contains(percent));
    percent.ok_or_else(|| format!("must be {} to {}", allowed.start(), allowed.end()))
}

fn disks() -> String {
    let rows = disk::MODELS
        .iter()
        .map(|m| format!("\n  {:22} {}", m.name, m.summary));
    format!(
        "A disk by name, or a file of `outpage disk measure`:{}",
        rows.collect::<String>()
    )
}

fn schedulers() -> String {
    let mut text = "A disk scheduler, some with settings [default: elevator]:".to_owned();
    for entry in disk::SCHEDULERS {
        text += &format!("\n  {:22} {}", entry.name, entry.summary);
        for s in entry.settings {
            let (name, help) = (format!("{}=", s.name), s.help);
            text += &format!(
                "\n    {name:20} {help}: {} to {} [default: {}]",
                s.least,
                s.most,
                s.default()
            );
        }
    }
    text
}

/// Names of [`Machine::system`].
const SYSTEMS: [&str; 4] = ["live", "linux", "bsd-6.2", "bsd-8.2"];
/// The least swap space when none is named, in slots: 2 GiB, as [`Setup::live`].
const SWAP_SLOTS_MIN: u64 = 1 << 19;

impl Machine {
    /// What this one says; where it says nothing, what `other` says.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let list =
            |mine: Vec<String>, other: Vec<String>| if mine.is_empty() { other } else { mine };
        Self {
            memory: list(self.memory, other.memory),
            swap_cap: self.swap_cap.or(other.swap_cap),
            disk: list(self.disk, other.disk),
            scheduler: list(self.scheduler, other.scheduler),
            system: list(self.system, other.system),
            reclaim: list(self.reclaim, other.reclaim),
            pageout: list(self.pageout, other.pageout),
            readahead: list(self.readahead, other.readahead),
            slots: list(self.slots, other.slots),
            tier: list(self.tier, other.tier),
            discard: list(self.discard, other.discard),
            ratio: list(self.ratio, other.ratio),
            pool_loss: self.pool_loss.or(other.pool_loss),
            chunk: self.chunk.or(other.chunk),
            window: self.window.or(other.window),
            cluster_window: self.cluster_window.or(other.cluster_window),
            costs: self.costs.or(other.costs),
            quantum_ms: self.quantum_ms.or(other.quantum_ms),
            bsd: self.bsd.or(other.bsd),
        }
    }

    /// Every combination, the last option varying fastest; each is known to be buildable.
    ///
    /// # Errors
    /// [`code::USAGE`] for what there is not; [`code::NO_INPUT`] and [`code::DATA`] for a disk's file.
    pub fn jobs(&self, sources: &[Source]) -> Result<Vec<Job>, CliError> {
        let footprint: u64 = sources.iter().map(Source::footprint).sum();
        let mut jobs = vec![];
        for system in or_one(&self.system, "live") {
            jobs.push(self.base(&system, footprint)?);
        }
        let named = |s: &mut Setup, field: fn(&mut Setup) -> &mut String, v: &str| {
            v.clone_into(field(s));
            Ok(())
        };
        jobs = cross(jobs, &with_settings(&self.reclaim), |j, v| {
            named(&mut j.setup, |s| &mut s.policies.reclaim, v)
        })?;
        jobs = cross(jobs, &self.pageout, |j, v| {
            named(&mut j.setup, |s| &mut s.policies.pageout, v)
        })?;
        jobs = cross(jobs, &with_settings(&self.readahead), |j, v| {
            let (name, settings) = v.split_once(':').unwrap_or((v, ""));
            named(&mut j.setup, |s| &mut s.policies.readahead, name.trim())?;
            named(
                &mut j.setup,
                |s| &mut s.policies.readahead_settings,
                settings,
            )
        })?;
        jobs = cross(jobs, &self.slots, |j, v| {
            named(&mut j.setup, |s| &mut s.policies.slots, v)
        })?;
        jobs = cross(jobs, &with_settings(&self.tier), |j, v| {
            named(&mut j.setup, |s| &mut s.policies.tier, v)
        })?;
        jobs = cross(jobs, &with_settings(&self.discard), |j, v| {
            named(&mut j.setup, |s| &mut s.policies.discard, v)
        })?;
        jobs = self.with_ratios(jobs, sources)?;
        jobs = cross(jobs, &or_one(&self.memory, "50%"), |j, v| {
            j.setup.frames = frames(v, footprint)?;
            Ok(())
        })?;
        jobs = cross(jobs, &or_one(&self.disk, "barracuda-7200.9"), |j, v| {
            let codecs;
            (j.disk, j.setup.disk, codecs) = disk_spec(v)?;
            // What the settings file says of costs holds.
            if let Some(codecs) = codecs.filter(|_| self.costs.is_none()) {
                j.setup.costs = codecs.within(j.setup.costs);
            }
            Ok(())
        })?;
        jobs = cross(jobs, &with_settings(&self.scheduler), |j, v| {
            named(&mut j.setup, |s| &mut s.scheduler, v)
        })?;
        for job in &jobs {
            // An empty world says at once what is wrong with its set-up.
            World::with_programs(&job.setup, Vec::new()).map_err(|e| usage(e.to_string()))?;
        }
        Ok(jobs)
    }

    /// Ratios are of no matter where nothing is compressed.
    fn with_ratios(&self, jobs: Vec<Job>, sources: &[Source]) -> Result<Vec<Job>, CliError> {
        let recorded = sources.iter().any(|source| source.sizes() > 0);
        let default = if recorded { Ratio::Trace } else { Ratio::Heap };
        let given = or_one(&self.ratio, &default.to_string());
        let mut all = Vec::new();
        for job in jobs {
            let ratios = if job.compresses() {
                &given[..]
            } else {
                &given[..1]
            };
            all.extend(cross(vec![job], ratios, |j, v| {
                j.setup.ratio = v.parse().map_err(|why| usage(format!("--ratio: {why}")))?;
                if j.setup.ratio == Ratio::Trace && !recorded {
                    let text = "--ratio trace: no trace here has compressed sizes of its pages, as those of `outpage trace` \
                                have from version 2 of the format on";
                    return Err(usage(text.to_owned()));
                }
                Ok(())
            })?);
        }
        Ok(all)
    }

    fn base(&self, system: &str, footprint: u64) -> Result<Job, CliError> {
        let mut setup = match system {
            "live" => Setup::live(0, Vec::new()),
            "linux" => {
                let mut setup = Setup::live(0, Vec::new());
                "second-chance".clone_into(&mut setup.policies.reclaim);
                "linux".clone_into(&mut setup.policies.pageout);
                "linux-slot".clone_into(&mut setup.policies.readahead);
                setup
            }
            "bsd-6.2" => Setup::bsd("6.2", "bsd", 0, Vec::new()),
            "bsd-8.2" => Setup::bsd("8.2", "bsd", 0, Vec::new()),
            _ => {
                return Err(usage(format!(
                    "there is no system '{system}'; there are {}",
                    SYSTEMS.join(", ")
                )));
            }
        };
        let p = &mut setup.policies;
        p.buffer_pages = self.chunk.or(p.buffer_pages);
        p.max_window = self.window.or(p.max_window);
        if self.cluster_window.as_deref() == Some("paper") {
            p.window = WindowSetting::Paper;
        }
        p.bsd = self.bsd.unwrap_or(p.bsd);
        setup.costs = self.costs.unwrap_or(setup.costs);
        setup.pool_loss_percent = self.pool_loss.unwrap_or(setup.pool_loss_percent);
        setup.quantum_ms = self.quantum_ms.unwrap_or(setup.quantum_ms);
        setup.swap_slots = self.swap_slots(footprint)?;
        let disk = String::new();
        Ok(Job {
            system: system.to_owned(),
            setup,
            disk,
        })
    }

    fn swap_slots(&self, footprint: u64) -> Result<u32, CliError> {
        let slots = match &self.swap_cap {
            None => (2 * footprint).max(SWAP_SLOTS_MIN),
            Some(text) => {
                parse_size(text).map_err(|e| usage(format!("--swap-cap: {e}")))? / PAGE_BYTES as u64
            }
        };
        let most = u32::MAX / 2;
        match u32::try_from(slots)
            .ok()
            .filter(|s| (16..=most).contains(s))
        {
            Some(slots) => Ok(slots),
            None => Err(usage(format!(
                "--swap-cap must be 64K to {}G",
                (u64::from(most) + 1) >> 18
            ))),
        }
    }
}

fn usage(text: String) -> CliError {
    CliError::new(code::USAGE, text)
}

fn or_one(list: &[String], default: &str) -> Vec<String> {
    if list.is_empty() {
        vec![default.to_owned()]
    } else {
        list.to_vec()
    }
}

fn cross(
    jobs: Vec<Job>,
    values: &[String],
    set: impl Fn(&mut Job, &str) -> Result<(), CliError>,
) -> Result<Vec<Job>, CliError> {
    if values.is_empty() {
        return Ok(jobs);
    }
    let mut all = Vec::with_capacity(jobs.len() * values.len());
    for job in jobs {
        for value in values {
            let mut job = job.clone();
            set(&mut job, value.trim())?;
            all.push(job);
        }
    }
    Ok(all)
}

/// Names with their settings, which commas separate as well: `asp:window=4`, `step=4` is one.
fn with_settings(pieces: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for piece in pieces.iter().map(|p| p.trim()) {
        let setting = piece.contains('=') && !piece.contains(':');
        match all.last_mut().filter(|_| setting) {
            Some(policy) => {
                policy.push(if policy.contains(':') { ',' } else { ':' });
                policy.push_str(piece);
            }
            None => all.push(piece.to_owned()),
        }
    }
    all
}

/// Frames of a size, or of a share of `footprint` pages.
fn frames(text: &str, footprint: u64) -> Result<u64, CliError> {
    let Some(share) = text.strip_suffix('%') else {
        let bytes =
            parse_size(text).map_err(|e| usage(format!("--memory: {e}, or a share like 50%")))?;
        return Ok(bytes / PAGE_BYTES as u64);
    };
    match share.trim().parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1000.0 => {
            Ok((footprint as f64 * share / 100.0).ceil() as u64)
        }
        _ => Err(usage(format!(
            "--memory '{text}' is no share: write it like 50%"
        ))),
    }
}

/// A disk's label, the disk, and what compression takes of the CPU beside it where that was measured.
fn disk_spec(text: &str) -> Result<(String, DiskSpec, Option<CodecCosts>), CliError> {
    if disk::model(text).is_some() {
        return Ok((text.to_owned(), DiskSpec::Named(text.to_owned()), None));
    }
    let path = Path::new(text);
    if !path.exists() {
        let names: Vec<_> = disk::MODELS.iter().map(|m| m.name).collect();
        return Err(usage(format!(
            "there is no disk and no file '{text}'; disks are {}",
            names.join(", ")
        )));
    }
    let json = std::fs::read_to_string(path).map_err(|e| CliError::no_text(path, e))?;
    let (params, codecs) = read_disk(&json)
        .map_err(|why| CliError::new(code::DATA, format!("{text} is no disk: {why}")))?;
    let label = path
        .file_stem()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    Ok((label.into_owned(), DiskSpec::Params(params), codecs))
}

/// The parameters in a file of `outpage disk measure`, or alone, and the costs of compression where it has them.
///
/// # Errors
/// What is wrong with it.
pub fn read_disk(json: &str) -> Result<(Params, Option<CodecCosts>), String> {
    let value: serde_json::Value = serde_json::from_str(json).map_err(|e| e.to_string())?;
    let codecs = value.get("codecs").cloned().map(serde_json::from_value);
    let codecs = codecs.transpose();
    let codecs: Option<CodecCosts> = codecs.map_err(|e| format!("codecs: {e}"))?;
    let params = value.get("params").cloned().unwrap_or(value);
    let params: Params = serde_json::from_value(params).map_err(|e| e.to_string())?;
    params.check().map(|()| (params, codecs))
}

/// Bytes a second that a disk reads and writes at best.
#[must_use]
pub fn bandwidth(setup: &Setup) -> Option<outpage_sim::bounds::Bandwidth> {
    let params = match &setup.disk {
        DiskSpec::Named(name) => disk::model(name)?.params,
        DiskSpec::Params(params) => *params,
    };
    let rate = |block_ns: u64, channels: u32| {
        PAGE_BYTES as f64 * 1e9 * f64::from(channels.max(1)) / block_ns.max(1) as f64
    };
    Some(match params {
        Params::Rotating(p) => {
            let outer = f64::from(p.outer_mb_s.max(1)) * 1e6;
            outpage_sim::bounds::Bandwidth {
                read: outer,
                write: outer,
            }
        }
        Params::Solid(p) => outpage_sim::bounds::Bandwidth {
            read: rate(p.read_block_ns, p.channels),
            write: rate(p.write_block_ns, p.channels),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_a_size_or_a_share() {
        assert_eq!(frames("4M", 7), Ok(1024));
        assert_eq!(frames("50%", 1001), Ok(501));
        for bad in ["0%", "-5%", "half%", "12X", ""] {
            assert_eq!(frames(bad, 100).unwrap_err().code, code::USAGE, "{bad}");
        }
    }

    #[test]
    fn options_come_before_the_file() {
        let words = |w: &[&str]| w.iter().map(|&w| w.to_owned()).collect::<Vec<_>>();
        let mine = Machine {
            disk: words(&["nvme"]),
            ..Machine::default()
        };
        let file = Machine {
            disk: words(&["sata-320"]),
            memory: words(&["1G"]),
            ..Machine::default()
        };
        let both = mine.or(file);
        assert_eq!((both.disk, both.memory), (words(&["nvme"]), words(&["1G"])));
    }

    #[test]
    fn commas_separate_names_and_their_settings() {
        let words = |w: &[&str]| w.iter().map(|&w| w.to_owned()).collect::<Vec<_>>();
        let given = ["asp:max=8", " step=4", "none", "leap", "split=2"];
        assert_eq!(
            with_settings(&words(&given)),
            words(&["asp:max=8,step=4", "none", "leap:split=2"])
        );
        assert_eq!(with_settings(&words(&["max=8"])), words(&["max=8"]));
    }

    #[test]
    fn a_disk_file_is_the_parameters_or_has_them() {
        let solid = r#"{"solid":{"read_ns":1,"read_block_ns":2,"write_ns":3,"write_block_ns":4,"channels":5}}"#;
        let (alone, none) = read_disk(solid).expect("parameters");
        assert_eq!(none, None);
        let measured =
            |codecs: &str| read_disk(&format!(r#"{{"schema":1,"params":{solid}{codecs}}}"#));
        assert_eq!(measured(""), Ok((alone, None)));
        let costs = r#","codecs":{"compress_ns":1,"unfit_ns":2,"decompress_ns":3,"zstd_compress_ns":4,"zstd_decompress_ns":5}"#;
        let (_, codecs) = measured(costs).expect("costs");
        let costs = codecs.expect("costs").within(Costs::default());
        assert_eq!((costs.unfit_ns, costs.zstd_decompress_ns), (2, 5));
        assert_eq!(costs.io_ns, Costs::default().io_ns);
        assert!(measured(r#","codecs":{"compress_ns":1}"#).is_err());
        assert!(read_disk("{}").is_err());
    }
}
