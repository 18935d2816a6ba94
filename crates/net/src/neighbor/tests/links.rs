//! Links that go down and come back, addresses that come beside others.

use quiver_graph::Link;

use super::*;

fn set_link(h: &mut Harness, index: IfIndex, up: bool) {
    h.router.set_link(index, Link { up, speed: None });
}

#[test]
fn neighbours_stay_while_their_link_is_down_and_are_asked_when_it_is_back() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 2);
        let mut time = Time::new(&h);
        h.exchange(x[1], &arp_request((host_mac(1), host(1, 2)), host(1, 1)));
        time.settle(&mut h);
        h.exchange(x[0], &packet(host(1, 3), 1));
        time.settle(&mut h);
        h.assert_buffers_held(1);
        set_link(&mut h, x[1], false);
        time.settle(&mut h);
        h.assert_buffers_held(0);
        assert!(h.router.neighbor(x[1], host(1, 3).into()).is_none(), "nobody knows who that is");
        assert!(packets(&h.exchange(x[0], &packet(host(1, 2), 2))).is_empty());
        time.pass(&mut h, 60);
        assert_eq!(h.router.neighbor(x[1], host(1, 2).into()).unwrap().state, State::Stale);
        set_link(&mut h, x[1], true);
        assert_eq!(packets(&h.exchange(x[0], &packet(host(1, 2), 3))), [(host_mac(1), 3)], "at once");
        let asked = requests(&time.settle(&mut h));
        assert_eq!((asked[0].1, asked[0].2.target_ip()), (host_mac(1), host(1, 2)), "it alone is asked");
        assert_eq!(packets(&h.exchange(x[0], &packet(host(1, 2), 4))), [(host_mac(1), 4)]);
        h.exchange(x[1], &arp_reply(1, (host_mac(1), host(1, 2))));
        time.settle(&mut h);
        assert_eq!(h.router.neighbor(x[1], host(1, 2).into()).unwrap().state, State::Reachable);
        // One that is not there any more is forgotten.
        set_link(&mut h, x[1], false);
        set_link(&mut h, x[1], true);
        time.pass(&mut h, 4);
        assert!(h.router.neighbor(x[1], host(1, 2).into()).is_none());
        h.assert_buffers_held(0);
    }
}

#[test]
fn the_first_address_of_a_link_asks_until_it_goes() {
    let (mut h, x) = bed(0, 2);
    let time = Time::new(&h);
    h.router.add_address(x[1], host(1, 77).into(), 24).unwrap();
    time.settle(&mut h);
    let sender = |h: &mut Harness, n| requests(&h.exchange(x[0], &packet(host(1, n), 1)))[0].2.sender_ip();
    assert_eq!(sender(&mut h, 2), host(1, 1));
    h.router.remove_address(x[1], host(1, 1).into(), 24).unwrap();
    time.settle(&mut h);
    assert_eq!(sender(&mut h, 3), host(1, 77));
}

#[test]
fn the_other_end_of_a_link_of_two_is_asked_for_at_once_and_when_the_link_is_back() {
    let (mut h, x) = bed(0, 2);
    let time = Time::new(&h);
    time.settle(&mut h);
    let other = Ipv4Addr::new(10, 200, 0, 6);
    h.router.add_address(x[1], "10.200.0.7".parse().unwrap(), 31).unwrap();
    let asked = |frames: Vec<(IfIndex, Vec<u8>)>| requests(&frames).into_iter().any(|r| r.2.target_ip() == other);
    assert!(asked(time.settle(&mut h)));
    h.exchange(x[1], &arp_reply(1, (host_mac(1), other)));
    h.router.remove_neighbor(x[1], other.into()).unwrap_or_default();
    set_link(&mut h, x[1], false);
    set_link(&mut h, x[1], true);
    assert!(asked(time.settle(&mut h)));
}

#[test]
fn a_neighbour_of_127_is_set_by_hand_only() {
    let (mut h, x) = bed(0, 1);
    let address = "127.0.0.1".parse().unwrap();
    h.router.add_neighbor(x[0], address, host_mac(0), true, false).unwrap();
    assert!(h.router.neighbor(x[0], address).is_some());
    assert!(h.router.add_neighbor(x[0], "0.0.0.0".parse().unwrap(), host_mac(0), true, false).is_err());
}
