//! Programs as people name them: `sor:n=4000,sweeps=3`, `trace:FILE`.

use std::path::Path;

use outpage_core::contract::Access;
use outpage_core::units::{ObjectId, PAGE_BYTES, PageNo, PageRange};
use outpage_sim::programs::{INDEX_MAX, Layout, NAMES, Program, Spec, Step};
use outpage_sim::sizes::Sizes;
use outpage_sim::trace::{PageString, Replayed, Run};
use serde_json::{Map, Value};

use crate::error::{CliError, code};
use crate::trace::load::{self, Format, Trace};

/// A program and how it was named.
pub struct Source {
    /// As it was named.
    pub text: String,
    body: Body,
    object: u32,
}

enum Body {
    Spec(Spec),
    Recorded(Replayed),
}

/// The programs in `texts`, each in a memory object of its own. Traces are read as `format`.
///
/// # Errors
/// [`code::USAGE`], [`code::NO_INPUT`], [`code::DATA`].
pub fn parse_all(texts: &[String], format: Format) -> Result<Vec<Source>, CliError> {
    (1..)
        .zip(texts)
        .map(|(object, text)| Source::parse(text, object, format))
        .collect()
}

impl Source {
    fn parse(text: &str, object: u32, format: Format) -> Result<Self, CliError> {
        let body = match text.strip_prefix("trace:") {
            Some(file) => {
                let trace = load::trace(Path::new(file), format)?;
                Body::Recorded(replayed(file, &trace, object)?)
            }
            None => Body::Spec(spec(text)?),
        };
        Ok(Self {
            text: text.to_owned(),
            body,
            object,
        })
    }

    /// The recorded program that `trace` is of.
    ///
    /// # Errors
    /// [`code::DATA`] when its pages lie further apart than one program's can.
    pub fn recorded(text: &str, trace: &Trace) -> Result<Self, CliError> {
        let body = Body::Recorded(replayed(text, trace, 1)?);
        Ok(Self {
            text: text.to_owned(),
            body,
            object: 1,
        })
    }

    /// A generator that begins anew.
    #[must_use]
    pub fn build(&self) -> Box<dyn Program> {
        match &self.body {
            Body::Spec(spec) => spec.build(self.object),
            Body::Recorded(replayed) => Box::new(replayed.clone()),
        }
    }

    /// Pages of which it was recorded what they come to when they are compressed.
    #[must_use]
    pub fn sizes(&self) -> usize {
        match &self.body {
            Body::Recorded(replayed) => replayed.sizes().map_or(0, |sizes| sizes.len()),
            Body::Spec(_) => 0,
        }
    }

    /// The most pages it has at once.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        self.build().footprint()
    }

    /// Its references, page by page; `None` when there are more than `most`, or when it gives
    /// memory back, which a string cannot tell.
    #[must_use]
    pub fn string(&self, most: usize) -> Option<PageString> {
        let mut program = self.build();
        let mut string = PageString::new();
        while string.len() <= most {
            match program.step() {
                Step::Touch { run, access, .. } => push(&mut string, run, access),
                Step::Together { runs, .. } => push_together(&mut string, &runs),
                Step::Unmap(_) | Step::Discard(_) => return None,
                Step::End => return Some(string),
                // Whether what may be dropped is, a string cannot tell; what is touched is the same.
                Step::Discardable(_) | Step::TakeBack(_) | Step::Flush(_) => {}
                Step::Map(_) | Step::Compute(_) | Step::Phase(_) => {}
                // A program that ends by the clock touches as much as there is time for.
                Step::Until(_) => return None,
            }
        }
        None
    }
}

fn push(string: &mut PageString, run: PageRange, access: Access) {
    run.iter().for_each(|page| string.push(page.raw(), access));
}

/// Page by page over the runs, as the simulator does it.
fn push_together(string: &mut PageString, runs: &[(PageRange, Access); 4]) {
    let pages = runs.iter().map(|r| r.0.pages).max().unwrap_or(0);
    for at in 0..pages {
        for (run, access) in runs.iter().filter(|r| at < r.0.pages) {
            string.push(run.start.raw() + at, *access);
        }
    }
}

fn usage(text: String) -> CliError {
    CliError::new(code::USAGE, text)
}

/// The programs as people name them, separated by commas.
#[must_use]
pub fn names() -> String {
    NAMES.join(", ").replace("micro", "moc")
}

/// `NAME[:KEY=VALUE,...]`.
fn spec(text: &str) -> Result<Spec, CliError> {
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    // The benchmark has the paper's name elsewhere in this program.
    let name = if name == "moc" { "micro" } else { name };
    if !NAMES.contains(&name) {
        let text = format!(
            "there is no program {name}; there are {} and trace:FILE",
            names()
        );
        return Err(usage(text));
    }
    let mut map = Map::new();
    map.insert("program".into(), name.into());
    for setting in settings.split(',').filter(|s| !s.trim().is_empty()) {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| usage(format!("'{setting}' of {text} is no KEY=VALUE")))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value.trim()));
        map.insert(key.trim().replace('-', "_"), value);
    }
    let spec =
        serde_json::from_value(Value::Object(map)).map_err(|e| usage(format!("{text}: {e}")))?;
    check(&spec).map_err(|why| usage(format!("{text}: {why}")))?;
    Ok(spec)
}

/// The most pages that one program may have: 4 TiB.
const PAGES_MAX: u64 = 1 << 30;

fn within(what: &str, value: u64, least: u64, most: u64) -> Result<(), String> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("{what} is {value}, but must be {least} to {most}"))
    }
}

/// What the generators require of their parameters.
fn check(spec: &Spec) -> Result<(), String> {
    // 8 n bytes a row, n rows.
    let side = (PAGES_MAX * PAGE_BYTES as u64 / 8).isqrt();
    match spec {
        Spec::Sor(p) => {
            // A chunk of jemalloc has 254 pages beside its header.
            let widest = if p.layout == Layout::Jemalloc {
                254 * PAGE_BYTES as u64 / 8
            } else {
                side
            };
            within("n", p.n, 3, widest)
        }
        Spec::Lu(p) => {
            within("n", p.n, 2, side)?;
            within("offset", p.offset, 0, PAGE_BYTES as u64 - 1)
        }
        Spec::Micro(p) => {
            within("cluster-pages", p.cluster_pages, 1, 1 << 20)?;
            within("pages", p.pages, 1, PAGES_MAX)
        }
        Spec::Jvm(p) => {
            within("memory-pages", p.memory_pages, 1000, PAGES_MAX)?;
            p.check()
        }
        Spec::Ns2(p) if p.recorded => Err("a recording is named as trace:FILE".to_owned()),
        Spec::Ns2(p) => {
            within("pages", p.pages, 1000, PAGES_MAX)?;
            within("setup-pages", p.setup_pages, 1, p.pages)?;
            within("nodes", u64::from(p.nodes), 1, 1 << 20)?;
            within("rounds", u64::from(p.rounds), 1, 1 << 20)?;
            within("moved-percent", u64::from(p.moved_percent), 0, 100)?;
            let rounds = u64::from(p.rounds);
            within("storm-rounds", u64::from(p.storm_rounds), 0, rounds)?;
            within("storm-percent", u64::from(p.storm_percent), 0, 100)?;
            if p.gap_pages.is_finite() && (0.0..=1e6).contains(&p.gap_pages) {
                Ok(())
            } else {
                Err(format!(
                    "gap-pages is {}, but must be 0 to 1000000",
                    p.gap_pages
                ))
            }
        }
        _ => check_order(spec),
    }
}

/// The same of those whose order is what they are about.
fn check_order(spec: &Spec) -> Result<(), String> {
    match spec {
        Spec::Column(p) => {
            within("pages", p.pages, 1, PAGES_MAX)?;
            within("row-bytes", p.row_bytes, 1, PAGES_MAX)?;
            within("passes", p.passes, 0, 1 << 20)?;
            p.check()
        }
        Spec::Transpose(p) => {
            within("pages", p.pages, 2, PAGES_MAX)?;
            within("element-bytes", p.element_bytes, 1, PAGE_BYTES as u64)
        }
        Spec::Fft(p) => within("pages", p.pages, 1, PAGES_MAX),
        Spec::Zigzag(p) => {
            within("pages", p.pages, 1, PAGES_MAX)?;
            within("passes", p.passes, 0, 1 << 20)
        }
        Spec::Join(p) => {
            within("pages", p.pages, 4, PAGES_MAX)?;
            within("row-bytes", p.row_bytes, 1, PAGE_BYTES as u64)
        }
        Spec::Merge(p) => {
            within("pages", p.pages, 2, PAGES_MAX)?;
            within("ways", p.ways, 1, 1 << 20)?;
            within("record-bytes", p.record_bytes, 1, PAGE_BYTES as u64)
        }
        Spec::Runs(p) => {
            within("pages", p.pages, 1, PAGES_MAX)?;
            within("longest", p.longest, 1, p.pages)
        }
        Spec::Phases(p) => {
            within("pages", p.pages, 1, PAGES_MAX)?;
            within("phase", p.phase, 1, u64::MAX)
        }
        _ => Ok(()),
    }
}

/// Pages between two separate parts of a recorded program, at least, and what their places are
/// aligned to: no cluster or window of up to 1024 pages spans two of them, and each keeps its
/// alignment.
const APART: u64 = 1024;

/// The program that the trace called `name` is of.
/// The program that `trace`, called `name`, was recorded from, its pages in object `object`.
///
/// # Errors
/// [`code::DATA`] when they lie further apart than one program's can.
pub fn replayed(name: &str, trace: &Trace, object: u32) -> Result<Replayed, CliError> {
    let Trace { runs, sizes } = moved(name, trace, object)?;
    Ok(Replayed::new(runs).with_sizes(sizes))
}

/// The trace called `name` with all its pages in object `object`, since a world tells
/// programs apart by their objects. Neighbours stay neighbours; parts that lie apart stay apart.
fn moved(name: &str, trace: &Trace, object: u32) -> Result<Trace, CliError> {
    let runs = &trace.runs;
    let mut pages: Vec<(u64, u64)> = Vec::new();
    for run in runs {
        let last = run.page(run.count - 1).raw();
        pages.push((run.start.raw().min(last), run.start.raw().max(last)));
        if pages.len() > 1 << 16 && pages.len().is_power_of_two() {
            merge(&mut pages);
        }
    }
    merge(&mut pages);
    let mut next = 0_u64;
    let mut places = Vec::with_capacity(pages.len());
    for &(first, last) in &pages {
        let place = next + first % APART;
        if place > INDEX_MAX || last - first > INDEX_MAX - place {
            return Err(load::damaged(
                Path::new(name),
                format!(
                    "its pages lie too far apart: a simulated program spans {INDEX_MAX} at most"
                ),
            ));
        }
        next = (place + (last - first) + 1).next_multiple_of(APART) + APART;
        places.push((first, place));
    }
    let place = |page: PageNo| {
        let at = places.partition_point(|p| p.0 <= page.raw()) - 1;
        let (first, place) = places[at];
        PageNo::new(ObjectId(object), place + (page.raw() - first))
    };
    let moved = runs.iter().map(|run| Run {
        start: place(run.start),
        ..*run
    });
    // Pages that are not touched have no place.
    let touched = |page: PageNo| {
        let after = pages.partition_point(|span| span.0 <= page.raw());
        after > 0 && page.raw() <= pages[after - 1].1
    };
    let sizes = trace.sizes.iter().filter(|size| touched(size.0));
    let sizes = Sizes::new(sizes.map(|(page, bytes)| (place(page), bytes)));
    let runs = moved.collect();
    Ok(Trace { runs, sizes })
}

/// Sorts and joins spans that touch or lie closer than [`APART`].
fn merge(spans: &mut Vec<(u64, u64)>) {
    spans.sort_unstable();
    spans.dedup_by(|span, before| {
        let joins = span.0 <= before.1.saturating_add(APART);
        if joins {
            before.1 = before.1.max(span.1);
        }
        joins
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use outpage_core::units::Nanos;

    #[test]
    fn parameters_are_read_and_checked() {
        let sor = spec("sor:n=512,sweeps=1,layout=glibc").expect("sor");
        assert!(
            matches!(sor, Spec::Sor(p) if p.n == 512 && p.sweeps == 1 && p.layout == Layout::Glibc)
        );
        let micro = spec("moc:cluster-pages=8").expect("moc");
        assert!(matches!(micro, Spec::Micro(p) if p.cluster_pages == 8));
        for bad in [
            "sor:n=2",
            "sor:n",
            "sor:m=3",
            "sor:layout=slab",
            "moc:cluster-pages=0",
            "vi",
            "ns2:gap-pages=-1",
        ] {
            assert_eq!(spec(bad).unwrap_err().code, code::USAGE, "{bad}");
        }
    }

    fn run(start: u64, count: u32) -> Run {
        let (access, gap) = (Access::Write, Nanos(5));
        Run {
            start: PageNo::from_raw(start),
            stride: 1,
            count,
            access,
            gap,
        }
    }

    fn moved(runs: &[Run], object: u32) -> Result<Trace, CliError> {
        super::moved("t", &runs.to_vec().into(), object)
    }

    #[test]
    fn sizes_move_with_their_pages() {
        let far = 1 << 33;
        let sizes = [(far + 5, 500), (far + 1, 1), (7, 700), (far + 9, 900)];
        let trace = Trace {
            runs: vec![run(far + 5, 3), run(7, 2), run(far + 9, 1)],
            sizes: Sizes::new(sizes.map(|(page, bytes)| (PageNo::from_raw(page), bytes))),
        };
        let moved = super::moved("t", &trace, 3).expect("fits");
        let start = |at: usize| moved.runs[at].start;
        let found: Vec<_> = moved.sizes.iter().collect();
        // Nothing touches the page before the far ones.
        assert_eq!(found, [(start(1), 700), (start(0), 500), (start(2), 900)]);
    }

    #[test]
    fn parts_stay_apart_and_keep_their_alignment() {
        let far = 1 << 33;
        let runs = moved(&[run(far + 5, 3), run(7, 2), run(far + 8, 1)], 3)
            .expect("fits")
            .runs;
        assert!(runs.iter().all(|r| r.start.object() == ObjectId(3)));
        let at: Vec<u64> = runs.iter().map(|r| r.start.index()).collect();
        assert_eq!(at[1], 7);
        assert_eq!(at[0] % APART, 5);
        assert_eq!(at[2], at[0] + 3, "neighbours stay neighbours");
        assert!(at[0] >= 9 + APART);
    }

    #[test]
    fn pages_at_the_end_of_all_numbers_are_moved_like_others() {
        let last = u64::MAX;
        let runs = moved(&[run(last, 1), run(1, 2), run(last - 3, 2)], 1)
            .expect("they fit")
            .runs;
        let at: Vec<u64> = runs.iter().map(|r| r.start.index()).collect();
        assert_eq!(at[1], 1);
        assert_eq!(at[0], at[2] + 3, "neighbours stay neighbours");
        assert_eq!(at[0] % APART, last % APART);
    }

    #[test]
    fn pages_too_far_apart_for_one_object_are_refused() {
        let strided = |object: u64| Run {
            stride: 1 << 35,
            ..run((object << 36) + 5, 2)
        };
        assert!(moved(&[strided(1)], 1).is_ok());
        let error = moved(&[strided(1), strided(2)], 1).err().expect("refused");
        assert_eq!(error.code, code::DATA);
        assert!(error.text.starts_with("t: its pages lie too far apart"));
        let whole = Run {
            stride: (1 << 36) - 1,
            ..run(1 << 36, 2)
        };
        assert!(moved(&[whole], 1).is_err(), "no page behind the last");
    }

    #[test]
    fn a_string_has_every_touch() {
        let source = Source {
            text: String::new(),
            body: Body::Spec(spec("sor:n=512,sweeps=1").expect("sor")),
            object: 1,
        };
        let string = source.string(1 << 20).expect("small");
        // 512 rows of a page with its pointer, then three rows for each of 510.
        assert_eq!(string.len(), 512 * 2 + 510 * 3);
        assert_eq!(string.distinct(), 512 + 1);
        assert!(source.string(100).is_none());
    }
}
