//! Allocation churn: many small objects of mixed sizes, allocated and freed in random order.

use super::report::Recorder;
use super::rng::{Rng, fold, mix};
use super::{Args, Outcome, WorkloadError};

/// Mean bytes of an object with its table entry and malloc's header, measured over the generator;
/// sizes the table.
const MEAN_BYTES: usize = 420;

/// A size as programs ask for it: mostly small, some of pages, one in 16,384 large enough to be a
/// mapping of its own (glibc maps from 128 KiB up).
fn size(rng: &mut Rng) -> usize {
    match rng.below(1 << 14) {
        0 => (128 << 10) + rng.below(512 << 10),
        1..=128 => 4096 + rng.below(8 << 10),
        129..=4096 => 256 + rng.below(1024),
        _ => 16 + rng.below(240),
    }
}

/// A live object, of 16 bytes or more: it begins and ends with a word that follows from its serial.
struct Object {
    bytes: Vec<u8>,
    serial: u64,
}

impl Object {
    fn new(serial: u64, size: usize) -> Self {
        let mut bytes = vec![serial as u8; size];
        let word = mix(serial).to_le_bytes();
        bytes[..8].copy_from_slice(&word);
        bytes[size - 8..].copy_from_slice(&word);
        Self { bytes, serial }
    }

    fn verify(&self) -> Result<(), WorkloadError> {
        let word = mix(self.serial).to_le_bytes();
        if self.bytes.starts_with(&word) && self.bytes.ends_with(&word) {
            return Ok(());
        }
        Err(WorkloadError(format!(
            "wrong contents: object {} of {} bytes",
            self.serial,
            self.bytes.len()
        )))
    }
}

/// Replaces random objects of a table of about `--mib`; each is checked when it is freed.
pub fn churn(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let slots = ((args.mib as usize) << 20) / MEAN_BYTES;
    let operations = args.operations.unwrap_or(10_000_000);
    let mut rng = Rng::new(450);
    let mut serial = 0;
    let mut next = move || {
        serial += 1;
        let size = size(&mut rng);
        (Object::new(serial, size), rng.below(slots))
    };
    let mut table: Vec<Object> = recorder.phase("init", |_| (0..slots).map(|_| next().0).collect());
    recorder.phase("churn", |progress| {
        for done in 0..operations {
            let (object, slot) = next();
            table[slot].verify()?;
            table[slot] = object;
            progress.at(done, operations);
        }
        Ok(())
    })?;
    recorder.phase("check", |_| {
        let mut checksum = 0;
        for object in &table {
            object.verify()?;
            checksum = object
                .bytes
                .iter()
                .fold(checksum, |sum, byte| fold(sum, u64::from(*byte)));
        }
        Ok(Outcome {
            checksum,
            verified: operations + slots as u64,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_size_is_as_stated() {
        let mut rng = Rng::new(2);
        let total: usize = (0..1_000_000).map(|_| size(&mut rng)).sum();
        let mean = total / 1_000_000 + size_of::<Object>() + 16;
        assert!(
            (MEAN_BYTES * 19 / 20..=MEAN_BYTES * 21 / 20).contains(&mean),
            "mean {mean}"
        );
    }

    #[test]
    fn a_changed_object_is_found() {
        let mut object = Object::new(3, 40);
        object.verify().unwrap();
        object.bytes[39] ^= 1;
        assert!(object.verify().is_err());
    }
}
