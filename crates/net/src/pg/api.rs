//! `pg`: the packet generator.

use quiver_api::defs::*;
use quiver_command::operation::{OpError, Operation, retval};

use crate::Router;
use crate::api::{Handlers, reference};
use crate::interface::api::{delete, made};
use crate::ops::done;
use crate::pg::ops::{Action, Capture, CreatePg, StreamState};
use crate::pg::{Mode, PG};

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.reply::<PgCreateInterface, PgCreateInterfaceReply>(|router, m| {
        let sw_if_index = create(router, m.interface_id.0, m.gso_enabled, &PgInterfaceMode::default())?;
        Ok(PgCreateInterfaceReply { retval: 0, sw_if_index })
    });
    handlers.reply::<PgCreateInterfaceV2, PgCreateInterfaceV2Reply>(|router, m| {
        let sw_if_index = create(router, m.interface_id.0, m.gso_enabled, &m.mode)?;
        Ok(PgCreateInterfaceV2Reply { retval: 0, sw_if_index })
    });
    handlers.reply::<PgCreateInterfaceV3, PgCreateInterfaceV3Reply>(|router, m| {
        let sw_if_index = create(router, m.interface_id.0, m.pg_flags.0 != 0, &m.mode)?;
        Ok(PgCreateInterfaceV3Reply { retval: 0, sw_if_index })
    });
    delete::<PgDeleteInterface, PgDeleteInterfaceReply>(handlers, &PG, |m| &m.sw_if_index);
    let capture = |router: &Router, m: PgCapture| {
        let interface = reference(router, &m.interface_id)?;
        let count = Some(u64::from(m.count)).filter(|n| *n > 0);
        let file = Some(m.pcap_file_name).filter(|name| !name.is_empty());
        Ok(Capture { interface, file, count, disable: !m.is_enabled })
    };
    handlers.run::<Capture, _, _>(capture, |_, _, done| done.map(|_| PgCaptureReply::default()));
    handlers.act::<PgEnableDisable, PgEnableDisableReply>(|router, m| {
        let name = Some(m.stream_name).filter(|name| !name.is_empty());
        let action = if m.is_enabled { Action::Enable } else { Action::Disable };
        StreamState::run(router, StreamState { name, action }).map(drop)
    });
}

fn create(router: &mut Router, number: u32, offloads: bool, mode: &PgInterfaceMode) -> Result<InterfaceIndex, OpError> {
    let mode = match *mode {
        PgInterfaceMode::PG_API_MODE_ETHERNET => Mode::Ethernet,
        PgInterfaceMode::PG_API_MODE_IP4 => Mode::Ip4,
        PgInterfaceMode::PG_API_MODE_IP6 => Mode::Ip6,
        PgInterfaceMode(other) => return Err(OpError::new(retval::INVALID_VALUE, format!("there is no mode {other}")).key("mode")),
    };
    if offloads {
        return Err(OpError::new(retval::UNSUPPORTED, "packet-generator interfaces have no offloads").key("pg_flags"));
    }
    // One that is there already is meant, as in VPP.
    if let Some(there) = router.interfaces.by_name(&format!("pg{number}")) {
        return Ok(InterfaceIndex(there.index.0));
    }
    Ok(made(&done(crate::api::perform::<CreatePg>(router, CreatePg { number, mac: None, mode })?)?))
}
