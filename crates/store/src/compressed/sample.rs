//! Whether a page is worth compressing, told from a few of its words.
//!
//! A page of random or compressed bytes costs a codec most of a microsecond for nothing. Bytes that it cannot make less of have their highest
//! bits set as often as not, and hardly a word twice.

use outpage_core::units::PAGE_BYTES;

/// Words of 64 bits that are looked at, one in each 64 bytes: from each cache line one, in all eight places.
const SAMPLES: usize = PAGE_BYTES / 64;
/// Of the highest bits of their bytes random ones have half set, 256 with a standard deviation of 11.3 (binomial). Five of these off are
/// no accident.
const HIGH_BITS: std::ops::RangeInclusive<u32> = 200..=312;
/// Halves of words in whose place another one was: among 128 random ones in 4096 places 2 as a rule, 8 once in 1000 pages (Poisson).
const SEEN_MIN: u32 = 8;
/// Bits of the table of places, by words of 64.
const PLACES_LOG: u32 = 12;

/// Whether the page looks as if a codec would make it smaller. Does not depend on the codec.
pub(super) fn worth_it(page: &[u8; PAGE_BYTES]) -> bool {
    let (lines, _) = page.as_chunks::<64>();
    let words: [u64; SAMPLES] = std::array::from_fn(|line| {
        let (words, _) = lines[line].as_chunks::<8>();
        u64::from_le_bytes(words[line % 8])
    });
    let set = |word: &u64| (word & 0x8080_8080_8080_8080).count_ones();
    let high: u32 = words.iter().map(set).sum();
    !HIGH_BITS.contains(&high) || seen_twice(&words) >= SEEN_MIN
}

/// How many halves of the words have their place in a table from one before. Both halves: an address repeats in its upper one, a number
/// in its lower one, and what repeats at a distance may meet one of them never.
fn seen_twice(words: &[u64; SAMPLES]) -> u32 {
    let mut places = [0_u64; 1 << (PLACES_LOG - 6)];
    let mut twice = 0;
    for half in words
        .iter()
        .flat_map(|word| [*word as u32, (word >> 32) as u32])
    {
        // The multiplier of Fibonacci hashing, 2^32 by the golden ratio.
        let place = half.wrapping_mul(0x9e37_79b9) >> (32 - PLACES_LOG);
        let (bits, bit) = (&mut places[place as usize / 64], 1 << (place % 64));
        twice += u32::from(*bits & bit != 0);
        *bits |= bit;
    }
    twice
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fill, page};
    use super::*;

    #[test]
    fn random_pages_are_not_worth_it() {
        let worth = (0..10_000).filter(|n| worth_it(&page(*n, 0, PAGE_BYTES)));
        let taken = worth.count();
        assert!(taken < 50, "{taken} of 10,000");
    }

    #[test]
    fn pages_with_zeroes_repeated_words_or_text_are() {
        for n in 0..1000 {
            assert!(worth_it(&page(n, 0, 3000)), "a quarter of zeroes");
            let mut page = [0; PAGE_BYTES];
            for (at, chunk) in page.chunks_mut(16).enumerate() {
                fill((u64::from(n) << 8) | (at as u64 % 20), chunk);
            }
            assert!(worth_it(&page), "twenty random pieces again and again");
            page.iter_mut().for_each(|byte| *byte = b' ' + *byte % 90);
            assert!(worth_it(&page), "text");
        }
    }
}
