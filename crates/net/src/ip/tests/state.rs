//! What interfaces that come, go and change their addresses or tables do to routes.

use super::*;

#[test]
fn a_link_local_address_can_be_replaced_again_and_again() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 1);
        h.router.set_dad_config(crate::nd::DadConfig { transmits: 0 });
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
