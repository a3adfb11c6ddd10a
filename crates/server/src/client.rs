//! One connection: what arrives, what is answered, and what is still owed.

use outpage_core::units::{Nanos, ObjectId, PAGE_BYTES, PageNo, PageRange};
use outpage_sys::fd::Fd;
use outpage_sys::raw::Errno;
use outpage_sys::socket::{self, Arrived, Watch};
use outpage_sys::uffd::Remote;
use outpage_wire::{
    Hello, MESSAGE_BYTES_MAX, MINIMUM_PAGES, Malformed, OBJECTS_MAX, Pages, Refusal, Reply, Request,
};

use crate::body::Body;
use crate::common::Common;
use crate::options::Options;

/// Requests of a client that are served before others have their turn. A choice: enough that a burst is served at once, and little beside a fault.
const REQUESTS_MAX: usize = 16;
/// The largest address of a mapping, and one (`TASK_SIZE_MAX` in arch/x86/include/asm/page_64_types.h, 47 bits).
const ADDRESS_END: usize = (1 << 47) - PAGE_BYTES;

/// What is owed to a client.
enum Owed {
    /// Nothing: it may ask.
    Nothing,
    /// A welcome, once the frames of its minimum are there.
    Welcome(u32),
    /// That an object was destroyed, once no transfer of its pages is under way.
    Destroyed(u32, u32),
    /// A reply that its socket has no room for.
    Bytes(Vec<u8>, Option<[Fd; 2]>),
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The client went.
    Closed,
    /// It sent what is no request.
    Malformed(Malformed),
    /// It was refused.
    Refused,
}

/// What a request is answered with, and descriptors along.
type Answer = (Reply, Option<[Fd; 2]>);

/// A connection.
pub struct Client {
    socket: Fd,
    name: u64,
    /// When it connected.
    pub since: Nanos,
    /// What it has of the limit whatever others do, in frames.
    pub minimum: u64,
    /// Its part of the rest.
    pub weight: u32,
    /// Faults that it had when frames were divided last.
    pub faults_before: u64,
    /// Its memory, from its first message on.
    pub body: Option<Box<Body>>,
    /// It has gone, and transfers of its pages are under way.
    pub leaving: bool,
    owed: Owed,
}

/// What a connection needs of the server to be served.
pub struct Context<'a> {
    /// The store.
    pub common: &'a mut Common,
    /// The settings.
    pub options: &'a Options,
    /// Where sockets are waited for.
    pub watch: &'a Watch,
    /// Frames that nobody is guaranteed.
    pub unclaimed: u64,
}

impl Client {
    /// A new connection, known to the watch by `name`.
    pub const fn new(socket: Fd, name: u64, since: Nanos) -> Self {
        Self {
            socket,
            name,
            since,
            minimum: 0,
            weight: 1,
            faults_before: 0,
            body: None,
            leaving: false,
            owed: Owed::Nothing,
        }
    }

    /// The number of its socket.
    pub const fn socket(&self) -> i32 {
        self.socket.number()
    }

    /// The number of its connection, of 24 bits.
    pub const fn connection(&self) -> u32 {
        (self.name >> 32) as u32 & 0xff_ffff
    }

    /// Serves what the client sent. `join` makes the body of one that says hello.
    ///
    /// # Errors
    /// Why the connection is to end.
    pub fn serve(
        &mut self,
        context: &mut Context<'_>,
        join: &mut dyn FnMut(Remote) -> Box<Body>,
    ) -> Result<(), End> {
        if let Owed::Bytes(bytes, files) = std::mem::replace(&mut self.owed, Owed::Nothing) {
            self.send(context.watch, bytes, files)?;
        }
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        for _ in 0..REQUESTS_MAX {
            // One request at a time: the next is read once this one is answered.
            if !matches!(self.owed, Owed::Nothing) {
                return Ok(());
            }
            let arrived = match socket::receive(self.socket(), &mut buffer) {
                Ok(arrived) if arrived.bytes > 0 => arrived,
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
                _ => return Err(End::Closed),
            };
            let bytes = &buffer[..arrived.bytes];
            let descriptors = arrived.descriptors.iter().flatten().count();
            let read = match Request::decode(bytes, descriptors) {
                Ok(_) if arrived.cut_short => Err(Malformed::Length),
                other => other,
            };
            let answered = read.and_then(|(tag, request)| {
                let answer = self.answer(context, tag, request, arrived, join)?;
                Ok((tag, answer))
            });
            match answered {
                Ok((tag, Some(answer))) => self.reply(context.watch, tag, answer)?,
                Ok((_, None)) => {}
                Err(malformed) => {
                    let _ =
                        self.reply(context.watch, 0, (Reply::Refused(Refusal::Malformed), None));
                    return Err(End::Malformed(malformed));
                }
            }
        }
        Ok(())
    }

    /// Answers what was owed, if it can be now.
    ///
    /// # Errors
    /// Why the connection is to end.
    pub fn settle(&mut self, context: &mut Context<'_>, frames_are_there: bool) -> Result<(), End> {
        let answer = match self.owed {
            Owed::Welcome(tag) if frames_are_there => (tag, welcome(context)),
            Owed::Destroyed(tag, object) => {
                let body = self.body.as_mut();
                if body.is_some_and(|body| !body.destroy(context.common, object)) {
                    return Ok(());
                }
                (tag, Reply::Done)
            }
            _ => return Ok(()),
        };
        self.owed = Owed::Nothing;
        self.reply(context.watch, answer.0, (answer.1, None))
    }

    fn reply(&mut self, watch: &Watch, tag: u32, answer: Answer) -> Result<(), End> {
        let mut bytes = Vec::new();
        answer.0.encode(tag, &mut bytes);
        self.send(watch, bytes, answer.1)?;
        match answer.0 {
            Reply::Refused(Refusal::Full) => Err(End::Refused),
            _ => Ok(()),
        }
    }

    fn send(&mut self, watch: &Watch, bytes: Vec<u8>, files: Option<[Fd; 2]>) -> Result<(), End> {
        let numbers = files
            .as_ref()
            .map(|files| [files[0].number(), files[1].number()]);
        let numbers = numbers.as_ref().map_or(&[][..], |numbers| &numbers[..]);
        let full = match socket::send(self.socket(), &bytes, numbers) {
            Ok(()) => false,
            Err(Errno::EAGAIN) => true,
            Err(_) => return Err(End::Closed),
        };
        if full {
            self.owed = Owed::Bytes(bytes, files);
        }
        let watched = watch.set_writable(self.socket(), self.name, full);
        watched.map_err(|_| End::Closed)
    }

    /// The answer to a request; none where it is owed.
    fn answer(
        &mut self,
        context: &mut Context<'_>,
        tag: u32,
        request: Request,
        arrived: Arrived,
        join: &mut dyn FnMut(Remote) -> Box<Body>,
    ) -> Result<Option<Answer>, Malformed> {
        let plain = |reply| Ok(Some((reply, None)));
        let Some(body) = self.body.as_mut() else {
            let Request::Hello(hello) = request else {
                return Err(Malformed::Magic);
            };
            let [uffd, ..] = arrived.descriptors;
            let uffd = uffd.and_then(Remote::adopt).ok_or(Malformed::Descriptors)?;
            return match self.hello(context, hello) {
                Ok(()) => {
                    self.body = Some(join(uffd));
                    self.owed = Owed::Welcome(tag);
                    Ok(None)
                }
                Err(refusal) => plain(Reply::Refused(refusal)),
            };
        };
        let reply = match request {
            Request::Hello(_) => return Err(Malformed::Magic),
            Request::Create { pages } => return Ok(Some(create(body, context.options, pages))),
            Request::Map { object, address } => map(body, object, address),
            Request::Flush(pages) => within(body, pages).map(|range| {
                body.flush(context.common, range);
                Reply::Done
            }),
            Request::TakeBack(pages) => {
                within(body, pages).map(|range| Reply::Taken(body.take_back(context.common, range)))
            }
            Request::Destroy { object } if body.memory.object(object).is_none() => {
                Err(Refusal::NoObject)
            }
            Request::Destroy { object } => {
                if !body.destroy(context.common, object) {
                    self.owed = Owed::Destroyed(tag, object);
                    return Ok(None);
                }
                Ok(Reply::Done)
            }
            Request::Stats => Ok(Reply::Stats(body.stats())),
        };
        plain(reply.unwrap_or_else(Reply::Refused))
    }

    fn hello(&mut self, context: &Context<'_>, hello: Hello) -> Result<(), Refusal> {
        let minimum = hello.minimum_pages.max(MINIMUM_PAGES);
        if minimum > context.options.minimum_pages_max || minimum > context.unclaimed {
            return Err(Refusal::Full);
        }
        (self.minimum, self.weight) = (minimum, hello.weight);
        Ok(())
    }
}

const fn welcome(context: &Context<'_>) -> Reply {
    Reply::Welcome {
        pages_max: context.options.client_pages_max,
        limit_pages: context.options.limit_pages,
    }
}

fn create(body: &mut Body, options: &Options, pages: u64) -> Answer {
    let room = options.client_pages_max - body.memory.size().1;
    if pages == 0 || pages > room || body.memory.size().0 >= OBJECTS_MAX as usize {
        return (Reply::Refused(Refusal::Bounds), None);
    }
    let no_memory = (Reply::Refused(Refusal::NoMemory), None);
    let Ok(number) = body.memory.create(pages) else {
        return no_memory;
    };
    let files = body.memory.object(number).and_then(|object| object.files());
    let Some(files) = files else {
        return no_memory;
    };
    let created = Reply::Created {
        object: number,
        attribute_bytes: outpage_wire::attribute_bytes(pages),
    };
    (created, Some(files))
}

fn map(body: &mut Body, object: u32, address: u64) -> Result<Reply, Refusal> {
    let pages = body
        .memory
        .object(object)
        .filter(|object| object.span().is_none());
    let pages = pages.ok_or(Refusal::NoObject)?.range().pages;
    let start = usize::try_from(address).map_err(|_| Refusal::Bounds)?;
    let bytes = pages as usize * PAGE_BYTES;
    let end = start.checked_add(bytes).filter(|&end| end <= ADDRESS_END);
    let end = end.ok_or(Refusal::Bounds)?;
    if start == 0 || !start.is_multiple_of(PAGE_BYTES) || body.memory.is_taken(start, end) {
        return Err(Refusal::Bounds);
    }
    if let Some(object) = body.memory.object(object) {
        object.map_at(start);
    }
    Ok(Reply::Done)
}

/// The pages of an object that is mapped.
fn within(body: &mut Body, pages: Pages) -> Result<PageRange, Refusal> {
    let object = body
        .memory
        .object(pages.object)
        .filter(|object| object.span().is_some());
    let size = object.ok_or(Refusal::NoObject)?.range().pages;
    if pages.first + pages.pages > size {
        return Err(Refusal::Bounds);
    }
    let first = PageNo::new(ObjectId(pages.object), pages.first);
    Ok(PageRange::new(first, pages.pages))
}
