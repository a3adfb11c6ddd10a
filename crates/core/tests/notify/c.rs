//! The guest in C reads what the host in Rust wrote, byte for byte as the guest in Rust does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use outpage_core::notify::Guest;

use crate::area::{made, put, word};

/// The compiled reader. It and the file of its area go with it.
struct Reader(PathBuf);

impl Drop for Reader {
    fn drop(&mut self) {
        for file in [self.0.clone(), self.0.with_extension("area")] {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// `None`, said aloud, where there is no C compiler.
fn reader(name: &str) -> Option<Reader> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("drain-{name}-{}", std::process::id()));
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-O2", "-I"])
        .arg(root.join("../../guest"))
        .arg(root.join("tests/notify/drain.c"))
        .arg("-o")
        .arg(&out);
    match cc.output() {
        Err(error) => {
            eprintln!("SKIPPED: no C compiler ({error}): the guest in C is not tested");
            None
        }
        Ok(done) => {
            assert!(
                done.status.success(),
                "{}",
                String::from_utf8_lossy(&done.stderr)
            );
            Some(Reader(out))
        }
    }
}

fn bytes(area: &[AtomicU32]) -> Vec<u8> {
    let words = area.iter().map(|word| word.load(Ordering::Relaxed));
    words.flat_map(u32::to_le_bytes).collect()
}

/// Runs the reader over the area, as if it were mapped there; what it said, and its exit code.
fn drained(reader: &Path, area: &[AtomicU32]) -> (String, i32) {
    let file = reader.with_extension("area");
    std::fs::write(&file, bytes(area)).expect("a file");
    let done = Command::new(reader).arg(&file).output().expect("it runs");
    let back = std::fs::read(&file).expect("a file");
    for (word, bytes) in area.iter().zip(back.chunks_exact(4)) {
        let bytes = bytes.try_into().expect("four");
        word.store(u32::from_le_bytes(bytes), Ordering::Relaxed);
    }
    let code = done.status.code().expect("it ended by itself");
    (String::from_utf8(done.stdout).expect("text"), code)
}

#[test]
fn both_guests_are_told_the_same() {
    let Some(reader) = reader("same") else { return };
    // Two areas with the same history, one for each guest.
    let ((area, mut host), (twin, mut other)) = (made(100, 16), made(100, 16));
    let mut guest = Guest::attach(&twin).expect("an area");
    let mut tell = |frames: &[(u32, bool)]| {
        for &(frame, out) in frames {
            for (host, area) in [(&mut host, &area), (&mut other, &twin)] {
                match out {
                    true => host.paged_out(area, frame),
                    false => host.paged_in(area, frame),
                };
            }
        }
        let mut said = String::new();
        let mut say = |frame, out| said += &format!("{frame} {}\n", if out { "out" } else { "in" });
        if guest.drain(&twin, &mut say).all {
            said += "all\n";
        }
        let (c, code) = drained(&reader.0, &area);
        assert_eq!(code, 0);
        assert_eq!(c, said);
        assert_eq!(bytes(&area), bytes(&twin), "tails and all");
        said
    };
    let said = tell(&[(5, true), (6, true), (5, false), (99, true), (5, true)]);
    assert_eq!(said, "5 out\n6 out\n99 out\n5 out\n5 out\n");
    let many: Vec<_> = (0..40).map(|frame| (frame, true)).collect();
    assert!(tell(&many).ends_with("99 out\nall\n"));
    assert_eq!(tell(&[(31, false), (32, false)]), "31 in\n32 in\n");
    assert_eq!(tell(&[]), "");
}

#[test]
fn both_guests_refuse_the_same() {
    let Some(reader) = reader("refused") else {
        return;
    };
    for (offset, value, code) in [
        (0, 1, 1),
        (4, 2, 2),
        (8, 1, 3),
        (12, 0, 3),
        (16, 0, 3),
        (20, 24, 3),
    ]
    .into_iter()
    .chain([(24, 0, 3), (28, 32, 3), (32, 0, 3), (12, 1 << 31 | 1, 3)])
    {
        let (area, _) = made(100, 16);
        put(&area, offset, value);
        assert!(Guest::attach(&area).is_err());
        assert_eq!(
            drained(&reader.0, &area),
            (String::new(), code),
            "at {offset}"
        );
        assert_eq!(word(&area, 128), 0, "nothing is written");
    }
}
