//! The format: what is written comes back, and nothing broken is read.

use std::io::{self, Read};

use outpage_core::contract::Access;
use outpage_core::units::{Nanos, ObjectId, PageNo};
use outpage_sim::programs::Program;
use outpage_sim::sizes::Sizes;
use outpage_sim::trace::{Error, Header, Reader, Recorded, Reference, Replayed, Run, Why, Writer};
use proptest::prelude::*;

use crate::{decode, encode, header, reference, references, runs};

fn sizes(bytes: &[u8]) -> Sizes {
    let mut reader = Reader::new(bytes).expect("a header");
    assert!(reader.by_ref().all(|run| run.is_ok()));
    reader.into_sizes()
}

fn why(bytes: &[u8]) -> (u64, Why) {
    match decode(bytes) {
        Err(Error::Unreadable { offset, why }) => (offset, why),
        other => panic!("{other:?}"),
    }
}

/// Enough for several blocks: wide jumps that do not compress.
fn several_blocks() -> Vec<u8> {
    let jump = |at: u64| {
        let index = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30;
        reference(0, index ^ index >> 13, Access::Write, index % 1000)
    };
    encode(&(0..30_000).map(jump).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn references_come_back(references in references()) {
        let bytes = encode(&references);
        prop_assert_eq!(decode(&bytes).expect("a whole trace"), references);
    }

    #[test]
    fn a_changed_byte_is_refused(references in references(), at: prop::sample::Index, bits in 1u8..) {
        let mut bytes = encode(&references);
        let at = at.index(bytes.len());
        bytes[at] ^= bits;
        let (offset, _) = why(&bytes);
        prop_assert!(offset as usize <= at, "byte {} refused at {}", at, offset);
    }

    #[test]
    fn a_cut_trace_is_refused(references in references(), at: prop::sample::Index) {
        let bytes = encode(&references);
        let at = at.index(bytes.len());
        let (offset, why) = why(&bytes[..at]);
        prop_assert_eq!(why, Why::Truncated);
        prop_assert!(offset as usize <= at);
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(&bytes).is_err());
    }
}

/// A trace of one block, with valid checksums, and where that begins.
fn forged(tag: u8, count: u32, records: &[u8]) -> (u64, Vec<u8>) {
    let mut bytes = encode(&[]);
    bytes.truncate(bytes.len() - 21);
    let start = bytes.len() as u64;
    let data = lz4_flex::block::compress(records);
    let mut frame = vec![tag];
    for number in [
        count,
        records.len() as u32,
        data.len() as u32,
        crc32fast::hash(&data),
    ] {
        frame.extend_from_slice(&number.to_le_bytes());
    }
    frame.extend_from_slice(&crc32fast::hash(&frame).to_le_bytes());
    bytes.extend_from_slice(&frame);
    bytes.extend_from_slice(&data);
    let mut end = vec![b'e'];
    let counts = match tag {
        b'b' => [count, 0],
        _ => [0, count],
    };
    let counts = counts.map(|count| u64::from(count).to_le_bytes());
    end.extend_from_slice(counts.as_flattened());
    end.extend_from_slice(&crc32fast::hash(&end).to_le_bytes());
    bytes.extend_from_slice(&end);
    (start, bytes)
}

/// Bytes that carry valid checksums and yet say what cannot be.
#[test]
fn a_forged_block_is_refused() {
    let (_, sound) = forged(b'b', 2, &[0, 2, 0, 4]);
    let pages: Vec<u64> = decode(&sound)
        .expect("sound")
        .iter()
        .map(|found| found.page.raw())
        .collect();
    assert_eq!(pages, [1, 3]);
    let unsound: &[(&str, u32, &[u8])] = &[
        ("more references than said", 1, &[0, 2, 0, 4]),
        ("fewer references than said", 3, &[0, 2, 0, 4]),
        ("an index before 0", 1, &[0, 1]),
        ("an object before 0", 1, &[2, 1, 0]),
        (
            "an object beyond 28 bits",
            1,
            &[2, 0x80, 0x80, 0x80, 0x80, 0x02, 0],
        ),
        ("a run before index 0", 2, &[0x14, 0, 1]),
        (
            "a run beyond 36 bits",
            2,
            &[0x10, 0xfe, 0xff, 0xff, 0xff, 0xff, 0x03],
        ),
        ("half a record", 1, &[0]),
        (
            "a number beyond 64 bits",
            1,
            &[8, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
        ),
        (
            "a count beyond 32 bits",
            1,
            &[0xf0, 0, 255, 255, 255, 255, 255, 1],
        ),
    ];
    for (what, count, records) in unsound {
        let (start, bytes) = forged(b'b', *count, records);
        assert_eq!(why(&bytes), (start, Why::Corrupt), "{what}");
    }
}

#[test]
fn forged_sizes_are_refused() {
    // Pages 5 and 6 of object 1, then page 8.
    let sound: &[u8] = &[1, 5, 1, 100, 0, 0, 1, 0, 0x80, 0x20];
    let (_, bytes) = forged(b's', 3, sound);
    assert_eq!(runs(&bytes).expect("sound"), []);
    let read: Vec<_> = sizes(&bytes).iter().collect();
    let page = |index| PageNo::new(ObjectId(1), index);
    assert_eq!(read, [(page(5), 100), (page(6), 0), (page(8), 4096)]);
    let many = [0xff; 9];
    let unsound: &[(&str, u32, &[u8])] = &[
        ("more pages than said", 2, sound),
        ("fewer pages than said", 4, sound),
        ("more than a page has", 1, &[1, 5, 0, 0x81, 0x20]),
        ("half a record", 2, &[1, 5, 1, 100]),
        (
            "an object beyond 28 bits",
            1,
            &[0x80, 0x80, 0x80, 0x80, 1, 0, 0, 9],
        ),
        (
            "an index beyond 36 bits",
            1,
            &[1, 0x80, 0x80, 0x80, 0x80, 0x80, 2, 0, 9],
        ),
        (
            "a run beyond 36 bits",
            2,
            &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 9, 9],
        ),
        (
            "more pages than bytes",
            1,
            &[&[1, 0][..], &many, &[1, 9]].concat(),
        ),
    ];
    for (what, count, records) in unsound {
        let (start, bytes) = forged(b's', *count, records);
        assert_eq!(why(&bytes), (start, Why::Corrupt), "{what}");
    }
    // A page that comes again, in a block of its own; references behind sizes; sizes in version 1.
    let (start, bytes) = forged(b's', 3, sound);
    let block = &bytes[start as usize..bytes.len() - 21];
    let twice = [&bytes[..bytes.len() - 21], block].concat();
    assert_eq!(why(&twice).1, Why::Corrupt);
    let (_, references) = forged(b'b', 1, &[0, 2]);
    let behind = [&bytes[..bytes.len() - 21], &references[start as usize..]].concat();
    assert_eq!(why(&behind), (bytes.len() as u64 - 21, Why::Corrupt));
}

#[test]
fn sizes_come_back_and_every_byte_of_them_is_checked() {
    let all = Sizes::new((0..60_000).map(|n: u64| {
        let page = PageNo::new(ObjectId((n / 30_000) as u32), n + n / 1000);
        (page, (n.wrapping_mul(0x9e37_79b9) >> 8) as u16 % 4097)
    }));
    let mut writer = Writer::new(Vec::new(), &header()).expect("the header fits");
    let touched = reference(1, 7, Access::Write, 3);
    writer.reference(touched).expect("memory takes all");
    let bytes = writer.finish_with(&all).expect("memory takes all");
    assert_eq!(decode(&bytes).expect("a whole trace"), [touched]);
    assert_eq!(sizes(&bytes), all);
    for at in (0..bytes.len())
        .step_by(509)
        .chain(bytes.len() - 30..bytes.len())
    {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(why(&changed).0 as usize <= at);
        assert_eq!(why(&bytes[..at]).1, Why::Truncated);
    }
}

#[test]
fn every_byte_of_several_blocks_is_checked() {
    let bytes = several_blocks();
    assert!(bytes.len() > 3 << 16, "{} bytes", bytes.len());
    for at in (0..bytes.len())
        .step_by(211)
        .chain(bytes.len() - 20..bytes.len())
    {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(why(&changed).0 as usize <= at);
        assert_eq!(why(&bytes[..at]).1, Why::Truncated);
    }
}

/// The runs before a broken block are handed out, then the error, then nothing.
#[test]
fn whole_blocks_before_a_broken_one_are_read() {
    let mut bytes = several_blocks();
    let last = bytes.len() - 100;
    bytes[last] ^= 1;
    let mut reader = Reader::new(&bytes[..]).expect("a whole header");
    let before = reader.by_ref().take_while(Result::is_ok).count();
    assert!(before > 5000, "{before}");
    assert!(reader.next().is_none());
}

#[test]
fn runs_are_found() {
    let sweep: Vec<_> = (0..1000)
        .map(|index| reference(1, index, Access::Read, 5))
        .collect();
    let again = vec![reference(1, 999, Access::Write, 5); 50];
    let back: Vec<_> = (0..999)
        .rev()
        .map(|index| reference(1, index, Access::Write, 9))
        .collect();
    let bytes = encode(&[sweep, again, back].concat());
    let shape: Vec<_> = runs(&bytes)
        .expect("a whole trace")
        .iter()
        .map(|run| (run.start.index(), run.stride, run.count))
        .collect();
    assert_eq!(shape, [(0, 1, 1000), (999, 0, 50), (998, -1, 999)]);
    assert!(bytes.len() < 120, "{} bytes", bytes.len());
}

#[test]
fn long_runs_pass_the_count_of_a_block() {
    let run = |count| Run {
        start: PageNo::from_raw(3),
        stride: 0,
        count,
        access: Access::Write,
        gap: Nanos(1),
    };
    let written = [run(u32::MAX), run(1), run(u32::MAX)];
    let mut writer = Writer::new(Vec::new(), &header()).expect("the header fits");
    for run in written {
        writer.run(run).expect("a valid run");
    }
    let bytes = writer.finish().expect("memory takes all");
    assert_eq!(runs(&bytes).expect("a whole trace"), written);
}

#[test]
fn the_last_page_of_all_comes_back() {
    let last = reference((1 << 28) - 1, (1 << 36) - 1, Access::Write, 1);
    assert_eq!(last.page.raw(), u64::MAX);
    let written = [last, reference(0, 0, Access::Read, 2), last];
    assert_eq!(decode(&encode(&written)).expect("a whole trace"), written);
    assert_eq!(
        Replayed::new(runs(&encode(&written)).expect("a whole trace")).footprint(),
        2
    );
}

#[test]
fn a_run_that_leaves_its_object_is_not_written() {
    let mut writer = Writer::new(Vec::new(), &header()).expect("the header fits");
    let mut run = Run::one(reference(2, (1 << 36) - 1, Access::Read, 0));
    run.count = 2;
    assert_eq!(
        writer.run(run).expect_err("too long").kind(),
        io::ErrorKind::InvalidInput
    );
    run.stride = i64::MIN;
    assert!(writer.run(run).is_err());
    run.count = 0;
    assert!(writer.run(run).is_err());
}

#[test]
fn the_header_comes_back() {
    for recorded in [Recorded::Exact, Recorded::Filtered { resident: 1 << 40 }] {
        let header = Header {
            page_bytes: 65536,
            recorded,
            program: "p".repeat(4000),
        };
        let writer = Writer::new(Vec::new(), &header).expect("the header fits");
        let bytes = writer.finish().expect("memory takes all");
        assert_eq!(Reader::new(&bytes[..]).expect("a header").header(), &header);
    }
    let program = "p".repeat(5000);
    let header = Header {
        program,
        ..header()
    };
    assert!(Writer::new(Vec::new(), &header).is_err());
}

#[test]
fn another_file_or_version_is_named() {
    assert_eq!(
        why(b"#!/bin/sh\necho this is no trace"),
        (0, Why::NotATrace)
    );
    let mut bytes = encode(&[]);
    for version in [0, 3] {
        bytes[8] = version;
        assert_eq!(why(&bytes), (0, Why::Version(u16::from(version))));
    }
    let mut bytes = encode(&[]);
    bytes.push(0);
    assert_eq!(why(&bytes), (bytes.len() as u64 - 1, Why::Corrupt));
    let text = decode(&bytes).expect_err("a byte too many").to_string();
    assert_eq!(
        text,
        format!("at byte {}: the trace is corrupt", bytes.len() - 1)
    );
}

fn three() -> [Reference; 3] {
    [
        reference(1, 5, Access::Read, 0),
        reference(1, 6, Access::Read, 0),
        reference(1, 4, Access::Write, 300),
    ]
}

/// What this version looks like: this must not change without a new version.
#[test]
fn the_bytes_of_version_2() {
    let mut writer = Writer::new(Vec::new(), &header()).expect("the header fits");
    for reference in three() {
        writer.reference(reference).expect("memory takes all");
    }
    let sizes = [(5, 0), (6, 1300), (9, 4096)];
    let sizes = sizes.map(|(index, bytes)| (PageNo::new(ObjectId(1), index), bytes));
    let bytes = writer.finish_with(&Sizes::new(sizes));
    let bytes = bytes.expect("memory takes all");
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("data/version_2.hex").trim());
}

#[test]
fn version_1_is_read_and_has_no_sizes() {
    let hex = include_str!("data/version_1.hex").trim();
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("a byte");
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    assert_eq!(decode(&bytes).expect("a whole trace"), three());
    assert!(sizes(&bytes).is_empty());
    for at in 0..bytes.len() {
        assert_eq!(why(&bytes[..at]).1, Why::Truncated);
    }
    // A block of sizes is none of it.
    let end = bytes.len() - 13;
    let (start, other) = forged(b's', 1, &[1, 5, 0, 9]);
    let mixed = [&bytes[..end], &other[start as usize..]].concat();
    assert_eq!(why(&mixed), (end as u64, Why::Corrupt));
}

/// A source that fails is not a truncated trace, and one that gives single bytes is read.
#[test]
fn sources_fail_and_dribble() {
    struct Dribble<'a>(&'a [u8], Option<io::ErrorKind>);
    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match (self.0.split_first(), self.1) {
                (Some((&byte, rest)), _) => {
                    buffer[0] = byte;
                    self.0 = rest;
                    Ok(1)
                }
                (None, Some(kind)) => Err(kind.into()),
                (None, None) => Ok(0),
            }
        }
    }
    let bytes = several_blocks();
    let mut reader = Reader::new(Dribble(&bytes, None)).expect("a header");
    assert!(reader.by_ref().all(|run| run.is_ok()));
    assert_eq!(reader.offset(), bytes.len() as u64);
    let failing = Dribble(&bytes[..bytes.len() / 2], Some(io::ErrorKind::BrokenPipe));
    let last = Reader::new(failing).expect("a header").last();
    assert!(
        matches!(last, Some(Err(Error::Io(error))) if error.kind() == io::ErrorKind::BrokenPipe)
    );
}
