//! A device behind a scheduler.

use super::{Device, Next, Op, Request, Scheduler};

/// A request that is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finished {
    /// Which.
    pub request: Request,
    /// When it was submitted.
    pub since: u64,
}

/// What a disk did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QueueStats {
    /// Reads.
    pub reads: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Writes.
    pub writes: u64,
    /// Blocks written.
    pub blocks_written: u64,
    /// Nanoseconds during which a command was in service.
    pub busy_ns: u64,
    /// Nanoseconds from submission to completion, over all reads.
    pub read_wait_ns: u64,
    /// The same over all writes.
    pub write_wait_ns: u64,
}

struct InService {
    request: Request,
    since: u64,
    begun: u64,
    ends: u64,
}

/// A disk: what waits, what is in service, what it did.
pub struct Queue {
    device: Box<dyn Device>,
    scheduler: Box<dyn Scheduler>,
    /// [`Device::depth`] and [`Scheduler::idles`], which do not change.
    depth: usize,
    idles: bool,
    in_service: Vec<InService>,
    /// When the first of these ends; `u64::MAX` where there is none. Asked at every fault.
    first_ends: u64,
    /// (id, when submitted) of what waits.
    submitted: Vec<(u32, u64)>,
    wake: Option<u64>,
    stats: QueueStats,
}

impl Queue {
    /// With nothing to do.
    #[must_use]
    pub fn new(device: Box<dyn Device>, scheduler: Box<dyn Scheduler>) -> Self {
        Self {
            depth: device.depth() as usize,
            idles: scheduler.idles(),
            device,
            scheduler,
            in_service: Vec::new(),
            first_ends: u64::MAX,
            submitted: Vec::new(),
            wake: None,
            stats: QueueStats::default(),
        }
    }

    /// A request arrives. Ids of requests that are not complete differ.
    #[inline]
    pub fn submit(&mut self, now: u64, request: Request) {
        let free = self.submitted.is_empty() && self.in_service.len() < self.depth;
        // Shows it a copy: reading back here what was just written there would wait for the write.
        if free && self.scheduler.pass(&{ request }) {
            return self.begin(now, request, now);
        }
        self.submitted.push((request.id, now));
        self.scheduler.push(now, request);
        self.dispatch(now);
    }

    /// When something happens next, if nothing arrives.
    #[must_use]
    pub fn next_event(&self) -> Option<u64> {
        let next = self.first_ends.min(self.wake.unwrap_or(u64::MAX));
        (next != u64::MAX).then_some(next)
    }

    /// What is complete at `now`, one at a time, the earliest first.
    #[inline]
    pub fn poll(&mut self, now: u64) -> Option<Finished> {
        if self.first_ends > now {
            if self.wake.is_some_and(|wake| wake <= now) {
                self.dispatch(now);
            }
            return None;
        }
        let ends = self.first_ends;
        let first = self.in_service.iter().position(|s| s.ends == ends)?;
        let s = self.in_service.swap_remove(first);
        let left = self.in_service.iter().map(|s| s.ends);
        self.first_ends = left.min().unwrap_or(u64::MAX);
        self.scheduler.completed(ends, &s.request);
        self.count(&s);
        self.wake = None;
        if self.idles || !self.submitted.is_empty() {
            self.dispatch(ends);
        }
        Some(Finished {
            request: s.request,
            since: s.since,
        })
    }

    /// What it did so far.
    #[must_use]
    pub const fn stats(&self) -> &QueueStats {
        &self.stats
    }

    fn count(&mut self, s: &InService) {
        let (blocks, waited) = (u64::from(s.request.blocks), s.ends - s.since);
        match s.request.op {
            Op::Read => {
                self.stats.reads += 1;
                self.stats.blocks_read += blocks;
                self.stats.read_wait_ns += waited;
            }
            Op::Write => {
                self.stats.writes += 1;
                self.stats.blocks_written += blocks;
                self.stats.write_wait_ns += waited;
            }
        }
        self.stats.busy_ns += s.ends - s.begun;
    }

    #[inline]
    fn begin(&mut self, now: u64, request: Request, since: u64) {
        let ends = self.device.begin(now, &{ request });
        self.first_ends = self.first_ends.min(ends);
        self.in_service.push(InService {
            request,
            since,
            begun: now,
            ends,
        });
    }

    fn dispatch(&mut self, now: u64) {
        self.wake = None;
        while self.in_service.len() < self.depth && (self.idles || !self.submitted.is_empty()) {
            match self.scheduler.next(now) {
                Next::Dispatch(request) => {
                    let at = self.submitted.iter().position(|s| s.0 == request.id);
                    let (_, since) = self.submitted.swap_remove(at.expect("it was submitted"));
                    // What ended before may be polled after it arrived.
                    self.begin(now.max(since), request, since);
                }
                Next::Wait(until) => {
                    assert!(self.idles, "a scheduler that never idles waits");
                    self.wake = Some(until);
                    return;
                }
                Next::Empty => return,
            }
        }
    }
}
