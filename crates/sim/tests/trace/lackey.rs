//! Import of lackey's text.

use std::fs;
use std::process::{Command, Stdio};

use outpage_core::contract::Access::{self, Read, Write};
use outpage_core::units::Nanos;
use outpage_sim::trace::{
    Header, Lackey, LackeyError, LackeyOptions, Recorded, Reference, Writer, string,
};

const DATA: LackeyOptions = LackeyOptions {
    instructions: false,
    instruction: Nanos(0),
};
const ALL: LackeyOptions = LackeyOptions {
    instructions: true,
    instruction: Nanos(2),
};

fn import(text: &str, options: LackeyOptions) -> Result<Vec<Reference>, LackeyError> {
    Lackey::new(text.as_bytes(), options).collect()
}

fn shape(text: &str, options: LackeyOptions) -> Vec<(u64, Access, u64)> {
    let references = import(text, options).expect("lackey's text");
    let shape = |found: &Reference| (found.page.index(), found.access, found.gap.0);
    references.iter().map(shape).collect()
}

const TEXT: &str = "\
==11397== Lackey, an example Valgrind tool
--11397-- a warning
**11397** a message of the program

I  04001090,3
 S 1ffefff8e8,8
I  04001093,5
 L 04002ffc,8
 M 04003010,4
 L 04003020,4
==11397==
";

#[test]
fn loads_stores_and_modifications() {
    // The load crosses into page 0x4003; the modification writes it; the last load says nothing
    // new.
    let expected = [
        (0x1ffefff, Write, 0),
        (0x4002, Read, 0),
        (0x4003, Read, 0),
        (0x4003, Write, 0),
    ];
    assert_eq!(shape(TEXT, DATA), expected);
}

#[test]
fn instructions_and_their_time() {
    let expected = [
        (0x4001, Read, 2),
        (0x1ffefff, Write, 0),
        (0x4001, Read, 2),
        (0x4002, Read, 0),
        (0x4003, Read, 0),
        (0x4003, Write, 0),
    ];
    assert_eq!(shape(TEXT, ALL), expected);
    // Their time counts even where they are no references.
    let timed = LackeyOptions {
        instructions: false,
        ..ALL
    };
    assert_eq!(shape(TEXT, timed)[1], (0x4002, Read, 2));
}

#[test]
fn malformed_lines_are_refused_with_their_number() {
    let malformed = [
        "hello",
        "I 04001090,3",
        " L 04001090",
        " L ,4",
        " L 04001090,",
        " L 04001090,0",
        " L 04001090,5000",
        " L 0400109g,4",
        " L +4001090,4",
        " L 04001090,-4",
        " L 04001090,4 ,",
        " X 04001090,4",
        " L ffffffffffffffff,8",
        " L 1000000000000,8",
        "\u{fffd}\u{fffd}",
    ];
    for text in malformed {
        let whole = format!("==1== valgrind\n S 04001090,4\n{text}\n S 04001090,4\n");
        match import(&whole, DATA) {
            Err(LackeyError::Malformed {
                line: 3,
                text: shown,
            }) => assert_eq!(shown, text),
            other => panic!("{text:?}: {other:?}"),
        }
    }
    // Nothing is handed out after an error.
    let mut lackey = Lackey::new(&b" S 04001090,4\nnonsense\n S 05001090,4\n"[..], DATA);
    assert!(lackey.next().is_some_and(|first| first.is_ok()));
    assert!(lackey.next().is_some_and(|second| second.is_err()));
    assert!(lackey.next().is_none());
}

/// Lackey itself, on `sort`. `OUTPAGE_KEEP_TRACE=FILE` keeps the trace; `data/sort.refs` was
/// made so.
#[test]
fn a_real_program() {
    let folder = std::env::temp_dir().join(format!("outpage-lackey-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let (input, log) = (folder.join("input"), folder.join("log"));
    let lines = (0..400u64).map(|at| format!("{}\n", at * 7919 % 4001));
    fs::write(&input, lines.collect::<String>()).expect("a temporary file");
    let ran = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes"])
        .arg(format!("--log-file={}", log.display()))
        .arg("sort")
        .arg(&input)
        .env("LC_ALL", "C")
        .stdout(Stdio::null())
        .status();
    let text = fs::read(&log);
    fs::remove_dir_all(&folder).expect("the folder is ours");
    let Ok(text) = text else {
        eprintln!("SKIPPED: valgrind did not run ({ran:?})");
        return;
    };
    let header = Header {
        page_bytes: 4096,
        recorded: Recorded::Exact,
        program: "sort, 400 lines, data references".to_owned(),
    };
    let mut writer = Writer::new(Vec::new(), &header).expect("the header fits");
    for reference in Lackey::new(&text[..], DATA) {
        writer
            .reference(reference.expect("lackey's text"))
            .expect("memory takes all");
    }
    let bytes = writer.finish().expect("memory takes all");
    let recorded = string(outpage_sim::trace::Reader::new(&bytes[..]).expect("a header"));
    let recorded = recorded.expect("a whole trace");
    assert!(
        recorded.len() > 10_000 && recorded.distinct() > 30,
        "{}",
        recorded.len()
    );
    if let Some(path) = std::env::var_os("OUTPAGE_KEEP_TRACE") {
        fs::write(path, &bytes).expect("the trace can be kept");
    }
}
