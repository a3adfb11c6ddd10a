//! `outpage`, asked once for its answer.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use super::outpage;

pub fn run(arguments: &[&str]) -> Output {
    outpage(arguments).output().expect("outpage")
}

pub fn words(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}

/// One line on standard error that has these parts, and the exit code.
pub fn refused(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = run(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

pub fn json(arguments: &[&str]) -> Value {
    let output = run(arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}
