//! What the program asks of its memory, as the pager's thread carries it out.
//!
//! A call travels by the road of a fault: the program's thread fills a slot in unmanaged memory
//! and touches the slot's doorbell page, whose missing fault the pager reads among the others. So
//! calls and faults are served in one order, by one thread, and no lock is needed.

use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use outpage_core::contract::Advice;
use outpage_core::units::PAGE_BYTES;
use outpage_sys::map::{self, Area};
use outpage_sys::own::Fork;
use outpage_sys::raw::Errno;
use outpage_sys::shared::Words;

use crate::freeing::Freeing;

/// One call; the fields are those of the system call of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    missing_docs,
    reason = "the fields are the arguments of the system calls"
)]
pub enum Call {
    /// Private anonymous memory was mapped at `addr`, `len` bytes of whole pages: it is managed from now on.
    /// Where it took the place of other memory (`fresh` is false), pages may have been touched already.
    Take {
        addr: usize,
        len: usize,
        prot: i32,
        fresh: bool,
    },
    /// The same of shared anonymous memory, which nobody else has mapped.
    TakeShared {
        addr: usize,
        len: usize,
        prot: i32,
        fresh: bool,
    },
    /// Shared anonymous memory was mapped at `addr`, `len` bytes of whole pages, of which no page was touched: memory that is kept for all processes of the
    /// run takes its place. Where that cannot be, it stays as it is.
    Lend { addr: usize, len: usize, prot: i32 },
    /// A file of the program's own, of this number ([`outpage_sys::ram_file::id`]), which the home of the run keeps, was just mapped at `addr`: the home serves
    /// it from now on. Where that cannot be, nobody may touch it.
    Seat { addr: usize, len: usize, id: u64 },
    /// The home of the run is to give up the file of this number: 1, or 0 where it does not keep it.
    GiveUp { id: u64 },
    /// A second mapping of the pages at `addr` is about to be made: what of them is shared and managed goes back to the program before.
    Alias { addr: usize, len: usize },
    /// The same by remap_file_pages(2): `-ENOMEM` where the home of the run keeps them, which could not follow.
    Reorder { addr: usize, len: usize },
    /// More of the mapping at `addr` is about to be mapped by mremap(2): `-ENOMEM` where it could show what was cut off and forgotten.
    MayGrow { addr: usize },
    /// How many bytes from `addr` on are alike, shared memory that is managed or anything else: the number of bytes, its lowest bit set where they are.
    SharedUpTo { addr: usize, len: usize },
    /// `mremap(2)` was made, and gave `new`. The kernel has told of what moved and of what was unmapped; what was
    /// added is managed from now on.
    Remapped {
        old: usize,
        old_len: usize,
        new: usize,
        new_len: usize,
        flags: i32,
    },
    /// Something that is not managed took the place of what was at `addr`, `len` bytes, and the kernel does not tell.
    Replaced { addr: usize, len: usize },
    /// Where the mapping of private anonymous memory that holds `addr` ends, or'ed with its protection; `-EFAULT`
    /// where there is none.
    MappingAt { addr: usize },
    /// `madvise(2)`.
    Madvise {
        addr: usize,
        len: usize,
        advice: i32,
    },
    /// `mprotect(2)`.
    Mprotect { addr: usize, len: usize, prot: i32 },
    /// The range is about to be locked by the caller.
    Mlock { addr: usize, len: usize },
    /// The range was unlocked by the caller.
    Munlock { addr: usize, len: usize },
    /// The kernel is about to let a device write to the range: its pages are no victims until
    /// [`Call::Unpin`]. Pins are counted, beside `mlock`. `-EAGAIN` while too much is pinned.
    Pin { addr: usize, len: usize },
    /// The device is done.
    Unpin { addr: usize, len: usize },
    /// A fork is about to happen; the pages around these addresses stay mapped, then the pager
    /// does nothing until [`crate::Engine::fork_parent`].
    ForkPrepare { stack: usize, tls: usize },
    /// The calling thread begins: what the kernel needs at its end stays mapped until then. It may use all CPUs that it is allowed, as after
    /// [`Call::Unbind`] that does not last.
    ThreadBegins { tid: u32 },
    /// The calling thread is about to end, perhaps with robust mutexes held: they stay mapped as well.
    ThreadEnds { tid: u32 },
    /// The kernel will clear this word when a thread that the caller is about to make ends.
    KeepWord { addr: usize },
    /// Thread `tid` (0: every thread) may use all CPUs that it is allowed. If it lasts, until [`Call::Bind`];
    /// else the pager may bind it again after a few faults more.
    Unbind { tid: u32, lasting: bool },
    /// Ends one lasting [`Call::Unbind`].
    Bind { tid: u32 },
    /// A process that shares the memory is about to be made, which may be there when this one is gone: so shall the pager.
    Outlive,
    /// These whole pages of private anonymous memory, mapped and touched or not, are managed from now on. `-EEXIST` where some are.
    Manage { addr: usize, len: usize },
    /// Ends that: all pages are in the program, and stay. Gives the number of those that are lost.
    TakeBack { addr: usize, len: usize },
    /// The area that is offered beside tells which of these whole pages are paged out. `-EBUSY` where one does already of some, `-EINVAL` where they are not
    /// managed throughout, `-EAGAIN` where there is none.
    Subscribe { addr: usize, len: usize },
    /// The area that is offered beside tells which of these whole pages are about to leave. Answers as [`Call::Subscribe`].
    Listen { addr: usize, len: usize },
    /// What the managed ones of these whole pages hold may be dropped, until [`Call::Wanted`]. Nothing follows where the discard policy keeps no marks.
    Discardable { addr: usize, len: usize },
    /// It is wanted. Gives the number of pages that were dropped, and sets their bits in the words that are offered beside. `-EAGAIN` where there are none.
    Wanted { addr: usize, len: usize },
    /// The program says what it will do with the managed ones of these whole pages. Nothing of their contents depends on it.
    Advise {
        addr: usize,
        len: usize,
        advice: Advice,
    },
    /// Writes how many of the pages of the subscription at `addr` went out and came back to the words that are offered beside. `-EINVAL` where there is no
    /// such subscription.
    Traffic { addr: usize },
    /// Writes where these whole pages are to the words that are offered beside ([`crate::tell::Place`]).
    Places { addr: usize, len: usize },
    /// Writes what was counted there.
    Counts,
    /// Nothing: what the pager had begun is done when this returns.
    Fence,
    /// Everything that is managed goes back as by [`Call::TakeBack`], and the pager ends.
    Close,
    /// The process ends in order: its event log, if it keeps one, is whole.
    Ending,
}

impl Call {
    const WORDS: usize = 6;

    /// The call as words, for the slot.
    fn encode(self) -> [usize; Self::WORDS] {
        let s = |v: i32| v as u32 as usize;
        match self {
            Self::Take {
                addr,
                len,
                prot,
                fresh,
            } => [0, addr, len, s(prot), fresh.into(), 0],
            Self::Remapped {
                old,
                old_len,
                new,
                new_len,
                flags,
            } => [1, old, old_len, new, new_len, s(flags)],
            Self::Madvise { addr, len, advice } => [3, addr, len, s(advice), 0, 0],
            Self::Replaced { addr, len } => [5, addr, len, 0, 0, 0],
            Self::Mprotect { addr, len, prot } => [4, addr, len, s(prot), 0, 0],
            Self::MappingAt { addr } => [8, addr, 0, 0, 0, 0],
            Self::Mlock { addr, len } => [6, addr, len, 0, 0, 0],
            Self::Munlock { addr, len } => [7, addr, len, 0, 0, 0],
            Self::ForkPrepare { stack, tls } => [9, stack, tls, 0, 0, 0],
            Self::Pin { addr, len } => [10, addr, len, 0, 0, 0],
            Self::Unpin { addr, len } => [11, addr, len, 0, 0, 0],
            Self::Outlive => [2, 0, 0, 0, 0, 0],
            Self::Ending => [12, 0, 0, 0, 0, 0],
            Self::ThreadBegins { tid } => [13, tid as usize, 0, 0, 0, 0],
            Self::ThreadEnds { tid } => [14, tid as usize, 0, 0, 0, 0],
            Self::KeepWord { addr } => [15, addr, 0, 0, 0, 0],
            Self::Unbind { tid, lasting } => [16, tid as usize, lasting.into(), 0, 0, 0],
            Self::Bind { tid } => [17, tid as usize, 0, 0, 0, 0],
            Self::Manage { addr, len } => [18, addr, len, 0, 0, 0],
            Self::TakeBack { addr, len } => [19, addr, len, 0, 0, 0],
            Self::Close => [20, 0, 0, 0, 0, 0],
            Self::Subscribe { addr, len } => [21, addr, len, 0, 0, 0],
            Self::TakeShared {
                addr,
                len,
                prot,
                fresh,
            } => [22, addr, len, s(prot), fresh.into(), 0],
            Self::Alias { addr, len } => [23, addr, len, 0, 0, 0],
            Self::MayGrow { addr } => [32, addr, 0, 0, 0, 0],
            Self::SharedUpTo { addr, len } => [24, addr, len, 0, 0, 0],
            Self::Discardable { addr, len } => [25, addr, len, 0, 0, 0],
            Self::Wanted { addr, len } => [26, addr, len, 0, 0, 0],
            Self::Places { addr, len } => [27, addr, len, 0, 0, 0],
            Self::Counts => [28, 0, 0, 0, 0, 0],
            Self::Advise { addr, len, advice } => [29, addr, len, advice as usize, 0, 0],
            Self::Traffic { addr } => [30, addr, 0, 0, 0, 0],
            Self::Listen { addr, len } => [31, addr, len, 0, 0, 0],
            Self::Lend { addr, len, prot } => [33, addr, len, s(prot), 0, 0],
            Self::Fence => [34, 0, 0, 0, 0, 0],
            Self::Reorder { addr, len } => [35, addr, len, 0, 0, 0],
            Self::Seat { addr, len, id } => [36, addr, len, id as usize, 0, 0],
            Self::GiveUp { id } => [37, id as usize, 0, 0, 0, 0],
        }
    }

    fn decode([kind, a, b, c, d, e]: [usize; Self::WORDS]) -> Self {
        let s = |v: usize| v as u32 as i32;
        match kind {
            0 => Self::Take {
                addr: a,
                len: b,
                prot: s(c),
                fresh: d != 0,
            },
            1 => Self::Remapped {
                old: a,
                old_len: b,
                new: c,
                new_len: d,
                flags: s(e),
            },
            2 => Self::Outlive,
            3 => Self::Madvise {
                addr: a,
                len: b,
                advice: s(c),
            },
            4 => Self::Mprotect {
                addr: a,
                len: b,
                prot: s(c),
            },
            5 => Self::Replaced { addr: a, len: b },
            6 => Self::Mlock { addr: a, len: b },
            7 => Self::Munlock { addr: a, len: b },
            8 => Self::MappingAt { addr: a },
            9 => Self::ForkPrepare { stack: a, tls: b },
            10 => Self::Pin { addr: a, len: b },
            11 => Self::Unpin { addr: a, len: b },
            12 => Self::Ending,
            13 => Self::ThreadBegins { tid: a as u32 },
            14 => Self::ThreadEnds { tid: a as u32 },
            15 => Self::KeepWord { addr: a },
            16 => Self::Unbind {
                tid: a as u32,
                lasting: b != 0,
            },
            17 => Self::Bind { tid: a as u32 },
            18 => Self::Manage { addr: a, len: b },
            19 => Self::TakeBack { addr: a, len: b },
            20 => Self::Close,
            21 => Self::Subscribe { addr: a, len: b },
            22 => Self::TakeShared {
                addr: a,
                len: b,
                prot: s(c),
                fresh: d != 0,
            },
            23 => Self::Alias { addr: a, len: b },
            32 => Self::MayGrow { addr: a },
            24 => Self::SharedUpTo { addr: a, len: b },
            25 => Self::Discardable { addr: a, len: b },
            26 => Self::Wanted { addr: a, len: b },
            27 => Self::Places { addr: a, len: b },
            28 => Self::Counts,
            29 => Self::Advise {
                addr: a,
                len: b,
                advice: Advice::ALL[c],
            },
            30 => Self::Traffic { addr: a },
            31 => Self::Listen { addr: a, len: b },
            other => Self::decode_of_home(other, [a, b, c]),
        }
    }

    /// Those about memory that the home of a run keeps.
    fn decode_of_home(kind: usize, [a, b, c]: [usize; 3]) -> Self {
        match kind {
            33 => Self::Lend {
                addr: a,
                len: b,
                prot: c as u32 as i32,
            },
            34 => Self::Fence,
            35 => Self::Reorder { addr: a, len: b },
            36 => Self::Seat {
                addr: a,
                len: b,
                id: c as u64,
            },
            37 => Self::GiveUp { id: a as u64 },
            other => panic!("call {other} was never encoded"),
        }
    }
}

/// Calls that can be under way at once; a thread beyond them waits for a slot.
pub const SLOTS: usize = 64;

const IDLE: u32 = 0;
const CLAIMED: u32 = 1;
const POSTED: u32 = 2;
const ANSWERED: u32 = 3;

struct Slot {
    state: AtomicU32,
    words: [AtomicUsize; Call::WORDS],
    result: AtomicIsize,
}

/// The slots and their doorbells: one page of address space each.
pub struct Calls {
    slots: Vec<Slot>,
    bells: Area,
    /// Nobody answers any more.
    closed: AtomicBool,
    /// The area of a [`Call::Subscribe`] that is on its way, or the words for an answer. Held for the move of a pointer; the pager never waits for it.
    offered: Mutex<Option<Arc<Words>>>,
    /// Calls that threads make themselves, and that the pager has to know of before.
    pub(crate) freeing: Freeing,
    /// Shared memory is managed, or was.
    pub(crate) shares: AtomicBool,
    /// Threads that have mapped what the home keeps, or are about to, and have not told it.
    pub(crate) seating: AtomicU32,
}

impl Calls {
    /// All idle. The bells still need registering with userfaultfd.
    ///
    /// # Errors
    /// The kernel's, when there is no address space.
    pub fn new() -> Result<Self, Errno> {
        let slot = |_| Slot {
            state: AtomicU32::new(IDLE),
            words: std::array::from_fn(|_| AtomicUsize::new(0)),
            result: AtomicIsize::new(0),
        };
        Ok(Self {
            slots: (0..SLOTS).map(slot).collect(),
            bells: Area::new(SLOTS * PAGE_BYTES, Fork::Inherited)?,
            closed: AtomicBool::new(false),
            offered: Mutex::new(None),
            freeing: Freeing::new(),
            shares: AtomicBool::new(false),
            seating: AtomicU32::new(0),
        })
    }

    /// Lays the area of a [`Call::Subscribe`], or the words for an answer, ready.
    ///
    /// # Errors
    /// `EAGAIN` while there is another.
    pub(crate) fn offer(&self, area: Arc<Words>) -> Result<(), Errno> {
        match self.offered.try_lock() {
            Ok(mut offered) if offered.is_none() => {
                *offered = Some(area);
                Ok(())
            }
            _ => Err(Errno::EAGAIN),
        }
    }

    /// Takes what lies ready.
    pub(crate) fn take_offer(&self) -> Option<Arc<Words>> {
        self.offered.try_lock().ok()?.take()
    }

    /// Address and length in bytes of the bells.
    #[must_use]
    pub fn span(&self) -> (usize, usize) {
        (self.bells.start(), self.bells.len())
    }

    /// The slot whose bell is at `address`.
    #[must_use]
    pub fn rung(&self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.bells.start())?;
        (offset < self.bells.len()).then_some(offset / PAGE_BYTES)
    }

    /// On the program's thread: posts `call`, rings, waits for the pager, returns its answer; `-ESHUTDOWN` when the pager has ended.
    pub fn post(&self, call: Call) -> isize {
        let index = self.claim();
        let slot = &self.slots[index];
        for (to, word) in slot.words.iter().zip(call.encode()) {
            to.store(word, Ordering::Relaxed);
        }
        slot.state.store(POSTED, Ordering::Release);
        while slot.state.load(Ordering::Acquire) != ANSWERED {
            if self.closed.load(Ordering::Acquire) {
                // What was answered before the end is seen from here on, if it was not above.
                if slot.state.load(Ordering::Acquire) == ANSWERED {
                    break;
                }
                slot.state.store(IDLE, Ordering::Release);
                return -(libc::ESHUTDOWN as isize);
            }
            // The read faults, and the pager answers the fault when the call is done.
            std::hint::black_box(self.bells.bytes(index * PAGE_BYTES, 1)[0]);
            if slot.state.load(Ordering::Acquire) != ANSWERED {
                // A late answer to an earlier fault left the bell mapped: it must be empty to ring.
                self.empty(index);
            }
        }
        let result = slot.result.load(Ordering::Relaxed);
        self.empty(index);
        slot.state.store(IDLE, Ordering::Release);
        result
    }

    /// Empties the bell for its next ring.
    fn empty(&self, index: usize) {
        let bell = self.bells.start() + index * PAGE_BYTES;
        if map::release(bell, PAGE_BYTES) == Err(Errno::EINVAL) {
            // Locked, as all that is mapped is after a `mlockall` that no hook saw. It would never ring again.
            let _ = map::unlock(bell, PAGE_BYTES);
            let _ = map::release(bell, PAGE_BYTES);
        }
    }

    fn claim(&self) -> usize {
        loop {
            for (index, slot) in self.slots.iter().enumerate() {
                if slot
                    .state
                    .compare_exchange(IDLE, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    return index;
                }
            }
            outpage_sys::process::yield_now();
        }
    }

    /// On the pager's thread: the call in `index`, if one is posted there.
    #[must_use]
    pub fn take(&self, index: usize) -> Option<Call> {
        let slot = &self.slots[index];
        (slot.state.load(Ordering::Acquire) == POSTED).then(|| {
            Call::decode(std::array::from_fn(|i| {
                slot.words[i].load(Ordering::Relaxed)
            }))
        })
    }

    /// On the pager's thread: `index` is answered; its bell is then to be resolved.
    pub fn answer(&self, index: usize, result: isize) {
        self.slots[index].result.store(result, Ordering::Relaxed);
        self.slots[index].state.store(ANSWERED, Ordering::Release);
    }

    /// On the pager's thread, which answers no more: who waits goes on when the bells leave the userfaultfd.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// In a forked child: calls of the parent's other threads are nobody's, and the caller's own
    /// (the fork) is over.
    pub fn reset(&self) {
        self.freeing.reset();
        self.slots
            .iter()
            .for_each(|slot| slot.state.store(IDLE, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_arrives_as_it_was_made() {
        let (addr, len) = (0x7f00_0000_1000, 0x5000);
        let (prot, flags, advice) = (-1, libc::MREMAP_MAYMOVE, libc::MADV_FREE);
        let calls = [
            Call::Take {
                addr,
                len,
                prot,
                fresh: true,
            },
            Call::Remapped {
                old: addr,
                old_len: len,
                new: addr + len,
                new_len: 2 * len,
                flags,
            },
            Call::TakeShared {
                addr,
                len,
                prot,
                fresh: false,
            },
            Call::Alias { addr, len },
            Call::Reorder { addr, len },
            Call::Lend { addr, len, prot: 3 },
            Call::Seat {
                addr,
                len,
                id: 1 << 44,
            },
            Call::Fence,
            Call::MayGrow { addr },
            Call::SharedUpTo { addr, len },
            Call::Replaced { addr, len },
            Call::MappingAt { addr },
            Call::Madvise { addr, len, advice },
            Call::Mprotect { addr, len, prot },
            Call::Mlock { addr, len },
            Call::Munlock { addr, len },
            Call::Pin { addr, len },
            Call::Unpin { addr, len },
            Call::ForkPrepare {
                stack: addr,
                tls: len,
            },
            Call::ThreadBegins { tid: u32::MAX },
            Call::ThreadEnds { tid: 7 },
            Call::KeepWord { addr },
            Call::Unbind {
                tid: 7,
                lasting: true,
            },
            Call::Bind { tid: 7 },
            Call::Manage { addr, len },
            Call::TakeBack { addr, len },
            Call::Discardable { addr, len },
            Call::Wanted { addr, len },
            Call::Places { addr, len },
            Call::Counts,
            Call::Advise {
                addr,
                len,
                advice: Advice::Cold,
            },
            Call::Traffic { addr },
            Call::Close,
            Call::Outlive,
            Call::Ending,
        ];
        for call in calls {
            assert_eq!(Call::decode(call.encode()), call);
        }
    }

    /// Without a userfaultfd the bells ring for nobody, as when the pager has ended.
    #[test]
    fn calls_that_nobody_answers_return() {
        let calls = Calls::new().unwrap();
        calls.close();
        for _ in 0..2 * SLOTS {
            assert_eq!(calls.post(Call::Close), -(libc::ESHUTDOWN as isize));
        }
    }

    #[test]
    fn an_answer_that_came_before_the_end_counts() {
        let calls = Calls::new().unwrap();
        std::thread::scope(|threads| {
            let caller = threads.spawn(|| calls.post(Call::Outlive));
            let posted = loop {
                let posted = (0..SLOTS).find(|&slot| calls.take(slot).is_some());
                if let Some(slot) = posted {
                    break slot;
                }
            };
            assert_eq!(calls.take(posted), Some(Call::Outlive));
            calls.answer(posted, 5);
            calls.close();
            assert_eq!(caller.join().unwrap(), 5);
        });
    }
}
