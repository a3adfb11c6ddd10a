//! The notifier, against a model of it, a mad guest and the guest in C.

mod area;
mod c;
mod model;
