//! What a process of a run and the home of its shared memory say to each other, by a socket that keeps the bounds of messages. One request at a time, in words
//! of this machine: both ends are of one build.

use std::ffi::CStr;

use outpage_sys::fd::Fd;
use outpage_sys::raw::Errno;
use outpage_sys::socket;

/// Words of a request.
const WORDS: usize = 5;
/// Bytes of a request.
pub(super) const REQUEST_BYTES: usize = WORDS * size_of::<u64>();
/// Bytes of an answer: two words, or a word and the reason of an end.
pub(crate) const ANSWER_BYTES: usize = 512;
/// The first word of the last message: the home ends, and why.
pub(super) const ENDS: u64 = u64::MAX;

/// What a process asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// The descriptor that comes along is the userfaultfd of the process, whose pid namespace is this one.
    Sit { namespace: u64 },
    /// An object of so many bytes. Its file comes with the answer, which is the file's number ([`outpage_sys::ram_file::id`]).
    Create { bytes: u64 },
    /// `start..end` of the process is the object of this number, from byte `offset` on, and is registered. The answer is how many bytes of it are served: what
    /// lies beyond the object's end is not.
    Mapped {
        start: u64,
        end: u64,
        id: u64,
        offset: u64,
    },
    /// What the process inherited it has told of.
    Settled,
    /// A socket for a child that is about to be forked comes with the answer. As long as it is open, the child's memory is kept.
    Branch,
    /// What is mapped at `start..end` is to be zero (`MADV_REMOVE`). The answer is how many bytes of it are of objects.
    Empty { start: u64, end: u64 },
    /// The process is about to map what it has mapped a second time (mremap(2) with an old length of 0), and will tell of it.
    Alias,
    /// A device is about to write to `start..end`, or is done.
    Pin { start: u64, end: u64, on: bool },
    /// Whether the home knows what [`Self::Mapped`] would say: 1 or 0.
    Knows {
        start: u64,
        end: u64,
        id: u64,
        offset: u64,
    },
    /// The file that comes along is an object from now on, if it can be ([`RamFile::may_be_kept`](outpage_sys::ram_file::RamFile::may_be_kept)). The answer
    /// is its number. Whoever asks this and what follows need not sit.
    Adopt,
    /// The file that comes along is none any more, if it is one: all of it is in RAM, and what is mapped of it is the kernel's. The answer is 1, or 0 where it was none.
    GiveUp,
    /// The same of the file of this number.
    GiveUpKnown { id: u64 },
    /// Bytes `start..end` of the file that comes along are to be zero. `ENOENT` where it is no object.
    Hole { start: u64, end: u64 },
}

impl Request {
    /// As words.
    fn encode(self) -> [u64; WORDS] {
        match self {
            Self::Sit { namespace } => [0, namespace, 0, 0, 0],
            Self::Create { bytes } => [1, bytes, 0, 0, 0],
            Self::Mapped {
                start,
                end,
                id,
                offset,
            } => [2, start, end, id, offset],
            Self::Settled => [3, 0, 0, 0, 0],
            Self::Branch => [4, 0, 0, 0, 0],
            Self::Empty { start, end } => [5, start, end, 0, 0],
            Self::Alias => [6, 0, 0, 0, 0],
            Self::Pin { start, end, on } => [7, start, end, on.into(), 0],
            Self::Knows {
                start,
                end,
                id,
                offset,
            } => [8, start, end, id, offset],
            Self::Adopt => [9, 0, 0, 0, 0],
            Self::GiveUp => [10, 0, 0, 0, 0],
            Self::Hole { start, end } => [11, start, end, 0, 0],
            Self::GiveUpKnown { id } => [12, id, 0, 0, 0],
        }
    }

    /// `None` for what is no request.
    pub(super) fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let words = bytes.as_chunks::<8>().0;
        let word = |i: usize| u64::from_ne_bytes(words[i]);
        let (start, end) = (word(1), word(2));
        match word(0) {
            0 => Some(Self::Sit { namespace: start }),
            1 => Some(Self::Create { bytes: start }),
            2 => Some(Self::Mapped {
                start,
                end,
                id: word(3),
                offset: word(4),
            }),
            3 => Some(Self::Settled),
            4 => Some(Self::Branch),
            5 => Some(Self::Empty { start, end }),
            6 => Some(Self::Alias),
            7 => Some(Self::Pin {
                start,
                end,
                on: word(3) != 0,
            }),
            8 => Some(Self::Knows {
                start,
                end,
                id: word(3),
                offset: word(4),
            }),
            9 => Some(Self::Adopt),
            10 => Some(Self::GiveUp),
            11 => Some(Self::Hole { start, end }),
            12 => Some(Self::GiveUpKnown { id: start }),
            _ => None,
        }
    }
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoAnswer {
    /// The home refused, with the kernel's error.
    Refused(Errno),
    /// The home has ended, and may have said why.
    Gone(String),
}

impl From<Errno> for NoAnswer {
    fn from(error: Errno) -> Self {
        Self::Refused(error)
    }
}

/// The home of this name.
///
/// # Errors
/// Those of connect(2); `EACCES` where somebody else listens by the name.
pub(crate) fn reach(name: &CStr) -> Result<Fd, Errno> {
    let socket = socket::connect_by_name(name.to_bytes())?;
    // Who took the name of a home that is gone is no home.
    let peer = socket::peer(socket.number())?;
    if peer.uid != socket::user() && peer.uid != 0 {
        return Err(Errno::EACCES);
    }
    Ok(socket)
}

/// Sends a request with a descriptor, and waits for the answer and a descriptor that may come with it.
pub(crate) fn ask(
    socket: i32,
    request: Request,
    along: Option<i32>,
) -> Result<(u64, Option<Fd>), NoAnswer> {
    let words = request.encode().map(u64::to_ne_bytes);
    let along = along.as_slice();
    match socket::send(socket, words.as_flattened(), along) {
        Ok(()) => {}
        // Why the home has ended may wait though nobody is there to take this.
        Err(Errno::EPIPE) => {}
        Err(error) => return Err(NoAnswer::Refused(error)),
    }
    hear(socket)
}

/// Takes an answer, or the reason of an end.
pub(crate) fn hear(socket: i32) -> Result<(u64, Option<Fd>), NoAnswer> {
    let mut text = [0; ANSWER_BYTES];
    let arrived = loop {
        match socket::receive(socket, &mut text) {
            Err(Errno::EINTR) => {}
            other => break other,
        }
    };
    let arrived = arrived.map_err(|_| NoAnswer::Gone(String::new()))?;
    if arrived.cut_short {
        // There is no room for the descriptor.
        return Err(NoAnswer::Refused(Errno::EMFILE));
    }
    let words = text[..arrived.bytes].as_chunks::<8>().0;
    match words {
        [] => Err(NoAnswer::Gone(String::new())),
        [first, ..] if u64::from_ne_bytes(*first) == ENDS => {
            let why = String::from_utf8_lossy(&text[8..arrived.bytes]);
            Err(NoAnswer::Gone(why.into_owned()))
        }
        [error, value] if *error == [0; 8] => {
            let [file, ..] = arrived.descriptors;
            Ok((u64::from_ne_bytes(*value), file))
        }
        [error, ..] => Err(NoAnswer::Refused(Errno::new(
            u64::from_ne_bytes(*error) as i32
        ))),
    }
}

/// Answers: a value and a descriptor, or an error. False where the answer cannot be sent.
pub(super) fn answer(socket: i32, result: Result<(u64, Option<i32>), Errno>) -> bool {
    let say = |words: [u64; 2], along: Option<i32>| {
        let words = words.map(u64::to_ne_bytes);
        socket::send(socket, words.as_flattened(), along.as_slice())
    };
    let refuse = |error: Errno| say([error.number() as u64, 0], None);
    let sent = match result {
        Ok((value, along)) => say([0, value], along).or_else(refuse),
        Err(error) => refuse(error),
    };
    sent.is_ok()
}

/// Says why the home ends.
pub(super) fn end(socket: i32, why: &str) {
    let mut text = ENDS.to_ne_bytes().to_vec();
    let most = why.len().min(ANSWER_BYTES - text.len());
    text.extend(&why.as_bytes()[..most]);
    let _ = socket::send(socket, &text, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_arrives_as_it_was_sent() {
        let all = [
            Request::Sit { namespace: 7 },
            Request::Create { bytes: 1 << 40 },
            Request::Mapped {
                start: 1,
                end: 2,
                id: 3,
                offset: 4,
            },
            Request::Settled,
            Request::Branch,
            Request::Empty { start: 5, end: 6 },
            Request::Alias,
            Request::Pin {
                start: 7,
                end: 8,
                on: true,
            },
            Request::Knows {
                start: 1,
                end: 2,
                id: 3,
                offset: 4,
            },
            Request::Adopt,
            Request::GiveUp,
            Request::Hole { start: 9, end: 10 },
            Request::GiveUpKnown { id: 11 },
        ];
        for request in all {
            let words = request.encode().map(u64::to_ne_bytes);
            let mut bytes = [0; REQUEST_BYTES];
            bytes.copy_from_slice(words.as_flattened());
            assert_eq!(Request::decode(&bytes), Some(request));
        }
        assert_eq!(Request::decode(&[99; REQUEST_BYTES]), None);
    }

    #[test]
    fn answers_and_ends_are_told_apart() {
        let [near, far] = socket::pair().expect("a pair");
        assert!(answer(far.number(), Ok((42, Some(far.number())))));
        let (value, file) = hear(near.number()).expect("an answer");
        assert_eq!((value, file.is_some()), (42, true));
        assert!(answer(far.number(), Err(Errno::ENOMEM)));
        let refused = NoAnswer::Refused(Errno::ENOMEM);
        assert_eq!(hear(near.number()).err(), Some(refused));
        end(far.number(), "the swap file is full");
        drop((far, file));
        let why = NoAnswer::Gone("the swap file is full".to_owned());
        assert_eq!(hear(near.number()).err(), Some(why));
        let nothing = NoAnswer::Gone(String::new());
        let asked = ask(near.number(), Request::Branch, None);
        assert_eq!(asked.err(), Some(nothing));
    }
}
