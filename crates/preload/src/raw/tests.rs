use super::*;

/// Signals that the calling thread has blocked.
pub fn blocked() -> Vec<i32> {
    let mut mask = 0;
    let place = (&raw mut mask) as usize;
    // SAFETY: asks only; the kernel writes 8 bytes.
    unsafe { call(libc::SYS_rt_sigprocmask, [0, 0, place, 8, 0, 0]) };
    (1..=64)
        .filter(|signal| mask >> (signal - 1) & 1_u64 == 1)
        .collect()
}

/// Programs look at it behind calls that a hook made for them.
#[test]
fn an_error_is_a_number_and_errno_stays() {
    // SAFETY: the calling thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *errno = 4711 };
    // SAFETY: no such descriptor.
    let closed = unsafe { call(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]) };
    // SAFETY: the kernel refuses an address that is no page's.
    let (unmapped, mapped) = unsafe {
        (
            munmap(1, 4096),
            mmap(0, 0, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
        )
    };
    assert_eq!(closed, -(libc::EBADF as isize));
    assert_eq!([unmapped, mapped], [-(libc::EINVAL as isize); 2]);
    // SAFETY: as above.
    assert_eq!(unsafe { *errno }, 4711);
}

#[test]
fn every_signal_waits_and_the_mask_of_before_comes_back() {
    let mut own = 1_u64 << (libc::SIGUSR2 - 1);
    let mut before = 0;
    set_signals(&own, Some(&mut before));
    {
        let _outer = SignalsBlocked::new();
        let all: Vec<_> = (1..=64)
            .filter(|s| ![libc::SIGKILL, libc::SIGSTOP].contains(s))
            .collect();
        assert_eq!(blocked(), all, "also the two that glibc keeps for itself");
        drop(SignalsBlocked::new());
        assert_eq!(blocked(), all, "within another");
    }
    assert_eq!(blocked(), [libc::SIGUSR2]);
    set_signals(&before, Some(&mut own));
    assert_eq!(own, 1 << (libc::SIGUSR2 - 1));
}

/// A filter that has a call trapped would kill the program.
#[test]
fn signals_of_others_wait_and_own_ones_come() {
    let before = blocked();
    let signals = SignalsBlocked::of_others();
    assert_eq!(blocked().len(), 62 - OWN_SIGNALS.len());
    assert!(OWN_SIGNALS.iter().all(|own| !blocked().contains(own)));
    let all = SignalsBlocked::new();
    drop(SignalsBlocked::of_others());
    assert_eq!(blocked().len(), 62, "within another");
    drop(all);
    drop(signals);
    assert_eq!(blocked(), before);
}

#[test]
fn threads_are_told_apart() {
    // SAFETY: takes nothing.
    let own = unsafe { libc::pthread_self() } as usize;
    assert_eq!(thread_pointer(), own);
    let other = std::thread::spawn(thread_pointer).join().expect("ended");
    assert_ne!(other, own);
}
