//! What interfaces that come, go and change their addresses or tables do to routes.

use super::*;
use crate::fib::{Class, FibError};

#[test]
fn a_link_local_address_can_be_replaced_again_and_again() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 1);
        h.router.set_dad_config(crate::nd::DadConfig { transmits: 0, ..Default::default() });
        h.router.neighbor_update(x[0], ip("fe80::99"), Some(host_mac(0))).unwrap();
        let echo = |from: &str, to: &str| {
            let (IpAddr::V6(from), IpAddr::V6(to)) = (ip(from), ip(to)) else { panic!("IPv6") };
            quiver_wire::build::Packet::ethernet(host_mac(0), router_mac(0)).ipv6(from, to).echo_request(1, 1).build()
        };
        let answered = |h: &mut Harness, own: &str| {
            let out = h.exchange(x[0], &echo("fe80::99", own));
            out.iter().any(|(i, f)| *i == x[0] && f[..6] == host_mac(0).0 && f[54] == 129)
        };
        let mut own: IpAddr = router_mac(0).link_local().into();
        let adjacencies = h.router.adjacencies().len();
        for new in ["fe80::1", "fe80::2", "fe80::3"] {
            h.router.add_address(x[0], ip(new), 128).unwrap();
            h.router.remove_address(x[0], own, 128).unwrap();
            assert!(answered(&mut h, new), "{new}: {:?}", h.counts());
            assert!(!answered(&mut h, &own.to_string()), "{own} is ours no more");
            own = ip(new);
        }
        assert_eq!(h.router.adjacencies().len(), adjacencies, "addresses that went leave nothing");
        // Somebody whom nobody knows is asked for in the name of the address that is left.
        let out = h.exchange(x[0], &echo("fe80::98", "fe80::3"));
        assert!(out.iter().any(|(_, f)| f[54] == 135), "{:?}", h.counts());
    }
}

#[test]
fn an_interface_that_is_down_leaves_its_prefix_to_other_routes() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 3);
        for (covering, host, own) in [("10.0.0.0/15", "10.0.1.9", "10.0.1.1"), ("2001:db8::/32", "2001:db8:1::9", "2001:db8:1::1")]
        {
            let via = if host.contains(':') { ip("2001:db8:2::2") } else { ip("10.0.2.2") };
            h.router.add_route(0, prefix(covering), Source::Cli, vec![Path::neighbor(x[2], via)]).unwrap();
            let routes = |h: &Harness| {
                let all = h.router.routes(FamilyId::of(&via), 0, None, 1000).unwrap();
                all.into_iter().map(|r| (r.prefix, r.sources[0].source, r.sources[0].paths.clone())).collect::<Vec<_>>()
            };
            let before = routes(&h);
            h.router.set_interface_up(x[1], false).unwrap();
            let from = if host.contains(':') { "2001:db8::2" } else { "10.0.0.2" };
            for to in [host, own] {
                let frame = Packet::new(from, to).frame(host_mac(0), router_mac(0));
                let expected = [(x[2], forwarded(&frame, router_mac(2), host_mac(2)))];
                assert_eq!(h.exchange(x[0], &frame), expected, "{to}: {:?}", h.counts());
            }
            // Addresses that come and go meanwhile bring no routes.
            let other = if host.contains(':') { (ip("2001:db8:7::1"), 64) } else { (ip("10.0.7.1"), 24) };
            h.router.add_address(x[1], other.0, other.1).unwrap();
            assert_eq!(h.router.route_lookup(0, other.0).unwrap().interface, Some(x[2]));
            h.router.remove_address(x[1], other.0, other.1).unwrap();
            h.router.set_interface_up(x[1], true).unwrap();
            assert_eq!(h.router.route_lookup(0, ip(own)).unwrap().buckets[0].class(), Class::Receive);
            h.router.neighbor_update(x[1], ip("10.0.1.2"), Some(host_mac(1))).unwrap();
            h.router.neighbor_update(x[1], ip("2001:db8:1::2"), Some(host_mac(1))).unwrap();
            assert_eq!(routes(&h), before);
            h.router.remove_route(0, prefix(covering), Source::Cli, None).unwrap();
        }
        h.run();
        h.assert_buffers_held(0);
    }
}

#[test]
fn routes_of_a_sub_interface_go_with_the_interface_that_carries_it() {
    use crate::interface::{SubMatch, VlanId};
    let (mut h, x) = bed(0, 1);
    let matching = SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(7), inner: None, exact: true };
    let sub = h.router.create_sub_interface(x[0], 7, matching).unwrap();
    h.router.add_address(sub, ip("10.7.0.1"), 24).unwrap();
    let len = |h: &Harness| h.router.route_lookup(0, ip("10.7.0.9")).unwrap().prefix_len;
    assert_eq!(len(&h), 0, "it has never been up");
    h.router.set_interface_up(sub, true).unwrap();
    assert_eq!(len(&h), 24);
    h.router.set_interface_up(x[0], false).unwrap();
    assert_eq!(len(&h), 0);
    h.router.set_interface_up(x[0], true).unwrap();
    assert_eq!(len(&h), 24);
}

#[test]
fn an_automatic_link_local_address_keeps_no_interface_in_its_table() {
    let (mut h, x) = bed(0, 1);
    h.router.add_table(FamilyId::V6, Some(7), None).unwrap();
    let refused = h.router.set_interface_table(x[0], FamilyId::V6, 7);
    assert!(matches!(refused, Err(FibError::HasAddresses(_))));
    h.router.remove_address(x[0], ip("2001:db8::1"), 64).unwrap();
    h.router.set_interface_table(x[0], FamilyId::V6, 7).unwrap();
    h.router.add_address(x[0], ip("2001:db8::1"), 64).unwrap();
    assert_eq!(h.router.route_lookup(7, ip("2001:db8::1")).unwrap().buckets[0].class(), Class::Receive);
}

#[test]
fn a_table_in_use_can_be_deleted_and_goes_with_its_last_interface() {
    let (mut h, x) = bed(0, 2);
    let exists = |h: &Harness| h.router.tables(FamilyId::V4).iter().any(|t| t.id == 7);
    for by_deletion in [false, true] {
        h.router.add_table(FamilyId::V4, Some(7), None).unwrap();
        for index in &x {
            for (address, len) in h.router.interfaces.get(*index).unwrap().addresses.clone() {
                h.router.remove_address(*index, address, len).unwrap();
            }
            h.router.set_interface_table(*index, FamilyId::V4, 7).unwrap();
        }
        h.router.add_address(x[0], ip("10.0.0.1"), 24).unwrap();
        let via = vec![Path::neighbor(x[0], ip("10.0.0.2"))];
        h.router.add_route(7, prefix("192.0.2.0/24"), Source::Cli, via).unwrap();
        h.router.remove_table(FamilyId::V4, 7).unwrap();
        assert_eq!(h.router.route_lookup(7, ip("192.0.2.1")).unwrap().prefix_len, 0, "routes that users set are gone");
        assert_eq!(h.router.route_lookup(7, ip("10.0.0.9")).unwrap().prefix_len, 24, "interfaces go on");
        h.router.set_interface_table(x[1], FamilyId::V4, 0).unwrap();
        assert!(exists(&h));
        if by_deletion {
            h.router.delete_interface(x[0]).unwrap();
        } else {
            // Wanted again before the last interface leaves: it stays, and is deleted at once afterwards.
            h.router.add_table(FamilyId::V4, Some(7), None).unwrap();
            h.router.remove_address(x[0], ip("10.0.0.1"), 24).unwrap();
            h.router.set_interface_table(x[0], FamilyId::V4, 0).unwrap();
            assert!(exists(&h));
            h.router.remove_table(FamilyId::V4, 7).unwrap();
        }
        assert!(!exists(&h));
    }
    assert_eq!(h.router.remove_table(FamilyId::V4, 7), Err(FibError::NoTable { family: FamilyId::V4, id: 7 }));
}
