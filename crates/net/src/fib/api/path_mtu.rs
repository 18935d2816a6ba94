//! `ip`: path MTUs of neighbours.

use std::collections::BTreeSet;
use std::net::IpAddr;

use quiver_api::defs::*;
use quiver_command::operation::OpError;

use crate::Router;
use crate::api::{ALL, Flow, Handlers, address, from_address};

/// Those said since `ip_path_mtu_replace_begin`; a part of the router, there from the first beginning on.
#[derive(Default)]
struct Said(Option<BTreeSet<(u32, IpAddr)>>);

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<IpPathMtuUpdate, IpPathMtuUpdateReply>(|router, m| {
        let IpPathMtu { table_id, nh, path_mtu, .. } = m.pmtu;
        let next_hop = from_address(&nh);
        // 0 takes it away.
        router
            .set_path_mtu(table_id, next_hop, (path_mtu != 0).then_some(path_mtu))
            .map_err(|e| OpError::from(e).value(next_hop))?;
        if let Some(Said(Some(said))) = router.part_mut::<Said>() {
            said.insert((table_id, next_hop));
        }
        Ok(())
    });
    handlers.call::<IpPathMtuGet>(|call, m| {
        let all = call.router.path_mtus();
        for entry in all.iter().skip(m.cursor as usize) {
            let (table_id, nh) = (entry.table, address(entry.next_hop));
            let pmtu = IpPathMtu { client_index: 0, context: call.context, table_id, nh, path_mtu: entry.mtu };
            call.send(&IpPathMtuDetails { pmtu });
        }
        call.send(&IpPathMtuGetReply { retval: 0, cursor: ALL });
        Flow::Done
    });
    handlers.act::<IpPathMtuReplaceBegin, IpPathMtuReplaceBeginReply>(|router, _| {
        router.part_or_default::<Said>().0 = Some(BTreeSet::new());
        Ok(())
    });
    handlers.act::<IpPathMtuReplaceEnd, IpPathMtuReplaceEndReply>(|router, _| sweep(router));
    handlers.reads::<IpPathMtuGet>();
}

/// Takes away what has not been said since the beginning.
fn sweep(router: &mut Router) -> Result<(), OpError> {
    let Some(kept) = router.part_mut::<Said>().and_then(|said| said.0.take()) else { return Ok(()) };
    for entry in router.path_mtus().into_iter().filter(|entry| !kept.contains(&(entry.table, entry.next_hop))) {
        router.set_path_mtu(entry.table, entry.next_hop, None)?;
    }
    Ok(())
}
