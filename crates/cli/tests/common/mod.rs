//! What the tests of `outpage run` share.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

#[allow(dead_code, reason = "some test programs look closer")]
pub mod asked;

/// The program under test.
pub const OUTPAGE: &str = env!("CARGO_BIN_EXE_outpage");

/// `outpage` with these arguments and no settings from the environment.
pub fn outpage(arguments: &[&str]) -> Command {
    let mut command = Command::new(OUTPAGE);
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("OUTPAGE_") {
            command.env_remove(name);
        }
    }
    command
}

/// Whether python3 runs here; says aloud if not.
#[allow(dead_code, reason = "few of the test programs need it")]
pub fn has_python() -> bool {
    let has = Command::new("python3").args(["-c", ""]).status();
    let has = has.is_ok_and(|status| status.success());
    if !has {
        eprintln!("SKIPPED: python3 is not installed");
    }
    has
}

/// Whether programs can be paged here; says so aloud where they cannot.
///
/// Builds the preloaded library first: cargo builds no other package's library for a test.
#[allow(dead_code, reason = "one of the test programs needs no pager")]
pub fn can_page() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let profile = Path::new(OUTPAGE).parent().and_then(Path::file_name);
        let release = profile.is_some_and(|name| name == "release");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "outpage-preload"]);
        build.args(release.then_some("--release"));
        assert!(
            build.status().expect("cargo").success(),
            "the library does not build"
        );
        let doctor = outpage(&["doctor"]).output().expect("outpage");
        if !doctor.status.success() {
            eprintln!("SKIPPED: {}", String::from_utf8_lossy(&doctor.stdout));
        }
        doctor.status.success()
    })
}

/// Compiles `tests/programs/NAME.c`, or all of `tests/programs/NAME/`, into `directory`.
#[allow(dead_code, reason = "not every test program needs one")]
pub fn compiled(directory: &Path, name: &str) -> PathBuf {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
    let program = directory.join(name);
    let sources = match std::fs::read_dir(programs.join(name)) {
        Ok(files) => {
            let paths = files.map(|file| file.expect("directory").path());
            let is_source = |path: &PathBuf| path.extension().is_some_and(|end| end == "c");
            paths.filter(is_source).collect()
        }
        Err(_) => vec![programs.join(format!("{name}.c"))],
    };
    let cc = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .args(sources)
        .status();
    assert!(
        cc.expect("cc, which Rust needs too").success(),
        "{name}.c does not compile"
    );
    program
}
