//! `interface`: what interfaces there are, and changing them.

use std::net::{IpAddr, Ipv6Addr};

use quiver_api::defs::*;
use quiver_api::{Message, Text};
use quiver_command::operation::{OpError, Operation, retval};
use quiver_wire::MacAddr;

use crate::api::replace::address_said;
use crate::api::{ALL, Details, Handlers, family, flags, from_prefix, index_of, reference};
use crate::interface::ops::placement::SetPlacement;
use crate::interface::ops::{ClearInterfaces, CreateLoopback as MakeLoopback, Created, DeleteInterface};
use crate::interface::{InterfaceKind, Kind, L2Mode, Mtu, SubMatch, VLAN_MAX, VlanId};
use crate::ip::ops::{SetAddress, SetUnnumbered};
use crate::ops::done;
use crate::{IfIndex, Interface, Router};

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<SwInterfaceSetFlags, SwInterfaceSetFlagsReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        let up = m.flags.0 & IfStatusFlags::IF_STATUS_API_FLAG_ADMIN_UP.0 != 0;
        router.set_interface_up(index, up).map_err(OpError::from)
    });
    handlers.act::<SwInterfaceSetPromisc, SwInterfaceSetPromiscReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        router.set_promiscuous(index, m.promisc_on).map_err(OpError::from)
    });
    handlers.act::<SwInterfaceSetIpDirectedBroadcast, SwInterfaceSetIpDirectedBroadcastReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        router.set_directed_broadcast(index, m.enable).map_err(OpError::from)
    });
    handlers.act::<HwInterfaceSetMtu, HwInterfaceSetMtuReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        let mtu = router.interfaces.expect(index)?.mtu;
        router.set_mtu(index, Mtu { l3: m.mtu.into(), ..mtu }).map_err(OpError::from)
    });
    handlers.act::<SwInterfaceSetMtu, SwInterfaceSetMtuReply>(set_mtu);
    handlers.dump::<SwInterfaceDump>(dump);
    handlers.act::<SwInterfaceAddDelAddress, SwInterfaceAddDelAddressReply>(set_address);
    handlers.act::<SwInterfaceSetUnnumbered, SwInterfaceSetUnnumberedReply>(|router, m| {
        let interface = reference(router, &m.unnumbered_sw_if_index)?;
        let lender = if m.is_add { Some(reference(router, &m.sw_if_index)?) } else { None };
        crate::api::perform::<SetUnnumbered>(router, SetUnnumbered { interface, lender }).map(drop)
    });
    handlers.act::<SwInterfaceSetTable, SwInterfaceSetTableReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        router.set_interface_table(index, family(m.is_ipv6), m.vrf_id).map_err(OpError::from)
    });
    handlers.get::<SwInterfaceGetTable, SwInterfaceGetTableReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        let (four, six) = router.interfaces.expect(index)?.tables;
        Ok(SwInterfaceGetTableReply { retval: 0, vrf_id: if m.is_ipv6 { six } else { four } })
    });
    handlers.act::<SwInterfaceClearStats, SwInterfaceClearStatsReply>(|router, m| {
        let interface = if m.sw_if_index.0 == ALL { None } else { Some(reference(router, &m.sw_if_index)?) };
        ClearInterfaces::run(router, ClearInterfaces { interface }).map(drop)
    });
    handlers.act::<SwInterfaceTagAddDel, SwInterfaceTagAddDelReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        if m.is_add && m.tag.0.is_empty() {
            return Err(OpError::new(retval::INVALID_VALUE, "an empty tag").key("tag"));
        }
        if let Some(interface) = router.interfaces.get_mut(index) {
            interface.tag = m.is_add.then_some(m.tag.0);
        }
        Ok(())
    });
    handlers.act::<SwInterfaceSetMacAddress, SwInterfaceSetMacAddressReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        router.set_mac(index, MacAddr(m.mac_address.0)).map_err(OpError::from)
    });
    handlers.get::<SwInterfaceGetMacAddress, SwInterfaceGetMacAddressReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        let mac = router.interfaces.expect(index)?.mac;
        Ok(SwInterfaceGetMacAddressReply { retval: 0, mac_address: MacAddress(mac.0) })
    });
    handlers.act::<SwInterfaceSetRxMode, SwInterfaceSetRxModeReply>(set_rx_mode);
    handlers.act::<SwInterfaceSetRxPlacement, SwInterfaceSetRxPlacementReply>(|router, m| {
        let interface = reference(router, &m.sw_if_index)?;
        let number = |n: u32, key| {
            u16::try_from(n).map_err(|_| OpError::new(retval::INVALID_VALUE, format!("{n} is no number of a {key}")).key(key))
        };
        let worker = if m.is_main { None } else { Some(number(m.worker_id, "worker")?) };
        let queue = number(m.queue_id, "queue")?;
        crate::api::perform::<SetPlacement>(router, SetPlacement { interface, queue, worker }).map(drop)
    });
    handlers.dump::<SwInterfaceRxPlacementDump>(dump_placement);
    handlers.reply::<CreateVlanSubif, CreateVlanSubifReply>(|router, m| {
        let id = u16::try_from(m.vlan_id).ok().filter(|id| (1..=VLAN_MAX).contains(id));
        let id = id.ok_or_else(|| OpError::new(retval::INVALID_VLAN, "a VLAN id is 1 to 4094").key("vlan_id"))?;
        let matching = SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(id), inner: None, exact: true };
        let index = create_sub(router, &m.sw_if_index, id.into(), matching, retval::VLAN_ALREADY_EXISTS)?;
        Ok(CreateVlanSubifReply { retval: 0, sw_if_index: InterfaceIndex(index.0) })
    });
    handlers.reply::<CreateSubif, CreateSubifReply>(|router, m| {
        let matching = matching(&m)?;
        let index = create_sub(router, &m.sw_if_index, m.sub_id, matching, retval::SUBIF_ALREADY_EXISTS)?;
        Ok(CreateSubifReply { retval: 0, sw_if_index: InterfaceIndex(index.0) })
    });
    delete::<DeleteSubif, DeleteSubifReply>(handlers, &InterfaceKind::SUB, |m| &m.sw_if_index);
    handlers.reply::<CreateLoopback, CreateLoopbackReply>(|router, m| {
        let sw_if_index = create_loopback(router, &m.mac_address, None)?;
        Ok(CreateLoopbackReply { retval: 0, sw_if_index })
    });
    handlers.reply::<CreateLoopbackInstance, CreateLoopbackInstanceReply>(|router, m| {
        let sw_if_index = create_loopback(router, &m.mac_address, m.is_specified.then_some(m.user_instance))?;
        Ok(CreateLoopbackInstanceReply { retval: 0, sw_if_index })
    });
    delete::<DeleteLoopback, DeleteLoopbackReply>(handlers, &InterfaceKind::LOOPBACK, |m| &m.sw_if_index);
    handlers.passes::<SwInterfaceClearStats>();
}

/// Answers a message that removes an interface, which must be of a kind; VPP has one code for all that cannot be.
pub fn delete<M: Message + Clone + 'static, R: Message + 'static>(
    handlers: &mut Handlers,
    kind: &'static InterfaceKind,
    index: fn(&M) -> &InterfaceIndex,
) {
    let code = if *kind == InterfaceKind::SUB { retval::INVALID_SUB_SW_IF_INDEX } else { retval::INVALID_SW_IF_INDEX };
    let request = move |router: &Router, m: M| Ok(DeleteInterface::of(kind, reference(router, index(&m))?));
    handlers.run::<DeleteInterface, M, R>(request, move |_, _, removed| match removed {
        Err(error) if error.code == retval::INVALID_INTERFACE => Err(OpError { code, ..error }),
        other => other.map(|_| R::default()),
    });
}

/// Number of the interface that an operation has made.
pub fn made(created: &Created) -> InterfaceIndex {
    InterfaceIndex(created.interfaces.first().map_or(ALL, |interface| interface.sw_if_index))
}

/// A MAC address, where one is given.
pub fn given(mac: &MacAddress) -> Option<[u8; 6]> {
    Some(mac.0).filter(|mac| *mac != [0; 6])
}

fn create_loopback(router: &mut Router, mac: &MacAddress, instance: Option<u32>) -> Result<InterfaceIndex, OpError> {
    let outcome = crate::api::perform::<MakeLoopback>(router, MakeLoopback { mac: given(mac), instance }).map_err(|error| {
        match error.code {
            // As VPP says it.
            retval::IF_ALREADY_EXISTS => OpError { code: retval::INVALID_REGISTRATION, ..error },
            _ => error,
        }
    })?;
    Ok(made(&done(outcome)?))
}

fn set_mtu(router: &mut Router, m: SwInterfaceSetMtu) -> Result<(), OpError> {
    let index = index_of(router, &m.sw_if_index)?;
    let [l3, ip4, ip6, mpls] = m.mtu;
    router.set_mtu(index, Mtu { l3, ip4, ip6, mpls }).map_err(OpError::from)
}

fn set_address(router: &mut Router, m: SwInterfaceAddDelAddress) -> Result<(), OpError> {
    let interface = reference(router, &m.sw_if_index)?;
    let request = match m.del_all {
        true => SetAddress { interface, address: None, len: None, remove: true, all: true },
        false => {
            let Prefix { address, len } = &m.prefix.0;
            from_prefix(&m.prefix.0)?;
            let address = crate::api::from_address(address);
            if let IpAddr::V6(own) = address
                && own.is_unicast_link_local()
            {
                return set_link_local(router, &m, own);
            }
            if m.is_add && address_said(router, m.sw_if_index.0, address, *len)? {
                return Ok(());
            }
            let address = Some(address);
            SetAddress { interface, address, len: Some(*len), remove: !m.is_add, all: false }
        }
    };
    crate::api::perform::<SetAddress>(router, request).map(drop)
}

/// An interface has one link-local address, as in VPP: another one takes its place, and it cannot be taken away.
fn set_link_local(router: &mut Router, m: &SwInterfaceAddDelAddress, own: Ipv6Addr) -> Result<(), OpError> {
    if !m.is_add {
        let error = OpError::new(retval::ADDRESS_NOT_DELETABLE, "a link-local address goes with IPv6 on the interface");
        return Err(error.key("prefix").value(own));
    }
    let index = index_of(router, &m.sw_if_index)?;
    crate::ip::api::set_link_local(router, index, own)
}

fn set_rx_mode(router: &mut Router, m: SwInterfaceSetRxMode) -> Result<(), OpError> {
    let index = index_of(router, &m.sw_if_index)?;
    let mode = match m.mode {
        RxMode::RX_MODE_API_POLLING => quiver_graph::RxMode::Polling,
        RxMode::RX_MODE_API_INTERRUPT => quiver_graph::RxMode::Interrupt,
        RxMode::RX_MODE_API_ADAPTIVE => quiver_graph::RxMode::Adaptive,
        RxMode::RX_MODE_API_DEFAULT => router.rx_default(),
        RxMode(other) => return Err(OpError::new(retval::INVALID_VALUE, format!("{other} is no mode")).key("mode")),
    };
    let queue = if m.queue_id_valid { Some(u16::try_from(m.queue_id).unwrap_or(u16::MAX)) } else { None };
    router.set_rx_mode(index, queue, mode).map_err(OpError::from)
}

fn create_sub(router: &mut Router, parent: &InterfaceIndex, id: u32, matching: SubMatch, taken: i32) -> Result<IfIndex, OpError> {
    let parent = index_of(router, parent)?;
    let name = format!("{}.{id}", router.interfaces.name(parent));
    if router.interfaces.by_name(&name).is_some() {
        return Err(OpError::new(taken, format!("{name} exists already")).key("sub_id"));
    }
    router.create_sub_interface(parent, id, matching).map_err(OpError::from)
}

fn matching(m: &CreateSubif) -> Result<SubMatch, OpError> {
    let has = |flag: SubIfFlags| m.sub_if_flags.0 & flag.0 != 0;
    if has(SubIfFlags::SUB_IF_API_FLAG_DEFAULT) {
        return Ok(SubMatch::Default);
    }
    if has(SubIfFlags::SUB_IF_API_FLAG_NO_TAGS) {
        return Ok(SubMatch::Untagged);
    }
    let two = has(SubIfFlags::SUB_IF_API_FLAG_TWO_TAGS);
    if has(SubIfFlags::SUB_IF_API_FLAG_DOT1AH) || !(two || has(SubIfFlags::SUB_IF_API_FLAG_ONE_TAG)) {
        return Err(OpError::new(retval::INVALID_VLAN_TAG_COUNT, "no, one or two tags, or the default").key("sub_if_flags"));
    }
    let vlan = |any, id| if has(any) { VlanId::Any } else { VlanId::Exactly(id) };
    Ok(SubMatch::Tagged {
        dot1ad: has(SubIfFlags::SUB_IF_API_FLAG_DOT1AD),
        outer: vlan(SubIfFlags::SUB_IF_API_FLAG_OUTER_VLAN_ID_ANY, m.outer_vlan_id),
        inner: two.then(|| vlan(SubIfFlags::SUB_IF_API_FLAG_INNER_VLAN_ID_ANY, m.inner_vlan_id)),
        exact: has(SubIfFlags::SUB_IF_API_FLAG_EXACT_MATCH),
    })
}

fn dump(router: &mut Router, m: SwInterfaceDump, send: &mut dyn FnMut(&dyn Details)) {
    let filter = m.name_filter_valid.then(|| m.name_filter.to_lowercase());
    for interface in router.interfaces.iter() {
        let wanted = match &filter {
            Some(part) => interface.name.to_lowercase().contains(part),
            None => [0, ALL, interface.index.0].contains(&m.sw_if_index.0),
        };
        if wanted {
            send(&details(router, interface));
        }
    }
}

fn details(router: &Router, interface: &Interface) -> SwInterfaceDetails {
    let parent = router.interfaces.get(interface.parent).unwrap_or(interface);
    let mtu = interface.mtu;
    let mut all = SwInterfaceDetails {
        sw_if_index: InterfaceIndex(interface.index.0),
        sup_sw_if_index: interface.parent.0,
        l2_address: MacAddress(interface.mac.0),
        flags: IfStatusFlags(flags(interface)),
        r#type: IfType::IF_API_TYPE_HARDWARE,
        link_duplex: if parent.link.speed.is_some() { LinkDuplex::LINK_DUPLEX_API_FULL } else { LinkDuplex::default() },
        // kbit/s
        link_speed: parent.link.speed.map_or(0, |speed| u32::try_from(speed / 1000).unwrap_or(u32::MAX)),
        link_mtu: u16::try_from(interface.max_frame.saturating_sub(14)).unwrap_or(u16::MAX),
        mtu: [mtu.l3, mtu.ip4, mtu.ip6, mtu.mpls],
        interface_name: interface.name.as_str().into(),
        interface_dev_type: parent.kind.declared().map_or("local", |kind| kind.device_type).into(),
        tag: Text(interface.tag.clone().unwrap_or_default()),
        ..SwInterfaceDetails::default()
    };
    if let Kind::Sub(matching) = &interface.kind {
        all.r#type = IfType::IF_API_TYPE_SUB;
        all.sub_id = interface.name.rsplit_once('.').and_then(|(_, id)| id.parse().ok()).unwrap_or_default();
        describe_sub(&mut all, matching);
    }
    if let Some(rewrite) = router.tag_rewrite(interface.index) {
        all.vtr_op = crate::l2::api::operation(rewrite.pop, rewrite.push.len());
        let ids: Vec<u32> = rewrite.push.iter().map(|(_, id)| u32::from(*id)).collect();
        all.vtr_push_dot1q = rewrite.push.first().is_some_and(|(tpid, _)| *tpid == 0x8100).into();
        all.vtr_tag1 = ids.first().copied().unwrap_or_default();
        all.vtr_tag2 = ids.get(1).copied().unwrap_or_default();
    }
    all
}

fn describe_sub(all: &mut SwInterfaceDetails, matching: &SubMatch) {
    let mut flags = 0;
    match matching {
        SubMatch::Default => flags |= SubIfFlags::SUB_IF_API_FLAG_DEFAULT.0,
        SubMatch::Untagged => flags |= SubIfFlags::SUB_IF_API_FLAG_NO_TAGS.0,
        SubMatch::Tagged { dot1ad, outer, inner, exact } => {
            all.sub_number_of_tags = 1 + u8::from(inner.is_some());
            flags |= if inner.is_some() { SubIfFlags::SUB_IF_API_FLAG_TWO_TAGS } else { SubIfFlags::SUB_IF_API_FLAG_ONE_TAG }.0;
            let mut set = |on: bool, flag: SubIfFlags| flags |= if on { flag.0 } else { 0 };
            set(*dot1ad, SubIfFlags::SUB_IF_API_FLAG_DOT1AD);
            set(*exact, SubIfFlags::SUB_IF_API_FLAG_EXACT_MATCH);
            match outer {
                VlanId::Any => set(true, SubIfFlags::SUB_IF_API_FLAG_OUTER_VLAN_ID_ANY),
                VlanId::Exactly(id) => all.sub_outer_vlan_id = *id,
            }
            match inner {
                Some(VlanId::Any) => set(true, SubIfFlags::SUB_IF_API_FLAG_INNER_VLAN_ID_ANY),
                Some(VlanId::Exactly(id)) => all.sub_inner_vlan_id = *id,
                None => {}
            }
        }
    }
    all.sub_if_flags = SubIfFlags(flags);
}

fn dump_placement(router: &mut Router, m: SwInterfaceRxPlacementDump, send: &mut dyn FnMut(&dyn Details)) {
    for interface in router.interfaces.iter().filter(|i| [ALL, i.index.0].contains(&m.sw_if_index.0)) {
        for (queue, place) in interface.device.iter().flat_map(|device| device.placement.iter().enumerate()) {
            send(&SwInterfaceRxPlacementDetails {
                sw_if_index: InterfaceIndex(interface.index.0),
                queue_id: u32::try_from(queue).unwrap_or(u32::MAX),
                worker_id: u32::try_from(place.thread).unwrap_or(u32::MAX),
                mode: match place.mode {
                    quiver_graph::RxMode::Polling => RxMode::RX_MODE_API_POLLING,
                    quiver_graph::RxMode::Interrupt => RxMode::RX_MODE_API_INTERRUPT,
                    quiver_graph::RxMode::Adaptive => RxMode::RX_MODE_API_ADAPTIVE,
                },
            });
        }
    }
}

/// Cross-connects, one way each.
pub fn cross_connects(router: &Router) -> impl Iterator<Item = (IfIndex, IfIndex)> {
    router.interfaces.iter().filter_map(|i| match i.l2 {
        L2Mode::CrossConnect(peer) => Some((i.index, peer)),
        _ => None,
    })
}
