//! `ip`: tables, flow hashes, addresses.

use std::net::{IpAddr, Ipv6Addr};

use quiver_api::Text;
use quiver_api::defs::*;
use quiver_command::operation::{OpError, retval};

use crate::api::{ALL, Handlers, family, index_of, is_six, prefix, reference};
use crate::ip::ops::EnableIp6;
use crate::ip::{FamilyId, FlowHash};
use crate::{IfIndex, Router};

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<IpTableAddDel, IpTableAddDelReply>(|router, m| set_table(router, &m.table, m.is_add));
    // There are no multicast tables that could be left out.
    handlers.act::<IpTableAddDelV2, IpTableAddDelV2Reply>(|router, m| set_table(router, &m.table, m.is_add));
    handlers.reply::<IpTableAllocate, IpTableAllocateReply>(|router, m| {
        let free = |id: u32| id != ALL && !exists(router, m.table.is_ip6, id);
        let id = Some(m.table.table_id).filter(|id| free(*id));
        let name = Some(m.table.name.as_str()).filter(|name| !name.is_empty());
        let table_id = router.add_table(family(m.table.is_ip6), id, name)?;
        Ok(IpTableAllocateReply { retval: 0, table: IpTable { table_id, ..m.table } })
    });
    handlers.dump::<IpTableDump>(|router, _, send| {
        for (is_ip6, family) in [(false, FamilyId::V4), (true, FamilyId::V6)] {
            for table in router.tables(family) {
                send(&IpTableDetails { table: IpTable { table_id: table.id, is_ip6, name: Text(table.name) } });
            }
        }
    });
    handlers.act::<IpTableFlush, IpTableFlushReply>(flush);
    handlers.act::<SetIpFlowHash, SetIpFlowHashReply>(|router, m| {
        let parts = [
            (m.src, FlowHash::SRC),
            (m.dst, FlowHash::DST),
            (m.sport, FlowHash::SPORT),
            (m.dport, FlowHash::DPORT),
            (m.proto, FlowHash::PROTO),
            (m.reverse, FlowHash::REVERSE),
            (m.symmetric, FlowHash::SYMMETRIC),
        ];
        let bits = parts.into_iter().filter(|(on, _)| *on).fold(0, |bits, (_, bit)| bits | bit);
        set_hash(router, m.is_ipv6, m.vrf_id, bits, false)
    });
    handlers.act::<SetIpFlowHashRouterId, SetIpFlowHashRouterIdReply>(|router, m| {
        router.set_flow_hash_router_id(m.router_id).map_err(OpError::from)
    });
    handlers.act::<SetIpFlowHashV2, SetIpFlowHashV2Reply>(|router, m| {
        let (bits, rest) = hash_bits(m.flow_hash_config.0);
        set_hash(router, is_six(&m.af), m.table_id, bits, rest)
    });
    handlers.act::<SetIpFlowHashV3, SetIpFlowHashV3Reply>(|router, m| {
        let (bits, rest) = hash_bits(m.flow_hash_config.0);
        set_hash(router, is_six(&m.af), m.table_id, bits, rest)
    });
    handlers.dump::<IpAddressDump>(|router, m, send| {
        let Ok(index) = index_of(router, &m.sw_if_index) else { return };
        let Some(interface) = router.interfaces.get(index) else { return };
        for (address, len) in interface.addresses.iter().filter(|(address, _)| address.is_ipv6() == m.is_ipv6) {
            // VPP keeps link-local addresses apart.
            if matches!(address, IpAddr::V6(a) if a.is_unicast_link_local()) {
                continue;
            }
            let sw_if_index = InterfaceIndex(index.0);
            send(&IpAddressDetails { sw_if_index, prefix: AddressWithPrefix(prefix(*address, *len)) });
        }
    });
    handlers.dump::<IpUnnumberedDump>(|router, m, send| {
        for interface in router.interfaces.iter().filter(|i| [ALL, i.index.0].contains(&m.sw_if_index.0)) {
            if let Some(lender) = interface.unnumbered {
                let sw_if_index = InterfaceIndex(interface.index.0);
                send(&IpUnnumberedDetails { sw_if_index, ip_sw_if_index: InterfaceIndex(lender.0) });
            }
        }
    });
    handlers.dump::<IpDump>(|router, m, send| {
        for interface in router.interfaces.iter() {
            send(&IpDetails { sw_if_index: InterfaceIndex(interface.index.0), is_ipv6: m.is_ipv6 });
        }
    });
    handlers.act::<SwInterfaceIp6EnableDisable, SwInterfaceIp6EnableDisableReply>(|router, m| {
        let interface = reference(router, &m.sw_if_index)?;
        crate::api::perform::<EnableIp6>(router, EnableIp6 { interface, enable: m.enable }).map(drop)
    });
    handlers.act::<SwInterfaceIp6SetLinkLocalAddress, SwInterfaceIp6SetLinkLocalAddressReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        set_link_local(router, index, m.ip.0.into())
    });
    handlers.get::<SwInterfaceIp6GetLinkLocalAddress, SwInterfaceIp6GetLinkLocalAddressReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        let addresses = router.interfaces.get(index).map(|i| i.addresses.as_slice()).unwrap_or_default();
        let own = addresses.iter().find_map(|(address, _)| match address {
            IpAddr::V6(a) if a.is_unicast_link_local() => Some(a.octets()),
            _ => None,
        });
        let missing = || OpError::new(retval::IP6_NOT_ENABLED, "the interface has no link-local address");
        Ok(SwInterfaceIp6GetLinkLocalAddressReply { retval: 0, ip: Ip6Address(own.ok_or_else(missing)?) })
    });
}

pub(crate) fn exists(router: &Router, six: bool, id: u32) -> bool {
    router.tables(family(six)).iter().any(|table| table.id == id)
}

fn set_table(router: &mut Router, table: &IpTable, add: bool) -> Result<(), OpError> {
    let (family, id) = (family(table.is_ip6), table.table_id);
    if id == 0 {
        // Table 0 is always there, which is what both ask for in VPP.
        return Ok(());
    }
    if !add {
        return match exists(router, table.is_ip6, id) {
            true => router.remove_table(family, id).map_err(OpError::from),
            // As VPP: it is not there, as was wished.
            false => Ok(()),
        };
    }
    let name = Some(table.name.as_str()).filter(|name| !name.is_empty());
    router.add_table(family, Some(id), name).map(drop).map_err(OpError::from)
}

/// Gives an interface another link-local address than it has; it has one.
pub(crate) fn set_link_local(router: &mut Router, index: IfIndex, address: Ipv6Addr) -> Result<(), OpError> {
    if !address.is_unicast_link_local() {
        return Err(OpError::new(retval::INVALID_VALUE, format!("{address} is not link-local")).key("ip"));
    }
    let new = IpAddr::from(address);
    let addresses = router.interfaces.get(index).map(|i| i.addresses.clone()).unwrap_or_default();
    let own = |a: &IpAddr| matches!(a, IpAddr::V6(a) if a.is_unicast_link_local());
    if !addresses.iter().any(|(a, _)| *a == new) {
        router.add_address(index, new, 128)?;
    }
    for (old, len) in addresses.into_iter().filter(|(a, _)| own(a) && *a != new) {
        router.remove_address(index, old, len)?;
    }
    Ok(())
}

/// Removes the routes of a table that came by this interface.
fn flush(router: &mut Router, m: IpTableFlush) -> Result<(), OpError> {
    router.sweep_mroutes(family(m.table.is_ip6), m.table.table_id, |route| !route.client);
    crate::api::replace::sweep_routes(router, (m.table.is_ip6, m.table.table_id), |_| false)
}

/// Bits of VPP's flags here, and whether there were others.
fn hash_bits(flags: u32) -> (u16, bool) {
    type V2 = IpFlowHashConfigV2;
    let all = [
        (V2::IP_API_V2_FLOW_HASH_SRC_IP, FlowHash::SRC),
        (V2::IP_API_V2_FLOW_HASH_DST_IP, FlowHash::DST),
        (V2::IP_API_V2_FLOW_HASH_SRC_PORT, FlowHash::SPORT),
        (V2::IP_API_V2_FLOW_HASH_DST_PORT, FlowHash::DPORT),
        (V2::IP_API_V2_FLOW_HASH_PROTO, FlowHash::PROTO),
        (V2::IP_API_V2_FLOW_HASH_REVERSE, FlowHash::REVERSE),
        (V2::IP_API_V2_FLOW_HASH_FLOW_LABEL, FlowHash::FLOWLABEL),
        (V2::IP_API_V2_FLOW_HASH_SYMETRIC, FlowHash::SYMMETRIC),
        (V2::IP_API_V2_FLOW_HASH_GTPV1_TEID, FlowHash::GTPV1TEID),
    ];
    let (mut bits, mut rest) = (0, flags);
    for (flag, bit) in all {
        if flags & flag.0 != 0 {
            bits |= bit;
            rest &= !flag.0;
        }
    }
    (bits, rest != 0)
}

fn set_hash(router: &mut Router, six: bool, table: u32, bits: u16, others: bool) -> Result<(), OpError> {
    if others {
        let error = OpError::new(retval::UNSUPPORTED, "a part of packets that is not known");
        return Err(error.key("flow_hash_config"));
    }
    router.set_flow_hash(family(six), table, FlowHash(bits)).map_err(OpError::from)
}
