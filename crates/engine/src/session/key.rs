//! The key of an encrypted swap file, on its way from the launcher to the processes of the run.
//!
//! It lies in a page of the session's memfd behind the layout, so nobody who maps the session maps the key, and no core dump has it.
//! The launcher and then the keeper, which outlives all members, hold that page locked; the keeper wipes it at the end. A member
//! reads it once, into locked memory of its own. Who may open the session may read the key: processes of the same user, and root,
//! all of whom may read the memory of the program itself.
//!
//! Not `memfd_secret(2)`, whose pages nobody has to lock: such a file cannot be opened again under /proc, and members have no other
//! way to it after an exec; nor has every kernel it.

use outpage_core::units::PAGE_BYTES;
use outpage_store::KEY_BYTES;
use outpage_sys::fd;
use outpage_sys::secret::LockedPage;

use super::{Layout, Session, SessionError, os, reopened};

/// Where the page starts, in bytes.
const PAGE_AT: u64 = size_of::<Layout>().next_multiple_of(PAGE_BYTES) as u64;
/// Where in the page the key starts. Before it is [`DRAWN`] once there is a key.
const KEY_AT: usize = 64;
/// `THEREKEY` in ASCII.
const DRAWN: [u8; 8] = *b"THEREKEY";

/// Bytes of the memfd.
pub(super) const FILE_BYTES: u64 = PAGE_AT + PAGE_BYTES as u64;

/// The key's page, locked in RAM as long as this value lives.
#[derive(Debug)]
pub struct HeldKey(LockedPage);

impl HeldKey {
    /// Overwrites the key, for no process needs it any more.
    pub fn wipe(self) {
        self.0.wipe();
    }
}

impl Session {
    /// Draws the key of this session's swap file: its pages will be encrypted.
    ///
    /// # Errors
    /// [`SessionError::Os`]: the page cannot be locked, or there is no random number.
    pub fn draw_key(&self) -> Result<HeldKey, SessionError> {
        let page = self.locked_page()?;
        let drawn = page.randomize(KEY_AT, KEY_BYTES);
        drawn.map_err(os("draw a key for the swap file"))?;
        let written = fd::pwrite(self.locks.number(), &DRAWN, PAGE_AT);
        written.map_err(os("write to the session"))?;
        Ok(HeldKey(page))
    }

    /// Keeps the key in RAM; `None` where the swap file is not encrypted.
    ///
    /// # Errors
    /// As [`Self::draw_key`].
    pub fn hold_key(&self) -> Result<Option<HeldKey>, SessionError> {
        let held = self.has_key().then(|| self.locked_page());
        Ok(held.transpose()?.map(HeldKey))
    }

    /// Whether the swap file is encrypted with a key of the session's.
    #[must_use]
    pub fn has_key(&self) -> bool {
        let mut mark = [0; DRAWN.len()];
        let read = fd::pread(self.locks.number(), &mut mark, PAGE_AT);
        read == Ok(DRAWN.len()) && mark == DRAWN
    }

    /// Puts the key into `key`, which should be locked; says whether there is one.
    ///
    /// # Errors
    /// [`SessionError::Os`].
    pub(crate) fn read_key(&self, key: &mut [u8; KEY_BYTES]) -> Result<bool, SessionError> {
        if !self.has_key() {
            return Ok(false);
        }
        let read = fd::pread(self.locks.number(), key, PAGE_AT + KEY_AT as u64);
        match read {
            Ok(KEY_BYTES) => Ok(true),
            Ok(_) => Err(SessionError::Foreign),
            Err(error) => Err(os("read the swap file's key")(error)),
        }
    }

    /// A mapping keeps its description, and so the locks on it, alive: this one has a description of its own.
    fn locked_page(&self) -> Result<LockedPage, SessionError> {
        let file = reopened(self.locks.number())?;
        LockedPage::of(file.number(), PAGE_AT).map_err(os("lock the swap file's key in RAM"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_reaches_whoever_opens_the_session_until_it_is_wiped() {
        let (session, file) = Session::create(4096, 1 << 30).unwrap();
        let mut key = [0; KEY_BYTES];
        assert_eq!(session.read_key(&mut key), Ok(false));
        assert!(session.hold_key().unwrap().is_none());
        let launcher = match session.draw_key() {
            Ok(held) => held,
            Err(error) => return eprintln!("SKIPPED: {error}"),
        };
        let keeper = Session::from_fd(file.number()).unwrap();
        let held = keeper.hold_key().unwrap().expect("a key");
        drop((launcher, session));
        let member = Session::from_fd(file.number()).unwrap();
        assert_eq!(member.read_key(&mut key), Ok(true));
        let mut again = [0; KEY_BYTES];
        assert_eq!(keeper.read_key(&mut again), Ok(true));
        assert_eq!(key, again);
        assert!(key.iter().filter(|&&byte| byte == 0).count() < 10, "random");
        held.wipe();
        assert!(!member.has_key());
        let mut page = [1; PAGE_BYTES];
        assert_eq!(fd::pread(file.number(), &mut page, PAGE_AT), Ok(PAGE_BYTES));
        assert_eq!(page, [0; PAGE_BYTES]);
    }

    #[test]
    fn two_runs_have_two_keys() {
        let draw = || {
            let (session, _) = Session::create(4096, 1 << 30).unwrap();
            let held = session.draw_key().ok()?;
            let mut key = [0; KEY_BYTES];
            assert_eq!(session.read_key(&mut key), Ok(true));
            drop(held);
            Some(key)
        };
        let (Some(one), Some(other)) = (draw(), draw()) else {
            return eprintln!("SKIPPED: no page can be locked");
        };
        assert_ne!(one, other);
    }
}
