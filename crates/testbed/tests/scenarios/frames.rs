//! Raw frames, captures, and kernel hosts that speak VLAN.

use std::time::Duration;

use quiver_testbed::{Host, LinkOptions, Offloads, Scenario, Tag};

const QUIET: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(60);

/// Broadcast, a local source, an experimental type (RFC 5342), then `payload`.
fn frame(tags: &[Tag], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, 1]);
    for tag in tags {
        bytes.extend(tag.tpid.to_be_bytes());
        bytes.extend(tag.vid.to_be_bytes());
    }
    bytes.extend([0x88, 0xb5]);
    bytes.extend(payload);
    bytes
}

/// Two hosts whose kernels keep quiet, so that every frame is the test's.
fn quiet_pair() -> (Host, Host) {
    let (a, b) = (Host::new("a").unwrap(), Host::new("b").unwrap());
    for host in [&a, &b] {
        host.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
    }
    a.veth("eth0", &b, "eth0", &LinkOptions::default()).unwrap();
    (a, b)
}

#[test]
fn frames_arrive_as_sent_with_any_number_of_tags() {
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let (a, b) = quiet_pair();
    let (from, mut to) = (a.raw("eth0").unwrap(), b.raw("eth0").unwrap());
    let tags = [Tag::dot1ad(100), Tag::dot1q(10), Tag::dot1q(4095)];
    for count in 0..=tags.len() {
        // Without two bytes behind a tag the receiving kernel drops the frame as cut off.
        for length in [2, 46, 47, 1400] {
            let sent = frame(&tags[..count], &vec![0xa5; length]);
            from.send(&sent).unwrap();
            assert_eq!(to.recv(LONG).unwrap().as_deref(), Some(&sent[..]), "{count} tags, {length} bytes");
        }
    }
    assert_eq!(to.drain(QUIET).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn a_port_does_not_see_what_it_sends() {
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let (a, _b) = quiet_pair();
    let mut port = a.raw("eth0").unwrap();
    port.send(&frame(&[], b"echo?")).unwrap();
    assert_eq!(port.recv(QUIET).unwrap(), None);
    assert!(port.send(&[0; 4]).is_err(), "shorter than an Ethernet header");
    assert!(a.raw("no-such").is_err());
}

#[test]
fn frames_between_can_be_skipped() {
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let (a, b) = quiet_pair();
    let (from, mut to) = (a.raw("eth0").unwrap(), b.raw("eth0").unwrap());
    for number in 0..5 {
        from.send(&frame(&[], &[number])).unwrap();
    }
    let third = to.recv_matching(LONG, |frame| frame[14] == 3).unwrap().unwrap();
    assert_eq!(third[14], 3);
    assert_eq!(to.recv(LONG).unwrap().expect("the fourth is left")[14], 4);
    assert_eq!(to.drain(QUIET).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn a_capture_holds_both_directions() {
    let Some(_scenario) = Scenario::begin(&[]) else {
        return;
    };
    let (a, b) = quiet_pair();
    let path = std::env::temp_dir().join(format!("quiver-capture-{}.pcap", std::process::id()));
    let capture = b.capture("eth0", &path).unwrap();
    let (mut left, mut right) = (a.raw("eth0").unwrap(), b.raw("eth0").unwrap());
    left.send(&frame(&[Tag::dot1q(7)], b"there")).unwrap();
    right.send(&frame(&[], b"and back")).unwrap();
    assert!(right.recv(LONG).unwrap().is_some() && left.recv(LONG).unwrap().is_some());
    assert_eq!(capture.path(), path);
    let count = capture.stop().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(count, 2);
    let (first, second) = (frame(&[Tag::dot1q(7)], b"there"), frame(&[], b"and back"));
    assert_eq!(bytes.len(), 24 + 16 + first.len() + 16 + second.len());
    assert_eq!(&bytes[24 + 16..][..first.len()], &first[..]);
}

#[test]
fn tagged_kernel_hosts_ping_each_other_and_nobody_else() {
    let Some(_scenario) = Scenario::begin(&["ping", Scenario::BPF]) else {
        return;
    };
    for tags in [vec![Tag::dot1q(10)], vec![Tag::dot1ad(100), Tag::dot1q(10)]] {
        let (a, b) = (Host::new("a").unwrap(), Host::new("b").unwrap());
        a.veth("eth0", &b, "eth0", &LinkOptions::default()).unwrap();
        a.address("eth0", "10.9.0.1/24").unwrap();
        b.address("eth0", "10.9.0.2/24").unwrap();
        let near = a.speak_vlan("eth0", &tags).unwrap();
        assert!(!a.pings("10.9.0.2", 1).unwrap(), "only one end is tagged: {tags:?}");
        let other = [Tag::dot1q(11), tags[tags.len() - 1]];
        let far = b.speak_vlan("eth0", &other[..tags.len()]).unwrap();
        assert!(!a.pings("10.9.0.2", 1).unwrap(), "another VLAN: {tags:?}");
        drop(far);
        // The kernel gives up on an address that did not answer, for a while.
        a.flush_neighbours("eth0").unwrap();
        let far = b.speak_vlan("eth0", &tags).unwrap();
        assert!(a.reaches("10.9.0.2", 5).unwrap(), "{tags:?}");
        let full = a.run("ping -n -q -M do -s 1472 -c 2 -i 0.2 -W 60 10.9.0.2", LONG).unwrap();
        assert!(full.success(), "tags do not count against the MTU: {full}");
        drop((near, far));
        assert!(a.reaches("10.9.0.2", 5).unwrap(), "plain again");
    }
}

#[test]
fn tags_are_on_the_wire_outermost_first() {
    let Some(_scenario) = Scenario::begin(&["ping", Scenario::BPF]) else {
        return;
    };
    let (a, b) = quiet_pair();
    a.address("eth0", "10.9.0.1/24").unwrap();
    let tags = [Tag::dot1ad(100), Tag::dot1q(10)];
    let _push = a.push_vlan_on_egress("eth0", &tags).unwrap();
    let _pop = a.pop_vlan_on_ingress("eth0", &tags).unwrap();
    let mut wire = b.raw("eth0").unwrap();
    assert!(!a.pings("10.9.0.2", 1).unwrap(), "nobody answers");
    let request = wire.recv(LONG).unwrap().expect("an ARP request");
    assert_eq!(&request[12..22], &[0x88, 0xa8, 0, 100, 0x81, 0, 0, 10, 0x08, 0x06]);
}

#[test]
fn tcp_crosses_a_tagged_link_with_offloads_on_and_off() {
    let Some(_scenario) = Scenario::begin(&["iperf3", Scenario::BPF]) else {
        return;
    };
    for offloads in [Offloads::On, Offloads::Off] {
        let (a, b) = (Host::new("a").unwrap(), Host::new("b").unwrap());
        a.veth("eth0", &b, "eth0", &LinkOptions { offloads, ..LinkOptions::default() }).unwrap();
        a.address("eth0", "10.9.0.1/24").unwrap();
        b.address("eth0", "10.9.0.2/24").unwrap();
        let tags = [Tag::dot1ad(100), Tag::dot1q(10)];
        let _tagged = [a.speak_vlan("eth0", &tags).unwrap(), b.speak_vlan("eth0", &tags).unwrap()];
        let _server = b.background("iperf3 -s -1").unwrap();
        assert!(b.wait_for_listener(5201, LONG).unwrap());
        let sent = a.run("iperf3 -c 10.9.0.2 -n 50M --connect-timeout 60000", Duration::from_secs(120)).unwrap();
        sent.expect("iperf3");
    }
}
