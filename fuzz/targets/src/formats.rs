//! Traces of page references: this project's format, lackey's text, oracleGeneral.

use std::io::BufReader;

use outpage_core::units::Nanos;
use outpage_sim::programs::{Program, Step};
use outpage_sim::sizes::Sizes;
use outpage_sim::trace::{
    Header, Lackey, LackeyOptions, OracleReader, Reader, Recorded, Replayed, Run, Writer, string,
    write_oracle,
};

/// References that a trace may have to be followed one by one.
const REFERENCES_MAX: u64 = 1 << 16;

/// A trace: as it is, or as the records of one block whose frame is sound.
pub fn trace(data: &[u8]) {
    read(data);
    if let Some((&kind, records)) = data.split_first() {
        read(&sealed(kind, b'b', records));
        read(&sealed(kind, b's', records));
    }
}

fn read(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else {
        return;
    };
    let header = reader.header().clone();
    let mut runs = Vec::new();
    loop {
        match reader.next_run() {
            Ok(Some(run)) => runs.push(run),
            Ok(None) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert!(
                    matches!(reader.next_run(), Ok(None)),
                    "read on after an error"
                );
                return;
            }
        }
    }
    assert!(runs.iter().all(Run::is_valid));
    let sizes = reader.into_sizes();
    assert!(
        sizes
            .iter()
            .all(|(page, bytes)| sizes.near(page) == Some(bytes))
    );
    again(&header, &runs, &sizes);
    let references: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
    if references <= REFERENCES_MAX {
        follow(runs);
    }
}

/// What was read is written, and read as the same.
fn again(header: &Header, runs: &[Run], sizes: &Sizes) {
    let mut writer = Writer::new(Vec::new(), header).expect("it was read");
    for &run in runs {
        writer.run(run).expect("it was read");
    }
    let bytes = writer.finish_with(sizes).expect("memory takes all");
    let mut reader = Reader::new(&bytes[..]).expect("just written");
    let read: Result<Vec<Run>, _> = reader.by_ref().collect();
    assert_eq!(read.expect("just written"), runs);
    assert_eq!(reader.into_sizes(), *sizes);
}

/// The program that was recorded, to its end.
fn follow(runs: Vec<Run>) {
    let references = string(runs.iter().map(|&run| Ok::<_, ()>(run))).expect("no error");
    let mut program = Replayed::new(runs);
    let mut touched = 0;
    loop {
        match program.step() {
            Step::Touch { run, .. } => touched += run.pages,
            Step::End => break,
            _ => {}
        }
    }
    assert_eq!(touched, references.len() as u64);
    assert!(program.footprint() >= references.distinct() as u64);
}

/// A trace whose only block, with this tag, holds `records` and claims the references, or pages, that make it whole.
fn sealed(kind: u8, tag: u8, records: &[u8]) -> Vec<u8> {
    let header = Header {
        page_bytes: 4096,
        recorded: Recorded::Exact,
        program: "fuzz".to_owned(),
    };
    let empty = Writer::new(Vec::new(), &header).and_then(Writer::finish);
    let mut bytes = empty.expect("memory takes all");
    bytes.truncate(bytes.len() - 21);
    let records = &records[..records.len().min(1 << 12)];
    let of_sizes = tag == b's';
    let claimed = match of_sizes {
        true => claimed_sizes(records),
        false => claimed(records),
    };
    let claimed = claimed.wrapping_add(u32::from(kind & 1));
    let packed = lz4_flex::block::compress(records);
    let mut frame = vec![tag];
    for word in [
        claimed,
        records.len() as u32,
        packed.len() as u32,
        crc32fast::hash(&packed),
    ] {
        frame.extend_from_slice(&word.to_le_bytes());
    }
    frame.extend_from_slice(&crc32fast::hash(&frame).to_le_bytes());
    bytes.extend_from_slice(&frame);
    bytes.extend_from_slice(&packed);
    let mut end = vec![b'e'];
    let counts = match of_sizes {
        true => [0, claimed],
        false => [claimed, 0],
    };
    for count in counts {
        end.extend_from_slice(&u64::from(count).to_le_bytes());
    }
    end.extend_from_slice(&crc32fast::hash(&end).to_le_bytes());
    bytes.extend_from_slice(&end);
    bytes
}

/// References in `records`, as the description of the format has it.
fn claimed(mut records: &[u8]) -> u32 {
    let mut total = 0_u32;
    while let Some((&tag, rest)) = records.split_first() {
        records = rest;
        // Object, index, stride, gap: only the count matters here.
        let fields = 1 + (tag >> 1 & 7).count_ones();
        for _ in 0..fields {
            number(&mut records);
        }
        let count = u64::from(tag >> 4) + 1;
        let more = if tag >> 4 == 15 {
            number(&mut records)
        } else {
            0
        };
        total = total.saturating_add(count.saturating_add(more).min(u64::from(u32::MAX)) as u32);
    }
    total
}

/// Pages in `records` of sizes.
fn claimed_sizes(mut records: &[u8]) -> u32 {
    let mut total = 0_u64;
    while !records.is_empty() {
        number(&mut records);
        number(&mut records);
        let pages = number(&mut records).saturating_add(1);
        for _ in 0..pages.min(records.len() as u64) {
            number(&mut records);
        }
        total = total.saturating_add(pages);
    }
    total.min(u64::from(u32::MAX)) as u32
}

/// Takes a number of 7 bits a byte off the front.
fn number(records: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0_u64, 0_u32);
    while let Some((&byte, rest)) = records.split_first() {
        *records = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// Lackey's text.
pub fn lackey(data: &[u8]) {
    let Some((&kind, text)) = data.split_first() else {
        return;
    };
    let options = LackeyOptions {
        instructions: kind & 1 != 0,
        instruction: Nanos(u64::from(kind >> 1)),
    };
    let mut references = Lackey::new(text, options);
    let mut lines = 0;
    while let Some(reference) = references.next() {
        match reference {
            Ok(_) => lines = references.line(),
            Err(error) => {
                assert!(error.to_string().lines().count() == 1, "{error}");
                assert!(references.next().is_none(), "read on after an error");
            }
        }
    }
    assert!(lines <= 1 + text.iter().filter(|&&byte| byte == b'\n').count() as u64);
}

/// Records of oracleGeneral; what was read is written and read as the same.
pub fn oracle(data: &[u8]) {
    let read = |bytes: &[u8]| -> Result<Vec<_>, _> {
        OracleReader::new(BufReader::new(bytes))
            .references()
            .collect()
    };
    let Ok(references) = read(data) else { return };
    let mut bytes = Vec::new();
    let written = write_oracle(references.iter().copied(), 4096, &mut bytes);
    assert_eq!(written.expect("memory takes all"), references.len() as u64);
    let again = read(&bytes).expect("just written");
    let pages = |list: &[outpage_sim::trace::Reference]| -> Vec<u64> {
        list.iter().map(|reference| reference.page.raw()).collect()
    };
    assert_eq!(pages(&again), pages(&references));
}
