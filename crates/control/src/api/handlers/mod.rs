//! What messages do, a file for each of VPP's modules.
//!
//! Codes of refusals are those of the operations, which are VPP's; where one of VPP's handlers gives another for the same
//! mistake, the handler here says so.

mod arp;
mod devices;
mod generator;
mod interface;
mod ip;
mod l2;
mod memif;
mod nd;
mod neighbor;
mod path_mtu;
mod ping;
mod replace;
mod route;
pub mod session;
mod trace;

use super::table::Handlers;

/// Handlers of everything that is in this crate.
pub fn all() -> Handlers {
    let mut handlers = Handlers::default();
    session::add(&mut handlers);
    interface::add(&mut handlers);
    ip::add(&mut handlers);
    route::add(&mut handlers);
    neighbor::add(&mut handlers);
    replace::add(&mut handlers);
    path_mtu::add(&mut handlers);
    ping::add(&mut handlers);
    trace::add(&mut handlers);
    nd::add(&mut handlers);
    arp::add(&mut handlers);
    l2::add(&mut handlers);
    memif::add(&mut handlers);
    devices::add(&mut handlers);
    generator::add(&mut handlers);
    handlers
}
