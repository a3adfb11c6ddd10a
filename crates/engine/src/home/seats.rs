//! Who has shared memory mapped, and where.
//!
//! A *seat* is a process with mappings of objects: its userfaultfd, by which it waits for pages and tells what becomes of its mappings, and its *spans*, each a
//! range of its addresses and the addresses that the home has the same pages at.

use std::collections::VecDeque;

use outpage_core::units::{Nanos, PAGE_BYTES};
use outpage_sys::clock;
use outpage_sys::fd::{self, Fd};
use outpage_sys::raw::{self, Errno};
use outpage_sys::socket::Watch;
use outpage_sys::uffd::{Fault, Message, Remote, Stop};

use super::wire;

/// Calls that a seat refuses because its mappings change, in a row, before its pages stay where they are for now: its threads may be kept from going on,
/// as in a frozen cgroup. A choice; one is enough for who goes on.
const CHANGES_MAX: u32 = 1000;
/// Who says that it will map something a second time does so within this time, if the kernel lets it. A choice.
const ALIAS_WITHIN: Nanos = Nanos(1_000_000_000);
/// Messages that are read at once.
const BATCH: usize = 32;
/// No thread has such a number (`PID_MAX_LIMIT` of include/linux/threads.h, 2^22): those of another pid namespace get one, so that none of this one is taken for them.
const FOREIGN: u32 = 1 << 30;
const TID_BITS: u32 = 22;
/// Why a process ends that makes a mapping nobody can follow.
const UNSEEN_ALIAS: &str = "an mremap(2) that was not made through libc mapped it a second time";
/// So many seats, those that faulted last, find all of what came as if it had never been protected, by a call for each run. Any other meets a fault of its own at
/// the first write to each page: with 0, four walks that write through 64 MiB under 32M took 4.1 s [3.9-4.8], with 4 0.83 s [0.80-0.96] (three rounds by turns). A choice, for programs
/// of which a few processes are at work at a time: with hundreds of seats a call for each would take longer than a read.
const RECENT: usize = 4;
/// In the watch: what is read beside, and any number above is a seat's.
const NUDGE: u64 = 0;

/// A range of a seat's addresses, half-open, and where the home has the first of its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) home: usize,
}

impl Span {
    /// The part within `start..end` of the seat's addresses.
    fn within(&self, start: usize, end: usize) -> Option<Self> {
        let (from, to) = (self.start.max(start), self.end.min(end));
        (from < to).then(|| Self {
            start: from,
            end: to,
            home: self.home + (from - self.start),
        })
    }

    /// The part within `start..end` of the home's addresses.
    fn within_home(&self, start: usize, end: usize) -> Option<Self> {
        let last = self.home + (self.end - self.start);
        let (from, to) = (self.home.max(start), last.min(end));
        (from < to).then(|| Self {
            start: self.start + (from - self.home),
            end: self.start + (to - self.home),
            home: from,
        })
    }

    const fn bytes(&self) -> usize {
        self.end - self.start
    }
}

/// Takes `start..end` out of `spans`.
fn cut(spans: &mut Vec<Span>, start: usize, end: usize) {
    let mut left = Vec::with_capacity(spans.len() + 1);
    for span in &*spans {
        left.extend(span.within(span.start, start));
        left.extend(span.within(end, span.end));
    }
    *spans = left;
}

struct Seat {
    uffd: Remote,
    /// Where it is told why the home ends.
    line: i32,
    /// Its threads have the same numbers for the home.
    same_numbers: bool,
    spans: Vec<Span>,
    /// Pages that its threads wait for, by its own addresses.
    waiting: Vec<usize>,
    /// Until then it may map something a second time: it tells of it.
    aliases_until: Nanos,
    /// Its memory is gone.
    gone: bool,
}

impl Seat {
    /// Takes `start..end` out of what is known. Who waits there faults anew: it meets what lies there then.
    fn cut(&mut self, start: usize, end: usize) {
        cut(&mut self.spans, start, end);
        let uffd = &self.uffd;
        self.waiting.retain(|&page| {
            let here = (start..end).contains(&page);
            if here {
                let _ = uffd.wake(page, PAGE_BYTES);
            }
            !here
        });
    }

    fn spans_in(&self, start: usize, end: usize) -> impl Iterator<Item = Span> {
        self.spans
            .iter()
            .filter_map(move |span| span.within_home(start, end))
    }

    /// Takes the protection off what came at a range of the home's, which has who waits there go on.
    fn open(&mut self, start: usize, end: usize) {
        let spans: Vec<Span> = self.spans_in(start, end).collect();
        for span in spans.iter().filter(|_| !self.gone) {
            let opened = self.uffd.write_protect(span.start, span.bytes(), false);
            if opened.stop.is_none() {
                let within = span.start..span.end;
                self.waiting.retain(|page| !within.contains(page));
            }
        }
    }

    /// Has who waits in a range of the home's go on, who may write there then: a page that left was protected, and what comes in its place is found so.
    fn serve(&mut self, start: usize, end: usize) {
        if self.waiting.is_empty() || self.gone {
            return;
        }
        let spans: Vec<Span> = self.spans_in(start, end).collect();
        for span in spans {
            let (uffd, waiting) = (&self.uffd, &mut self.waiting);
            waiting.retain(|&page| {
                let here = (span.start..span.end).contains(&page);
                if here {
                    // Who cannot be let write faults once more.
                    if uffd.write_protect(page, PAGE_BYTES, false).stop.is_some() {
                        let _ = uffd.wake(page, PAGE_BYTES);
                    }
                }
                !here
            });
        }
    }
}

/// All seats.
pub(crate) struct Seats {
    all: Vec<Option<Seat>>,
    watch: Watch,
    /// Written where somebody else than who waits for the watch has read a fault.
    nudge: Fd,
    /// Who faulted last, the latest first.
    recent: Vec<usize>,
    /// Faults that were read, at the home's addresses.
    faults: VecDeque<Fault>,
    /// Ranges of the home's that a seat may have emptied.
    emptied: Vec<(usize, usize)>,
    /// Somebody has unmapped something.
    unmapped: bool,
    /// Ranges of the home's, of files on a tmpfs that has a limit of its own.
    limited: Vec<(usize, usize)>,
}

impl Seats {
    /// None yet.
    ///
    /// # Errors
    /// Those of epoll_create1(2), epoll_ctl(2) and eventfd2(2).
    pub(super) fn new() -> Result<Self, Errno> {
        let (watch, nudge) = (Watch::new()?, fd::eventfd()?);
        watch.add(nudge.number(), NUDGE)?;
        Ok(Self {
            all: Vec::new(),
            watch,
            nudge,
            recent: Vec::with_capacity(RECENT + 1),
            faults: VecDeque::with_capacity(64),
            emptied: Vec::new(),
            unmapped: false,
            limited: Vec::new(),
        })
    }

    /// Has `fd` be waited for as well.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn watch(&self, fd: i32) -> Result<(), Errno> {
        self.watch.add(fd, NUDGE)
    }

    /// A descriptor that is readable when something can be read.
    pub(super) const fn fd(&self) -> i32 {
        self.watch.number()
    }

    /// What is at `start..end` of the home's lies on a tmpfs that has a limit, or does not any more.
    pub(super) fn limit(&mut self, start: usize, end: usize, limited: bool) {
        self.limited.retain(|&range| range != (start, end));
        if limited {
            self.limited.push((start, end));
        }
    }

    /// Whether the file system may be full where a page of the home's lies.
    pub(super) fn is_limited(&self, address: usize) -> bool {
        let mut limited = self.limited.iter();
        limited.any(|&(start, end)| (start..end).contains(&address))
    }

    /// A process with this userfaultfd, told why the home ends at `line`. Its number.
    ///
    /// # Errors
    /// Those of epoll_ctl(2); `EOPNOTSUPP` where the kernel cannot be asked for messages without waiting (before Linux 6.10).
    pub(super) fn sit(
        &mut self,
        uffd: Remote,
        line: i32,
        same_numbers: bool,
    ) -> Result<usize, Errno> {
        uffd.read(&mut [Message::Other])?;
        let free = self.all.iter().position(Option::is_none);
        let number = free.unwrap_or(self.all.len());
        self.watch.add(uffd.fd(), number as u64 + 1)?;
        if number == self.all.len() {
            self.all.push(None);
        }
        self.all[number] = Some(Seat {
            uffd,
            line,
            same_numbers,
            spans: Vec::new(),
            waiting: Vec::new(),
            aliases_until: Nanos(0),
            gone: false,
        });
        Ok(number)
    }

    /// Nobody is told anything at the line of a seat any more.
    pub(super) fn hang_up(&mut self, number: usize) {
        if let Some(seat) = &mut self.all[number] {
            seat.line = -1;
        }
    }

    /// Whether the memory of a seat is gone. Then it has left: as long as a thread of it may run, holes are not to become zeroes.
    pub(super) fn has_left(&mut self, number: usize) -> bool {
        let Some(seat) = &self.all[number] else {
            return true;
        };
        let there = |span: &Span| {
            let asked = seat.uffd.write_protect(span.start, PAGE_BYTES, true);
            asked.stop != Some(Stop::Gone)
        };
        if !seat.gone && seat.spans.first().is_some_and(there) {
            return false;
        }
        self.all[number] = None;
        self.unmapped = true;
        true
    }

    /// The spans of a seat.
    pub(super) fn spans(&self, number: usize) -> &[Span] {
        let seat = self.all[number].as_ref();
        seat.map_or(&[], |seat| &seat.spans)
    }

    /// A seat is about to map something a second time, and will tell of it.
    pub(super) fn expect_alias(&mut self, number: usize) {
        if let Some(seat) = &mut self.all[number] {
            seat.aliases_until = Nanos(clock::now().0 + ALIAS_WITHIN.0);
        }
    }

    /// The parts of `start..end` of a seat, which it has mapped.
    pub(super) fn parts(&self, number: usize, start: usize, end: usize) -> Vec<Span> {
        let spans = self.spans(number).iter();
        spans.filter_map(|span| span.within(start, end)).collect()
    }

    /// Whether a seat has pages of `start..end` of the home's.
    pub(super) fn any_in(&self, start: usize, end: usize) -> bool {
        let mut seats = self.all.iter().flatten();
        seats.any(|seat| seat.spans_in(start, end).next().is_some())
    }

    /// Whether something was unmapped since this was asked last.
    pub(super) const fn took_leave(&mut self) -> bool {
        std::mem::replace(&mut self.unmapped, false)
    }

    /// Whether all of `span` is known of a seat, once it has told of what became of its mappings.
    pub(super) fn knows(&mut self, number: usize, span: Span) -> bool {
        self.settle(number, span);
        let parts = self.parts(number, span.start, span.end);
        let offset = span.home.wrapping_sub(span.start);
        let alike = |part: &&Span| part.home.wrapping_sub(part.start) == offset;
        parts.iter().filter(alike).map(Span::bytes).sum::<usize>() == span.bytes()
    }

    /// A seat has mapped `span`. What it told before of its addresses there is about what lay there before: it is read first.
    pub(super) fn map(&mut self, number: usize, span: Span) {
        self.settle(number, span);
        if let Some(seat) = &mut self.all[number] {
            seat.cut(span.start, span.end);
            seat.spans.push(span);
        }
    }

    /// Reads what a seat tells until what it tells later is about `span` as it is now.
    fn settle(&mut self, number: usize, span: Span) {
        for _ in 0..CHANGES_MAX {
            self.read(number);
            let Some(seat) = &self.all[number] else {
                return;
            };
            // What is told later than this is about the span. Protected, for it may be known already, and its page be leaving.
            let there = seat.uffd.write_protect(span.start, PAGE_BYTES, true);
            if there.stop != Some(Stop::Again) {
                break;
            }
            raw::yield_now();
        }
        self.read(number);
        if self.has_read() {
            let _ = fd::write(self.nudge.number(), &1u64.to_ne_bytes());
        }
    }

    /// Reads what all seats have to say.
    pub(super) fn gather(&mut self) {
        let mut ready = [0; 64];
        let mut count = 0;
        // An error shows in the calls that follow.
        let _ = self.watch.wait(0, |name, _| {
            ready[count] = name;
            count += 1;
        });
        for &name in &ready[..count] {
            match name {
                NUDGE => {
                    // It does not block.
                    let _ = fd::read(self.nudge.number(), &mut [0; 8]);
                }
                seat => self.read(seat as usize - 1),
            }
        }
    }

    /// Reads what seats have to say while there is no object: who waits goes on as it is.
    pub(super) fn pass_over(&mut self) {
        self.gather();
        self.faults.clear();
        self.emptied.clear();
    }

    fn read(&mut self, number: usize) {
        let mut messages = [Message::Other; BATCH];
        loop {
            let Some(seat) = self.all.get_mut(number).and_then(Option::as_mut) else {
                return;
            };
            // What cannot be read keeps its mappings changing: nothing of it is protected then.
            let Ok(count) = seat.uffd.read(&mut messages) else {
                return;
            };
            for message in &messages[..count] {
                self.hear(number, message);
            }
            if count < BATCH {
                return;
            }
        }
    }

    fn fault(&mut self, number: usize, fault: Fault) {
        let Some(seat) = &mut self.all[number] else {
            return;
        };
        let page = fault.address & !(PAGE_BYTES - 1);
        let mut spans = seat.spans.iter();
        let at = spans.find_map(|span| span.within(page, page + PAGE_BYTES));
        let Some(at) = at else {
            // It was unmapped meanwhile, or moved, of which it is about to tell.
            let _ = seat.uffd.wake(page, PAGE_BYTES);
            return;
        };
        if !seat.waiting.contains(&page) {
            seat.waiting.push(page);
        }
        let tid = if seat.same_numbers {
            fault.tid
        } else {
            let seat = (number as u32 & 0xff) << TID_BITS;
            FOREIGN | seat | fault.tid & ((1 << TID_BITS) - 1)
        };
        let address = at.home + (fault.address - page);
        self.faults.push_back(Fault {
            address,
            tid,
            ..fault
        });
        if self.recent.first() != Some(&number) {
            self.recent.retain(|&other| other != number);
            self.recent.insert(0, number);
            self.recent.truncate(RECENT);
        }
    }

    fn hear(&mut self, number: usize, message: &Message) {
        let Some(seat) = &mut self.all[number] else {
            return;
        };
        match *message {
            Message::Fault(fault) => self.fault(number, fault),
            Message::Unmapped { start, end } => {
                seat.cut(start, end);
                self.unmapped = true;
            }
            // A second mapping, of which nobody knows how long it is.
            Message::Remapped { len: 0, .. } => {
                if clock::now() >= seat.aliases_until {
                    wire::end(seat.line, UNSEEN_ALIAS);
                }
                seat.aliases_until = Nanos(0);
            }
            // Where it was it is until that is told to be unmapped.
            Message::Remapped { from, to, len } => {
                let parts = seat.spans.iter();
                let moved = parts.filter_map(|span| span.within(from, from + len));
                let moved: Vec<Span> = moved
                    .map(|part| {
                        let start = to + (part.start - from);
                        Span {
                            start,
                            end: start + part.bytes(),
                            home: part.home,
                        }
                    })
                    .collect();
                seat.cut(to, to + len);
                seat.aliases_until = Nanos(0);
                if moved.is_empty() {
                    // It was given up while it was moved.
                    let _ = seat.uffd.unregister(to, len);
                }
                seat.spans.extend(moved);
            }
            Message::Removed { start, end } => {
                let parts = seat.spans.iter();
                let parts = parts.filter_map(|span| span.within(start, end));
                self.emptied
                    .extend(parts.map(|part| (part.home, part.home + part.bytes())));
            }
            Message::Forked(_) | Message::Other => {}
        }
    }

    /// The next fault that was read.
    pub(super) fn next_fault(&mut self) -> Option<Fault> {
        self.faults.pop_front()
    }

    /// Whether something was read that was not given out.
    pub(super) fn has_read(&self) -> bool {
        !self.faults.is_empty() || !self.emptied.is_empty()
    }

    /// The next range that somebody may have emptied, or has left as it is.
    pub(super) fn next_emptied(&mut self) -> Option<(usize, usize)> {
        self.emptied.pop()
    }

    /// Has nobody write to `start..end` of the home's any more. Why that cannot be, if it cannot: nobody knows then who is protected.
    pub(super) fn protect(&mut self, start: usize, end: usize) -> Option<Stop> {
        for number in 0..self.all.len() {
            if let Some(stop) = self.protect_in(number, start, end) {
                return Some(stop);
            }
        }
        None
    }

    fn protect_in(&mut self, number: usize, start: usize, end: usize) -> Option<Stop> {
        let mut changes = 0;
        loop {
            let seat = self.all[number].as_mut().filter(|seat| !seat.gone)?;
            let protect = |span: Span| seat.uffd.write_protect(span.start, span.bytes(), true).stop;
            let stop = seat.spans_in(start, end).find_map(protect);
            match stop {
                None => return None,
                Some(Stop::Gone) => {
                    seat.gone = true;
                    return None;
                }
                // What it changes is about to be told; its spans are others then.
                Some(Stop::Again | Stop::NoSource) if changes < CHANGES_MAX => {
                    changes += 1;
                    self.read(number);
                    raw::yield_now();
                }
                Some(Stop::Again) => return Some(Stop::Busy),
                stop => return stop,
            }
        }
    }

    /// All of `start..end` of the home's has come: who waits there goes on, and those that faulted last may write to all of it.
    pub(super) fn filled(&mut self, start: usize, end: usize) {
        for &number in &self.recent {
            if let Some(seat) = &mut self.all[number] {
                seat.open(start, end);
            }
        }
        self.serve(start, end);
    }

    /// Has who waits for a page of `start..end` of the home's go on, and write there.
    pub(super) fn serve(&mut self, start: usize, end: usize) {
        let seats = self.all.iter_mut().flatten();
        seats.for_each(|seat| seat.serve(start, end));
    }

    /// Has whoever touches the page at `address` of the home's get a signal.
    pub(super) fn poison(&mut self, address: usize) {
        for seat in self.all.iter_mut().flatten().filter(|seat| !seat.gone) {
            let spans: Vec<Span> = seat.spans_in(address, address + PAGE_BYTES).collect();
            for span in spans {
                let _ = seat.uffd.poison(span.start);
                let _ = seat.uffd.wake(span.start, PAGE_BYTES);
                seat.waiting.retain(|&page| page != span.start);
            }
        }
    }

    /// What is mapped of `start..end` of the home's is the kernel's from now on.
    pub(super) fn give_up(&mut self, start: usize, end: usize) {
        for number in 0..self.all.len() {
            self.give_up_in(number, start, end);
        }
    }

    fn give_up_in(&mut self, number: usize, start: usize, end: usize) {
        for tries in 1..=CHANGES_MAX {
            self.read(number);
            let Some(seat) = self.all[number].as_mut().filter(|seat| !seat.gone) else {
                return;
            };
            let spans: Vec<Span> = seat.spans_in(start, end).collect();
            if spans.is_empty() {
                return;
            }
            for span in &spans {
                // Where it is moved, which is about to be told, something else may lie by now, and before Linux 6.17 a userfaultfd takes off what another one registered.
                let there = seat.uffd.write_protect(span.start, PAGE_BYTES, true);
                let moving = there.stop == Some(Stop::Again);
                if !moving {
                    let _ = seat.uffd.unregister(span.start, span.bytes());
                }
                // Who is kept from going on tells later where it is, and is found in no span then.
                if !moving || tries == CHANGES_MAX {
                    seat.cut(span.start, span.end);
                }
            }
            raw::yield_now();
        }
    }

    /// Says why the home ends.
    pub(super) fn tell(&self, why: &str) {
        let seats = self.all.iter().flatten();
        seats.for_each(|seat| wire::end(seat.line, why));
    }
}

#[cfg(test)]
mod tests;
