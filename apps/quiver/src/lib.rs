//! The data plane daemon as a library: for programs that link their own plugins.
//!
//! ```no_run
//! use quiver::Plugin;
//!
//! fn main() -> std::process::ExitCode {
//!     quiver::run(&[Plugin::new(&["mine_plugin.so"], "Does nothing yet")])
//! }
//! ```
#![forbid(unsafe_code)]

use std::process::ExitCode;

pub use quiver_control::Plugin;

/// Plugins in their own crates, each with one `pub fn plugin() -> Plugin`.
const PLUGINS: &[fn() -> Plugin] = &[
    quiver_acl::plugin,
    quiver_bfd::plugin,
    quiver_bond::plugin,
    quiver_classify::plugin,
    quiver_lldp::plugin,
    quiver_policer::plugin,
    quiver_fast_path::plugin,
    quiver_flowprobe::plugin,
    quiver_sflow::plugin,
    quiver_nat44::plugin,
    quiver_linux_cp::plugin,
    quiver_linux_nl::plugin,
    quiver_span::plugin,
    quiver_urpf::plugin,
    quiver_vrrp::plugin,
    quiver_vxlan::plugin,
    #[cfg(feature = "dpdk")]
    quiver_dpdk::plugin,
];

/// The plugins of this program, in the order in which they start.
pub fn plugins() -> Vec<Plugin> {
    quiver_control::BUILT_IN.into_iter().chain(PLUGINS.iter().map(|plugin| plugin())).collect()
}

/// The program: everything that `main` of a router does, with its plugins and these.
pub fn run(more: &[Plugin]) -> ExitCode {
    let plugins: Vec<Plugin> = plugins().into_iter().chain(more.iter().copied()).collect();
    quiver_control::run(&plugins)
}
