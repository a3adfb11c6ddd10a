//! The pager chooses where a thread wakes that waited for a page. Nothing of that is left, neither to the thread nor to what it begins.

use std::thread;
use std::time::{Duration, Instant};

use outpage::{Builder, Error};
use outpage_sys::process::{self, CpuSet, Tid};
use outpage_sys::tasks::{self, Scheduling};

use crate::{A_PAGE, WITHIN, fill, value};

const TOUCHES: usize = 6000;
/// Of so many touches one is followed by a thread at once.
const THREAD_EACH: usize = 25;
/// A pager that was interrupted gives back when it goes on.
const PATIENCE: Duration = Duration::from_secs(20);

type Chosen = (CpuSet, Option<Scheduling>);

fn own() -> Chosen {
    let cpus = process::affinity(Tid(0)).expect("CPUs");
    (cpus, tasks::scheduling(process::tid()))
}

/// What the caller has, once that is what is expected, or in the end.
fn soon(expected: Chosen) -> Chosen {
    let began = Instant::now();
    while own() != expected && began.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    own()
}

/// Threads that are begun between faults may run where the one that faults may.
pub fn begins_threads(builder: Builder) -> Result<(), Error> {
    let expected = own();
    let pager = builder.set("readahead", "none").open()?;
    let mut region = pager.zeros::<u64>(4 * WITHIN)?;
    fill(&mut region, 1);
    let (mut random, mut begun) = (1_usize, Vec::new());
    for touch in 0..TOUCHES {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let at = (random >> 33) % (region.len() / A_PAGE) * A_PAGE;
        assert_eq!(region[at], value(at, 1));
        if touch % THREAD_EACH == 0 {
            begun.push(thread::spawn(move || soon(expected)));
        }
    }
    assert!(pager.stats()?.major_faults > TOUCHES as u64 / 2);
    for thread in begun {
        assert_eq!(thread.join().expect("no panic"), expected);
    }
    assert_eq!(soon(expected), expected);
    Ok(())
}
