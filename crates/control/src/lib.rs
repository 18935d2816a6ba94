//! The daemon around the graph: start-up, main loop, sockets, process nodes, log, and the operations of the system itself.
//!
//! ```text
//!   startup.conf ─ startup ─► daemon ─► main loop ─┬─ graph (where main forwards)
//!                                                   └─ tasks: sessions ─► engine ─► operations ─► Router
//!                                                             process nodes ──────────────────► Router
//! ```
//!
//! Everything here runs on the main thread. Operations change the router in one total order; nothing borrows the router across an
//! `await`. May use every layer below; must never know: plugins (a program lists them), how a packet is forwarded.
//!
//! - [`ops`]: operations and commands of the daemon and of the drivers' interfaces, a file a theme.
//! - [`api`]: VPP's binary API: connections, and messages of the daemon and of the drivers' interfaces.
//! - [`journal`]: configuration that lasts.
//! - [`restart`]: another process takes over while packets flow.
//! - [`process`]: background tasks that `show runtime` shows.
//! - [`watchdog`], [`panics`]: threads that hang, and bugs that panic.
#![forbid(unsafe_code)]

pub mod api;
mod audit;
pub mod candidate;
pub mod checkpoints;
pub mod daemon;
mod drawing;
pub mod engine;
pub mod journal;
pub mod log;
mod main_loop;
pub mod ops;
pub mod order;
pub mod panics;
mod perf;
mod plugin;
pub mod process;
pub mod restart;
mod samples;
pub mod server;
pub mod startup;
mod system;
pub mod watchdog;

pub use daemon::run;
pub use main_loop::Runner;
pub use plugin::{BUILT_IN, PluginInfo, select};
pub use quiver_command::calendar;
pub use quiver_net::Plugin;
pub use system::{MainFigures, Scripts, System};
