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
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod trace;

pub use clients::{ClientInfo, Clients, Wish, flags, install, neighbor};
pub use convert::{
    ALL, address, family, from_address, from_prefix, from_union, index_of, is_six, next_hop, prefix, reference, said,
};
pub use table::{After, Behind, Call, Details, Dump, Flow, Handlers, Reply, Run, Table};
pub use trace::{MESSAGES, Recorded, Trace};

use std::rc::Rc;

use quiver_command::change_log::{ChangeLog, Record};
use quiver_command::operation::{OpError, Operation, Outcome};
use serde_json::value::to_raw_value;

use crate::Router;
use crate::{arp, fib, icmp, interface, ip, l2, local, mfib, nd, neighbor, pg, punt};

/// Runs an operation for a handler, and has it recorded, as the registry does for commands and JSON clients.
///
/// # Errors
/// Its own; or it cannot be recorded, and has not run.
pub fn perform<O: Operation<Router>>(router: &mut Router, request: O::Request) -> Result<Outcome<Router, O::Reply>, OpError> {
    let log = router.part::<Rc<dyn ChangeLog>>().filter(|log| log.is_on()).cloned();
    let Some(log) = log else { return O::run(router, request) };
    let record = recorded::<O>(&request)?;
    log.check(&record)?;
    let outcome = O::run(router, request)?;
    match &outcome {
        Outcome::Done(_) => log.append(record),
        Outcome::Job(_) => log.unrecorded(),
    }
    Ok(outcome)
}

/// Whether changes are recorded.
pub(crate) fn is_recorded(router: &Router) -> bool {
    router.part::<Rc<dyn ChangeLog>>().is_some_and(|log| log.is_on())
}

/// Records what a handler has done itself, as the request of the operation that would have done it.
pub(crate) fn record<O: Operation<Router>>(router: &Router, request: impl FnOnce() -> O::Request) {
    let Some(log) = router.part::<Rc<dyn ChangeLog>>().filter(|log| log.is_on()) else { return };
    match recorded::<O>(&request()) {
        Ok(record) => log.append(record),
        Err(_) => log.unrecorded(),
    }
}

fn recorded<O: Operation<Router>>(request: &O::Request) -> Result<Record, OpError> {
    let request = to_raw_value(request).map_err(|error| OpError::unspecified(format!("request cannot be JSON: {error}")))?;
    Ok(Record { operation: O::NAME.to_owned(), request })
}

/// Handlers of all subjects of this crate.
pub fn handlers() -> Handlers {
    let mut handlers = Handlers::default();
    interface::api::add(&mut handlers);
    ip::api::add(&mut handlers);
    fib::api::add(&mut handlers);
    mfib::api::add(&mut handlers);
    neighbor::api::add(&mut handlers);
    replace::add(&mut handlers);
    icmp::api::add(&mut handlers);
    local::api::add(&mut handlers);
    nd::api::add(&mut handlers);
    arp::api::add(&mut handlers);
    l2::api::add(&mut handlers);
    pg::api::add(&mut handlers);
    punt::api::add(&mut handlers);
    handlers
}
