//! A connection without the library: what a client sends that is wrong, too early, or never answered.

use std::path::Path;

use outpage_sys::fd::Fd;
use outpage_sys::socket;
use outpage_sys::uffd::{REMOTE_FEATURES, Uffd, Wanted};
use outpage_wire::{Hello, MESSAGE_BYTES_MAX, Refusal, Reply, Request};

/// A connection that speaks for itself.
pub struct Raw(pub Fd);

impl Raw {
    pub fn connect(path: &Path) -> Self {
        Self(socket::connect(path.to_str().unwrap().as_bytes()).unwrap())
    }

    pub fn send(&self, request: Request, along: &[i32]) {
        let mut bytes = Vec::new();
        request.encode(1, &mut bytes);
        // The server may have closed the connection.
        let _ = socket::send(self.0.number(), &bytes, along);
    }

    /// The next reply, and its descriptors; `None` at the end.
    pub fn receive(&self) -> Option<(Reply, Vec<Fd>)> {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let arrived = socket::receive(self.0.number(), &mut buffer).ok()?;
        if arrived.bytes == 0 {
            return None;
        }
        let files: Vec<Fd> = arrived.descriptors.into_iter().flatten().collect();
        let reply = Reply::decode(&buffer[..arrived.bytes], files.len())
            .unwrap()
            .1;
        Some((reply, files))
    }

    pub fn hello(&self) -> Uffd {
        let uffd = uffd();
        let hello = Hello {
            minimum_pages: 0,
            weight: 100,
        };
        self.send(Request::Hello(hello), &[uffd.fd()]);
        assert!(matches!(self.receive(), Some((Reply::Welcome { .. }, _))));
        uffd
    }

    pub fn ends_refused(&self) {
        let refused = Reply::Refused(Refusal::Malformed);
        assert_eq!(self.receive().map(|answer| answer.0), Some(refused));
        assert!(self.receive().is_none());
    }
}

fn uffd() -> Uffd {
    let wanted = Wanted {
        required: REMOTE_FEATURES,
        ..Wanted::default()
    };
    Uffd::open(&wanted).unwrap()
}
