use outpage_stats::{COUNTERS, LINES};
use serde_json::json;

use super::fields::latency;
use super::*;

fn outcome(counts: Counts) -> Outcome {
    Outcome {
        counts,
        mechanism: Mechanism::Move,
        peak_pages: 65536,
        elapsed: Duration::from_millis(2500),
        ..Outcome::before(true)
    }
}

fn busy() -> Counts {
    let mut counts = Counts {
        page_outs: 20_000,
        page_out_writes: 320,
        clusters: 400,
        page_ins: 18_000,
        page_in_reads: 1200,
        read_ahead_pages: 16_000,
        read_ahead_mapped: 2_000,
        read_ahead_hits: 12_000,
        read_ahead_waste: 500,
        minor_faults: 7,
        major_faults: 1_234_567,
        fault_ns: 420_000_000,
        compressed_pages: 3_000,
        compressed_bytes: 4 << 20,
        compressed_hits: 2_000,
        peak_pool_pages: 1_200,
        ..Counts::default()
    };
    counts.write_sizes[0] = 8;
    counts.write_sizes[6] = 312;
    counts
}

#[test]
fn a_program_that_fits_gets_one_line() {
    let text = outcome(Counts::default()).summary(&Config::new(256 << 20));
    assert_eq!(
        text,
        "outpage: the program stayed within its 256 MiB; nothing was paged\n"
    );
    let killed = outcome(Counts::default()).ended(ExitStatus::from_raw(9));
    let text = killed.summary(&Config::new(256 << 20));
    assert_eq!(text, "outpage: limit 256 MiB; nothing was paged\n");
}

fn shared(mib: u64) -> Unpaged {
    Unpaged {
        resident: (mib + 20) << 20,
        all: mib << 20,
        shared: mib << 20,
        ..Unpaged::default()
    }
}

#[test]
fn a_run_that_reads_far_more_than_it_touches_says_what_helps() {
    let counts = |page_ins, read_ahead_pages, read_ahead_waste| Counts {
        page_ins,
        read_ahead_pages,
        read_ahead_waste,
        peak_touched_pages: 20_000,
        ..busy()
    };
    let text = |counts| outcome(counts).summary(&Config::new(256 << 20));
    let ahead = text(counts(410_000, 400_000, 300_000));
    assert!(
        ahead.contains("attention   read 20 times what the program touched, most of it ahead of the program and in vain: try --readahead none"),
        "{ahead}"
    );
    // Where it goes through its memory again and again read-ahead helps.
    let used = text(counts(410_000, 400_000, 10_000));
    assert!(used.contains("touched, most of it ahead of the program, which used it: more with"));
    let demanded = text(counts(410_000, 10_000, 5_000));
    assert!(demanded.contains("touched, page by page: give it more with --memory"));
    assert!(!text(counts(190_000, 180_000, 180_000)).contains("attention"));
}

#[test]
fn what_was_mapped_along_counts_in_the_rates_by_its_sample() {
    let counts = Counts {
        read_ahead_along_used: 500,
        read_ahead_along_unused: 1_500,
        read_ahead_along_squares: 2_000 * 10,
        ..busy()
    };
    let text = outcome(counts).summary(&Config::new(256 << 20));
    // A quarter of 2,000, by a sample of 200, and 12,000 of 14,000 and of 12,500 that were seen.
    for part in [
        "2,000 mapped along (about 1,500 of them in vain)",
        "hit rate 78 % (77 to 79 %)",
        "accuracy 86 % (85 to 87 %)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = outcome(counts).json(&Config::new(256 << 20), &[], None);
    assert_eq!(json["read_ahead_hit_rate"], 0.78125);
    let interval = &json["read_ahead_hit_rate_interval"];
    assert!(interval[0].as_f64() < Some(0.78125) && Some(0.78125) < interval[1].as_f64());
}

#[test]
fn what_is_not_paged_is_named_and_no_limit_claimed_that_did_not_hold() {
    let config = Config::new(256 << 20);
    let text = |mib, counts| outcome(counts).beside(shared(mib)).summary(&config);
    assert_eq!(
        text(100, Counts::default()),
        "outpage: the program stayed within its 256 MiB; nothing was paged\n  \
         not paged   at most 100 MiB shared memory\n"
    );
    assert_eq!(
        text(300, Counts::default()),
        "outpage: limit 256 MiB, but the program had 320 MiB in RAM; nothing was paged\n  \
         not paged   at most 300 MiB shared memory\n"
    );
    let paged = text(300, busy());
    let first =
        "outpage: limit 256 MiB, peak 256 MiB in RAM, 300 MiB more that are not paged, and ";
    assert!(paged.starts_with(first), "{paged}");
    assert!(
        paged.ends_with("  not paged   at most 300 MiB shared memory\n"),
        "{paged}"
    );
}

#[test]
fn the_json_of_a_run_that_lasts_says_so() {
    let value = Outcome::before(false).json(&Config::new(256 << 20), &["sort".into()], None);
    assert_eq!(value["complete"], false);
    assert_eq!(
        (&value["exit_code"], &value["exit_signal"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(value["peak_unpaged_shared_bytes"], 0);
}

#[test]
fn the_summary_has_every_figure() {
    let text = outcome(busy()).summary(&Config::new(256 << 20));
    for part in [
        "limit 256 MiB, peak 256 MiB",
        "(move, encrypted, page-out",
        "20,000 pages (78.1 MiB) in 320 writes, mean 62.5 pages, mean cluster 50.0 pages",
        "1 page: 8, 64-127: 312",
        "18,000 pages (70.3 MiB) in 1,200 reads",
        "16,000 pages: 2,000 mapped along, 12,000 hits, 500 wasted; hit rate 86 %; accuracy 96 %",
        "7 minor, 1,234,567 major, 0.42 s waited",
        "3,000 pages (11.7 MiB) to 4 MiB, at most 4.7 MiB at once; 2,000 touched, 0 on to swap, 0 hardly smaller",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains("attention"));
}

#[test]
fn latencies_stand_below_the_faults() {
    let mut outcome = outcome(busy());
    (1..=1000).for_each(|us| outcome.waits.major.record(us * 1000));
    let text = outcome.summary(&Config::new(256 << 20));
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let at = lines
        .iter()
        .position(|l| l.starts_with("faults"))
        .expect("faults");
    assert!(
        lines[at + 1].starts_with("major") && lines[at + 1].contains("p99.9 1"),
        "{text}"
    );
    let value = latency(&outcome.waits.major);
    assert_eq!(value["count"], 1000);
    assert!(
        value["p50_ns"]
            .as_u64()
            .is_some_and(|ns| (500_000..=531_250).contains(&ns)),
        "{value}"
    );
}

#[test]
fn trouble_is_told_even_by_a_program_that_never_paged() {
    let counts = Counts {
        swap_full: 1,
        ..Counts::default()
    };
    let text = outcome(counts).summary(&Config::new(256 << 20));
    assert!(
        text.contains("attention   1 page-outs found the swap file full"),
        "{text}"
    );
}

#[test]
fn a_signal_is_explained_where_a_page_was_lost() {
    let config = Config::new(256 << 20);
    let mut outcome = outcome(Counts::default());
    let (bus, by_shell) = (ExitStatus::from_raw(7), ExitStatus::from_raw(135 << 8));
    assert_eq!(outcome.ended_by_loss(&config, bus), None);
    outcome.counts.poisoned = 3;
    for status in [bus, by_shell] {
        let line = outcome.ended_by_loss(&config, status).expect("a line");
        assert!(
            line.contains("3 of its pages") && line.contains("in /var/tmp"),
            "{line}"
        );
    }
    let others = [0, 9, 1 << 8].map(ExitStatus::from_raw);
    assert!(
        others
            .iter()
            .all(|status| outcome.ended_by_loss(&config, *status).is_none())
    );
}

#[test]
fn the_json_has_every_counter_and_the_configuration() {
    let status = ExitStatus::from_raw(9);
    let value = outcome(busy()).json(&Config::new(256 << 20), &["sort".into()], Some(status));
    assert_eq!(value["complete"], true);
    assert_eq!(value["page_outs"], 20_000);
    assert_eq!(value["encrypted"], true);
    assert_eq!(value["exit_signal"], 9);
    assert_eq!(value["exit_code"], Value::Null);
    assert_eq!(value["peak_bytes"], 256 << 20);
    assert_eq!(value["config"]["memory"], (256 << 20).to_string());
    assert_eq!(
        value["write_histogram"][6],
        json!({"pages_min": 64, "pages_end": 128, "writes": 312})
    );
    for counter in COUNTERS {
        assert!(value[counter.name].is_u64(), "{}", counter.name);
    }
}

/// The lines of a summary that `counts` lead to, by what they begin with.
fn lines(counts: Counts) -> Vec<(Line, Vec<String>)> {
    let text = outcome(counts).summary(&Config::new(256 << 20));
    let own = |line: &&str, label: &str| match label {
        "" => line.starts_with("outpage: "),
        label => line
            .strip_prefix("  ")
            .is_some_and(|rest| rest.starts_with(label)),
    };
    let of = |label: &'static str| {
        let lines = text.lines().filter(|line| own(line, label));
        lines.map(str::to_owned).collect()
    };
    LINES.iter().map(|l| (l.line, of(l.label))).collect()
}

#[test]
fn a_counter_shows_in_the_line_that_it_is_declared_for_and_no_other_counter_shows() {
    let base = Counts {
        read_ahead_along_used: 500,
        read_ahead_along_unused: 1_500,
        read_ahead_along_squares: 200_000,
        read_ahead_late: 600,
        freed_pages: 700,
        ..busy()
    };
    for counter in COUNTERS {
        let mut more = base;
        let value = more.named(counter.name).expect("a counter");
        // What is rounded shows twice as much, and what was nothing shows 1.
        *value = (*value * 2).max(1);
        let before = lines(base);
        let changed = lines(more).into_iter().zip(before);
        let changed: Vec<Line> = changed
            .filter(|(after, before)| after != before)
            .map(|((line, _), _)| line)
            .collect();
        match counter.line {
            Some(line) => assert!(changed.contains(&line), "{}: {changed:?}", counter.name),
            None => assert_eq!(changed, [], "{}", counter.name),
        }
    }
}
