//! What the router's process may do, and the helper that may do more.
//!
//! ```text
//!   started as root ── opens log, sockets, pid file ── confine ──► unprivileged user, CAP_NET_ADMIN and CAP_NET_RAW,
//!        │                                                         no_new_privs, landlock, seccomp; then memory and threads
//!        └── helper: the program once more, CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_NET_ADMIN, CAP_BPF; three kinds of request
//!                    ▲ one socket pair; descriptors come back                                            │
//!                    └───────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`account`] | users and groups by name or number |
//! | [`capability`] | capabilities by name, and which of them are kept |
//! | [`confine`] | the way down, in the one order that works |
//! | [`seccomp`] | which system calls are left |
//! | [`landlock`] | which files are left |
//! | [`helper`] | the helper: requests, the side that asks, the side that does |
//! | [`status`] | what holds now, as the kernel tells it |
//!
//! Capabilities, landlock domains and (without a further flag) seccomp filters belong to a thread, and a new thread inherits
//! those of the one that makes it. So [`confine`] insists on being called while the process has one thread, and all others
//! have what it had.
//!
//! May use: the operating system, `drivers` for what the helper does. Must never know: packets, operations, configuration.
//! There is no unsafe code here: each system call has a safe form in `rustix`, `nix`, `landlock` or `seccompiler`.
#![forbid(unsafe_code)]

pub mod account;
pub mod capability;
pub mod confine;
pub mod helper;
pub mod landlock;
pub mod seccomp;
pub mod status;
