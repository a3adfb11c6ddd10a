//! Starting a program under a limit.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::rc::Rc;

use outpage_engine::config::{Config, Encrypt, Mechanism, SharedMemory};
use outpage_engine::session::{HeldKey, Session, SessionPaths};
use outpage_store::SwapFile;
use outpage_sys::fd::Fd;
use outpage_sys::launch::{closed_streams, set_inherited, trim};

use super::program::Program;
use super::{check, shim};
use crate::error::{CliError, code};
use crate::home::{self, Home};
use crate::keeper;

/// What the write-protect mechanism cannot see.
const UNSEEN: &str =
    "mechanism write-protect: O_DIRECT reads by io_uring or libaio are not seen and may lose data";

/// Everything checked and nothing started yet.
pub struct Plan {
    config: Config,
    mechanism: Mechanism,
    program: Program,
    shim: PathBuf,
    swap: SwapFile,
    device: Option<Rc<Fd>>,
    unencrypted: Option<String>,
}

/// A program that runs under a limit.
pub struct Running {
    /// The program.
    pub child: Child,
    /// Its session: counters, members.
    pub session: Session,
    /// The key of its swap file, in RAM already before the keeper holds it.
    _key: Option<HeldKey>,
    /// What keeps its shared memory lives at least as long.
    _home: Option<Home>,
}

impl Plan {
    /// Checks all that can be wrong.
    ///
    /// # Errors
    /// The first thing wrong, with its remedy.
    // A frame of its own, as `start` has, which is gone while the program runs.
    #[inline(never)]
    pub fn new(
        mut config: Config,
        program: Program,
        device: Option<impl Into<Rc<Fd>>>,
    ) -> Result<Self, CliError> {
        let device = device.map(Into::into);
        let unencrypted = check::encryption(&mut config)?;
        check::container(&config)?;
        let swap = check::swap_file(&config)?;
        let shim = shim::find()?;
        let mechanism = check::userfaultfd(&config, device.as_deref())?;
        Ok(Self {
            config,
            mechanism,
            program,
            shim,
            swap,
            device,
            unencrypted,
        })
    }

    /// What the user should know: one sentence each.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let unseen = (self.mechanism == Mechanism::WriteProtect).then(|| UNSEEN.to_owned());
        let swap = self.swap.warnings().map(|warning| warning.to_string());
        swap.chain(unseen).chain(self.unencrypted.clone())
    }

    /// Whether pages will be encrypted in the swap file.
    pub fn encrypts(&self) -> bool {
        self.config.encrypt != Encrypt::Off
    }

    /// Starts the program as `name` with `arguments`; `adjust` may redirect its standard streams.
    ///
    /// # Errors
    /// [`code::OS`]; [`code::CANNOT_EXECUTE`].
    #[inline(never)]
    pub fn start(
        &self,
        name: &OsStr,
        arguments: &[OsString],
        adjust: impl FnOnce(&mut Command),
    ) -> Result<Running, CliError> {
        let (session, file) = Session::create(self.config.limit_pages(), self.swap.cap_bytes())?;
        session.hold_for_launcher()?;
        let key = self.encrypts().then(|| session.draw_key());
        let key = key.transpose()?;
        // Both it and its copy, the keeper, live as long as the program.
        trim();
        let home = (self.config.shared == SharedMemory::Tree).then(|| self.start_home(&file));
        let home = home.transpose()?;
        if let Some(home) = &home {
            session.set_home(home.pid);
        }
        let lifeline = home.as_ref().map(|home| home.lifeline.as_raw_fd());
        let swap = self.swap.as_raw_fd();
        let keeper = keeper::start(&session, file.number(), swap, lifeline)?;
        let path = |number: i32| CString::new(format!("/proc/{}/fd/{number}", keeper.pid)).ok();
        let paths = SessionPaths {
            session: path(file.number()),
            swap: path(self.swap.as_raw_fd()),
            uffd_device: self.device.as_ref().map(|device| device.number()),
            keeper: Some(keeper),
            home: home.as_ref().map(|home| home.name.clone()),
        };
        let mut command = Command::new(&self.program.path);
        command.arg0(name).args(arguments);
        self.set_environment(&mut command, &paths);
        adjust(&mut command);
        let inherit = |on| {
            self.device
                .as_ref()
                .map_or(Ok(()), |device| set_inherited(device.number(), on))
        };
        for number in closed_streams() {
            // The program gets a file of its own there, or none, as it would without this launcher.
            set_inherited(number, false).map_err(|e| CliError::os("close a stream", e))?;
        }
        inherit(true).map_err(|e| CliError::os("hand down /dev/userfaultfd", e))?;
        let child = command.spawn();
        inherit(false).map_err(|e| CliError::os("take back /dev/userfaultfd", e))?;
        let child = child.map_err(|e| {
            CliError::new(
                code::CANNOT_EXECUTE,
                format!("{} cannot be executed: {e}", self.program.path.display()),
            )
        })?;
        session.set_program(child.id());
        Ok(Running {
            child,
            session,
            _key: key,
            _home: home,
        })
    }

    fn start_home(&self, file: &Fd) -> Result<Home, CliError> {
        let config = Config {
            swap_cap: Some(self.swap.cap_bytes()),
            ..self.config.clone()
        };
        let device = self.device.as_ref().map(|device| device.number());
        home::start(config, file.number(), self.swap.as_raw_fd(), device)
    }

    fn set_environment(&self, command: &mut Command, paths: &SessionPaths) {
        // What an outer `outpage run` left in the environment must not show through.
        for (name, _) in std::env::vars_os() {
            if name
                .to_str()
                .is_some_and(|n| n.starts_with("OUTPAGE_") && !n.starts_with("OUTPAGE_TRACE"))
            {
                command.env_remove(name);
            }
        }
        // Summary and counters are the launcher's business.
        let own = ["OUTPAGE_STATS", "OUTPAGE_QUIET"];
        command.envs(
            self.config
                .to_env()
                .into_iter()
                .filter(|(name, _)| !own.contains(name)),
        );
        command.env("OUTPAGE_SWAP_CAP", self.swap.cap_bytes().to_string());
        command.envs(paths.to_env());
        if self
            .program
            .unmanaged
            .as_ref()
            .is_none_or(|u| u.tolerates_preload())
        {
            let list = shim::prepended(self.shim.as_os_str(), std::env::var_os("LD_PRELOAD"));
            command.env("LD_PRELOAD", list);
            let options = std::env::var_os("ASAN_OPTIONS");
            command.env("ASAN_OPTIONS", shim::asan_options(options));
            if self.config.jvm_discard {
                let options = std::env::var_os(shim::JAVA_OPTIONS);
                let options = shim::java_options(self.shim.as_os_str(), options);
                command.env(shim::JAVA_OPTIONS, options);
            }
        }
    }
}
