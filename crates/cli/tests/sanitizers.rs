//! Programs built with a sanitizer: the limit cannot be kept for them, so they are refused by name, and what
//! managed programs start of them runs as without Outpage.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod common;
use common::{can_page, outpage};

const SOURCE: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
    int main(void) { unsigned sum = 0; char *p = malloc(32 << 20); memset(p, 3, 32 << 20);\n\
    for (int i = 0; i < 32 << 20; i += 64) sum += p[i]; free(p); printf(\"%u\\n\", sum); return 0; }\n";

/// The program, built by `compiler` with `flag` (no `=` in its name, which env(1) would take for a setting); `None`, loudly, where that cannot be.
fn built(directory: &Path, compiler: &str, flag: &str) -> Option<PathBuf> {
    let (source, program) = (
        directory.join("a.c"),
        directory.join(format!("{compiler}{}", flag.replace('=', "-"))),
    );
    fs::write(&source, SOURCE).expect("write");
    let done = Command::new(compiler)
        .arg(flag)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output();
    if done.is_ok_and(|done| done.status.success()) {
        return Some(program);
    }
    eprintln!("SKIPPED: {compiler} {flag} builds no program here");
    None
}

fn run(options: &[&str], program: &[&str]) -> Output {
    let arguments = [&["run", "--memory", "16M"], options, &["--"], program].concat();
    outpage(&arguments)
        .env_remove("ASAN_OPTIONS")
        .output()
        .expect("outpage")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// GCC links the runtime dynamically, Clang into the program.
const BUILDS: [(&str, &str, &str); 6] = [
    ("gcc", "-fsanitize=address", "AddressSanitizer"),
    ("gcc", "-fsanitize=thread", "ThreadSanitizer"),
    ("gcc", "-fsanitize=leak", "LeakSanitizer"),
    ("clang", "-fsanitize=address", "AddressSanitizer"),
    ("clang", "-fsanitize=thread", "ThreadSanitizer"),
    ("clang", "-fsanitize=memory", "MemorySanitizer"),
];

#[test]
fn programs_with_a_sanitizer_are_refused_by_name() {
    if !can_page() {
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    for (compiler, flag, name) in BUILDS {
        let Some(program) = built(directory.path(), compiler, flag) else {
            continue;
        };
        let program = program.to_str().expect("UTF-8");
        let refused = run(&[], &[program]);
        let said = text(&refused.stderr);
        assert_eq!(
            (refused.status.code(), said.lines().count()),
            (Some(126), 1),
            "{said}"
        );
        assert!(
            said.contains(name) && said.contains("--allow-unmanaged"),
            "{said}"
        );
        let free = Command::new(program).output().expect("the program");
        let allowed = run(&["--allow-unmanaged", "--quiet"], &[program]);
        assert!(allowed.status.success(), "{}", text(&allowed.stderr));
        assert_eq!(text(&allowed.stdout), text(&free.stdout));
    }
}

/// With options for the runtime that the script sets itself.
#[test]
fn a_managed_program_may_start_them() {
    if !can_page() {
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    for (compiler, flag, name) in BUILDS {
        let Some(program) = built(directory.path(), compiler, flag) else {
            continue;
        };
        let script = format!(
            "ASAN_OPTIONS=verbosity=0 {}; env -i {}; :",
            program.display(),
            program.display()
        );
        let output = run(&["--quiet"], &["sh", "-c", &script]);
        let free = text(&Command::new(&program).output().expect("the program").stdout);
        let said = text(&output.stderr);
        assert_eq!(
            text(&output.stdout),
            [free.as_str(), &free].concat(),
            "{said}"
        );
        let line = format!("this process is not paged: it is built with {name}");
        assert_eq!(
            said.lines().filter(|l| l.ends_with(&line)).count(),
            2,
            "{said}"
        );
    }
}

#[test]
fn a_sanitizer_without_an_allocator_changes_nothing() {
    if !can_page() {
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    let Some(program) = built(directory.path(), "gcc", "-fsanitize=undefined") else {
        return;
    };
    let output = run(&[], &[program.to_str().expect("UTF-8")]);
    assert!(output.status.success() && text(&output.stderr).contains("page-outs"));
}
