//! `syslog`: the mapping log, which is what VPP's syslog serves.

use std::net::{Ipv4Addr, SocketAddrV4};

use quiver_api::defs::*;
use quiver_net::Router;
use quiver_net::api::Handlers;

use super::refused;
use crate::control::{self, Nat};
use crate::log::{PORT, SEVERITY, Target};

/// Bytes of a message at most, as VPP's default: those of sessions have some 250.
const MESSAGE_MAX: u32 = 480;

pub(super) fn add(handlers: &mut Handlers) {
    handlers.act::<SyslogSetSender, SyslogSetSenderReply>(|router, m| {
        let [source, collector] = [m.src_address, m.collector_address].map(|address| Ipv4Addr::from(address.0));
        let port = if m.collector_port == 0 { PORT } else { m.collector_port };
        let target = Target { collector: SocketAddrV4::new(collector, port), from: Some((source, m.vrf_id)) };
        control::set_log(router, Some(target)).map_err(refused)
    });
    handlers.get::<SyslogGetSender, SyslogGetSenderReply>(|router, _| {
        let logger = router.part::<Nat>().and_then(|nat| nat.logger.as_ref());
        let Some(Target { collector, from }) = logger.map(|logger| logger.target) else {
            return Ok(SyslogGetSenderReply { max_msg_size: MESSAGE_MAX, ..SyslogGetSenderReply::default() });
        };
        let (source, table) = from.unwrap_or((Ipv4Addr::UNSPECIFIED, 0));
        Ok(SyslogGetSenderReply {
            retval: 0,
            src_address: Ip4Address(source.octets()),
            collector_address: Ip4Address(collector.ip().octets()),
            collector_port: collector.port(),
            vrf_id: table,
            max_msg_size: MESSAGE_MAX,
        })
    });
    handlers.act::<SyslogSetFilter, SyslogSetFilterReply>(|router, m| {
        // Numbers beyond the last are no severities; more than all is all.
        control::set_log_severity(router, m.severity.0.min(7) as u8).map_err(refused)
    });
    handlers.get::<SyslogGetFilter, SyslogGetFilterReply>(|router, _| {
        Ok(SyslogGetFilterReply { retval: 0, severity: severity(router) })
    });
}

fn severity(router: &Router) -> SyslogSeverity {
    SyslogSeverity(router.part::<Nat>().map_or(SEVERITY, |nat| nat.log_severity).into())
}
