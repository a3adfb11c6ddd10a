//! The loop: one thread that serves the faults and requests of all clients.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;

use outpage_core::units::Nanos;
use outpage_engine::Workers;
use outpage_engine::config::StoreKind;
use outpage_engine::hash::Hasher;
use outpage_engine::placement::{Yielded, await_by_yielding};
use outpage_store::{
    Backend, BackendError, Choice, Config as StoreConfig, Ordered, SwapFile, SwapFileError,
    SwapStore,
};
use outpage_sys::fd::Fd;
use outpage_sys::raw::Errno;
use outpage_sys::socket::{self, Watch};
use outpage_sys::{clock, process};
use outpage_wire::MINIMUM_PAGES;

use crate::body::Body;
use crate::client::{Client, Context, End};
use crate::common::{Common, Ended};
use crate::complaints::Complaints;
use crate::memory::Fatal;
use crate::options::Options;
use crate::policies::Policies;
use crate::shares::{Claim, divide};

/// Frames are divided, and what was given up is looked for, this often.
const TICK: Nanos = Nanos(100_000_000);
/// Files are held against what their clients were given every so many ticks: a call for each object.
const AUDIT_TICKS: u64 = 10;
/// Frames that a client's files may have beyond what it was given, for pages that the kernel has not let go of yet: a transfer of the largest size.
const UNTOLD_MAX: u64 = 1024;
/// A connection that says nothing may lose its place after this time. A choice.
const GREETING_MAX: Nanos = Nanos(5_000_000_000);

/// Why there is no server.
#[derive(Debug)]
pub enum ServeError {
    /// A policy that cannot be had.
    Policy(String),
    /// Another server listens at this path.
    Taken(PathBuf),
    /// Something that is no socket is at this path.
    NoSocket(PathBuf),
    /// The socket at this path.
    Socket(PathBuf, Errno),
    /// The swap file.
    Swap(SwapFileError),
    /// Its I/O.
    Store(BackendError),
    /// The limit is below this, in bytes.
    Limit(u64),
    /// Something else that the kernel refused.
    Os(&'static str, Errno),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(why) => f.write_str(why),
            Self::Taken(path) => write!(
                f,
                "another server listens at {}: stop it, or name another path with --socket",
                path.display()
            ),
            Self::NoSocket(path) => write!(
                f,
                "{} is there, and is no socket: name another path with --socket",
                path.display()
            ),
            Self::Socket(path, error) => write!(
                f,
                "cannot listen at {}: {error}; name another path with --socket",
                path.display()
            ),
            Self::Swap(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Limit(least) => write!(f, "--memory must be at least {least} bytes"),
            Self::Os(what, error) => write!(f, "cannot {what}: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

/// What a descriptor of the watch is, in the upper part of its name; the lower parts are the client's place and the number of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Listener,
    Store,
    Socket,
    Faults,
    Stop,
}

fn name(kind: Kind, place: usize, connection: u32) -> u64 {
    (kind as u64) << 56 | (u64::from(connection) & 0xff_ffff) << 32 | place as u64
}

/// A server.
pub struct Server {
    options: Options,
    policies: Policies,
    common: Common,
    listener: Fd,
    watch: Watch,
    clients: Vec<Option<Client>>,
    /// Connections so far.
    connections: u32,
    /// Frames of the limit that no client may use.
    spare: u64,
    ticks: u64,
    next_tick: Nanos,
    ready: Vec<(u64, bool)>,
    complaints: Complaints,
    stopped: bool,
}

impl Server {
    /// A server that takes connections from `listener`, which does not block.
    ///
    /// # Errors
    /// Why there is none.
    pub fn new(options: Options, listener: Fd) -> Result<Self, ServeError> {
        if options.limit_pages < MINIMUM_PAGES {
            return Err(ServeError::Limit(MINIMUM_PAGES * 4096));
        }
        let file =
            SwapFile::create_in(&options.swap_dir, options.swap_cap).map_err(ServeError::Swap)?;
        let policies =
            Policies::new(&options, file.capacity_slots()).map_err(ServeError::Policy)?;
        let config = StoreConfig {
            depth: 64,
            request_pages_max: policies.transfer_pages(),
        };
        let choice = match options.store {
            StoreKind::Auto => Choice::Auto,
            StoreKind::Uring => Choice::Only(Backend::Uring),
            StoreKind::Pool => Choice::Only(Backend::Pool),
        };
        let store = outpage_store::open(file, choice, config, Box::new(Workers::default()));
        let store = store.map_err(ServeError::Store)?;
        let store: Box<dyn SwapStore + Send> = Box::new(Ordered::new(store, || clock::now().0));
        let os = |error| ServeError::Os("wait for descriptors", error);
        let watch = Watch::new().map_err(os)?;
        watch
            .add(listener.number(), name(Kind::Listener, 0, 0))
            .map_err(os)?;
        if let Some(fd) = store.wake_fd() {
            watch.add(fd, name(Kind::Store, 0, 0)).map_err(os)?;
        }
        // Addresses are random (ASLR), the time is the time: nobody prepares pages for this key.
        let seed = clock::now().0.rotate_left(32)
            ^ (&raw const options).addr() as u64
            ^ u64::from(process::pid());
        Ok(Self {
            spare: options.limit_pages,
            policies,
            common: Common::new(store, Hasher::new(seed)),
            listener,
            watch,
            clients: Vec::new(),
            connections: 0,
            ticks: 0,
            next_tick: Nanos(0),
            ready: Vec::new(),
            complaints: Complaints::new(),
            stopped: false,
            options,
        })
    }

    /// Has [`Self::run`] end when `fd` can be read.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn stop_by(&mut self, fd: i32) -> Result<(), ServeError> {
        let added = self.watch.add(fd, name(Kind::Stop, 0, 0));
        added.map_err(|error| ServeError::Os("wait for what stops it", error))
    }

    /// Serves until it is stopped. Clients lose their objects when this value goes.
    ///
    /// # Errors
    /// When descriptors cannot be waited for any more.
    pub fn run(&mut self) -> Result<(), ServeError> {
        while !self.stopped {
            self.round()?;
        }
        Ok(())
    }

    /// Serves what there is, waiting for it for at most a tick.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn round(&mut self) -> Result<(), ServeError> {
        self.complete();
        let left = if self.await_read() {
            0
        } else {
            self.next_tick.0.saturating_sub(clock::now().0)
        };
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        let timeout = left.div_ceil(1_000_000) as i32;
        let waited = self
            .watch
            .wait(timeout, |name, gone| ready.push((name, gone)));
        waited.map_err(|error| ServeError::Os("wait for descriptors", error))?;
        for &(name, gone) in &ready {
            self.dispatch(name, gone);
        }
        self.ready = ready;
        self.common.placement.let_go();
        if clock::now() >= self.next_tick {
            self.next_tick = Nanos(clock::now().0 + TICK.0);
            self.tick();
        }
        Ok(())
    }

    /// Awaits a read that somebody waits for by yielding. Whether there is something to look at at once.
    fn await_read(&mut self) -> bool {
        let bodies = self.clients.iter().flatten().flat_map(|c| &c.body);
        let waiting = bodies.map(|body| body.waiting()).sum();
        let awaits = waiting > 0 && self.common.is_reading();
        if !awaits || !self.common.placement.may_yield(waiting) {
            return false;
        }
        let end = await_by_yielding(|| self.complete() > 0);
        self.common.placement.yielded(end);
        end != Yielded::Late
    }

    /// Clients at this moment, and extents of the store that somebody has.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        (
            self.clients.iter().flatten().count(),
            self.common.extents.taken(),
        )
    }

    fn dispatch(&mut self, event: u64, gone: bool) {
        let place = event as u32 as usize;
        let is = |kind: Kind| event >> 56 == kind as u64;
        if is(Kind::Listener) {
            return self.accept();
        }
        if is(Kind::Store) {
            self.complete();
            return;
        }
        if is(Kind::Stop) {
            self.stopped = true;
            return;
        }
        let connection = self.clients.get(place).and_then(Option::as_ref);
        let known = connection.is_some_and(|client| {
            !client.leaving && client.connection() == (event >> 32) as u32 & 0xff_ffff
        });
        if !known {
            return;
        }
        if is(Kind::Faults) {
            if gone {
                return self.end(place, "its userfaultfd cannot be used");
            }
            self.grant(place);
            if let Some(body) = self.body(place) {
                body.0.serve_faults(body.1);
            }
        } else {
            self.serve(place);
        }
        self.look_after(place);
    }

    /// The body of a client, and what it works with.
    fn body(&mut self, place: usize) -> Option<(&mut Body, &mut Common)> {
        let client = self.clients[place]
            .as_mut()
            .filter(|client| !client.leaving)?;
        Some((client.body.as_mut()?, &mut self.common))
    }

    /// A place for another client. Where all are taken, one that has said nothing for long loses its own: not before, for on a machine that has much to do an honest
    /// client may come to no more for seconds.
    fn place(&mut self) -> Option<usize> {
        let free = self.clients.iter().position(Option::is_none);
        let free = free.unwrap_or(self.clients.len());
        if free < self.options.clients_max {
            return Some(free);
        }
        let now = clock::now();
        let silent = self.clients.iter().position(|client| {
            client.as_ref().is_some_and(|client| {
                let waited = now.0 - client.since.0;
                client.body.is_none() && !client.leaving && waited > GREETING_MAX.0
            })
        });
        let place = silent?;
        self.end(place, "it connected and said nothing");
        self.clients[place].is_none().then_some(place)
    }

    fn accept(&mut self) {
        while let Ok(Some(socket)) = socket::accept(self.listener.number()) {
            let own = socket::user();
            let peer = socket::peer(socket.number());
            let allowed = peer.is_ok_and(|peer| peer.uid == own || peer.uid == 0);
            let Some(place) = allowed.then(|| self.place()).flatten() else {
                continue;
            };
            self.connections += 1;
            let name = name(Kind::Socket, place, self.connections);
            if self.watch.add(socket.number(), name).is_err() {
                continue;
            }
            if place == self.clients.len() {
                self.clients.push(None);
            }
            self.clients[place] = Some(Client::new(socket, name, clock::now()));
        }
    }

    /// Serves the requests of a client.
    fn serve(&mut self, place: usize) {
        let claimed: u64 = self
            .clients
            .iter()
            .flatten()
            .map(|client| client.minimum)
            .sum();
        let Some(client) = self.clients[place].as_mut() else {
            return;
        };
        let mut context = Context {
            common: &mut self.common,
            options: &self.options,
            watch: &self.watch,
            unclaimed: self.options.limit_pages.saturating_sub(claimed),
        };
        let joined = client.body.is_none();
        let policies = &self.policies;
        let pid = socket::peer(client.socket()).map_or(0, |peer| peer.pid as u32);
        let mut join = |uffd| Box::new(Body::new(place, pid, policies.pager(), uffd));
        if let Err(end) = client.serve(&mut context, &mut join) {
            return self.ended_connection(place, end);
        }
        if joined && let Some(body) = &client.body {
            let (fd, name) = (
                body.memory.uffd(),
                name(Kind::Faults, place, client.connection()),
            );
            if self.watch.add(fd, name).is_err() {
                return self.end(place, "its userfaultfd cannot be waited for");
            }
            self.share();
            self.settle(place);
        }
    }

    fn ended_connection(&mut self, place: usize, end: End) {
        match end {
            End::Closed | End::Refused => self.leave(place),
            End::Malformed(malformed) => {
                let text = malformed.to_string();
                self.end(place, &text);
            }
        }
    }

    /// What is to be done after a client was served.
    fn look_after(&mut self, place: usize) {
        self.settle(place);
        let fatal = self.body(place).and_then(|(body, _)| body.memory.fatal());
        match fatal {
            None => {}
            Some(Fatal::Gone) => self.leave(place),
            Some(Fatal::Violation(why)) => self.end(place, why),
            Some(Fatal::StoreFull) => self.end(place, "the swap file is full: raise --swap-cap"),
            Some(Fatal::NoVictims) => self.end(place, "none of its pages can leave"),
        }
    }

    /// Answers what a client is owed, if it can be now.
    fn settle(&mut self, place: usize) {
        let overdrawn = self.overdrawn();
        let Some(client) = self.clients[place]
            .as_mut()
            .filter(|client| !client.leaving)
        else {
            return;
        };
        let mut context = Context {
            common: &mut self.common,
            options: &self.options,
            watch: &self.watch,
            unclaimed: 0,
        };
        if let Err(end) = client.settle(&mut context, !overdrawn) {
            self.ended_connection(place, end);
        }
    }

    /// Ends a connection and says why.
    fn end(&mut self, place: usize, why: &str) {
        if let Some(client) = &self.clients[place] {
            let peer = socket::peer(client.socket()).map_or(0, |peer| peer.pid);
            if let Some(line) = self.complaints.line(clock::now(), peer, why) {
                // That nobody reads it is no reason to end.
                let _ = writeln!(io::stderr(), "outpage serve: {line}");
            }
        }
        self.leave(place);
    }

    /// A client goes. What it has is free at once, but for pages of transfers under way.
    fn leave(&mut self, place: usize) {
        let Some(client) = self.clients[place]
            .as_mut()
            .filter(|client| !client.leaving)
        else {
            return;
        };
        client.leaving = true;
        client.minimum = 0;
        let _ = self.watch.remove(client.socket());
        // Before its pages go: its library sees the end, and has touches signal.
        socket::shut_down(client.socket());
        if let Some(body) = client.body.as_mut() {
            let _ = self.watch.remove(body.memory.uffd());
            body.seize();
        }
        self.bury(place);
    }

    /// Forgets a client that has left, once nothing of its is under way.
    fn bury(&mut self, place: usize) {
        if self.common.under_way(place) > 0 {
            return;
        }
        let Some(client) = self.clients[place].take() else {
            return;
        };
        if let Some(mut body) = client.body {
            let extents = body.release_extents();
            extents
                .iter()
                .for_each(|&extent| self.common.store.forget(extent));
            self.common.extents.give_back(&extents);
        }
        self.share();
    }

    /// Takes what the store has ended. How much that was.
    fn complete(&mut self) -> usize {
        let mut count = 0;
        while let Some(ended) = self.common.next_ended() {
            count += 1;
            let place = ended.transfer.client;
            match self.body(place) {
                Some((body, common)) => body.ended(common, ended),
                None => {
                    drop::<Ended>(ended);
                    self.bury(place);
                    continue;
                }
            }
            self.look_after(place);
        }
        count
    }

    fn tick(&mut self) {
        self.ticks += 1;
        let audit = self.ticks.is_multiple_of(AUDIT_TICKS);
        for place in 0..self.clients.len() {
            let here = self.clients[place].as_ref();
            if here.is_none_or(|client| client.leaving) {
                continue;
            }
            let mut untold = 0;
            if let Some((body, common)) = self.body(place) {
                body.tick(common);
                untold = if audit { body.untold_frames() } else { 0 };
            }
            if untold > UNTOLD_MAX {
                self.end(place, "it has frames that it was not given");
                continue;
            }
            self.look_after(place);
        }
        self.share();
    }

    /// Frames that each client has or may have, whichever is more.
    fn holds(client: &Client) -> u64 {
        client.body.as_ref().map_or(0, |body| {
            let (used, may) = body.frames();
            if client.leaving { used } else { used.max(may) }
        })
    }

    /// Whether clients have or may have more frames than there are, for one that has just come.
    fn overdrawn(&self) -> bool {
        let held: u64 = self.clients.iter().flatten().map(Self::holds).sum();
        held > self.options.limit_pages
    }

    /// Divides the limit anew. Frames that somebody is to give up are given to others once they are free.
    fn share(&mut self) {
        let mut places = Vec::new();
        let mut claims = Vec::new();
        let mut leaving = 0;
        for (place, client) in self.clients.iter_mut().enumerate() {
            let Some(client) = client else { continue };
            if client.leaving {
                leaving += Self::holds(client);
                continue;
            }
            let Some(body) = &client.body else { continue };
            let (used, may) = body.frames();
            let margin = body.margin();
            let faulted = body.faults() != client.faults_before;
            client.faults_before = body.faults();
            // Its pages, and those of transfers.
            let most = body.memory.size().1 + margin;
            let wanted = if faulted && used + margin > may {
                most
            } else {
                used + margin
            };
            claims.push(Claim {
                minimum: client.minimum,
                weight: client.weight,
                wanted: wanted.min(most),
            });
            places.push(place);
        }
        let claimed: u64 = claims.iter().map(|claim| claim.minimum).sum();
        let limit = self
            .options
            .limit_pages
            .saturating_sub(leaving)
            .max(claimed);
        let parts = divide(limit, &claims);
        for (&place, &part) in places.iter().zip(&parts) {
            if let Some((body, common)) = self.body(place)
                && part < body.frames().1
            {
                body.set_limit(common, part);
            }
        }
        let held: u64 = self.clients.iter().flatten().map(Self::holds).sum();
        self.spare = self.options.limit_pages.saturating_sub(held);
        for (&place, &part) in places.iter().zip(&parts) {
            let spare = self.spare;
            let Some((body, common)) = self.body(place) else {
                continue;
            };
            let (used, may) = body.frames();
            let more = part.saturating_sub(used.max(may)).min(spare);
            if more > 0 {
                body.set_limit(common, used.max(may) + more);
                self.spare -= more;
            }
        }
    }

    /// A client that faults and has few frames left gets some of those that nobody may use.
    fn grant(&mut self, place: usize) {
        let spare = self.spare;
        let Some((body, common)) = self.body(place) else {
            return;
        };
        let (used, may) = body.frames();
        let most = body.memory.size().1 + body.margin();
        if spare == 0 || used + body.margin() <= may || may >= most {
            return;
        }
        // A quarter more at a time: as many calls as the memory has doublings, about.
        let more = spare.min((may / 4).max(MINIMUM_PAGES));
        body.set_limit(common, used.max(may) + more);
        self.spare -= more;
    }
}
