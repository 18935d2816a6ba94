//! `ip_neighbor`: neighbours.

use quiver_api::defs::*;
use quiver_command::operation::OpError;
use quiver_wire::MacAddr;

use crate::Router;
use crate::api::{ALL, Handlers, family, from_address, index_of, is_six, neighbor, reference};
use crate::neighbor::NeighborConfig as Config;
use crate::neighbor::ops::arping::Arping as Ask;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.reply::<IpNeighborAddDel, IpNeighborAddDelReply>(change);
    handlers.dump::<IpNeighborDump>(|router, m, send| {
        let now = router.graph.clock().timer_now();
        let all = router.neighbors(family(is_six(&m.af)));
        // One that is still being asked for is not known yet.
        let wanted = |i: u32| [ALL, i].contains(&m.sw_if_index.0);
        for info in all.iter().filter(|info| info.mac.is_some() && wanted(info.interface.0)) {
            let age = now.saturating_sub(info.heard) as f64 / 1e9;
            send(&IpNeighborDetails { age, neighbor: neighbor(info) });
        }
    });
    handlers.act::<IpNeighborConfig, IpNeighborConfigReply>(|router, m| {
        let rest = router.neighbor_config(family(is_six(&m.af)));
        let config = Config { limit: m.max_number, age: m.max_age, recycle: m.recycle, ..rest };
        router.set_neighbor_config(family(is_six(&m.af)), config);
        Ok(())
    });
    handlers.get::<IpNeighborConfigGet, IpNeighborConfigGetReply>(|router, m| {
        let config = router.neighbor_config(family(is_six(&m.af)));
        let Config { limit, age, recycle, .. } = config;
        Ok(IpNeighborConfigGetReply { retval: 0, af: m.af, max_number: limit, max_age: age, recycle })
    });
    handlers.act::<IpNeighborFlush, IpNeighborFlushReply>(|router, m| {
        let interface = if m.sw_if_index.0 == ALL { None } else { Some(index_of(router, &m.sw_if_index)?) };
        router.flush_neighbors(family(is_six(&m.af)), interface);
        Ok(())
    });
    arpings(handlers);
}

/// `arping`: the client's next messages wait for its end, as VPP's do.
fn arpings(handlers: &mut Handlers) {
    let count = |answer: &serde_json::Value| answer["received"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or_default();
    handlers.run::<Ask, _, _>(
        |router, m: Arping| asked(router, &m.address, &m.sw_if_index, m.is_garp, m.repeat, m.interval),
        move |_, _, answer| answer.map(|answer| ArpingReply { retval: 0, reply_count: count(&answer) }),
    );
    handlers.passes::<Arping>();
    handlers.run::<Ask, _, _>(
        |router, m: ArpingAcd| asked(router, &m.address, &m.sw_if_index, m.is_garp, m.repeat, m.interval),
        move |_, _, answer| {
            let answer = answer?;
            let first = serde_json::from_value(answer["macs"][0].clone()).unwrap_or_default();
            Ok(ArpingAcdReply { retval: 0, reply_count: count(&answer), mac_address: MacAddress(first) })
        },
    );
    handlers.passes::<ArpingAcd>();
}

fn asked(
    router: &Router,
    address: &Address,
    index: &InterfaceIndex,
    gratuitous: bool,
    repeat: u32,
    interval: f64,
) -> Result<Ask, OpError> {
    let interface = reference(router, index)?;
    Ok(Ask { address: from_address(address), interface, gratuitous, repeat, interval })
}

fn change(router: &mut Router, m: IpNeighborAddDel) -> Result<IpNeighborAddDelReply, OpError> {
    let IpNeighbor { sw_if_index, flags, mac_address, ip_address } = &m.neighbor;
    let (index, address) = (index_of(router, sw_if_index)?, from_address(ip_address));
    let has = |flag: IpNeighborFlags| flags.0 & flag.0 != 0;
    if !m.is_add {
        router.remove_neighbor(index, address)?;
        return Ok(IpNeighborAddDelReply { retval: 0, stats_index: ALL });
    }
    let permanent = has(IpNeighborFlags::IP_API_NEIGHBOR_FLAG_STATIC);
    let no_fib_entry = has(IpNeighborFlags::IP_API_NEIGHBOR_FLAG_NO_FIB_ENTRY);
    router.add_neighbor(index, address, MacAddr(mac_address.0), permanent, no_fib_entry)?;
    crate::api::replace::neighbor_said(router, index.0, address);
    let stats_index = router.find_adjacency(index, address).unwrap_or(ALL);
    Ok(IpNeighborAddDelReply { retval: 0, stats_index })
}
