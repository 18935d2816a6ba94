//! Which system calls are left.
//!
//! Two filters, of which the stricter answer counts:
//!
//! - A list of what a router does. Anything else fails with ENOSYS, as on a kernel that does not know it: the C library and the
//!   standard library then take an older way, where any other number would be taken for the answer. Calls with a flag in an
//!   argument are looked at: threads but no processes, sockets of a router's families, of bpf(2) what works on descriptors.
//! - A list of what only somebody does who has taken the process over: run a program, look into another process, change mounts,
//!   modules, keys. These end the process at once; a supervisor starts it anew, and the kernel's log says why.
//!
//! `clone3` has its flags in memory, where a filter cannot see them; it is answered by ENOSYS too, and threads are made by
//! `clone`. Memory that is to be executed can be neither mapped nor made so, unless libraries are still to be loaded.
//!
//! The numbers are the architecture's own (`libc::SYS_*`). Calls that only x86-64 has are a list of their own.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// What happens to calls that are not left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They fail, or end the process.
    On,
    /// They are let through and written to the kernel's audit log.
    Log,
}

/// Who is to be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The router.
    Router {
        /// Shared libraries are still to be loaded (DPDK's drivers): memory may become executable.
        libraries: bool,
        /// It loads programs into the kernel itself, for want of a helper.
        loads: bool,
    },
    /// The helper.
    Helper,
}

/// A filter to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// For whom.
    pub who: Who,
    /// What happens to other calls.
    pub mode: Mode,
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// What any program of the standard library does.
const RUNTIME: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_lseek,
    libc::SYS_openat,
    libc::SYS_fcntl,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_ppoll,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_tgkill,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_uname,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
];

/// What a router does besides.
const ROUTER: &[libc::c_long] = &[
    // Files.
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_umask,
    libc::SYS_utimensat,
    libc::SYS_statfs,
    libc::SYS_flock,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    // Descriptors and waiting.
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    // Signals to the peers of memif are sent by asynchronous I/O, which never waits.
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_io_destroy,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_signalfd4,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Memory.
    libc::SYS_memfd_create,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_get_mempolicy,
    libc::SYS_move_pages,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_mincore,
    libc::SYS_msync,
    // Threads and what the machine is.
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_sched_setparam,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_sysinfo,
    libc::SYS_getgroups,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_perf_event_open,
    // Sockets.
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
];

/// What a router does by names that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_pipe,
    libc::SYS_dup2,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[libc::c_long] = &[];

/// What nobody but an intruder does.
const NEVER: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_acct,
    libc::SYS_quotactl,
];

/// Families of sockets that a router opens; the helper opens the first three.
const FAMILIES: &[libc::c_int] = &[libc::AF_INET, libc::AF_NETLINK, libc::AF_UNIX, libc::AF_INET6, libc::AF_PACKET, libc::AF_XDP];
/// Commands of bpf(2) on descriptors that are there: look up, update, delete and take an element, attach by a link, and exchange a link's
/// program.
const BPF_ROUTER: &[u64] = &[1, 2, 3, 21, 28, 29];
/// Commands of bpf(2) that make a map and load a program with its types; and attach by a link, which the loader tries to see what the kernel
/// can.
const BPF_HELPER: &[u64] = &[0, 5, 18, 28];

/// A rule with one condition on an argument's lower half.
fn when(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, String> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value);
    condition.and_then(|condition| SeccompRule::new(vec![condition])).map_err(|error| error.to_string())
}

fn any_of(argument: u8, values: impl IntoIterator<Item = u64>) -> Result<Vec<SeccompRule>, String> {
    values.into_iter().map(|value| when(argument, SeccompCmpOp::Eq, value)).collect()
}

fn allowed(who: Who) -> Result<Rules, String> {
    let mut rules: Rules = RUNTIME.iter().map(|call| (*call, Vec::new())).collect();
    let (libraries, families, commands) = match who {
        Who::Router { libraries, loads } => {
            rules.extend(ROUTER.iter().chain(OLD).map(|call| (*call, Vec::new())));
            // A character pushed into a terminal is typed by whoever sits there (TIOCSTI, TIOCLINUX).
            let terminal = [libc::TIOCSTI, libc::TIOCLINUX].map(|request| {
                SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, request).map_err(|e| e.to_string())
            });
            let terminal = terminal.into_iter().collect::<Result<Vec<_>, _>>()?;
            rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(terminal).map_err(|error| error.to_string())?]);
            (libraries, FAMILIES, if loads { [BPF_ROUTER, BPF_HELPER].concat() } else { BPF_ROUTER.to_vec() })
        }
        Who::Helper => {
            rules.insert(libc::SYS_setns, any_of(1, [libc::CLONE_NEWNET as u64])?);
            (false, &FAMILIES[..3], BPF_HELPER.to_vec())
        }
    };
    let executable = || when(2, SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64), 0).map(|rule| vec![rule]);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, if libraries { Vec::new() } else { executable()? });
    }
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![when(0, SeccompCmpOp::MaskedEq(thread), thread)?]);
    rules.insert(libc::SYS_socket, any_of(0, families.iter().map(|family| *family as u64))?);
    rules.insert(libc::SYS_bpf, any_of(0, commands)?);
    Ok(rules)
}

fn compile(rules: Rules, others: SeccompAction, these: SeccompAction) -> Result<BpfProgram, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let filter = SeccompFilter::new(rules, others, these, arch).map_err(|error| error.to_string())?;
    filter.try_into().map_err(|error: seccompiler::BackendError| error.to_string())
}

/// The two filters, in the order in which they are to be put in force.
fn filters(plan: &Plan) -> Result<[BpfProgram; 2], String> {
    let (refused, deadly) = match plan.mode {
        Mode::On => (SeccompAction::Errno(libc::ENOSYS as u32), SeccompAction::KillProcess),
        Mode::Log => (SeccompAction::Log, SeccompAction::Log),
    };
    let never: Rules = NEVER.iter().map(|call| (*call, Vec::new())).collect();
    Ok([compile(never, SeccompAction::Allow, deadly)?, compile(allowed(plan.who)?, refused, SeccompAction::Allow)?])
}

/// Puts the filters in force for all threads, for good.
pub(crate) fn restrict(plan: &Plan, notices: &mut Vec<String>) -> Result<(), String> {
    if TargetArch::try_from(std::env::consts::ARCH).is_err() {
        notices.push(format!("no system call filter for {}: system calls are not limited", std::env::consts::ARCH));
        return Ok(());
    }
    for filter in filters(plan)? {
        seccompiler::apply_filter_all_threads(&filter).map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Who; 3] =
        [Who::Router { libraries: false, loads: false }, Who::Router { libraries: true, loads: true }, Who::Helper];

    #[test]
    fn filters_of_all_kinds_fit_the_kernels_limit() {
        for who in ALL {
            for mode in [Mode::On, Mode::Log] {
                for filter in filters(&Plan { who, mode }).unwrap() {
                    assert!((10..4096).contains(&filter.len()), "{who:?} {mode:?}: {} instructions", filter.len());
                }
            }
        }
    }

    #[test]
    fn what_ends_the_process_is_not_allowed_as_well() {
        for who in ALL {
            let allowed = allowed(who).unwrap();
            assert!(NEVER.iter().all(|call| !allowed.contains_key(call)), "{who:?}");
            assert!(!allowed.contains_key(&libc::SYS_clone3) && !allowed.contains_key(&libc::SYS_io_uring_setup));
            assert_eq!(allowed.contains_key(&libc::SYS_setns), who == Who::Helper);
        }
    }
}
