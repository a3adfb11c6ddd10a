//! What a program does to its memory, as a file: it is made before the clock runs, for a collector has a heap of its own to work on.

use std::io::{self, Read, Write};

use outpage_core::contract::Access;
use outpage_core::units::PageRange;
use outpage_sim::programs::{Program, Step as Made};

/// Bytes of a step: what, the first page and how many, little-endian.
const STEP_BYTES: usize = 9;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Pages are read.
    Read,
    /// Pages are written.
    Write,
    /// Pages are given up.
    Mark,
    /// They are wanted again.
    TakeBack,
    /// They may be dropped now.
    Flush,
}

impl Act {
    const ALL: [Self; 5] = [
        Self::Read,
        Self::Write,
        Self::Mark,
        Self::TakeBack,
        Self::Flush,
    ];
}

/// One thing that is done to a run of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// What.
    pub act: Act,
    /// The first page.
    pub first: u32,
    /// How many.
    pub pages: u32,
}

impl Step {
    fn bytes(self) -> [u8; STEP_BYTES] {
        let mut bytes = [0; STEP_BYTES];
        bytes[0] = self.act as u8;
        bytes[1..5].copy_from_slice(&self.first.to_le_bytes());
        bytes[5..].copy_from_slice(&self.pages.to_le_bytes());
        bytes
    }

    fn of(bytes: [u8; STEP_BYTES]) -> Option<Self> {
        let [act, a, b, c, d, e, f, g, h] = bytes;
        Some(Self {
            act: *Act::ALL.get(usize::from(act))?,
            first: u32::from_le_bytes([a, b, c, d]),
            pages: u32::from_le_bytes([e, f, g, h]),
        })
    }
}

/// Writes how many pages the program has, and its steps; CPU time is left out.
///
/// # Errors
/// Those of writing; [`io::ErrorKind::Unsupported`] where it does what has no counterpart in memory objects.
pub fn write(program: &mut dyn Program, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&program.footprint().to_le_bytes())?;
    let mut put = |act, run: PageRange| {
        let [first, pages] = [run.start.index(), run.pages].map(|n| n as u32);
        match pages {
            0 => Ok(()),
            _ => out.write_all(&Step { act, first, pages }.bytes()),
        }
    };
    let touch = |access| match access {
        Access::Read => Act::Read,
        Access::Write => Act::Write,
    };
    loop {
        match program.step() {
            Made::Touch { run, access, .. } => put(touch(access), run)?,
            Made::Together { runs, .. } => {
                let longest = runs.iter().map(|(run, _)| run.pages).max();
                for at in 0..longest.unwrap_or(0) {
                    for (run, access) in runs.iter().filter(|(run, _)| at < run.pages) {
                        let page = run.start.checked_add(at).expect("within a run");
                        put(touch(*access), PageRange::one(page))?;
                    }
                }
            }
            Made::Discardable(run) => put(Act::Mark, run)?,
            Made::TakeBack(run) => put(Act::TakeBack, run)?,
            Made::Flush(run) => put(Act::Flush, run)?,
            Made::Compute(_) | Made::Map(_) | Made::Phase(_) => {}
            Made::Unmap(_) | Made::Discard(_) | Made::Until(_) => {
                return Err(io::ErrorKind::Unsupported.into());
            }
            Made::End => return Ok(()),
        }
    }
}

/// Steps from a file.
pub struct Steps<R> {
    from: R,
    /// How many pages the program has.
    pub pages: u64,
}

impl<R: Read> Steps<R> {
    /// Those that [`write()`] wrote.
    ///
    /// # Errors
    /// Those of reading.
    pub fn new(mut from: R) -> io::Result<Self> {
        let mut pages = [0; 8];
        from.read_exact(&mut pages)?;
        let pages = u64::from_le_bytes(pages);
        Ok(Self { from, pages })
    }

    fn bytes(&mut self) -> io::Result<Option<[u8; STEP_BYTES]>> {
        let mut bytes = [0; STEP_BYTES];
        let mut filled = 0;
        while filled < STEP_BYTES {
            match self.from.read(&mut bytes[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => filled += more,
            }
        }
        Ok(Some(bytes))
    }
}

impl<R: Read> Iterator for Steps<R> {
    type Item = io::Result<Step>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.bytes().transpose()?;
        Some(bytes.and_then(|bytes| {
            let within = |step: &Step| u64::from(step.first) + u64::from(step.pages) <= self.pages;
            let step = Step::of(bytes).filter(within);
            step.ok_or_else(|| io::ErrorKind::InvalidData.into())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outpage_sim::programs::{MlParams, Spec, TextureParams};

    fn steps(spec: &Spec) -> (u64, Vec<Step>) {
        let mut bytes = Vec::new();
        write(spec.build(1).as_mut(), &mut bytes).unwrap();
        let steps = Steps::new(&bytes[..]).unwrap();
        (steps.pages, steps.map(Result::unwrap).collect())
    }

    #[test]
    fn runs_that_go_together_are_touched_by_turns() {
        let (pages, steps) = steps(&Spec::Texture(TextureParams {
            matrix_pages: 2,
            page_ns: 1,
        }));
        assert_eq!(pages, 27 * 2);
        let write = steps.iter().filter(|step| step.act == Act::Write);
        assert_eq!(write.map(|step| step.pages).sum::<u32>(), 46 * 2);
        // The first matrix of the second stage: read and added to the last one.
        let at = steps.iter().position(|step| step.act == Act::Read).unwrap();
        let places: Vec<_> = steps[at..at + 4].iter().map(|s| (s.act, s.first)).collect();
        let expected = [
            (Act::Read, 0),
            (Act::Write, 52),
            (Act::Read, 1),
            (Act::Write, 53),
        ];
        assert_eq!(places, expected);
    }

    #[test]
    fn a_collector_takes_pages_back_before_it_writes_to_them() {
        let (pages, steps) = steps(&Spec::Ml(MlParams {
            heap_pages: 300,
            allocated_pages: 1_500,
            environment_pages: 40,
            ..MlParams::default()
        }));
        let mut given_up = vec![false; pages as usize];
        let mut counts = [0_u32; 5];
        for step in steps {
            counts[step.act as usize] += step.pages;
            for page in step.first..step.first + step.pages {
                let given_up = &mut given_up[page as usize];
                match step.act {
                    Act::Write => assert!(!*given_up, "page {page}"),
                    Act::Read => {}
                    Act::Mark => *given_up = true,
                    Act::TakeBack => *given_up = false,
                    Act::Flush => {}
                }
            }
        }
        assert!(counts.iter().all(|&count| count > 300), "{counts:?}");
    }

    #[test]
    fn what_is_cut_short_or_out_of_bounds_is_an_error() {
        let step = |first, pages| Step {
            act: Act::Flush,
            first,
            pages,
        };
        let file = |step: Step| [&8_u64.to_le_bytes()[..], &step.bytes()].concat();
        let read = |bytes: &[u8]| Steps::new(bytes).and_then(|mut steps| steps.next().unwrap());
        let bytes = file(step(3, 5));
        assert_eq!(read(&bytes).unwrap(), step(3, 5));
        assert!(read(&file(step(3, 6))).is_err() && read(&file(step(u32::MAX, u32::MAX))).is_err());
        assert!(read(&bytes[..16]).is_err() && read(&bytes[..7]).is_err());
        let mut unknown = bytes;
        unknown[8] = 5;
        assert!(read(&unknown).is_err());
    }
}
