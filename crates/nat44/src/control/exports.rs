//! Records for a collector of IPFIX: on and off, and where they go.

use quiver_command::operation::OpError;
use quiver_ipfix::exporter;
use quiver_net::Router;

use super::{Nat, NatError, enabled};
use crate::ipfix::Export;
use crate::process;

/// Sends records of sessions, mappings and limits to the exporter's collector from now on, in this observation domain and from this port; or
/// no more.
///
/// # Errors
/// Not enabled.
pub fn set(router: &mut Router, to: Option<(u32, u16)>) -> Result<(), NatError> {
    enabled(router, |router, nat| {
        nat.ipfix = to.map(|(domain, src_port)| Export::new(domain, src_port));
        nat.feed_log(router);
        Ok(())
    })?;
    follow_exporter(router);
    Ok(())
}

/// There is another exporter, or none.
pub(super) fn follow(router: &mut Router) -> Result<(), OpError> {
    follow_exporter(router);
    Ok(())
}

fn follow_exporter(router: &mut Router) {
    let current = exporter::current(router);
    let Some(port) = router.part::<Nat>().and_then(|nat| nat.ipfix.as_ref()).map(Export::src_port) else { return };
    let to = current.map(|exporter| exporter.destination(router, port));
    if let Some(export) = router.part_mut::<Nat>().and_then(|nat| nat.ipfix.as_mut()) {
        export.set_destination(to);
    }
    router.wake_process(process::NAME, 0);
}

/// Sends records that wait for others in the same message.
pub(super) fn flush(router: &mut Router) {
    let Some(export) = router.part_mut::<Nat>().and_then(|nat| nat.ipfix.as_mut()) else { return };
    export.flush();
    router.wake_process(process::NAME, 0);
}
