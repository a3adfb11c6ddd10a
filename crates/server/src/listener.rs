//! The socket that clients connect to, and its file.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use outpage_sys::fd::Fd;
use outpage_sys::raw::Errno;
use outpage_sys::socket;

use crate::server::ServeError;

/// Connections that the kernel holds until they are taken: `SOMAXCONN` before Linux 5.4.
const BACKLOG: u32 = 128;

/// Listens at `path`; a socket that nobody listens at any more is taken away, and nothing else.
///
/// # Errors
/// Those of [`socket::listen`], and that another server or something else is there.
pub fn listen(path: &Path) -> Result<Fd, ServeError> {
    let bytes = path.as_os_str().as_bytes();
    let fails = |error| ServeError::Socket(path.to_owned(), error);
    /// `EADDRINUSE` and `ECONNREFUSED` (include/uapi/asm-generic/errno.h).
    const IN_USE: Errno = Errno::new(98);
    const REFUSED: Errno = Errno::new(111);
    match socket::listen(bytes, BACKLOG) {
        Err(IN_USE) => {}
        other => return other.map_err(fails),
    }
    let is_socket = |found: std::fs::Metadata| found.file_type().is_socket();
    if !std::fs::symlink_metadata(path).is_ok_and(is_socket) {
        return Err(ServeError::NoSocket(path.to_owned()));
    }
    match socket::connect(bytes) {
        Ok(_) => return Err(ServeError::Taken(path.to_owned())),
        Err(REFUSED) => {}
        Err(error) => return Err(fails(error)),
    }
    std::fs::remove_file(path).map_err(|_| fails(IN_USE))?;
    socket::listen(bytes, BACKLOG).map_err(fails)
}

/// The file of a socket that this process listens at.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

impl SocketFile {
    /// The one at `path`, as it is now.
    ///
    /// # Errors
    /// Those of stat(2).
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: number(path)?,
        })
    }

    /// Takes it away, unless another has its place by now.
    ///
    /// # Errors
    /// Those of stat(2) and unlink(2), but for a file that is gone.
    pub fn remove(self) -> io::Result<()> {
        match number(&self.path) {
            Ok(file) if file == self.file => std::fs::remove_file(&self.path),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn number(path: &Path) -> io::Result<(u64, u64)> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}
