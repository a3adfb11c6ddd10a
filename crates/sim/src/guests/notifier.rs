//! The notifier of one guest: the host's end, the guest's end, and the area between them.

use std::sync::atomic::AtomicU32;

use outpage_core::notify::{self, Layout};

use super::setup::NotifySetup;
use crate::world::SetupError;

/// Both ends.
pub(super) struct Notifier {
    area: Vec<AtomicU32>,
    host: notify::Host,
    guest: notify::Guest,
    pub setup: NotifySetup,
    /// When the guest drains next, nanoseconds.
    pub next_drain: u64,
    /// The time has come, but the guest does not run.
    pub due: bool,
    /// The most pages to be hidden.
    pub hidden_max: u64,
    pub drains: u64,
    /// Entries that named no page that could be hidden.
    pub skipped: u64,
    /// Hidden pages that were given back because memory ran out.
    pub rescued: u64,
    /// The most pages that were hidden.
    pub hidden_peak: u64,
}

impl Notifier {
    pub fn new(setup: NotifySetup, frames: u64) -> Result<Self, SetupError> {
        let layout = u32::try_from(frames).ok();
        let layout = layout.and_then(|frames| Layout::new(frames, setup.entries));
        let layout = layout.ok_or_else(|| SetupError::Range {
            what: "entries of a ring",
            value: u64::from(setup.entries),
            allowed: "a power of two, 16 to 1048576".to_owned(),
        })?;
        let area: Vec<_> = (0..layout.words()).map(|_| AtomicU32::new(0)).collect();
        let host = notify::Host::new(&area, layout).expect("as long as it has to be");
        let guest = notify::Guest::attach(&area).expect("it was just made");
        Ok(Self {
            area,
            host,
            guest,
            setup,
            next_drain: 0,
            due: false,
            hidden_max: frames * u64::from(setup.hidden_percent) / 100,
            drains: 0,
            skipped: 0,
            rescued: 0,
            hidden_peak: 0,
        })
    }

    /// The host has paged out a frame, or has it back.
    pub fn tell(&mut self, frame: u32, out: bool) {
        if out {
            self.host.paged_out(&self.area, frame);
        } else {
            self.host.paged_in(&self.area, frame);
        }
    }

    /// What the guest is told since the last time, into `told`; by it all of its frames, where entries were lost.
    pub fn drain(&mut self, now: u64, told: &mut Vec<(u32, bool)>) {
        self.due = false;
        self.drains += 1;
        self.next_drain = now + u64::from(self.setup.drain_us.max(1)) * 1_000;
        self.guest
            .drain(&self.area, |frame, out| told.push((frame, out)));
    }

    /// Writes down what became of it.
    pub fn report(&mut self, hidden: u64) {
        self.hidden_peak = self.hidden_peak.max(hidden);
        let words = [hidden, self.skipped, self.rescued].map(|n| n as u32);
        self.guest.report(&self.area, words[0], words[1], words[2]);
    }

    /// Entries that found their ring full.
    pub const fn lost(&self) -> u32 {
        self.host.lost()
    }
}
