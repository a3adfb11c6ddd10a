//! `outpage disk measure`: the simulator's solid-state disk, fitted to this machine's, and the costs of compression on it.

mod codecs;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use outpage_core::units::PAGE_BYTES;
use outpage_engine::config::{DEFAULT_SWAP_DIR, format_size, parse_size};
use outpage_sim::disk::{Params, SolidParams};
use outpage_store::SwapFile;
use serde_json::json;

use crate::bar;
use crate::bench::summary::table;
use crate::error::{CliError, code};
use crate::sim::table::put;
use crate::{message, output};

/// Options of `outpage disk`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Mode {
    /// Measure reads and writes of several sizes on a temporary file and fit the model to them
    ///
    /// Requests bypass the page cache (O_DIRECT). The medians of latencies by size give a latency
    /// and a price a page for each direction; the most reads a second that any number of threads
    /// gets, times the latency of one, gives how many are served at once. What LZ4 and Zstandard
    /// take of a CPU to compress a page, to refuse one and to decompress one is measured too.
    Measure(Options),
}

/// Options of `outpage disk measure`.
#[derive(Clone, Debug, clap::Args)]
struct Options {
    /// Directory of the temporary file; its disk is the one that is measured
    #[arg(long, value_name = "DIR", default_value = DEFAULT_SWAP_DIR)]
    swap: PathBuf,
    /// Size of the temporary file, 16M to 64G: larger than the disk's own cache is better
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = file_size)]
    size: u64,
    /// Requests of each size
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    requests: u32,
    /// Write the parameters to this file, for `outpage sim --disk FILE`; "-" is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn file_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|e| e.to_string())?;
    if (16 << 20..=64 << 30).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("'{text}' is not 16M to 64G"))
    }
}

/// Version of the JSON's layout.
const SCHEMA: u32 = 1;
/// Sizes of requests in pages: to the largest write and beyond the largest read of a run's defaults.
const SIZES: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Threads that read at once.
const THREADS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// How long each number of threads reads.
const READING: Duration = Duration::from_millis(400);
/// What the file is first written in, in pages: 1 MiB.
const FILL_PAGES: u32 = 256;

/// Measures and prints.
///
/// # Errors
/// [`code::NO_INPUT`] for an unusable directory; [`code::IO`].
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let Mode::Measure(options) = &args.mode;
    let swap = SwapFile::create_in(&options.swap, options.size).map_err(|e| {
        CliError::new(
            code::NO_INPUT,
            format!("cannot make a file in {}: {e}", options.swap.display()),
        )
    })?;
    swap.warnings()
        .for_each(|warning| message::line(format_args!("outpage: {warning}")));
    swap.preallocate(0..options.size)
        .map_err(|e| CliError::new(code::IO, e.to_string()))?;
    let failed = |e| CliError::unwritten(&options.swap, e);
    let file = again(&swap).map_err(failed)?;
    let measured = Measured::of(&file, options).map_err(failed)?;
    let params = measured.params();
    let costs = codecs::measure();
    let value = json!({
        "schema": SCHEMA,
        "params": Params::Solid(params),
        "codecs": costs,
        "measured": {
            "directory": options.swap, "file_bytes": options.size,
            "read_ns": measured.reads, "write_ns": measured.writes, "reads_per_second": measured.parallel,
        },
    });
    if let Some(path) = &options.json {
        put(path, &format!("{value:#}\n"))?;
    }
    if options.json.as_deref() != Some(Path::new("-")) {
        output::print(&format!(
            "{}{}",
            text(&measured, &params),
            codecs::text(&costs)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The swap file once more, as a file of the standard library; direct where that is known.
fn again(swap: &SwapFile) -> std::io::Result<File> {
    let path = format!("/proc/self/fd/{}", swap.as_raw_fd());
    let mut open = File::options();
    open.read(true).write(true);
    // Where the file system knows no O_DIRECT a warning has said so.
    open.clone()
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .or_else(|_| open.open(&path))
}

/// Medians: (pages, nanoseconds) of reads and writes; (threads, reads of a page a second).
struct Measured {
    reads: Vec<(u32, u64)>,
    writes: Vec<(u32, u64)>,
    parallel: Vec<(u32, u64)>,
}

impl Measured {
    fn of(file: &File, options: &Options) -> std::io::Result<Self> {
        let pages = options.size / PAGE_BYTES as u64;
        let fills = pages / u64::from(FILL_PAGES);
        let requests = u64::from(options.requests) * 2 * SIZES.len() as u64;
        let bar = bar::steps("measuring", fills + requests);
        let mut buffer = Buffer::new(*SIZES.last().expect("sizes").max(&FILL_PAGES));
        for at in 0..fills {
            file.write_all_at(
                buffer.pages(FILL_PAGES, at),
                at * u64::from(FILL_PAGES) * PAGE_BYTES as u64,
            )?;
            bar.inc(1);
        }
        let mut place = Places::new(pages);
        let mut by_size = |write: bool| -> std::io::Result<Vec<(u32, u64)>> {
            let measure = |&size: &u32| {
                latency(
                    file,
                    &mut buffer,
                    &mut place,
                    size,
                    write,
                    options.requests,
                    &bar,
                )
                .map(|ns| (size, ns))
            };
            SIZES.iter().map(measure).collect()
        };
        let (reads, writes) = (by_size(false)?, by_size(true)?);
        let parallel = THREADS
            .iter()
            .map(|&threads| reads_per_second(file, pages, threads).map(|r| (threads, r)));
        let parallel = parallel.collect::<Result<_, _>>()?;
        bar.finish_and_clear();
        Ok(Self {
            reads,
            writes,
            parallel,
        })
    }

    fn params(&self) -> SolidParams {
        let one = self.reads[0].1 as f64 / 1e9;
        let most = self.parallel.iter().map(|p| p.1).max().unwrap_or(1) as f64;
        let channels = (most * one).round().clamp(1.0, 1024.0) as u32;
        SolidParams::fitted(&self.reads, &self.writes, channels)
            .expect("several sizes were measured")
    }
}

/// The median latency of `requests` requests of `size` pages at random places.
fn latency(
    file: &File,
    buffer: &mut Buffer,
    places: &mut Places,
    size: u32,
    write: bool,
    requests: u32,
    bar: &ProgressBar,
) -> std::io::Result<u64> {
    let mut taken = Vec::with_capacity(requests as usize);
    for at in 0..requests {
        let offset = places.next(size) * PAGE_BYTES as u64;
        let bytes = buffer.pages(size, u64::from(at));
        let began = Instant::now();
        if write {
            file.write_all_at(bytes, offset)?;
        } else {
            file.read_exact_at(bytes, offset)?;
        }
        taken.push(began.elapsed().as_nanos() as u64);
        bar.inc(1);
    }
    taken.sort_unstable();
    Ok(taken[taken.len() / 2].max(1))
}

/// Reads of a page a second by `threads` threads.
fn reads_per_second(file: &File, pages: u64, threads: u32) -> std::io::Result<u64> {
    let (over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let read = |seed: u32| -> std::io::Result<()> {
        let mut buffer = Buffer::new(1);
        let mut places = Places {
            state: u64::from(seed) + 1,
            ..Places::new(pages)
        };
        while !over.load(Relaxed) {
            file.read_exact_at(buffer.pages(1, 0), places.next(1) * PAGE_BYTES as u64)?;
            reads.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..threads)
            .map(|seed| scope.spawn(move || read(seed)))
            .collect();
        std::thread::sleep(READING);
        over.store(true, Relaxed);
        readers
            .into_iter()
            .try_for_each(|r| r.join().expect("a reader does not panic"))
    })?;
    Ok((reads.load(Relaxed) as f64 / began.elapsed().as_secs_f64()) as u64)
}

/// Memory that is aligned as `O_DIRECT` wants it.
struct Buffer {
    bytes: Vec<u8>,
    from: usize,
}

impl Buffer {
    fn new(pages: u32) -> Self {
        let bytes = vec![0; (pages as usize + 1) * PAGE_BYTES];
        let from = bytes.as_ptr().align_offset(PAGE_BYTES);
        Self { bytes, from }
    }

    /// The first `pages` pages, no two with the same content: disks may merge or compress.
    fn pages(&mut self, pages: u32, seed: u64) -> &mut [u8] {
        let bytes = &mut self.bytes[self.from..self.from + pages as usize * PAGE_BYTES];
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        for word in bytes.chunks_exact_mut(8).step_by(8) {
            // Knuth's MMIX generator.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&state.to_le_bytes());
        }
        bytes
    }
}

/// Random places in the file.
struct Places {
    state: u64,
    pages: u64,
}

impl Places {
    const fn new(pages: u64) -> Self {
        Self { state: 1, pages }
    }

    /// The first page of a run of `size` pages.
    fn next(&mut self, size: u32) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let room = self.pages - u64::from(size) + 1;
        ((u128::from(self.state) * u128::from(room)) >> 64) as u64
    }
}

fn text(measured: &Measured, p: &SolidParams) -> String {
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    let head = ["request", "read us", "model", "write us", "model"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (&(size, read), &(_, write)) in measured.reads.iter().zip(&measured.writes) {
        let blocks = u64::from(size);
        rows.push(vec![
            format_size(blocks * PAGE_BYTES as u64),
            us(read),
            us(p.read_ns + p.read_block_ns * blocks),
            us(write),
            us(p.write_ns + p.write_block_ns * blocks),
        ]);
    }
    let parallel: Vec<_> = measured
        .parallel
        .iter()
        .map(|(t, r)| format!("{t}: {r}"))
        .collect();
    format!(
        "{}reads of a page a second, by threads: {}\n\
         read {} us + {} us a page, write {} us + {} us a page, {} at once\n",
        table(&rows),
        parallel.join(", "),
        us(p.read_ns),
        us(p.read_block_ns),
        us(p.write_ns),
        us(p.write_block_ns),
        p.channels
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lie_in_the_file() {
        let mut places = Places::new(300);
        assert!((0..10_000).all(|_| places.next(256) <= 44));
    }

    #[test]
    fn channels_are_reads_a_second_times_the_latency() {
        let line = |base: u64| {
            SIZES
                .iter()
                .map(|&s| (s, base + 2_000 * u64::from(s)))
                .collect()
        };
        let measured = Measured {
            reads: line(98_000),
            writes: line(30_000),
            parallel: vec![(1, 10_000), (8, 42_000)],
        };
        let p = measured.params();
        assert_eq!(
            (p.read_ns, p.read_block_ns, p.write_ns, p.channels),
            (98_000, 2_000, 30_000, 4)
        );
    }

    #[test]
    fn buffers_are_aligned() {
        let mut buffer = Buffer::new(3);
        assert!((buffer.pages(3, 1).as_ptr() as usize).is_multiple_of(PAGE_BYTES));
    }
}
