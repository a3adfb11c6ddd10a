//! What a pager is made of, as its thread puts it together.

use std::ffi::CStr;
use std::fmt;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use outpage_core::limits::FRAMES_MIN;
use outpage_core::pager::Pager;
use outpage_core::record::Header;
use outpage_core::{pageout, readahead};
use outpage_store::{
    Backend, BackendError, Bounced, Choice, Cipher, Config as StoreConfig, Encryption, Ordered,
    SwapFile, SwapFileError, SwapStore,
};
use outpage_sys::process;
use outpage_sys::raw::Errno;
use outpage_sys::secret::Locked;
use outpage_sys::uffd::{Features, Mode, OpenError, Uffd, Wanted};
use outpage_sys::{clock, fd, proc};

use outpage_store::compressed::Codec;

use crate::brain::{Brain, TraceFile};
use crate::compressed::Compressed;
use crate::config::{ClusterWindow, Config, ConfigError, Mechanism as Wish, StoreKind};
use crate::contiguous::SetApart;
use crate::door::{Bells, Door, Kernel};
use crate::encryption::{self, EncryptionError};
use crate::engine::Shared;
use crate::frames::Frames;
use crate::home::HomeDoor;
use crate::lent::Lent;
use crate::live::Live;
use crate::notify::Notifier;
use crate::report;
use crate::scope::{Failing, Reach};
use crate::session::{EXTENT_SLOTS, Session, SessionError};
use crate::workers::Workers;
use crate::world::{Mechanism, World};

/// Why there is no pager.
#[derive(Debug)]
pub enum StartError {
    /// A setting that this kernel's mechanism cannot serve.
    Config(ConfigError),
    /// No userfaultfd, or one that lacks what is needed.
    Uffd(OpenError),
    /// The session.
    Session(SessionError),
    /// The swap file.
    Swap(SwapFileError),
    /// The store's I/O.
    Store(BackendError),
    /// The key of the swap file.
    Encryption(EncryptionError),
    /// The process is managed already: as a whole by one engine, or in regions.
    Taken,
    /// Something else that the kernel refused.
    Os(&'static str, Errno),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uffd(e) => write!(f, "{e}; `outpage doctor` tells the remedy"),
            Self::Config(e) => e.fmt(f),
            Self::Session(e) => e.fmt(f),
            Self::Swap(e) => e.fmt(f),
            Self::Store(e) => e.fmt(f),
            Self::Encryption(e) => e.fmt(f),
            Self::Taken => f.write_str("the memory of this process is managed already"),
            Self::Os(what, e) => write!(f, "cannot {what}: {e}"),
        }
    }
}

impl std::error::Error for StartError {}

pub(crate) fn os(what: &'static str) -> impl FnOnce(Errno) -> StartError {
    move |e| StartError::Os(what, e)
}

/// Descriptors that the pager keeps of those its thread was born with.
pub(crate) fn keep_only(keep: &[Option<i32>]) -> Result<(), StartError> {
    let mut numbers = [-1; 8];
    let mut count = 0;
    for number in keep.iter().flatten() {
        numbers[count] = *number;
        count += 1;
    }
    fd::close_all_except(&numbers[..count]).map_err(os("close inherited descriptors"))
}

/// The door to the program's memory, and the bells that calls come by.
type Doors = (Box<dyn Door>, Box<dyn Bells>);

/// The doors, and the mechanism.
///
/// By `device`, which is /dev/userfaultfd, or any other way.
pub(crate) fn open_doors(
    shared: &Shared,
    device: Option<i32>,
) -> Result<(Doors, Mechanism), StartError> {
    let inherited = device.or(shared.paths.uffd_device);
    let (program, mechanism) = open_uffd(shared, inherited)?;
    // Moves to the staging area go by the descriptor that it is registered with.
    let required = match mechanism {
        Mechanism::Move => Features::MOVE,
        Mechanism::WriteProtect => Features::NONE,
    };
    let own = Uffd::open(&Wanted {
        inherited,
        required,
        optional: Features::EXACT_ADDRESS,
    });
    let bells = own.map_err(StartError::Uffd)?;
    let door = Kernel::new(program, shared.turns.clone());
    let door = door.map_err(|(what, error)| StartError::Os(what, error))?;
    Ok(((Box::new(door), Box::new(bells)), mechanism))
}

/// In the home of a run the door is one to all processes.
fn to_all_seats(shared: &Shared, door: Box<dyn Door>) -> Result<Box<dyn Door>, StartError> {
    let Some(hall) = &shared.hall else {
        return Ok(door);
    };
    let home = HomeDoor::new(door, hall.clone());
    Ok(Box::new(home.map_err(os("wait for descriptors"))?))
}

fn open_uffd(shared: &Shared, inherited: Option<i32>) -> Result<(Uffd, Mechanism), StartError> {
    // Since Linux 4.11.
    let layout = Features::EVENT_UNMAP
        .plus(Features::EVENT_REMAP)
        .plus(Features::EVENT_REMOVE);
    let basics = Features::THREAD_ID
        .plus(Features::PAGEFAULT_FLAG_WP)
        .plus(Features::EXACT_ADDRESS);
    let of_shared = Features::MISSING_SHMEM.plus(Features::WP_HUGETLBFS_SHMEM);
    let extras = basics
        .plus(Features::POISON)
        .plus(Features::WP_UNPOPULATED)
        .plus(of_shared);
    let open = |required: Features, optional| {
        Uffd::open(&Wanted {
            inherited,
            required: required.plus(layout),
            optional,
        })
        .map_err(StartError::Uffd)
    };
    let protect =
        || open(Features::PAGEFAULT_FLAG_WP, extras).map(|u| (u, Mechanism::WriteProtect));
    match shared.config.mechanism {
        Wish::Move => Ok((open(Features::MOVE, extras)?, Mechanism::Move)),
        Wish::WriteProtect => protect(),
        Wish::Auto => open(Features::MOVE, extras)
            .map(|u| (u, Mechanism::Move))
            .or_else(|_| protect()),
    }
}

/// The device by the descriptor that the launcher handed down, where this user may not open it: in the pager's own table it is the
/// pager's, and stays open for children whatever the program closes.
fn handed_down(shared: &Shared) -> Option<fd::Fd> {
    // `MISC_MAJOR` of linux/major.h: what has the number by now may be the program's.
    const MISC: u32 = 10;
    let number = shared.paths.uffd_device?;
    let (major, _) = fd::character_device(number).ok()??;
    (shared.reach == Reach::Process && major == MISC).then(|| fd::Fd::adopt(number))
}

/// The address is random (ASLR), the time is the time: nobody prepares pages for this key.
fn hash_key(frames: &Frames) -> u64 {
    clock::now().0.rotate_left(32) ^ frames.span().0 as u64 ^ u64::from(process::pid())
}

pub(crate) fn fresh(shared: &Shared) -> Result<Box<Live>, StartError> {
    if shared.hall.is_none() {
        keep_only(&[shared.paths.uffd_device])?;
    }
    let device = fd::open(c"/dev/userfaultfd", libc::O_RDWR).ok();
    let device = device.or_else(|| handed_down(shared));
    // First: who left the session's reach left that of /proc too, as a rule, and this is what is said of it.
    let mut session = open_session(shared)?;
    if shared.reach == Reach::Process {
        proc::keep().map_err(os("open /proc"))?;
    }
    let ((door, bells), mechanism) = open_doors(shared, device.as_ref().map(fd::Fd::number))?;
    let door = to_all_seats(shared, door)?;
    let chosen = match mechanism {
        Mechanism::Move => Wish::Move,
        Mechanism::WriteProtect => Wish::WriteProtect,
    };
    shared
        .config
        .fitted_readahead()
        .map_err(StartError::Config)?;
    session.join().map_err(StartError::Session)?;
    session.set_mechanism(chosen);
    let cipher =
        encryption::cipher(shared.config.encrypt, &session).map_err(StartError::Encryption)?;
    let apart = Arc::new(SetApart::default());
    let store = open_store(shared, cipher.clone(), &apart)?;
    let total = session.limit_pages().max(FRAMES_MIN as u64) as usize;
    let extents = session.extents_cap().saturating_mul(EXTENT_SLOTS);
    let slots_max = extents.min(store.capacity_slots());
    let pager = new_pager(&shared.config, slots_max, total)?;
    let frames = total + shared.reach.frames_to_end();
    let frames = Frames::new(frames).map_err(os("reserve the staging area"))?;
    let seed = hash_key(&frames);
    let mut world = World::new(door, bells, frames, total, mechanism, seed);
    world.failing = Failing::new(shared.reach);
    world.notifiers = Notifier::of(&shared.config).into_iter().collect();
    let mut live = Box::new(Live::new(
        pager,
        world,
        store,
        session,
        shared.calls.clone(),
        total,
    ));
    live.pool = apart.kept();
    live.apart = apart;
    live.cipher = cipher;
    live.let_frees_be_lazy(shared.config.discard.build().is_some());
    live.device = device;
    (live.beside).watch(Session::from_fd(live.session.descriptor()).ok());
    live.keep_compressed(compressed(&shared.config, total, slots_max)?);
    live.lent = Lent::new(&shared.paths);
    live.open_list().map_err(os("open /proc/self/maps"))?;
    let protects = mechanism == Mechanism::WriteProtect || live.moves_no_plain_memory();
    shared.write_protects.store(protects, Ordering::Release);
    register_own(&live)?;
    start_releasing(&live)?;
    live.take_share();
    live.set_apart();
    live.apply_share();
    begin_with_what_is_there(shared, &mut live)?;
    Ok(live)
}

/// A whole process has memory already; who has regions is handed them.
fn begin_with_what_is_there(shared: &Shared, live: &mut Live) -> Result<(), StartError> {
    match shared.reach {
        Reach::Process => {
            live.adopt_everything(shared.advised)?;
            if shared.sharing {
                live.shared.some_is_managed();
                live.adopt_shared()?;
            }
        }
        Reach::Regions => live.placement.be_brief(),
    }
    Ok(())
}

/// The staging area is under the descriptor of the program's memory, the doorbells are under one of their own.
pub(crate) fn register_own(live: &Live) -> Result<(), StartError> {
    let (start, len) = live.world.frames.span();
    if live.world.mechanism.moves() {
        live.world
            .door
            .register(start, len, Mode::write_protect())
            .map_err(os("register the staging area"))?;
    }
    let (start, len) = live.calls.span();
    live.world
        .bells
        .register(start, len)
        .map_err(os("register the doorbells"))
}

/// Where no page leaves without a thread that drops originals, it starts before there is anything to page: should it not start, that is known then.
fn start_releasing(live: &Live) -> Result<(), StartError> {
    if live.world.mechanism.moves() {
        return Ok(());
    }
    (live.world.door.start_releasing()).map_err(os("start a thread"))
}

fn open_session(shared: &Shared) -> Result<Session, StartError> {
    match &shared.paths.session {
        Some(_) => shared.paths.open().map_err(StartError::Session),
        None => {
            let config = &shared.config;
            let made = Session::create(config.limit_pages(), config.swap_cap_bytes());
            made.map(|(session, _)| session)
                .map_err(StartError::Session)
        }
    }
}

fn open_swap(shared: &Shared) -> Result<SwapFile, StartError> {
    let cap = shared.config.swap_cap_bytes();
    match &shared.paths.swap {
        Some(path) => {
            let file =
                fd::open(path, libc::O_RDWR | libc::O_CLOEXEC).map_err(os("open the swap file"))?;
            SwapFile::from_fd(owned(file.release()), cap).map_err(StartError::Swap)
        }
        None => SwapFile::create_in(&shared.config.swap_dir, cap).map_err(StartError::Swap),
    }
}

#[expect(
    unsafe_code,
    reason = "hands a descriptor from one owner type to another"
)]
pub(crate) fn owned(number: i32) -> OwnedFd {
    // SAFETY: the callers pass descriptors that they just released or opened, and use no more.
    unsafe { OwnedFd::from_raw_fd(number) }
}

fn open_store(
    shared: &Shared,
    cipher: Option<Arc<Locked<Cipher>>>,
    apart: &Arc<SetApart>,
) -> Result<Box<dyn SwapStore + Send>, StartError> {
    let config = StoreConfig {
        depth: 64,
        request_pages_max: chunk_pages(&shared.config).max(window_pages(&shared.config)),
    };
    let own = shared.store.lock().ok().and_then(|mut open| open.take());
    let store = match own {
        Some(open) => open(config)?,
        None => open_swap_store(shared, config)?,
    };
    // Below the encryption: what fails is the disk.
    let store = match shared.config.faults {
        None => store,
        Some(faults) => crate::workers::with_faults(store, faults),
    };
    let store = Ordered::new(store, || clock::now().0);
    let huge = apart.clone();
    let provide = Box::new(move || huge.provide());
    let Some(cipher) = cipher else {
        return Ok(Box::new(Bounced::new(store, provide)));
    };
    // One transfer of the largest size: the contiguous memory beside it serves several.
    let area = apart.keep(config.request_pages_max);
    let area = area.map_err(os("reserve memory for what is encrypted"))?;
    let encryption = Encryption { cipher, area };
    Ok(Box::new(Bounced::encrypted(store, provide, encryption)))
}

fn open_swap_store(
    shared: &Shared,
    config: StoreConfig,
) -> Result<Box<dyn SwapStore + Send>, StartError> {
    let choice = match shared.config.store {
        StoreKind::Auto => Choice::Auto,
        StoreKind::Uring => Choice::Only(Backend::Uring),
        StoreKind::Pool => Choice::Only(Backend::Pool),
    };
    let workers = Box::new(Workers::default());
    outpage_store::open(open_swap(shared)?, choice, config, workers).map_err(StartError::Store)
}

fn chunk_pages(config: &Config) -> u32 {
    let entry = pageout::find(config.pageout).expect("checked when it was parsed");
    config.chunk_pages.unwrap_or(entry.buffer_pages)
}

fn readahead(config: &Config) -> readahead::Choice {
    config
        .fitted_readahead()
        .expect("checked when the pager was started")
}

fn window_pages(config: &Config) -> u32 {
    readahead(config).max_window()
}

/// Zero-filled pages around a first touch: 16 to 64 cost least (docs/performance.md, "Zero-filled and
/// rescued neighbours"); the pager halves it when they come back unused.
const ZERO_AROUND: u32 = 64;
/// Staged neighbours mapped again with a touched page: a map call costs 0.9 us for one page and 3 us for
/// 16, a minor fault 8 us. With 0, 2, 8 and 32 `workload hotset` of 128 MiB under 64 MiB took 1.19, 1.22, 1.10
/// and 1.12 s (medians of 5 alternating runs, spread 0.1 to 0.4 s) with 6.5, 5.4, 5.0 and 4.9 thousand minor faults.
const RESCUE_AROUND: u32 = 8;

/// What the pager is made of; reclaim, read-ahead, tier and discard with what is set of them.
fn header<'a>(
    config: &Config,
    [reclaim, readahead, tier, discard]: [&'a str; 4],
    slots_max: u32,
    measured: usize,
) -> Header<'a> {
    Header {
        reclaim,
        pageout: config.pageout,
        pageout_params: pageout::Params {
            buffer_pages: chunk_pages(config),
            window: match config.cluster_window {
                ClusterWindow::Kernel => pageout::ClusterWindow::Kernel,
                ClusterWindow::Paper => pageout::ClusterWindow::Paper,
            },
        },
        readahead,
        slots: config.slots,
        tier,
        discard,
        frames: FRAMES_MIN as u64,
        measured: u32::try_from(measured).unwrap_or(u32::MAX),
        slots_max,
        zero_around: if config.record_each { 1 } else { ZERO_AROUND },
        rescue_around: if config.record_each { 0 } else { RESCUE_AROUND },
    }
}

/// Of so many slots, to have up to `frames` frames.
pub(crate) fn new_pager(
    config: &Config,
    slots_max: u32,
    frames: usize,
) -> Result<Brain, StartError> {
    let reclaim = config.reclaim.to_string();
    let readahead = readahead(config).to_string();
    let tier = config.tier.to_string();
    let discard = config.discard.to_string();
    let policies = [&*reclaim, &readahead, &tier, &discard];
    let header = header(config, policies, slots_max, frames);
    let setup = header
        .setup()
        .expect("names and parameters were checked when they were parsed");
    let mut pager = Brain::new(Pager::new(setup));
    pager.measure_up_to(header.measured as usize);
    if let Some(prefix) = &config.record {
        let file = trace_file(prefix)?;
        pager.record(file, &header, config.record_each);
    }
    Ok(pager)
}

/// The pool of compressed pages, where the tier policy has one: it may take all of `frames` frames, for as many pages as the store has slots.
fn compressed(
    config: &Config,
    frames: usize,
    slots: u32,
) -> Result<Option<Box<Compressed>>, StartError> {
    let codec = config.tier.entry().codec;
    let Some(codec) = Codec::named(codec) else {
        return Ok(None);
    };
    let made = Compressed::new(frames, slots, codec)
        .map_err(os("reserve the pool of compressed pages"))?;
    Ok(Some(Box::new(made)))
}

/// The file for this process's trace: `prefix.PID`; for what it executes later, `prefix.PID.1` and so on.
fn trace_file(prefix: &Path) -> Result<TraceFile, StartError> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    for program in 0_u32.. {
        let name = match program {
            0 => process::pid().to_string(),
            later => format!("{}.{later}", process::pid()),
        };
        let path = format!("{}.{name}\0", prefix.display());
        let path = CStr::from_bytes_with_nul(path.as_bytes())
            .map_err(|_| StartError::Os("name the trace", Errno::EINVAL))?;
        match fd::open(path, flags) {
            Err(Errno::EEXIST) => {}
            result => {
                let file = result.map_err(os("create the trace"))?;
                return Ok(TraceFile { name, file });
            }
        }
    }
    Err(StartError::Os("name the trace", Errno::EEXIST))
}

/// The file for the trace of a forked child. Without one the child goes on, and a line says so.
pub(crate) fn child_trace(config: &Config) -> Option<TraceFile> {
    let made = config.record.as_deref().map(trace_file)?;
    made.inspect_err(|error| {
        let why = error.to_string();
        report::say(&["outpage: a forked child has no trace: ", &why]);
    })
    .ok()
}

/// The pager cannot go on: says so on the program's standard error and ends the process.
pub(crate) fn fatal(parts: &[&str]) -> ! {
    report::die(parts)
}
