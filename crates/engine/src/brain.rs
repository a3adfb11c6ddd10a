//! The pager, with an optional trace of what it was told and what it said.

use std::ops::Deref;

use outpage_core::contract::{Action, Event};
use outpage_core::pager::Pager;
use outpage_core::record::{Branch, Header, Recorder};
use outpage_core::units::Nanos;
use outpage_sys::fd::{self, Fd};
use outpage_sys::raw::Errno;

use crate::report;

/// Bytes gathered before they are written: a few hundred entries.
const BUFFER_BYTES: usize = 64 << 10;

/// A new file for a trace.
pub struct TraceFile {
    /// What tells it from those of other processes.
    pub name: String,
    /// Open for writing.
    pub file: Fd,
}

/// A pager whose events and actions go through one door.
pub struct Brain {
    pager: Pager,
    trace: Option<Trace>,
}

struct Trace {
    recorder: Recorder,
    /// What tells the file from those of other processes.
    name: String,
    file: Fd,
    bytes: Vec<u8>,
    /// Bytes in the file, an end mark left out.
    written: u64,
    /// The process is about to end: every write is followed by an end mark, which the next one
    /// overwrites.
    ending: bool,
    /// Nothing may be lost at a sudden end, whatever it costs.
    eager: bool,
}

impl Brain {
    /// `pager`, without a trace.
    #[must_use]
    pub const fn new(pager: Pager) -> Self {
        Self { pager, trace: None }
    }

    /// Traces everything from now on to `file`, a new one. To be called before the first event. An `eager`
    /// trace is written whenever the pager has nothing to do: a system call for nearly every fault.
    pub fn record(&mut self, file: TraceFile, header: &Header<'_>, eager: bool) {
        let mut bytes = Vec::with_capacity(BUFFER_BYTES * 2);
        let recorder = Recorder::begin(header, &mut bytes);
        self.trace = Some(Trace {
            recorder,
            name: file.name,
            file: file.file,
            bytes,
            written: 0,
            ending: false,
            eager,
        });
    }

    /// Whether there is a trace.
    pub const fn traces(&self) -> bool {
        self.trace.is_some()
    }

    /// In a forked child: what follows goes to `file`, a new one, which says that it continues the parent's.
    /// The parent's must have been flushed before the fork. Without a file the trace is given up.
    pub fn branch(&mut self, file: Option<TraceFile>) {
        let Some(trace) = self.trace.take() else {
            return;
        };
        // The descriptor is a number of the parent's table.
        let _ = trace.file.release();
        let Some(file) = file else { return };
        let mut bytes = trace.bytes;
        debug_assert!(bytes.is_empty(), "flushed before the fork");
        let branch = Branch {
            parent: &trace.name,
            shared: trace.written,
        };
        branch.put(&mut bytes);
        self.trace = Some(Trace {
            name: file.name,
            file: file.file,
            bytes,
            written: 0,
            ..trace
        });
    }

    /// Tells the pager, and the trace.
    pub fn handle(&mut self, now: Nanos, event: Event<'_>) {
        if let Some(Trace {
            recorder, bytes, ..
        }) = &mut self.trace
        {
            recorder.event(now, &event, bytes);
        }
        self.pager.handle(now, event);
    }

    /// Asks the pager, and tells the trace.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.pager.poll_action()?;
        if let Some(Trace {
            recorder, bytes, ..
        }) = &mut self.trace
        {
            recorder.action(&action, bytes);
        }
        Some(action)
    }

    /// See [`Pager::take_changed_objects`].
    pub const fn take_changed_objects(&mut self) -> u64 {
        self.pager.take_changed_objects()
    }

    /// See [`Pager::measure_up_to`].
    pub fn measure_up_to(&mut self, frames: usize) {
        self.pager.measure_up_to(frames);
    }

    /// See [`Pager::replenish`].
    pub fn replenish(&mut self) {
        self.pager.replenish();
    }

    /// Writes out what was gathered, if it is much, `all` is asked for, the trace is eager or the process
    /// ends. A trace that cannot be written ends there, with a message.
    pub fn flush(&mut self, all: bool) {
        let Some(trace) = &mut self.trace else { return };
        let now = all || trace.eager || trace.ending;
        if trace.bytes.len() >= BUFFER_BYTES || now && !trace.bytes.is_empty() {
            self.write();
        }
    }

    /// The process has begun to end in order: the trace has an end mark from now on. The kernel
    /// may end the pager's thread at any moment after this, so it cannot be written last.
    pub fn ending(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.ending = true;
            self.write();
        }
    }

    fn write(&mut self) {
        let Some(Err(error)) = self.trace.as_mut().map(Trace::write) else {
            return;
        };
        self.trace = None;
        let why = error.to_string();
        report::say(&["outpage: cannot write the trace: ", &why, "; it ends here"]);
    }
}

impl Trace {
    fn write(&mut self) -> Result<(), Errno> {
        let whole = self.bytes.len() as u64;
        if self.ending {
            self.recorder.clone().end(&mut self.bytes);
        }
        let (mut left, mut at) = (&self.bytes[..], self.written);
        while !left.is_empty() {
            let written = match fd::pwrite(self.file.number(), left, at)? {
                0 => return Err(Errno::ENOSPC),
                written => written,
            };
            (left, at) = (&left[written..], at + written as u64);
        }
        // The shortest entry is longer than an end mark, so nothing of one stays behind.
        self.written += whole;
        self.bytes.clear();
        Ok(())
    }
}

impl Deref for Brain {
    type Target = Pager;

    fn deref(&self) -> &Pager {
        &self.pager
    }
}
