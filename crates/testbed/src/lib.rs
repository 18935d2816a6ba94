//! Test hosts, links and routers, for the scenario tests and the demo. Development only: nothing that ships uses this crate.
//!
//! A [`Host`] is an anonymous network namespace: only this process holds it, by a file descriptor, so that it is gone with
//! the process, `kill -9` included. Its kernel is a full peer (ping, iperf3, path MTU discovery, ARP, ND). Hosts are joined by
//! [`Host::veth`]; a [`RawPort`] sends and receives whole frames on an interface; a [`TagProgram`] makes a kernel host speak
//! 802.1Q or QinQ on a kernel that has no VLAN devices; a [`Router`] is the `quiver` binary running inside a host.
//!
//! ```text
//!            namespace              namespace              namespace
//!        ┌─────────────┐        ┌───────────────┐        ┌─────────────┐
//!        │ host a  eth0├──veth──┤r0   quiver  r1├──veth──┤eth0  host b │      TwoHosts
//!        └─────────────┘        └───────────────┘        └─────────────┘
//! ```
//!
//! Every child process is started by one long-lived thread of this process, which the kernel watches for it
//! (`PR_SET_PDEATHSIG`), heads a process group of its own, and is killed and reaped when its guard is dropped. So a failing
//! or killed test leaves no process, no namespace and no file but its log behind.
//!
//! What the crate uses: `libc`, the tools `ip` (links and addresses) and `quiverctl`. It needs root, or a user
//! namespace that owns its network; [`Scenario::begin`] says so and skips where that is missing.

#![cfg(target_os = "linux")]

mod announce;
mod bpf;
mod browser;
mod capture;
pub mod churn;
mod host;
pub mod hostile;
mod link;
mod live;
mod process;
mod raw;
mod router;
mod routing;
mod scenario;
pub mod shown;
pub mod stuck;
mod sys;
mod tags;
mod topology;
mod user;
mod vpp;
mod vppctl;
mod wall;

pub use announce::{Announcement, Announcer};
pub use bpf::xdp_programs;
pub use browser::Browser;
pub use capture::Capture;
pub use host::Host;
pub use link::{LinkOptions, Offloads};
pub use live::LiveFrames;
pub use process::{Guard, Output};
pub use raw::RawPort;
pub use router::{Router, RouterBuilder, Usage};
pub use routing::{Frr, bird, bird_with};
pub use scenario::{Scenario, is_sanitized, is_short_pass, skip, skip_for_kernel};
pub use sys::pin_thread;
pub use tags::{Tag, TagProgram};
pub use topology::{Side, TwoHosts, TwoHostsOptions};
pub use user::{NOBODY, as_user, make_fifo};
pub use vpp::Vpp;
pub use vppctl::Vppctl;
pub use wall::Wall;
