//! Interfaces on both sides, packets that pass untranslated, protocols without ports, connections that begin in their midst.

use super::*;

const POOL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);

#[test]
fn a_host_keeps_its_port_where_nobody_else_has_it() {
    let mut bed = Bed::usual(0);
    for port in [1024, 4500, 65_535] {
        assert_eq!(bed.out(from_inside(2).udp(port, 53)).from(), (POOL, port));
        assert_ne!(bed.out(from_inside(3).udp(port, 53)).from(), (POOL, port), "it is taken");
    }
    assert!(bed.out(from_inside(2).udp(500, 53)).sport >= 1024, "of a service");
}

#[test]
fn a_pool_makes_the_table_that_it_is_for() {
    let mut bed = Bed::usual(0);
    assert!(error(&mut bed.h, "nat44 add address 198.51.100.10 tenant-vrf 9").contains("198.51.100.10"));
    assert!(!run(&mut bed.h, "show ip table").contains("table_id:9"), "what is refused makes none");
    run(&mut bed.h, "nat44 add address 198.51.100.13 tenant-vrf 9");
    assert!(run(&mut bed.h, "show ip table").contains("table_id:9"));
}
