//! Whether this process's pages are encrypted in the swap file, and with which key.

use std::fmt;
use std::sync::Arc;

use outpage_store::{Cipher, KEY_BYTES};
use outpage_sys::raw::Errno;
use outpage_sys::secret::{self, Locked};

use crate::config::Encrypt;
use crate::report;
use crate::session::{Session, SessionError};

/// Why there is no encryption where it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EncryptionError {
    /// No page of RAM can be locked for the key.
    Locked(Errno),
    /// The kernel gives no random numbers.
    Random(Errno),
    /// The run's key cannot be had.
    Session(SessionError),
}

impl fmt::Display for EncryptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked(error) => write!(
                f,
                "no RAM can be locked for the key of the swap file: {error}; raise ulimit -l to 64, or use --encrypt off"
            ),
            Self::Random(error) => {
                write!(f, "no random numbers for the key of the swap file: {error}")
            }
            Self::Session(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EncryptionError {}

/// What a setting comes to on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Pages are encrypted.
    Encrypted,
    /// They are not, as it was asked for, or by default where that is slow.
    Plain,
    /// They are not, though they would be by default, for no RAM can be locked for the key.
    Unlocked(Errno),
}

/// Whether `wish` leads to encryption here. By default it does where the CPU has instructions for AES.
///
/// # Errors
/// [`EncryptionError::Locked`] where it was asked for and cannot be.
pub fn decide(wish: Encrypt) -> Result<Decision, EncryptionError> {
    let lock = match wish {
        Encrypt::Off => return Ok(Decision::Plain),
        Encrypt::Auto if !Cipher::is_fast() => return Ok(Decision::Plain),
        Encrypt::On | Encrypt::Auto => secret::can_lock(),
    };
    match (wish, lock) {
        (_, Ok(())) => Ok(Decision::Encrypted),
        (Encrypt::Auto, Err(error)) => Ok(Decision::Unlocked(error)),
        (_, Err(error)) => Err(EncryptionError::Locked(error)),
    }
}

/// The cipher that `wish` leads to, with the session's key if it has one, else with one of the engine's own. In locked RAM, for it is
/// as good as the key. A process of a run whose pages are encrypted by default may lose the right to lock any: it encrypts all the
/// same, and says so.
pub(crate) fn cipher(
    wish: Encrypt,
    session: &Session,
) -> Result<Option<Arc<Locked<Cipher>>>, EncryptionError> {
    let shared = wish != Encrypt::Off && session.has_key();
    if !shared {
        match decide(wish)? {
            Decision::Encrypted => {}
            Decision::Plain => return Ok(None),
            Decision::Unlocked(error) => {
                let why = error.to_string();
                report::say(&[
                    "outpage: the swap file is not encrypted, for no RAM can be locked for its key: ",
                    &why,
                ]);
                return Ok(None);
            }
        }
    }
    let (mut key, unlocked) = place(wish, || [0_u8; KEY_BYTES])?;
    if shared {
        let read = session.read_key(&mut key);
        read.map_err(EncryptionError::Session)?;
    } else {
        secret::random(&mut *key).map_err(EncryptionError::Random)?;
    }
    let (cipher, also) = place(wish, || Cipher::new(&key))?;
    if let Some(error) = also.or(unlocked) {
        say_unlocked(error);
    }
    Ok(Some(Arc::new(cipher)))
}

/// A secret in locked RAM; unless that was asked for, where there is none, elsewhere.
fn place<T>(
    wish: Encrypt,
    make: impl FnOnce() -> T,
) -> Result<(Locked<T>, Option<Errno>), EncryptionError> {
    let placed = match wish {
        Encrypt::On => Locked::new(make).map(|secret| (secret, None)),
        Encrypt::Auto | Encrypt::Off => Locked::where_possible(make),
    };
    placed.map_err(EncryptionError::Locked)
}

fn say_unlocked(error: Errno) {
    let why = error.to_string();
    report::say(&[
        "outpage: the key of the swap file is in RAM that the kernel may swap, for this process may lock none: ",
        &why,
    ]);
}

/// In a forked child, whose memory is not locked: what it has of its parent's cipher.
pub(crate) fn lock_again(
    wish: Encrypt,
    cipher: Option<&Locked<Cipher>>,
) -> Result<(), EncryptionError> {
    match wish {
        Encrypt::On => {
            let locked = cipher.map_or(Ok(()), Locked::lock_again);
            locked.map_err(EncryptionError::Locked)
        }
        Encrypt::Auto | Encrypt::Off => {
            keep_locked(cipher);
            Ok(())
        }
    }
}

/// Locks what this process has of the key again, or says that it cannot.
pub(crate) fn keep_locked(cipher: Option<&Locked<Cipher>>) {
    let locked = cipher.map_or(Ok(()), Locked::lock_again);
    locked.unwrap_or_else(say_unlocked);
}
