//! Sizes as people write them: `4G`, `1.5GiB`, `512m`, `256 MiB`, `1048576`.

use std::fmt;

/// A text that is no size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SizeError {
    text: String,
    reason: &'static str,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a size: {}; write it like 256M, 1.5G or 1048576",
            self.text, self.reason
        )
    }
}

impl std::error::Error for SizeError {}

/// Suffixes and the power of two they stand for. Case does not matter.
///
/// `K`, `KB` and `KiB` are all 1024 bytes, as `ulimit`, `docker run --memory` and systemd's
/// `MemoryMax` count RAM.
const SUFFIXES: &[(&str, u32)] = &[
    ("", 0),
    ("b", 0),
    ("k", 10),
    ("kb", 10),
    ("kib", 10),
    ("m", 20),
    ("mb", 20),
    ("mib", 20),
    ("g", 30),
    ("gb", 30),
    ("gib", 30),
    ("t", 40),
    ("tb", 40),
    ("tib", 40),
];

/// Reads a size in bytes; fractions of a byte are cut off.
///
/// # Errors
/// [`SizeError`] names the text, what is wrong with it, and gives an example.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let fail = |reason| SizeError {
        text: text.to_owned(),
        reason,
    };
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(digits);
    if number.is_empty() {
        return Err(fail(if trimmed.starts_with('-') {
            "it is negative"
        } else {
            "it does not start with a number"
        }));
    }
    let suffix = suffix.trim_start().to_ascii_lowercase();
    let (_, shift) = SUFFIXES
        .iter()
        .find(|(name, _)| *name == suffix)
        .ok_or_else(|| fail("its unit is none of K, M, G, T (or KiB, MiB, GiB, TiB)"))?;
    scale(number, *shift).map_err(fail)
}

/// `number` (decimal digits with at most one point) times 2^`shift`, exactly.
fn scale(number: &str, shift: u32) -> Result<u64, &'static str> {
    /// Digits after the point that can matter: 10^13 exceeds 2^40, the largest unit in bytes.
    const FRACTION_DIGITS_MAX: usize = 13;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return Err("it has two decimal points");
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err("it has no digits");
    }
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse::<u64>().map_err(|_| "it is too large")?
    };
    let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX)];
    let numerator = if fraction.is_empty() {
        0
    } else {
        fraction.parse::<u128>().map_err(|_| "it has no digits")?
    };
    let part = (numerator << shift) / 10_u128.pow(fraction.len() as u32);
    let bytes = (u128::from(whole) << shift) + part;
    u64::try_from(bytes)
        .ok()
        .filter(|&b| b <= i64::MAX as u64)
        .ok_or("it is too large")
}

/// `bytes` for people: the largest unit that leaves at least 1, one decimal where it is not whole.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in UNITS {
        let one = 1_u64 << shift;
        if bytes >= one {
            let whole = bytes.is_multiple_of(one);
            let value = bytes as f64 / one as f64;
            return if whole {
                format!("{value:.0} {unit}")
            } else {
                format!("{value:.1} {unit}")
            };
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_four_gibibytes() {
        for text in [
            "4G",
            "4g",
            "4GB",
            "4GiB",
            "4 GiB",
            "4096M",
            "4294967296",
            " 4G ",
            "4.0G",
            "0.00390625T",
            "4294967296b",
        ] {
            assert_eq!(parse_size(text), Ok(4 << 30), "{text}");
        }
    }

    #[test]
    fn fractions_are_exact() {
        assert_eq!(parse_size("1.5G"), Ok(3 << 29));
        assert_eq!(parse_size(".5M"), Ok(1 << 19));
        assert_eq!(parse_size("2.M"), Ok(2 << 20));
        assert_eq!(parse_size("0.1K"), Ok(102));
        assert_eq!(parse_size("512m"), Ok(512 << 20));
        assert_eq!(
            parse_size("1.9999999999999999999999T"),
            Ok((2_u64 << 40) - 1)
        );
    }

    #[test]
    fn bad_sizes_name_the_text_and_an_example() {
        for text in [
            "",
            "G",
            "-1G",
            "1.2.3G",
            "4X",
            "4 G B",
            "99999999999999999999",
            "16777216T",
            "0x10",
            "1e9",
            ".",
            "٤G",
        ] {
            let message = parse_size(text).expect_err(text).to_string();
            assert!(
                message.contains(&format!("'{text}'")) && message.contains("256M"),
                "{message}"
            );
        }
    }

    #[test]
    fn sizes_print_in_their_unit() {
        assert_eq!(format_size(0), "0 bytes");
        assert_eq!(format_size(1023), "1023 bytes");
        assert_eq!(format_size(8 << 20), "8 MiB");
        assert_eq!(format_size(3 << 29), "1.5 GiB");
    }
}
