//! What a service manager says by the environment, and what it wants to hear: sd_listen_fds(3) and sd_notify(3), without its library.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use outpage_sys::fd::Fd;
use outpage_sys::process;
use outpage_sys::socket;

/// The first descriptor that is handed over (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;

/// The socket that the service manager listens on for this process; `None` if there is none.
///
/// # Errors
/// One line, when something else was handed over.
pub fn listener() -> Result<Option<Fd>, String> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(process::pid()) {
        return Ok(None);
    }
    match number("LISTEN_FDS") {
        None | Some(0) => Ok(None),
        Some(1) if socket::is_listener(FIRST) => {
            let error =
                |error| format!("the socket of the service manager cannot be used: {error}");
            socket::set_nonblocking(FIRST).map_err(error)?;
            Ok(Some(Fd::adopt(FIRST)))
        }
        Some(count) => Err(format!(
            "the service manager handed over {count} descriptors; one is needed, a listening socket with ListenSequentialPacket="
        )),
    }
}

/// Tells the service manager, if there is one, such as `READY=1`.
///
/// # Errors
/// Those of sending a datagram to `NOTIFY_SOCKET`.
pub fn notify(state: &str) -> io::Result<()> {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let bytes = name.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&name)?,
    };
    let sent = UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    debug_assert_eq!(sent, state.len());
    Ok(())
}
