//! The home of a run's shared memory: a process beside the program that pages what several processes have mapped (`--shared tree`).
//!
//! A pager inside one of them would take the others' bytes along when that one ends. So shared anonymous memory of a run is a memory file that the home makes
//! and has mapped as well, and an engine of the home's, a member of the session like any other, pages its own mapping by `world/mover/sharing.rs`. Where the
//! processes have it mapped is known in `seats`; `door` has that engine see one mapping in place of all of them.
//!
//! **How a process comes to it** (`lent.rs`). Its pager's thread asks for an object, maps it, registers it with a userfaultfd of its own that the home has a copy of, and moves
//! it to where the program's call had mapped memory of the kernel's. Should the home be killed, threads that touch what is out wait, and do not find zeroes,
//! until the pager has ended the process. And the home keeps its copy until the memory of a process is gone. A child that is forked finds what it inherited
//! in its list of mappings and registers it, before it returns from the fork; until then nobody of it touches that memory, and nothing is protected there.
//!
//! **How long an object lives.** As long as somebody has a page of it mapped, or may: a connection that was made for a child to be forked stands for what
//! its parent had mapped, and who has a descriptor of a file of the program's own may map it again (`files`).

mod door;
pub mod errand;
mod files;
mod seats;
pub(crate) mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use outpage_core::units::{Nanos, PAGE_BYTES};
use outpage_stats::liveness;
use outpage_sys::fd::{self, Fd};
use outpage_sys::ram_file::RamFile;
use outpage_sys::raw::Errno;
use outpage_sys::socket::{self, Arrived, Watch};
use outpage_sys::uffd::Remote;
use outpage_sys::{clock, libc, map, shared};

use crate::call::Call;
use crate::config::Config;
use crate::engine::{Engine, Shared};
use crate::scope::Failure;
use crate::session::SessionPaths;
use crate::start::StartError;
use door::enter;
pub(crate) use door::{Hall, HomeDoor};
use files::Own;
use seats::{Seats, Span};
use wire::Request;

/// What the kernel says of a mapping of an object: `/memfd:` and this.
pub(crate) const NAME: &std::ffi::CStr = c"outpage-shared";

/// It is looked for objects that nobody has any more this often, in ms, and two looks have to agree. A choice: what a process unmaps and goes on without
/// takes about twice that to be free.
const LOOK_MS: i32 = 100;
const LOOK: Nanos = Nanos(LOOK_MS as u64 * 1_000_000);
/// And whether a process that is ending has ended. A choice: an end takes less, as a rule.
const ENDS_MS: i32 = 5;

/// In the watch: the listener, what ends when nobody else keeps the session, what seats tell while no engine reads it, and above these connections.
const LISTENER: u64 = 0;
const LIFELINE: u64 = 1;
const SEATS: u64 = 2;
const FIRST: u64 = 3;

/// A memory file.
struct Object {
    file: Fd,
    /// Where the home has it mapped.
    start: usize,
    bytes: usize,
    /// It is a file of the program's own.
    own: Option<Own>,
}

impl Object {
    const fn end(&self) -> usize {
        self.start + self.bytes
    }
}

/// A process, or one that is about to be forked.
struct Line {
    socket: Fd,
    seat: Option<usize>,
    /// What its parent had mapped, until it has told of it.
    inherited: Vec<Span>,
    /// The object that it was given and has not mapped yet.
    given: Option<u64>,
    /// What is pinned for it: what it asked for, and where the home has that.
    pinned: Vec<Pinned>,
}

/// Addresses of a process, and those of the home's that they were at.
struct Pinned {
    asked: (u64, u64),
    parts: Vec<(usize, usize)>,
}

impl Line {
    const fn new(socket: Fd, inherited: Vec<Span>) -> Self {
        Self {
            socket,
            seat: None,
            inherited,
            given: None,
            pinned: Vec::new(),
        }
    }
}

/// A home.
struct Home {
    config: Config,
    paths: SessionPaths,
    hall: Hall,
    watch: Watch,
    /// From the first object to the last.
    engine: Option<Engine>,
    /// By the file's number.
    objects: BTreeMap<u64, Object>,
    /// Files that were objects and are not to be any more: they may be mapped unseen.
    given_up: BTreeSet<u64>,
    lines: BTreeMap<u64, Line>,
    /// Seats whose processes are ending.
    leaving: Vec<usize>,
    /// The name of the next line.
    next: u64,
    /// Nobody is listened to, for want of descriptors.
    deaf: bool,
    /// No engine reads what seats tell.
    reads_seats: bool,
    /// It may be that nobody has an object any more.
    look: bool,
    /// Objects that nobody had at the last look, and when that was.
    unused: (Vec<u64>, Nanos),
    namespace: u64,
}

/// Keeps the shared memory of a run until `lifeline` is at its end and no process has any. `listener` listens by the name that `paths` tell the others.
///
/// # Errors
/// What the kernel refused at the beginning.
pub fn keep(
    config: &Config,
    paths: &SessionPaths,
    listener: i32,
    lifeline: i32,
) -> Result<(), StartError> {
    let os = crate::start::os("wait for processes");
    let mut home = Home::new(config, paths).map_err(os)?;
    let os = crate::start::os("wait for descriptors");
    home.serve(listener, lifeline).map_err(os)
}

impl Home {
    fn new(config: &Config, paths: &SessionPaths) -> Result<Self, Errno> {
        // What is recorded or told is told of the program's own memory.
        let config = Config {
            record: None,
            notify: None,
            ..config.clone()
        };
        Ok(Self {
            config,
            paths: paths.clone(),
            hall: Arc::new(Mutex::new(Seats::new()?)),
            watch: Watch::new()?,
            engine: None,
            objects: BTreeMap::new(),
            given_up: BTreeSet::new(),
            lines: BTreeMap::new(),
            leaving: Vec::new(),
            next: FIRST,
            deaf: false,
            reads_seats: false,
            look: false,
            unused: (Vec::new(), Nanos(0)),
            namespace: liveness::pid_namespace(),
        })
    }

    fn serve(&mut self, listener: i32, lifeline: i32) -> Result<(), Errno> {
        self.watch.add(listener, LISTENER)?;
        self.watch.add(lifeline, LIFELINE)?;
        let mut ready = Vec::new();
        let mut alive = true;
        while alive || !self.lines.is_empty() || !self.leaving.is_empty() {
            let patience = match self.leaving.is_empty() {
                false => ENDS_MS,
                true if self.deaf || !self.objects.is_empty() => LOOK_MS,
                true => -1,
            };
            ready.clear();
            let was_deaf = self.deaf;
            self.read_seats(self.engine.is_none())?;
            self.watch.wait(patience, |name, _| ready.push(name))?;
            for &name in &ready {
                match name {
                    LISTENER => self.accept(listener),
                    LIFELINE => {
                        alive = false;
                        self.watch.remove(lifeline)?;
                    }
                    SEATS => enter(&self.hall).pass_over(),
                    line => self.hear(line),
                }
            }
            self.let_objects_go();
            if was_deaf {
                self.deaf = false;
                self.watch.add(listener, LISTENER)?;
            }
        }
        self.give_up_named();
        Ok(())
    }

    /// Whether the loop reads what seats tell. Somebody must: who moves a mapping whose file was just given up waits until that is read.
    fn read_seats(&mut self, reads: bool) -> Result<(), Errno> {
        if reads != self.reads_seats {
            let seats = enter(&self.hall).fd();
            match reads {
                true => self.watch.add(seats, SEATS)?,
                false => self.watch.remove(seats)?,
            }
            self.reads_seats = reads;
        }
        Ok(())
    }

    /// Only the run's own user, or root, is served.
    fn accept(&mut self, listener: i32) {
        loop {
            let socket = match socket::accept(listener) {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(_) => {
                    // No descriptor is left, as a rule: who waits is listened to a moment later.
                    self.deaf = self.watch.remove(listener).is_ok();
                    return;
                }
            };
            let own = socket::user();
            let peer = socket::peer(socket.number());
            if peer.is_ok_and(|peer| peer.uid == own || peer.uid == 0) {
                let _ = self.add(Line::new(socket, Vec::new()));
            }
        }
    }

    fn add(&mut self, line: Line) -> Result<(), Errno> {
        let name = self.next;
        self.watch.add(line.socket.number(), name)?;
        self.next += 1;
        self.lines.insert(name, line);
        Ok(())
    }

    /// Serves what came by a line.
    fn hear(&mut self, name: u64) {
        let Some(mut line) = self.lines.remove(&name) else {
            return;
        };
        let mut bytes = [0; wire::REQUEST_BYTES];
        let arrived = match socket::receive(line.socket.number(), &mut bytes) {
            Err(Errno::EAGAIN | Errno::EINTR) => {
                self.lines.insert(name, line);
                return;
            }
            Ok(arrived) if arrived.bytes == bytes.len() && !arrived.cut_short => arrived,
            _ => return self.hang_up(line),
        };
        let Some(request) = Request::decode(&bytes) else {
            return self.hang_up(line);
        };
        let result = self.carry_out(&mut line, request, arrived);
        let answer = match &result {
            Ok((value, file)) => Ok((*value, file.as_ref().map(Fd::number))),
            Err(error) => Err(*error),
        };
        self.look |= request == Request::Settled;
        if wire::answer(line.socket.number(), answer) {
            self.lines.insert(name, line);
        } else {
            self.hang_up(line);
        }
    }

    /// The process is gone.
    fn hang_up(&mut self, line: Line) {
        let _ = self.watch.remove(line.socket.number());
        if let Some(seat) = line.seat {
            enter(&self.hall).hang_up(seat);
            self.leaving.push(seat);
        }
        if let Some(engine) = &self.engine {
            line.pinned
                .iter()
                .for_each(|pinned| unpin(engine, &pinned.parts));
        }
        self.look = true;
    }

    fn carry_out(
        &mut self,
        line: &mut Line,
        request: Request,
        arrived: Arrived,
    ) -> Result<(u64, Option<Fd>), Errno> {
        match request {
            Request::Sit { namespace } => {
                let [uffd, ..] = arrived.descriptors;
                let uffd = uffd.and_then(Remote::adopt).ok_or(Errno::EINVAL)?;
                let same = namespace == self.namespace;
                let socket = line.socket.number();
                line.seat = Some(enter(&self.hall).sit(uffd, socket, same)?);
            }
            Request::Create { bytes } => {
                let (id, file) = self.create(bytes)?;
                line.given = Some(id);
                return Ok((id, Some(file)));
            }
            Request::Mapped {
                start,
                end,
                id,
                offset,
            } => {
                let Some(span) = self.span([start, end, offset], id)? else {
                    return Ok((0, None));
                };
                self.mapped(line, span, id)?;
                return Ok(((span.end - span.start) as u64, None));
            }
            Request::Settled => {
                line.inherited.clear();
                line.given = None;
            }
            Request::Branch => {
                let far = self.branch(line)?;
                return Ok((0, Some(far)));
            }
            Request::Empty { start, end } => {
                return Ok((self.empty_parts(line, start, end)?, None));
            }
            Request::Alias => {
                let seat = line.seat.ok_or(Errno::EINVAL)?;
                enter(&self.hall).expect_alias(seat);
            }
            Request::GiveUpKnown { id } => return Ok((self.give_up(id)?, None)),
            Request::Adopt | Request::GiveUp | Request::Hole { .. } => {
                let [file, ..] = arrived.descriptors;
                return Ok((self.errand(request, file)?, None));
            }
            Request::Pin { start, end, on } if on => self.pin(line, (start, end))?,
            Request::Pin { start, end, .. } => self.unpin(line, (start, end)),
            Request::Knows {
                start,
                end,
                id,
                offset,
            } => {
                let seat = line.seat.ok_or(Errno::EINVAL)?;
                let span = self.span([start, end, offset], id)?;
                let knows = span.is_none_or(|span| enter(&self.hall).knows(seat, span));
                return Ok((knows.into(), None));
            }
        }
        Ok((0, None))
    }

    /// A process has mapped `span`, of the object of this number.
    fn mapped(&self, line: &mut Line, span: Span, id: u64) -> Result<(), Errno> {
        let seat = line.seat.ok_or(Errno::EINVAL)?;
        enter(&self.hall).map(seat, span);
        // Pages that are being taken from all who were known may be written there: the process goes on when that is over.
        if let Some(engine) = &self.engine {
            engine.call(Call::Fence);
        }
        line.given = line.given.filter(|&given| given != id);
        Ok(())
    }

    /// A line for a child that inherits what the process has: the child's end.
    fn branch(&mut self, line: &Line) -> Result<Fd, Errno> {
        let [near, far] = socket::pair()?;
        socket::set_nonblocking(near.number())?;
        let seat = line.seat.ok_or(Errno::EINVAL)?;
        let mut inherited = enter(&self.hall).spans(seat).to_vec();
        inherited.extend(&line.inherited);
        self.add(Line::new(near, inherited))?;
        Ok(far)
    }

    /// The home's addresses of what a process has mapped at `start..end`.
    fn parts(&self, line: &Line, start: u64, end: u64) -> Vec<(usize, usize)> {
        let Some(seat) = line.seat else {
            return Vec::new();
        };
        let parts = enter(&self.hall).parts(seat, start as usize, end as usize);
        let at = |part: &Span| (part.home, part.home + (part.end - part.start));
        parts.iter().map(at).collect()
    }

    /// An object of `bytes` bytes, a mapping of which the engine pages.
    fn create(&mut self, bytes: u64) -> Result<(u64, Fd), Errno> {
        let len = usize::try_from(bytes).map_err(|_| Errno::EINVAL)?;
        if len == 0 || !len.is_multiple_of(PAGE_BYTES) {
            return Err(Errno::EINVAL);
        }
        self.open_engine()?;
        let file = shared::create(NAME, bytes)?;
        let found = RamFile::behind(file.number()).ok_or(Errno::EINVAL)?;
        let copy = fd::copy(file.number())?;
        let object = Object {
            start: self.map_object(&file, len)?,
            file,
            bytes: len,
            own: None,
        };
        self.objects.insert(found.id, object);
        Ok((found.id, copy))
    }

    /// Maps a file of `len` bytes in which nothing is, and has the engine page that: where it is.
    fn map_object(&self, file: &Fd, len: usize) -> Result<usize, Errno> {
        let engine = self.engine.as_ref().ok_or(Errno::EAGAIN)?;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let start = map::mmap(0, len, prot, libc::MAP_SHARED, file.number(), 0)?;
        let taken = engine.call(Call::TakeShared {
            addr: start,
            len,
            prot,
            fresh: true,
        });
        if taken < 0 {
            let _ = map::munmap(start, len);
            return Err(Errno::new(-taken as i32));
        }
        Ok(start)
    }

    fn open_engine(&mut self) -> Result<(), Errno> {
        if self.engine.is_none() {
            self.read_seats(false)?;
            let (config, paths) = (self.config.clone(), self.paths.clone());
            let engine = Engine::at_home(config, paths, self.hall.clone());
            self.engine = Some(engine.map_err(|_| Errno::EOPNOTSUPP)?);
        }
        Ok(())
    }

    /// A mapping that a process told of, if it can be; none where all of it lies beyond the end of its object.
    fn span(&self, [start, end, offset]: [u64; 3], id: u64) -> Result<Option<Span>, Errno> {
        let object = self.objects.get(&id).ok_or(Errno::ENOENT)?;
        let bytes = end.checked_sub(start).ok_or(Errno::EINVAL)?;
        // What is mapped beyond the end is a signal to whoever touches it.
        let there = (object.bytes as u64).saturating_sub(offset).min(bytes);
        let aligned = [start, end, offset];
        let aligned = aligned
            .iter()
            .all(|at| at.is_multiple_of(PAGE_BYTES as u64));
        if !aligned {
            return Err(Errno::EINVAL);
        }
        let span = Span {
            start: start as usize,
            end: (start + there) as usize,
            home: object.start + offset as usize,
        };
        Ok((there > 0).then_some(span))
    }

    /// Has what a process has mapped at `start..end` be zero: how many bytes of it.
    fn empty_parts(&self, line: &Line, start: u64, end: u64) -> Result<u64, Errno> {
        let mut bytes = 0;
        for (start, end) in self.parts(line, start, end) {
            self.empty(start, end)?;
            bytes += end - start;
        }
        Ok(bytes as u64)
    }

    /// Has the pages at `start..end` of the home's be zero.
    fn empty(&self, start: usize, end: usize) -> Result<(), Errno> {
        let engine = self.engine.as_ref().ok_or(Errno::EINVAL)?;
        let done = engine.call(Call::Madvise {
            addr: start,
            len: end - start,
            advice: libc::MADV_REMOVE,
        });
        if done < 0 {
            return Err(Errno::new(-done as i32));
        }
        Ok(())
    }

    fn pin(&self, line: &mut Line, asked: (u64, u64)) -> Result<(), Errno> {
        let engine = self.engine.as_ref().ok_or(Errno::EINVAL)?;
        let parts = self.parts(line, asked.0, asked.1);
        for (i, &(start, end)) in parts.iter().enumerate() {
            let (addr, len) = (start, end - start);
            let pinned = engine.call(Call::Pin { addr, len });
            if pinned < 0 {
                unpin(engine, &parts[..i]);
                return Err(Errno::new(-pinned as i32));
            }
        }
        line.pinned.push(Pinned { asked, parts });
        Ok(())
    }

    /// What was pinned, wherever the process has it by now.
    fn unpin(&mut self, line: &mut Line, asked: (u64, u64)) {
        let at = line.pinned.iter().position(|pinned| pinned.asked == asked);
        if let (Some(at), Some(engine)) = (at, &self.engine) {
            unpin(engine, &line.pinned.swap_remove(at).parts);
            self.look = true;
        }
    }

    /// Unmaps what no process has or may have, and ends the engine with the last of it.
    fn let_objects_go(&mut self) {
        let mut seats = enter(&self.hall);
        self.leaving.retain(|&seat| !seats.has_left(seat));
        self.look |= seats.took_leave();
        drop(seats);
        if self.objects.is_empty() {
            // Also where the first object could not be made: a member that has nothing would keep the session for ever.
            return self.close_engine();
        }
        if !self.look && self.unused.0.is_empty() {
            return;
        }
        // A mapping that is said to be unmapped may be there still (`mmap_region` in mm/vma.c, Linux 6.12), and its process is about to tell.
        let now = clock::now();
        let nobody = self.lines.is_empty() && self.leaving.is_empty();
        if !nobody && now.0 - self.unused.1.0 < LOOK.0 {
            return;
        }
        let objects = self.objects.iter();
        let unmapped = objects.filter(|&(&id, object)| !self.is_used(id, object));
        let unmapped: Vec<u64> = unmapped.map(|(&id, _)| id).collect();
        let gone = unmapped.iter().copied();
        let unused = gone.filter(|&id| !self.may_be_mapped(id, nobody));
        let unused: Vec<u64> = unused.collect();
        self.look = unused.len() < unmapped.len();
        let (before, _) = std::mem::replace(&mut self.unused, (unused, now));
        for &id in &self.unused.0 {
            if !nobody && !before.contains(&id) {
                continue;
            }
            if let (Some(object), Some(engine)) = (self.objects.remove(&id), &self.engine) {
                enter(&self.hall).limit(object.start, object.end(), false);
                engine.munmap(object.start, object.bytes);
                drop(object.file);
            }
        }
        let objects = &self.objects;
        self.unused.0.retain(|id| objects.contains_key(id));
        if self.objects.is_empty() {
            self.close_engine();
        }
    }

    fn close_engine(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.call(Call::Close);
            engine.await_end();
        }
    }

    fn is_used(&self, id: u64, object: &Object) -> bool {
        let within = |at: usize| (object.start..object.end()).contains(&at);
        let has = |line: &Line| {
            let mut pinned = line.pinned.iter().flat_map(|pinned| &pinned.parts);
            line.given == Some(id)
                || line.inherited.iter().any(|span| within(span.home))
                || pinned.any(|part| within(part.0))
        };
        enter(&self.hall).any_in(object.start, object.end()) || self.lines.values().any(has)
    }
}

fn unpin(engine: &Engine, parts: &[(usize, usize)]) {
    for &(start, end) in parts {
        let (addr, len) = (start, end - start);
        engine.call(Call::Unpin { addr, len });
    }
}

/// The engine of a home cannot go on, and nobody who has shared memory can.
pub(crate) fn end(shared: &Shared, failure: &Failure) -> ! {
    if let Some(hall) = &shared.hall {
        enter(hall).tell(&failure.whole());
    }
    std::process::exit(1)
}
