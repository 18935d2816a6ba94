//! The `vpp` program inside a host: found, started, asked.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::{Guard, Host, Vppctl};

/// How long its command socket may take.
const START_BOUND: Duration = Duration::from_secs(60);

/// A running VPP and its folder. Dropping it ends VPP and removes the folder.
#[derive(Debug)]
pub struct Vpp {
    guard: Guard,
    folder: PathBuf,
}

impl Vpp {
    /// The program that `QUIVER_VPP` names, else the one in `PATH`.
    ///
    /// # Errors
    /// `QUIVER_VPP` names no file.
    pub fn binary() -> io::Result<Option<PathBuf>> {
        if let Some(named) = std::env::var_os("QUIVER_VPP").map(PathBuf::from) {
            return if named.is_file() {
                Ok(Some(named))
            } else {
                Err(io::Error::other(format!("QUIVER_VPP: no file {}", named.display())))
            };
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        Ok(std::env::split_paths(&path).map(|folder| folder.join("vpp")).find(|file| file.is_file()))
    }

    /// Starts it with one thread, on a processor. `QUIVER_VPP_PLUGINS` names the folder of its plugins, where it does not find them itself.
    ///
    /// # Errors
    /// It ends, or does not answer within a minute.
    pub fn start(binary: &Path, host: &Host, processor: u32) -> io::Result<Self> {
        let id = std::process::id();
        // Short: a socket's path has 107 bytes.
        let folder = std::env::temp_dir().join(format!("quiver-vpp-{id}"));
        fs::create_dir_all(&folder)?;
        let at = folder.display();
        // An empty section is an error of VPP's.
        let plugins = std::env::var("QUIVER_VPP_PLUGINS").map(|path| format!("plugins {{ path {path} }}\n")).unwrap_or_default();
        fs::write(
            folder.join("startup.conf"),
            format!(
                "unix {{ nodaemon nosyslog runtime-dir {at} cli-listen {at}/cli.sock }}\n\
                 cpu {{ main-core {processor} }}\nmemory {{ main-heap-size 4G }}\n{plugins}\
                 api-segment {{ prefix quiver-vpp-{id} }}\nstatseg {{ socket-name {at}/stats.sock size 512M }}\n"
            ),
        )?;
        let mut command = host.command(&binary.to_string_lossy());
        command.arg("-c").arg(folder.join("startup.conf")).stdin(Stdio::null());
        let log = File::create(folder.join("console.log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        let mut vpp = Self { guard: host.spawn(command)?, folder };
        let end = Instant::now() + START_BOUND;
        while Vppctl::connect(&vpp.socket()).is_err() {
            if let Some(status) = vpp.guard.wait(Duration::from_millis(50))? {
                return Err(vpp.failure(&format!("it ended at its start: {status}")));
            }
            if Instant::now() > end {
                return Err(vpp.failure(&format!("no answer within {START_BOUND:?}")));
            }
        }
        Ok(vpp)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its command socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("cli.sock")
    }

    /// Where a file for it lies: where Quiver, too, takes files from, so that `QUIVER_VPP` may name another Quiver.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join("files").join(name)
    }

    fn failure(&self, what: &str) -> io::Error {
        let log = fs::read_to_string(self.folder.join("console.log")).unwrap_or_default();
        io::Error::other(format!("vpp: {what}\n{log}"))
    }
}

impl Drop for Vpp {
    fn drop(&mut self) {
        let _ = self.guard.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
