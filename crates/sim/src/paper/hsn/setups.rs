//! The runs of the HSN paper's evaluation, and what is drawn for them.

use crate::guests::{GuestSetup, NotifySetup, Setup, SysbenchParams, Work};
use crate::paper::draw::Numbers;
use crate::paper::runs::RunKey;
use crate::programs::JvmParams;
use crate::world::{Costs, DiskSpec, Policies};

/// Runs of every point, each with other values of what nobody knows.
pub(super) const DRAWS: u64 = 21;
/// Of these, those that the sweep is made of.
pub(super) const SWEPT_DRAWS: u64 = 5;
/// Pages of a MiB.
const MIB: u64 = 256;
/// The host's memory (section 4.2).
const HOST_MIB: u64 = 512;
/// 4 GiB of swap for the host: more than any guest's memory, so that slots are found in order.
const HOST_SLOTS: u32 = 1 << 20;
/// 2 GiB for a guest: twice the largest block.
const GUEST_SLOTS: u32 = 1 << 19;

/// The configurations of Figure 3, then one that the paper names in its introduction.
pub(super) const CONFIGURATIONS: [&str; 4] = ["KVM-1200", "KVM-768", "HSN-768", "balloon-768"];
pub(super) const SYSBENCH: &str = "sysbench";
/// The same with `--memory-oper=read`.
pub(super) const READS: &str = "sysbench reads";
pub(super) const TWO: &str = "two guests";
pub(super) const JAVA: &str = "specjbb";
pub(super) const SWEEP: &str = "sweep";

/// Drain intervals of the sweep, milliseconds.
pub(super) const DRAINS_MS: [u32; 4] = [1, 10, 100, 1_000];
/// Entries of a ring and cap on hidden pages in percent of the guest's frames, by the curves' names.
pub(super) const SWEPT: [(&str, u32, u32); 6] = [
    ("rings of 65,536, no cap", 1 << 16, 100),
    ("rings of 1,024, no cap", 1 << 10, 100),
    ("rings of 16, no cap", 1 << 4, 100),
    ("rings of 65,536, cap 40 %", 1 << 16, 40),
    ("rings of 65,536, cap 20 %", 1 << 16, 20),
    ("rings of 65,536, cap 10 %", 1 << 16, 10),
];

/// What the paper does not say, at values that it may have had. Each is drawn by itself, evenly over its range, or over its
/// range's logarithm where that spans powers of ten.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Draw {
    /// MiB that the host's kernel, its processes and QEMU have, 48 to 128: a server without a desktop.
    host_own_mib: u64,
    /// MiB of a guest's kernel, 24 to 56: 12 of them describe pages of 768 MiB. Used all the time, so that neither
    /// side pages them.
    kernel_mib: u64,
    /// MiB that processes of a guest wrote while it booted, 20 to 80.
    system_mib: u64,
    /// GiB from the host's swap space to the guests' disks, 1 to 200: the disk has 320 GB.
    images_at_gib: u64,
    /// The host's scheduler: those that Table 1 compares.
    pub anticipatory: bool,
    /// How often a guest reads its rings, 1 to 100 ms: "periodically".
    drain_us: u32,
    /// Entries of a ring, 512 to 65,536: from one page to a share of the guest's memory that nobody misses.
    entries: u32,
    /// CPU time to touch a page, 300 to 1,500 ns: 2.7 to 13 GB/s.
    page_ns: u32,
    /// Seconds are those that Sysbench prints, which begin behind the filling of the block, or those of the whole process.
    pub own_clock: bool,
    /// MiB of the Java heap, 700 to 900: what the guest has, and more.
    heap_mib: u64,
    /// Warehouses, 4 to 12: SPECjbb runs as many as CPUs, and more.
    warehouses: u64,
}

impl Draw {
    /// Number `seed`.
    pub fn of(seed: u64) -> Self {
        let numbers = Numbers(seed);
        let even = |nth, from, to| numbers.even(nth, from, to);
        let scaled = |nth, from, to| numbers.scaled(nth, from, to);
        Self {
            host_own_mib: even(1, 48, 128),
            kernel_mib: even(2, 24, 56),
            system_mib: even(3, 20, 80),
            images_at_gib: scaled(4, 1.0, 200.0) as u64,
            anticipatory: numbers.either(5),
            drain_us: scaled(6, 1_000.0, 100_000.0) as u32,
            entries: 1 << even(7, 9, 16),
            page_ns: scaled(8, 300.0, 1_500.0) as u32,
            own_clock: numbers.either(10),
            heap_mib: even(11, 700, 900),
            warehouses: even(12, 4, 12),
        }
    }

    fn notify(&self) -> NotifySetup {
        NotifySetup {
            entries: self.entries,
            drain_us: self.drain_us,
            hidden_percent: 100,
            rescues: true,
        }
    }

    /// MiB that the host has for `guests` guests.
    pub(super) fn host_mib(&self, guests: u64) -> u64 {
        HOST_MIB - self.host_own_mib - guests * self.kernel_mib
    }

    fn sysbench(&self, block_mib: u64, writes: bool) -> Work {
        Work::Sysbench(SysbenchParams {
            system_pages: self.system_mib * MIB,
            block_pages: block_mib * MIB,
            requests: 1,
            writes,
            page_ns: self.page_ns,
            pause_ns: 0,
        })
    }

    /// Transactions of the Java guest: as many edens of them as the ASP paper's guests fill here.
    pub fn transactions(&self) -> u64 {
        let default = JvmParams::default();
        default.transactions * self.heap_mib * MIB / default.heap_pages
    }

    /// A heap that fills as the ASP paper's does, larger.
    fn java(&self, seed: u64) -> Work {
        let default = JvmParams::default();
        let system = default.memory_pages - default.heap_pages;
        Work::Jvm(JvmParams {
            memory_pages: self.heap_mib * MIB + system,
            heap_pages: self.heap_mib * MIB,
            warehouses: self.warehouses,
            transactions: self.transactions(),
            seed,
            ..default
        })
    }

    fn guest(&self, mib: u64, work: Work) -> GuestSetup {
        GuestSetup {
            frames: (mib - self.kernel_mib) * MIB,
            balloon: 0,
            swap_slots: GUEST_SLOTS,
            swap_at_mib: self.images_at_gib << 10,
            policies: policies(),
            notify: None,
            work,
        }
    }

    fn machine(&self, guests: Vec<GuestSetup>) -> Setup {
        let scheduler = if self.anticipatory {
            "anticipatory"
        } else {
            "cfq"
        };
        Setup {
            frames: self.host_mib(guests.len() as u64) * MIB,
            swap_slots: HOST_SLOTS,
            policies: policies(),
            disk: DiskSpec::Named("sata-320".to_owned()),
            scheduler: scheduler.to_owned(),
            costs: Costs::default(),
            guests,
        }
    }

    /// Sysbench with a block of 1 GB in one guest.
    fn one(&self, configuration: &str, writes: bool) -> Setup {
        let mib = if configuration == "KVM-1200" {
            1_200
        } else {
            768
        };
        let mut guest = self.guest(mib, self.sysbench(1_024, writes));
        match configuration {
            "KVM-1200" => guest.swap_slots = 0,
            "HSN-768" => guest.notify = Some(self.notify()),
            // So large that the host has what is left and a sixteenth free: it keeps a thirty-second so.
            "balloon-768" => {
                let host = self.host_mib(1) * MIB;
                guest.balloon = guest.frames.saturating_sub(host - host / 16);
            }
            _ => {}
        }
        self.machine(vec![guest])
    }

    /// Two guests of 300 MB, each with a block of 500 MB.
    fn two(&self, notifies: bool) -> Setup {
        let guest = |number: u64| GuestSetup {
            // 8 GiB behind each other.
            swap_at_mib: (self.images_at_gib + 8 * number) << 10,
            notify: notifies.then(|| self.notify()),
            ..self.guest(300, self.sysbench(500, true))
        };
        self.machine(vec![guest(0), guest(1)])
    }

    fn java_guest(&self, seed: u64, notifies: bool) -> Setup {
        let mut guest = self.guest(768, self.java(seed));
        guest.notify = notifies.then(|| self.notify());
        self.machine(vec![guest])
    }
}

/// Linux of 2009 on both levels, as in the ASP paper's evaluation: victims in access order, 32 pages a write, and blocks of 8 slots read.
fn policies() -> Policies {
    Policies {
        reclaim: "second-chance".to_owned(),
        pageout: "linux".to_owned(),
        readahead: "linux-slot".to_owned(),
        readahead_settings: "block=fixed,page-cluster=3,arrival=staged".to_owned(),
        zero_around: 1,
        rescue_around: 0,
        ..Policies::default()
    }
}

/// The key of a run of the paper's.
pub(super) fn key(workload: &str, configuration: &str, seed: u64) -> RunKey {
    RunKey::new("512 MB", workload, configuration).seeded(seed)
}

/// The key of a run of the sweep.
pub(super) fn swept_key(curve: &str, drain_ms: u32, seed: u64) -> RunKey {
    let name = format!("HSN-768, drained every {drain_ms} ms, {curve}");
    RunKey::new("512 MB", SWEEP, &name).seeded(seed)
}

/// Every run.
pub(in crate::paper) fn setups() -> Vec<(RunKey, Setup)> {
    let mut setups = Vec::new();
    for seed in 1..=DRAWS {
        let draw = Draw::of(seed);
        for configuration in CONFIGURATIONS {
            let setup = draw.one(configuration, true);
            setups.push((key(SYSBENCH, configuration, seed), setup));
        }
        for configuration in &CONFIGURATIONS[..3] {
            let setup = draw.one(configuration, false);
            setups.push((key(READS, configuration, seed), setup));
        }
        for (name, notifies) in [("KVM", false), ("HSN", true)] {
            setups.push((key(TWO, name, seed), draw.two(notifies)));
            setups.push((key(JAVA, name, seed), draw.java_guest(seed, notifies)));
        }
    }
    for seed in 1..=SWEPT_DRAWS {
        let draw = Draw::of(seed);
        for (curve, entries, hidden_percent) in SWEPT {
            for drain_ms in DRAINS_MS {
                let mut setup = draw.one("HSN-768", true);
                setup.guests[0].notify = Some(NotifySetup {
                    entries,
                    drain_us: drain_ms * 1_000,
                    hidden_percent,
                    rescues: true,
                });
                setups.push((swept_key(curve, drain_ms, seed), setup));
            }
        }
    }
    setups
}

/// Those of the first draws, with a hundredth of the memory at every level and of what is done in it.
#[cfg(test)]
pub(in crate::paper) fn small_setups() -> Vec<(RunKey, Setup)> {
    const PART: u64 = 100;
    let mut all = setups();
    all.retain(|(key, _)| key.seed <= 2);
    for (_, setup) in &mut all {
        setup.frames /= PART;
        for guest in &mut setup.guests {
            guest.frames /= PART;
            guest.balloon /= PART;
            match &mut guest.work {
                Work::Sysbench(work) => {
                    work.system_pages /= PART;
                    work.block_pages /= PART;
                }
                Work::Jvm(work) => {
                    work.heap_pages /= PART;
                    work.memory_pages /= PART;
                    work.transactions /= PART;
                    work.warehouses = 5;
                    work.warehouse_pages = work.heap_pages / 12;
                    work.warehouse_pages_max = work.heap_pages / 10;
                }
            }
        }
    }
    all
}

/// The ranges that are drawn from, for the report.
pub(super) const RANGES: &str = "Drawn anew for each of 21 runs, one and the same for what is compared: what the host itself \
    takes, 48 to 128 MiB; a guest's kernel, 24 to 56 MiB, and its processes, 20 to 80 MiB; the guests' disks, 1 to 200 GiB behind the host's \
    swap space; CFQ or anticipatory; draining every 1 to 100 ms; rings of 512 to 65,536 entries; 300 to 1,500 ns a page; \
    Sysbench's own clock or that of the whole process; a Java heap of 700 to 900 MiB with 4 to 12 warehouses.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_lie_in_their_ranges_and_differ() {
        let draws: Vec<Draw> = (1..=DRAWS).map(Draw::of).collect();
        for draw in &draws {
            assert!((48..=128).contains(&draw.host_own_mib), "{draw:?}");
            assert!((24..=56).contains(&draw.kernel_mib), "{draw:?}");
            assert!((20..=80).contains(&draw.system_mib), "{draw:?}");
            assert!((1..=200).contains(&draw.images_at_gib), "{draw:?}");
            assert!((1_000..=100_000).contains(&draw.drain_us), "{draw:?}");
            assert!((512..=65_536).contains(&draw.entries), "{draw:?}");
            assert!((300..=1_500).contains(&draw.page_ns), "{draw:?}");
            assert!((700..=900).contains(&draw.heap_mib), "{draw:?}");
            assert!((4..=12).contains(&draw.warehouses), "{draw:?}");
        }
        let of = |choice: fn(&Draw) -> bool| draws.iter().filter(|draw| choice(draw)).count();
        for both in [of(|d| d.anticipatory), of(|d| d.own_clock)] {
            assert!((4..=20).contains(&both), "{both} of {DRAWS}");
        }
        assert_eq!(Draw::of(3), Draw::of(3));
    }

    #[test]
    fn no_run_comes_twice_and_every_set_up_can_be() {
        let setups = setups();
        let keys: std::collections::BTreeSet<_> = setups.iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), setups.len());
        for (key, setup) in &setups {
            assert!(crate::guests::Machine::new(setup).is_ok(), "{key:?}");
        }
    }
}
