//! `bond`: the messages of VPP.

use quiver_api::defs::{InterfaceIndex, MacAddress};
use quiver_api::module;
use quiver_api::module::*;
use quiver_command::operation::{OpError, retval};
use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::api::{Handlers, perform, reference};
use quiver_net::interface::ops::{Created, DeleteInterface};
use quiver_net::ops::done;

use crate::control::{self, BOND};
use crate::lacp::lag::{Mux, Receive};
use crate::ops::{AddMember, Balance, BondInfo, CreateBond, MemberInfo, Mode, PortInfo, RemoveMember, SetWeight, ports, shown};

module! {
    bond "2.1.0"
    enums {
        BondMode "bond_mode": u32 { BOND_API_MODE_ROUND_ROBIN = 1, BOND_API_MODE_ACTIVE_BACKUP = 2, BOND_API_MODE_XOR = 3, BOND_API_MODE_BROADCAST = 4, BOND_API_MODE_LACP = 5 }
        BondLbAlgo "bond_lb_algo": u32 { BOND_API_LB_ALGO_L2 = 0, BOND_API_LB_ALGO_L34 = 1, BOND_API_LB_ALGO_L23 = 2, BOND_API_LB_ALGO_RR = 3, BOND_API_LB_ALGO_BC = 4, BOND_API_LB_ALGO_AB = 5 }
    }
    messages {
        client BondCreate "bond_create" -> bond_create_reply { id: u32 => "4294967295", use_custom_mac: bool, mac_address: MacAddress, mode: BondMode, lb: BondLbAlgo, numa_only: bool }
        context BondCreateReply "bond_create_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client BondCreate2 "bond_create2" -> bond_create2_reply { mode: BondMode, lb: BondLbAlgo, numa_only: bool, enable_gso: bool, use_custom_mac: bool, mac_address: MacAddress, id: u32 => "4294967295" }
        context BondCreate2Reply "bond_create2_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client BondDelete "bond_delete" -> bond_delete_reply { sw_if_index: InterfaceIndex }
        context BondDeleteReply "bond_delete_reply" { retval: i32 }
        client BondEnslave "bond_enslave" -> bond_enslave_reply { sw_if_index: InterfaceIndex, bond_sw_if_index: InterfaceIndex, is_passive: bool, is_long_timeout: bool }
        context BondEnslaveReply "bond_enslave_reply" { retval: i32 }
        client BondAddMember "bond_add_member" -> bond_add_member_reply { sw_if_index: InterfaceIndex, bond_sw_if_index: InterfaceIndex, is_passive: bool, is_long_timeout: bool }
        context BondAddMemberReply "bond_add_member_reply" { retval: i32 }
        client BondDetachSlave "bond_detach_slave" -> bond_detach_slave_reply { sw_if_index: InterfaceIndex }
        context BondDetachSlaveReply "bond_detach_slave_reply" { retval: i32 }
        client BondDetachMember "bond_detach_member" -> bond_detach_member_reply { sw_if_index: InterfaceIndex }
        context BondDetachMemberReply "bond_detach_member_reply" { retval: i32 }
        client SwInterfaceBondDump "sw_interface_bond_dump" => sw_interface_bond_details {  }
        context SwInterfaceBondDetails "sw_interface_bond_details" { sw_if_index: InterfaceIndex, id: u32, mode: BondMode, lb: BondLbAlgo, numa_only: bool, active_slaves: u32, slaves: u32, interface_name: Text<64> }
        client SwBondInterfaceDump "sw_bond_interface_dump" => sw_bond_interface_details { sw_if_index: InterfaceIndex => "4294967295" }
        context SwBondInterfaceDetails "sw_bond_interface_details" { sw_if_index: InterfaceIndex, id: u32, mode: BondMode, lb: BondLbAlgo, numa_only: bool, active_members: u32, members: u32, interface_name: Text<64> }
        client SwInterfaceSlaveDump "sw_interface_slave_dump" => sw_interface_slave_details { sw_if_index: InterfaceIndex }
        context SwInterfaceSlaveDetails "sw_interface_slave_details" { sw_if_index: InterfaceIndex, interface_name: Text<64>, is_passive: bool, is_long_timeout: bool, is_local_numa: bool, weight: u32 }
        client SwMemberInterfaceDump "sw_member_interface_dump" => sw_member_interface_details { sw_if_index: InterfaceIndex }
        context SwMemberInterfaceDetails "sw_member_interface_details" { sw_if_index: InterfaceIndex, interface_name: Text<64>, is_passive: bool, is_long_timeout: bool, is_local_numa: bool, weight: u32 }
        client SwInterfaceSetBondWeight "sw_interface_set_bond_weight" -> sw_interface_set_bond_weight_reply { sw_if_index: InterfaceIndex, weight: u32 }
        context SwInterfaceSetBondWeightReply "sw_interface_set_bond_weight_reply" { retval: i32 }
    }
}

module! {
    lacp "2.0.0"
    messages {
        client SwInterfaceLacpDump "sw_interface_lacp_dump" => sw_interface_lacp_details {  }
        context SwInterfaceLacpDetails "sw_interface_lacp_details" { sw_if_index: InterfaceIndex, interface_name: Text<64>, rx_state: u32, tx_state: u32, mux_state: u32, ptx_state: u32, bond_interface_name: Text<64>, actor_system_priority: u16, actor_system: MacAddress, actor_key: u16, actor_port_priority: u16, actor_port_number: u16, actor_state: u8, partner_system_priority: u16, partner_system: MacAddress, partner_key: u16, partner_port_priority: u16, partner_port_number: u16, partner_state: u8 }
    }
}

/// All bonds, and any free number.
const ANY: u32 = u32::MAX;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.module(bond());
    handlers.module(lacp());
    handlers.dump::<SwInterfaceLacpDump>(|router, _, send| {
        for port in ports(router, None).unwrap_or_default() {
            send(&port_details(&port));
        }
    });
    handlers.reply::<BondCreate, BondCreateReply>(|router, m| {
        let BondCreate { id, use_custom_mac, mac_address, mode, lb, numa_only } = m;
        let new = BondCreate2 { mode, lb, numa_only, enable_gso: false, use_custom_mac, mac_address, id };
        create(router, new).map(|sw_if_index| BondCreateReply { retval: 0, sw_if_index })
    });
    handlers.reply::<BondCreate2, BondCreate2Reply>(|router, m| {
        create(router, m).map(|sw_if_index| BondCreate2Reply { retval: 0, sw_if_index })
    });
    handlers.act::<BondDelete, BondDeleteReply>(|router, m| {
        let interface = reference(router, &m.sw_if_index)?;
        // VPP has no other name for it.
        control::expect(router, IfIndex(m.sw_if_index.0))
            .map_err(|error| OpError { code: retval::INVALID_SW_IF_INDEX, ..error })?;
        done(perform::<DeleteInterface>(router, DeleteInterface::of(&BOND, interface))?)
    });
    handlers.act::<BondEnslave, BondEnslaveReply>(|router, m| {
        let BondEnslave { sw_if_index, bond_sw_if_index, is_passive, is_long_timeout } = m;
        add_member(router, BondAddMember { sw_if_index, bond_sw_if_index, is_passive, is_long_timeout })
    });
    handlers.act::<BondAddMember, BondAddMemberReply>(add_member);
    handlers.act::<BondDetachSlave, BondDetachSlaveReply>(|router, m| remove_member(router, &m.sw_if_index));
    handlers.act::<BondDetachMember, BondDetachMemberReply>(|router, m| remove_member(router, &m.sw_if_index));
    handlers.act::<SwInterfaceSetBondWeight, SwInterfaceSetBondWeightReply>(|router, m| {
        let request = SetWeight { member: reference(router, &m.sw_if_index)?, weight: m.weight };
        done(perform::<SetWeight>(router, request)?)
    });
    handlers.dump::<SwInterfaceBondDump>(|router, _, send| {
        for bond in shown(router, None).unwrap_or_default() {
            let SwBondInterfaceDetails { sw_if_index, id, mode, lb, numa_only, active_members, members, interface_name } =
                details(&bond);
            let (active_slaves, slaves) = (active_members, members);
            send(&SwInterfaceBondDetails { sw_if_index, id, mode, lb, numa_only, active_slaves, slaves, interface_name });
        }
    });
    handlers.dump::<SwBondInterfaceDump>(|router, m, send| {
        let one = Some(IfIndex(m.sw_if_index.0)).filter(|one| one.0 != ANY);
        for bond in shown(router, one).unwrap_or_default() {
            send(&details(&bond));
        }
    });
    handlers.dump::<SwInterfaceSlaveDump>(|router, m, send| {
        for member in members(router, &m.sw_if_index) {
            let SwMemberInterfaceDetails { sw_if_index, interface_name, is_passive, is_long_timeout, is_local_numa, weight } =
                member_details(&member);
            send(&SwInterfaceSlaveDetails { sw_if_index, interface_name, is_passive, is_long_timeout, is_local_numa, weight });
        }
    });
    handlers.dump::<SwMemberInterfaceDump>(|router, m, send| {
        for member in members(router, &m.sw_if_index) {
            send(&member_details(&member));
        }
    });
}

fn create(router: &mut Router, m: BondCreate2) -> Result<InterfaceIndex, OpError> {
    if m.numa_only {
        return Err(OpError::new(retval::UNSUPPORTED, "members are not chosen by NUMA node").key("numa_only"));
    }
    let mode = match m.mode {
        BondMode::BOND_API_MODE_ROUND_ROBIN => Mode::RoundRobin,
        BondMode::BOND_API_MODE_ACTIVE_BACKUP => Mode::ActiveBackup,
        BondMode::BOND_API_MODE_XOR => Mode::Xor,
        BondMode::BOND_API_MODE_BROADCAST => Mode::Broadcast,
        BondMode::BOND_API_MODE_LACP => Mode::Lacp,
        _ => return Err(OpError::new(retval::INVALID_ARGUMENT, "no such mode").key("mode")),
    };
    let load_balance = match m.lb {
        // Other modes do not mind.
        _ if !mode.balances() => Balance::L2,
        BondLbAlgo::BOND_API_LB_ALGO_L2 => Balance::L2,
        BondLbAlgo::BOND_API_LB_ALGO_L23 => Balance::L23,
        BondLbAlgo::BOND_API_LB_ALGO_L34 => Balance::L34,
        _ => return Err(OpError::new(retval::INVALID_ARGUMENT, "no such way to balance flows").key("lb")),
    };
    let mac = m.use_custom_mac.then_some(m.mac_address.0);
    let request = CreateBond { mode, load_balance, mac, id: Some(m.id).filter(|id| *id != ANY) };
    let Created { interfaces } = done(perform::<CreateBond>(router, request)?)?;
    Ok(InterfaceIndex(interfaces.first().map_or(ANY, |made| made.sw_if_index)))
}

fn add_member(router: &mut Router, m: BondAddMember) -> Result<(), OpError> {
    let request = AddMember {
        bond: reference(router, &m.bond_sw_if_index)?,
        member: reference(router, &m.sw_if_index)?,
        passive: m.is_passive,
        long_timeout: m.is_long_timeout,
    };
    done(perform::<AddMember>(router, request)?)
}

fn remove_member(router: &mut Router, index: &InterfaceIndex) -> Result<(), OpError> {
    let member = reference(router, index)?;
    done(perform::<RemoveMember>(router, RemoveMember { member })?)
}

fn members(router: &Router, bond: &InterfaceIndex) -> Vec<MemberInfo> {
    shown(router, Some(IfIndex(bond.0))).unwrap_or_default().into_iter().flat_map(|bond| bond.members).collect()
}

fn details(bond: &BondInfo) -> SwBondInterfaceDetails {
    SwBondInterfaceDetails {
        sw_if_index: InterfaceIndex(bond.sw_if_index),
        id: bond.id,
        mode: match bond.mode {
            Mode::RoundRobin => BondMode::BOND_API_MODE_ROUND_ROBIN,
            Mode::ActiveBackup => BondMode::BOND_API_MODE_ACTIVE_BACKUP,
            Mode::Xor => BondMode::BOND_API_MODE_XOR,
            Mode::Broadcast => BondMode::BOND_API_MODE_BROADCAST,
            Mode::Lacp => BondMode::BOND_API_MODE_LACP,
        },
        lb: match (bond.mode, bond.load_balance) {
            (_, Some(Balance::L2)) => BondLbAlgo::BOND_API_LB_ALGO_L2,
            (_, Some(Balance::L23)) => BondLbAlgo::BOND_API_LB_ALGO_L23,
            (_, Some(Balance::L34)) => BondLbAlgo::BOND_API_LB_ALGO_L34,
            (Mode::RoundRobin, _) => BondLbAlgo::BOND_API_LB_ALGO_RR,
            (Mode::Broadcast, _) => BondLbAlgo::BOND_API_LB_ALGO_BC,
            _ => BondLbAlgo::BOND_API_LB_ALGO_AB,
        },
        numa_only: false,
        active_members: bond.active().count() as u32,
        members: bond.members.len() as u32,
        interface_name: Text(bond.interface.clone()),
    }
}

fn member_details(member: &MemberInfo) -> SwMemberInterfaceDetails {
    SwMemberInterfaceDetails {
        sw_if_index: InterfaceIndex(member.sw_if_index),
        interface_name: Text(member.interface.clone()),
        is_passive: member.passive,
        is_long_timeout: member.long_timeout,
        is_local_numa: false,
        weight: member.weight,
    }
}

/// States have VPP's numbers.
fn port_details(port: &PortInfo) -> SwInterfaceLacpDetails {
    let PortInfo { actor, partner, .. } = port;
    SwInterfaceLacpDetails {
        sw_if_index: InterfaceIndex(port.sw_if_index),
        interface_name: Text(port.interface.clone()),
        rx_state: match port.receive {
            Receive::Disabled => 1,
            Receive::Expired => 2,
            Receive::Defaulted => 4,
            Receive::Current => 5,
        },
        // There is but one: `transmit PDU'.
        tx_state: 0,
        mux_state: match port.mux {
            Mux::Detached => 0,
            Mux::Waiting => 1,
            Mux::Attached => 2,
            Mux::Collecting | Mux::Distributing => 3,
        },
        ptx_state: match port.interval {
            None => 0,
            Some(1) => 1,
            Some(_) => 2,
        },
        bond_interface_name: Text(port.bond.clone()),
        actor_system_priority: actor.system_priority,
        actor_system: MacAddress(actor.system.0),
        actor_key: actor.key,
        actor_port_priority: actor.port_priority,
        actor_port_number: actor.port,
        actor_state: actor.state,
        partner_system_priority: partner.system_priority,
        partner_system: MacAddress(partner.system.0),
        partner_key: partner.key,
        partner_port_priority: partner.port_priority,
        partner_port_number: partner.port,
        partner_state: partner.state,
    }
}
