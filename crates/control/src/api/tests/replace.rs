//! Replacing, router advertisements, and what else VPP's test framework asks for.

use super::*;

fn ip(text: &str) -> Address {
    quiver_net::api::address(text.parse().unwrap())
}

fn code<M: Message, R: Message>(h: &mut Harness, table: &Table, message: &M) -> i32 {
    request::<M, R>(h, table, message).1
}

fn set_address(h: &mut Harness, table: &Table, interface: u32, address: &str, len: u8, is_add: bool) -> i32 {
    let prefix = AddressWithPrefix(Prefix { address: ip(address), len });
    let message = SwInterfaceAddDelAddress { sw_if_index: InterfaceIndex(interface), is_add, del_all: false, prefix };
    code::<_, SwInterfaceAddDelAddressReply>(h, table, &message)
}

fn addresses(h: &Harness, interface: u32) -> Vec<String> {
    let all = &h.router.interfaces.get(quiver_net::IfIndex(interface)).unwrap().addresses;
    all.iter().map(|(address, len)| format!("{address}/{len}")).collect()
}

#[test]
fn addresses_that_are_not_said_again_go_and_those_in_the_way_make_way() {
    let (mut h, table) = bed();
    let was: Vec<String> = addresses(&h, 1);
    assert_eq!(set_address(&mut h, &table, 1, "172.16.1.1", 24, true), 0);
    assert_eq!(set_address(&mut h, &table, 1, "172.16.1.1", 24, true), -114, "twice, outside of a replacement");
    let begin = |h: &mut Harness| code::<_, SwInterfaceAddressReplaceBeginReply>(h, &table, &SwInterfaceAddressReplaceBegin {});
    let end = |h: &mut Harness| code::<_, SwInterfaceAddressReplaceEndReply>(h, &table, &SwInterfaceAddressReplaceEnd {});
    assert_eq!(begin(&mut h), 0);
    assert_eq!(set_address(&mut h, &table, 1, "172.16.1.1", 24, true), 0, "it is there, and stays");
    assert_eq!(end(&mut h), 0);
    assert_eq!(addresses(&h, 1), ["172.16.1.1/24"], "{was:?}");
    assert_eq!(begin(&mut h), 0);
    assert_eq!(set_address(&mut h, &table, 2, "172.16.1.9", 24, true), 0, "the other interface's is about to go");
    assert_eq!(end(&mut h), 0);
    assert!(addresses(&h, 1).is_empty());
    assert_eq!(addresses(&h, 2), ["172.16.1.9/24"]);
    assert_eq!(end(&mut h), 0, "an end without a beginning takes nothing");
    assert_eq!(addresses(&h, 2), ["172.16.1.9/24"]);
}

#[test]
fn routes_that_are_not_said_again_go() {
    let (mut h, table) = bed();
    let set = |h: &mut Harness, third: u8| {
        let prefix = Prefix { address: ip(&format!("10.1.{third}.0")), len: 24 };
        let path = FibPath { sw_if_index: 1, weight: 1, ..Default::default() };
        let route = IpRoute { prefix, paths: vec![path], ..Default::default() };
        assert_eq!(code::<_, IpRouteAddDelReply>(h, &table, &IpRouteAddDel { is_add: true, is_multipath: false, route }), 0);
    };
    (0..4).for_each(|third| set(&mut h, third));
    assert_eq!(code::<_, IpTableReplaceBeginReply>(&mut h, &table, &IpTableReplaceBegin { table: IpTable::default() }), 0);
    set(&mut h, 2);
    assert_eq!(code::<_, IpTableReplaceEndReply>(&mut h, &table, &IpTableReplaceEnd { table: IpTable::default() }), 0);
    let there = |third: u8| h.router.route(0, format!("10.1.{third}.0/24").parse().unwrap()).unwrap().is_some();
    assert_eq!([0, 1, 2, 3].map(there), [false, false, true, false]);
    let unknown = IpTableReplaceBegin { table: IpTable { table_id: 9, ..Default::default() } };
    assert_eq!(code::<_, IpTableReplaceBeginReply>(&mut h, &table, &unknown), -3);
}

#[test]
fn neighbors_that_are_not_said_again_go() {
    let (mut h, table) = bed();
    assert_eq!(set_address(&mut h, &table, 1, "172.16.1.1", 24, true), 0);
    let set = |h: &mut Harness, last: u8| {
        let neighbor = IpNeighbor {
            sw_if_index: InterfaceIndex(1),
            mac_address: MacAddress([2, 0, 0, 0, 0, last]),
            ip_address: ip(&format!("172.16.1.{last}")),
            ..Default::default()
        };
        assert_eq!(code::<_, IpNeighborAddDelReply>(h, &table, &IpNeighborAddDel { is_add: true, neighbor }), 0);
    };
    (2..5).for_each(|last| set(&mut h, last));
    assert_eq!(code::<_, IpNeighborReplaceBeginReply>(&mut h, &table, &IpNeighborReplaceBegin {}), 0);
    set(&mut h, 3);
    assert_eq!(code::<_, IpNeighborReplaceEndReply>(&mut h, &table, &IpNeighborReplaceEnd {}), 0);
    let left: Vec<String> =
        h.router.neighbors(quiver_net::ip::FamilyId::V4).iter().map(|neighbor| neighbor.address.to_string()).collect();
    assert_eq!(left, ["172.16.1.3"]);
}

#[test]
fn an_interface_has_one_link_local_address() {
    let (mut h, table) = bed();
    let set = |h: &mut Harness, address: &str| {
        let address: std::net::Ipv6Addr = address.parse().unwrap();
        let message = SwInterfaceIp6SetLinkLocalAddress { sw_if_index: InterfaceIndex(1), ip: Ip6Address(address.octets()) };
        code::<_, SwInterfaceIp6SetLinkLocalAddressReply>(h, &table, &message)
    };
    assert_eq!([set(&mut h, "fe80::1"), set(&mut h, "fe80::2"), set(&mut h, "2001:db8::1")], [0, 0, -7]);
    assert_eq!(addresses(&h, 1), ["fe80::2/128"]);
    assert_eq!(set_address(&mut h, &table, 1, "fe80::3", 128, true), 0);
    assert_eq!(addresses(&h, 1), ["fe80::3/128"]);
    assert_eq!(set_address(&mut h, &table, 1, "fe80::3", 128, false), -61);
}

#[test]
fn advertisements_are_configured_dumped_and_reset() {
    let (mut h, table) = bed();
    let sw_if_index = InterfaceIndex(1);
    let config = |m: SwInterfaceIp6ndRaConfig| SwInterfaceIp6ndRaConfig { sw_if_index: InterfaceIndex(1), ..m };
    let set = |h: &mut Harness, m| code::<_, SwInterfaceIp6ndRaConfigReply>(h, &table, &config(m));
    assert_eq!(set(&mut h, SwInterfaceIp6ndRaConfig { managed: 1, ..Default::default() }), -62, "there is no IPv6");
    assert_eq!(set_address(&mut h, &table, 1, "2001:db8::1", 64, true), 0);
    assert_eq!(set(&mut h, SwInterfaceIp6ndRaConfig { managed: 1, max_interval: 600, ..Default::default() }), 0);
    assert_eq!(set(&mut h, SwInterfaceIp6ndRaConfig { max_interval: 5000, ..Default::default() }), -7);
    let prefix = |is_no| SwInterfaceIp6ndRaPrefix {
        sw_if_index: InterfaceIndex(1),
        prefix: Prefix { address: ip("2001:db8:1::"), len: 64 },
        off_link: true,
        is_no,
        val_lifetime: 100,
        pref_lifetime: 50,
        ..Default::default()
    };
    let prefix = |h: &mut Harness, is_no| code::<_, SwInterfaceIp6ndRaPrefixReply>(h, &table, &prefix(is_no));
    assert_eq!(prefix(&mut h, false), 0);
    let dump = |h: &mut Harness| {
        let answers = ask(h, &table, &bytes(&table, &SwInterfaceIp6ndRaDump { sw_if_index: sw_if_index.clone() }));
        SwInterfaceIp6ndRaDetails::read(&mut Reader::new(&answers[0][6..])).unwrap()
    };
    let details = dump(&mut h);
    assert!(details.send_radv && details.adv_managed_flag && !details.adv_other_flag);
    assert_eq!((details.max_radv_interval, details.prefixes.len()), (600.0, 1));
    let one = &details.prefixes[0];
    assert_eq!((one.onlink_flag, one.autonomous_flag, one.val_lifetime, one.no_advertise), (false, true, 100, false));
    assert_eq!([prefix(&mut h, true), prefix(&mut h, true)], [0, -7]);
    assert_eq!(set(&mut h, SwInterfaceIp6ndRaConfig { managed: 1, max_interval: 1, is_no: true, ..Default::default() }), 0);
    assert_eq!(set(&mut h, SwInterfaceIp6ndRaConfig { suppress: 1, ..Default::default() }), 0);
    let details = dump(&mut h);
    assert!(!details.send_radv && !details.adv_managed_flag && details.prefixes.is_empty());
    assert_eq!(details.max_radv_interval, 200.0);
}

#[test]
fn a_generator_interface_is_made_once_and_own_addresses_name_their_interface() {
    let (mut h, table) = bed();
    let make = PgCreateInterfaceV3 { interface_id: InterfaceIndex(7), ..Default::default() };
    let (one, _) = request::<_, PgCreateInterfaceV3Reply>(&mut h, &table, &make);
    let (again, code) = request::<_, PgCreateInterfaceV3Reply>(&mut h, &table, &make);
    assert_eq!((again.sw_if_index, code), (one.sw_if_index.clone(), 0));
    assert_eq!(set_address(&mut h, &table, one.sw_if_index.0, "172.16.9.1", 24, true), 0);
    // Addresses of an interface that is down have no routes.
    h.router.set_interface_up(quiver_net::IfIndex(one.sw_if_index.0), true).unwrap();
    let lookup = IpRouteLookup { prefix: Prefix { address: ip("172.16.9.1"), len: 32 }, exact: 1, ..Default::default() };
    let (found, _) = request::<_, IpRouteLookupReply>(&mut h, &table, &lookup);
    assert_eq!(found.route.paths[0].sw_if_index, one.sw_if_index.0);
}
