//! The preloaded library: it finds a program's memory and hands it to the engine.
//!
//! | module | what |
//! |---|---|
//! | `lifecycle` | the constructor, and the start of the pager |
//! | `bind` | the shim's own references to libc |
//! | `patch`, `elf`, `decode` | how the hooks get into libc, and why that way |
//! | `hooks` | the hooks: libc's functions as the program calls them |
//! | `memory` | what they do with memory, by mode |
//! | `mode` | direct, starting, managed |
//! | `order` | one change of the address space at a time |
//! | `budget`, `share` | what direct mode counts, and what the session lends |
//! | `fork`, `exec` | processes that come from this one |
//! | `threads` | threads that begin and end, and the CPUs that they may use |
//! | `checked` | the program's pointers, before hooks follow them |
//! | `target` | programs into which the shim cannot follow |
//! | `apart` | work that needs descriptors of its own |
//! | `status` | what the kernel says of a descriptor |
//! | `files` | files of RAM that are paged |
//! | `pins` | pages that a device writes |
//! | `refs` | pages that the kernel holds without pinning them |
//! | `loaded` | the memory of the program's own files |
//! | `jvm` | an agent of the Java virtual machine; what programs may call |
//! | `trace` | what the hooks saw, for tests |
//!
//! Rules for every hook: no allocation on any heap, no lock held while the program's memory is
//! touched, no thread-local, and `errno` exactly as libc leaves it. No symbol is exported but those of `jvm`.

use outpage_sys::arena::Arena;

mod apart;
mod bind;
mod budget;
mod checked;
mod decode;
mod elf;
mod exec;
mod files;
mod fork;
mod hooks;
mod jvm;
mod lifecycle;
mod loaded;
mod memory;
mod mode;
mod order;
mod patch;
mod pins;
mod plain;
mod raw;
mod refs;
mod sanitizer;
mod share;
mod statm;
mod status;
mod target;
mod tasks;
mod threads;
mod trace;
mod words;
mod zero;

/// Memory of the shim and the pager, which the pager never manages.
#[global_allocator]
#[unsafe(link_section = "outpage_forks")]
static ARENA: Arena = Arena::new().or_die(
    "outpage: the kernel gives the pager no memory: too many mappings (vm.max_map_count) or too little \
     address space (ulimit -v) or data (ulimit -d); the program ends",
);
