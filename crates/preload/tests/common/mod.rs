//! C programs under the shim, compiled when the tests run.

#![allow(dead_code, reason = "no test program uses all of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A limit that no program here reaches.
pub const PLENTY: &str = "64G";

/// The library under test, built first: cargo builds no `cdylib` for tests.
pub fn shim() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let tests = std::env::current_exe().expect("own path");
        // TARGET/PROFILE/deps/TEST
        let profile = tests.ancestors().nth(2).expect("folder of the profile");
        let release = profile.file_name().is_some_and(|name| name == "release");
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "outpage-preload"])
            .args(release.then_some("--release"))
            .arg("--target-dir")
            .arg(profile.parent().expect("target folder"))
            .status();
        assert!(
            status.expect("cargo").success(),
            "the library does not build"
        );
        profile.join("liboutpage_preload.so")
    });
    built.clone()
}

/// A program of `tests/programs`, compiled into a folder of its own; `None` without a compiler.
pub struct Program {
    folder: tempfile::TempDir,
}

impl Program {
    /// Compiles `tests/programs/NAME.c`.
    pub fn compile(name: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("temporary folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/programs")
            .join(name);
        let mut command = Command::new("cc");
        command
            .args(["-O1", "-w", "-pthread", "-o"])
            .arg(folder.path().join("program"));
        let compiled = command.arg(source.with_extension("c")).status();
        match compiled {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("SKIPPED: {name} needs a C compiler (cc), and there is none");
                None
            }
            status => {
                assert!(status.expect("cc").success(), "{name} does not compile");
                Some(Self { folder })
            }
        }
    }

    /// The executable.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("program")
    }

    /// Where the hooks' trace goes.
    pub fn trace_file(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    /// Ready to run under the shim.
    pub fn command(&self) -> Command {
        under_shim(&self.path(), &self.trace_file())
    }
}

/// `program` with the shim, under a limit that it does not reach.
pub fn under_shim(program: &Path, trace_file: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", shim())
        .env("OUTPAGE_MEMORY", PLENTY);
    command.env("OUTPAGE_TRACE_HOOKS", trace_file);
    command
}

/// Runs to a good end without a word on standard error.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("program");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{:?}: {errors}",
        output.status
    );
    output
}
