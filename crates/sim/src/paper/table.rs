//! Tables of the papers, and the numbers in them.

/// A table of the paper, with our figures beside the published ones.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Column heads.
    pub head: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

/// A number in as few digits as say something.
pub(super) fn short(value: f64) -> String {
    if value.abs() >= 1000.0 {
        let digits = format!("{value:.0}");
        let (sign, digits) = digits
            .strip_prefix('-')
            .map_or(("", digits.as_str()), |d| ("-", d));
        let first = (digits.len() - 1) % 3 + 1;
        let mut out = format!("{sign}{}", &digits[..first]);
        for group in digits.as_bytes()[first..].chunks(3) {
            out.push(',');
            out.push_str(core::str::from_utf8(group).expect("digits"));
        }
        out
    } else if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}
