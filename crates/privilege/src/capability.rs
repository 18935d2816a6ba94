//! Capabilities by name, and which of them a router and its helper keep.

use std::io;

use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// Names in the order of the kernel's numbers (include/uapi/linux/capability.h).
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// What a router keeps: TAP devices, links up and down, promiscuity and attaching XDP programs are NET_ADMIN; packet sockets and
/// AF_XDP sockets are NET_RAW.
pub const ROUTER: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// What the helper keeps: entering a namespace is SYS_ADMIN, and finding that of another user's process SYS_PTRACE; a netlink
/// socket can do no more than who opened it, hence NET_ADMIN; loading a program is BPF with NET_ADMIN.
pub const HELPER: CapabilitySet =
    CapabilitySet::SYS_ADMIN.union(CapabilitySet::SYS_PTRACE).union(CapabilitySet::NET_ADMIN).union(CapabilitySet::BPF);

/// What `unix { capability }` may add for the router: nothing of this makes its process root again.
pub const MORE: [(&str, CapabilitySet); 4] = [
    ("perfmon", CapabilitySet::PERFMON),
    ("ipc_lock", CapabilitySet::IPC_LOCK),
    ("sys_nice", CapabilitySet::SYS_NICE),
    ("net_bind_service", CapabilitySet::NET_BIND_SERVICE),
];

/// Names of the capabilities in a set, by number; those without a name by their number.
pub fn names(set: u64) -> Vec<String> {
    let name = |bit: usize| NAMES.get(bit).map_or_else(|| bit.to_string(), |name| (*name).to_owned());
    (0..64).filter(|bit| set >> bit & 1 == 1).map(name).collect()
}

/// What the calling thread may do.
///
/// # Errors
/// The kernel's.
pub fn permitted() -> io::Result<CapabilitySet> {
    Ok(thread::capabilities(None)?.permitted)
}

/// Takes all capabilities but these out of the bounding set, so that no program that this one runs can have them.
pub(crate) fn bound(keep: CapabilitySet) -> io::Result<()> {
    for number in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match thread::capability_is_in_bounding_set(one) {
            Ok(true) if !keep.contains(one) => thread::remove_capability_from_bounding_set(one)?,
            Ok(_) => {}
            // Beyond the kernel's last one.
            Err(_) => break,
        }
    }
    Ok(())
}

/// Keeps exactly these, of those there are, effective and not to be inherited.
pub(crate) fn reduce(keep: CapabilitySet) -> io::Result<CapabilitySet> {
    let kept = permitted()? & keep;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    thread::set_capabilities(None, sets)?;
    // Falls with `inheritable' by itself; kernels without it have nothing to clear.
    let _ = thread::clear_ambient_capability_set();
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_kernels_numbers() {
        assert_eq!(names(ROUTER.bits()), ["net_admin", "net_raw"]);
        assert_eq!(names(HELPER.bits()), ["net_admin", "sys_ptrace", "sys_admin", "bpf"]);
        assert_eq!(names(1 | 1 << 40 | 1 << 63), ["chown", "checkpoint_restore", "63"]);
        for (name, set) in MORE {
            assert_eq!(names(set.bits()), [name]);
        }
    }

    #[test]
    fn a_thread_that_has_given_capabilities_up_has_them_no_more() {
        // On a thread of its own, as capabilities are a thread's.
        std::thread::spawn(|| {
            let before = permitted().unwrap();
            let kept = reduce(CapabilitySet::NET_RAW).unwrap();
            assert_eq!(kept, before & CapabilitySet::NET_RAW);
            let after = thread::capabilities(None).unwrap();
            assert_eq!((after.effective, after.permitted, after.inheritable.bits()), (kept, kept, 0));
        })
        .join()
        .unwrap();
    }
}
