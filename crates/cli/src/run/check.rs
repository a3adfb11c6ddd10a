//! What must be right before a program starts under a limit.

use std::path::Path;

use outpage_engine::config::{Config, Encrypt, Mechanism, format_size};
use outpage_engine::encryption::{self, Decision, EncryptionError};
use outpage_engine::session::EXTENT_BYTES;
use outpage_store::{SwapFile, SwapFileError};
use outpage_sys::fd::Fd;
use outpage_sys::kernel;
use outpage_sys::uffd::{Features, OpenError, Uffd, Wanted};

use crate::container::{self, Limit};
use crate::doctor::remedy;
use crate::error::{CliError, code};

/// The limit must be below that of the container, or the kernel kills before Outpage pages.
///
/// # Errors
/// [`code::UNAVAILABLE`] names both limits.
pub fn container(config: &Config) -> Result<(), CliError> {
    above(config.memory_bytes, container::memory_limit().as_ref())
}

fn above(asked: u64, limit: Option<&Limit>) -> Result<(), CliError> {
    let Some(limit) = limit.filter(|limit| limit.bytes < asked) else {
        return Ok(());
    };
    Err(CliError::new(
        code::UNAVAILABLE,
        format!(
            "--memory {} is more than the {} that this container may use ({}): ask for less, or raise the container's limit",
            format_size(asked),
            format_size(limit.bytes),
            limit.file.display()
        ),
    ))
}

/// The kernel must give a userfaultfd with what the mechanism needs; returns which one that is.
///
/// # Errors
/// [`code::UNAVAILABLE`] with the remedy.
pub fn userfaultfd(config: &Config, device: Option<&Fd>) -> Result<Mechanism, CliError> {
    let inherited = device.map(Fd::number);
    let open = |required| {
        Uffd::open(&Wanted {
            inherited,
            required,
            optional: Features::NONE,
        })
        .map(drop)
    };
    let by_move = || open(Features::MOVE).map(|()| Mechanism::Move);
    let by_protection = || open(Features::PAGEFAULT_FLAG_WP).map(|()| Mechanism::WriteProtect);
    let done = match config.mechanism {
        Mechanism::Move => by_move(),
        Mechanism::WriteProtect => by_protection(),
        Mechanism::Auto => by_move().or_else(|_| by_protection()),
    };
    done.map_err(|error| {
        let remedy = match error {
            OpenError::NoRoute { device, call, .. } => remedy::no_route(device, call),
            OpenError::Lacks(_) if config.mechanism == Mechanism::Move => {
                "use --mechanism write-protect, or Linux 6.8 or later".into()
            }
            OpenError::Lacks(_) | OpenError::Handshake(_) => "Linux 5.7 or later is needed".into(),
        };
        CliError::new(code::UNAVAILABLE, format!("{error}; {remedy}"))
    })
}

/// Settles whether the swap file is encrypted: the setting is then `off`, or as it was. A sentence says where it is not encrypted,
/// though it would be by default.
///
/// # Errors
/// [`code::UNAVAILABLE`] where that was asked for and cannot be.
pub fn encryption(config: &mut Config) -> Result<Option<String>, CliError> {
    let decision = encryption::decide(config.encrypt);
    let decision = decision.map_err(|error| CliError::new(code::UNAVAILABLE, error.to_string()))?;
    if decision != Decision::Encrypted {
        config.encrypt = Encrypt::Off;
    }
    Ok(match decision {
        Decision::Encrypted | Decision::Plain => None,
        Decision::Unlocked(error) => Some(format!(
            "the swap file is not encrypted: {}",
            EncryptionError::Locked(error)
        )),
    })
}

/// Makes the swap file, its cap no more than the disk has room for now and a file may grow to.
///
/// # Errors
/// [`code::NO_INPUT`] for a directory that is missing or unusable, [`code::IO`] for a full disk,
/// [`code::UNAVAILABLE`] for a limit on the size of files.
pub fn swap_file(config: &Config) -> Result<SwapFile, CliError> {
    let create = |cap| SwapFile::create_in(&config.swap_dir, cap).map_err(swap_error);
    let cap = config.swap_cap_bytes();
    let file = create(cap)?;
    let available = file.available_bytes().map_err(swap_error)?;
    if available < EXTENT_BYTES {
        return Err(full(&config.swap_dir, available));
    }
    let growth = kernel::file_size().map_or(u64::MAX, |limit| limit.soft);
    if growth < EXTENT_BYTES {
        return Err(too_small(growth));
    }
    let room = available.min(growth);
    if room < cap { create(room) } else { Ok(file) }
}

fn full(directory: &Path, available: u64) -> CliError {
    CliError::new(
        code::IO,
        format!(
            "swap directory {} is full: {} are free and at least {} are needed; free some, or choose another with --swap",
            directory.display(),
            format_size(available),
            format_size(EXTENT_BYTES)
        ),
    )
}

fn too_small(growth: u64) -> CliError {
    CliError::new(
        code::UNAVAILABLE,
        format!(
            "no file may grow beyond {} here and the swap file needs at least {}: raise that limit with ulimit -f",
            format_size(growth),
            format_size(EXTENT_BYTES)
        ),
    )
}

fn swap_error(error: SwapFileError) -> CliError {
    let code = match error {
        SwapFileError::NoSpace { .. } | SwapFileError::Io { .. } => code::IO,
        _ => code::NO_INPUT,
    };
    CliError::new(code, format!("{error} (--swap DIR)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_below_the_limit_is_named() {
        let limit = Limit {
            bytes: 64 << 20,
            file: "/sys/fs/cgroup/memory.max".into(),
        };
        let error = above(256 << 20, Some(&limit)).expect_err("too much");
        assert_eq!(error.code, code::UNAVAILABLE);
        for part in ["256 MiB", "64 MiB", "/sys/fs/cgroup/memory.max"] {
            assert!(error.text.contains(part), "{error}");
        }
        assert_eq!(above(64 << 20, Some(&limit)), Ok(()));
        assert_eq!(above(64 << 20, None), Ok(()));
    }
}
