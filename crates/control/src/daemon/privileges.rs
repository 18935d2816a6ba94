//! Giving rights up at the start: what is asked for, in which order, and what is told about it.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use quiver_drivers::fast_path::FastPathFds;
use quiver_drivers::rights::{Direct, NamespaceFds, RedirectFds, Rights};
use quiver_graph::topology::SchedulerPolicy;
use quiver_privilege::account::{self, Account};
use quiver_privilege::capability::{self, HELPER, MORE, ROUTER};
use quiver_privilege::confine::{Done, Plan, confine, may_become};
use quiver_privilege::helper::{self, Helper};
use quiver_privilege::landlock::Allowed;
use quiver_privilege::seccomp::{self, Mode, Who};
use quiver_privilege::status::Status;
use rustix::thread::CapabilitySet;

use super::assemble::own_files;
use super::group::group_id;
use super::{StartError, runtime_dir};
use crate::server::Owner;
use crate::startup::StartupConfig;

/// Where configurations and files of commands are usually kept.
const CONFIGURATION: &str = "/etc/quiver";

/// What holds since the start; a part of the router.
pub struct Privileges {
    /// Does what the router has no rights for.
    pub rights: Arc<dyn Rights>,
    /// The helper, where there is one, and what it may do.
    pub helper: Option<(Arc<Helper>, Vec<String>)>,
    /// A user was asked for.
    pub user: bool,
    /// How system calls are limited.
    pub seccomp: Option<Mode>,
    /// Version of landlock in force, where files are limited.
    pub landlock: Option<u32>,
    /// The files that are left, where they were to be limited.
    pub files: Option<Vec<Allowed>>,
}

impl Privileges {
    /// Whether system calls are limited, so that no code can be loaded.
    pub const fn limits_calls(&self) -> bool {
        matches!(self.seccomp, Some(Mode::On))
    }
}

/// What the configuration asks for, with users and groups looked up.
pub struct Wish {
    account: Option<Account>,
    /// Whose the sockets are.
    pub owner: Owner,
}

impl Wish {
    /// Reads it, and makes sure that it can be had before anything is opened.
    ///
    /// # Errors
    /// A user or group that the system does not know, or that this process cannot become.
    pub fn of(startup: &StartupConfig) -> Result<Self, StartError> {
        let unix = &startup.unix;
        let gid = unix.gid.as_ref().map(group_id).transpose()?;
        let Some(value) = &unix.rights.user else { return Ok(Self { account: None, owner: Owner { uid: None, gid } }) };
        let mut account = Account::find(value.text())
            .map_err(|text| value.error(format!("{text}; `useradd --system {}' makes it, or name another", value.text())))?;
        account.gid = gid.unwrap_or(account.gid);
        may_become(&account).map_err(|error| value.error(error.to_string()))?;
        let owner = match rustix::process::geteuid().as_raw() {
            0 => Owner { uid: Some(account.uid), gid: Some(account.gid) },
            _ => Owner { uid: None, gid },
        };
        Ok(Self { account: Some(account), owner })
    }

    /// Hands a file or folder to the user that the process becomes. Never what a link leads to: in a folder of the user's,
    /// links may be anybody's.
    pub fn hand_over(&self, path: &Path) -> io::Result<()> {
        match self.owner.uid {
            Some(uid) => std::os::unix::fs::lchown(path, Some(uid), self.owner.gid),
            None => Ok(()),
        }
    }
}

/// Starts the helper, gives up what is not needed, and tells what will not work. The process has one thread.
///
/// # Errors
/// A step that failed; the process must end.
pub fn give_up(startup: &StartupConfig, wish: &Wish, dpdk: bool) -> Result<Privileges, StartError> {
    let asked = &startup.unix.rights;
    let helper = match &wish.account {
        Some(account) => start_helper(account, asked.seccomp),
        None => None,
    };
    let files = asked.landlock.then(|| files(startup, dpdk));
    let more = asked.capabilities.iter().filter_map(|place| Some(MORE.get(*place)?.1));
    let real_time = matches!(startup.cpu.policy, SchedulerPolicy::Fifo | SchedulerPolicy::RoundRobin);
    // Without a helper the router loads programs itself, if it may.
    let own = if helper.is_some() { CapabilitySet::empty() } else { CapabilitySet::BPF };
    let plan = Plan {
        account: wish.account.clone(),
        groups: Vec::new(),
        keep: more.fold(ROUTER | own, |keep, one| keep | one),
        priority: if real_time { startup.cpu.priority } else { 0 },
        dumpable: asked.core_dump,
        files: files.clone(),
        calls: asked.seccomp.map(|mode| seccomp::Plan { who: Who::Router { libraries: dpdk, loads: helper.is_none() }, mode }),
    };
    let Done { landlock, notices } = confine(&plan)?;
    notices.iter().for_each(|notice| tracing::info!(target: "privilege", "{notice}"));
    let rights: Arc<dyn Rights> = match &helper {
        Some((helper, _)) => Arc::clone(helper) as Arc<dyn Rights>,
        None if wish.account.is_some() => Arc::new(NoNamespaces),
        None => Arc::new(Direct),
    };
    let privileges = Privileges { rights, helper, user: wish.account.is_some(), seccomp: asked.seccomp, landlock, files };
    privileges.tell();
    Ok(privileges)
}

/// A router that has given up entering namespaces and has no helper for it.
struct NoNamespaces;

impl Rights for NoNamespaces {
    fn namespace(&self, _: &str, _: u32) -> io::Result<NamespaceFds> {
        Err(rustix::io::Errno::PERM.into())
    }

    fn redirect(&self, queues: u32) -> io::Result<RedirectFds> {
        Direct.redirect(queues)
    }

    fn fast_path(&self) -> io::Result<FastPathFds> {
        Direct.fast_path()
    }
}

/// Only where it could do anything that the router cannot.
fn start_helper(account: &Account, seccomp: Option<Mode>) -> Option<(Arc<Helper>, Vec<String>)> {
    let permitted = capability::permitted().unwrap_or(CapabilitySet::empty());
    if !permitted.intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::BPF) {
        return None;
    }
    let mode = match seccomp {
        Some(Mode::On) => "on",
        Some(Mode::Log) => "log",
        None => "off",
    };
    let words = [account.uid.to_string(), account.gid.to_string(), mode.to_owned()];
    match helper::start(&words) {
        Ok(helper) => {
            // Its files in /proc may be closed to us later.
            let status = Status::read(Path::new(&format!("/proc/{}/status", helper.pid()))).unwrap_or_default();
            Some((Arc::new(helper), status.effective))
        }
        Err(error) => {
            tracing::warn!(target: "privilege", "the privileged helper cannot be started: {error}");
            None
        }
    }
}

/// The program as the helper: everything that it does.
///
/// # Errors
/// Words that the router does not give, and rights that cannot be given up.
pub fn run_helper(words: &[String]) -> Result<ExitCode, StartError> {
    let number = |place: usize| words.get(place).and_then(|word| word.parse::<u32>().ok());
    let (Some(uid), Some(gid), Some(mode)) = (number(0), number(1), words.get(2)) else {
        let error = io::Error::from(io::ErrorKind::InvalidInput);
        return Err(StartError::System { doing: format!("{} is for the router itself", helper::MARK), error });
    };
    let mode = match mode.as_str() {
        "off" => None,
        "log" => Some(Mode::Log),
        _ => Some(Mode::On),
    };
    let plan = Plan {
        account: Some(Account { name: account::user_name(uid), uid, gid }),
        keep: HELPER,
        calls: mode.map(|mode| seccomp::Plan { who: Who::Helper, mode }),
        ..Plan::default()
    };
    let failed = |error| StartError::System { doing: "the helper has no socket".to_owned(), error };
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    helper::serve(&socket, &plan)?;
    Ok(ExitCode::SUCCESS)
}

/// The files that a router has to do with: the one place where they are listed.
fn files(startup: &StartupConfig, dpdk: bool) -> Vec<Allowed> {
    let unix = &startup.unix;
    let mut files = vec![Allowed::write(runtime_dir(unix)), Allowed::write(own_files(startup)), Allowed::read(CONFIGURATION)];
    files.extend(startup.files.write.iter().map(Allowed::write));
    files.extend(startup.files.read.iter().map(Allowed::read));
    files.extend(unix.state_dir.iter().map(Allowed::write));
    files.extend(unix.exec.iter().map(Allowed::read));
    // The log is opened anew after it was renamed.
    files.extend(unix.log.iter().filter_map(|log| log.parent()).map(Allowed::write));
    // Itself: the names in a backtrace.
    files.extend(std::env::current_exe().ok().map(Allowed::read));
    files.extend(unix.rights.paths.iter().map(Allowed::write));
    // The process itself, the machine, its devices and their memory nodes.
    files.extend(["/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/sys"].map(Allowed::read));
    // Names of users in `show privileges', local time.
    files.extend(["/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime"].map(Allowed::read));
    files.extend(["/dev/net/tun", "/dev/null"].map(Allowed::write));
    files.extend(["/dev/urandom", "/dev/zero"].map(Allowed::read));
    if dpdk {
        files.extend(["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"].map(Allowed::load));
        files.extend(["/proc", "/etc/ld.so.cache"].map(Allowed::read));
        files.extend(["/dev/vfio", "/dev/hugepages", "/dev/infiniband", "/run/dpdk", "/var/run/dpdk"].map(Allowed::write));
        files.extend((0..8).map(|n| Allowed::write(PathBuf::from(format!("/dev/uio{n}")))));
    }
    files
}

impl Privileges {
    /// What will not work, with what is missing for it, a line each.
    pub fn lacking(&self, status: &Status) -> Vec<String> {
        let own = |name: &str| status.effective.iter().any(|have| have == name);
        let helps = |name: &str| match &self.helper {
            Some((helper, have)) => helper.lost().is_none() && have.iter().any(|have| have == name),
            None => own(name),
        };
        let [admin, raw] = [("net_admin", own("net_admin")), ("net_raw", own("net_raw"))];
        let bpf = ("bpf", helps("bpf") || (self.helper.is_none() && own("sys_admin")));
        let enter = ("sys_admin", helps("sys_admin"));
        let needs: [(&str, &[(&str, bool)]); 4] = [
            ("host-interface", &[admin, raw]),
            ("TAP interfaces", &[admin]),
            ("AF_XDP interfaces", &[admin, raw, bpf]),
            ("TAP interfaces in other network namespaces (host-ns)", &[admin, enter]),
        ];
        let line = |(what, needs): &(&str, &[(&str, bool)])| {
            let missing: Vec<String> = needs.iter().filter(|(_, have)| !have).map(|(name, _)| format!("cap_{name}")).collect();
            (!missing.is_empty()).then(|| format!("{what}: {} missing", missing.join(", ")))
        };
        needs.iter().filter_map(line).collect()
    }

    fn tell(&self) {
        let Ok(status) = Status::now() else { return };
        if status.uid == 0 && !self.user {
            tracing::info!(
                target: "privilege",
                "the router runs with all rights of root: `unix {{ user NAME }}' in startup.conf has it keep only those that it needs"
            );
        }
        for line in self.lacking(&status) {
            tracing::warn!(target: "privilege", "not possible here: {line}");
        }
        if self.user {
            let helper = self.helper.as_ref().map_or("no helper".to_owned(), |(helper, _)| format!("helper {}", helper.pid()));
            let have = status.effective.join(", ");
            tracing::info!(target: "privilege", "runs as {} with {have}; {helper}", status.user);
        }
    }
}
