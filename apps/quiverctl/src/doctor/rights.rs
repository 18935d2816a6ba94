//! What the router may do, and what the kernel can do for it.

use super::{Finding, Level, Machine};

/// Capability numbers (include/uapi/linux/capability.h).
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
/// Locks memory beyond the limit.
pub const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const SYS_NICE: u32 = 23;
const BPF: u32 = 39;

/// Whether whoever asks has a capability.
pub fn has(machine: &Machine, capability: u32) -> bool {
    let set = machine.field("proc/self/status", "CapEff").and_then(|text| u64::from_str_radix(&text, 16).ok());
    set.is_some_and(|set| set >> capability & 1 == 1)
}

pub fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![capabilities(machine)];
    findings.extend(facilities(machine));
    findings
}

/// Those of the one who asks: who starts a router from here gets the same.
fn capabilities(machine: &Machine) -> Finding {
    let topic = "capabilities";
    let has = |capability| has(machine, capability);
    let bpf = has(BPF) || has(SYS_ADMIN);
    let missing: Vec<&str> = [
        (has(NET_RAW), "cap_net_raw (host-interface, AF_XDP)"),
        (has(NET_ADMIN), "cap_net_admin (TAP, AF_XDP, links up and down)"),
        (bpf, "cap_bpf (AF_XDP)"),
        (has(IPC_LOCK), "cap_ipc_lock (DPDK)"),
        (has(SYS_NICE), "cap_sys_nice (scheduler-policy)"),
    ]
    .into_iter()
    .filter(|(there, _)| !there)
    .map(|(_, name)| name)
    .collect();
    if missing.is_empty() {
        return Finding::new(topic, Level::Good, "all that drivers and scheduling need");
    }
    let level = if has(NET_RAW) && has(NET_ADMIN) { Level::Note } else { Level::Warning };
    let fix = "run as root (`unix { user NAME }' gives up what is not needed), or: setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock,cap_sys_nice+ep quiver";
    Finding::new(topic, level, format!("missing: {}", missing.join(", "))).fix(fix)
}

fn facilities(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    let release = machine.read("proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    let protocols = machine.read("proc/net/protocols").unwrap_or_default();
    let socket = |name: &str| protocols.lines().any(|line| line.split_whitespace().next() == Some(name));
    // A protocol of a module that is not loaded is not listed; what is listed works.
    let kinds: Vec<&str> =
        [("XDP", "AF_XDP"), ("PACKET", "AF_PACKET")].iter().filter(|(n, _)| socket(n)).map(|(_, n)| *n).collect();
    let text = match kinds.as_slice() {
        [] => format!("Linux {release}"),
        kinds => format!("Linux {release} with {}", kinds.join(", ")),
    };
    findings.push(Finding::new("kernel", Level::Good, text));
    findings.push(if machine.has("dev/net/tun") {
        Finding::new("TAP", Level::Good, "/dev/net/tun is there")
    } else {
        Finding::new("TAP", Level::Note, "no /dev/net/tun: TAP interfaces cannot be made").fix("modprobe tun")
    });
    findings.push(confinement(machine));
    findings
}

/// What `unix { user }` can limit on this kernel.
fn confinement(machine: &Machine) -> Finding {
    let topic = "confinement";
    let seccomp = machine.has("proc/sys/kernel/seccomp/actions_avail");
    let modules = machine.read("sys/kernel/security/lsm");
    let landlock = modules.as_ref().map(|list| list.split(',').any(|name| name.trim() == "landlock"));
    match (seccomp, landlock) {
        (true, Some(true)) => Finding::new(topic, Level::Good, "seccomp and landlock: system calls and files can be limited"),
        // The list is in a file system that need not be mounted.
        (true, None) => Finding::new(topic, Level::Good, "seccomp: system calls can be limited"),
        (true, Some(false)) => Finding::new(topic, Level::Note, "no landlock: files are limited by their owners alone")
            .fix("add landlock to the kernel's lsm= parameter"),
        (false, _) => Finding::new(topic, Level::Note, "no seccomp in this kernel: system calls cannot be limited")
            .fix("`unix { seccomp off }' in startup.conf"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::testing::Tree;
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_it_is_for() {
        let tree = Tree::new("rights");
        tree.write("proc/self/status", "Name:\tquiverctl\nCapEff:\t000001ffffffffff\n");
        assert_eq!(capabilities(&tree.machine()).level, Level::Good);
        tree.write("proc/self/status", "CapEff:\t0000000000003000\n");
        let finding = capabilities(&tree.machine());
        assert_eq!(finding.level, Level::Note);
        assert!(finding.text.contains("cap_bpf (AF_XDP)") && !finding.text.contains("cap_net_raw"), "{}", finding.text);
        tree.write("proc/self/status", "CapEff:\t0000000000000000\n");
        assert_eq!(capabilities(&tree.machine()).level, Level::Warning);
    }

    #[test]
    fn what_the_kernel_offers_is_listed() {
        let tree = Tree::new("kernel");
        tree.write("proc/sys/kernel/osrelease", "6.1.0-30-amd64\n");
        tree.write("proc/net/protocols", "protocol  size sockets\nXDP  896  0\nPACKET  1344  1\n");
        let findings = facilities(&tree.machine());
        assert_eq!(findings[0].text, "Linux 6.1.0-30-amd64 with AF_XDP, AF_PACKET");
        assert_eq!(findings[1].fix.as_deref(), Some("modprobe tun"));
        tree.write("dev/net/tun", "");
        assert_eq!(facilities(&tree.machine())[1].level, Level::Good);
    }

    #[test]
    fn what_can_be_limited_is_told() {
        let tree = Tree::new("confinement");
        assert_eq!(confinement(&tree.machine()).level, Level::Note);
        tree.write("proc/sys/kernel/seccomp/actions_avail", "kill_process errno allow\n");
        assert_eq!(confinement(&tree.machine()).text, "seccomp: system calls can be limited");
        tree.write("sys/kernel/security/lsm", "capability,yama\n");
        assert!(confinement(&tree.machine()).text.contains("no landlock"));
        tree.write("sys/kernel/security/lsm", "capability,landlock\n");
        assert_eq!(confinement(&tree.machine()).level, Level::Good);
    }
}
