//! Programs that were built with a sanitizer whose runtime maps memory by bare system calls.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// What such programs define or ask for, and what is built so: GCC and Clang, runtime shared or linked in.
const RUNTIMES: [(&[u8], &str); 5] = [
    (b"__asan_init", "AddressSanitizer"),
    (b"__hwasan_init", "HWAddressSanitizer"),
    (b"__tsan_init", "ThreadSanitizer"),
    (b"__msan_init", "MemorySanitizer"),
    (b"__lsan_init", "LeakSanitizer"),
];

/// Longest table of names that is read, in bytes. Large C++ programs have some MiB.
const NAMES_BYTES_MAX: u64 = 64 << 20;

/// A segment's place in the file and in memory: offset, address, length, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Where it begins in the file.
    pub offset: u64,
    /// Where it is mapped.
    pub address: u64,
    /// Its length in the file.
    pub bytes: u64,
}

// From <elf.h>.
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;

/// The sanitizer that `file` was built with, if one: its dynamic symbols tell. `dynamic` is its dynamic
/// section, `loads` are its mapped segments.
pub fn of(file: &File, dynamic: &[u8], loads: &[Segment]) -> Option<&'static str> {
    let value = |tag: u64| {
        let entries = dynamic.chunks_exact(16).map(|entry| {
            let (tag, value) = entry.split_at(8);
            (word(tag), word(value))
        });
        let mut found = entries.filter(|(found, _)| *found == tag);
        found.next().map(|(_, value)| value)
    };
    let (address, bytes) = (value(DT_STRTAB)?, value(DT_STRSZ)?.min(NAMES_BYTES_MAX));
    let inside = |s: &&Segment| (s.address..s.address.saturating_add(s.bytes)).contains(&address);
    let segment = loads.iter().find(inside)?;
    let mut names = vec![0; bytes as usize];
    let offset = address - segment.address + segment.offset;
    file.read_exact_at(&mut names, offset).ok()?;
    let mut names = names.split(|&byte| byte == 0);
    names.find_map(|name| {
        let runtime = RUNTIMES.iter().find(|(init, _)| *init == name);
        runtime.map(|(_, sanitizer)| *sanitizer)
    })
}

fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn runtimes_are_found_among_whole_names_only() {
        let found = |names: &[u8]| {
            let mut file = tempfile::tempfile().expect("file");
            file.write_all(&[b"....", names].concat()).expect("write");
            let mut dynamic = Vec::new();
            for number in [DT_STRSZ, names.len() as u64, DT_STRTAB, 0x1004] {
                dynamic.extend_from_slice(&number.to_le_bytes());
            }
            let load = Segment {
                offset: 0,
                address: 0x1000,
                bytes: 4096,
            };
            of(&file, &dynamic, &[load])
        };
        assert_eq!(found(b"\0malloc\0__tsan_init\0"), Some("ThreadSanitizer"));
        assert_eq!(found(b"\0malloc\0not__tsan_init\0__asan_init_v4\0"), None);
        assert_eq!(of(&tempfile::tempfile().expect("file"), &[], &[]), None);
    }
}
