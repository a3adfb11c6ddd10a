//! The examples of the client library, in Rust, C and Python, with a server in this process.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod common;
use common::{Served, alone, can_be_served};

#[path = "../../client/examples/arena.rs"]
mod arena;
#[path = "../../client/examples/discard.rs"]
mod discard;

/// Frames of the server: 16 MiB, as the examples say.
const FRAMES: u64 = 4096;

fn must(output: &Output, what: &str) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{what}: {out}{err}");
    out.into_owned()
}

/// The numbers of a line.
fn numbers(line: &str) -> Vec<u64> {
    let words = line.split(|letter: char| !letter.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

fn client() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../client")
}

/// The folder that has `liboutpage_client.so`, which `cargo test` does not build.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("own path");
    let built = own.ancestors().nth(2).expect("the folder of the build");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--quiet",
        "--package",
        "outpage-client-c",
        "--lib",
        "--target-dir",
    ]);
    cargo.arg(built.parent().expect("the target folder"));
    if built.ends_with("release") {
        cargo.arg("--release");
    }
    must(&cargo.output().expect("cargo"), "building the library");
    built.to_owned()
}

/// Compiles with all warnings as errors; `None`, said loudly, where there is no compiler.
fn compile(source: &str, into: &Path, more: &[String]) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no cc");
        return None;
    }
    let library = library();
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(into)
        .arg(client().join("examples").join(source))
        .arg("-I")
        .arg(client().join("include"))
        .args(more)
        .arg("-L")
        .arg(&library)
        .arg("-loutpage_client")
        .output()
        .expect("a compiler");
    must(&output, source);
    Some(library)
}

#[test]
fn those_in_rust_find_what_they_wrote_and_what_they_freed_is_dropped() {
    let _alone = alone();
    if !can_be_served() {
        return;
    }
    let served = Served::start(FRAMES, |_| {});
    let socket = served.socket();
    let socket = socket.to_str().expect("words");
    assert!(discard::run(socket).expect("it runs") > 0);
    let (again, dropped) = arena::run(socket).expect("it runs");
    assert!(again > 10_000 && dropped > 0, "{again} {dropped}");
    served.end_empty();
}

#[test]
fn those_in_c_do_too() {
    let _alone = alone();
    if !can_be_served() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for example in ["discard", "arena"] {
        let program = folder.path().join(example);
        let pedantic = ["-pedantic".to_owned()];
        let Some(library) = compile(&format!("{example}.c"), &program, &pedantic) else {
            return;
        };
        let served = Served::start(FRAMES, |_| {});
        let output = Command::new(&program)
            .arg(served.socket())
            .env("LD_LIBRARY_PATH", library)
            .output()
            .expect("the program");
        let line = must(&output, example);
        assert!(numbers(&line).iter().all(|&pages| pages > 0), "{line}");
        served.end_empty();
    }
}

#[test]
fn arenas_of_python_are_dropped_and_used_again() {
    let _alone = alone();
    if !can_be_served() {
        return;
    }
    let asked = Command::new("python3")
        .args([
            "-c",
            "import sysconfig; print(sysconfig.get_paths()['include'])",
        ])
        .output();
    let include = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let include = include.unwrap_or_default();
    if !Path::new(&include).join("Python.h").exists() {
        eprintln!("SKIPPED: there is no python3 with Python.h (Debian: python3-dev)");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let module = folder.path().join("outpage_arenas.so");
    let flags = ["-shared", "-fPIC", "-isystem", &include].map(str::to_owned);
    let Some(library) = compile("python/outpage_arenas.c", &module, &flags) else {
        return;
    };
    let served = Served::start(FRAMES, |_| {});
    let output = Command::new("python3")
        .arg(client().join("examples/python/arenas.py"))
        .arg(served.socket())
        .env("PYTHONPATH", folder.path())
        .env("LD_LIBRARY_PATH", library)
        .env_remove("PYTHONMALLOC")
        .output()
        .expect("python3");
    let line = must(&output, "arenas.py");
    let [.., dropped] = numbers(&line)[..] else {
        panic!("{line}");
    };
    assert!(dropped > 0, "{line}");
    served.end_empty();
}
