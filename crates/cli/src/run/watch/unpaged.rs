//! Memory in RAM that the limit does not hold: what is shared, huge, or private without a pager to take it.

use std::cmp::Ordering;

use outpage_engine::session::Session;
use outpage_sys::kcmp;

use super::tree::{self, Resident};
use crate::run::shim;

/// Private memory that each process may have beside the limit (docs/run.md, "Memory overhead"): up to 4 MiB of one
/// that has not joined.
const PROCESS_BYTES: u64 = 4 << 20;
/// Less than this of anything is not worth a word, nor an exact look: what small programs have in shared
/// memory and huge pages comes to nothing or to more.
pub const NOTABLE_BYTES: u64 = 1 << 20;

/// Bytes in RAM at one look, or the most of each at any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unpaged {
    /// All of the program's memory, files that are only read left out.
    pub resident: u64,
    /// What is not paged: the next four together.
    pub all: u64,
    /// Shared memory.
    pub shared: u64,
    /// Huge pages.
    pub huge: u64,
    /// Private memory of processes that the library did not reach: static, set-user-id, another libc.
    pub unlimited: u64,
    /// Other private memory beyond what the session lent: main threads' stacks, changed pages of files,
    /// processes that the library left alone.
    pub private: u64,
}

impl Unpaged {
    /// Names and values of what is not paged.
    pub const fn kinds(&self) -> [(&'static str, u64); 4] {
        [
            ("shared", self.shared),
            ("huge", self.huge),
            ("unlimited", self.unlimited),
            ("private", self.private),
        ]
    }

    /// Takes the larger of each.
    pub fn raise(&mut self, other: &Self) {
        self.resident = self.resident.max(other.resident);
        self.all = self.all.max(other.all);
        self.shared = self.shared.max(other.shared);
        self.huge = self.huge.max(other.huge);
        self.unlimited = self.unlimited.max(other.unlimited);
        self.private = self.private.max(other.private);
    }

    /// `bytes` of the shared memory are paged, and part of the limit.
    fn without_paged(self, bytes: u64) -> Self {
        let paged = bytes.min(self.shared);
        Self {
            shared: self.shared - paged,
            all: self.all - paged,
            ..self
        }
    }

    /// The smaller of each: what lasted from one look to the next.
    fn lasting(&self, other: &Self) -> Self {
        Self {
            resident: self.resident.min(other.resident),
            all: self.all.min(other.all),
            shared: self.shared.min(other.shared),
            huge: self.huge.min(other.huge),
            unlimited: self.unlimited.min(other.unlimited),
            private: self.private.min(other.private),
        }
    }
}

/// Looks at a tree's memory again and again.
#[derive(Debug, Default)]
pub struct Looks {
    last: Unpaged,
    peak: Unpaged,
}

impl Looks {
    /// Looks at processes `pids` of `session`.
    pub fn look(&mut self, session: &Session, pids: &[u32]) {
        // A program gone wrong may have written any number there.
        let page = outpage_core::units::PAGE_BYTES as u64;
        let lent = session.reserved_pages().saturating_mul(page);
        let totals = session.totals();
        let lent = lent.saturating_add(totals.overhead_bytes);
        let paged = totals.shared_pages.saturating_mul(page);
        let mut seen = Vec::new();
        for pid in with_memory_of_their_own(pids) {
            seen.extend(tree::resident(pid).map(|memory| (pid, memory)));
        }
        let allowed = lent.saturating_add(PROCESS_BYTES * seen.len() as u64);
        let now = if needs_care(&seen, allowed, paged > 0) {
            carefully(&seen, lent)
        } else {
            summed(&seen)
        };
        let now = now.without_paged(paged);
        // A child of vfork has its parent's memory until it executes a program: twice the same.
        self.peak.raise(&now.lasting(&self.last));
        self.last = now;
    }

    /// The most of each that lasted from one look to the next.
    pub const fn peak(&self) -> Unpaged {
        self.peak
    }
}

/// Of processes that use the same memory the first: a pager in a process of its own has the program's. Where the kernel does not tell, all.
fn with_memory_of_their_own(pids: &[u32]) -> Vec<u32> {
    let mut ordered: Vec<u32> = Vec::with_capacity(pids.len());
    let mut own = Vec::with_capacity(pids.len());
    for &pid in pids {
        let order = |&other: &u32| kcmp::memory(other, pid).unwrap_or(Ordering::Less);
        if let Err(at) = ordered.binary_search_by(order) {
            ordered.insert(at, pid);
            own.push(pid);
        }
    }
    own
}

/// Whether pages that several processes have, or that one has mapped several times, must be told from others, and who has what. Shared memory that is `paged` may
/// be mapped several times: a collector of Java's has its heap so.
fn needs_care(seen: &[(u32, Resident)], allowed: u64, paged: bool) -> bool {
    let sum = |part: fn(&Resident) -> u64| seen.iter().map(|(_, m)| part(m)).sum::<u64>();
    let several = (seen.len() > 1 || paged) && sum(|m| m.shared + m.huge) >= NOTABLE_BYTES;
    several || sum(|m| m.anonymous) > allowed
}

/// Where all is small or one process's: private memory is as the limit has it.
fn summed(seen: &[(u32, Resident)]) -> Unpaged {
    let sum = |part: fn(&Resident) -> u64| seen.iter().map(|(_, m)| part(m)).sum::<u64>();
    let (shared, huge) = (sum(|m| m.shared), sum(|m| m.huge));
    Unpaged {
        resident: sum(|m| m.anonymous) + shared + huge,
        all: shared + huge,
        shared,
        huge,
        ..Unpaged::default()
    }
}

/// Of pages that several have, each its part; private memory is that beyond what was `lent`.
fn carefully(seen: &[(u32, Resident)], lent: u64) -> Unpaged {
    let (mut at, mut managed, mut processes, mut huge_shared) = (Unpaged::default(), 0, 0, 0);
    for &(pid, plain) in seen {
        let memory = tree::proportional(pid).unwrap_or(plain);
        at.shared += memory.shared;
        at.huge += memory.huge - memory.huge_shared;
        huge_shared = memory.huge_shared.max(huge_shared);
        // What cannot be looked into has another identity, and the loader keeps the library out of it.
        if tree::has_library(pid, shim::NAME).unwrap_or(false) {
            managed += memory.anonymous;
            processes += 1;
        } else {
            at.unlimited += memory.anonymous.saturating_sub(PROCESS_BYTES);
        }
    }
    at.huge += huge_shared;
    at.private = managed.saturating_sub(lent.saturating_add(processes * PROCESS_BYTES));
    at.all = at.shared + at.huge + at.unlimited + at.private;
    at.resident = managed + at.shared + at.huge + at.unlimited;
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_process_has_is_summed() {
        let memory = Resident {
            anonymous: 40 << 20,
            shared: 300 << 20,
            ..Resident::default()
        };
        let seen = [(1, memory)];
        assert!(!needs_care(&seen, 64 << 20, false));
        assert!(needs_care(&seen, 39 << 20, false) && needs_care(&seen, 64 << 20, true));
        assert!(needs_care(
            &[(1, memory), (2, Resident::default())],
            64 << 20,
            false
        ));
        let all = summed(&seen);
        assert_eq!((all.resident, all.all), (340 << 20, 300 << 20));
        assert_eq!(all.kinds()[0], ("shared", 300 << 20));
    }

    #[test]
    fn every_memory_is_looked_at_once() {
        let mut children: Vec<_> = (0..3)
            .map(|_| {
                std::process::Command::new("sleep")
                    .arg("60")
                    .spawn()
                    .expect("sleep")
            })
            .collect();
        let pids: Vec<u32> = children.iter().map(std::process::Child::id).collect();
        let twice = [&pids[..], &pids[..]].concat();
        assert_eq!(with_memory_of_their_own(&pids), pids);
        assert_eq!(with_memory_of_their_own(&twice), pids);
        for child in &mut children {
            child.kill().expect("kill");
            child.wait().expect("wait");
        }
    }

    #[test]
    fn shared_memory_that_is_paged_is_in_ram_and_not_beside_the_limit() {
        let seen = Unpaged {
            resident: 90,
            all: 60,
            shared: 50,
            huge: 10,
            ..Unpaged::default()
        };
        let some = seen.without_paged(30);
        assert_eq!((some.resident, some.all, some.shared), (90, 30, 20));
        // A count that is a moment old.
        let more = seen.without_paged(70);
        assert_eq!((more.all, more.shared, more.huge), (10, 0, 10));
    }

    #[test]
    fn what_lasts_for_one_look_is_no_peak() {
        let [small, large] = [1, 9].map(|all| Unpaged {
            all,
            ..Unpaged::default()
        });
        assert_eq!(large.lasting(&small), small);
        let mut peak = small;
        peak.raise(&large);
        assert_eq!(peak, large);
    }
}
