//! The messages of the binary API.

use std::rc::Rc;

use quiver_api::Catalog;
use quiver_api::defs::{InterfaceIndex, MacAddress};
use quiver_net::api::testing::{ask, assert_names, read, table};
use quiver_net::api::{Clients, Trace, install};
use quiver_net::testing::Harness;

use super::{bed, bonds, index};
use crate::api::*;

#[test]
fn numbers_of_messages_are_those_of_vpp() {
    let names = [
        "bond_create_f1dbd4ff",
        "bond_create_reply_5383d31f",
        "bond_create2_912fda76",
        "bond_create2_reply_5383d31f",
        "bond_delete_f9e6675e",
        "bond_delete_reply_e8d4e804",
        "bond_enslave_e7d14948",
        "bond_enslave_reply_e8d4e804",
        "bond_add_member_e7d14948",
        "bond_add_member_reply_e8d4e804",
        "bond_detach_slave_f9e6675e",
        "bond_detach_member_f9e6675e",
        "sw_interface_bond_dump_51077d14",
        "sw_interface_bond_details_bb7c929b",
        "sw_bond_interface_dump_f9e6675e",
        "sw_bond_interface_details_9428a69c",
        "sw_interface_slave_dump_f9e6675e",
        "sw_interface_slave_details_3c4a0e23",
        "sw_member_interface_dump_f9e6675e",
        "sw_member_interface_details_3c4a0e23",
        "sw_interface_set_bond_weight_deb510a0",
        "sw_interface_lacp_dump_51077d14",
        "sw_interface_lacp_details_d9a83d2f",
    ];
    assert_names(&Catalog::of([bond(), lacp()]), &names);
}

#[test]
fn bonds_are_made_changed_told_and_removed() {
    let mut h = bed(0);
    let table = Rc::new(table(add));
    install(&mut h.router, &table, Trace::new(false, None));
    let client = h.router.part_mut::<Clients>().unwrap().join("test");
    let create = BondCreate2 {
        mode: BondMode::BOND_API_MODE_ACTIVE_BACKUP,
        lb: BondLbAlgo::BOND_API_LB_ALGO_L34,
        use_custom_mac: true,
        mac_address: MacAddress([2, 0, 0, 0, 0, 9]),
        id: 3,
        ..Default::default()
    };
    let made: BondCreate2Reply = read(&ask(&mut h, &table, client, &create)[0]);
    let bond = made.sw_if_index.clone();
    assert_eq!((made.retval, &*h.router.interfaces.name(super::IfIndex(bond.0))), (0, "BondEthernet3"));
    let refused = |h: &mut Harness, m: BondCreate2| read::<BondCreate2Reply>(&ask(h, &table, client, &m)[0]).retval;
    assert_eq!(refused(&mut h, create.clone()), -147);
    assert_eq!(refused(&mut h, BondCreate2 { numa_only: true, ..create.clone() }), -126);
    assert_eq!(refused(&mut h, BondCreate2 { mode: BondMode(9), id: u32::MAX, ..create.clone() }), -73);

    let member = |h: &Harness, name| InterfaceIndex(index(h, name).0);
    let add_member = |h: &mut Harness, name| {
        let add = BondAddMember { sw_if_index: member(h, name), bond_sw_if_index: bond.clone(), ..Default::default() };
        read::<BondAddMemberReply>(&ask(h, &table, client, &add)[0]).retval
    };
    assert_eq!([add_member(&mut h, "x0"), add_member(&mut h, "x1"), add_member(&mut h, "x1")], [0, 0, -81]);
    let weight = SwInterfaceSetBondWeight { sw_if_index: member(&h, "x1"), weight: 4 };
    assert_eq!(read::<SwInterfaceSetBondWeightReply>(&ask(&mut h, &table, client, &weight)[0]).retval, 0);

    let all = ask(&mut h, &table, client, &SwBondInterfaceDump { sw_if_index: InterfaceIndex(u32::MAX) });
    let details: SwBondInterfaceDetails = read(&all[0]);
    assert_eq!((all.len(), details.id, details.members, details.active_members), (1, 3, 2, 1));
    assert_eq!((details.mode, details.lb), (BondMode::BOND_API_MODE_ACTIVE_BACKUP, BondLbAlgo::BOND_API_LB_ALGO_AB));
    assert_eq!(details.interface_name.as_str(), "BondEthernet3");
    let of_member = SwBondInterfaceDump { sw_if_index: member(&h, "x0") };
    assert!(ask(&mut h, &table, client, &of_member).is_empty());
    assert_eq!(ask(&mut h, &table, client, &SwInterfaceBondDump {}).len(), 1);
    let members = ask(&mut h, &table, client, &SwMemberInterfaceDump { sw_if_index: bond.clone() });
    let weights: Vec<(String, u32)> =
        members.iter().map(|m| read::<SwMemberInterfaceDetails>(m)).map(|m| (m.interface_name.0, m.weight)).collect();
    assert_eq!(weights, [("x0".to_owned(), 0), ("x1".to_owned(), 4)]);
    assert_eq!(ask(&mut h, &table, client, &SwInterfaceSlaveDump { sw_if_index: bond.clone() }).len(), 2);

    let detach = BondDetachMember { sw_if_index: member(&h, "x0") };
    let detached = |h: &mut Harness| read::<BondDetachMemberReply>(&ask(h, &table, client, &detach)[0]).retval;
    assert_eq!([detached(&mut h), detached(&mut h)], [0, -71]);
    let delete =
        |h: &mut Harness, sw_if_index| read::<BondDeleteReply>(&ask(h, &table, client, &BondDelete { sw_if_index })[0]).retval;
    let x1 = member(&h, "x1");
    assert_eq!([delete(&mut h, x1), delete(&mut h, bond.clone()), delete(&mut h, bond.clone())], [-2, 0, -2]);
    assert!(bonds(&h).is_empty());
}

#[test]
fn members_with_lacp_are_told_with_both_sides() {
    let mut h = bed(1);
    let table = Rc::new(table(add));
    install(&mut h.router, &table, Trace::new(false, None));
    let client = h.router.part_mut::<Clients>().unwrap().join("test");
    assert!(ask(&mut h, &table, client, &SwInterfaceLacpDump {}).is_empty());
    let create =
        BondCreate { mode: BondMode::BOND_API_MODE_LACP, lb: BondLbAlgo::BOND_API_LB_ALGO_L34, id: u32::MAX, ..Default::default() };
    let made: BondCreateReply = read(&ask(&mut h, &table, client, &create)[0]);
    let x1 = InterfaceIndex(index(&h, "x1").0);
    let enslave = BondEnslave {
        sw_if_index: x1.clone(),
        bond_sw_if_index: made.sw_if_index.clone(),
        is_passive: true,
        is_long_timeout: true,
    };
    assert_eq!(read::<BondEnslaveReply>(&ask(&mut h, &table, client, &enslave)[0]).retval, 0);
    let members = ask(&mut h, &table, client, &SwMemberInterfaceDump { sw_if_index: made.sw_if_index.clone() });
    let member: SwMemberInterfaceDetails = read(&members[0]);
    assert!(member.is_passive && member.is_long_timeout);
    let all = ask(&mut h, &table, client, &SwInterfaceLacpDump {});
    let port: SwInterfaceLacpDetails = read(&all[0]);
    assert_eq!((all.len(), &port.sw_if_index, port.interface_name.as_str()), (1, &x1, "x1"));
    assert_eq!((port.bond_interface_name.as_str(), port.rx_state, port.mux_state), ("BondEthernet0", 2, 0));
    assert_eq!((port.actor_key, port.actor_port_number, port.actor_system.0), (1, 1, quiver_net::testing::router_mac(1).0));
    // Expired, defaulted, aggregation; neither activity nor a short timeout.
    assert_eq!((port.actor_state, port.partner_port_number), (0b1100_0100, 0));
}
