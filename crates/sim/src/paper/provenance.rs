//! Where each constant of the papers' models comes from: its source, what else it could be, when it was fixed, and what was fitted to.
//!
//! "With the first report" means that no report had been written when it was fixed; what its author had seen before, the history does not tell.

use super::table::Table;

/// What it is, its value, source, plausible range, when it was fixed, what it was fitted to.
pub(super) type Constant = [&'static str; 6];

/// Of both BSD papers.
const SCHEDULER: Constant = [
    "scheduler",
    "that of ata(4)",
    "FreeBSD's source",
    "certain",
    "after reports with another one",
    "nothing",
];

/// Of both: how many page-outs the daemon has under way, which decides what SOR gains.
const IN_FLIGHT: Constant = [
    "page-outs in flight",
    "4",
    "nsw_wcount_async of FreeBSD's swap_pager.c",
    "certain, if nothing was tuned; 1 is shown, for MOC also 2 and 16",
    "with the first report",
    "nothing",
];

/// Of the MOC paper's.
pub(super) const MOC: &[Constant] = &[
    [
        "frames of 512 MB",
        "120,000",
        "what FreeBSD hands out (126,000) less a guess for kernel and system",
        "105,000 to 126,000",
        "with the first report",
        "nothing; LU, whose references are exact, writes as published with about 119,000",
    ],
    [
        "frames of 1 GB",
        "248,000",
        "the same",
        "233,000 to 254,000",
        "with the first report",
        "nothing",
    ],
    SCHEDULER,
    IN_FLIGHT,
    [
        "sequential faults: read-ahead is for those that continue where one before them ended",
        "any fault moves that point",
        "FreeBSD's sources of 6.2",
        "any fault, those that read, never",
        "with the first report",
        "nothing",
    ],
    [
        "rows of SOR",
        "whole pages",
        "malloc(3) of FreeBSD 6",
        "certain, if the program used it; as glibc lays them is shown",
        "with the first report",
        "nothing",
    ],
    [
        "disk, but for what is drawn",
        "Barracuda 7200.9",
        "reviews and a data sheet; estimates are named with the model",
        "stretches of the write cache: 16 to any number",
        "with the first report",
        "nothing",
    ],
    [
        "write cache",
        "on",
        "FreeBSD's default",
        "on or off",
        "with the first report",
        "nothing",
    ],
    [
        "swap space",
        "3 GB",
        "the paper has 2 GB",
        "2 or 3 GB",
        "after runs in which 2 GB were full",
        "that the larger programs end",
    ],
    [
        "sweeps of SOR",
        "7",
        "SciMark's groups of 1, 2 and 4",
        "3, 7 or 15",
        "with the first report",
        "pages written by SOR, Table 3",
    ],
    [
        "CPU times",
        "of Table 1 at 1 GB",
        "published, to whole seconds",
        "2.5 % (drawn)",
        "with the first report",
        "Table 1, 1 GB",
    ],
    [
        "LU: order of rows",
        "nbench's generator",
        "its source",
        "certain",
        "with the first report",
        "nothing",
    ],
    [
        "NS2: lengths of runs, gaps",
        "78 intervals of the real program",
        "measured, 64 bits",
        "the middles of the 78",
        "with the first report",
        "that measurement, never page-outs",
    ],
    [
        "NS2: runs that move in a second",
        "10 %",
        "mean of that measurement; its median is 5 %",
        "5 to 10 %",
        "with the first report",
        "that measurement",
    ],
    [
        "NS2: growth of the heap",
        "evenly in the first half",
        "a simplification; the recording has three steps and a storm",
        "even, steps, steps with a storm",
        "with the first report",
        "nothing",
    ],
    [
        "NS2, 1000 nodes: heap",
        "264,700 pages",
        "size at 20 simulated seconds, scaled from 64 to 32 bits",
        "a lower bound; a fifth more is shown",
        "with the first report",
        "nothing",
    ],
    [
        "when the three programs start",
        "at once",
        "not published",
        "within seconds",
        "with the first report",
        "nothing",
    ],
    [
        "kernel's CPU times",
        "Costs::default",
        "guesses for a Pentium 4",
        "a factor of two either way",
        "with the first report",
        "nothing",
    ],
];

/// Of the mClustering paper's.
pub(super) const MCLUSTERING: &[Constant] = &[
    [
        "frames of 1 GB",
        "244,000",
        "what FreeBSD hands out (254,000) less a guess for a 64-bit kernel",
        "216,000 to 250,000",
        "with the first report",
        "nothing",
    ],
    SCHEDULER,
    IN_FLIGHT,
    [
        "clean pages",
        "to the cache list",
        "FreeBSD's source of 8.2; the paper's text has the free list",
        "either: with the free list SOR saves 47 to 55 % of the writes, with the cache list 1 to 4, published are 5 to 13",
        "with the first report",
        "nothing",
    ],
    [
        "disk, but for what is drawn",
        "a Barracuda 7200.12's",
        "a data sheet from memory; the paper says 160 GB and 7200 rpm",
        "that, or a 7200.9",
        "with the first report",
        "nothing",
    ],
    [
        "sequential faults: read-ahead is for those that continue where one before them ended",
        "faults that read move that point",
        "FreeBSD's sources of 2010, of which the release is not certain",
        "never, reads, any fault",
        "after runs had been seen",
        "nothing",
    ],
    [
        "CPU times",
        "measured on a machine of today",
        "the paper gives none",
        "2.5 % (drawn); the disk decides",
        "with the first report",
        "nothing",
    ],
    [
        "rows and columns",
        "13,209, 14,188, 15,105",
        "1.3, 1.5 and 1.7 GB of 2^30 bytes",
        "GB of 10^9 bytes would be 7 % less",
        "with the first report",
        "nothing",
    ],
    [
        "sweeps of SOR",
        "7",
        "SciMark's groups of 1, 2 and 4",
        "3, 7 or 15",
        "with the first report",
        "nothing of this paper; Table 3 of the MOC paper",
    ],
    [
        "rows of SOR",
        "as FreeBSD 8's allocator lays them",
        "its source",
        "that, or whole pages",
        "with the first report",
        "nothing",
    ],
];

/// Of the ASP paper's.
pub(super) const ASP: &[Constant] = &[
    [
        "host memory",
        "512 MB",
        "the only host memory that the paper names, for other experiments",
        "45 to 65 % of the guests' is swept",
        "after the runs of the first report had been seen",
        "nothing that is written down",
    ],
    [
        "visits of a collection",
        "drawn from 2 to 6",
        "a recording of workloads/jbb at 112 MiB, which does not tell these apart",
        "1 to 6; 1 is a variation",
        "4 came after the runs of the first report; drawn now",
        "that recording: 169,092 misses, 168,473 with 2 and 173,185 with 6; at 56 MiB it has 930,739, the model 322,048",
    ],
    [
        "how long guests run",
        "two minutes",
        "SPECjbb2000's run rules",
        "SPECjbb2005 has four minutes; the paper does not say which",
        "with this report",
        "nothing",
    ],
    [
        "parts of the heap, promotion",
        "HotSpot's defaults; 12 % of eden",
        "the collector's log of workloads/jbb",
        "one program on one JVM",
        "with the first report",
        "that log",
    ],
    [
        "CPU time of a transaction",
        "50 us",
        "measured, 8.7 s for 300,000 on two CPUs, rounded down",
        "a third to that; 2.5 % (drawn)",
        "with the first report",
        "that log",
    ],
    [
        "warehouses",
        "5",
        "chosen",
        "3 to 5",
        "with the first report",
        "nothing",
    ],
    [
        "services",
        "8, one every 100 ms",
        "chosen",
        "none to every 10 ms",
        "with the first report",
        "nothing",
    ],
    [
        "inactive pages",
        "an eighth of the frames",
        "this project's pager, not the kernel's",
        "an eighth to half: Linux keeps its two lists level below 1 GB",
        "with the first report",
        "nothing",
    ],
    [
        "swap space",
        "4 GB",
        "chosen, so that slots are found in order",
        "640 MB is shown",
        "with the first report",
        "nothing",
    ],
    [
        "entries of ASP",
        "one for each guest, 32 kept",
        "section 3.1.1; C_ent is not published",
        "one for the host, or one each",
        "with the first report",
        "nothing",
    ],
    [
        "where a window begins",
        "at a multiple of 8",
        "not published; Linux of the time",
        "aligned, at the target, around it",
        "with the first report",
        "nothing",
    ],
    [
        "a miss near neither slot",
        "resets sizes",
        "section 3.1.3 does not say what becomes of Base and End; if both forget them two slots do what one does",
        "sizes, or all",
        "with the first report",
        "nothing",
    ],
    [
        "schedulers",
        "CFQ and anticipatory at the kernel's defaults",
        "kernel sources of the time",
        "certain but for the release",
        "with the first report; waiting after it",
        "nothing",
    ],
];

/// As a table of the report.
pub(super) fn table(constants: &[Constant]) -> Table {
    let head = [
        "constant",
        "value",
        "source",
        "plausible",
        "fixed",
        "fitted to",
    ];
    let cells = |constant: &Constant| constant.map(str::to_owned).to_vec();
    Table {
        title: "Where the constants come from".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: constants.iter().map(cells).collect(),
    }
}
