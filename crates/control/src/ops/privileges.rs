//! `show privileges`: what the process may do.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_drivers::rights::{Direct, Rights};
use quiver_net::Router;
use quiver_privilege::landlock::Allowed;
use quiver_privilege::seccomp::Mode;
use quiver_privilege::status::Status;
use serde::Serialize;

use crate::daemon::Privileges;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowPrivileges>();
}

/// Who does what the router may not do itself.
pub fn rights(router: &Router) -> Arc<dyn Rights> {
    router.part::<Privileges>().map_or_else(|| Arc::new(Direct) as Arc<dyn Rights>, |p| Arc::clone(&p.rights))
}

request! {
    /// Shows the router's user, its capabilities and its limits.
    pub read ShowPrivileges "privileges_show" ["show privileges"] {}
}

/// The answer of [`ShowPrivileges`].
#[derive(Debug, Clone, Serialize)]
pub struct PrivilegeInfo {
    /// Of the main thread.
    #[serde(flatten)]
    pub status: Status,
    /// Threads.
    pub threads: usize,
    /// Threads, by number, that do not have what the main thread has.
    pub different_threads: Vec<u32>,
    /// `on`, `log` or `off`, as configured; `seccomp` tells what the kernel says.
    pub seccomp_mode: &'static str,
    /// Version of landlock in force.
    pub landlock: Option<u32>,
    /// The files that are left; absent where files are not to be limited.
    pub files: Option<Vec<Allowed>>,
    /// The helper.
    pub helper: Option<HelperInfo>,
    /// What does not work for want of rights.
    pub not_possible: Vec<String>,
}

/// The helper, and how it goes.
#[derive(Debug, Clone, Serialize)]
pub struct HelperInfo {
    /// Process.
    pub pid: u32,
    /// What it may do.
    pub capabilities: Vec<String>,
    /// Requests that it has answered.
    pub requests: u64,
    /// Why it is lost.
    pub lost: Option<&'static str>,
}

impl Execute<Router> for ShowPrivileges {
    type Reply = PrivilegeInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, PrivilegeInfo>, OpError> {
        let status = Status::now().map_err(|error| OpError::system("cannot read /proc/self/status", &error))?;
        let (threads, different_threads) = threads(&status);
        let part = router.part::<Privileges>();
        let helper = part.and_then(|p| p.helper.as_ref()).map(|(helper, capabilities)| HelperInfo {
            pid: helper.pid(),
            capabilities: capabilities.clone(),
            requests: helper.requests(),
            lost: helper.lost(),
        });
        Ok(Outcome::Done(PrivilegeInfo {
            threads,
            different_threads,
            seccomp_mode: match part.and_then(|p| p.seccomp) {
                Some(Mode::On) => "on",
                Some(Mode::Log) => "log",
                None => "off",
            },
            landlock: part.and_then(|p| p.landlock),
            files: part.and_then(|p| p.files.clone()),
            helper,
            not_possible: part.map(|p| p.lacking(&status)).unwrap_or_default(),
            status,
        }))
    }
}

/// How many threads there are, and which of them have other rights than these.
fn threads(status: &Status) -> (usize, Vec<u32>) {
    let numbers: Vec<u32> = std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let differs = |number: &u32| {
        let path = format!("/proc/self/task/{number}/status");
        // One that has just ended differs from nobody.
        Status::read(Path::new(&path)).is_ok_and(|other| other != *status)
    };
    let different = numbers.iter().copied().filter(differs).collect();
    (numbers.len(), different)
}

fn list(words: &[String]) -> String {
    if words.is_empty() { "none".to_owned() } else { words.join(" ") }
}

impl Text for PrivilegeInfo {
    fn text(&self, out: &mut String, _: &View) {
        let s = &self.status;
        let _ = writeln!(out, "user {} ({}), group {} ({}), further groups: {}", s.user, s.uid, s.group, s.gid, list(&s.groups));
        let _ = writeln!(out, "capabilities");
        for (name, set) in
            [("effective", &s.effective), ("permitted", &s.permitted), ("bounding", &s.bounding), ("ambient", &s.ambient)]
        {
            let _ = writeln!(out, "  {name:<10} {}", list(set));
        }
        let _ = writeln!(out, "no new privileges: {}", if s.no_new_privs { "yes" } else { "no" });
        let _ = writeln!(out, "seccomp: {} ({}, {} filters)", self.seccomp_mode, s.seccomp, s.seccomp_filters);
        let _ = match (&self.files, self.landlock) {
            (None, _) => writeln!(out, "landlock: off"),
            (Some(_), None) => writeln!(out, "landlock: this kernel has none"),
            (Some(files), Some(version)) => writeln!(out, "landlock: version {version}, {} paths", files.len()),
        };
        let _ = match &self.helper {
            None => writeln!(out, "helper: none"),
            Some(HelperInfo { pid, lost: Some(why), .. }) => writeln!(out, "helper: {pid} is lost ({why})"),
            Some(h) => writeln!(out, "helper: process {}, {} requests, {}", h.pid, h.requests, list(&h.capabilities)),
        };
        let _ = match self.different_threads.as_slice() {
            [] => writeln!(out, "threads: {}, all with these rights", self.threads),
            different => writeln!(out, "threads: {}, with other rights: {different:?}", self.threads),
        };
        for line in &self.not_possible {
            let _ = writeln!(out, "not possible: {line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use quiver_net::testing::Harness;

    use super::*;
    use crate::ops::testing::run;

    #[test]
    fn a_confined_router_is_described_line_by_line() {
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let info = PrivilegeInfo {
            status: Status {
                user: "quiver".into(),
                uid: 998,
                group: "quiver".into(),
                gid: 997,
                effective: words(&["net_admin", "net_raw"]),
                permitted: words(&["net_admin", "net_raw"]),
                bounding: words(&["net_admin", "net_raw"]),
                no_new_privs: true,
                seccomp: "filter",
                seccomp_filters: 2,
                ..Status::default()
            },
            threads: 3,
            different_threads: Vec::new(),
            seccomp_mode: "on",
            landlock: Some(7),
            files: Some(vec![Allowed::read("/sys")]),
            helper: Some(HelperInfo { pid: 7, capabilities: words(&["bpf"]), requests: 2, lost: None }),
            not_possible: words(&["TAP interfaces in other network namespaces (host-ns): cap_sys_admin missing"]),
        };
        let mut text = String::new();
        info.text(&mut text, &View::TEXT);
        let expected = "user quiver (998), group quiver (997), further groups: none
capabilities
  effective  net_admin net_raw
  permitted  net_admin net_raw
  bounding   net_admin net_raw
  ambient    none
no new privileges: yes
seccomp: on (filter, 2 filters)
landlock: version 7, 1 paths
helper: process 7, 2 requests, bpf
threads: 3, all with these rights
not possible: TAP interfaces in other network namespaces (host-ns): cap_sys_admin missing
";
        assert_eq!(text, expected);
        let json = serde_json::to_value(&info).unwrap();
        assert_eq!((json["uid"].as_u64(), json["helper"]["pid"].as_u64()), (Some(998), Some(7)));
    }

    #[test]
    fn a_router_without_its_daemon_shows_the_process() {
        let text = run(&mut Harness::new().router, "show privileges");
        assert!(text.contains("helper: none\n") && text.contains("landlock: off\n"), "{text}");
    }
}
