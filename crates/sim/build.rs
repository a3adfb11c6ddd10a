//! What a run's outcome depends on, as one number: kept runs of another simulator are not believed.
//!
//! It is made of the sources of this crate and of the core. Those of the papers' evaluations are left out: they say what is run and what is made of
//! it, and every run is kept under its whole set-up.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for root in [own.join("src"), own.join("../core/src")] {
        println!("cargo::rerun-if-changed={}", root.display());
        sources(&root, &mut files);
    }
    files.sort();
    let mut number = Fnv::new();
    number.add(env!("CARGO_PKG_VERSION").as_bytes());
    for file in &files {
        let inside = file.strip_prefix(own).unwrap_or(file);
        number.add(inside.to_string_lossy().as_bytes());
        number.add(&fs::read(file).unwrap_or_default());
    }
    println!("cargo::rustc-env=OUTPAGE_SIMULATOR={:016x}", number.0);
}

/// All files below `directory` but those of the evaluations.
fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_file() {
            files.push(path);
        } else if path.file_name().is_some_and(|name| name != "paper") {
            sources(&path, files);
        }
    }
}

/// FNV-1a, 64 bits: it is to tell builds apart, and has no enemy.
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        // The length keeps two neighbours apart.
        for &byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
