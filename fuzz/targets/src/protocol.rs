//! Messages between a client of `outpage serve` and the server.

use std::sync::atomic::{AtomicU64, Ordering};

use outpage_wire::{Attributes, MESSAGE_BYTES_MAX, Reply, Request, attribute_bytes};

/// Pages of the object whose attributes are read: the last word has bits of no page.
const PAGES: u64 = 200;

/// Bytes as a request, as a reply and as the bits of an attribute object. What is read is written again as it was, and no page outside of the object is given up.
pub fn protocol(bytes: &[u8]) {
    let mut written = Vec::new();
    for descriptors in 0..3 {
        if let Ok((tag, request)) = Request::decode(bytes, descriptors) {
            request.encode(tag, &mut written);
            assert_eq!(written, bytes);
        }
        if let Ok((tag, reply)) = Reply::decode(bytes, descriptors) {
            reply.encode(tag, &mut written);
            assert_eq!(written, bytes);
            assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        }
    }
    let words: Vec<AtomicU64> = (0..attribute_bytes(PAGES) / 8)
        .map(|_| AtomicU64::new(0))
        .collect();
    let bits = &words[4096 / 8..];
    for (word, part) in bits.iter().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..part.len()].copy_from_slice(part);
        word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
    }
    let set: Vec<u64> = (0..PAGES)
        .filter(|page| bits[(page / 64) as usize].load(Ordering::Relaxed) >> (page % 64) & 1 == 1)
        .collect();
    let mut taken = Vec::new();
    Attributes::new(&words, PAGES).take(|first, pages| taken.extend(first..first + pages));
    assert_eq!(taken, set);
}
