//! Virtual time, and the driver that owns a pager.
