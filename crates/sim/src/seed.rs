//! Numbers made of seeds.

/// A number that depends on both numbers in every bit (splitmix64: Steele, Lea and Flood, OOPSLA 2014).
#[must_use]
pub(crate) const fn mix(seed: u64, nth: u64) -> u64 {
    let mut z = seed
        .wrapping_mul(0xd134_2543_de82_ef95)
        .wrapping_add(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
