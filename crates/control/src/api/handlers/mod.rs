//! What messages do, a file for each of VPP's modules.
//!
//! Codes of refusals are those of the operations, which are VPP's; where one of VPP's handlers gives another for the same
//! mistake, the handler here says so.

mod devices;
mod graph;
mod memif;
mod pcap;
pub mod session;
mod trace;

use quiver_net::api::Handlers;

/// Handlers of everything but plugins.
pub fn all() -> Handlers {
    let mut handlers = quiver_net::api::handlers();
    session::add(&mut handlers);
    trace::add(&mut handlers);
    pcap::add(&mut handlers);
    memif::add(&mut handlers);
    devices::add(&mut handlers);
    graph::add(&mut handlers);
    handlers
}
