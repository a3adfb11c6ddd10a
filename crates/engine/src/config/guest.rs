//! The guest that a notifier tells: how much RAM it has, and which guest frame lies where in that RAM.

use std::fmt;
use std::str::FromStr;

use outpage_core::notify::Layout;
use outpage_core::units::{PAGE_BYTES, PAGE_SHIFT};

use super::names::unknown;
use super::parse_size;

/// Entries of each of the area's rings: a drain every 10 ms keeps up with 6.5 million pages a second. The ring of the paper has no
/// size; `docs/papers.md` has what smaller ones cost.
const ENTRIES: u32 = 1 << 16;
/// Guest frames 0xA0 to 0xFF, half-open 0xA0..0x100: VGA memory, option ROMs, firmware (640 KiB to 1 MiB of every PC). No page of the
/// guest's kernel is there.
const FIRMWARE: std::ops::Range<u64> = 0xa0..0x100;
/// First guest frame above the hole for devices: 4 GiB.
const ABOVE: u64 = 1 << (32 - PAGE_SHIFT);
/// The least RAM that a notifier is for, in bytes: below there is no memory that a guest could page.
const LEAST: u64 = 1 << 20;
/// The most, in bytes: the area's bits are for 2^31 frames, and a part of these is the hole.
const MOST: u64 = 1 << 42;

/// How QEMU lays RAM out in the guest's physical addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Machine {
    /// i440FX: from 3.5 GiB of RAM on, 3 GiB lie below the hole (`pc_init1`, QEMU 7.2).
    #[default]
    Pc,
    /// From 2.75 GiB of RAM on, 2 GiB lie below the hole (`pc_q35_init`, QEMU 7.2).
    Q35,
}

impl Machine {
    /// The names that can be written.
    pub const NAMES: &'static [&'static str] = &["pc", "q35"];

    const fn name(self) -> &'static str {
        match self {
            Self::Pc => "pc",
            Self::Q35 => "q35",
        }
    }

    /// Bytes of RAM below the hole, of `bytes`.
    const fn below(self, bytes: u64) -> u64 {
        let (from, split) = match self {
            Self::Pc => (0xe000_0000, 0xc000_0000),
            Self::Q35 => (0xb000_0000, 0x8000_0000),
        };
        if bytes >= from { split } else { bytes }
    }
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pc" => Ok(Self::Pc),
            "q35" => Ok(Self::Q35),
            _ => Err(unknown(text, Self::NAMES)),
        }
    }
}

/// A guest, as `768M` or `4G,q35`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guest {
    /// Its RAM in bytes, whole pages.
    pub bytes: u64,
    /// Where it lies.
    pub machine: Machine,
}

impl Guest {
    /// # Errors
    /// Less than 1 MiB, more than 4 TiB, or no whole pages.
    pub fn new(bytes: u64, machine: Machine) -> Result<Self, String> {
        let whole = bytes.is_multiple_of(PAGE_BYTES as u64);
        let sound = whole && (LEAST..=MOST).contains(&bytes);
        let guest = sound.then_some(Self { bytes, machine });
        guest.ok_or_else(|| "is no guest's RAM: whole pages of 4 KiB, 1M to 4T".to_owned())
    }

    /// Pages of RAM.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.bytes >> PAGE_SHIFT
    }

    /// The guest frame of the page at `offset` pages from the beginning of RAM; `None` behind its end and for firmware.
    #[must_use]
    pub fn frame(&self, offset: u64) -> Option<u32> {
        let below = self.machine.below(self.bytes) >> PAGE_SHIFT;
        let frame = if offset < below {
            offset
        } else {
            ABOVE + (offset - below)
        };
        let told = offset < self.pages() && !FIRMWARE.contains(&frame);
        told.then_some(frame)
            .and_then(|frame| frame.try_into().ok())
    }

    /// The area that tells of all its frames.
    ///
    /// # Panics
    /// Never: the size was checked.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let last = self.frame(self.pages() - 1).unwrap_or(0);
        Layout::new(last + 1, ENTRIES).expect("at most 2^31 frames")
    }

    /// Bytes of the file that holds the area: a power of two, as a PCI device's memory has to be.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        (self.layout().words() as u64 * 4).next_power_of_two()
    }
}

impl fmt::Display for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.bytes, self.machine.name())
    }
}

impl FromStr for Guest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (size, machine) = text.split_once(',').unwrap_or((text, "pc"));
        let bytes = parse_size(size).map_err(|error| error.to_string())?;
        let guest = Self::new(bytes, machine.trim().parse()?);
        guest.map_err(|why| format!("'{text}' {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(guest: &str, offset: u64) -> Option<u64> {
        let guest: Guest = guest.parse().expect(guest);
        guest
            .frame(offset >> PAGE_SHIFT)
            .map(|frame| u64::from(frame) << PAGE_SHIFT)
    }

    #[test]
    fn addresses_are_those_that_the_monitor_of_qemu_says() {
        // gpa2hva of QEMU 7.2, as offsets of RAM.
        let (mib, gib) = (1 << 20, 1 << 30);
        assert_eq!(frame("768M", 700 * mib), Some(700 * mib));
        assert_eq!(frame("768M", 768 * mib), None);
        assert_eq!(frame("3583M", 3500 * mib), Some(3500 * mib));
        assert_eq!(frame("4G", 3 * gib - 4096), Some(3 * gib - 4096));
        assert_eq!(frame("4G", 3 * gib), Some(4 * gib));
        assert_eq!(frame("2600M,q35", 2500 * mib), Some(2500 * mib));
        assert_eq!(frame("3072M,q35", 2 * gib + 4096), Some(4 * gib + 4096));
    }

    #[test]
    fn firmware_is_never_told_of() {
        for (offset, told) in [(0x9f, true), (0xa0, false), (0xff, false), (0x100, true)] {
            assert_eq!(
                frame("64M", offset << PAGE_SHIFT).is_some(),
                told,
                "{offset:#x}"
            );
        }
    }

    #[test]
    fn the_file_is_a_power_of_two_and_holds_a_bit_for_the_last_frame() {
        let guest: Guest = "768M".parse().expect("a guest");
        assert_eq!(guest.file_bytes(), 1 << 20);
        let split: Guest = "4G".parse().expect("a guest");
        assert_eq!(split.layout().frames(), (5_u64 << 30 >> PAGE_SHIFT) as u32);
        for most in ["4T", "4T,q35"] {
            assert!(
                most.parse::<Guest>()
                    .expect(most)
                    .file_bytes()
                    .is_power_of_two()
            );
        }
    }

    #[test]
    fn what_is_no_guest_is_refused() {
        for bad in [
            "",
            "0",
            "512K",
            "8T",
            "1048577",
            "768M,virt",
            "768M,",
            "pc",
            "-1M",
        ] {
            assert!(bad.parse::<Guest>().is_err(), "{bad}");
        }
        let guest: Guest = "4G,q35".parse().expect("a guest");
        assert_eq!(guest.to_string().parse(), Ok(guest));
    }
}
