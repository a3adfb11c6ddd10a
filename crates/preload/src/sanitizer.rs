//! Whether this process runs with a sanitizer whose allocator and shadow ask the kernel without libc.
//!
//! Their memory comes and goes unseen, so it cannot be paged; and their runtimes patch libc as well.

use core::arch::asm;

/// The address of a function that a runtime has, as the loader resolved it; 0 without that runtime.
///
/// Each object file that names the function has to say that it may be missing, so that is said here.
macro_rules! address {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: reads this library's own table of addresses.
        unsafe {
            asm!(concat!(".weak ", $name),
                 concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"), out(reg) address,
                 options(nostack, pure, readonly, preserves_flags));
        }
        address
    }};
}

/// The sanitizer's name, if there is one.
pub fn name() -> Option<&'static str> {
    let runtimes = [
        (address!("__asan_init"), "AddressSanitizer"),
        (address!("__hwasan_init"), "HWAddressSanitizer"),
        (address!("__tsan_init"), "ThreadSanitizer"),
        (address!("__msan_init"), "MemorySanitizer"),
        (address!("__lsan_init"), "LeakSanitizer"),
    ];
    let present = runtimes.into_iter().find(|(address, _)| *address != 0);
    present.map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
