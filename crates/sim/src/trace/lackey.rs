//! Imports the text of valgrind's lackey tool, `--tool=lackey --trace-mem=yes`.

use std::fmt;
use std::io::{self, BufRead};

use outpage_core::contract::Access;
use outpage_core::units::{Nanos, ObjectId, PAGE_BYTES, PAGE_SHIFT, PageNo};

use super::Reference;

/// How lackey's text is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LackeyOptions {
    /// Whether instruction fetches count as references.
    pub instructions: bool,
    /// CPU time of each instruction. Lackey measures none; 0 leaves all gaps at 0.
    pub instruction: Nanos,
}

/// Why lackey's text cannot be read.
#[derive(Debug)]
pub enum LackeyError {
    /// A line is not lackey's.
    Malformed {
        /// The line, from 1.
        line: u64,
        /// What it says, at most 80 bytes of it.
        text: String,
    },
    /// The source failed.
    Io(io::Error),
}

impl fmt::Display for LackeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { line, text } => {
                write!(f, "line {line} is no memory trace of lackey: {text:?}")
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LackeyError {}

/// Page references from lackey's lines: `I` fetches an instruction, `L` loads, `S` stores and `M`
/// does both (`I  ADDR,SIZE`, ` L ADDR,SIZE`; hexadecimal address, size in bytes). Lines that
/// begin with `==`, `--` or `**` are valgrind's own and skipped, as are empty ones; anything else
/// is refused.
///
/// All pages lie in object 0, at the index of their address. References to one page that follow
/// each other with no instruction time between them and no new kind of access are one. An
/// access that crosses into further pages references each.
pub struct Lackey<R: BufRead> {
    source: R,
    options: LackeyOptions,
    text: Vec<u8>,
    line: u64,
    gap: Nanos,
    last: Option<Reference>,
    /// Pages of the current access that are still to come, half-open, and what it does.
    from: u64,
    to: u64,
    access: Access,
    over: bool,
}

/// The largest access, in bytes: lackey asserts 512 (`MAX_DSIZE` in `lk_main.c`, valgrind 3.19); a
/// page leaves room for later versions.
const ACCESS_MAX: u64 = PAGE_BYTES as u64;

impl<R: BufRead> Lackey<R> {
    /// Reads from `source`.
    pub const fn new(source: R, options: LackeyOptions) -> Self {
        Self {
            source,
            options,
            text: Vec::new(),
            line: 0,
            gap: Nanos(0),
            last: None,
            from: 0,
            to: 0,
            access: Access::Read,
            over: false,
        }
    }

    /// Lines read so far.
    #[must_use]
    pub const fn line(&self) -> u64 {
        self.line
    }

    /// The next line; false at the end.
    fn read_line(&mut self) -> io::Result<bool> {
        self.text.clear();
        self.line += 1;
        let read = self.source.read_until(b'\n', &mut self.text)?;
        while self.text.last().is_some_and(u8::is_ascii_whitespace) {
            self.text.pop();
        }
        Ok(read > 0)
    }

    /// Takes the access of the current line in. `None` when the line is malformed.
    fn take_line(&mut self) -> Option<()> {
        let skipped: [&[u8]; 3] = [b"==", b"--", b"**"];
        if self.text.is_empty() || skipped.iter().any(|start| self.text.starts_with(start)) {
            return Some(());
        }
        let (kind, operand) = self.text.split_at_checked(3)?;
        let access = match kind {
            b"I  " | b" L " => Access::Read,
            b" S " | b" M " => Access::Write,
            _ => return None,
        };
        let (address, size) = operand_of(operand)?;
        let end = address.checked_add(size)?;
        PageNo::from_raw(0).checked_add((end - 1) >> PAGE_SHIFT)?;
        if kind == b"I  " {
            self.gap.0 = self.gap.0.saturating_add(self.options.instruction.0);
            if !self.options.instructions {
                return Some(());
            }
        }
        self.from = address >> PAGE_SHIFT;
        self.to = ((end - 1) >> PAGE_SHIFT) + 1;
        self.access = access;
        Some(())
    }

    /// The next page of the current access, unless it says nothing new.
    fn take_page(&mut self) -> Option<Reference> {
        let reference = Reference {
            page: PageNo::new(ObjectId(0), self.from),
            access: self.access,
            gap: self.gap,
        };
        self.from += 1;
        let new = match self.last {
            Some(last) => {
                let wrote_already = last.access == Access::Write || last.access == self.access;
                last.page != reference.page || !wrote_already || self.gap.0 > 0
            }
            None => true,
        };
        if !new {
            return None;
        }
        self.gap = Nanos(0);
        self.last = Some(reference);
        Some(reference)
    }

    fn advance(&mut self) -> Result<Option<Reference>, LackeyError> {
        loop {
            while self.from < self.to {
                if let Some(reference) = self.take_page() {
                    return Ok(Some(reference));
                }
            }
            if !self.read_line().map_err(LackeyError::Io)? {
                return Ok(None);
            }
            if self.take_line().is_none() {
                let shown = &self.text[..self.text.len().min(80)];
                return Err(LackeyError::Malformed {
                    line: self.line,
                    text: String::from_utf8_lossy(shown).into_owned(),
                });
            }
        }
    }
}

/// The references; after an error, nothing.
impl<R: BufRead> Iterator for Lackey<R> {
    type Item = Result<Reference, LackeyError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.advance();
        self.over = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

/// `ADDR,SIZE`.
fn operand_of(text: &[u8]) -> Option<(u64, u64)> {
    let comma = text.iter().position(|&byte| byte == b',')?;
    let address = digits(&text[..comma], 16)?;
    let size = digits(&text[comma + 1..], 10)?;
    (1..=ACCESS_MAX).contains(&size).then_some((address, size))
}

fn digits(text: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    // from_str_radix takes a sign.
    let first_is_digit = text.chars().next()?.is_digit(radix);
    let number = u64::from_str_radix(text, radix).ok()?;
    first_is_digit.then_some(number)
}
