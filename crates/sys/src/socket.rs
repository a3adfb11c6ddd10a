//! Local sockets whose messages keep their bounds (unix(7), `SOCK_SEQPACKET`), with descriptors along, and waiting for many descriptors at once.

use core::mem;

use crate::fd::{Fd, open_flags};
use crate::raw::{Errno, syscall3, syscall5};

/// Most descriptors that one message brings here. More of them are closed by the kernel, and the message counts as cut short.
pub const DESCRIPTORS_MAX: usize = 4;

/// Room for a control message of that many descriptors: its header of 16 bytes, four bytes each, up to whole words (cmsg(3)).
const CONTROL_WORDS: usize = 2 + DESCRIPTORS_MAX.div_ceil(2);

/// Who is at the other end, as of the time it connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its process.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
}

/// A message that arrived.
#[derive(Debug, Default)]
pub struct Arrived {
    /// Its length; 0 is the end of the connection.
    pub bytes: usize,
    /// It was longer than the buffer, or had more descriptors than there was room for.
    pub cut_short: bool,
    /// The descriptors that came along, the first ones of the list.
    pub descriptors: [Option<Fd>; DESCRIPTORS_MAX],
}

fn socket() -> Result<Fd, Errno> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers only.
    let number = unsafe { syscall3(libc::SYS_socket, libc::AF_UNIX as usize, kind as usize, 0) }?;
    Ok(Fd::adopt(number as i32))
}

/// `path` as an address; `ENAMETOOLONG` for one of 108 bytes and more.
fn address(path: &[u8]) -> Result<libc::sockaddr_un, Errno> {
    // SAFETY: all-zero is a valid address structure.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let room = address.sun_path.len() - 1;
    if path.len() > room {
        return Err(Errno::ENAMETOOLONG);
    }
    for (place, &byte) in address.sun_path.iter_mut().zip(path) {
        *place = byte as libc::c_char;
    }
    Ok(address)
}

/// Makes a call that takes a socket and an address.
fn with_address(call: libc::c_long, socket: &Fd, path: &[u8]) -> Result<(), Errno> {
    let address = address(path)?;
    let (at, len) = ((&raw const address) as usize, size_of_val(&address));
    // SAFETY: the kernel reads the address, which lives as long as the call.
    unsafe { syscall3(call, socket.number() as usize, at, len) }.map(drop)
}

/// A socket that listens at `path`, where nothing may be, non-blocking. Only this user may connect (mode 0600): the mode is set before it listens.
///
/// # Errors
/// Those of socket(2), bind(2), chmod(2) and listen(2); `EADDRINUSE` (98) where something is at `path`.
pub fn listen(path: &[u8], waiting: u32) -> Result<Fd, Errno> {
    let socket = socket()?;
    with_address(libc::SYS_bind, &socket, path)?;
    let name = address(path)?;
    let (here, at) = (
        libc::AT_FDCWD as isize as usize,
        (&raw const name.sun_path) as usize,
    );
    // SAFETY: the path ends with a zero byte, for `address` leaves room for it.
    unsafe { syscall3(libc::SYS_fchmodat, here, at, 0o600) }?;
    listen_on(socket, waiting)
}

fn listen_on(socket: Fd, waiting: u32) -> Result<Fd, Errno> {
    let number = socket.number() as usize;
    // SAFETY: takes numbers only.
    unsafe { syscall3(libc::SYS_listen, number, waiting as usize, 0) }?;
    set_nonblocking(socket.number())?;
    Ok(socket)
}

/// A socket that listens by a name in the kernel's table alone (unix(7), "abstract"), of 107 bytes at most, non-blocking. Any user may connect: see [`peer`].
///
/// # Errors
/// Those of socket(2), bind(2) and listen(2); `EADDRINUSE` (98) where somebody has the name.
pub fn listen_by_name(name: &[u8], waiting: u32) -> Result<Fd, Errno> {
    let socket = socket()?;
    with_address(libc::SYS_bind, &socket, &abstract_path(name))?;
    listen_on(socket, waiting)
}

/// Connects to who listens by `name` ([`listen_by_name`]); the socket blocks.
///
/// # Errors
/// Those of socket(2) and connect(2).
pub fn connect_by_name(name: &[u8]) -> Result<Fd, Errno> {
    let socket = socket()?;
    with_address(libc::SYS_connect, &socket, &abstract_path(name))?;
    Ok(socket)
}

/// What begins with a zero byte is no path. The rest of the address is part of the name, and zero.
fn abstract_path(name: &[u8]) -> [u8; NAME_BYTES] {
    let mut path = [0; NAME_BYTES];
    let bytes = name.len().min(NAME_BYTES - 1);
    path[1..=bytes].copy_from_slice(&name[..bytes]);
    path
}

/// Room of an address for a path, less the zero byte behind it.
const NAME_BYTES: usize = 107;

/// Two sockets that are connected with each other; both block.
///
/// # Errors
/// Those of socketpair(2).
pub fn pair() -> Result<[Fd; 2], Errno> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    let mut numbers = [0i32; 2];
    let at = numbers.as_mut_ptr() as usize;
    // SAFETY: the kernel writes two numbers to the array.
    unsafe {
        syscall5(
            libc::SYS_socketpair,
            libc::AF_UNIX as usize,
            kind as usize,
            0,
            at,
            0,
        )
    }?;
    Ok(numbers.map(Fd::adopt))
}

/// Connects to who listens at `path`; the socket blocks.
///
/// # Errors
/// Those of socket(2) and connect(2).
pub fn connect(path: &[u8]) -> Result<Fd, Errno> {
    let socket = socket()?;
    with_address(libc::SYS_connect, &socket, path)?;
    Ok(socket)
}

/// Takes a connection that waits; what comes by it does not block. `None` if there is none.
///
/// # Errors
/// Those of accept4(2) but `EAGAIN`.
pub fn accept(listener: i32) -> Result<Option<Fd>, Errno> {
    let flags = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as usize;
    // SAFETY: no address is asked for.
    match unsafe { syscall5(libc::SYS_accept4, listener as usize, 0, 0, flags, 0) } {
        Err(Errno::EAGAIN) => Ok(None),
        other => other.map(|number| Some(Fd::adopt(number as i32))),
    }
}

/// Has calls on a descriptor return at once.
///
/// # Errors
/// Those of fcntl(2).
pub fn set_nonblocking(fd: i32) -> Result<(), Errno> {
    let flags = (open_flags(fd)? | libc::O_NONBLOCK) as usize;
    // SAFETY: takes numbers only.
    unsafe { syscall3(libc::SYS_fcntl, fd as usize, libc::F_SETFL as usize, flags) }.map(drop)
}

/// Who is at the other end of a connection (`SO_PEERCRED`).
///
/// # Errors
/// Those of getsockopt(2).
pub fn peer(socket: i32) -> Result<Peer, Errno> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    option(socket, libc::SO_PEERCRED, &mut peer)?;
    Ok(Peer {
        pid: peer.pid,
        uid: peer.uid,
    })
}

/// The effective user of this process.
#[must_use]
pub fn user() -> u32 {
    // SAFETY: takes nothing, and never fails.
    unsafe { syscall3(libc::SYS_geteuid, 0, 0, 0) }.unwrap_or(0) as u32
}

/// Whether `fd` is a local socket that listens and keeps the bounds of messages.
#[must_use]
pub fn is_listener(fd: i32) -> bool {
    let asked = |name, wanted| {
        let mut value = 0i32;
        option(fd, name, &mut value).is_ok() && value == wanted
    };
    asked(libc::SO_DOMAIN, libc::AF_UNIX)
        && asked(libc::SO_TYPE, libc::SOCK_SEQPACKET)
        && asked(libc::SO_ACCEPTCONN, 1)
}

/// Reads an option of the socket level; `T` is what the kernel writes for it.
fn option<T: Copy>(socket: i32, name: i32, value: &mut T) -> Result<(), Errno> {
    let mut len = size_of::<T>() as u32;
    let (at, len_at) = ((&raw mut *value) as usize, (&raw mut len) as usize);
    let (socket, level) = (socket as usize, libc::SOL_SOCKET as usize);
    // SAFETY: the kernel writes at most `len` bytes to `value`, plain numbers both.
    unsafe {
        syscall5(
            libc::SYS_getsockopt,
            socket,
            level,
            name as usize,
            at,
            len_at,
        )
    }
    .map(drop)
}

/// A control message of up to [`DESCRIPTORS_MAX`] descriptors, aligned as cmsg(3) wants it.
type Control = [u64; CONTROL_WORDS];

fn header(part: &mut libc::iovec, control: &mut Control, control_bytes: usize) -> libc::msghdr {
    // SAFETY: all-zero is a valid message header.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    if control_bytes > 0 {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control_bytes;
    }
    header
}

/// Sends one message with `descriptors`, whole or not at all, without a signal where nobody is at the other end.
///
/// # Errors
/// Those of sendmsg(2): `EAGAIN` where there is no room and the socket does not block, `EPIPE` where the other end is gone.
///
/// # Panics
/// With more than [`DESCRIPTORS_MAX`] descriptors.
pub fn send(socket: i32, bytes: &[u8], descriptors: &[i32]) -> Result<(), Errno> {
    assert!(descriptors.len() <= DESCRIPTORS_MAX);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // The length of the header and of what follows; then level and kind.
    let length = 16 + 4 * descriptors.len();
    let mut control: Control = [0; CONTROL_WORDS];
    control[0] = length as u64;
    control[1] = (libc::SCM_RIGHTS as u64) << 32 | libc::SOL_SOCKET as u64;
    for (i, &number) in descriptors.iter().enumerate() {
        control[2 + i / 2] |= u64::from(number as u32) << (32 * (i % 2));
    }
    let room = if descriptors.is_empty() {
        0
    } else {
        length.next_multiple_of(8)
    };
    let header = header(&mut part, &mut control, room);
    let at = (&raw const header) as usize;
    // SAFETY: the kernel only reads what the header names, all of which lives as long as the call.
    unsafe {
        syscall3(
            libc::SYS_sendmsg,
            socket as usize,
            at,
            libc::MSG_NOSIGNAL as usize,
        )
    }
    .map(drop)
}

/// Takes one message into `buffer`.
///
/// # Errors
/// Those of recvmsg(2): `EAGAIN` where none waits and the socket does not block.
pub fn receive(socket: i32, buffer: &mut [u8]) -> Result<Arrived, Errno> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control: Control = [0; CONTROL_WORDS];
    let mut header = header(&mut part, &mut control, CONTROL_WORDS * 8);
    let at = (&raw mut header) as usize;
    // SAFETY: the kernel writes into the borrowed buffer, the control words and the header, within the lengths given.
    let bytes = unsafe {
        syscall3(
            libc::SYS_recvmsg,
            socket as usize,
            at,
            libc::MSG_CMSG_CLOEXEC as usize,
        )
    }?;
    let mut arrived = Arrived {
        bytes,
        cut_short: header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
        ..Arrived::default()
    };
    let rights = (libc::SCM_RIGHTS as u64) << 32 | libc::SOL_SOCKET as u64;
    if header.msg_controllen >= 16 && control[1] == rights {
        let count = (control[0] as usize).saturating_sub(16) / 4;
        for (i, place) in arrived.descriptors.iter_mut().enumerate().take(count) {
            let number = (control[2 + i / 2] >> (32 * (i % 2))) as u32;
            *place = Some(Fd::adopt(number as i32));
        }
    }
    Ok(arrived)
}

/// Ends a connection: the other end reads its end, whoever else has the descriptor.
pub fn shut_down(socket: i32) {
    // SAFETY: takes numbers only. An error means that it has ended.
    let _ = unsafe {
        syscall3(
            libc::SYS_shutdown,
            socket as usize,
            libc::SHUT_RDWR as usize,
            0,
        )
    };
}

/// Many descriptors to wait for (epoll(7)), each with a number of the caller's.
#[derive(Debug)]
pub struct Watch(Fd);

/// Descriptors told ready by one [`Watch::wait`] at most: 768 bytes of stack.
const READY_MAX: usize = 64;

impl Watch {
    /// Of none yet.
    ///
    /// # Errors
    /// Those of epoll_create1(2).
    pub fn new() -> Result<Self, Errno> {
        // SAFETY: takes a number only.
        let number =
            unsafe { syscall3(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC as usize, 0, 0) }?;
        Ok(Self(Fd::adopt(number as i32)))
    }

    /// The number: readable when one of them is ready.
    #[must_use]
    pub const fn number(&self) -> i32 {
        self.0.number()
    }

    fn control(&self, what: i32, fd: i32, events: i32, name: u64) -> Result<(), Errno> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: name,
        };
        let at = (&raw mut event) as usize;
        let (own, what) = (self.0.number() as usize, what as usize);
        // SAFETY: the kernel reads the event, which lives as long as the call.
        unsafe { syscall5(libc::SYS_epoll_ctl, own, what, fd as usize, at, 0) }.map(drop)
    }

    /// Tells when `fd` is readable, or at its end, by `name`.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn add(&self, fd: i32, name: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, name)
    }

    /// Tells when `fd`, which was added, can be written as well, or not any more.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn set_writable(&self, fd: i32, name: u64, writable: bool) -> Result<(), Errno> {
        let events = if writable {
            libc::EPOLLOUT
        } else {
            libc::EPOLLIN
        };
        self.control(libc::EPOLL_CTL_MOD, fd, events, name)
    }

    /// Tells no more of `fd`.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn remove(&self, fd: i32) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// Waits for `timeout_ms` milliseconds at most and calls `ready` with the name of each descriptor that is ready, and whether its other end is gone.
    ///
    /// # Errors
    /// Those of epoll_wait(2) but `EINTR`.
    pub fn wait(&self, timeout_ms: i32, mut ready: impl FnMut(u64, bool)) -> Result<(), Errno> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; READY_MAX];
        let (own, at) = (self.0.number() as usize, events.as_mut_ptr() as usize);
        // SAFETY: the kernel writes at most `READY_MAX` events.
        let count = match unsafe {
            syscall5(
                libc::SYS_epoll_wait,
                own,
                at,
                READY_MAX,
                timeout_ms as isize as usize,
                0,
            )
        } {
            Err(Errno::EINTR) => 0,
            other => other?,
        };
        for event in &events[..count] {
            let gone = libc::EPOLLHUP | libc::EPOLLERR;
            ready(event.u64, event.events & gone as u32 != 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd;
    use std::format;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn messages_keep_their_bounds_and_bring_descriptors() {
        let path = format!("/tmp/outpage-socket-{}", std::process::id());
        let _ = std::fs::remove_file(&path);
        let listener = listen(path.as_bytes(), 4).unwrap();
        assert!(is_listener(listener.number()));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(accept(listener.number()).unwrap().is_none());
        let near = connect(path.as_bytes()).unwrap();
        let far = accept(listener.number()).unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(peer(far.number()).unwrap().pid, std::process::id() as i32);
        let mut buffer = [0; 8];
        assert_eq!(
            receive(far.number(), &mut buffer).unwrap_err(),
            Errno::EAGAIN
        );

        let event = fd::eventfd().unwrap();
        send(
            near.number(),
            b"three",
            &[event.number(), near.number(), event.number()],
        )
        .unwrap();
        send(near.number(), b"longer than that", &[]).unwrap();
        let first = receive(far.number(), &mut buffer).unwrap();
        assert_eq!(
            (first.bytes, first.cut_short, &buffer[..5]),
            (5, false, &b"three"[..])
        );
        let [a, b, c, d] = &first.descriptors;
        assert!(a.is_some() && b.is_some() && d.is_none());
        let same = c.as_ref().unwrap();
        fd::write(same.number(), &7u64.to_ne_bytes()).unwrap();
        fd::read(event.number(), &mut buffer).unwrap();
        assert_eq!(u64::from_ne_bytes(buffer), 7);
        let second = receive(far.number(), &mut buffer).unwrap();
        assert!(second.cut_short);
        drop((near, first));
        assert_eq!(receive(far.number(), &mut buffer).unwrap().bytes, 0);
    }

    #[test]
    fn a_watch_names_what_is_ready() {
        let (watch, event) = (Watch::new().unwrap(), fd::eventfd().unwrap());
        watch.add(event.number(), 42).unwrap();
        let look = || {
            let mut names = std::vec::Vec::new();
            watch
                .wait(0, |name, gone| names.push((name, gone)))
                .unwrap();
            names
        };
        assert_eq!(look(), []);
        fd::write(event.number(), &1u64.to_ne_bytes()).unwrap();
        assert_eq!(look(), [(42, false)]);
        watch.remove(event.number()).unwrap();
        assert_eq!(look(), []);
    }
}
