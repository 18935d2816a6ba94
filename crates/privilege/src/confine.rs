//! The way down: from whoever started the program to the user it runs as, with what it needs and no more.
//!
//! The order is the one that works. Capabilities outlive the change of user only where that was asked for before; limits are
//! raised while that is allowed; landlock needs `no_new_privs` or rights that are gone by then; seccomp comes last, since it
//! forbids most of the other steps.

use std::io;

use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::process::DumpableBehavior;
use rustix::thread::{self, CapabilitiesSecureBits, CapabilitySet};

use crate::account::Account;
use crate::{capability, landlock, seccomp};

/// What to become.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The user; `None` changes neither user nor capabilities.
    pub account: Option<Account>,
    /// Groups besides the user's own.
    pub groups: Vec<u32>,
    /// Capabilities that are kept, of those there are.
    pub keep: CapabilitySet,
    /// Highest real-time priority that threads may take; 0 for none.
    pub priority: u32,
    /// Other processes of the user may look into this one, and it leaves a core dump when it crashes.
    pub dumpable: bool,
    /// Files that are left; `None`: all.
    pub files: Option<Vec<landlock::Allowed>>,
    /// System calls that are left; `None`: all.
    pub calls: Option<seccomp::Plan>,
}

impl Default for Plan {
    /// Changes nothing.
    fn default() -> Self {
        Self {
            account: None,
            groups: Vec::new(),
            keep: CapabilitySet::empty(),
            priority: 0,
            dumpable: false,
            files: None,
            calls: None,
        }
    }
}

/// What became of the parts that depend on the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Version of landlock that is in force; `None`: none.
    pub landlock: Option<u32>,
    /// What was wanted and is not to be had here, a line each.
    pub notices: Vec<String>,
}

/// Why it cannot be done; the process is then in between and must end.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Threads would keep what they have.
    #[error("rights can be given up by one thread only, and the process has {0}")]
    Threads(usize),
    /// Who is not root cannot become somebody.
    #[error(
        "cannot become user {wanted}: the router was started by {now}; start it as root or as {wanted}, or leave out `unix {{ user }}'"
    )]
    NotRoot {
        /// Who to become.
        wanted: String,
        /// Who it is.
        now: String,
    },
    /// A step failed.
    #[error("{doing}: {error}")]
    System {
        /// Which.
        doing: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The files.
    #[error("cannot limit the files: {0}")]
    Landlock(String),
    /// The system calls.
    #[error("cannot limit the system calls: {0}")]
    Seccomp(String),
}

/// Turns an answer into an error that says what was tried.
fn step<T, E: Into<io::Error>>(doing: &'static str, result: Result<T, E>) -> Result<T, ConfineError> {
    result.map_err(|error| ConfineError::System { doing, error: error.into() })
}

/// Whether a process that runs as this user now may become `account`: it is it already, or has the right to change.
///
/// # Errors
/// A sentence that says what to do.
pub fn may_become(account: &Account) -> Result<(), ConfineError> {
    let now = rustix::process::geteuid().as_raw();
    let permitted = step("cannot read capabilities", capability::permitted())?;
    let change = CapabilitySet::SETUID | CapabilitySet::SETGID;
    if now == account.uid || permitted.contains(change) {
        return Ok(());
    }
    Err(ConfineError::NotRoot { wanted: account.name.clone(), now: crate::account::user_name(now) })
}

/// Makes the process what the plan says, for good.
///
/// # Errors
/// The step that failed. What was given up before it is gone.
pub fn confine(plan: &Plan) -> Result<Done, ConfineError> {
    let threads = step("cannot count threads", std::fs::read_dir("/proc/self/task"))?.count();
    if threads != 1 {
        return Err(ConfineError::Threads(threads));
    }
    let mut done = Done::default();
    if let Some(account) = &plan.account {
        may_become(account)?;
        // Only who opens AF_XDP sockets locks memory, and only the router has threads that somebody waits for.
        let opens = plan.keep.contains(CapabilitySet::NET_RAW);
        let more = if opens { raise_limits(plan.priority, &mut done) } else { CapabilitySet::empty() };
        let keep = plan.keep | more;
        become_user(plan, account, keep)?;
    }
    if plan.account.is_some() || plan.files.is_some() || plan.calls.is_some() {
        step("cannot set no_new_privs", thread::set_no_new_privs(true))?;
    }
    if let Some(files) = &plan.files {
        done.landlock = landlock::restrict(files, &mut done.notices).map_err(ConfineError::Landlock)?;
    }
    if let Some(calls) = &plan.calls {
        seccomp::restrict(calls, &mut done.notices).map_err(ConfineError::Seccomp)?;
    }
    Ok(done)
}

/// AF_XDP counts packet memory against the limit on locked memory, real-time scheduling against that on priorities: two limits
/// in place of two capabilities. Where a limit cannot be raised (a container without CAP_SYS_RESOURCE), its capability is given
/// back to be kept, if it is there.
fn raise_limits(priority: u32, done: &mut Done) -> CapabilitySet {
    let mut keep = CapabilitySet::empty();
    let permitted = capability::permitted().unwrap_or(CapabilitySet::empty());
    let mut raise = |limit, to, instead, otherwise: &str| {
        if to == 0 || setrlimit(limit, to, to).is_ok() || nix::sys::resource::getrlimit(limit).is_ok_and(|(soft, _)| soft >= to) {
            return;
        }
        if permitted.contains(instead) {
            keep |= instead;
        } else {
            done.notices.push(otherwise.to_owned());
        }
    };
    let memory = "the limit on locked memory cannot be raised: AF_XDP may refuse (LimitMEMLOCK=infinity, ulimit -l unlimited)";
    raise(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, CapabilitySet::IPC_LOCK, memory);
    let real_time = "the limit on real-time priorities cannot be raised: scheduler-policy will fail (LimitRTPRIO=, ulimit -r)";
    raise(Resource::RLIMIT_RTPRIO, u64::from(priority), CapabilitySet::SYS_NICE, real_time);
    keep
}

fn become_user(plan: &Plan, account: &Account, keep: CapabilitySet) -> Result<(), ConfineError> {
    // Both are refused where there is nothing to give up; what holds in the end is decided by the sets below.
    let _ = capability::bound(keep);
    let permitted = step("cannot read capabilities", capability::permitted())?;
    if permitted.contains(CapabilitySet::SETGID) {
        let groups: Vec<Gid> = plan.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        step("cannot set the groups", setgroups(&groups))?;
        let gid = Gid::from_raw(account.gid);
        step("cannot set the group", setresgid(gid, gid, gid))?;
    }
    if permitted.contains(CapabilitySet::SETUID) {
        step("cannot keep capabilities", thread::set_keep_capabilities(true))?;
        let uid = Uid::from_raw(account.uid);
        step("cannot set the user", setresuid(uid, uid, uid))?;
        step("cannot let capabilities go", thread::set_keep_capabilities(false))?;
    }
    if permitted.contains(CapabilitySet::SETPCAP) {
        // User 0 is nobody special any more, whatever is run and whoever it becomes. Before the capability for it goes.
        let bits = CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
        step("cannot set the secure bits", lock(bits))?;
    }
    step("cannot reduce capabilities", capability::reduce(keep))?;
    let dumpable = if plan.dumpable { DumpableBehavior::Dumpable } else { DumpableBehavior::NotDumpable };
    step("cannot set whether the process is dumpable", rustix::process::set_dumpable_behavior(dumpable))?;
    Ok(())
}

/// The capability that this needs may have gone from the effective set with the change of user.
fn lock(bits: CapabilitiesSecureBits) -> rustix::io::Result<()> {
    let sets = thread::capabilities(None)?;
    thread::set_capabilities(None, thread::CapabilitySets { effective: sets.permitted, ..sets })?;
    thread::set_capabilities_secure_bits(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_several_threads_is_left_alone() {
        // The test harness has its own threads beside this one.
        let error = confine(&Plan { account: Some(Account::find("0").unwrap()), ..Plan::default() }).unwrap_err();
        assert!(matches!(error, ConfineError::Threads(n) if n > 1), "{error}");
    }

    #[test]
    fn who_may_not_change_is_told_who_could() {
        std::thread::spawn(|| {
            capability::reduce(CapabilitySet::empty()).unwrap();
            let me = rustix::process::geteuid().as_raw();
            may_become(&Account { name: "me".into(), uid: me, gid: 0 }).unwrap();
            let other = Account { name: "other".into(), uid: me + 1, gid: 0 };
            let text = may_become(&other).unwrap_err().to_string();
            assert!(text.starts_with("cannot become user other: the router was started by "), "{text}");
        })
        .join()
        .unwrap();
    }
}
