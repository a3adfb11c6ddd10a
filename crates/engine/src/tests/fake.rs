//! A door without a kernel: the program's pages are a map, what its threads do is a queue of messages.
//!
//! The staging area is real memory, whose bytes go through /proc/self/mem. A thread that touches a page which is not there, or is protected,
//! sleeps until something wakes it. While a message about a change is not read, every call that resolves faults stops with
//! [`Stop::Again`], as the kernel's do; where [threads linger](State::lingers), also until they were let out of the kernel after that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard};

use outpage_core::units::PAGE_BYTES;
use outpage_sys::map;
use outpage_sys::pagemap::{PageFlags, Pagemap};
use outpage_sys::uffd::{Change, Fault, FaultAccess, FaultKind, Message, Outcome, Stop};

mod door;

pub(crate) use door::Silent;

/// The program's addresses: from here, and for so long. Nothing is mapped there.
pub(crate) const PROGRAM: usize = 1 << 40;
const PROGRAM_BYTES: usize = 1 << 30;

/// The program's page number `page`.
pub(crate) const fn at(page: usize) -> usize {
    PROGRAM + page * PAGE_BYTES
}

/// A page of the program's that has a frame.
#[derive(Clone)]
struct Page {
    bytes: Vec<u8>,
    protected: bool,
    /// A fork left it shared.
    shared: bool,
}

/// A thread that waits for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sleeper {
    tid: u32,
    address: usize,
}

/// What a thread does at the moment at which pages are to be dropped, from this address on.
pub(crate) type AtDrop = Box<dyn FnOnce(&mut State, usize) + Send>;

#[derive(Default)]
pub(crate) struct State {
    pages: BTreeMap<usize, Page>,
    poisoned: BTreeSet<usize>,
    /// Where nothing was when it was protected.
    pub(crate) markers: BTreeSet<usize>,
    /// Pages that a device uses: they cannot be moved.
    pub(crate) pinned: BTreeSet<usize>,
    /// Pages that were freed and not written since.
    pub(crate) freed: BTreeSet<usize>,
    /// Pages that the kernel does not give up.
    pub(crate) locked: BTreeSet<usize>,
    registered: BTreeSet<usize>,
    /// Not read yet.
    incoming: VecDeque<Message>,
    changes: VecDeque<Message>,
    faults: VecDeque<Fault>,
    asleep: Vec<Sleeper>,
    /// Threads that went on, in order.
    pub(crate) woken: Vec<u32>,
    /// Moves that were asked for, whatever came of them.
    pub(crate) move_calls: usize,
    /// Calls that throw pages away.
    pub(crate) release_calls: usize,
    /// The kernel has no frame more.
    pub(crate) no_memory: bool,
    /// Whoever told of a change is in the kernel still when that was read, until the next [`Door::let_change_pass`].
    pub(crate) lingers: bool,
    /// Threads that are in the kernel so.
    pub(crate) lingering: usize,
    pub(crate) at_drop: Option<AtDrop>,
}

/// The door, and the test's view of what is behind it.
#[derive(Clone)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    memory: Arc<File>,
}

const fn is_program(address: usize) -> bool {
    address >= PROGRAM && address < PROGRAM + PROGRAM_BYTES
}

fn pages(start: usize, len: usize) -> impl Iterator<Item = usize> {
    (start..start + len).step_by(PAGE_BYTES)
}

const fn stopped(bytes: usize, stop: Stop) -> Outcome {
    Outcome {
        bytes,
        stop: Some(stop),
    }
}

const fn whole(bytes: usize) -> Outcome {
    Outcome { bytes, stop: None }
}

impl State {
    fn change_at(&self, address: usize) -> Option<Change> {
        self.changes.iter().find_map(|m| m.change_at(address))
    }

    fn is_removed(&self, address: usize) -> bool {
        let mut at = address;
        for message in &self.changes {
            match (message.change_at(at), message) {
                (Some(Change::Removed), _) => return true,
                (Some(Change::Moved), Message::Remapped { from, to, .. }) => at = to + at - from,
                _ => {}
            }
        }
        false
    }

    fn is_moved_onto(&self, address: usize) -> bool {
        let onto = |m: &Message| match *m {
            Message::Remapped { to, len, .. } => (to..to + len).contains(&address),
            _ => false,
        };
        self.changes.iter().any(onto)
    }

    fn read_all(&mut self) {
        while let Some(message) = self.incoming.pop_front() {
            let is_change = !matches!(message, Message::Fault(_));
            self.lingering += usize::from(self.lingers && is_change);
            self.keep(message);
        }
    }

    fn keep(&mut self, message: Message) {
        match message {
            Message::Fault(fault) => self.faults.push_back(fault),
            change => self.changes.push_back(change),
        }
    }

    /// Whether a thread waits for its change to be read, or was not let out of the kernel since.
    fn is_changing(&self) -> bool {
        self.lingering > 0 || self.is_telling()
    }

    /// Whether a thread waits for its change to be read.
    pub(crate) fn is_telling(&self) -> bool {
        (self.incoming.iter()).any(|m| !matches!(m, Message::Fault(_)))
    }

    /// The mapping of `page` is another, without what was known of it.
    pub(crate) fn unpoison(&mut self, page: usize) {
        self.poisoned.remove(&at(page));
    }

    /// What lies at `page` has no frame.
    pub(crate) fn forget_page(&mut self, page: usize) {
        self.pages.remove(&at(page));
    }

    /// A thread is about to free pages from `first` on, and waits to be told.
    pub(crate) fn begin_to_free(&mut self, first: usize, pages: usize) {
        let (start, end) = (at(first), at(first + pages));
        self.incoming.push_back(Message::Removed { start, end });
    }

    /// It frees those that are there.
    pub(crate) fn free(&mut self, first: usize, pages: usize) {
        let there = self.pages.range(at(first)..at(first + pages));
        self.freed.extend(there.map(|(address, _)| *address));
    }

    /// A thread writes into `address`, if it can without a fault.
    pub(crate) fn write_at_once(&mut self, address: usize, byte: u8) -> bool {
        let page = address & !(PAGE_BYTES - 1);
        let there = (self.pages.get_mut(&page)).filter(|there| !there.protected);
        if let Some(there) = there {
            there.bytes[address - page] = byte;
            self.freed.remove(&page);
            return true;
        }
        false
    }

    /// The process is copied: every page is the child's as well.
    pub(crate) fn fork(&mut self) {
        self.pages.values_mut().for_each(|page| page.shared = true);
        self.lingering += 1;
    }

    /// A thread moves `pages` pages from `from` to `to`: done, and waits to be told.
    pub(crate) fn remap(&mut self, from: usize, to: usize, pages: usize) {
        for i in 0..pages {
            if let Some(page) = self.pages.remove(&at(from + i)) {
                self.pages.insert(at(to + i), page);
            }
            if self.freed.remove(&at(from + i)) {
                self.freed.insert(at(to + i));
            }
            self.registered.remove(&at(from + i));
            self.registered.insert(at(to + i));
        }
        let (from, to, len) = (at(from), at(to), pages * PAGE_BYTES);
        self.incoming.push_back(Message::Remapped { from, to, len });
    }

    fn wake(&mut self, start: usize, len: usize) {
        let range = start..start + len;
        let sleepers = std::mem::take(&mut self.asleep);
        let (woken, asleep): (Vec<_>, _) = sleepers
            .into_iter()
            .partition(|s| range.contains(&s.address));
        self.asleep = asleep;
        self.woken.extend(woken.iter().map(|s| s.tid));
    }

    /// Why nothing can be put at `address`, if so.
    fn refuses(&self, address: usize) -> Option<Stop> {
        if self.is_changing() {
            Some(Stop::Again)
        } else if is_program(address) && !self.registered.contains(&address) {
            Some(Stop::NoSource)
        } else if self.pages.contains_key(&address) || self.poisoned.contains(&address) {
            Some(Stop::Exists)
        } else if self.no_memory {
            Some(Stop::NoMemory)
        } else {
            None
        }
    }

    fn put(&mut self, address: usize, bytes: Vec<u8>, protected: bool) {
        let page = Page {
            bytes,
            protected,
            shared: false,
        };
        self.markers.remove(&address);
        self.pages.insert(address, page);
    }
}

impl Fake {
    pub(crate) fn new() -> Self {
        let memory = File::options()
            .read(true)
            .write(true)
            .open("/proc/self/mem");
        Self {
            state: Arc::default(),
            memory: Arc::new(memory.expect("/proc/self/mem")),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics in here")
    }

    /// Thread `tid` reads or writes the byte at `address`: what it reads, or `None` where it sleeps from now on.
    pub(crate) fn touch(&self, tid: u32, address: usize, write: Option<u8>) -> Option<u8> {
        let mut state = self.state();
        let page = address & !(PAGE_BYTES - 1);
        let found = state.pages.get_mut(&page);
        let kind = match found {
            Some(there) if write.is_none() || !there.protected => {
                let byte = &mut there.bytes[address - page];
                *byte = write.unwrap_or(*byte);
                let found = *byte;
                if write.is_some() {
                    state.freed.remove(&page);
                }
                return Some(found);
            }
            Some(_) => FaultKind::WriteProtect,
            None => FaultKind::Missing,
        };
        let access = match write {
            Some(_) => FaultAccess::Write,
            None => FaultAccess::Read,
        };
        state.asleep.push(Sleeper { tid, address: page });
        state.incoming.push_back(Message::Fault(Fault {
            address,
            kind,
            access,
            tid,
        }));
        None
    }

    /// The program has `page`, filled with `byte`.
    pub(crate) fn fill(&self, page: usize, byte: u8) {
        self.state().put(at(page), vec![byte; PAGE_BYTES], false);
    }

    /// What `page` is filled with, if the program has it.
    pub(crate) fn filled_with(&self, page: usize) -> Option<u8> {
        let state = self.state();
        let bytes = &state.pages.get(&at(page))?.bytes;
        assert!(bytes.iter().all(|b| *b == bytes[0]), "of one piece");
        Some(bytes[0])
    }

    pub(crate) fn is_protected(&self, page: usize) -> bool {
        (self.state().pages.get(&at(page))).is_some_and(|p| p.protected)
    }

    pub(crate) fn is_poisoned(&self, page: usize) -> bool {
        self.state().poisoned.contains(&at(page))
    }

    pub(crate) fn share(&self, page: usize) {
        let mut state = self.state();
        let there = state.pages.get_mut(&at(page)).expect("there");
        there.shared = true;
    }

    pub(crate) fn sleeps(&self, tid: u32) -> bool {
        self.state().asleep.iter().any(|s| s.tid == tid)
    }

    /// A thread throws `pages` pages from `first` on away, or unmaps them: done, and waits to be told.
    pub(crate) fn remove(&self, first: usize, pages: usize, unmaps: bool) {
        let (start, end) = (at(first), at(first + pages));
        let mut state = self.state();
        state.pages.retain(|&p, _| !(start..end).contains(&p));
        state.freed.retain(|p| !(start..end).contains(p));
        if unmaps {
            state.registered.retain(|p| !(start..end).contains(p));
        }
        state.incoming.push_back(match unmaps {
            true => Message::Unmapped { start, end },
            false => Message::Removed { start, end },
        });
    }

    /// A thread maps something else over `pages` pages from `first` on, of which the kernel never tells (shmat(2)).
    pub(crate) fn cover(&self, first: usize, pages: usize) {
        let covered = at(first)..at(first + pages);
        let mut state = self.state();
        state.registered.retain(|p| !covered.contains(p));
        for (_, page) in state.pages.range_mut(covered) {
            page.bytes.fill(0);
        }
    }

    /// A thread moves `pages` pages from `from` to `to`: done, and waits to be told.
    pub(crate) fn remap(&self, from: usize, to: usize, pages: usize) {
        self.state().remap(from, to, pages);
    }

    fn bytes_at(&self, address: usize) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_BYTES];
        let read = self.memory.read_exact_at(&mut bytes, address as u64);
        read.expect("the staging area is mapped");
        bytes
    }

    /// One page; `None` if it moved.
    fn move_page(&self, to: usize, from: usize) -> Option<Stop> {
        let mut state = self.state();
        if let Some(stop) = state.refuses(to) {
            return Some(stop);
        }
        if !is_program(from) {
            let there = Pagemap::open().and_then(|p| p.page(from));
            if there.is_ok_and(PageFlags::empty) {
                return Some(Stop::NoSource);
            }
            let bytes = self.bytes_at(from);
            map::release(from, PAGE_BYTES).expect("the staging area is mapped");
            state.put(to, bytes, false);
            return None;
        }
        match state.pages.get(&from) {
            None => return Some(Stop::NoSource),
            Some(page) if page.shared || state.pinned.contains(&from) => return Some(Stop::Busy),
            Some(_) => {}
        }
        let page = state.pages.remove(&from).expect("looked up above");
        // In the staging area it is written with itself.
        state.freed.remove(&from);
        (self.memory.write_all_at(&page.bytes, to as u64)).expect("the staging area is mapped");
        None
    }
}
