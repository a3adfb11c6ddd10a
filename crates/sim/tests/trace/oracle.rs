//! Import and export of oracleGeneral.

use outpage_core::contract::Access;
use outpage_sim::trace::{Error, OracleReader, OracleRecord, Why, write_oracle};
use proptest::prelude::*;

use crate::reference;

fn export(pages: &[(u64, u64)]) -> Vec<u8> {
    let references = pages
        .iter()
        .map(|&(index, gap)| reference(0, index, Access::Write, gap));
    let mut bytes = Vec::new();
    let records = write_oracle(references, 4096, &mut bytes).expect("memory takes all");
    assert_eq!(records, pages.len() as u64);
    bytes
}

fn records(bytes: &[u8]) -> Result<Vec<OracleRecord>, Error> {
    OracleReader::new(bytes).collect()
}

fn why(bytes: &[u8]) -> (u64, Why) {
    match records(bytes) {
        Err(Error::Unreadable { offset, why }) => (offset, why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_bytes_are_libcachesims() {
    let bytes = export(&[(7, 1_500_000_000), (9, 0), (7, 600_000_000)]);
    let expected: Vec<u8> = [
        (1u32, 7u64, 4096u32, 2i64),
        (1, 9, 4096, -1),
        (2, 7, 4096, -1),
    ]
    .iter()
    .flat_map(|(time, object, size, next)| {
        let mut record = time.to_le_bytes().to_vec();
        record.extend(object.to_le_bytes());
        record.extend(size.to_le_bytes());
        record.extend(next.to_le_bytes());
        record
    })
    .collect();
    assert_eq!(bytes, expected);
}

#[test]
fn a_broken_trace_is_refused_at_its_record() {
    let bytes = export(&[(7, 0), (9, 2_000_000_000), (7, 0)]);
    assert_eq!(why(&bytes[..30]), (24, Why::Truncated));
    let mut behind = bytes.clone();
    behind[40] = 1;
    behind[41..48].fill(0);
    assert_eq!(
        why(&behind),
        (24, Why::Corrupt),
        "the next reference is itself"
    );
    let mut back = bytes.clone();
    back[48] = 1;
    assert_eq!(why(&back), (48, Why::Corrupt), "time goes back");
    let mut far = bytes;
    far[40..48].copy_from_slice(&i64::MAX.to_le_bytes());
    assert_eq!(records(&far).expect("never, in other words")[1].next, None);
}

proptest! {
    #[test]
    fn references_come_back(pages in prop::collection::vec((0u64..30, 0u64..3), 0..100)) {
        let gaps: Vec<(u64, u64)> = pages.iter().map(|&(page, gap)| (page, gap * 1_000_000_000)).collect();
        let bytes = export(&gaps);
        let found: Vec<(u64, u64)> = OracleReader::new(&bytes[..])
            .references()
            .map(|reference| reference.expect("a whole trace"))
            .map(|reference| (reference.page.index(), reference.gap.0))
            .collect();
        // The time before the first reference is nobody's.
        let mut expected = gaps.clone();
        if let Some(first) = expected.first_mut() {
            first.1 = 0;
        }
        prop_assert_eq!(found, expected);
        for (at, record) in records(&bytes).expect("a whole trace").iter().enumerate() {
            let later = pages[at + 1..].iter().position(|&(page, _)| page == record.object);
            prop_assert_eq!(record.next, later.map(|ahead| (at + 1 + ahead) as u64));
        }
    }

    #[test]
    fn broken_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let whole = bytes.len() / 24;
        prop_assert!(OracleReader::new(&bytes[..]).count() <= whole + 1);
    }
}
