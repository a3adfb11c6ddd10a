//! Arrays of 64-bit words whose contents follow from their places, for workloads that touch less than
//! a page at a time.

use std::hint::black_box;

use super::WorkloadError;
use super::report::{Progress, Recorder};
use super::rng::{fold, mix};

/// Bytes of a word.
pub const WORD_BYTES: usize = 8;
/// Words between two looks at the clock for `--progress`.
const PROGRESS_WORDS: usize = 1 << 12;

/// What stands at `index` of the array number `array` at first; hardly ever zero, so that no page is.
pub const fn word(array: u64, index: usize) -> u64 {
    mix(array << 56 ^ (index as u64 + 1))
}

/// How many words `mib` MiB have.
pub const fn words_of(mib: u32) -> usize {
    ((mib as usize) << 20) / WORD_BYTES
}

/// A new array of `len` words, written in order.
pub fn filled(len: usize, progress: &mut Progress, value: impl FnMut(usize) -> u64) -> Vec<u64> {
    let mut value = value;
    // Opaque, so that the compiler cannot turn "allocate, write" into something that touches less.
    let mut words = black_box(Vec::with_capacity(len));
    while words.len() < len {
        let end = (words.len() + PROGRESS_WORDS).min(len);
        words.extend((words.len()..end).map(&mut value));
        progress.at(end as u64, len as u64);
    }
    words
}

/// Reports a word that is not what it has to be.
///
/// # Errors
/// When `found` is not `expected`.
pub fn expect(what: &str, index: usize, found: u64, expected: u64) -> Result<(), WorkloadError> {
    if found == expected {
        return Ok(());
    }
    Err(WorkloadError(format!(
        "wrong contents: {what}, word {index}: found {found:#018x}, expected {expected:#018x}"
    )))
}

/// Reads the whole array in order, in a phase called `name`, and compares each word with
/// `expected(index)`: the checksum of what was found.
///
/// # Errors
/// The first word that differs.
pub fn check(
    name: &'static str,
    words: &[u64],
    recorder: &mut Recorder,
    expected: impl Fn(usize) -> u64,
) -> Result<u64, WorkloadError> {
    recorder.phase(name, |progress| {
        let mut sum = 0;
        for (index, &found) in words.iter().enumerate() {
            expect(name, index, found, expected(index))?;
            sum = fold(sum, found);
            if index % PROGRESS_WORDS == 0 {
                progress.at(index as u64, words.len() as u64);
            }
        }
        Ok(sum)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_word_is_found_with_its_place() {
        let mut recorder = Recorder::new(false);
        let mut words = recorder.phase("init", |p| filled(10_000, p, |i| word(1, i)));
        let sum = check("check", &words, &mut recorder, |i| word(1, i)).unwrap();
        assert!(check("check", &words, &mut recorder, |i| word(2, i)).is_err());
        words.swap(7, 9);
        let error = check("check", &words, &mut recorder, |i| word(1, i)).unwrap_err();
        assert!(error.to_string().contains("word 7:"), "{error}");
        let swapped = words.clone();
        let other = check("check", &words, &mut recorder, |i| swapped[i]).unwrap();
        assert_ne!(other, sum, "the order counts");
    }
}
