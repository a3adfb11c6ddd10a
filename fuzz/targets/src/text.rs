//! Lines of /proc/self/maps, and machine code.

use std::ops::ControlFlow;

use outpage_sys::maps::{self, Mapping};

#[path = "../../../crates/preload/src/decode.rs"]
mod decode;

/// A list of mappings, handed out in pieces of any size.
pub fn maps(data: &[u8]) {
    for line in data.split(|&byte| byte == b'\n') {
        let Some(entry) = Mapping::parse(line) else {
            continue;
        };
        assert_eq!(entry.is_empty(), entry.len() == 0);
        let _ = (entry.kind(), entry.is_private_anonymous());
    }
    let Some((&size, text)) = data.split_first() else {
        return;
    };
    let mut left = text;
    let source = |space: &mut [u8]| {
        let count = space.len().min(left.len()).min(1 + size as usize);
        let (taken, rest) = left.split_at(count);
        space[..count].copy_from_slice(taken);
        left = rest;
        Ok(count)
    };
    let mut whole = Vec::new();
    let read = maps::for_each_from(source, &mut [0; 256], |entry| {
        whole.push((entry.start, entry.end));
        ControlFlow::Continue(())
    });
    if read.is_ok() {
        let ended = text
            .split_inclusive(|&byte| byte == b'\n')
            .filter(|line| line.ends_with(b"\n"));
        let expected: Option<Vec<_>> = ended
            .map(|line| Mapping::parse(line).map(|entry| (entry.start, entry.end)))
            .collect();
        assert_eq!(Some(whole), expected);
    }
}

/// An instruction lies within the bytes, and is the same whatever follows it.
pub fn code(data: &[u8]) {
    let mut rest = data;
    while let Some(found) = decode::decode(rest) {
        assert!((1..=rest.len().min(15)).contains(&found.len));
        if let Some(at) = found.rip_relative {
            assert!(at + 4 <= found.len);
        }
        assert_eq!(decode::decode(&rest[..found.len]), Some(found));
        rest = &rest[found.len..];
    }
}
