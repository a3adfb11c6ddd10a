//! Each part on a ledger that the test lays out, with as few of the others as it takes.

mod eviction;
mod faults;
mod ranges;
mod rescue;
mod transfers;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::eviction::{Eviction, Taken};
use super::faults::Faults;
use super::transfers::Transfers;
use super::{Around, Ranges};
use crate::contract::{Access, Action, Source, Waiter};
use crate::pageout;
use crate::pager::ledger::Ledger;
use crate::pager::waits::Demand;
use crate::reclaim::SecondChance;
use crate::units::{PageNo, PageRange};

pub use crate::pager::ledger::tests::*;

fn eviction() -> Eviction {
    Eviction::new(Box::new(SecondChance::default()))
}

fn faults(zeroes: u32, rescued: u32) -> Faults {
    Faults::new(Around { zeroes, rescued })
}

/// Single pages, or chunks of 16.
fn transfers(pageout: &str, demand_first: u32) -> Transfers {
    let entry = pageout::find(pageout).expect("registered");
    Transfers::new((entry.build)(entry.params()), demand_first)
}

/// A read of the page by waiter 1, in an object of a thousand pages.
fn demand(page: PageNo) -> Demand {
    Demand {
        page,
        access: Access::Read,
        waiter: Waiter(1),
        source: Source(0),
        extent: range(0, 1000),
        retried: false,
    }
}

/// The runs of `actions` that map staged pages.
fn mapped(actions: &[Action]) -> Vec<PageRange> {
    let runs = actions.iter().filter_map(|action| match action {
        Action::Map { run, .. } => Some(*run),
        _ => None,
    });
    runs.collect()
}

/// The pages of the reads, writes or releases among `actions`, each by itself.
fn lists(actions: &[Action]) -> Vec<Vec<PageNo>> {
    let lists = actions.iter().map(|action| action.pages().to_vec());
    lists.filter(|pages| !pages.is_empty()).collect()
}

fn pages(indices: impl IntoIterator<Item = u64>) -> Vec<PageNo> {
    indices.into_iter().map(page).collect()
}

/// Resident pages until so many frames are left.
fn fill(ledger: &mut Ledger, left: usize) {
    let first = (1 << 20) + ledger.frames_used() as u64;
    let pages = ledger.frames_free() - left;
    lay(ledger, first..first + pages as u64, resident);
}
