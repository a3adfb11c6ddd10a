//! The file of `--stats`: whole at every moment, from before the program starts to its end.

use std::fs::{self, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::CliError;

/// Room that there must be, in bytes: the counters of a run that pages, with both histograms and every
/// object that is listed, take 28 KiB.
const ROOM_BYTES: usize = 64 << 10;

/// Where counters are written to.
#[derive(Debug)]
pub struct StatsFile {
    path: PathBuf,
    how: How,
}

#[derive(Debug)]
enum How {
    /// Under another name beside it, then renamed: a reader sees one writing or the next.
    Renamed {
        beside: PathBuf,
        permissions: Option<Permissions>,
    },
    /// Over what is there: the file may be written, its directory not.
    InPlace,
    /// No ordinary file: a pipe, a terminal, a device. It gets one object, at the end.
    Stream,
}

impl StatsFile {
    /// Looks how `path` can be written; nothing is written yet but, where there is no file, an empty one.
    ///
    /// # Errors
    /// [`crate::error::code::IO`].
    pub fn new(path: &Path) -> Result<Self, CliError> {
        Self::look(path).map_err(|e| unwritten(path, &e))
    }

    fn look(path: &Path) -> io::Result<Self> {
        let present = fs::metadata(path).ok();
        let opens = || OpenOptions::new().create(true).append(true).open(path);
        if let Some(kind) = present.as_ref().map(Metadata::file_type)
            && !kind.is_file()
        {
            // Opening a pipe waits for its reader.
            if !kind.is_fifo() {
                opens()?;
            }
            let (path, how) = (path.to_owned(), How::Stream);
            return Ok(Self { path, how });
        }
        opens()?;
        // Through a symbolic link: it stays one.
        let path = fs::canonicalize(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
        let made = fs::write(&beside, [b' '; ROOM_BYTES]);
        let _ = fs::remove_file(&beside);
        let permissions = present.map(|file| file.permissions());
        let how = match made.map_err(|error| (error.kind(), error)) {
            Ok(()) => How::Renamed {
                beside,
                permissions,
            },
            Err((ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem, _)) => How::InPlace,
            Err((_, error)) => return Err(error),
        };
        Ok(Self { path, how })
    }

    /// Whether it can be written again and again.
    pub const fn is_rewritable(&self) -> bool {
        !matches!(self.how, How::Stream)
    }

    /// Replaces what it holds.
    ///
    /// # Errors
    /// [`crate::error::code::IO`]; what it held stays where it is renamed.
    pub fn write(&self, value: &Value) -> Result<(), CliError> {
        let text = format!("{value:#}\n");
        let written = match &self.how {
            How::Renamed {
                beside,
                permissions,
            } => replace(&self.path, beside, permissions.as_ref(), &text).inspect_err(|_| {
                let _ = fs::remove_file(beside);
            }),
            How::InPlace | How::Stream => fs::write(&self.path, text),
        };
        written.map_err(|e| unwritten(&self.path, &e))
    }
}

fn replace(
    path: &Path,
    beside: &Path,
    permissions: Option<&Permissions>,
    text: &str,
) -> io::Result<()> {
    fs::write(beside, text)?;
    if let Some(permissions) = permissions {
        fs::set_permissions(beside, permissions.clone())?;
    }
    fs::rename(beside, path)
}

fn unwritten(path: &Path, error: &io::Error) -> CliError {
    let text = format!("cannot write --stats {}: {error}", path.display());
    CliError::new(crate::error::code::IO, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_permissions_and_links() {
        let directory = tempfile::tempdir().expect("directory");
        let (file, link) = (
            directory.path().join("stats"),
            directory.path().join("link"),
        );
        fs::write(&file, "before").expect("write");
        fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("chmod");
        std::os::unix::fs::symlink(&file, &link).expect("link");
        let mut reader = fs::File::open(&file).expect("open");
        let stats = StatsFile::new(&link).expect("a file");
        stats.write(&json!({"a": 1})).expect("write");
        let mut old = String::new();
        io::Read::read_to_string(&mut reader, &mut old).expect("read");
        let new = fs::read_to_string(&link).expect("read");
        assert_eq!(
            (old.as_str(), new.as_str()),
            ("before", "{\n  \"a\": 1\n}\n")
        );
        let mode = fs::metadata(&file).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).expect("metadata").is_symlink());
        assert_eq!(
            fs::read_dir(directory.path()).expect("directory").count(),
            2
        );
    }

    #[test]
    fn a_device_stays_a_device() {
        let stats = StatsFile::new(Path::new("/dev/null")).expect("a device");
        assert!(!stats.is_rewritable());
        stats.write(&json!({})).expect("write");
        let kind = fs::metadata("/dev/null").expect("metadata").file_type();
        assert!(kind.is_char_device());
        StatsFile::new(Path::new("/nowhere/stats")).expect_err("no directory");
    }
}
