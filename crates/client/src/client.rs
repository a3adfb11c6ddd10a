//! The connection and its objects.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use outpage_sys::fd::Fd;
use outpage_sys::map;
use outpage_sys::raw::Errno;
use outpage_sys::shared::Whole;
use outpage_sys::socket;
use outpage_sys::uffd::{REMOTE_FEATURES, Uffd, Wanted};
use outpage_wire::{
    Attributes, Hello, Lost, MESSAGE_BYTES_MAX, Malformed, PAGE_BYTES, Pages, Reply, Request,
    Stats, TAKE_BACK_PAGES_MAX, WEIGHT_DEFAULT,
};

use crate::error::{Error, os};
use crate::watcher::{Watched, Watcher};

/// What part of the server's limit a client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// What it is to have whatever others do, in bytes; at least 1 MiB is taken.
    pub minimum_bytes: u64,
    /// Its part of what is left, beside those of others that want more: 1 to 10000.
    pub weight: u32,
}

impl Default for Share {
    /// The least, and a weight of 100.
    fn default() -> Self {
        Self {
            minimum_bytes: 0,
            weight: WEIGHT_DEFAULT,
        }
    }
}

/// A connection to a server. It lives as long as one of its copies or of its objects does.
#[derive(Clone)]
pub struct Client(Arc<Connection>);

struct Connection {
    /// Dropped first: nothing waits for faults any more when the rest goes.
    _watcher: Watcher,
    watched: Arc<Watched>,
    uffd: Mutex<Uffd>,
    exchange: Mutex<Exchange>,
    pages_max: u64,
}

/// One request and its answer at a time.
struct Exchange {
    tag: u32,
    bytes: Vec<u8>,
}

type Files = [Option<Fd>; socket::DESCRIPTORS_MAX];

impl Exchange {
    fn ask(
        &mut self,
        socket: i32,
        request: Request,
        along: &[i32],
    ) -> Result<(Reply, Files), Error> {
        self.tag = self.tag.wrapping_add(1);
        request.encode(self.tag, &mut self.bytes);
        // A refusal may wait though the server has closed the connection.
        let sent = socket::send(socket, &self.bytes, along);
        self.bytes.resize(MESSAGE_BYTES_MAX, 0);
        let arrived = loop {
            match socket::receive(socket, &mut self.bytes) {
                Err(Errno::EINTR) => {}
                other => break other,
            }
        };
        let arrived = arrived.map_err(|_| Error::Gone)?;
        if arrived.bytes == 0 || sent.is_err() && arrived.cut_short {
            return Err(Error::Gone);
        }
        let descriptors = arrived.descriptors.iter().flatten().count();
        let bytes = &self.bytes[..arrived.bytes];
        let (tag, reply) = Reply::decode(bytes, descriptors).map_err(Error::Malformed)?;
        match reply {
            Reply::Refused(refusal) => Err(Error::Refused(refusal)),
            _ if tag != self.tag => Err(Error::Malformed(Malformed::Value)),
            reply => Ok((reply, arrived.descriptors)),
        }
    }
}

/// The server answered something else than what belongs to the request.
const fn unexpected() -> Error {
    Error::Malformed(Malformed::Value)
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client(gone: {})", self.0.watched.is_gone())
    }
}

impl Client {
    /// Connects to the server that listens at `socket`.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::Uffd`], and [`Error::Refused`] by [`Refusal::Full`](crate::Refusal::Full).
    pub fn connect(socket: impl AsRef<Path>, share: Share) -> Result<Self, Error> {
        let uffd = Uffd::open(&Wanted {
            required: REMOTE_FEATURES,
            ..Wanted::default()
        });
        let uffd = uffd.map_err(Error::Uffd)?;
        let socket =
            socket::connect(socket.as_ref().as_os_str().as_bytes()).map_err(Error::Connect)?;
        let mut exchange = Exchange {
            tag: 0,
            bytes: Vec::new(),
        };
        let hello = Request::Hello(Hello {
            minimum_pages: share.minimum_bytes.div_ceil(u64::from(PAGE_BYTES)),
            weight: share.weight,
        });
        let (reply, _) = exchange.ask(socket.number(), hello, &[uffd.fd()])?;
        let Reply::Welcome { pages_max, .. } = reply else {
            return Err(unexpected());
        };
        let watched = Watched::new(socket, &uffd).map_err(os("keep a descriptor"))?;
        let watched = Arc::new(watched);
        let watcher = Watcher::start(watched.clone());
        let watcher = watcher.map_err(|error| {
            Error::Os(
                "start a thread",
                Errno::new(error.raw_os_error().unwrap_or(0)),
            )
        })?;
        Ok(Self(Arc::new(Connection {
            _watcher: watcher,
            watched,
            uffd: Mutex::new(uffd),
            exchange: Mutex::new(exchange),
            pages_max,
        })))
    }

    /// Most bytes of all objects of this client.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.0.pages_max * u64::from(PAGE_BYTES)
    }

    /// [`Error::Gone`] once the connection has ended.
    ///
    /// # Errors
    /// That one.
    pub fn check(&self) -> Result<(), Error> {
        if self.0.watched.is_gone() {
            Err(Error::Gone)
        } else {
            Ok(())
        }
    }

    /// What the server counted for this client.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn stats(&self) -> Result<Stats, Error> {
        match self.0.ask(Request::Stats)?.0 {
            Reply::Stats(stats) => Ok(stats),
            _ => Err(unexpected()),
        }
    }

    /// A memory object of `bytes` bytes, up to a whole page, all zero, mapped.
    ///
    /// # Errors
    /// [`Error::Refused`] by [`Refusal::Bounds`](crate::Refusal::Bounds) where it is too large or one too many, [`Error::Gone`], and those of the kernel.
    pub fn create(&self, bytes: u64) -> Result<Object, Error> {
        let pages = bytes.div_ceil(u64::from(PAGE_BYTES));
        if pages == 0 {
            return Err(Error::Bounds);
        }
        let (reply, [primary, attributes, ..]) = self.0.ask(Request::Create { pages })?;
        let Reply::Created {
            object,
            attribute_bytes,
        } = reply
        else {
            return Err(unexpected());
        };
        // Closed once they are mapped: what is written through them, no pager sees.
        let (primary, attributes) = primary.zip(attributes).ok_or(unexpected())?;
        let bytes = pages as usize * PAGE_BYTES as usize;
        let content = Whole::new(primary.number(), bytes).map_err(os("map a memory object"))?;
        let marks = Whole::new(attributes.number(), attribute_bytes as usize);
        let marks = marks.map_err(os("map an attribute object"))?;
        let start = content.address();
        map::not_in_children(start, bytes).map_err(os("keep a memory object from children"))?;
        let uffd = self.0.uffd.lock().unwrap_or_else(PoisonError::into_inner);
        uffd.register_shared(start, bytes)
            .map_err(os("have faults served"))?;
        drop(uffd);
        let made = Object {
            client: self.clone(),
            number: object,
            pages,
            content,
            marks,
        };
        if !self.0.watched.add(start, bytes) {
            return Err(Error::Gone);
        }
        let address = start as u64;
        match self.0.ask(Request::Map { object, address })?.0 {
            Reply::Done => Ok(made),
            _ => Err(unexpected()),
        }
    }
}

impl Connection {
    fn ask(&self, request: Request) -> Result<(Reply, Files), Error> {
        let mut exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        exchange.ask(self.watched.socket.number(), request, &[])
    }
}

/// A memory object. Dropping it destroys it: no reference to its words outlives it.
pub struct Object {
    client: Client,
    number: u32,
    pages: u64,
    content: Whole,
    marks: Whole,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}, {} pages)", self.number, self.pages)
    }
}

impl Object {
    /// How many pages it has.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Where it is mapped. What is read and written through the pointer is the caller's affair; a marked page may become zero at any time.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.content.address())
    }

    /// Its content, as words of 8 bytes.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.content.words()
    }

    /// Gives up what is in `pages` pages from `first` on, until they are taken back: the server may drop it. Pages that were never touched are not concerned.
    /// No request: words in shared memory.
    ///
    /// # Panics
    /// When they are outside of the object.
    pub fn mark(&self, first: u64, pages: u64) {
        Attributes::new(self.marks.words(), self.pages).mark(first, pages);
    }

    fn range(&self, first: u64, pages: u64) -> Result<Pages, Error> {
        let end = first.checked_add(pages).filter(|&end| end <= self.pages);
        if pages == 0 || end.is_none() {
            return Err(Error::Bounds);
        }
        Ok(Pages {
            object: self.number,
            first,
            pages,
        })
    }

    /// The server may drop now what is given up of `pages` pages from `first` on. It does where its policy is `uf`; all others look at the marks at least.
    ///
    /// # Errors
    /// [`Error::Bounds`] and [`Error::Gone`].
    pub fn flush(&self, first: u64, pages: u64) -> Result<(), Error> {
        let range = self.range(first, pages)?;
        self.client.0.ask(Request::Flush(range)).map(drop)
    }

    /// Wants `pages` pages from `first` on again. Says which of them were dropped since they were marked: those hold zeroes, or what was written since; all others are as
    /// they were.
    ///
    /// A write to a page that is given up, while it is dropped, is kept, or the page is told lost. More than [`TAKE_BACK_PAGES_MAX`] pages are several requests.
    ///
    /// # Errors
    /// [`Error::Bounds`] and [`Error::Gone`].
    pub fn take_back(&self, first: u64, pages: u64) -> Result<Lost, Error> {
        self.range(first, pages)?;
        let mut all = Lost::none(pages);
        let mut at = 0;
        while at < pages {
            let part = self.range(first + at, TAKE_BACK_PAGES_MAX.min(pages - at))?;
            let Reply::Taken(lost) = self.client.0.ask(Request::TakeBack(part))?.0 else {
                return Err(unexpected());
            };
            if lost.pages() != part.pages {
                return Err(unexpected());
            }
            (0..part.pages)
                .filter(|&page| lost.contains(page))
                .for_each(|page| all.set(at + page));
            at += part.pages;
        }
        Ok(all)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let (start, bytes) = (self.content.address(), self.content.bytes());
        let connection = &self.client.0;
        connection.watched.remove(start);
        // Threads that wait there go on, and meet what the program has done.
        let uffd = connection
            .uffd
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let _ = uffd.unregister(start, bytes);
        drop(uffd);
        // The mapping first: nothing of a destroyed object can be touched. What is left here is an empty range until the field is dropped.
        let _ = map::mmap(
            start,
            bytes,
            outpage_sys::libc::PROT_NONE,
            outpage_sys::libc::MAP_PRIVATE
                | outpage_sys::libc::MAP_ANONYMOUS
                | outpage_sys::libc::MAP_NORESERVE
                | outpage_sys::libc::MAP_FIXED,
            -1,
            0,
        );
        let object = self.number;
        // A server that is gone has destroyed it.
        let _ = connection.ask(Request::Destroy { object });
    }
}
