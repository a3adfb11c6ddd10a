//! `outpage serve`: memory objects for other processes, under one limit.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use outpage_core::units::{PAGE_BYTES, PAGE_SHIFT};
use outpage_engine::config::{StoreKind, format_size, parse_size};
use outpage_server::{Options, ServeError, Server, SocketFile, listen, systemd};
use outpage_sys::fd::Fd;
use outpage_sys::launch::{Signals, heeded};
use outpage_sys::process;
use serde::Deserialize;

use crate::error::{CliError, code};
use crate::message;

/// Options of `outpage serve`, and the keys of its settings file.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Args {
    /// RAM for the pages of all clients, at least 1M
    #[arg(long, short, value_name = "SIZE")]
    memory: Option<String>,
    /// Where to listen [default: outpage.socket in $XDG_RUNTIME_DIR, or in /run]; a service manager's socket wins
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// When discardable pages are dropped: on-demand, nf, pf[:pages=64], uf or none [default: on-demand]
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]")]
    discard: Option<String>,
    /// Which pages leave, as of `outpage run` [default: as there]
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]")]
    reclaim: Option<String>,
    /// What else is read with a page, as of `outpage run` [default: stream]
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]")]
    readahead: Option<String>,
    /// Directory of the swap file [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    swap_dir: Option<PathBuf>,
    /// Most the swap file may hold [default: 16 times the memory, at least 2G]
    #[arg(long, value_name = "SIZE")]
    swap_cap: Option<String>,
    /// Who does the swap file's I/O: auto, uring or pool [default: auto]
    #[arg(long, value_name = "NAME")]
    store: Option<String>,
    /// Most clients at a time [default: 256]
    #[arg(long, value_name = "COUNT")]
    clients: Option<usize>,
    /// Most memory objects of one client, all together [default: memory and swap cap]
    #[arg(long, value_name = "SIZE")]
    client_memory: Option<String>,
    /// Most that one client may be guaranteed [default: half of the memory]
    #[arg(long, value_name = "SIZE")]
    minimum_max: Option<String>,
    /// A file with these settings, in TOML; options win
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
}

/// Signals that end the server in order, where they are not ignored.
const ENDS: [i32; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// Serves until a signal ends it.
///
/// # Errors
/// Wrong settings, and what the machine lacks.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let args = args.clone().with_file()?;
    let options = args.options()?;
    let taken = |error| CliError::os("take over signals", error);
    let signals = Signals::take(heeded(ENDS).map_err(taken)?).map_err(taken)?;
    let given = systemd::listener().map_err(|why| CliError::new(code::USAGE, why))?;
    let (listener, file) = match given {
        Some(listener) => (listener, None),
        None => listen_at(&args.socket())?,
    };
    let served = serve(options, listener, &signals);
    if let Some(Err(error)) = file.map(SocketFile::remove) {
        message::line(format_args!(
            "outpage serve: its socket's file stays: {error}"
        ));
    }
    served
}

/// A socket and its file, if that can be looked at.
fn listen_at(path: &Path) -> Result<(Fd, Option<SocketFile>), CliError> {
    let listener = listen(path).map_err(failed)?;
    Ok((listener, SocketFile::at(path).ok()))
}

fn serve(options: Options, listener: Fd, signals: &Signals) -> Result<ExitCode, CliError> {
    // A socket, a userfaultfd and a file for each object of a client, and some of the server's own.
    let descriptors = 64 + options.clients_max as u64 * (2 + OBJECTS);
    process::with_descriptors(descriptors, || {
        let status = format!(
            "{} for {} clients at most",
            format_size(options.limit_pages << PAGE_SHIFT),
            options.clients_max
        );
        let mut server = Server::new(options, listener).map_err(failed)?;
        server.stop_by(signals.descriptor()).map_err(failed)?;
        message::line(format_args!("outpage serve: {status}"));
        if let Err(error) = systemd::notify(&format!("READY=1\nSTATUS={status}")) {
            message::line(format_args!(
                "outpage serve: the service manager cannot be told: {error}"
            ));
        }
        let served = server.run().map_err(failed);
        // Its clients see the end by the kernel's closing of all that it has, as when it is killed.
        std::mem::forget(server);
        served.map(|()| ExitCode::SUCCESS)
    })
}

/// Objects of a client for which descriptors are made room for at once. A choice: a collector's spaces; more come as far as the limit of descriptors goes.
const OBJECTS: u64 = 8;

fn failed(error: ServeError) -> CliError {
    let code = match &error {
        ServeError::Policy(_) | ServeError::Limit(_) => code::USAGE,
        ServeError::Swap(_) => code::NO_INPUT,
        ServeError::Store(_) => code::UNAVAILABLE,
        ServeError::Taken(_)
        | ServeError::NoSocket(_)
        | ServeError::Socket(..)
        | ServeError::Os(..) => code::OS,
    };
    CliError::new(code, error.to_string())
}

fn pages(option: &str, text: &str) -> Result<u64, CliError> {
    let bytes = parse_size(text)
        .map_err(|error| CliError::new(code::USAGE, format!("{option}: {error}")))?;
    Ok(bytes / PAGE_BYTES as u64)
}

impl Args {
    /// What the file says where no option does.
    fn with_file(self) -> Result<Self, CliError> {
        let Some(path) = &self.config else {
            return Ok(self);
        };
        let text = std::fs::read_to_string(path).map_err(|error| CliError::no_text(path, error))?;
        let file: Self = toml::from_str(&text).map_err(|error| {
            let text = format!("{}: {}", path.display(), error.message());
            CliError::new(code::DATA, text)
        })?;
        Ok(Self {
            memory: self.memory.or(file.memory),
            socket: self.socket.or(file.socket),
            discard: self.discard.or(file.discard),
            reclaim: self.reclaim.or(file.reclaim),
            readahead: self.readahead.or(file.readahead),
            swap_dir: self.swap_dir.or(file.swap_dir),
            swap_cap: self.swap_cap.or(file.swap_cap),
            store: self.store.or(file.store),
            clients: self.clients.or(file.clients),
            client_memory: self.client_memory.or(file.client_memory),
            minimum_max: self.minimum_max.or(file.minimum_max),
            config: None,
        })
    }

    fn socket(&self) -> PathBuf {
        let default = || {
            let directory = std::env::var_os("XDG_RUNTIME_DIR").filter(|name| !name.is_empty());
            let directory = directory.map_or_else(|| PathBuf::from("/run"), PathBuf::from);
            directory.join("outpage.socket")
        };
        self.socket.clone().unwrap_or_else(default)
    }

    fn options(&self) -> Result<Options, CliError> {
        let missing = || {
            CliError::new(
                code::USAGE,
                "name the RAM for all clients, as in --memory 512M",
            )
        };
        let memory = self.memory.as_ref().ok_or_else(missing)?;
        let mut options = Options::new(pages("--memory", memory)?);
        if let Some(text) = &self.swap_cap {
            options.set_swap_cap(pages("--swap-cap", text)? * PAGE_BYTES as u64);
        }
        let named = |option: &Option<String>, place: &mut String| {
            if let Some(text) = option {
                place.clone_from(text);
            }
        };
        named(&self.discard, &mut options.discard);
        named(&self.reclaim, &mut options.reclaim);
        named(&self.readahead, &mut options.readahead);
        if let Some(directory) = &self.swap_dir {
            options.swap_dir.clone_from(directory);
        }
        if let Some(name) = &self.store {
            let wrong = |_| {
                CliError::new(
                    code::USAGE,
                    format!("--store: '{name}' is none of auto, uring, pool"),
                )
            };
            options.store = name.parse::<StoreKind>().map_err(wrong)?;
        }
        options.clients_max = self.clients.unwrap_or(options.clients_max);
        if let Some(text) = &self.client_memory {
            options.client_pages_max = pages("--client-memory", text)?;
        }
        if let Some(text) = &self.minimum_max {
            options.minimum_pages_max = pages("--minimum-max", text)?;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_keys_of_the_options_and_options_win() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        std::fs::write(
            &path,
            "memory = \"64M\"\ndiscard = \"nf\"\nclients = 7\nswap-cap = \"1G\"\n",
        )
        .unwrap();
        let args = Args {
            discard: Some("uf".to_owned()),
            config: Some(path.clone()),
            ..Args::default()
        };
        let options = args.clone().with_file().unwrap().options().unwrap();
        assert_eq!((options.limit_pages, options.clients_max), (16_384, 7));
        assert_eq!(
            (options.discard.as_str(), options.swap_cap),
            ("uf", 1 << 30)
        );
        std::fs::write(&path, "memroy = \"64M\"\n").unwrap();
        let wrong = args.with_file().unwrap_err();
        assert_eq!(wrong.code, code::DATA);
        assert!(wrong.text.contains("memroy"), "{}", wrong.text);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let with = |change: fn(&mut Args)| {
            let mut args = Args {
                memory: Some("64M".to_owned()),
                ..Args::default()
            };
            change(&mut args);
            args.options().unwrap_err().text
        };
        assert!(with(|args| args.memory = None).contains("--memory 512M"));
        assert!(with(|args| args.store = Some("tape".to_owned())).contains("tape"));
        assert!(with(|args| args.swap_cap = Some("much".to_owned())).contains("--swap-cap"));
    }
}
