//! Threads that fault where nothing is known, again and again.
//!
//! Such a fault is a race as a rule: the range was unmapped meanwhile, or is new and was not told of yet. The thread faults anew and goes on. One that does not
//! would fault for ever.

use outpage_core::units::Nanos;
use outpage_sys::process::Tid;

/// How long a thread may fault at one page, of which nothing is known, before that is no race any more. A choice.
const ASTRAY_MAX: Nanos = Nanos(5_000_000_000);
/// Who does not fault there for so long has gone on meanwhile: a thread that is woken faults again as soon as it has a CPU. A choice.
const GONE_ON_AFTER: Nanos = Nanos(1_000_000_000);

/// A thread that may be one.
pub(crate) struct Astray {
    tid: Tid,
    page: usize,
    since: Nanos,
    last: Nanos,
}

impl Astray {
    /// Nobody is.
    pub(crate) const fn nobody() -> Self {
        Self {
            tid: Tid(0),
            page: 0,
            since: Nanos(0),
            last: Nanos(0),
        }
    }

    /// `tid` faults at `page`, of which nothing is known. Whether it did nothing else for too long.
    pub(crate) fn strays(&mut self, tid: Tid, page: usize, now: Nanos) -> bool {
        let is_recent = self.page != 0 && now.0.saturating_sub(self.last.0) <= GONE_ON_AFTER.0;
        if is_recent && self.tid == tid && self.page == page {
            self.last = now;
            return now.0 - self.since.0 > ASTRAY_MAX.0;
        }
        // Of several the first one is watched as long as it is astray.
        if !is_recent || self.tid == tid {
            *self = Self {
                tid,
                page,
                since: now,
                last: now,
            };
        }
        false
    }

    /// `tid` has come to something that is known.
    pub(crate) fn goes_on(&mut self, tid: Tid) {
        if self.tid == tid {
            self.page = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 0x7000_0000;
    const STEP: u64 = 100_000_000;

    /// Whether somebody is astray after ten seconds of faults, of which `fault` says who and where.
    fn after_ten_seconds(fault: impl Fn(u64, &mut Astray, Nanos) -> bool) -> bool {
        let mut astray = Astray::nobody();
        (1..=100).any(|n| fault(n, &mut astray, Nanos(n * STEP)))
    }

    #[test]
    fn who_faults_at_one_page_for_ever_is_and_others_do_not_hide_it() {
        assert!(after_ten_seconds(|_, a, now| a.strays(Tid(1), PAGE, now)));
        assert!(after_ten_seconds(|n, a, now| {
            a.strays(Tid(1 + (n % 3) as u32), PAGE, now)
        }));
    }

    #[test]
    fn who_goes_on_in_between_is_not_though_it_comes_back_to_the_page() {
        assert!(!after_ten_seconds(|n, a, now| {
            if n.is_multiple_of(40) {
                a.goes_on(Tid(1));
            }
            a.strays(Tid(1), PAGE, now)
        }));
        let rarely =
            |n: u64, a: &mut Astray, now| n.is_multiple_of(20) && a.strays(Tid(1), PAGE, now);
        assert!(!after_ten_seconds(rarely), "once in two seconds");
        assert!(!after_ten_seconds(|n, a, now| {
            a.strays(Tid(1), PAGE + (n % 2) as usize * 4096, now)
        }));
        // Each time another thread: nobody is at one page for long.
        assert!(!after_ten_seconds(|n, a, now| {
            let tid = Tid(n as u32);
            let strays = a.strays(tid, PAGE, now);
            a.goes_on(tid);
            strays
        }));
    }
}
