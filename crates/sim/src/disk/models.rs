//! Disks by name.
//!
//! What the sources do not give is an estimate, marked (e), the same for all drives of a
//! generation; `paper` reports vary what matters among them.

use std::ops::RangeInclusive;

use super::{Device, Rotating, RotatingParams, SolidParams, SolidState};

/// What a model is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Params {
    /// A rotating disk.
    Rotating(RotatingParams),
    /// A solid-state disk.
    Solid(SolidParams),
}

impl Params {
    /// Whether there can be such a disk.
    ///
    /// # Errors
    /// Which figure cannot be, and what could.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Rotating(params) => params.check(),
            Self::Solid(params) => params.check(),
        }
    }

    /// Makes the device.
    ///
    /// # Panics
    /// When [`Self::check`] fails.
    #[must_use]
    pub fn device(&self) -> Box<dyn Device> {
        match *self {
            Self::Rotating(params) => Box::new(Rotating::new(params)),
            Self::Solid(params) => Box::new(SolidState(params)),
        }
    }
}

/// Whether `value` lies in `allowed`.
pub(super) fn within(what: &str, value: u64, allowed: RangeInclusive<u64>) -> Result<(), String> {
    if allowed.contains(&value) {
        return Ok(());
    }
    let (least, most) = (allowed.start(), allowed.end());
    Err(format!("{what} is {value}, but must be {least} to {most}"))
}

/// A disk of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// The name on the command line.
    pub name: &'static str,
    /// One line for help.
    pub summary: &'static str,
    /// Where the figures come from.
    pub source: &'static str,
    /// The figures.
    pub params: Params,
}

/// Barracuda 7200.9, one 160 GB platter.
///
/// 7200 rpm, 11 ms average seek, 300 MB/s interface, one platter: Tech Report review 9147. 8 MB
/// buffer: resellers' lists of ST3160812AS. Outer rate: the 65 MB/s that Tech Report review 8160
/// gives for the 133 GB platters of the 7200.8, times the root of 160/133 for the denser track;
/// inner rate half of it (e), the ratio of the radii. Track-to-track 1 ms and full stroke 22 ms
/// (e): common for the class. Overhead 0.2 ms and 16 read segments (e).
const BARRACUDA_9: RotatingParams = RotatingParams {
    rpm: 7200,
    seek_track_us: 1_000,
    seek_average_us: 11_000,
    seek_full_us: 22_000,
    switch_us: 1_000,
    outer_mb_s: 71,
    inner_mb_s: 36,
    capacity_gb: 160,
    bus_mb_s: 150,
    overhead_us: 200,
    buffer_kib: 8_192,
    read_segments: 16,
    write_cache: true,
    // As many as fit: what the drive's firmware keeps apart is not published.
    write_extents: None,
    // The default layout of FreeBSD's installer puts swap behind a root file system of 512 MB.
    swap_at_mb: 512,
    phase_us: 0,
};

/// Every disk.
pub static MODELS: &[Model] = &[
    Model {
        name: "barracuda-7200.9",
        summary: "Seagate Barracuda 7200.9, 160 GB, 7200 rpm, write cache on: the MOC paper's",
        source: "Tech Report reviews 9147 and 8160; estimates named in the code",
        params: Params::Rotating(BARRACUDA_9),
    },
    Model {
        name: "barracuda-7200.9-nowc",
        summary: "the same with its write cache off",
        source: "as barracuda-7200.9",
        params: Params::Rotating(RotatingParams {
            write_cache: false,
            ..BARRACUDA_9
        }),
    },
    // The mClustering paper says "Seagate 160GB 7200RPM" only. In 2013 that is most likely a
    // 7200.12: 8.5 ms, 125 MB/s, 8 MB by its data sheet (from memory, not at hand).
    Model {
        name: "seagate-160",
        summary: "a Seagate of 160 GB and 7200 rpm of 2009 to 2013: the mClustering paper's",
        source: "data sheet figures of the Barracuda 7200.12 from memory; estimates as barracuda-7200.9",
        params: Params::Rotating(RotatingParams {
            seek_average_us: 8_500,
            seek_full_us: 17_000,
            outer_mb_s: 125,
            inner_mb_s: 62,
            bus_mb_s: 300,
            overhead_us: 100,
            ..BARRACUDA_9
        }),
    },
    // The ASP paper says "320GB 7200RPM SATA". A drive of that size measured by goughlui.com
    // (ST3320620A) reads 62 MB/s on average, with 16 MB of buffer: outer 78, inner 42 (e).
    Model {
        name: "sata-320",
        summary: "a 320 GB SATA disk of 7200 rpm: the ASP paper's",
        source: "goughlui.com, ST3320620A; estimates as barracuda-7200.9",
        params: Params::Rotating(RotatingParams {
            seek_average_us: 8_500,
            seek_full_us: 17_000,
            outer_mb_s: 78,
            inner_mb_s: 42,
            capacity_gb: 320,
            bus_mb_s: 300,
            buffer_kib: 16_384,
            ..BARRACUDA_9
        }),
    },
    // 2.5 us a block is 1.6 GB/s, 80 us is the flash itself: round figures of a consumer NVMe
    // disk. `outpage disk measure` fits a model to the disk at hand instead.
    Model {
        name: "nvme",
        summary: "a solid-state disk with 80 us a read",
        source: "round figures; fit your own",
        params: Params::Solid(SolidParams {
            read_ns: 80_000,
            read_block_ns: 2_500,
            write_ns: 20_000,
            write_block_ns: 2_500,
            channels: 32,
        }),
    },
];

/// The disk called `name`.
#[must_use]
pub fn model(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Op, Request, SCHEDULERS};

    #[test]
    fn names_are_unique_and_found() {
        for entry in MODELS {
            assert_eq!(model(entry.name).expect("registered").name, entry.name);
            assert_eq!(MODELS.iter().filter(|m| m.name == entry.name).count(), 1);
        }
        assert!(model("floppy").is_none());
        assert_eq!(SCHEDULERS.len(), 5);
    }

    #[test]
    fn disks_that_cannot_be_are_refused() {
        assert!(MODELS.iter().all(|model| model.params.check().is_ok()));
        let rotating: [fn(&mut RotatingParams); 5] = [
            |p| p.rpm = 0,
            |p| p.seek_full_us = p.seek_track_us - 1,
            |p| p.inner_mb_s = 0,
            |p| p.capacity_gb = 0,
            |p| p.buffer_kib = 0,
        ];
        for spoil in rotating {
            let mut params = BARRACUDA_9;
            spoil(&mut params);
            assert!(Params::Rotating(params).check().is_err(), "{params:?}");
        }
        let solid = SolidParams {
            read_ns: 1,
            read_block_ns: 1,
            write_ns: 1,
            write_block_ns: 1,
            channels: 0,
        };
        assert!(Params::Solid(solid).check().is_err());
    }

    /// Random reads of 4 KiB over the whole drive: seek, half a turn and a little more.
    #[test]
    fn the_mean_random_read_of_the_7200_9_is_its_data_sheets() {
        let mut disk = Rotating::new(RotatingParams {
            read_segments: 0,
            swap_at_mb: 0,
            ..BARRACUDA_9
        });
        let blocks = 160_000_000_000 / 4096;
        let (mut now, mut at, reads) = (0, 12_345_u64, 20_000);
        for _ in 0..reads {
            at = at
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let request = Request {
                id: 0,
                op: Op::Read,
                block: (at >> 20) % (blocks * 9 / 10),
                blocks: 1,
                from: 0,
            };
            now = disk.begin(now, &request);
        }
        let mean_ms = now as f64 / f64::from(reads) / 1e6;
        // 0.2 + 11 + 4.17 + 0.1; nine tenths of the drive and the zones take a little off.
        assert!((14.0..15.6).contains(&mean_ms), "{mean_ms}");
    }
}
