//! Threads for the store's pool, and the store's test wrappers.

use std::io;
use std::sync::Mutex;

use outpage_store::{FaultRates, Faulty, Spawner, SwapStore};
use outpage_sys::thread::{self, Options, Thread};

use crate::config::StoreFaults;

/// Starts threads that share memory and descriptors with the pager's thread. Dropping it waits for their end, which the store brings about.
///
/// A forked child, which has none of its parent's threads, must not drop it.
#[derive(Default)]
pub struct Workers {
    started: Mutex<Vec<Thread>>,
}

impl Drop for Workers {
    fn drop(&mut self) {
        let started = self.started.get_mut().map(std::mem::take);
        started
            .unwrap_or_default()
            .into_iter()
            .for_each(Thread::join);
    }
}

/// A pool worker calls pread and pwrite and little else.
const STACK_BYTES: usize = 64 << 10;

struct Job {
    run: extern "C" fn(*mut u8),
    argument: usize,
}

impl Spawner for Workers {
    fn spawn(&self, run: extern "C" fn(*mut u8), argument: *mut u8) -> io::Result<()> {
        let options = Options {
            name: c"outpage-io",
            stack_bytes: STACK_BYTES,
            share_files: true,
            process: false,
            untraced: false,
            known: !thread::is_bare(),
        };
        let job = Job {
            run,
            argument: argument.expose_provenance(),
        };
        let begin = |job: Job| (job.run)(std::ptr::with_exposed_provenance_mut(job.argument));
        let started = thread::spawn(begin, job, &options)
            .map_err(|e| io::Error::from_raw_os_error(e.number()))?;
        if let Ok(mut all) = self.started.lock() {
            all.push(started);
        }
        Ok(())
    }
}

/// `store`, failing as often as `faults` says.
pub fn with_faults(
    store: Box<dyn SwapStore + Send>,
    faults: StoreFaults,
) -> Box<dyn SwapStore + Send> {
    let rates = FaultRates {
        read_error: faults.read,
        write_error: faults.write,
        short_read: faults.short,
        short_write: faults.short,
        bad_page: faults.page,
        bit_flip: faults.flip,
        torn_write: faults.torn,
        no_space: faults.full,
    };
    Box::new(Faulty::new(store, faults.seed, rates))
}
