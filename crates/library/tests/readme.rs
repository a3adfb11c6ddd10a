//! The quick start of README in Rust is the example `quick`, word by word, and runs. Those in C and Python are pasted and run by the tests of `crates/capi`
//! and `crates/python`.

use std::path::Path;
use std::process::Command;

use outpage_sys::uffd::{Uffd, Wanted};

/// The only block of README in `language`.
fn block<'a>(readme: &'a str, language: &str) -> &'a str {
    let fence = format!("```{language}\n");
    let blocks: Vec<&str> = readme.split(fence.as_str()).skip(1).collect();
    assert_eq!(blocks.len(), 1, "blocks in {language}");
    let end = blocks[0].find("```").expect("an end");
    &blocks[0][..end]
}

#[test]
fn the_quick_start_runs_as_it_is_written() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |folder: &str, name: &str| {
        std::fs::read_to_string(here.join(folder).join(name)).expect(name)
    };
    let (readme, example) = (read("../..", "README.md"), read("examples", "quick.rs"));
    for language in ["rust", "c", "python"] {
        let lines = block(&readme, language).lines().count();
        assert!(lines <= 15, "{language}: {lines} lines");
    }
    let (_, program) = example.split_once("\n\n").expect("a head, and the program");
    assert_eq!(program, block(&readme, "rust"));
    if let Err(why) = Uffd::open(&Wanted::default()) {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let own = std::env::current_exe().expect("own path");
    let built = own.ancestors().nth(2).expect("the folder of the build");
    let output = Command::new(built.join("examples/quick")).output();
    let output = output.expect("examples are built before tests");
    let (told, why) = (output.stdout, output.stderr);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&why));
    let told = String::from_utf8(told).expect("text");
    assert!(told.starts_with("25165823 "), "{told}");
}
