//! VPP's binary API, as far as it does not depend on connections: which handler answers which message, and what clients want
//! to be told.
//!
//! ```text
//!   message ─► Table: number ─► handler of a subject or plugin ─► operation or Router
//!                                  │
//!   reply, details ◄───────────────┘
//!   events ◄── Clients (a part of the router) ◄── its listeners
//! ```
//!
//! A handler turns a message into the request of an operation, runs it, and turns the reply or the error's code back. Codes of
//! refusals are those of the operations, which are VPP's; where one of VPP's handlers gives another for the same mistake, the
//! handler says so. Each subject's handlers stand in its folder, as `api`.

mod clients;
mod convert;
pub(crate) mod replace;
mod table;
mod trace;

pub use clients::{ClientInfo, Clients, Wish, flags, install, neighbor};
pub use convert::{
    ALL, address, family, from_address, from_prefix, from_union, index_of, is_six, next_hop, prefix, reference, said,
};
pub use table::{After, Behind, Call, Details, Dump, Flow, Handlers, Table};
pub use trace::{Recorded, Trace};

use crate::{arp, fib, icmp, interface, ip, l2, nd, neighbor, pg};

/// Handlers of all subjects of this crate.
pub fn handlers() -> Handlers {
    let mut handlers = Handlers::default();
    interface::api::add(&mut handlers);
    ip::api::add(&mut handlers);
    fib::api::add(&mut handlers);
    neighbor::api::add(&mut handlers);
    replace::add(&mut handlers);
    icmp::api::add(&mut handlers);
    nd::api::add(&mut handlers);
    arp::api::add(&mut handlers);
    l2::api::add(&mut handlers);
    pg::api::add(&mut handlers);
    handlers
}
