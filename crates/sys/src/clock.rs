//! Time, read through the vDSO.

use outpage_core::units::Nanos;

/// Nanoseconds of `CLOCK_MONOTONIC`: since boot, time suspended not counted.
#[must_use]
pub fn now() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of `CLOCK_BOOTTIME`: since boot, time suspended counted.
#[must_use]
pub fn since_boot() -> Nanos {
    read(libc::CLOCK_BOOTTIME)
}

/// For how long the threads of this process ran, those that are gone included. A system call.
#[must_use]
pub fn process_ran() -> Nanos {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// For how long the calling thread ran. A system call.
#[must_use]
pub fn thread_ran() -> Nanos {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable; glibc's wrapper calls the vDSO and keeps no state of its own.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// A span as the kernel wants it.
pub(crate) const fn timespec(span: Nanos) -> libc::timespec {
    libc::timespec {
        tv_sec: (span.0 / 1_000_000_000) as libc::time_t,
        tv_nsec: (span.0 % 1_000_000_000) as libc::c_long,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let first = now();
        assert!(first.0 > 0 && now() >= first);
    }

    #[test]
    fn a_thread_runs_no_longer_than_its_process() {
        let before = thread_ran();
        while thread_ran() <= before {}
        assert!(process_ran() >= before);
    }

    #[test]
    fn spans_split_into_seconds_and_nanoseconds() {
        let span = timespec(Nanos(2_000_000_007));
        assert_eq!((span.tv_sec, span.tv_nsec), (2, 7));
    }
}
