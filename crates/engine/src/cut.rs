//! Shared memory of which a part was unmapped.
//!
//! The kernel keeps that part as long as the rest is mapped, and mremap(2), which maps more of it, shows it as it was. The pager lets go of what
//! is unmapped. So from then on the process cannot have shared anonymous memory grow, nor can its children, who got what was left.

use std::sync::atomic::{AtomicBool, Ordering};

use outpage_sys::raw::Errno;

use crate::live::Live;
use crate::sharing::is_shared_anonymous;

/// Of this process, or of one that it was forked from.
static CUT: AtomicBool = AtomicBool::new(false);

/// Whether a part of shared memory was unmapped, and forgotten, as far as the pager has heard.
pub(crate) fn is_cut() -> bool {
    CUT.load(Ordering::SeqCst)
}

impl Live {
    /// `start..end` is unmapped. Where it is a part of shared memory, its contents go, though the rest is mapped. What is unmapped piece by piece counts too.
    pub(crate) fn note_what_is_cut(&mut self, start: usize, end: usize) {
        for part in self.shared_parts(start, end) {
            let all = self.shared_parts(0, usize::MAX);
            let mut same = all.iter().filter(|other| other.view == part.view);
            if same.any(|other| other.start < start || end < other.end) {
                CUT.store(true, Ordering::SeqCst);
            }
        }
    }

    /// What [`crate::call::Call::MayGrow`] asks for.
    ///
    /// # Errors
    /// `ENOMEM` where the mapping could show what was forgotten, or the list of mappings cannot be read.
    pub(crate) fn may_grow(&mut self, addr: usize) -> Result<(), Errno> {
        self.attend_to_changes();
        if !is_cut() {
            return Ok(());
        }
        match self.of_mapping(addr, is_shared_anonymous) {
            Ok(Some(true)) | Err(_) => Err(Errno::ENOMEM),
            Ok(_) => Ok(()),
        }
    }
}
