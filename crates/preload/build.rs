//! Has the loader initialise the shim before all other libraries (`DF_1_INITFIRST`), and calls of libc that the pager's threads may make go to `src/plain.rs`.
//!
//! A library that the program is linked with may start threads in its constructor, as OpenBLAS does. While others run, entries of
//! several instructions cannot be patched.

/// Those that `src/plain.rs` defines.
const PLAIN: &[&str] = &[
    "mmap",
    "mmap64",
    "munmap",
    "madvise",
    "open64",
    "close",
    "read",
    "write",
    "lseek64",
    "ftruncate64",
    "fcntl",
    "fstat64",
    "stat64",
    "readlink",
    "unlink",
    "getpid",
    "syscall",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // Of this library alone: the names stay libc's for everybody else.
    for name in PLAIN {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--defsym={name}=outpage_plain_{name}");
    }
}
