//! Has the loader initialise the shim before all other libraries (`DF_1_INITFIRST`).
//!
//! A library that the program is linked with may start threads in its constructor, as OpenBLAS does. While others run, entries of
//! several instructions cannot be patched.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
