//! `--notify`: the file by which a guest is told, and what the command line of QEMU says of that guest.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use outpage_core::notify::MAGIC;
use outpage_engine::config::{Config, Guest, Machine, parse_size};
use outpage_sys::shared;

use crate::error::{CliError, code};

/// RAM of a guest whose command line has no `-m`: 128 MiB (QEMU's manual page).
const QEMU_RAM: u64 = 128 << 20;

/// Where `--notify` was given, finds out what the guest is and makes the file. The area is made in it by the pager, when QEMU
/// maps the guest's RAM.
///
/// # Errors
/// [`code::USAGE`] where nothing says how much RAM the guest has, [`code::IO`] where there can be no such file.
pub fn prepare(config: &mut Config, program: &[OsString]) -> Result<(), CliError> {
    let Some(file) = &config.notify else {
        return if config.guest.is_none() {
            Ok(())
        } else {
            Err(CliError::new(
                code::USAGE,
                "--guest says whom --notify FILE tells: give both",
            ))
        };
    };
    let guest = match config.guest {
        Some(guest) => guest,
        None => of_command(program).map_err(|why| CliError::new(code::USAGE, why))?,
    };
    // The program may change its directory.
    let path = std::path::absolute(file).map_err(|error| CliError::unwritten(file, error))?;
    make(&path, guest)?;
    (config.notify, config.guest) = (Some(path), Some(guest));
    Ok(())
}

/// A line for a run at whose end the guest had been told nothing.
#[must_use]
pub fn untold(config: &Config) -> Option<String> {
    let (path, guest) = (config.notify.as_ref()?, config.guest?);
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    let told = read.is_ok() && u32::from_le_bytes(magic) == MAGIC;
    (!told).then(|| {
        format!(
            "--notify: no guest was told: no process that paged mapped {} MiB of private anonymous RAM at a multiple of 2 MiB, as QEMU's -m \
             does without a memory backend in a file; a guest within --memory is not paged",
            guest.bytes >> 20
        )
    })
}

/// Makes the file of the area, or takes one that an earlier run left.
fn make(path: &Path, guest: Guest) -> Result<(), CliError> {
    let unwritten = |error: &dyn std::fmt::Display| CliError::unwritten(path, error);
    let mut options = OpenOptions::new();
    // Nobody else is to write to it: it is the guest's, and its length keeps the pager alive.
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let mut file = options.open(path).map_err(|error| unwritten(&error))?;
    let found = file.metadata().map_err(|error| unwritten(&error))?;
    if !found.is_file() {
        return Err(unwritten(&"it is no regular file"));
    }
    let mut magic = [0; 4];
    let ours = found.len() == 0
        || file.read_exact(&mut magic).is_ok() && [0, MAGIC].contains(&u32::from_le_bytes(magic));
    if !ours {
        return Err(unwritten(
            &"it holds something else; --notify wants a file of its own",
        ));
    }
    if shared::is_locked(file.as_raw_fd(), 0).unwrap_or(false) {
        return Err(unwritten(&"another virtual machine is notified by it"));
    }
    // Never shorter: somebody may have it mapped. Without its first word it is no area.
    let bytes = found.len().max(guest.file_bytes());
    let emptied = (file.set_len(bytes)).and_then(|()| file.write_all_at(&[0; 4], 0));
    emptied.map_err(|error| unwritten(&error))
}

/// The guest that the command line of QEMU describes.
fn of_command(words: &[OsString]) -> Result<Guest, String> {
    let words: Vec<&str> = words
        .iter()
        .map(|word| word.to_str().unwrap_or(""))
        .collect();
    let name = words.first().map(|name| Path::new(name).file_name());
    let name = name.flatten().and_then(OsStr::to_str).unwrap_or("");
    if !(name.starts_with("qemu") || name == "kvm") {
        return Err(format!(
            "--notify: '{name}' is not QEMU, whose command line says how much RAM the guest has: say it, as in --guest 768M or --guest 4G,q35"
        ));
    }
    // QEMU takes one dash or two.
    let option = |word: &str| {
        word.strip_prefix('-')
            .map(|name| name.strip_prefix('-').unwrap_or(name).to_owned())
    };
    let following = |names: &[&str]| -> Vec<&str> {
        let pairs = words.windows(2);
        let named =
            pairs.filter(|pair| option(pair[0]).is_some_and(|name| names.contains(&name.as_str())));
        named.map(|pair| pair[1]).collect()
    };
    let bytes = following(&["m"]).pop().map_or(Ok(QEMU_RAM), ram)?;
    let mut machine = Machine::default();
    for word in following(&["machine", "M"]) {
        if word.contains("max-ram-below-4g") {
            return Err("--notify: max-ram-below-4g moves the guest's RAM to where nobody looks for it: leave it out".into());
        }
        machine = machine_of(word).unwrap_or(machine);
    }
    Guest::new(bytes, machine).map_err(|why| format!("--notify: -m of {bytes} bytes {why}"))
}

/// The value of `-m`: `768`, `768M`, `size=1G,slots=2,maxmem=4G`; MiB without a unit.
fn ram(value: &str) -> Result<u64, String> {
    let first = value.split(',').next().unwrap_or("");
    let size = first.strip_prefix("size=").unwrap_or(first);
    let plain = size.bytes().all(|byte| byte.is_ascii_digit());
    let text = if plain {
        format!("{size}M")
    } else {
        size.to_owned()
    };
    let bytes = parse_size(&text).map_err(|why| format!("--notify: -m {value}: {why}"))?;
    // QEMU rounds up to 8 KiB.
    Ok(bytes.next_multiple_of(8 << 10))
}

/// The machine that a value of `-machine` names, if it names one; versions and others than PCs by what they begin with.
fn machine_of(value: &str) -> Option<Machine> {
    let first = value.split(',').next().unwrap_or("");
    let name = first.strip_prefix("type=").unwrap_or(first);
    if name.contains('=') {
        return None;
    }
    let q35 = name == "q35" || name.starts_with("pc-q35");
    Some(if q35 { Machine::Q35 } else { Machine::Pc })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(line: &str) -> Result<String, String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        of_command(&words).map(|guest| guest.to_string())
    }

    #[test]
    fn the_command_line_of_qemu_says_what_the_guest_is() {
        for (line, expect) in [
            ("qemu-system-x86_64 -nodefaults", "134217728,pc"),
            ("/usr/bin/qemu-system-x86_64 -m 768 -M q35", "805306368,q35"),
            ("kvm -m 4G -machine pc-q35-7.2,accel=tcg", "4294967296,q35"),
            (
                "qemu-system-x86_64 -machine accel=tcg --m size=1.5G,slots=2",
                "1610612736,pc",
            ),
            (
                "qemu-system-x86_64 -machine type=pc-i440fx-7.2 -m 1 -m 2M",
                "2097152,pc",
            ),
        ] {
            assert_eq!(guest(line).as_deref(), Ok(expect), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_told_names_the_option_that_says_it() {
        for (line, expect) in [
            ("sh -c qemu", "--guest"),
            ("qemu-system-x86_64 -m much", "-m much"),
            ("qemu-system-x86_64 -m 512K", "1M to 4T"),
            (
                "qemu-system-x86_64 -M pc,max-ram-below-4g=1G",
                "max-ram-below-4g",
            ),
        ] {
            let why = guest(line).expect_err(line);
            assert!(why.contains(expect) && why.starts_with("--notify"), "{why}");
        }
    }

    #[test]
    fn a_file_of_somebody_else_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let guest = Guest::new(64 << 20, Machine::Pc).expect("a guest");
        let path = directory.path().join("area");
        assert_eq!(make(&path, guest), Ok(()));
        assert_eq!(make(&path, guest), Ok(()));
        assert_eq!(
            std::fs::metadata(&path).expect("it").len(),
            guest.file_bytes()
        );
        std::fs::write(&path, "my thesis").expect("written");
        for (bad, expect) in [
            (path.clone(), "something else"),
            (directory.path().to_owned(), "Is a directory"),
            (directory.path().join("none/area"), "No such file"),
        ] {
            let error = make(&bad, guest).expect_err("no area");
            assert!(
                error.code == code::IO && error.text.contains(expect),
                "{error}"
            );
        }
        assert_eq!(std::fs::read_to_string(&path).expect("it"), "my thesis");
    }
}
