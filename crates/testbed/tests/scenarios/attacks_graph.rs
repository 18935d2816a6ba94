//! Configurations and frames that would keep a thread for good: refused, or ended by what ends them.

use std::time::Duration;

use crate::common::{assert_buffers_are_back, counter, errors, eventually, workers};
use quiver_testbed::{Host, LinkOptions, Offloads, Router, Scenario};

const PATIENCE: Duration = Duration::from_secs(60);

/// A host on a wire to a router with two loopbacks, everything up.
fn bed(workers: u32, commands: &str) -> (Host, Router) {
    let (a, middle) = (Host::new("a").unwrap(), Host::new("router").unwrap());
    let options = LinkOptions { offloads: Offloads::Off, macs: [Some([2, 0, 0, 0, 1, 2]), None], ..Default::default() };
    a.veth("eth0", &middle, "r0", &options).unwrap();
    middle.disable_ipv6("r0").unwrap();
    a.disable_ipv6("eth0").unwrap();
    let cpu = if workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}") };
    let router = Router::start(&middle, &cpu).expect("router");
    let base = "create host-interface name r0\nset interface state host-r0 up\n\
        create loopback interface\ncreate loopback interface\nset interface state loop0 up\nset interface state loop1 up\n";
    router.script(&format!("{base}{commands}")).expect("configuration");
    (a, router)
}

fn frame(dst: [u8; 6], ether_type: [u8; 2], payload: &[u8]) -> Vec<u8> {
    let mut frame = [dst.as_slice(), &[2, 0, 0, 0, 1, 2], &ether_type, payload].concat();
    frame.resize(60.max(frame.len()), 0);
    frame
}

/// Two cross-connected loopbacks and one frame stopped the whole router: the worker never left its iteration, and the
/// command line waited for the worker.
#[test]
fn cross_connected_loopbacks_are_refused_and_the_router_answers() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for workers in workers() {
        let (a, router) = bed(*workers, "set interface l2 xconnect host-r0 loop0\nset interface l2 xconnect loop0 loop1");
        for (line, says) in [
            ("set interface l2 xconnect loop1 loop0", "circle"),
            ("set interface l2 xconnect loop1 loop1", "cannot be cross-connected"),
            ("set interface l2 bridge loop1 5", "can only be a bvi"),
        ] {
            let error = router.cli(line).expect_err(line);
            assert!(error.contains(says) && error.trim_end().lines().count() == 1, "{line}: {error}");
        }
        let raw = a.raw("eth0").unwrap();
        for _ in 0..10 {
            raw.send(&frame([0xff; 6], [8, 6], &[0; 46])).unwrap();
            raw.send(&frame([2, 0, 0, 0, 0, 1], [8, 0], &[0; 46])).unwrap();
        }
        eventually("the frames have come to the last loopback", PATIENCE, || counter(&router, "loop1", "tx packets") == 20);
        assert_eq!(errors(&router, "packet-loop", "packet loop"), 0);
        eventually("the watchdog has looked at main", PATIENCE, || router.cli("show watchdog").unwrap().contains("quiver_main"));
        assert!(!router.cli("show watchdog").unwrap().contains("stuck"));
        assert_buffers_are_back(&router);
        router.stop().unwrap();
    }
}

/// A route that leads into a loopback and back takes the TTL, and so ends by itself: all of it within one iteration.
#[test]
fn a_loop_of_routes_over_a_loopback_ends_by_the_ttl_and_not_as_a_packet_loop() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for workers in workers() {
        let (a, router) = bed(
            *workers,
            "set interface ip address host-r0 10.1.0.1/24\nset interface ip address loop0 10.2.0.1/24\n\
             set ip neighbor loop0 10.2.0.2 de:ad:00:00:00:00\nip route add 10.9.0.0/16 via 10.2.0.2 loop0\n\
             set interface mac address host-r0 02:fe:00:00:00:01",
        );
        let mut header = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 255, 17, 0, 0, 10, 1, 0, 2, 10, 9, 0, 1];
        let sum = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header.extend([0, 7, 0, 7, 0, 8, 0, 0]);
        let raw = a.raw("eth0").unwrap();
        for _ in 0..5 {
            raw.send(&frame([2, 0xfe, 0, 0, 0, 1], [8, 0], &header)).unwrap();
        }
        eventually("all have gone round till their TTL was gone", PATIENCE, || counter(&router, "loop0", "tx packets") >= 5 * 253);
        assert_eq!(errors(&router, "packet-loop", "packet loop"), 0);
        assert_buffers_are_back(&router);
        router.stop().unwrap();
    }
}
