//! What this process has, as its kernel says.

use outpage_sys::own;

fn entries(of: &str) -> usize {
    std::fs::read_dir(of).expect("/proc").count()
}

pub fn threads() -> usize {
    entries("/proc/self/task")
}

pub fn descriptors() -> usize {
    entries("/proc/self/fd")
}

/// Bytes mapped for engines, but those of the arena, which keeps what it has.
pub fn own_bytes() -> usize {
    let mut bytes = 0;
    own::for_each(|start, end| bytes += end - start);
    bytes - super::ARENA.mapped_bytes()
}

/// Mappings of sessions and rings, and of whatever else has a descriptor and is no file on a disk.
pub fn file_mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let named = |line: &&str| line.contains("/memfd:") || line.contains("anon_inode:");
    maps.lines().filter(named).count()
}

pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.expect("a number of KiB") * 1024
}
