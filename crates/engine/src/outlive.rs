//! A pager in a process of its own, beside the program's: one that outlives it, and one that no debugger stops.
//!
//! A process that shares the memory of another (`CLONE_VM`, and neither a thread nor waited for as by vfork) may be there when that
//! one has ended or executed another program, and threads end with their process. So before such a process is made the pager
//! comes to rest, as for a fork, and goes on in a task of its own: a process without a name of its own for wait(2), which shares
//! the memory and the pager's descriptors, and ends when nobody else uses the memory any more.
//!
//! A tracer that is told of the program's threads, as a debugger is, stops all of them at a breakpoint. It would wait for those that wait for pages within the
//! kernel, which the pager brings no more. So where the pager's thread is traced when it begins, it goes on in a process that the tracer is not told of.
//!
//! The thread that it leaves behind watches it: a pager that dies takes the program along, never its pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use outpage_core::units::Nanos;
use outpage_store::Descriptors;
use outpage_sys::thread::{self, Options};
use outpage_sys::{launch, process, tasks};

use crate::engine::{STACK_BYTES, Shared};
use crate::live::{Live, Rest};
use crate::scope::Reach;
use crate::start::fatal;

/// How often the pager looks whether it is alone: a look costs 2 us a process of the machine.
const LOOK: Nanos = Nanos(1_000_000_000);
/// How often the thread that is left behind looks whether it is the last one of the program: as often as a pager in the program does.
const LAST_LOOK: Nanos = Nanos(100_000_000);
/// No status of wait(2).
const GOES_ON: i32 = -1;

/// How the program's first thread ended, once no other is left but the one that was left behind.
static ENDED_AS: AtomicI32 = AtomicI32::new(GOES_ON);

/// Whether the pager whose thread calls is to have a process of its own from the beginning: as the settings say, or where a tracer would stop it with the program
/// and no filter of system calls may want that tracer.
pub(crate) fn is_wanted(shared: &Shared) -> bool {
    shared.config.debuggable || tasks::is_traced(process::tid()) && !process::is_filtered()
}

/// On the pager's thread: hands the pager over, and watches it until the program ends. Where it cannot be handed over the program ends.
///
/// `slot` is of who asked for it.
pub(crate) fn move_out(shared: &Arc<Shared>, mut live: Box<Live>, slot: Option<usize>) -> ! {
    loop {
        live.attend_to_changes();
        live.quiesce_all();
        if live.world.is_calm() {
            break;
        }
    }
    ENDED_AS.store(GOES_ON, Ordering::SeqCst);
    live.outlives = Some(process::pid());
    process::outlives(Some(process::pid()));
    // The thread's own copy of the descriptors goes on to be used by both.
    let options = Options {
        name: c"outpage",
        stack_bytes: STACK_BYTES,
        share_files: true,
        process: true,
        untraced: false,
        known: false,
    };
    match thread::spawn(live_on, (live, slot, shared.clone()), &options) {
        Ok(task) => {
            shared.tid.store(task.tid().0, Ordering::SeqCst);
            while !task.ends_within(LAST_LOOK) {
                let status = ENDED_AS.load(Ordering::SeqCst);
                if status != GOES_ON {
                    launch::end_as(status);
                }
            }
            fatal(&["outpage: the pager ended before the program; the program ends"])
        }
        Err(error) => fatal(&[
            "outpage: cannot start a pager in a process of its own: ",
            error.text(),
            "; the program ends",
        ]),
    }
}

/// The life of the pager in its own process.
fn live_on((mut live, slot, shared): (Box<Live>, Option<usize>, Arc<Shared>)) {
    // SIGSTOP to all of a job would stop it beside threads that wait for their pages.
    process::leave_group();
    // Rings and workers belong to the process that made them.
    if let Err(error) = live.store.reopen_after_fork(Descriptors::Copied) {
        let text = error.to_string();
        fatal(&[
            "outpage: the pager cannot go on in a process of its own: ",
            &text,
        ]);
    }
    live.world.door.forget_threads();
    live.beside.forget(false);
    if let Some(slot) = slot {
        live.calls.answer(slot, 0);
        live.resolve_bell(slot);
    }
    loop {
        live = match live.run() {
            Rest::Fork(slot) => crate::fork::park(&shared, live, slot),
            // A whole process has neither: it ends instead.
            Rest::Close(_) | Rest::Failed(_) => live,
            Rest::Outlive(slot) => {
                live.calls.answer(slot, 0);
                live.resolve_bell(slot);
                live
            }
        };
    }
}

impl Live {
    /// Ends the program's process where its threads have all ended by themselves, without exit_group(2): the pager's would keep it. It ends as its
    /// first thread did; Linux 6.18 has it end as the last one, of which nothing is left to be seen.
    pub(crate) fn end_with_the_program(&mut self) {
        if self.world.failing.reach() != Reach::Process {
            return;
        }
        let Some(status) = tasks::first_ended() else {
            return;
        };
        // A thread that began during the first look is there at the second.
        if tasks::any_goes_on() || tasks::any_goes_on() {
            return;
        }
        if self.outlives.is_some() {
            // Whoever else uses the memory goes on.
            ENDED_AS.store(status, Ordering::SeqCst);
        } else if process::has_memory_alone() {
            self.pager.flush(true);
            launch::end_as(status);
        }
    }

    /// Ends the pager's own process when nobody else uses the memory: that is looked at now and then, and when its parent, the program, has ended.
    pub(crate) fn end_if_alone(&mut self, now: Nanos) {
        let Some(before) = self.outlives else {
            return;
        };
        let parent = process::parent();
        if now < self.next_look && before == parent {
            return;
        }
        self.outlives = Some(parent);
        self.next_look = Nanos(now.0 + LOOK.0);
        if process::has_memory_alone() {
            self.pager.flush(true);
            // An error leaves the entry to whoever next looks for the dead, and so does what is given back beside: others may have it when that is done.
            if !self.beside.is_busy() {
                let _ = self.session.leave();
            }
            process::exit();
        }
    }
}
