//! A port that is flooded with source addresses, and what others keep.

use super::*;

#[test]
fn a_flooded_port_fills_its_own_share_and_others_learn_on() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 3);
        h.router.set_port_learn_limit(x[0], 50).unwrap();
        let (honest, other) = (mac(1_000_000), mac(2_000_000));
        send(&mut h, x[0], &frame(honest, MacAddr::BROADCAST));
        for block in 0..20 {
            let flood: Vec<Vec<u8>> = (0..100).map(|n| frame(mac(block * 100 + n), MacAddr::BROADCAST)).collect();
            h.inject_many(x[0], &flood, block as usize);
            h.run();
            settle(&mut h);
        }
        let port = |h: &Harness, at: IfIndex| h.router.bridge_domain(10).unwrap().port(at).unwrap().learned;
        assert_eq!((port(&h, x[0]), h.router.mac_counts()), (50, (50, 50)));
        assert!(h.count("l2-bridge", "L2 not learned due to limit") > 1000, "{:?}", h.counts());
        // Whoever was there before is still known, and whoever comes on another port is learned.
        assert_eq!(send(&mut h, x[1], &frame(other, honest)), [x[0]]);
        assert_eq!(send(&mut h, x[2], &frame(mac(3_000_000), other)), [x[1]]);
        // A new host of the full port is reached all the same, by flooding.
        let late = mac(4_000_000);
        send(&mut h, x[0], &frame(late, MacAddr::BROADCAST));
        assert_eq!(send(&mut h, x[1], &frame(other, late)), [x[0], x[2]]);
        // The flood cannot take an address from another port while its own is full.
        send(&mut h, x[0], &frame(other, MacAddr::BROADCAST));
        assert_eq!(send(&mut h, x[2], &frame(mac(3_000_000), other)), [x[1]]);
        // Addresses that are removed make room again.
        h.router.delete_mac(10, honest).unwrap();
        send(&mut h, x[0], &frame(late, MacAddr::BROADCAST));
        assert_eq!(send(&mut h, x[1], &frame(other, late)), [x[0]]);
        h.assert_buffers_held(0);
    }
}

#[test]
fn addresses_of_a_new_domain_are_forgotten_after_five_silent_minutes() {
    let (mut h, x) = bed(0, 2);
    let start = h.router.graph.clock().timer_now();
    send(&mut h, x[0], &frame(mac(1), MacAddr::BROADCAST));
    settle_at(&mut h, start + 290 * SECOND);
    assert_eq!(h.router.mac_counts(), (1, 1));
    settle_at(&mut h, start + 320 * SECOND);
    assert_eq!(h.router.mac_counts(), (0, 0));
}

#[test]
fn counts_of_ports_follow_moves_flushes_and_configured_addresses() {
    let (mut h, x) = bed(0, 3);
    for n in 0..5 {
        send(&mut h, x[0], &frame(mac(n), MacAddr::BROADCAST));
    }
    send(&mut h, x[1], &frame(mac(0), MacAddr::BROADCAST));
    h.router.add_mac(10, mac(1), MacKind::Static(x[2])).unwrap();
    let counts = |h: &Harness| [0, 1, 2].map(|n: usize| h.router.bridge_domain(10).unwrap().port(x[n]).unwrap().learned);
    assert_eq!((counts(&h), h.router.mac_counts()), ([3, 1, 0], (5, 4)));
    h.router.flush_macs(Flush::Interface(x[0])).unwrap();
    assert_eq!((counts(&h), h.router.mac_counts()), ([0, 1, 0], (2, 1)));
    h.router.set_port_learn_limit(x[0], 0).unwrap_err();
    h.router.set_port_learn_limit(IfIndex(99), 5).unwrap_err();
}
