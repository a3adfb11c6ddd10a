//! A pager as the program's threads see it, and the life of its thread.
//!
//! Nothing here is a static: a process may have several engines, each with a thread, a limit, a store and memory of its own. What
//! belongs to the process as a whole is [`REACHES`].

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};

use outpage_store::{Config as StoreConfig, SwapStore};
use outpage_sys::clock;
use outpage_sys::futex::{self, Scope as Wakes};
use outpage_sys::own;
use outpage_sys::raw::Errno;
use outpage_sys::thread::{self, Options, Thread};
use outpage_sys::turns::Turns;

use crate::call::{Call, Calls};
use crate::config::{Config, SharedMemory};
use crate::home::{self, Hall};
use crate::live::{Live, Rest};
use crate::report;
use crate::scope::{Ended, Reach};
use crate::session::SessionPaths;
use crate::start::{StartError, fresh, os};
use crate::ticket::Arrived;

/// What the pager of a whole process is started with.
pub struct Setup {
    /// What the user set.
    pub config: Config,
    /// Where the session and its swap file are; without them the process gets its own.
    pub paths: SessionPaths,
    /// The program has said of some memory how it is to be forked (`MADV_DONTFORK`, `MADV_WIPEONFORK`).
    pub advised: bool,
    /// No other process can have mapped what this one has mapped shared.
    pub alone: bool,
}

/// Opens a store that takes the place of the swap file's, on the pager's thread, which has a descriptor table of its own.
/// A pool of threads gets them from [`crate::Workers`].
pub type OpenStore =
    Box<dyn FnOnce(StoreConfig) -> Result<Box<dyn SwapStore + Send>, StartError> + Send>;

const STARTING: u32 = 0;
const UP: u32 = 1;
const FAILED: u32 = 2;

/// What the process's engines reach: [`WHOLE`], or so many have regions. A static, for an address space has one owner of the whole.
static REACHES: AtomicUsize = AtomicUsize::new(0);
const WHOLE: usize = usize::MAX;

/// A pager, as the program's threads see it.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// What the program's threads and the pager's share.
pub(crate) struct Shared {
    pub(crate) calls: Arc<Calls>,
    pub(crate) reach: Reach,
    /// The pager thread's state while it is parked for a fork.
    pub(crate) parked: Mutex<Option<Box<Live>>>,
    /// Forks that are over.
    pub(crate) gate: AtomicU32,
    pub(crate) forked_pid: AtomicI32,
    pub(crate) tid: AtomicU32,
    pub(crate) config: Config,
    pub(crate) paths: SessionPaths,
    pub(crate) advised: bool,
    /// Shared memory that there is is to be managed.
    pub(crate) sharing: bool,
    pub(crate) store: Mutex<Option<OpenStore>>,
    pub(crate) write_protects: AtomicBool,
    /// The processes whose shared memory it pages, in the home of a run's.
    pub(crate) hall: Option<Hall>,
    /// Whose turn it is to map or move memory, or to throw pages away by their addresses.
    pub(crate) turns: Arc<Turns>,
    state: AtomicU32,
    error: Mutex<Option<StartError>>,
    /// Why it ended by itself.
    pub(crate) ended: Mutex<Option<Ended>>,
    thread: Mutex<Option<Thread>>,
}

/// Stack of the pager's thread: measured use is below 32 KiB; reading the list of mappings and
/// formatting an error take a few more.
pub(crate) const STACK_BYTES: usize = 512 << 10;

/// What a new pager thread begins with.
pub(crate) enum Begin {
    Fresh,
    /// Where no thread can be had for it nothing of it may be dropped: its threads are the parent's, and its descriptors numbers of the parent's
    /// table.
    Child(ManuallyDrop<Box<Live>>, Arrived),
}

impl Reach {
    /// Enters an engine of this reach.
    fn claim(self) -> Result<(), StartError> {
        let entered = REACHES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| match self {
            Self::Process => (now == 0).then_some(WHOLE),
            Self::Regions => (now < WHOLE - 1).then_some(now + 1),
        });
        entered.map(drop).map_err(|_| StartError::Taken)
    }

    fn leave(self) {
        match self {
            Self::Process => REACHES.store(0, Ordering::SeqCst),
            Self::Regions => {
                REACHES.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

impl Engine {
    /// Starts the pager of this process and lets it manage all private anonymous memory there is. It is there until the process ends, which
    /// an error of the pager brings about.
    ///
    /// # Errors
    /// [`StartError`]; the program's memory is untouched then. [`StartError::Taken`] when the process has an engine already.
    pub fn start(setup: Setup) -> Result<&'static Self, StartError> {
        let Setup {
            config,
            paths,
            advised,
            alone,
        } = setup;
        let mut shared = Shared::new(Reach::Process, config, paths, advised, None)?;
        shared.sharing = alone && shared.config.shared == SharedMemory::On;
        // Hooks use it until the end.
        let engine: &'static Self = Box::leak(Box::new(Self {
            shared: Arc::new(shared),
        }));
        engine.launch_or_leave()?;
        Ok(engine)
    }

    /// Starts a pager that manages nothing yet.
    pub(crate) fn open(config: Config, store: Option<OpenStore>) -> Result<Self, StartError> {
        let paths = SessionPaths::default();
        let shared = Arc::new(Shared::new(Reach::Regions, config, paths, false, store)?);
        let engine = Self { shared };
        engine.launch_or_leave()?;
        Ok(engine)
    }

    /// The pager of a run's shared memory, a member of the session at `paths`. It manages nothing yet.
    pub(crate) fn at_home(
        config: Config,
        paths: SessionPaths,
        hall: Hall,
    ) -> Result<Self, StartError> {
        let mut shared = Shared::new(Reach::Regions, config, paths, false, None)?;
        shared.hall = Some(hall);
        let engine = Self {
            shared: Arc::new(shared),
        };
        engine.launch_or_leave()?;
        Ok(engine)
    }

    fn launch_or_leave(&self) -> Result<(), StartError> {
        let launched = self.shared.launch(Begin::Fresh);
        if launched.is_err() {
            self.shared.await_end();
            self.shared.reach.leave();
        }
        launched
    }

    /// Has the pager's thread carry out `call`; returns what the system call would, errors negative: `-ESHUTDOWN` when the pager has ended.
    pub fn call(&self, call: Call) -> isize {
        self.shared.calls.post(call)
    }

    /// Has `map` make a call that maps or moves memory, its result whatever it returns. The pager throws no pages away meanwhile, for what lies at
    /// their addresses might be something else by then.
    pub fn placing<T>(&self, map: impl FnOnce() -> T) -> T {
        let _turn = self.shared.turns.take();
        map()
    }

    /// Whether pages leave the program by write-protecting and copying: then the pager cannot see
    /// that a device writes to a page, and the caller has to say so ([`Call::Pin`]).
    #[must_use]
    pub fn write_protects(&self) -> bool {
        self.shared.write_protects.load(Ordering::Acquire)
    }

    /// Whether shared memory is to be managed where it can be: it is copied under either mechanism ([`Self::write_protects`]).
    #[must_use]
    pub fn manages_shared(&self) -> bool {
        self.shared.config.shared == SharedMemory::On
    }

    /// Whether the shared memory that the program maps is kept for all processes of the run ([`Call::Lend`]).
    #[must_use]
    pub fn lends_shared(&self) -> bool {
        self.shared.config.shared == SharedMemory::Tree
    }

    /// Whether `start..end` may hold managed memory. Conservative: true when in doubt.
    #[must_use]
    pub fn manages(&self, start: usize, end: usize) -> bool {
        start < end && !own::contains(start)
    }

    /// Waits for the end of the pager's thread, which was told to end, or has.
    pub(crate) fn await_end(&self) {
        self.shared.await_end();
        self.shared.reach.leave();
    }
}

impl Shared {
    fn new(
        reach: Reach,
        config: Config,
        paths: SessionPaths,
        advised: bool,
        store: Option<OpenStore>,
    ) -> Result<Self, StartError> {
        let calls = Arc::new(Calls::new().map_err(os("reserve memory"))?);
        reach.claim()?;
        Ok(Self {
            calls,
            reach,
            parked: Mutex::new(None),
            gate: AtomicU32::new(0),
            forked_pid: AtomicI32::new(0),
            tid: AtomicU32::new(0),
            config,
            paths,
            advised,
            sharing: false,
            store: Mutex::new(store),
            write_protects: AtomicBool::new(false),
            hall: None,
            turns: Arc::default(),
            state: AtomicU32::new(STARTING),
            error: Mutex::new(None),
            ended: Mutex::new(None),
            thread: Mutex::new(None),
        })
    }

    /// Starts a pager thread and waits until it serves.
    pub(crate) fn launch(self: &Arc<Self>, begin: Begin) -> Result<(), StartError> {
        self.state.store(STARTING, Ordering::SeqCst);
        if self.reach == Reach::Regions {
            die_of_the_pagers_panics();
        }
        let options = Options {
            name: c"outpage",
            stack_bytes: STACK_BYTES,
            // The processes' descriptors arrive on another thread of the home's.
            share_files: self.hall.is_some(),
            process: false,
            untraced: false,
            // The process's own heap, which a scope manages no part of, may be anybody's.
            known: self.reach == Reach::Regions,
        };
        let thread = thread::spawn(pager_thread, (begin, self.clone()), &options)
            .map_err(os("start the pager's thread"))?;
        self.tid.store(thread.tid().0, Ordering::SeqCst);
        if let Ok(mut place) = self.thread.lock() {
            *place = Some(thread);
        }
        while self.state.load(Ordering::SeqCst) == STARTING {
            futex::wait(&self.state, STARTING, None, Wakes::Process);
        }
        if self.state.load(Ordering::SeqCst) == UP {
            return Ok(());
        }
        let error = self.error.lock().ok().and_then(|mut e| e.take());
        Err(error.unwrap_or(StartError::Os("start the pager", Errno::EIO)))
    }

    /// Waits for the end of the thread that was started last.
    fn await_end(&self) {
        let thread = self.thread.lock().ok().and_then(|mut place| place.take());
        if let Some(thread) = thread {
            thread.join_out_of_group();
        }
    }

    fn report(&self, result: Result<(), StartError>) {
        let state = if result.is_ok() { UP } else { FAILED };
        if let (Err(error), Ok(mut slot)) = (result, self.error.lock()) {
            *slot = Some(error);
        }
        self.state.store(state, Ordering::SeqCst);
        futex::wake(&self.state, 1, Wakes::Process);
    }
}

/// A dead pager must not be a silent hang: the message goes out, then the process ends, whatever the engine reaches. Panics of other
/// threads stay what they were.
fn die_of_the_pagers_panics() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if thread::is_pagers() {
                report::die(&["outpage: internal error: ", &info.to_string()]);
            }
            before(info);
        }));
    });
}

/// The life of a pager's thread.
fn pager_thread((begin, shared): (Begin, Arc<Shared>)) {
    if shared.reach == Reach::Process {
        // Hooks run on the program's threads, where a panic is as bad.
        std::panic::set_hook(Box::new(|info| {
            report::die(&["outpage: internal error: ", &info.to_string()])
        }));
    }
    let live = match begin {
        Begin::Fresh => fresh(&shared),
        Begin::Child(live, ticket) => {
            crate::fork::revive(&shared, ManuallyDrop::into_inner(live), ticket)
        }
    };
    let mut live = match live {
        Ok(live) => live,
        Err(error) => return shared.report(Err(error)),
    };
    live.next_tick = clock::now();
    shared.report(Ok(()));
    if shared.reach == Reach::Process && crate::outlive::is_wanted(&shared) {
        crate::outlive::move_out(&shared, live, None);
    }
    loop {
        live = match live.run() {
            Rest::Fork(slot) => crate::fork::park(&shared, live, slot),
            Rest::Outlive(slot) => crate::outlive::move_out(&shared, live, Some(slot)),
            Rest::Close(slot) => return crate::give_back::close(live, slot),
            Rest::Failed(failure) if shared.hall.is_some() => home::end(&shared, &failure),
            Rest::Failed(failure) => return crate::give_back::fail(&shared, live, failure),
        };
    }
}
