//! What a fork does to pages that are to be moved. One test only: a fork shares the pages of every
//! test that runs in the process at that moment.

mod common;

use common::{World, peek, poke};
use outpage_sys::map;
use outpage_sys::uffd::MoveOutcome::{Busy, Moved};

#[test]
fn pages_shared_by_fork_are_busy_until_they_are_made_exclusive() {
    let Some(world) = World::new(4) else { return };
    world.fill(4);
    let child = fork_idle_child();
    poke(world.page(2), 33);
    assert_eq!(world.out(0), [Busy, Busy, Moved, Busy]);
    assert!(map::make_exclusive(world.page(0)));
    assert_eq!(world.out::<2>(0), [Moved, Busy]);
    end_child(child);
    assert_eq!(
        world.out::<1>(1),
        [Busy],
        "the kernel does not notice that the child is gone"
    );
    assert!(map::make_exclusive(world.page(1)));
    assert_eq!(world.out::<1>(1), [Moved]);
    let found = [0, 1, 2].map(|index| peek(world.frame(index)));
    assert_eq!((found, peek(world.page(3))), ([1, 2, 33], 4));
}

/// Forks a child that does nothing until it is killed; returns its process id.
pub fn fork_idle_child() -> libc::pid_t {
    // SAFETY: the child only sleeps, by a function that may be called after fork in a threaded process.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        loop {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        }
    }
    child
}

/// Kills a child and waits until it is gone.
pub fn end_child(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: the child is this process's own; `status` is writable.
    unsafe {
        assert_eq!(libc::kill(child, libc::SIGKILL), 0);
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
    }
}
