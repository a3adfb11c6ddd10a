//! Rotating disks: arm, platter, buffer.
//!
//! Structure after Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer
//! 27(3), 1994: command overhead, seek curve, rotational position that follows from the clock,
//! zones, track switches, a buffer that reads ahead and may acknowledge writes early.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::models::within;
use super::write_cache::WriteCache;
use super::{BLOCK_BYTES, Device, Op, Request, SeekCurve, transfer_ns};

/// The parameters of a rotating disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RotatingParams {
    /// Revolutions a minute.
    pub rpm: u32,
    /// Seek to the next track, microseconds.
    pub seek_track_us: u32,
    /// Seek on average over random pairs of tracks, microseconds.
    pub seek_average_us: u32,
    /// Seek over the full stroke, microseconds.
    pub seek_full_us: u32,
    /// From one track to the next within a transfer, microseconds.
    pub switch_us: u32,
    /// Sustained transfer at the outer edge, 10^6 bytes a second.
    pub outer_mb_s: u32,
    /// Sustained transfer at the inner edge.
    pub inner_mb_s: u32,
    /// 10^9 bytes.
    pub capacity_gb: u32,
    /// Interface, 10^6 bytes a second.
    pub bus_mb_s: u32,
    /// From the command to the start of its execution, microseconds.
    pub overhead_us: u32,
    /// Buffer, KiB.
    pub buffer_kib: u32,
    /// Segments of the buffer that keep what was read.
    pub read_segments: u32,
    /// Whether writes are acknowledged once they are in the buffer.
    pub write_cache: bool,
    /// The most stretches of neighbouring blocks that the write cache keeps apart; as many as fit
    /// the buffer if absent.
    #[serde(default)]
    pub write_extents: Option<u32>,
    /// Where the swap partition begins, in MB from the outer edge.
    pub swap_at_mb: u32,
    /// How long before the run began the platter was in its first position, microseconds.
    #[serde(default)]
    pub phase_us: u32,
}

impl RotatingParams {
    /// Bounds are far beyond any drive's, and keep every quotient of them above 0.
    pub(super) fn check(&self) -> Result<(), String> {
        let seeks = [self.seek_track_us, self.seek_average_us, self.seek_full_us];
        within("rpm", u64::from(self.rpm), 60..=1_000_000)?;
        within("outer_mb_s", u64::from(self.outer_mb_s), 1..=1_000_000)?;
        within("inner_mb_s", u64::from(self.inner_mb_s), 1..=1_000_000)?;
        within("bus_mb_s", u64::from(self.bus_mb_s), 1..=1_000_000)?;
        within("capacity_gb", u64::from(self.capacity_gb), 1..=1_000_000)?;
        if !seeks.is_sorted() {
            return Err("seek_track_us, seek_average_us and seek_full_us must rise".into());
        }
        let segments = u64::from(self.read_segments.max(1));
        if self.write_cache && u64::from(self.buffer_kib) * 1024 < segments * BLOCK_BYTES {
            return Err(format!(
                "buffer_kib is {}, but a write cache needs 4 for each of its {segments} read segments",
                self.buffer_kib
            ));
        }
        let turn = 60.0 / f64::from(self.rpm);
        let track = f64::from(self.outer_mb_s.max(self.inner_mb_s)) * 1e6 * turn;
        let zone = f64::from(self.capacity_gb) * 1e9 / ZONES as f64;
        if track < BLOCK_BYTES as f64 / 16.0 || track > zone {
            return Err(
                "a track would hold less than a sector or more than a sixteenth of the disk".into(),
            );
        }
        Ok(())
    }
}

const ZONES: u64 = 16;

/// Share of a turn (8 ns at 7200 rpm) by which a block may seem to have passed because of rounding.
const ROUNDING: f64 = 1e-6;

#[derive(Clone, Copy)]
struct Zone {
    first_block: f64,
    first_track: u64,
    blocks_per_track: f64,
}

/// Where a block lies.
#[derive(Clone, Copy)]
struct Place {
    track: u64,
    /// Share of a turn.
    angle: f64,
    /// Tracks from the zone's start, with fraction.
    along: f64,
    blocks_per_track: f64,
}

/// What look-ahead reads now: block `next` passes under the head at `at`.
#[derive(Clone, Copy)]
struct Stream {
    start: u64,
    next: u64,
    at: u64,
}

/// The device.
pub struct Rotating {
    params: RotatingParams,
    seek: SeekCurve,
    zones: Vec<Zone>,
    stroke: u64,
    turn_ns: u64,
    /// Share of a turn that the platter moves during a track switch.
    skew: f64,
    head_track: u64,
    head_block: u64,
    /// When the arm is free.
    free_at: u64,
    stream: Option<Stream>,
    read: VecDeque<(u64, u64)>,
    written: WriteCache,
    /// Since when there has been something in the write cache.
    holding_since: u64,
}

impl Rotating {
    /// A disk at rest, its head at the start of the swap partition.
    ///
    /// # Panics
    /// When a speed or the capacity is 0.
    #[must_use]
    pub fn new(params: RotatingParams) -> Self {
        let turn_ns = 60_000_000_000 / u64::from(params.rpm);
        let rate = |zone: u64| {
            let (outer, inner) = (f64::from(params.outer_mb_s), f64::from(params.inner_mb_s));
            (outer - (outer - inner) * zone as f64 / (ZONES - 1) as f64) * 1e6
        };
        let per_track = |zone| rate(zone) * turn_ns as f64 / 1e9 / BLOCK_BYTES as f64;
        let mean = (0..ZONES).map(per_track).sum::<f64>() / ZONES as f64;
        let blocks = f64::from(params.capacity_gb) * 1e9 / BLOCK_BYTES as f64;
        let tracks_a_zone = (blocks / mean / ZONES as f64) as u64;
        let mut first_block = 0.0;
        let zones = (0..ZONES).map(|zone| {
            let blocks_per_track = per_track(zone);
            let here = Zone {
                first_block,
                first_track: zone * tracks_a_zone,
                blocks_per_track,
            };
            first_block += blocks_per_track * tracks_a_zone as f64;
            here
        });
        let mut disk = Self {
            params,
            seek: SeekCurve::through(
                params.seek_track_us,
                params.seek_average_us,
                params.seek_full_us,
            ),
            zones: zones.collect(),
            stroke: tracks_a_zone * ZONES,
            turn_ns,
            skew: f64::from(params.switch_us) * 1e3 / turn_ns as f64,
            head_track: 0,
            head_block: 0,
            free_at: 0,
            stream: None,
            read: VecDeque::new(),
            written: WriteCache::default(),
            holding_since: 0,
        };
        disk.head_track = disk.place(0).track;
        disk
    }

    fn place(&self, block: u64) -> Place {
        let swap = f64::from(self.params.swap_at_mb) * 1e6 / BLOCK_BYTES as f64;
        let block = block as f64 + swap.floor();
        let zone = self
            .zones
            .iter()
            .rev()
            .find(|zone| zone.first_block <= block);
        let zone = zone.expect("the first zone begins at 0");
        let along = (block - zone.first_block) / zone.blocks_per_track;
        let track = zone.first_track + along as u64;
        let angle = (along.fract() + track as f64 * self.skew).fract();
        Place {
            track,
            angle,
            along,
            blocks_per_track: zone.blocks_per_track,
        }
    }

    /// The arm goes to `block` at `start` and reads or writes `blocks`; returns when it is done.
    fn access(&mut self, start: u64, block: u64, blocks: u64) -> u64 {
        let place = self.place(block);
        let arrive = start
            + self
                .seek
                .time_ns(place.track.abs_diff(self.head_track), self.stroke);
        let turned = arrive + u64::from(self.params.phase_us) * 1_000;
        let angle = (turned % self.turn_ns) as f64 / self.turn_ns as f64;
        let mut ahead = (place.angle - angle).rem_euclid(1.0);
        if ahead > 1.0 - ROUNDING {
            ahead = 0.0;
        }
        let wait = ahead * self.turn_ns as f64;
        let turns = blocks as f64 / place.blocks_per_track;
        let switches = (place.along + turns) as u64 - place.along as u64;
        let transfer = turns * self.turn_ns as f64;
        self.head_track = place.track + switches;
        self.head_block = block + blocks;
        self.free_at = arrive
            + wait as u64
            + transfer as u64
            + switches * u64::from(self.params.switch_us) * 1_000;
        self.free_at
    }

    fn segment_blocks(&self) -> u64 {
        let segments = u64::from(self.params.read_segments.max(1));
        u64::from(self.params.buffer_kib) * 1024 / BLOCK_BYTES / segments
    }

    fn block_ns(&self, block: u64) -> u64 {
        (self.turn_ns as f64 / self.place(block).blocks_per_track) as u64
    }

    /// Look-ahead ends at `now`, because the arm is needed elsewhere: what it read stays.
    fn stop_stream(&mut self, now: u64) {
        let Some(stream) = self.stream.take() else {
            return;
        };
        let blocks = now.saturating_sub(stream.at) / self.block_ns(stream.next).max(1);
        let end = (stream.next + blocks).min(stream.start + self.segment_blocks());
        self.keep(stream.start, end.max(stream.next));
    }

    fn keep(&mut self, start: u64, end: u64) {
        if self.read.len() >= self.params.read_segments as usize {
            self.read.pop_front();
        }
        if self.params.read_segments > 0 {
            self.read.push_back((start, end));
        }
    }

    /// When a read that the buffer can answer is complete.
    fn buffered(&mut self, ready: u64, request: &Request) -> Option<u64> {
        let bus = transfer_ns(
            u64::from(request.blocks),
            u64::from(self.params.bus_mb_s) * 1_000_000,
        );
        let (start, end) = (request.block, request.end());
        if self.written.holds(start, end) || self.read.iter().any(|s| s.0 <= start && end <= s.1) {
            return Some(ready + bus);
        }
        let stream = self.stream?;
        let limit = stream.start + self.segment_blocks();
        if start < stream.start || start > stream.next + self.segment_blocks() || end > limit {
            return None;
        }
        let passed = stream.at + end.saturating_sub(stream.next) * self.block_ns(start);
        // A stream that is far behind the request is no faster than a seek.
        (passed <= ready + self.turn_ns).then(|| passed.max(ready) + bus)
    }

    /// What the drive does by itself until `now`: puts cached writes in their places.
    fn catch_up(&mut self, now: u64) {
        while self.written.blocks() > 0 {
            let start = self.free_at.max(self.holding_since);
            if start >= now {
                return;
            }
            self.destage(start);
        }
    }

    fn destage(&mut self, start: u64) {
        self.stop_stream(start);
        let most = self.segment_blocks();
        if let Some((block, end)) = self.written.take(self.head_block, most) {
            self.access(start, block, end - block);
        }
    }

    fn begin_read(&mut self, ready: u64, request: &Request) -> u64 {
        if let Some(done) = self.buffered(ready, request) {
            return done;
        }
        let start = ready.max(self.free_at);
        self.stop_stream(start);
        let done = self.access(start, request.block, u64::from(request.blocks));
        if self.params.read_segments > 0 {
            self.stream = Some(Stream {
                start: request.block,
                next: request.end(),
                at: done,
            });
        }
        done
    }

    /// Whether the write cache can take `start..end` in and stay within `limit` blocks.
    fn has_room(&self, start: u64, end: u64, limit: u64) -> bool {
        let most = self.params.write_extents.map_or(usize::MAX, |n| n as usize);
        self.written.blocks() + (end - start) <= limit
            && (self.written.extents() < most || self.written.extends(start, end))
    }

    fn begin_write(&mut self, ready: u64, request: &Request) -> u64 {
        let (start, end) = (request.block, request.end());
        self.stop_stream(ready);
        self.read.retain(|s| s.1 <= start || end <= s.0);
        if !self.params.write_cache {
            let begin = ready.max(self.free_at);
            return self.access(begin, start, end - start);
        }
        let bus = transfer_ns(end - start, u64::from(self.params.bus_mb_s) * 1_000_000);
        // Three quarters of the buffer hold writes, the rest is for reads.
        let limit = u64::from(self.params.buffer_kib) * 1024 / BLOCK_BYTES * 3 / 4;
        let mut room_at = ready;
        while self.written.blocks() > 0 && !self.has_room(start, end, limit) {
            self.destage(self.free_at.max(self.holding_since));
            room_at = self.free_at.max(ready);
        }
        let done = room_at + bus;
        if self.written.blocks() == 0 {
            self.holding_since = done;
        }
        self.written.add(start, end);
        done
    }
}

impl Device for Rotating {
    fn begin(&mut self, now: u64, request: &Request) -> u64 {
        self.catch_up(now);
        let ready = now + u64::from(self.params.overhead_us) * 1_000;
        match request.op {
            Op::Read => self.begin_read(ready, request),
            Op::Write => self.begin_write(ready, request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 6000 rpm: a turn is 10 ms; 40.96 MB/s everywhere: 100 blocks a track, 0.1 ms each.
    fn params(write_cache: bool) -> RotatingParams {
        RotatingParams {
            rpm: 6000,
            seek_track_us: 1000,
            seek_average_us: 8000,
            seek_full_us: 15000,
            switch_us: 1000,
            outer_mb_s: 41,
            inner_mb_s: 41,
            capacity_gb: 100,
            bus_mb_s: 4096,
            overhead_us: 500,
            buffer_kib: 8192,
            read_segments: 16,
            write_cache,
            write_extents: None,
            swap_at_mb: 0,
            phase_us: 0,
        }
    }

    fn disk(write_cache: bool) -> Rotating {
        Rotating::new(params(write_cache))
    }

    fn request(op: Op, block: u64, blocks: u32) -> Request {
        Request {
            id: 0,
            op,
            block,
            blocks,
            from: 0,
        }
    }

    /// Within 0.2 %: 41 MB/s instead of 40.96.
    fn near(ns: u64, expected_us: u64) {
        let expected = (expected_us * 1_000) as f64;
        assert!(
            (ns as f64 / expected - 1.0).abs() < 0.002,
            "{ns} instead of {expected}"
        );
    }

    #[test]
    fn a_read_waits_for_its_block_to_come_round() {
        // At 0.5 ms the platter is at 5 blocks; block 50 comes at 5 ms, 10 blocks take 1 ms.
        near(disk(false).begin(0, &request(Op::Read, 50, 10)), 5_990);
        // Block 2 has just passed: it comes at 10.2 ms.
        near(disk(false).begin(0, &request(Op::Read, 2, 1)), 10_300);
    }

    #[test]
    fn the_platter_may_have_turned_before_the_run_began() {
        let turned = |phase_us| {
            let mut disk = Rotating::new(RotatingParams {
                phase_us,
                ..params(false)
            });
            disk.begin(0, &request(Op::Read, 50, 10))
        };
        // Two of the ten milliseconds of a turn: the block comes so much earlier. A whole turn is none.
        near(turned(2_000), 3_990);
        assert_eq!(turned(10_000), turned(0));
    }

    #[test]
    fn look_ahead_answers_the_next_read_in_sequence() {
        let mut disk = disk(false);
        let first = disk.begin(0, &request(Op::Read, 50, 10));
        // 2 ms later blocks 60 to 80 have passed: overhead, and 10 us for the bus.
        near(
            disk.begin(first + 2_000_000, &request(Op::Read, 60, 10)) - first,
            2_510,
        );
        // At once: the overhead is 0.5 ms, blocks 80 to 90 have passed 3 ms after the first read.
        let mut again = Rotating::new(params(false));
        let first = again.begin(0, &request(Op::Read, 50, 10));
        near(
            again.begin(first, &request(Op::Read, 80, 10)) - first,
            3_010,
        );
    }

    #[test]
    fn writes_in_sequence_lose_a_turn_without_the_cache() {
        let mut disk = disk(false);
        let first = disk.begin(0, &request(Op::Write, 50, 10));
        near(
            disk.begin(first, &request(Op::Write, 60, 10)) - first,
            11_000,
        );
    }

    #[test]
    fn the_cache_acknowledges_at_the_speed_of_the_bus_until_it_is_full() {
        let mut disk = disk(true);
        near(disk.begin(0, &request(Op::Write, 1000, 16)), 516);
        near(
            disk.begin(1_000_000, &request(Op::Write, 1016, 16)) - 1_000_000,
            516,
        );
        let (mut now, mut slow) = (2_000_000, 0);
        for i in 0..200 {
            // Everywhere: nothing merges.
            let done = disk.begin(now, &request(Op::Write, 5_000 + i * 7919 % 1_000_000, 16));
            slow += u64::from(done - now > 2_000_000);
            now = done;
        }
        assert!(slow > 30, "{slow} of 200 random writes waited for room");
    }

    #[test]
    fn a_cache_of_few_stretches_waits_for_the_platter_unless_writes_join() {
        let apart = |stretches, step| {
            let mut disk = Rotating::new(RotatingParams {
                write_extents: stretches,
                ..params(true)
            });
            let writes = (0..20_u64).map(|i| request(Op::Write, 5_000 + i * step, 2));
            writes.fold(0, |now, write| disk.begin(now, &write))
        };
        let free = apart(None, 1_000);
        assert!(apart(Some(4), 1_000) > free + 50_000_000);
        assert_eq!(apart(Some(4), 2), apart(None, 2));
    }

    #[test]
    fn a_read_of_what_is_in_the_write_cache_needs_no_arm() {
        let mut disk = disk(true);
        let done = disk.begin(0, &request(Op::Write, 70_000, 16));
        near(disk.begin(done, &request(Op::Read, 70_004, 4)) - done, 504);
    }

    #[test]
    fn long_transfers_pay_for_track_switches() {
        // 10 blocks from 95: the track ends after 5, the switch takes 1 ms.
        near(disk(false).begin(0, &request(Op::Read, 95, 10)), 11_490);
    }
}
