//! The stream of a routing daemon, over real connections in the namespace of a test host.

use std::io::Write as _;
use std::net::TcpStream;

use quiver_net::ops::testing::registry;
use quiver_testbed::Scenario;

use super::bytes::{attribute, message, number, rtmsg};
use super::kernel::{Scene, paths};
use crate::message::kind;

/// A frame with these messages.
fn frame(messages: &[Vec<u8>]) -> Vec<u8> {
    let content = messages.concat();
    let length = (content.len() + 4) as u16;
    [&[1, 1], &length.to_be_bytes()[..], &content].concat()
}

fn connect(scene: &Scene) -> TcpStream {
    scene.host.enter(|| TcpStream::connect("127.0.0.1:2620")).unwrap()
}

fn index(scene: &Scene, name: &str) -> u32 {
    scene.run(&format!("cat /sys/class/net/{name}/ifindex")).trim().parse().unwrap()
}

/// As zebra writes a next hop, a route by it, and the route's end.
fn next_hop(id: u32, link: u32, via: [u8; 4]) -> Vec<u8> {
    message(kind::NEW_NEXT_HOP, &[2, 0, 11, 0, 0, 0, 0, 0], &[number(1, id), attribute(6, &via), number(5, link)])
}

fn route(network: [u8; 4], id: u32) -> Vec<u8> {
    message(kind::NEW_ROUTE, &rtmsg(2, 24, 1), &[attribute(1, &network), number(6, 20), number(30, id)])
}

fn gone(network: [u8; 4]) -> Vec<u8> {
    message(kind::DEL_ROUTE, &rtmsg(2, 24, 0), &[attribute(1, &network), number(6, 20)])
}

#[test]
fn a_daemons_routes_come_by_its_stream_and_stay_for_the_hold_time_when_it_has_gone() {
    let Some(_scenario) = Scenario::begin(&["ip"]) else { return };
    let mut scene = Scene::new("linux-nl { fpm-listen 127.0.0.1:2620 fpm-hold-time 3600 }");
    scene.host.ip("addr add 10.0.0.1/24 dev e0\naddr add 10.0.1.1/24 dev e1").unwrap();
    let (e0, e1) = (index(&scene, "e0"), index(&scene, "e1"));
    let listens = |scene: &mut Scene| scene.command("show lcp fpm").contains(": listening");
    while !listens(&mut scene) {
        scene.harness.router.run_processes(0);
    }
    let mut daemon = connect(&scene);
    // A route may come before its next hop.
    daemon.write_all(&frame(&[route([30, 0, 0, 0], 7)])).unwrap();
    daemon.write_all(&frame(&[next_hop(7, e0, [10, 0, 0, 2])])).unwrap();
    scene.until("a route", |r| paths(r, "30.0.0.0/24") == 1);
    // In pieces, with an update as zebra writes it: the end of a route and the route in one frame.
    let update = [frame(&[next_hop(8, e1, [10, 0, 1, 2])]), frame(&[gone([30, 0, 0, 0]), route([30, 0, 0, 0], 8)])].concat();
    for piece in update.chunks(7) {
        daemon.write_all(piece).unwrap();
    }
    daemon.write_all(&frame(&[route([30, 0, 1, 0], 7), route([30, 0, 2, 0], 7)])).unwrap();
    scene.until("an update", |r| {
        r.route(0, "30.0.0.0/24".parse().unwrap()).unwrap().is_some_and(|r| format!("{r:?}").contains("10.0.1.2"))
    });
    scene.until("more", |r| paths(r, "30.0.2.0/24") == 1);
    daemon.write_all(&frame(&[gone([30, 0, 2, 0])])).unwrap();
    scene.until("one goes", |r| paths(r, "30.0.2.0/24") == 0);
    // The kernel's route for the same prefix waits behind it.
    scene.host.ip("route add 30.0.1.0/24 via 10.0.0.9").unwrap();
    scene.host.ip("route add 30.9.0.0/24 via 10.0.0.9").unwrap();
    scene.until("the kernel's routes", |r| paths(r, "30.9.0.0/24") == 1);
    let shown = scene.command("show ip fib 30.0.1.1");
    assert!(shown.contains("10.0.0.2") && !shown.contains("10.0.0.9"), "{shown}");
    assert!(scene.drift().contains("no difference"));
    // A link that goes down takes them out for that time.
    scene.host.ip("link set e1 down").unwrap();
    scene.until("a link goes down", |r| paths(r, "30.0.0.0/24") == 0);
    scene.host.ip("link set e1 up").unwrap();
    scene.until("it is up again", |r| paths(r, "30.0.0.0/24") == 1);
    let shown = scene.command("show lcp fpm");
    assert!(shown.contains("connected from 127.0.0.1") && shown.contains("next-hop objects 2"), "{shown}");

    // The daemon goes and comes back: what it does not send again goes after the hold time, and not before.
    drop(daemon);
    scene.until("it has gone", |r| crate::control::figures(r)[0].1.fpm.stream.peer.is_none());
    assert_eq!(paths(&scene.harness.router, "30.0.0.0/24"), 1);
    let all = crate::control::figures(&scene.harness.router)[0].1.fpm.held;
    let mut daemon = connect(&scene);
    daemon.write_all(&frame(&[next_hop(7, e0, [10, 0, 0, 2]), route([30, 0, 1, 0], 7)])).unwrap();
    scene.until("one of them is sent again", |r| crate::control::figures(r)[0].1.fpm.held == all - 1);
    assert_eq!(paths(&scene.harness.router, "30.0.0.0/24"), 1);
    scene.command("lcp fpm listen 127.0.0.1:2620 hold-time 0");
    scene.until("what is not sent again", |r| paths(r, "30.0.0.0/24") == 0);
    assert_eq!(
        crate::control::figures(&scene.harness.router)[0].1.fpm.stream.connections,
        2,
        "connections stay where only the time changes"
    );
    assert_eq!(paths(&scene.harness.router, "30.0.1.0/24"), 1);
    // It goes for good: the kernel's route is the one that is left.
    drop(daemon);
    scene.until("the hold time passes", |r| crate::control::figures(r)[0].1.fpm.expired == 2);
    scene.until("the kernel's route", |r| {
        r.route(0, "30.0.1.0/24".parse().unwrap()).unwrap().is_some_and(|r| format!("{r:?}").contains("10.0.0.9"))
    });
    assert!(scene.drift().contains("no difference"));
}

#[test]
fn what_is_no_stream_ends_the_connection_and_nothing_else() {
    let Some(_scenario) = Scenario::begin(&["ip"]) else { return };
    let mut scene = Scene::new("");
    scene.host.ip("addr add 10.0.0.1/24 dev e0").unwrap();
    let e0 = index(&scene, "e0");
    scene.until("the start", |r| crate::control::figures(r).iter().any(|(_, f)| f.comparisons > 0));
    assert!(scene.command("show lcp fpm").contains("listen off"));
    scene.command("lcp fpm listen 127.0.0.1 hold-time 60");
    let kept = quiver_net::ops::testing::configuration(&registry(&[crate::ops::register]), &scene.harness.router);
    assert!(kept.contains("lcp fpm listen 127.0.0.1:2620 hold-time 60"), "{kept}");
    scene.until("it listens", |r| crate::control::figures(r)[0].1.fpm.address.is_some());
    let refused = |scene: &mut Scene, n: u64, bytes: &[u8]| {
        let mut stream = connect(scene);
        stream.write_all(bytes).unwrap();
        scene.until("it is refused", |r| crate::control::figures(r)[0].1.fpm.stream.refused_streams == n);
    };
    refused(&mut scene, 1, b"GET / HTTP/1.1\r\n\r\n");
    refused(&mut scene, 2, &[1, 2, 0, 8, 0, 0, 0, 0]);
    refused(&mut scene, 3, &[1, 1, 0, 2]);
    // Frames whose contents are nonsense, or not for us, are left out; the rest counts.
    let mut daemon = connect(&scene);
    daemon.write_all(&frame(&[vec![0xff; 40]])).unwrap();
    daemon.write_all(&frame(&[message(kind::DEL_LINK, &[0, 0, 1, 0, e0 as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[])])).unwrap();
    let members = [7_u32.to_ne_bytes(), [0; 4]].concat().repeat(300);
    let group = message(kind::NEW_NEXT_HOP, &[0; 8], &[number(1, 9), attribute(2, &members)]);
    daemon.write_all(&frame(&[group])).unwrap();
    daemon.write_all(&frame(&[next_hop(7, e0, [10, 0, 0, 2]), route([30, 0, 0, 0], 7)])).unwrap();
    scene.until("the route", |r| paths(r, "30.0.0.0/24") == 1);
    let shown = scene.command("show lcp fpm");
    assert!(shown.contains("1 malformed, 1 ignored, 1 too many") && shown.contains("refused 3"), "{shown}");
    // A second connection takes the place of the first; the address may change; off takes the routes away.
    let _second = connect(&scene);
    scene.until("the second one", |r| crate::control::figures(r)[0].1.fpm.stream.connections == 5);
    scene.command("lcp fpm listen 127.0.0.1:2621");
    scene.until("another port", |r| crate::control::figures(r)[0].1.fpm.address.as_deref() == Some("127.0.0.1:2621"));
    assert_eq!(paths(&scene.harness.router, "30.0.0.0/24"), 1, "within the hold time");
    scene.command("lcp fpm listen off");
    scene.until("off", |r| paths(r, "30.0.0.0/24") == 0);
}
