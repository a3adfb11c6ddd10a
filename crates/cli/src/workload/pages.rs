//! Workloads that touch a region page by page: the MOC microbenchmark, random touches, passes in
//! order, and a hot set beside a cold scan.
//!
//! Every page's contents follow from its number and a version, so each touch can check all of it.

use super::data::{Data, Looks};
use super::report::Recorder;
use super::rng::{Rng, fold, mix};
use super::{Args, Outcome, WorkloadError};

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
/// 64-bit words of a page.
const WORDS: usize = PAGE_BYTES / 8;
/// Pages of a MiB.
pub(super) const PAGES_PER_MIB: usize = (1 << 20) / PAGE_BYTES;
/// Odd constant between the versions of a page.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Page-aligned memory from the ordinary allocator, zero and untouched at first.
pub(super) struct Region {
    words: Vec<u64>,
    first: usize,
    data: Data,
}

impl Region {
    /// With contents that do not compress.
    pub(super) fn new(pages: usize) -> Self {
        Self::holding(Data::Incompressible, pages)
    }

    /// With contents that compress as `data` says.
    pub(super) fn holding(data: Data, pages: usize) -> Self {
        let words = vec![0_u64; (pages + 1) * WORDS];
        let first = words.as_ptr().align_offset(PAGE_BYTES);
        Self { words, first, data }
    }

    /// Whether its contents are such as a pool of compressed pages keeps, or none of the pages' are.
    pub(super) const fn is_usual(&self, page: usize) -> bool {
        matches!(self.data, Data::Incompressible) || self.data.compresses(page)
    }

    pub(super) fn page(&mut self, page: usize) -> &mut [u64] {
        let start = self.first + page * WORDS;
        &mut self.words[start..start + WORDS]
    }

    /// Writes what `version` of the page looks like; version 0 is the untouched, zero page.
    pub(super) fn write(&mut self, page: usize, version: u64) {
        let looks = self.looks(page, version);
        for (i, word) in self.page(page).iter_mut().enumerate() {
            *word = looks.word(i);
        }
    }

    /// Compares the whole page with what `version` of it looks like.
    pub(super) fn verify(&mut self, page: usize, version: u64) -> Result<(), WorkloadError> {
        let looks = self.looks(page, version);
        let expected = |i: usize| looks.word(i);
        let words = self.page(page);
        let differences = words
            .iter()
            .enumerate()
            .fold(0, |all, (i, word)| all | (word ^ expected(i)));
        if differences == 0 {
            return Ok(());
        }
        let (i, found) = words
            .iter()
            .enumerate()
            .find(|&(i, word)| *word != expected(i))
            .expect("a word differs");
        let expected = expected(i);
        Err(WorkloadError(format!(
            "wrong contents: page {page}, word {i}: found {found:#018x}, expected {expected:#018x} (version {version})"
        )))
    }

    fn looks(&self, page: usize, version: u64) -> Looks {
        match version {
            0 => Looks::ZERO,
            _ => self.data.looks(page, stamp(page, version)),
        }
    }

    /// The page's part of the checksum.
    fn fold(&mut self, page: usize, sum: u64) -> u64 {
        self.page(page)
            .iter()
            .fold(sum, |sum, word| fold(sum, *word))
    }
}

/// The value from which a page's words follow.
const fn stamp(page: usize, version: u64) -> u64 {
    mix((page as u64) << 24 ^ version.wrapping_mul(STEP))
}

/// Verifies each page of `pages` against `version(page)` and folds it into the checksum.
fn check(
    region: &mut Region,
    pages: &[u32],
    version: impl Fn(usize) -> u64,
    verified: u64,
    recorder: &mut Recorder,
) -> Result<Outcome, WorkloadError> {
    let checksum = recorder.phase("check", |progress| {
        let mut sum = 0;
        for (done, &page) in pages.iter().enumerate() {
            let page = page as usize;
            region.verify(page, version(page))?;
            sum = region.fold(page, sum);
            progress.at(done as u64, pages.len() as u64);
        }
        Ok(sum)
    })?;
    Ok(Outcome {
        checksum,
        verified: verified + pages.len() as u64,
    })
}

/// One pass over `pages`: each must hold `version` and then gets the next one.
///
/// The pass over untouched pages (version 0) only writes: the first touch is a write in the papers.
fn pass(
    region: &mut Region,
    pages: &[u32],
    version: u64,
    name: &'static str,
    recorder: &mut Recorder,
) -> Result<(), WorkloadError> {
    recorder.phase(name, |progress| {
        for (done, &page) in pages.iter().enumerate() {
            if version > 0 {
                region.verify(page as usize, version)?;
            }
            region.write(page as usize, version + 1);
            progress.at(done as u64, pages.len() as u64);
        }
        Ok(())
    })
}

/// The page numbers of the MOC microbenchmark: `cluster` pages, then a gap as long, `pages` in all.
fn moc_pages(pages: usize, cluster: usize) -> Vec<u32> {
    (0..pages)
        .map(|i| (i / cluster * 2 * cluster + i % cluster) as u32)
        .collect()
}

/// The MOC paper's microbenchmark: write S pages, skip S, over the region (p0), then two further
/// passes over what was written (p1, p2). `--mib` are written, the region is twice that; at the end
/// the skipped pages must still be zero.
pub fn moc(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let pages = moc_pages(args.mib as usize * PAGES_PER_MIB, args.cluster as usize);
    let mut region = Region::new(pages.last().map_or(0, |&last| last as usize + 1));
    for (version, name) in ["p0", "p1", "p2"].into_iter().enumerate() {
        pass(&mut region, &pages, version as u64, name, recorder)?;
    }
    let outcome = check(&mut region, &pages, |_| 3, 2 * pages.len() as u64, recorder)?;
    recorder.phase("gaps", |_| {
        let mut written = pages.iter().copied();
        let mut next = written.next();
        for page in 0..pages.last().map_or(0, |&last| last + 1) {
            if next == Some(page) {
                next = written.next();
            } else {
                region.verify(page as usize, 0)?;
            }
        }
        Ok(())
    })?;
    Ok(outcome)
}

/// Passes in order over all pages, each page read and written.
pub fn seq(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let pages = all_pages(args.mib);
    let mut region = Region::new(pages.len());
    pass(&mut region, &pages, 0, "init", recorder)?;
    let passes = u64::from(args.passes.unwrap_or(3));
    recorder.phase("passes", |progress| {
        for version in 1..=passes {
            for &page in &pages {
                region.verify(page as usize, version)?;
                region.write(page as usize, version + 1);
            }
            progress.at(version, passes);
        }
        Ok(())
    })?;
    check(
        &mut region,
        &pages,
        |_| passes + 1,
        passes * pages.len() as u64,
        recorder,
    )
}

/// All pages of a region of `mib` MiB.
pub(super) fn all_pages(mib: u32) -> Vec<u32> {
    (0..mib * PAGES_PER_MIB as u32).collect()
}

/// A model of the region beside it: how often each page was written.
pub(super) struct Model {
    region: Region,
    versions: Vec<u16>,
    verified: u64,
}

impl Model {
    /// A region of `mib` MiB, written once in order.
    pub(super) fn written(
        mib: u32,
        data: Data,
        recorder: &mut Recorder,
    ) -> Result<Self, WorkloadError> {
        let pages = all_pages(mib);
        let mut region = Region::holding(data, pages.len());
        pass(&mut region, &pages, 0, "init", recorder)?;
        Ok(Self {
            region,
            versions: vec![1; pages.len()],
            verified: 0,
        })
    }

    /// Verifies the page; writes its next version when `write`.
    pub(super) fn touch(&mut self, page: usize, write: bool) -> Result<(), WorkloadError> {
        self.region.verify(page, u64::from(self.versions[page]))?;
        self.verified += 1;
        if write {
            self.versions[page] += 1;
            self.region.write(page, u64::from(self.versions[page]));
        }
        Ok(())
    }

    /// Compares all pages with what was written last.
    pub(super) fn check(mut self, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
        let pages: Vec<u32> = (0..self.versions.len() as u32).collect();
        let version = |page: usize| u64::from(self.versions[page]);
        check(&mut self.region, &pages, version, self.verified, recorder)
    }
}

/// Touches of random pages, half of them writes, after every page was written once.
pub fn random(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let mut model = Model::written(args.mib, args.data, recorder)?;
    let pages = model.versions.len();
    let mut rng = Rng::new(50_000);
    recorder.phase("touches", |progress| {
        for done in 0..args.touches {
            let page = rng.below(pages);
            model.touch(page, rng.next() & 1 == 0)?;
            progress.at(done, args.touches);
        }
        Ok(())
    })?;
    model.check(recorder)
}

/// Cold pages scanned for each hot page touched.
const COLD_PER_HOT: f64 = 0.25;

/// Touches within a hot set, half of them writes, while the rest is read in order, over and over.
pub fn hotset(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let mut model = Model::written(args.mib, args.data, recorder)?;
    let hot = args.hot_mib.unwrap_or(args.mib / 4).clamp(1, args.mib) as usize * PAGES_PER_MIB;
    let cold = model.versions.len() - hot;
    let mut rng = Rng::new(8);
    recorder.phase("mix", |progress| {
        let (mut owed, mut next_cold) = (0.0, 0);
        for done in 0..args.touches {
            model.touch(rng.below(hot), rng.next() & 1 == 0)?;
            owed += COLD_PER_HOT;
            if owed >= 1.0 && cold > 0 {
                owed -= 1.0;
                model.touch(hot + next_cold, false)?;
                next_cold = (next_cold + 1) % cold;
            }
            progress.at(done, args.touches);
        }
        Ok(())
    })?;
    model.check(recorder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moc_writes_a_cluster_and_skips_as_much() {
        assert_eq!(moc_pages(6, 2), [0, 1, 4, 5, 8, 9]);
        assert_eq!(moc_pages(4, 1), [0, 2, 4, 6]);
        assert_eq!(moc_pages(5, 3), [0, 1, 2, 6, 7]);
    }

    #[test]
    fn one_wrong_word_is_found() {
        let mut region = Region::new(2);
        assert_eq!(
            region.words.as_ptr().wrapping_add(region.first).addr() % PAGE_BYTES,
            0
        );
        region.verify(1, 0).unwrap();
        region.write(1, 1);
        region.verify(1, 1).unwrap();
        region.verify(0, 0).unwrap();
        assert!(region.verify(1, 2).is_err() && region.verify(1, 0).is_err());
        region.page(1)[511] ^= 1 << 63;
        let message = region.verify(1, 1).unwrap_err().to_string();
        assert!(message.contains("page 1, word 511"), "{message}");
    }

    #[test]
    fn another_page_in_its_place_is_found() {
        let mut region = Region::new(2);
        region.write(0, 1);
        region.write(1, 1);
        let other = region.page(0).to_vec();
        region.page(1).copy_from_slice(&other);
        assert!(region.verify(1, 1).is_err());
    }
}
