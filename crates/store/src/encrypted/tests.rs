use proptest::prelude::*;

use super::*;

/// The keys of IEEE 1619-2007, annex B, vectors 10 to 14: digits of e and pi.
const KEYS: &str = "2718281828459045235360287471352662497757247093699959574966967627\
                    3141592653589793238462643383279502884197169399375105820974944592";
/// The ciphertext of vector 10.
const VECTOR_10: &str = "\
     1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b5d31e276f8fe4a8d66b317f9ac683f44680a86ac35adfc33\
     45befecb4bb188fd5776926c49a3095eb108fd1098baec70aaa66999a72a82f27d848b21d4a741b0c5cd4d5fff9dac89aeba122961d03a75\
     7123e9870f8acf1000020887891429ca2a3e7a7d7df7b10355165c8b9a6d0a7de8b062c4500dc4cd120c0f7418dae3d0b5781c34803fa754\
     21c790dfe1de1834f280d7667b327f6c8cd7557e12ac3a0f93ec05c52e0493ef31a12d3d9260f79a289d6a379bc70c50841473d1a8cc81ec\
     583e9645e07b8d9670655ba5bbcfecc6dc3966380ad8fecb17b6ba02469a020a84e18e8f84252070c13e9f1f289be54fbc481457778f6160\
     15e1327a02b140f1505eb309326d68378f8374595c849d84f4c333ec4423885143cb47bd71c5edae9be69a2ffeceb1bec9de244fbe15992b\
     11b77c040f12bd8f6a975a44a0f90c29a9abc3d4d893927284c58754cce294529f8614dcd2aba991925fedc4ae74ffac6e333b93eb4aff04\
     79da9a410e4450e0dd7ae4c6e2910900575da401fc07059f645e8b7e9bfdef33943054ff84011493c27b3429eaedb4ed5376441a77ed4385\
     1ad77f16f541dfd269d50d6a5f14fb0aab1cbb4c1550be97f7ab4066193c4caa773dad38014bd2092fa755c824bb5e54c4f36ffda9fcea70\
     b9c6e693e148c151";

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

fn published() -> Cipher {
    Cipher::new(&bytes(KEYS).try_into().unwrap())
}

/// The plaintext of those vectors: 00 to ff, twice.
fn plaintext() -> Vec<u8> {
    (0..512_u32).map(|i| i as u8).collect()
}

#[test]
fn vector_10_of_the_standard() {
    let (cipher, mut unit) = (published(), plaintext());
    cipher.seal_blocks(unit.as_mut_slice().into(), 0xff);
    assert_eq!(unit, bytes(VECTOR_10));
    cipher.open_blocks(unit.as_mut_slice().into(), 0xff);
    assert_eq!(unit, plaintext());
}

/// First and last 16 bytes of vectors 11 to 14: data unit numbers of two to five bytes.
#[test]
fn vectors_11_to_14_of_the_standard() {
    for (unit, first, last) in [
        (
            0xffff,
            "77a31251618a15e6b92d1d66dffe7b50",
            "a4f9e27b42af8100cb9d59cef9645803",
        ),
        (
            0xff_ffff,
            "e387aaa58ba483afa7e8eb469778317e",
            "2263a1eef52dd6888c309f5a7d712826",
        ),
        (
            0xffff_ffff,
            "bf53d2dade78e822a4d949a9bc6766b0",
            "4c82f335abb152c4a93411373aaa8220",
        ),
        (
            0xff_ffff_ffff,
            "64497e5a831e4a932c09be3e5393376d",
            "d609d273ad5b0d59631c531f6a0a57b9",
        ),
    ] {
        let (cipher, mut data) = (published(), plaintext());
        cipher.seal_blocks(data.as_mut_slice().into(), unit);
        assert_eq!(data[..16], bytes(first), "{unit:#x}");
        assert_eq!(data[496..], bytes(last), "{unit:#x}");
        cipher.open_blocks(data.as_mut_slice().into(), unit);
        assert_eq!(data, plaintext(), "{unit:#x}");
    }
}

/// The last block of a whole page, by OpenSSL 3: the tweak goes on beyond the 32 blocks of the standard's vectors.
#[test]
fn the_end_of_a_page_is_as_another_library_has_it() {
    let mut page = [0; PAGE_BYTES];
    (0..PAGE_BYTES).for_each(|i| page[i] = (i * 7 + i / 256) as u8);
    published().seal_page(&mut page, SlotNo(0x1234_5678));
    assert_eq!(
        page[PAGE_BYTES - 16..],
        bytes("f1904b0f1a7d7689ce6d6c944bfc0f5b")
    );
}

/// Any key, any content.
fn cipher_and_page() -> impl Strategy<Value = (Cipher, [u8; PAGE_BYTES])> {
    (any::<[u64; 8]>(), any::<u64>(), any::<bool>()).prop_map(|(key, seed, dull)| {
        let mut bytes = [0; KEY_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(key) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        // Pages all alike must not show either.
        let byte = |i: usize| {
            if dull {
                seed as u8
            } else {
                (seed.wrapping_mul(i as u64 + 1) >> 23) as u8
            }
        };
        (Cipher::new(&bytes), std::array::from_fn(byte))
    })
}

/// Blocks of 16 bytes that two pages have in common at the same place.
fn common(a: &[u8; PAGE_BYTES], b: &[u8; PAGE_BYTES]) -> usize {
    let pairs = a.chunks(16).zip(b.chunks(16));
    pairs.filter(|(a, b)| a == b).count()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_encrypted_for_a_slot_comes_back_from_it_alone(
        (cipher, page) in cipher_and_page(), slot in any::<u32>(), other in any::<u32>()
    ) {
        let mut sealed = page;
        cipher.seal_page(&mut sealed, SlotNo(slot));
        prop_assert_eq!(common(&sealed, &page), 0);
        // No two blocks of a page are alike, even where their contents are.
        let mut blocks: Vec<_> = sealed.chunks(16).collect();
        blocks.sort_unstable();
        blocks.dedup();
        prop_assert_eq!(blocks.len(), PAGE_BYTES / 16);
        let mut back = sealed;
        cipher.open_page(&mut back, SlotNo(slot));
        prop_assert!(back == page);
        if other != slot {
            let mut elsewhere = page;
            cipher.seal_page(&mut elsewhere, SlotNo(other));
            prop_assert_eq!(common(&elsewhere, &sealed), 0, "the same content in two slots");
            let mut wrong = sealed;
            cipher.open_page(&mut wrong, SlotNo(other));
            prop_assert_eq!(common(&wrong, &page), 0, "another slot's page");
        }
    }

    #[test]
    fn another_key_does_not_decrypt((cipher, page) in cipher_and_page(), key in any::<u64>()) {
        let mut sealed = page;
        cipher.seal_page(&mut sealed, SlotNo(5));
        let mut other = [1; KEY_BYTES];
        other[..8].copy_from_slice(&key.to_le_bytes());
        Cipher::new(&other).open_page(&mut sealed, SlotNo(5));
        prop_assert_eq!(common(&sealed, &page), 0);
    }
}

/// One bit that changed on the disk makes its 16 bytes another block, and no other: the hash of the page tells.
#[test]
fn a_changed_bit_changes_its_block_alone() {
    let (cipher, page) = (published(), [7; PAGE_BYTES]);
    let mut sealed = page;
    cipher.seal_page(&mut sealed, SlotNo(1));
    sealed[100] ^= 4;
    cipher.open_page(&mut sealed, SlotNo(1));
    assert_eq!(common(&sealed, &page), PAGE_BYTES / 16 - 1);
    assert_ne!(sealed[96..112], page[96..112]);
}
