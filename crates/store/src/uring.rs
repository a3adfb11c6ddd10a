//! The io_uring store: one ring, vectored transfers, completions seen without a system call.
//!
//! **Buffers are not registered**: a registered buffer is pinned for good, and `UFFDIO_MOVE` refuses
//! pinned pages. Even so a page stays pinned for a moment after its completion, so a move may have to
//! be tried again.
//!
//! **No `IORING_SETUP_DEFER_TASKRUN`**: with it a completion stays out of the ring until it is waited
//! for. `COOP_TASKRUN` with `TASKRUN_FLAG` (5.19) spares the interruption of a running thread and says
//! in shared memory when a call, which does not wait, would bring completions.
#![allow(unsafe_code)] // the kernel is handed addresses through the ring

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use outpage_core::units::SlotRange;

use crate::flight::{Flight, Step};
use crate::{
    Allocation, Backend, BackendError, Cause, Completion, Config, Descriptors, Direction, Grow,
    Reopen, Request, Reserve, ReserveError, Store, SubmitError, SwapFile, check_request,
    check_slots, raw,
};

/// `IORING_ENTER_GETEVENTS` (`linux/io_uring.h`): bring what has ended into the ring.
const ENTER_GETEVENTS: u32 = 1;

/// Attempts to hand a request to a kernel that is short of memory, with a yield between.
const HAND_OVER_MAX: u32 = 1000;

/// Pairs of "single issuer" (6.0) and "cooperative, with a flag" (5.19), newest kernel first.
const FLAGS: [(bool, bool); 3] = [(true, true), (false, true), (false, false)];

/// A store on a swap file through io_uring.
///
/// It belongs to the thread that submits first (`IORING_SETUP_SINGLE_ISSUER`) and to that thread's
/// table of file descriptors. Dropping it waits for the requests in flight.
pub struct UringStore {
    /// `None` after a failed [`Reopen::reopen_after_fork`].
    ring: Option<Ring>,
    file: SwapFile,
    config: Config,
    ops: Vec<Op>,
    free: Vec<u16>,
    done: VecDeque<Completion>,
    /// Entries ever put into the submission queue, and those that the kernel has taken.
    pushed: u64,
    taken: u64,
    /// Set once the ring can no longer be used: nothing may be submitted any more, for the entries
    /// that failed are still in the queue.
    broken: Option<i32>,
}

/// A ring, which a store is on.
pub(crate) struct Ring {
    ring: IoUring,
    /// Whether the ring still waits to be enabled by the thread that will use it.
    disabled: bool,
    /// Whether the kernel flags completions that are not in the ring yet.
    flags_work: bool,
    /// Whether the kernel takes a timeout where it waits for completions (5.11).
    waits_with_timeout: bool,
}

struct Op {
    flight: Flight,
    /// The value of `pushed` before the latest entry for it.
    sequence: u64,
    active: bool,
}

impl UringStore {
    /// Opens a ring for `file`.
    ///
    /// # Errors
    /// io_uring is missing or not permitted; see [`BackendError`].
    ///
    /// # Panics
    /// When `config` is out of range.
    pub fn new(file: SwapFile, config: Config) -> Result<Self, BackendError> {
        Ok(Self::on(Ring::build(config.check().depth)?, file, config))
    }

    /// A store on `file` by `ring`.
    pub(crate) fn on(ring: Ring, file: SwapFile, config: Config) -> Self {
        let op = || Op {
            flight: Flight::new(config.request_pages_max),
            sequence: 0,
            active: false,
        };
        Self {
            ring: Some(ring),
            file,
            config,
            ops: (0..config.depth).map(|_| op()).collect(),
            free: (0..config.depth).rev().collect(),
            done: VecDeque::with_capacity(config.depth.into()),
            pushed: 0,
            taken: 0,
            broken: None,
        }
    }

    /// The file that it is on.
    pub(crate) const fn file(&self) -> &SwapFile {
        &self.file
    }

    /// Puts the rest of an operation into the submission queue and hands it to the kernel.
    fn push(&mut self, index: u16) {
        let op = &mut self.ops[usize::from(index)];
        op.sequence = self.pushed;
        let (fd, iovecs) = (types::Fd(self.file.as_raw_fd()), op.flight.iovecs());
        let (pieces, count) = (iovecs.as_ptr().cast::<libc::iovec>(), iovecs.len() as u32);
        let offset = op.flight.offset();
        let entry = match op.flight.direction {
            Direction::PageIn => opcode::Readv::new(fd, pieces, count).offset(offset).build(),
            Direction::PageOut => opcode::Writev::new(fd, pieces, count)
                .offset(offset)
                .build(),
        };
        let entry = entry.user_data(index.into());
        if let (None, Some(ring)) = (self.broken, &mut self.ring) {
            // SAFETY: the descriptor is open as long as the store; the list of pieces belongs to the
            // operation and does not change until its completion, nor does `ops` ever grow; the
            // pieces are frames, valid until then by their maker's promise. `drop` waits.
            let pushed = unsafe { ring.ring.submission().push(&entry) };
            pushed.expect("the queue has a place for each operation");
            self.pushed += 1;
            self.hand_over();
        } else {
            self.fail(index, self.broken.unwrap_or(libc::EBADF));
        }
    }

    /// Makes the kernel take the queue. When it will not, the ring is given up, and what it has not
    /// taken fails; what it has taken still completes.
    fn hand_over(&mut self) {
        let mut errno = 0;
        for _ in 0..HAND_OVER_MAX {
            let Some(ring) = &mut self.ring else { return };
            match ring.submit() {
                Ok(taken) => self.taken += taken as u64,
                Err(libc::EINTR) => {}
                Err(e @ (libc::EAGAIN | libc::EBUSY | libc::ENOMEM)) => {
                    errno = e;
                    raw::yield_now();
                }
                Err(e) => {
                    errno = e;
                    break;
                }
            }
            if self.taken == self.pushed {
                return;
            }
        }
        self.broken = Some(errno);
        for index in 0..self.config.depth {
            let op = &self.ops[usize::from(index)];
            if op.active && op.sequence >= self.taken {
                self.fail(index, errno);
            }
        }
    }

    /// What is left of an operation fails.
    fn fail(&mut self, index: u16, errno: i32) {
        let flight = &mut self.ops[usize::from(index)].flight;
        flight.give_up(Cause::Errno(errno));
        self.end(index);
    }

    fn end(&mut self, index: u16) {
        let op = &mut self.ops[usize::from(index)];
        op.active = false;
        self.done.push_back(op.flight.completion());
        self.free.push(index);
    }

    /// Works off the completion queue.
    fn reap(&mut self) {
        while let Some(ring) = &mut self.ring {
            let Some(entry) = ring.ring.completion().next() else {
                break;
            };
            let index = entry.user_data() as u16;
            let moved = entry.result();
            let moved = if moved < 0 {
                Err(-moved)
            } else {
                Ok(moved as usize)
            };
            match self.ops[usize::from(index)].flight.advance(moved) {
                Step::Again => self.push(index),
                Step::Done => self.end(index),
            }
        }
    }

    fn active(&self) -> usize {
        self.ops.len() - self.free.len()
    }
}

impl Store for UringStore {
    fn submit(&mut self, request: &Request<'_>) -> Result<(), SubmitError> {
        check_request(
            request,
            self.config.request_pages_max,
            self.capacity_slots(),
        );
        if self.in_flight() == self.depth() {
            return Err(SubmitError::Full);
        }
        let index = self.free.pop().expect("fewer in flight than operations");
        let op = &mut self.ops[usize::from(index)];
        op.active = true;
        op.flight.start(request);
        self.push(index);
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        if let Some(ring) = &mut self.ring {
            ring.fetch();
        }
        self.reap();
        let count = self.done.len().min(out.capacity() - out.len());
        out.extend(self.done.drain(..count));
        count
    }

    fn forget(&mut self, slots: SlotRange) {
        check_slots(slots, self.capacity_slots());
    }

    fn wait(&mut self, timeout_ns: u64) -> bool {
        let deadline = Instant::now() + Duration::from_nanos(timeout_ns);
        loop {
            self.reap();
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.done.is_empty() || self.active() == 0 || left.is_zero() {
                return !self.done.is_empty();
            }
            let Some(ring) = &mut self.ring else {
                return false;
            };
            ring.sleep(left, self.broken.is_some());
        }
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.ring.as_ref().map(|ring| ring.ring.as_raw_fd())
    }

    fn in_flight(&self) -> usize {
        self.active() + self.done.len()
    }

    fn depth(&self) -> usize {
        self.config.depth.into()
    }

    fn request_pages_max(&self) -> u32 {
        self.config.request_pages_max
    }

    fn capacity_slots(&self) -> u32 {
        self.file.capacity_slots()
    }

    fn ram_bytes(&self) -> u64 {
        0
    }
}

impl Grow for UringStore {
    fn reserve(&mut self, slots: SlotRange) -> Result<Allocation, ReserveError> {
        self.file.reserve(slots)
    }

    fn beside(&self) -> Option<Box<dyn Reserve>> {
        self.file.beside()
    }
}

impl Reopen for UringStore {
    fn carried_fd(&self) -> Option<RawFd> {
        Some(self.file.as_raw_fd())
    }

    fn reopen_after_fork(&mut self, descriptors: Descriptors) -> Result<(), BackendError> {
        if let Some(parents) = self.ring.take() {
            parents.forget_after_fork(&descriptors);
        }
        self.file.follow_fork(descriptors);
        for op in &mut self.ops {
            op.active = false;
        }
        self.free.clear();
        self.free.extend((0..self.config.depth).rev());
        self.done.clear();
        (self.pushed, self.taken) = (0, 0);
        self.broken = None;
        let ring = Ring::build(self.config.depth);
        self.broken = ring.as_ref().err().map(|e| e.errno);
        self.ring = Some(ring?);
        Ok(())
    }
}

impl Drop for UringStore {
    fn drop(&mut self) {
        // The kernel may still write to frames, and reads the lists of pieces.
        while self.active() > 0 && self.ring.is_some() {
            self.wait(1_000_000_000);
            self.done.clear();
        }
    }
}

impl Ring {
    /// A ring with the best flags that the kernel knows.
    fn build(depth: u16) -> Result<Self, BackendError> {
        let mut result = Err(io::ErrorKind::Unsupported.into());
        for (single_issuer, flags_work) in FLAGS {
            result = Self::build_with(depth, single_issuer, flags_work);
            // What older kernels say to flags that they do not know.
            if !result
                .as_ref()
                .is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL))
            {
                break;
            }
        }
        result.map_err(|e| backend_error("io_uring_setup", &e))
    }

    fn build_with(depth: u16, single_issuer: bool, flags_work: bool) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        // A child must not unmap what it never had: see `forget_after_fork`.
        builder.dontfork();
        if flags_work {
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }
        if single_issuer {
            // The issuer is the thread that enables the ring, which may not be this one.
            builder.setup_single_issuer().setup_r_disabled();
        }
        let ring = builder.build(depth.into())?;
        let waits_with_timeout = ring.params().is_feature_ext_arg();
        Ok(Self {
            ring,
            disabled: single_issuer,
            flags_work,
            waits_with_timeout,
        })
    }

    /// Hands the queue to the kernel; returns how many entries it took.
    fn submit(&mut self) -> Result<usize, i32> {
        let errno = |e: io::Error| e.raw_os_error().unwrap_or(libc::EIO);
        if self.disabled {
            self.ring
                .submitter()
                .register_enable_rings()
                .map_err(errno)?;
            self.disabled = false;
        }
        self.ring.submitter().submit().map_err(errno)
    }

    /// Brings completions into the ring, if the kernel says that there are some outside.
    fn fetch(&mut self) {
        if self.flags_work && self.ring.submission().taskrun() {
            // SAFETY: no argument, nothing submitted, nothing waited for. A failure (EINTR) leaves
            // the flag set for the next time.
            let _ = unsafe {
                self.ring
                    .submitter()
                    .enter::<()>(0, 0, ENTER_GETEVENTS, None)
            };
        }
    }

    /// Sleeps until a completion is in the ring or `timeout` has passed; may return early.
    fn sleep(&mut self, timeout: Duration, broken: bool) {
        if broken || !self.waits_with_timeout {
            self.fetch();
            if self.ring.completion().is_empty() {
                raw::wait_readable(self.ring.as_raw_fd(), timeout.as_nanos() as u64);
            }
            return;
        }
        let timeout = types::Timespec::from(timeout);
        let arguments = types::SubmitArgs::new().timespec(&timeout);
        // ETIME, EINTR: the caller looks again. The submission queue is empty.
        let _ = self.ring.submitter().submit_with_args(1, &arguments);
    }

    /// In a forked child: lets go of the parent's ring, whose memory the child has not got, and whose
    /// number may be another file's.
    fn forget_after_fork(self, descriptors: &Descriptors) {
        let fd = self.ring.as_raw_fd();
        mem::forget(self.ring);
        if matches!(descriptors, Descriptors::Copied) {
            // SAFETY: the child's copy of the ring's descriptor, whose owner was just forgotten.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

fn backend_error(call: &'static str, error: &io::Error) -> BackendError {
    let errno = error.raw_os_error().unwrap_or(libc::EOPNOTSUPP);
    BackendError {
        backend: Backend::Uring,
        call,
        errno,
    }
}

/// A ring as `config` has it, where one can be made that knows vectored transfers.
///
/// # Panics
/// When `config` is out of range.
pub(crate) fn ring(config: Config) -> Result<Ring, BackendError> {
    let depth = config.check().depth;
    probe().and_then(|()| Ring::build(depth))
}

/// Whether a ring can be made that knows vectored transfers.
pub(crate) fn probe() -> Result<(), BackendError> {
    let ring = Ring::build(1)?;
    let mut known = io_uring::Probe::new();
    let asked = ring.ring.submitter().register_probe(&mut known);
    asked.map_err(|e| backend_error("io_uring_register", &e))?;
    let needed = [opcode::Readv::CODE, opcode::Writev::CODE];
    if needed.into_iter().all(|code| known.is_supported(code)) {
        return Ok(());
    }
    Err(BackendError {
        backend: Backend::Uring,
        call: "io_uring_register",
        errno: libc::EOPNOTSUPP,
    })
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc_zeroed};

    use outpage_core::units::{PAGE_BYTES, SlotNo};

    use super::*;
    use crate::{Frame, Token};

    /// A frame, leaked: a failed test may leave a request in flight.
    fn frame() -> Frame {
        let layout = Layout::from_size_align(PAGE_BYTES, PAGE_BYTES).unwrap();
        // SAFETY: the layout is not empty.
        let page = unsafe { alloc_zeroed(layout) };
        // SAFETY: lives for ever; no references.
        unsafe { Frame::new(page.expose_provenance()) }
    }

    fn store() -> UringStore {
        let directory = std::env::current_dir().unwrap();
        let file = SwapFile::create_in(&directory, 8 * PAGE_BYTES as u64).unwrap();
        UringStore::new(file, Config::default()).unwrap()
    }

    fn submit(store: &mut UringStore, direction: Direction, frame: Frame) {
        let slots = SlotRange::new(SlotNo(2), 1);
        store
            .submit(&Request {
                token: Token(7),
                direction,
                slots,
                frames: &[frame],
                awaited: true,
            })
            .unwrap();
    }

    /// One page out and in, waiting by `wait` and by `poll` in turn.
    fn round_trip(store: &mut UringStore, frame: Frame) {
        let piece = frame.as_iovec();
        for (n, direction) in [Direction::PageOut, Direction::PageIn]
            .into_iter()
            .enumerate()
        {
            piece.fill(&[n as u8 * 99 + 1; PAGE_BYTES]);
            submit(store, direction, frame);
            if n == 0 {
                while !store.wait(1_000_000) {}
            }
            let mut out = Vec::with_capacity(1);
            while store.poll(&mut out) == 0 {
                raw::yield_now();
            }
            assert_eq!(out, [Completion::whole(Token(7))]);
        }
        let mut bytes = [0; PAGE_BYTES];
        piece.copy_to(&mut bytes);
        assert_eq!(bytes, [1; PAGE_BYTES]);
    }

    #[test]
    fn works_without_what_newer_kernels_add() {
        let frame = frame();
        for (single_issuer, flags_work) in FLAGS {
            for waits_with_timeout in [false, true] {
                let mut store = store();
                match Ring::build_with(64, single_issuer, flags_work) {
                    Ok(ring) => {
                        store.ring = Some(Ring {
                            waits_with_timeout,
                            ..ring
                        })
                    }
                    Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EINVAL)),
                }
                round_trip(&mut store, frame);
            }
        }
    }

    #[test]
    fn one_poll_brings_what_the_kernel_flags() {
        let (mut store, frame) = (store(), frame());
        round_trip(&mut store, frame);
        let mut out = Vec::with_capacity(1);
        for _ in 0..200 {
            submit(&mut store, Direction::PageIn, frame);
            let ring = store.ring.as_mut().unwrap();
            while !ring.ring.submission().taskrun() && ring.ring.completion().is_empty() {
                std::hint::spin_loop();
            }
            // The kernel flags work before it adds it (`io_req_normal_work_add`, Linux 6.18), on another CPU: in between there is nothing to bring.
            let flagged = std::time::Instant::now();
            while flagged.elapsed().as_micros() < 100 {
                std::hint::spin_loop();
            }
            out.clear();
            assert_eq!(store.poll(&mut out), 1);
        }
    }
}
