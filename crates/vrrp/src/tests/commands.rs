//! Commands: what they refuse, what they show, and what is configured again.

use quiver_net::ip::FamilyId;
use quiver_net::ops::testing::assert_rebuilt;
use quiver_net::testing::Harness;

use super::{bed, error, routers, run, x0};

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let mut h = bed(0);
    let mut refused = |line: &str, why: &str| {
        let error = error(&mut h, line);
        assert!(error.contains(why) && !error.contains('\n'), "{line}: {error}");
    };
    refused("vrrp vr add x0 vr_id 1", "at least one address");
    refused("vrrp vr add x9 vr_id 1 10.0.0.100", "x9");
    refused("vrrp vr add x0 vr_id 0 10.0.0.100", "1 to 255");
    refused("vrrp vr add x0 vr_id 1 priority 0 10.0.0.100", "1 to 255");
    refused("vrrp vr add x0 vr_id 1 interval 4096 10.0.0.100", "1 to 4095");
    refused("vrrp vr add x0 vr_id 1 10.0.0.100 2001:db8::100", "other family");
    refused("vrrp vr add x0 vr_id 1 ipv6 10.0.0.100", "other family");
    refused("vrrp vr add x0 vr_id 1 10.0.0.100 10.0.0.100", "not twice");
    refused("vrrp vr add x0 vr_id 1 224.0.0.1", "cannot be a virtual address");
    refused("vrrp vr add x0 vr_id 1 priority 255 10.0.0.100", "x0 has no 10.0.0.100");
    refused("vrrp vr add x0 vr_id 1 10.0.0.1", "priority 255");
    refused("vrrp vr add x0 10.0.0.100", "vr_id");
    run(&mut h, "vrrp vr add x0 vr_id 1 10.0.0.100");
    let mut refused = |line: &str, why: &str| {
        let error = error(&mut h, line);
        assert!(error.contains(why) && !error.contains('\n'), "{line}: {error}");
    };
    refused("vrrp vr add x0 vr_id 1 10.0.0.101", "already");
    refused("vrrp vr add x0 vr_id 2 10.0.0.100", "virtual router 1 has 10.0.0.100");
    refused("vrrp peers x0 vr_id 1 10.0.0.2", "only a unicast");
    refused("vrrp vr track-if add x0 vr_id 1 track-index x1 priority 100", "less than the priority");
    refused("vrrp vr track-if add x0 vr_id 1 track-index x9 priority 10", "x9");
    refused("vrrp vr track-if del x0 vr_id 1 track-index x1 priority 10", "not tracked");
    for line in ["vrrp vr del x0 vr_id 2", "vrrp proto start x0 vr_id 1 ipv6", "vrrp peers x1 vr_id 1 10.0.1.2"] {
        refused(line, "no virtual router");
    }
    assert_eq!(routers(&mut h).len(), 1);
}

#[test]
fn virtual_routers_are_shown() {
    let mut h = bed(0);
    run(
        &mut h,
        "vrrp vr add x0 vr_id 7 interval 50 priority 150 10.0.0.100 10.0.0.101\nvrrp vr add x1 vr_id 7 ipv6 accept_mode fe80::7",
    );
    run(&mut h, "vrrp vr track-if add sw_if_index 1 vr_id 7 track-index 2 priority 20");
    let text = run(&mut h, "show vrrp vr");
    for part in [
        "[0] x0 sw_if_index 1 VR ID 7 IPv4",
        "state Initialize flags: preempt yes accept no unicast no",
        "priority: configured 150 adjusted 150",
        "timers: adv interval 50 master adv 50 skew 21 master down 171",
        "virtual MAC 00:00:5e:00:01:07",
        "addresses 10.0.0.100 10.0.0.101",
        "tracked interfaces x1 sw_if_index 2 priority 20 up",
        "[1] x1 sw_if_index 2 VR ID 7 IPv6",
        "virtual MAC 00:00:5e:00:02:07",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let only = run(&mut h, "show vrrp vr x1");
    assert!(only.contains("IPv6") && !only.contains("IPv4"), "{only}");
    assert_eq!(run(&mut h, "show vrrp vr sw_if_index 2"), only);
}

#[test]
fn virtual_routers_are_configured_again_as_they_were() {
    assert_rebuilt(
        &[crate::ops::register],
        || Harness::with_plugin(&crate::plugin(), 1, 0),
        "create packet-generator interface pg0
         create packet-generator interface pg1
         set interface ip address pg0 10.0.0.1/24
         set interface ip address pg0 2001:db8::1/64
         vrrp vr add pg0 vr_id 7 priority 200 interval 50 no_preempt accept_mode 10.0.0.100 10.0.0.101
         vrrp vr add pg0 vr_id 7 ipv6 fe80::100 2001:db8::100
         vrrp vr add pg0 vr_id 8 priority 255 10.0.0.1
         vrrp vr add pg0 vr_id 9 unicast 10.0.0.109
         vrrp peers pg0 vr_id 9 10.0.0.2 10.0.0.3
         vrrp vr track-if add pg0 vr_id 7 track-index pg1 priority 30
         vrrp proto start pg0 vr_id 7
         vrrp proto start pg0 vr_id 9",
        &[],
    );
}

#[test]
fn the_groups_of_virtual_routers_are_listened_to_while_they_are_configured() {
    let groups = |h: &Harness, family| {
        let of_vrrp = |listened: &quiver_net::group::Listened| listened.users.contains(&"vrrp");
        let all = h.router.groups(x0(h), family).into_iter().filter(of_vrrp);
        all.map(|listened| listened.group.to_string()).collect::<Vec<_>>()
    };
    let mut h = bed(0);
    run(
        &mut h,
        "vrrp vr add x0 vr_id 7 10.0.0.100\nvrrp vr add x0 vr_id 8 10.0.0.101\nvrrp vr add x0 vr_id 7 2001:db8::100 2001:db8::101",
    );
    assert_eq!(groups(&h, FamilyId::V4), ["224.0.0.18"]);
    assert_eq!(groups(&h, FamilyId::V6), ["ff02::12", "ff02::1:ff00:100", "ff02::1:ff00:101"]);
    run(&mut h, "vrrp vr del x0 vr_id 7\nvrrp vr del x0 vr_id 7 ipv6");
    assert_eq!((groups(&h, FamilyId::V4), groups(&h, FamilyId::V6)), (vec!["224.0.0.18".to_owned()], vec![]));
    run(&mut h, "vrrp vr del x0 vr_id 8");
    assert_eq!(groups(&h, FamilyId::V4), Vec::<String>::new());
}
