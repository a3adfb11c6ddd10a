//! Traces: what is written comes back, what is broken is refused, other formats go in and out.

mod format;
mod lackey;
mod oracle;
mod replayed;

use outpage_core::contract::Access;
use outpage_core::units::{Nanos, ObjectId, PageNo};
use outpage_sim::trace::{Error, Header, Reader, Recorded, Reference, Run, Writer};
use proptest::prelude::*;

fn header() -> Header {
    Header {
        page_bytes: 4096,
        recorded: Recorded::Filtered { resident: 256 },
        program: "sor 8000 × 8000".to_owned(),
    }
}

fn encode(references: &[Reference]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).expect("the header fits");
    for &reference in references {
        writer.reference(reference).expect("memory takes all");
    }
    writer.finish().expect("memory takes all")
}

fn runs(bytes: &[u8]) -> Result<Vec<Run>, Error> {
    Reader::new(bytes)?.collect()
}

fn decode(bytes: &[u8]) -> Result<Vec<Reference>, Error> {
    Ok(runs(bytes)?.into_iter().flat_map(Run::references).collect())
}

fn reference(object: u32, index: u64, access: Access, gap: u64) -> Reference {
    Reference {
        page: PageNo::new(ObjectId(object), index),
        access,
        gap: Nanos(gap),
    }
}

/// References of all kinds: neighbours, jumps, several objects, the largest numbers.
fn references() -> impl Strategy<Value = Vec<Reference>> {
    // The last object is left to a test of its own: a range of the last page of all has no end.
    let object = prop_oneof![4 => 0u32..3, 1 => Just((1u32 << 28) - 2)];
    let index = prop_oneof![6 => 0u64..20, 2 => 0u64..100_000, 1 => Just((1u64 << 36) - 1)];
    let gap = prop_oneof![6 => Just(100u64), 2 => 0u64..10_000, 1 => Just(u64::MAX)];
    let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
    let single = (object, index, access, gap)
        .prop_map(|(object, index, access, gap)| vec![reference(object, index, access, gap)]);
    let run =
        (0u32..3, 50u64..60, -1i64..2, 1u64..40).prop_map(|(object, start, stride, count)| {
            let index = |at: u64| start.wrapping_add_signed(stride * at as i64);
            (0..count)
                .map(|at| reference(object, index(at), Access::Read, 7))
                .collect()
        });
    prop::collection::vec(prop_oneof![single, run], 0..40).prop_map(|pieces| pieces.concat())
}
