//! No read-ahead: the faulted page and nothing else.

use alloc::boxed::Box;

use super::{Entry, Params, ReadAhead, SlotView, Touch, Window};

pub(super) const ENTRY: Entry = Entry {
    name: "none",
    summary: "the faulted page alone",
    source: "NetBSD UVM; the floor of every comparison",
    defaults: Params {
        max_window: 1,
        ..Params::DEFAULT
    },
    little: None,
    settings: &[],
    build: |_| Box::new(Nothing),
};

struct Nothing;

impl ReadAhead for Nothing {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn major_fault(&mut self, fault: &Touch, _: &dyn SlotView) -> Window {
        Window::one(fault.slot)
    }
}
