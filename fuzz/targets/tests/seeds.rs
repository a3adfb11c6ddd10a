//! Every seed through its target: inputs that once failed stay in the repository.

use std::fs;
use std::path::Path;

use outpage_fuzz_targets::TARGETS;

#[test]
fn every_seed_passes() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../seeds");
    for (name, target) in TARGETS {
        let files =
            fs::read_dir(seeds.join(name)).unwrap_or_else(|e| panic!("seeds of {name}: {e}"));
        let mut count = 0;
        for file in files {
            let path = file.expect("a directory").path();
            // Said first: with `panic = "abort"` nobody says it afterwards.
            println!("{}", path.display());
            target(&fs::read(&path).expect("a seed"));
            count += 1;
        }
        assert!(count > 0, "{name} has no seeds");
    }
}

#[test]
fn every_directory_has_a_target() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../seeds");
    for directory in fs::read_dir(seeds).expect("seeds") {
        let name = directory.expect("a directory").file_name();
        let known = TARGETS.iter().any(|(target, _)| name == *target);
        assert!(known, "{} is no target", name.display());
    }
}
