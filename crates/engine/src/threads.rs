//! What the kernel needs of a thread when it ends: pages that stay in the program until then.
//!
//! At the end of a thread the kernel writes 0 to the word that `CLONE_CHILD_CLEARTID` named, which
//! `pthread_join` waits for, and walks its list of robust mutexes. A thread that is ending gets no page
//! from a userfaultfd (`PF_EXITING` in `handle_userfault`): what is not there then is not written, and
//! whoever waits waits for ever. So these pages are no victims, from the thread's beginning on.
//!
//! With glibc word and list head lie in one line of the thread's block. The mutexes on the list are
//! looked up when the thread begins to end. Kept pages count as locked: with what `mlock` locked they
//! take half of the limit at most, and threads beyond that are not kept.

use outpage_core::page::State;
use outpage_core::units::PAGE_BYTES;
use outpage_sys::process::{self, Tid};
use outpage_sys::raw::Errno;

use crate::live::Live;
use crate::space::page_up;

/// From glibc's `tid` to its `robust_head` (`struct pthread` in nptl/descr.h): two numbers and a pointer.
const TID_BEFORE_HEAD: usize = 16;
/// `struct robust_list_head` of include/uapi/linux/futex.h: first entry, distance to the futex, pending entry.
const HEAD_BYTES: usize = 3 * size_of::<usize>();
/// Entries that the kernel walks (`ROBUST_LIST_LIMIT` in include/linux/futex.h).
const ENTRIES_MAX: usize = 2048;
/// The low bit of an entry says that its futex inherits priorities.
const ENTRY_FLAGS: usize = 1;

/// Pages that stay in the program while a thread lives.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    /// Whose; 0 where nobody said so: until the range is unmapped.
    tid: Tid,
    /// Its list head, which tells it from a later thread of the same number.
    head: usize,
    start: usize,
    end: usize,
}

impl Kept {
    /// Whether the thread is gone. One that is ending has no list any more, but its word is still to be
    /// written.
    fn is_over(&self) -> bool {
        self.tid != Tid(0)
            && match process::robust_list(self.tid) {
                Ok(head) => head != 0 && head != self.head,
                Err(error) => error == Errno::ESRCH,
            }
    }
}

/// The threads of this process that have a list head, and where it is. One that begins now says so.
pub(crate) fn now() -> Vec<(Tid, usize)> {
    let mut out = Vec::with_capacity(64);
    let _ = process::each_thread(|tid| {
        if let Ok(head @ 1..) = process::robust_list(tid) {
            out.push((tid, head));
        }
    });
    out.sort_unstable();
    out.dedup();
    out
}

impl Live {
    /// Bytes that are kept for threads; a page that two of them need counts twice.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept.iter().map(|k| k.end - k.start).sum()
    }

    /// The thread `tid` begins: its block stays.
    pub(crate) fn thread_begins(&mut self, tid: Tid) {
        if let Ok(head @ 1..) = process::robust_list(tid) {
            self.keep(tid, head, head - TID_BEFORE_HEAD, head + HEAD_BYTES);
        }
    }

    /// The kernel will clear the word at `address` when some thread ends.
    pub(crate) fn keep_word(&mut self, address: usize) {
        self.keep(Tid(0), 0, address, address + size_of::<u32>());
    }

    /// The thread `tid` is about to end: the mutexes that it holds stay as well.
    pub(crate) fn thread_ends(&mut self, tid: Tid) {
        let Ok(head @ 1..) = process::robust_list(tid) else {
            return;
        };
        self.keep(tid, head, head - TID_BEFORE_HEAD, head + HEAD_BYTES);
        let word = |live: &Self, at: usize| live.present_word(head + at * size_of::<usize>());
        let (Some(mut next), Some(offset), Some(pending)) =
            (word(self, 0), word(self, 1), word(self, 2))
        else {
            return;
        };
        self.keep_entry(tid, head, pending & !ENTRY_FLAGS, offset);
        for _ in 0..ENTRIES_MAX {
            let entry = next & !ENTRY_FLAGS;
            if entry == head || !self.keep_entry(tid, head, entry, offset) {
                return;
            }
            match self.present_word(entry) {
                Some(following) => next = following,
                None => return,
            }
        }
    }

    /// Keeps one entry of a list and the futex `offset` from it. False at the list's end.
    fn keep_entry(&mut self, tid: Tid, head: usize, entry: usize, offset: usize) -> bool {
        let futex = entry.wrapping_add(offset);
        if entry == 0 {
            return false;
        }
        self.keep(tid, head, entry, entry + size_of::<usize>());
        self.keep(tid, head, futex, futex + size_of::<u32>());
        true
    }

    /// Keeps `start..end`, rounded to pages, and brings it in.
    fn keep(&mut self, tid: Tid, head: usize, start: usize, end: usize) {
        let (start, end) = (start & !(PAGE_BYTES - 1), page_up(end));
        if self.enter(Kept {
            tid,
            head,
            start,
            end,
        }) {
            for address in (start..end).step_by(PAGE_BYTES) {
                self.bring_in_if_away(address);
            }
        }
    }

    fn bring_in_if_away(&mut self, address: usize) {
        let page = self.world.space.at(address).map(|r| r.page(address));
        if page.is_some_and(|page| self.pager.state(page) != State::Resident) {
            self.bring_in(address);
        }
    }

    /// Makes the pages no victims. False where they are not managed, are kept already, or too much is.
    fn enter(&mut self, kept: Kept) -> bool {
        let known = |k: &&Kept| (k.tid, k.start, k.end) == (kept.tid, kept.start, kept.end);
        let bytes = self.kept_bytes() + self.world.space.locked_bytes() + kept.end - kept.start;
        if self.world.space.at(kept.start).is_none()
            || self.kept.iter().any(|k| known(&k))
            || bytes / PAGE_BYTES > self.lockable()
        {
            return false;
        }
        self.world.space.hold(kept.start, kept.end);
        self.kept.push(kept);
        true
    }

    /// Keeps what lies in `start..end`, which is not paged yet, of the blocks of `threads`.
    pub(crate) fn keep_threads_in(&mut self, threads: &[(Tid, usize)], start: usize, end: usize) {
        let here = threads.iter().filter(|t| (start..end).contains(&t.1));
        for &(tid, head) in here {
            let from = (head - TID_BEFORE_HEAD) & !(PAGE_BYTES - 1);
            let to = page_up(head + HEAD_BYTES);
            self.enter(Kept {
                tid,
                head,
                start: from,
                end: to,
            });
        }
    }

    /// What threads that are gone needed may leave.
    pub(crate) fn let_ended_threads_go(&mut self) {
        self.let_kept_go(Kept::is_over);
    }

    /// `start..end` is about to be unmapped: nothing of it is kept.
    pub(crate) fn let_kept_go_in(&mut self, start: usize, end: usize) {
        self.let_kept_go(|k| k.start < end && start < k.end);
    }

    fn let_kept_go(&mut self, which: impl Fn(&Kept) -> bool) {
        let mut at = 0;
        while at < self.kept.len() {
            if which(&self.kept[at]) {
                let kept = self.kept.swap_remove(at);
                self.world.space.unpin(kept.start, kept.end - kept.start);
            } else {
                at += 1;
            }
        }
    }
}
