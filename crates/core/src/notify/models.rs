//! Every order in which host and guest can take their steps, up to a number of interruptions.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::layout::AT_LOST;
use super::{Guest, Host, Layout, Word};

extern crate std;

/// The same words, whose steps the model checker orders.
impl Word for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
}

/// An area in which only the words that are used here are words of the checker's: it would take too long with
/// a page of others.
struct Area(std::vec::Vec<Cell>);

enum Cell {
    Modelled(AtomicU32),
    Plain(core::sync::atomic::AtomicU32),
}

impl Word for Cell {
    fn load(&self, order: Ordering) -> u32 {
        match self {
            Self::Modelled(word) => word.load(order),
            Self::Plain(word) => word.load(order),
        }
    }
    fn store(&self, value: u32, order: Ordering) {
        match self {
            Self::Modelled(word) => word.store(value, order),
            Self::Plain(word) => word.store(value, order),
        }
    }
}

impl Area {
    /// Heads, count of lost entries, tails, the first two entries of both rings, the bits.
    fn new(layout: Layout) -> Self {
        let (out, back) = (layout.out_ring(), layout.in_ring());
        let used = [
            out.head,
            back.head,
            AT_LOST,
            out.tail,
            back.tail,
            out.start,
            out.start + 1,
            back.start,
            back.start + 1,
            layout.bits(),
        ];
        let cell = |at| match used.contains(&at) {
            true => Cell::Modelled(AtomicU32::new(0)),
            false => Cell::Plain(core::sync::atomic::AtomicU32::new(0)),
        };
        Self((0..layout.words() as u32).map(cell).collect())
    }
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

/// What the guest believes is what holds, once it has drained after the host's last word.
fn agree(full: bool) {
    let layout = Layout::new(2, 16).expect("a sound layout");
    let area = Arc::new(Area::new(layout));
    let mut host = Host::new(&area.0, layout).expect("an area");
    let mut guest = Guest::attach(&area.0).expect("a made area");
    if full {
        // As if the guest had not read sixteen entries: not one fits.
        super::write(
            &area.0,
            layout.out_ring().tail,
            0_u32.wrapping_sub(16),
            Ordering::Release,
        );
    }
    let theirs = Arc::clone(&area);
    let tells = thread::spawn(move || {
        host.paged_out(&theirs.0, 0);
        host.paged_in(&theirs.0, 0);
        host.paged_out(&theirs.0, 0);
        host.paged_out(&theirs.0, 1);
        host.paged_in(&theirs.0, 1);
    });
    let mut believes = [false; 2];
    guest.drain(&area.0, |frame, out| believes[frame as usize] = out);
    tells.join().expect("the host goes on");
    guest.drain(&area.0, |frame, out| believes[frame as usize] = out);
    assert_eq!(believes, [true, false]);
}

#[test]
fn what_is_believed_is_what_holds() {
    model(|| agree(false));
}

#[test]
fn what_is_believed_is_what_holds_when_entries_are_lost() {
    model(|| agree(true));
}
