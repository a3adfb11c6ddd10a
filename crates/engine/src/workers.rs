//! Threads for the store's pool, and the store's test wrappers.

use std::io;

use outpage_store::{FaultRates, Faulty, Spawner, SwapStore};
use outpage_sys::thread::{self, Options};

use crate::config::StoreFaults;

/// Starts threads that share memory and descriptors with the pager's thread.
pub struct Workers;

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
        };
        let job = Job {
            run,
            argument: argument.expose_provenance(),
        };
        let begin = |job: Job| (job.run)(std::ptr::with_exposed_provenance_mut(job.argument));
        // It ends with the process: nobody joins it.
        thread::spawn(begin, job, &options)
            .map(drop)
            .map_err(|e| io::Error::from_raw_os_error(e.number()))
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
