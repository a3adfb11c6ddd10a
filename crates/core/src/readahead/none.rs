//! No read-ahead: the faulted page and nothing else.

use alloc::boxed::Box;

use super::{Entry, ReadAhead, SlotView, Touch, Window};

pub(super) const ENTRY: Entry = Entry {
    name: "none",
    summary: "the faulted page alone",
    source: "NetBSD UVM; the floor of every comparison",
    needs_touches: false,
    little: None,
    settings: &[],
    at_most: &[],
    build: |_, _| Box::new(Nothing),
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
