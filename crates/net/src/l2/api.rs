//! `l2`: cross-connects, bridge domains, MAC addresses, tag rewrite.

mod events;

use quiver_api::Text;
use quiver_api::defs::*;
use quiver_command::operation::{OpError, retval};
use quiver_wire::MacAddr;

use crate::Router;
use crate::api::{ALL, Details, Handlers, address, from_address, index_of};
use crate::interface::InterfaceKind;
use crate::interface::L2Mode;
use crate::interface::api::{cross_connects, delete, given, made};
use crate::l2::ops::bridge::CreateBridgeDomain;
use crate::l2::ops::bvi::CreateBvi;
use crate::l2::{BdSwitch, BridgeDomain, Flush, L2Error, MacKind, PortKind, PortSwitch, TagRewrite};
use crate::ops::done;

/// TPID of 802.1Q.
const DOT1Q: u16 = 0x8100;
/// TPID of 802.1ad.
const DOT1AD: u16 = 0x88a8;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<SwInterfaceSetL2Xconnect, SwInterfaceSetL2XconnectReply>(|router, m| {
        let index = index_of(router, &m.rx_sw_if_index)?;
        let mode = match m.enable {
            true => L2Mode::CrossConnect(index_of(router, &m.tx_sw_if_index).map_err(second)?),
            false => L2Mode::L3,
        };
        router.set_l2(index, mode).map_err(OpError::from)
    });
    handlers.dump::<L2XconnectDump>(|router, _, send| {
        for (rx, tx) in cross_connects(router) {
            let (rx_sw_if_index, tx_sw_if_index) = (InterfaceIndex(rx.0), InterfaceIndex(tx.0));
            send(&L2XconnectDetails { rx_sw_if_index, tx_sw_if_index });
        }
    });
    handlers.act::<SwInterfaceSetL2Bridge, SwInterfaceSetL2BridgeReply>(set_port);
    handlers.act::<BridgeDomainAddDel, BridgeDomainAddDelReply>(|router, m| {
        let BridgeDomainAddDel { bd_id, flood, uu_flood, forward, learn, arp_term, arp_ufwd, mac_age, bd_tag, is_add } = m;
        let switches = (flood, uu_flood, forward, learn, arp_term, arp_ufwd);
        set_domain(router, bd_id, switches, mac_age, &bd_tag, is_add).map(drop)
    });
    handlers.reply::<BridgeDomainAddDelV2, BridgeDomainAddDelV2Reply>(|router, m| {
        let BridgeDomainAddDelV2 { bd_id, flood, uu_flood, forward, learn, arp_term, arp_ufwd, mac_age, bd_tag, is_add } = m;
        let switches = (flood, uu_flood, forward, learn, arp_term, arp_ufwd);
        let bd_id = set_domain(router, bd_id, switches, mac_age, &bd_tag, is_add)?;
        Ok(BridgeDomainAddDelV2Reply { retval: 0, bd_id })
    });
    handlers.dump::<BridgeDomainDump>(dump_domains);
    handlers.act::<BridgeDomainSetMacAge, BridgeDomainSetMacAgeReply>(|router, m| {
        modifiable(m.bd_id)?;
        router.set_mac_age(m.bd_id, m.mac_age).map_err(OpError::from)
    });
    handlers.act::<BridgeDomainSetLearnLimit, BridgeDomainSetLearnLimitReply>(|router, m| {
        modifiable(m.bd_id)?;
        router.set_learn_limit(m.bd_id, m.learn_limit).map_err(OpError::from)
    });
    handlers.act::<BridgeDomainSetDefaultLearnLimit, BridgeDomainSetDefaultLearnLimitReply>(|router, m| {
        router.set_default_learn_limit(m.learn_limit).map_err(OpError::from)
    });
    handlers.reply::<BridgeFlags, BridgeFlagsReply>(set_flags);
    handlers.act::<BdIpMacAddDel, BdIpMacAddDelReply>(|router, m| {
        let BdIpMac { bd_id, ip, mac } = &m.entry;
        modifiable(*bd_id)?;
        let mac = m.is_add.then_some(MacAddr(mac.0));
        router.set_bridge_neighbor(*bd_id, from_address(ip), mac).map_err(OpError::from)
    });
    handlers.act::<BdIpMacFlush, BdIpMacFlushReply>(|router, m| {
        modifiable(m.bd_id)?;
        router.flush_bridge_neighbors(m.bd_id).map_err(OpError::from)
    });
    handlers.dump::<BdIpMacDump>(|router, m, send| {
        for domain in router.bridge_domains().filter(|domain| [ALL, domain.id].contains(&m.bd_id)) {
            for (ip, mac) in &domain.neighbors {
                let entry = BdIpMac { bd_id: domain.id, ip: address(*ip), mac: MacAddress(mac.0) };
                send(&BdIpMacDetails { entry });
            }
        }
    });
    handlers.act::<L2fibAddDel, L2fibAddDelReply>(set_mac);
    handlers.dump::<L2FibTableDump>(dump_macs);
    handlers.act::<L2fibFlushAll, L2fibFlushAllReply>(|router, _| router.flush_macs(Flush::All).map_err(OpError::from));
    handlers.act::<L2fibFlushBd, L2fibFlushBdReply>(|router, m| router.flush_macs(Flush::Domain(m.bd_id)).map_err(OpError::from));
    handlers.act::<L2fibFlushInt, L2fibFlushIntReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        router.flush_macs(Flush::Interface(index)).map_err(OpError::from)
    });
    handlers.reply::<BviCreate, BviCreateReply>(|router, m| {
        let instance = Some(m.user_instance).filter(|instance| *instance != ALL);
        let outcome = crate::api::perform::<CreateBvi>(router, CreateBvi { mac: given(&m.mac), instance });
        // As VPP says it.
        let outcome = outcome.map_err(|error| OpError { code: retval::INVALID_REGISTRATION, ..error })?;
        Ok(BviCreateReply { retval: 0, sw_if_index: made(&done(outcome)?) })
    });
    delete::<BviDelete, BviDeleteReply>(handlers, &InterfaceKind::BVI, |m| &m.sw_if_index);
    handlers.reply::<L2Flags, L2FlagsReply>(|router, m| {
        let port = set_port_flags(router, &m.sw_if_index, m.is_set, |flag, _| m.feature_bitmap & flag != 0)?;
        Ok(L2FlagsReply { retval: 0, resulting_feature_bitmap: port_bits(&port, |_, bit| bit) })
    });
    handlers.act::<L2FlagsSet, L2FlagsSetReply>(|router, m| {
        if m.output_feature_bitmap != 0 {
            let text = "ports have no features of VPP's at output that could be switched";
            return Err(OpError::new(retval::UNSUPPORTED, text).key("output_feature_bitmap"));
        }
        set_port_flags(router, &m.sw_if_index, m.is_set, |_, bit| m.input_feature_bitmap & bit != 0).map(drop)
    });
    handlers.get::<L2FlagsGet, L2FlagsGetReply>(|router, m| {
        let port = port(router, &m.sw_if_index)?;
        let input_feature_bitmap = port_bits(&port, |_, bit| bit);
        Ok(L2FlagsGetReply { retval: 0, input_feature_bitmap, output_feature_bitmap: 0 })
    });
    handlers.act::<L2InterfaceFeatFlagsSet, L2InterfaceFeatFlagsSetReply>(|router, m| {
        set_port_flags(router, &m.sw_if_index, m.is_set, |flag, _| m.flags.0 & flag != 0).map(drop)
    });
    handlers.get::<L2InterfaceFeatFlagsGet, L2InterfaceFeatFlagsGetReply>(|router, m| {
        let port = port(router, &m.sw_if_index)?;
        Ok(L2InterfaceFeatFlagsGetReply { retval: 0, flags: L2IntfFeatFlags(port_bits(&port, |flag, _| flag)) })
    });
    events::add(handlers);
    handlers.act::<L2InterfaceVlanTagRewrite, L2InterfaceVlanTagRewriteReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        let rewrite = rewrite(&m)?;
        router.set_tag_rewrite(index, rewrite).map_err(OpError::from)
    });
}

/// The same refusal for a second interface.
fn second(error: OpError) -> OpError {
    OpError { code: retval::INVALID_SW_IF_INDEX_2, ..error }
}

/// Bridge domain 0 is VPP's own.
fn modifiable(id: u32) -> Result<(), OpError> {
    if id == 0 {
        return Err(OpError::new(retval::BD_NOT_MODIFIABLE, "bridge domain 0 cannot change").key("bd_id"));
    }
    Ok(())
}

fn set_port(router: &mut Router, m: SwInterfaceSetL2Bridge) -> Result<(), OpError> {
    let index = index_of(router, &m.rx_sw_if_index)?;
    if !m.enable {
        return router.set_l2(index, L2Mode::L3).map_err(OpError::from);
    }
    let kind = match m.port_type {
        L2PortType::L2_API_PORT_TYPE_NORMAL => PortKind::Normal,
        L2PortType::L2_API_PORT_TYPE_BVI => PortKind::Bvi,
        L2PortType::L2_API_PORT_TYPE_UU_FWD => PortKind::UnknownForward,
        L2PortType(other) => return Err(OpError::new(retval::INVALID_VALUE, format!("{other} is no type")).key("port_type")),
    };
    router.set_bridge(index, m.bd_id, kind, m.shg).map_err(OpError::from)
}

/// Switches of a domain: flood, uu-flood, forward, learn, arp-term, arp-ufwd.
type Switches = (bool, bool, bool, bool, bool, bool);

fn set_domain(router: &mut Router, id: u32, on: Switches, age: u8, tag: &Text<64>, add: bool) -> Result<u32, OpError> {
    // All ones asks the second version for a free number.
    let id = Some(id).filter(|id| *id != ALL);
    if let Some(id) = id {
        modifiable(id)?;
    }
    if !add {
        let id = id.ok_or_else(|| OpError::new(retval::NO_SUCH_ENTRY, "which bridge domain?").key("bd_id"))?;
        return router.delete_bridge_domain(id).map(|()| id).map_err(OpError::from);
    }
    if id.is_some_and(|id| id > 0xff_ffff) {
        return Err(OpError::new(retval::BD_ID_EXCEED_MAX, "a bridge domain's number has 24 bits").key("bd_id"));
    }
    let (flood, uu_flood, forward, learn, arp_term, arp_ufwd) = on;
    let tag = Some(tag.0.clone()).filter(|tag| !tag.is_empty());
    let request = CreateBridgeDomain { id, learn, forward, uu_flood, flood, arp_term, arp_ufwd, mac_age: age, tag, del: false };
    Ok(done(crate::api::perform::<CreateBridgeDomain>(router, request)?)?.id)
}

fn dump_domains(router: &mut Router, m: BridgeDomainDump, send: &mut dyn FnMut(&dyn Details)) {
    if m.sw_if_index.0 != ALL {
        // VPP has not got that either.
        return;
    }
    for domain in router.bridge_domains().filter(|domain| [ALL, domain.id].contains(&m.bd_id)) {
        let port = |port: &crate::l2::BridgePort| BridgeDomainSwIf {
            context: 0,
            sw_if_index: InterfaceIndex(port.interface.0),
            shg: port.group,
        };
        send(&BridgeDomainDetails {
            bd_id: domain.id,
            flood: domain.flood,
            uu_flood: domain.unknown_flood,
            forward: domain.forward,
            learn: domain.learn,
            arp_term: domain.arp_term,
            arp_ufwd: domain.arp_forward,
            mac_age: domain.mac_age,
            bd_tag: Text(domain.tag.clone().unwrap_or_default()),
            bvi_sw_if_index: InterfaceIndex(domain.bvi().map_or(ALL, |i| i.0)),
            uu_fwd_sw_if_index: InterfaceIndex(domain.unknown_forward().map_or(ALL, |i| i.0)),
            n_sw_ifs: 0,
            sw_if_details: domain.ports.iter().map(port).collect(),
        });
    }
}

const SWITCHES: [(BdFlags, BdSwitch); 6] = [
    (BdFlags::BRIDGE_API_FLAG_LEARN, BdSwitch::Learn),
    (BdFlags::BRIDGE_API_FLAG_FWD, BdSwitch::Forward),
    (BdFlags::BRIDGE_API_FLAG_FLOOD, BdSwitch::Flood),
    (BdFlags::BRIDGE_API_FLAG_UU_FLOOD, BdSwitch::UnknownFlood),
    (BdFlags::BRIDGE_API_FLAG_ARP_TERM, BdSwitch::ArpTerm),
    (BdFlags::BRIDGE_API_FLAG_ARP_UFWD, BdSwitch::ArpForward),
];

fn set_flags(router: &mut Router, m: BridgeFlags) -> Result<BridgeFlagsReply, OpError> {
    modifiable(m.bd_id)?;
    router.bridge_domain(m.bd_id)?;
    for (flag, which) in SWITCHES {
        if m.flags.0 & flag.0 != 0 {
            router.set_bridge_switch(m.bd_id, which, m.is_set)?;
        }
    }
    let bits = router.bridge_domain(m.bd_id).map(bits).unwrap_or_default();
    Ok(BridgeFlagsReply { retval: 0, resulting_feature_bitmap: bits })
}

/// What of a port has which flag in the message, and which bit in VPP's input features, which the answer has.
const PORT_SWITCHES: [(BdFlags, u32, PortSwitch); 5] = [
    (BdFlags::BRIDGE_API_FLAG_LEARN, 1 << 9, PortSwitch::Learn),
    (BdFlags::BRIDGE_API_FLAG_FWD, 1 << 7, PortSwitch::Forward),
    (BdFlags::BRIDGE_API_FLAG_FLOOD, 1 << 2, PortSwitch::Flood),
    (BdFlags::BRIDGE_API_FLAG_UU_FLOOD, 1 << 5, PortSwitch::UnknownFlood),
    (BdFlags::BRIDGE_API_FLAG_ARP_TERM, 1 << 4, PortSwitch::ArpTerm),
];

/// The port that an interface is.
fn port(router: &Router, interface: &InterfaceIndex) -> Result<crate::l2::BridgePort, OpError> {
    let index = index_of(router, interface)?;
    let port = router.bridge_domains().find_map(|domain| domain.port(index));
    port.cloned().ok_or_else(|| L2Error::NotAPort(router.interfaces.name(index), "a bridge domain".into()).into())
}

/// Switches what is `chosen` of a port; gives the port as it is then.
fn set_port_flags(
    router: &mut Router,
    interface: &InterfaceIndex,
    on: bool,
    chosen: impl Fn(u32, u32) -> bool,
) -> Result<crate::l2::BridgePort, OpError> {
    let index = index_of(router, interface)?;
    for (_, _, which) in PORT_SWITCHES.into_iter().filter(|(flag, bit, _)| chosen(flag.0, *bit)) {
        router.set_port_switch(index, which, on)?;
    }
    port(router, interface)
}

/// What is on at a port, in flags or in bits.
fn port_bits(port: &crate::l2::BridgePort, said: impl Fn(u32, u32) -> u32) -> u32 {
    let on = |which| match which {
        PortSwitch::Learn => port.learn,
        PortSwitch::Forward => port.forward,
        PortSwitch::Flood => port.flood,
        PortSwitch::UnknownFlood => port.unknown_flood,
        PortSwitch::ArpTerm => port.arp_term,
    };
    let chosen = PORT_SWITCHES.into_iter().filter(|(_, _, which)| on(*which));
    chosen.fold(0, |bits, (flag, bit, _)| bits | said(flag.0, bit))
}

fn bits(domain: &BridgeDomain) -> u32 {
    let on = |which| match which {
        BdSwitch::Learn => domain.learn,
        BdSwitch::Forward => domain.forward,
        BdSwitch::UnknownFlood => domain.unknown_flood,
        BdSwitch::Flood => domain.flood,
        BdSwitch::ArpTerm => domain.arp_term,
        BdSwitch::ArpForward => domain.arp_forward,
    };
    SWITCHES.iter().filter(|(_, which)| on(*which)).fold(0, |bits, (flag, _)| bits | flag.0)
}

fn set_mac(router: &mut Router, m: L2fibAddDel) -> Result<(), OpError> {
    let mac = MacAddr(m.mac.0);
    router.bridge_domain(m.bd_id)?;
    if !m.is_add {
        return router.delete_mac(m.bd_id, mac).map_err(OpError::from);
    }
    let kind = match m.filter_mac {
        true => MacKind::Filter,
        false => {
            let index = index_of(router, &m.sw_if_index)?;
            match (m.static_mac, m.bvi_mac) {
                (_, true) => MacKind::Bvi(index),
                (true, _) => MacKind::Static(index),
                _ => MacKind::Learned(index),
            }
        }
    };
    router.add_mac(m.bd_id, mac, kind).map_err(|e| match OpError::from(e) {
        // VPP has one code for an interface that is no port.
        error if error.code == retval::NO_MATCHING_INTERFACE => OpError { code: retval::INVALID_SW_IF_INDEX, ..error },
        error => error,
    })
}

fn dump_macs(router: &mut Router, m: L2FibTableDump, send: &mut dyn FnMut(&dyn Details)) {
    for entry in router.macs().into_iter().filter(|entry| [ALL, entry.domain.0].contains(&m.bd_id)) {
        let (interface, static_mac, filter_mac, bvi_mac) = match entry.kind {
            MacKind::Learned(i) => (Some(i), false, false, false),
            MacKind::Static(i) => (Some(i), true, false, false),
            MacKind::Bvi(i) => (Some(i), true, false, true),
            MacKind::Filter => (None, true, true, false),
        };
        send(&L2FibTableDetails {
            bd_id: entry.domain.0,
            mac: MacAddress(entry.mac.0),
            sw_if_index: InterfaceIndex(interface.map_or(ALL, |i| i.0)),
            static_mac,
            filter_mac,
            bvi_mac,
        });
    }
}

/// VPP's number of a rewrite that takes `pop` tags off and puts `push` on.
pub(crate) fn operation(pop: u8, push: usize) -> u32 {
    match (pop, push) {
        (0, 1) => 1,
        (0, 2) => 2,
        (1, 0) => 3,
        (2, 0) => 4,
        (1, 1) => 5,
        (1, 2) => 6,
        (2, 1) => 7,
        (2, 2) => 8,
        _ => 0,
    }
}

fn rewrite(m: &L2InterfaceVlanTagRewrite) -> Result<Option<TagRewrite>, OpError> {
    let all = (0..=2_u8).flat_map(|pop| (0..=2_usize).map(move |push| (pop, push)));
    let Some((pop, push)) = all.into_iter().find(|(pop, push)| operation(*pop, *push) == m.vtr_op) else {
        return Err(OpError::new(retval::INVALID_ARGUMENT, format!("{} is no operation", m.vtr_op)).key("vtr_op"));
    };
    if (pop, push) == (0, 0) {
        return Ok(None);
    }
    let tpid = if m.push_dot1q != 0 { DOT1Q } else { DOT1AD };
    let ids = [(tpid, m.tag1), (DOT1Q, m.tag2)];
    let tag = |(tpid, id): &(u16, u32)| match u16::try_from(*id) {
        Ok(id) if id < 4096 => Ok((*tpid, id)),
        _ => Err(OpError::new(retval::INVALID_VLAN, format!("{id} is no VLAN id")).key("tag")),
    };
    let push: Result<Vec<(u16, u16)>, OpError> = ids.iter().take(push).map(tag).collect();
    Ok(Some(TagRewrite { pop, push: push? }))
}
