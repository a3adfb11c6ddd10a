//! Pages as a browser draws them: how tall they are, what is cut off, and which words lie upon each other.
//!
//! Without a browser the words of the charts are measured by the widths of their letters alone, and the rest is skipped. `OUTPAGE_PICTURES=DIR` keeps
//! pages, pictures and prints, to be looked at.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::Evaluation;
use crate::paper::runs::Runs;
use crate::paper::runs::testing::{alike, quietly, scattered};
use crate::paper::{Paper, asp, discard, hsn, mclustering, moc};

/// A screen of 1920 by 1080 less what a browser takes, in CSS pixels.
const SCREEN: (u32, u32) = (1_280, 900);
/// A sheet of letter paper less its margins, in CSS pixels across.
const PAPER: u32 = 736;
/// Names that Debian, Fedora and Google give the browser.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// A browser that says nothing for so long hangs, seconds; here it takes ten on a busy machine.
const HUNG: &str = "300";

/// Measures the page that it is in and writes what it found at its end. Words may touch by a pixel.
const MEASURE: &str = r#"<script>addEventListener("load", () => {
const box = e => e.getBoundingClientRect();
const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
const found = {overlaps: [], outside: []};
for (const svg of document.querySelectorAll("svg")) {
  const texts = [...svg.querySelectorAll("text")], frame = box(svg), name = svg.querySelector("title").textContent + ": ";
  texts.forEach((one, at) => {
    const a = box(one);
    if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1) found.outside.push(name + one.textContent);
    for (const other of texts.slice(at + 1)) if (over(a, box(other))) found.overlaps.push(name + one.textContent + " and " + other.textContent);
  });
}
const root = document.documentElement;
found.height = root.scrollHeight;
found.wide = root.scrollWidth;
found.verdicts = Math.max(0, ...[...document.querySelectorAll("body > table.verdicts")].map(table => box(table).bottom + scrollY));
for (const fold of document.querySelectorAll("details")) fold.open = true;
found.wide_open = root.scrollWidth;
for (const fold of document.querySelectorAll("details")) fold.open = false;
const out = document.createElement("pre");
out.id = "measured";
out.style.display = "none";
out.textContent = encodeURIComponent(JSON.stringify(found));
document.body.append(out);
});</script>"#;

/// What the script found.
#[derive(Deserialize)]
struct Measured {
    /// Words of charts that lie upon each other.
    overlaps: Vec<String>,
    /// Words of charts that are cut off.
    outside: Vec<String>,
    /// CSS pixels of the page, folded.
    height: u32,
    /// The same across.
    wide: u32,
    /// The same, unfolded.
    wide_open: u32,
    /// Where the last table of verdicts ends.
    verdicts: f64,
}

/// A directory for a page and its pictures: of this run alone, unless they are to be kept.
struct Place {
    path: PathBuf,
    kept: bool,
}

impl Place {
    fn new(name: &str) -> Self {
        let kept = env::var_os("OUTPAGE_PICTURES");
        let base = kept.clone().map_or_else(env::temp_dir, PathBuf::from);
        let own = match kept {
            Some(_) => name.to_owned(),
            None => format!("outpage-picture-{name}-{}", std::process::id()),
        };
        let path = base.join(own);
        fs::create_dir_all(&path).expect("a directory");
        Self {
            path,
            kept: kept.is_some(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The browser that is installed.
fn browser() -> Option<&'static str> {
    BROWSERS.into_iter().find(|name| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    })
}

/// What the browser writes of `page`. It keeps its profile beside it.
fn drawn(browser: &str, place: &Path, page: &Path, options: &[String]) -> Vec<u8> {
    let output = Command::new("timeout")
        .args([HUNG, browser, "--headless", "--no-sandbox", "--disable-gpu"])
        .args([
            "--no-first-run",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
        ])
        .arg(format!(
            "--user-data-dir={}",
            place.join("profile").display()
        ))
        .args(options)
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("coreutils");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    output.stdout
}

fn size((wide, tall): (u32, u32)) -> String {
    format!("--window-size={wide},{tall}")
}

/// Writes the page, or the sheet that it is on paper, and measures it.
fn measured(browser: &str, place: &Path, html: &str, window: (u32, u32)) -> Measured {
    let page = place.join("page.html");
    fs::write(&page, html.replace("</body>", &format!("{MEASURE}</body>"))).expect("a page");
    let dom = drawn(
        browser,
        place,
        &page,
        &[size(window), "--dump-dom".to_owned()],
    );
    let dom = String::from_utf8(dom).expect("UTF-8");
    let from = dom.find("id=\"measured\"").expect("the script ran");
    let text = dom[from..].split(['>', '<']).nth(1).expect("its text");
    serde_json::from_slice(&unescaped(text)).expect("JSON")
}

/// `%22` is a quotation mark.
fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let mut digit = || {
            char::from(bytes.next().unwrap_or(b'0'))
                .to_digit(16)
                .unwrap_or(0) as u8
        };
        out.push(if byte == b'%' {
            16 * digit() + digit()
        } else {
            byte
        });
    }
    out
}

/// Width and height of a PNG, by its first chunk.
fn png_size(bytes: &[u8]) -> (u32, u32) {
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    let at = |from: usize| u32::from_be_bytes(bytes[from..from + 4].try_into().expect("four"));
    (at(16), at(20))
}

/// Draws a page, and looks at it.
fn looks_right(name: &str, evaluation: &Evaluation) {
    charts_are_legible(evaluation);
    let Some(browser) = browser() else {
        eprintln!(
            "SKIPPED: there is no {}: no page is drawn",
            BROWSERS.join(", ")
        );
        return;
    };
    let place = Place::new(name);
    let [page, picture] = ["page.html", "page.png"].map(|file| place.path.join(file));
    let html = evaluation.html();
    let paper = html.replace("@media print", "@media screen");
    let sheet = measured(browser, &place.path, &paper, (PAPER, SCREEN.1));
    assert_eq!(
        sheet.overlaps, [""; 0],
        "{name}: words upon each other on paper"
    );
    assert!(
        sheet.wide_open <= PAPER,
        "{name}: {} across on paper",
        sheet.wide_open
    );
    let found = measured(browser, &place.path, &html, SCREEN);
    assert_eq!(found.overlaps, [""; 0], "{name}: words upon each other");
    assert_eq!(found.outside, [""; 0], "{name}: words cut off");
    assert!(
        found.wide <= SCREEN.0 && found.wide_open <= SCREEN.0,
        "{name}: {} and {}",
        found.wide,
        found.wide_open
    );
    let screens = 2.0 * f64::from(SCREEN.1);
    assert!(
        found.verdicts <= screens,
        "{name}: verdicts end at {}",
        found.verdicts
    );
    // A heading and a chart take 570 pixels at that width, a table's line 22.
    let most = 600 * (evaluation.figures.len() + evaluation.curves.len()) + 2 * SCREEN.1 as usize;
    assert!(
        found.height as usize <= most,
        "{name}: {} of {most}",
        found.height
    );
    let shot = format!("--screenshot={}", picture.display());
    drawn(
        browser,
        &place.path,
        &page,
        &[size((SCREEN.0, found.height)), shot],
    );
    let drawn_size = png_size(&fs::read(&picture).expect("a picture"));
    assert_eq!(drawn_size, (SCREEN.0, found.height), "{name}");
    if place.kept {
        let print = format!("--print-to-pdf={}", place.path.join("page.pdf").display());
        drawn(browser, &place.path, &page, &[print]);
    }
}

/// A word of a chart: where it is, by the mean width of a letter of a sans-serif face.
struct Word<'a> {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    text: &'a str,
}

/// Parts of the height of a face that its letters are wide (the digits, which are most of it) and rise above their line.
const WIDE: f64 = 0.5;
const RISE: f64 = 0.7;

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let from = tag.find(&format!(" {name}=\""))? + name.len() + 3;
    tag[from..].split('"').next()
}

fn words(svg: &str) -> Vec<Word<'_>> {
    let texts = svg.split("<text").skip(1);
    let word = |part| -> Option<Word<'_>> {
        let (tag, rest) = str::split_once(part, '>')?;
        let number = |name| attribute(tag, name)?.parse::<f64>().ok();
        let (x, y) = (number("x")?, number("y")?);
        let size = number("font-size").unwrap_or(11.0);
        let text = rest.split('<').next()?;
        let long = WIDE * size * text.chars().count() as f64;
        let before = match attribute(tag, "text-anchor") {
            Some("end") => long,
            Some("middle") => long / 2.0,
            _ => 0.0,
        };
        // Turned to the left, a word goes upwards from where it begins.
        let (left, right, top, bottom) = match attribute(tag, "transform") {
            Some(_) => (x - RISE * size, x, y - (long - before), y + before),
            None => (x - before, x - before + long, y - RISE * size, y),
        };
        Some(Word {
            left,
            right,
            top,
            bottom,
            text,
        })
    };
    texts.filter_map(word).collect()
}

/// Pairs of words that lie upon each other.
fn upon(svg: &str) -> Vec<String> {
    let words = words(svg);
    let mut found = Vec::new();
    for (at, a) in words.iter().enumerate() {
        for b in &words[at + 1..] {
            let across = a.right.min(b.right) - a.left.max(b.left);
            let along = a.bottom.min(b.bottom) - a.top.max(b.top);
            if across > 0.0 && along > 0.0 {
                found.push(format!("{} and {}", a.text, b.text));
            }
        }
    }
    found
}

/// No word of a chart lies upon another, or beside the chart.
fn charts_are_legible(evaluation: &Evaluation) {
    let bars = evaluation
        .figures
        .iter()
        .map(|figure| (&figure.chart.title, figure.chart.svg()));
    let curves = evaluation
        .curves
        .iter()
        .map(|curves| (&curves.title, curves.svg()));
    for (title, svg) in bars.chain(curves) {
        assert_eq!(upon(&svg), [""; 0], "{title}");
        let frame = attribute(&svg, "viewBox").expect("a frame");
        let frame: Vec<f64> = frame
            .split(' ')
            .map(|n| n.parse().expect("a number"))
            .collect();
        let all = words(&svg);
        assert!(all.len() > 3, "{title} has words");
        for word in all {
            let within = word.left >= 0.0 && word.right <= frame[2] && word.bottom <= frame[3];
            assert!(within, "{title}: {} ends at {}", word.text, word.right);
        }
    }
}

fn without_guests(paper: Paper, evaluation: fn(&Runs) -> Evaluation) -> Evaluation {
    evaluation(&scattered(alike(paper.setups(None, false))))
}

#[test]
fn the_page_of_moc_looks_right() {
    let moc = without_guests(Paper::Moc, |runs| moc::evaluation(runs, false, false));
    let html = moc.html();
    for words in [
        "elapsed, s / 512 MB / sor / bsd (Table 1)",
        "elapsed saved, % / 512 MB / sor (section 5.2 and abstract)",
    ] {
        assert!(html.contains(words), "{words}");
    }
    let at = |words| html.find(words).expect("it is there");
    assert!(
        at("<h2>Figures") < at("What is not met"),
        "charts come before notes"
    );
    looks_right("moc", &moc);
}

#[test]
fn the_page_of_mclustering_looks_right() {
    looks_right(
        "mclustering",
        &without_guests(Paper::MClustering, mclustering::evaluation),
    );
}

#[test]
fn the_page_of_discard_looks_right() {
    looks_right(
        "discard",
        &without_guests(Paper::Discard, discard::evaluation),
    );
}

#[test]
fn the_page_of_asp_looks_right() {
    looks_right("asp", &asp::evaluation(&scattered(asp::small_runs())));
}

#[test]
fn the_page_of_hsn_looks_right() {
    let runs = Runs::run_guests(&hsn::small_setups(), quietly());
    assert_eq!(runs.failures().next(), None);
    looks_right("hsn", &hsn::evaluation(&runs));
}

#[test]
fn words_upon_each_other_are_found() {
    let svg = |x: u32, more: &str| {
        format!(
            "<svg viewBox=\"0 0 99 99\"><text x=\"10\" y=\"20\">a word</text><text x=\"{x}\" y=\"22\"{more}>1,000</text></svg>"
        )
    };
    assert_eq!(upon(&svg(30, "")), ["a word and 1,000"]);
    assert_eq!(upon(&svg(60, "")), [""; 0]);
    // It ends there, or is turned.
    assert_eq!(upon(&svg(60, " text-anchor=\"end\"")), ["a word and 1,000"]);
    assert_eq!(
        upon(&svg(
            60,
            " text-anchor=\"end\" transform=\"rotate(-90 60 22)\""
        )),
        [""; 0]
    );
    assert_eq!(unescaped("%7B%22a%22%3A1}"), b"{\"a\":1}");
}
