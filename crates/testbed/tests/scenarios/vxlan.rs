//! A VXLAN tunnel to Linux' own, and copies of its frames for a monitor.

use std::time::Duration;

use crate::common;

use common::{BOUND, assert_buffers_are_back, eventually, iperf3, workers};
use quiver_testbed::{Host, LinkOptions, Router, Scenario, skip_for_kernel};

/// A host with a tunnel of its own behind `r0`, a host without one behind `r1`, a monitor behind `r2`.
struct Scene {
    far: Host,
    near: Host,
    monitor: Host,
    middle: Host,
}

impl Scene {
    fn new() -> Self {
        let [far, near, monitor, middle] = ["far", "near", "monitor", "router"].map(|name| Host::new(name).unwrap());
        for (n, host) in [&far, &near, &monitor].into_iter().enumerate() {
            let port = format!("r{n}");
            host.veth("eth0", &middle, &port, &LinkOptions::default()).unwrap();
            middle.disable_ipv6(&port).unwrap();
        }
        monitor.disable_ipv6("eth0").unwrap();
        far.address("eth0", "192.0.2.2/24").unwrap();
        far.address("eth0", "2001:db8::2/64").unwrap();
        Self { far, near, monitor, middle }
    }

    /// The segment, 10.9.0.0/24, over the network between the router and the host `far`.
    fn segment(&self, local: &str, remote: &str) -> std::io::Result<()> {
        self.far
            .ip(&format!("link add vx type vxlan id 13 local {local} remote {remote} dstport 4789\nlink set vx mtu 1400 up"))?;
        self.far.address("vx", "10.9.0.2/24")?;
        self.near.ip("link set eth0 mtu 1400")?;
        self.near.address("eth0", "10.9.0.1/24")
    }

    fn router(&self, workers: u32, tunnel: &str) -> Router {
        let cpu = if workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}") };
        let router = Router::start(&self.middle, &cpu).expect("router");
        for n in 0..3 {
            router.script(&format!("create host-interface name r{n}\nset interface state host-r{n} up")).expect("port");
        }
        router
            .script(&format!(
                "set interface ip address host-r0 192.0.2.1/24\nset interface ip address host-r0 2001:db8::1/64\n\
                 create vxlan tunnel {tunnel} vni 13\n\
                 set interface l2 bridge vxlan_tunnel0 10\nset interface l2 bridge host-r1 10"
            ))
            .expect("tunnel");
        router
    }
}

#[test]
fn hosts_reach_each_other_through_a_tunnel_to_linux() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", "ip"]) else { return };
    for (ours, theirs) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
        for workers in workers() {
            let scene = Scene::new();
            let router = scene.router(*workers, &format!("src {ours} dst {theirs}"));
            if let Err(error) = scene.segment(theirs, ours) {
                return skip_for_kernel(&format!("no VXLAN: {error}"));
            }
            eventually("the hosts reach each other", BOUND, || scene.near.pings("10.9.0.2", 1).unwrap());
            assert!(scene.far.reaches("10.9.0.1", 3).unwrap());
            iperf3(&scene.near, &scene.far, "--client 10.9.0.2 --time 2");
            assert_buffers_are_back(&router);
        }
    }
}

/// IPv4 with ICMP in it.
fn is_icmp(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[8, 0][..]) && frame.get(23) == Some(&1)
}

#[test]
fn a_monitor_sees_the_frames_of_a_mirrored_port() {
    let Some(_scenario) = Scenario::begin(&["ping", "ip"]) else { return };
    for workers in workers() {
        let scene = Scene::new();
        let router = scene.router(*workers, "src 192.0.2.1 dst 192.0.2.2");
        if let Err(error) = scene.segment("192.0.2.2", "192.0.2.1") {
            return skip_for_kernel(&format!("no VXLAN: {error}"));
        }
        eventually("the hosts reach each other", BOUND, || scene.near.pings("10.9.0.2", 1).unwrap());
        for (words, copies) in [("destination host-r2", 10), ("destination host-r2 rx", 5), ("disable", 0)] {
            router.script(&format!("set interface span host-r1 {words}")).expect("span");
            let mut seen = scene.monitor.raw("eth0").unwrap();
            assert!(scene.near.reaches("10.9.0.2", 5).unwrap());
            // Other things of the kernels come between, and the last copy may leave after what it is a copy of.
            let mut count = 0;
            let mut take = || {
                let frames = seen.drain(Duration::from_millis(50)).unwrap();
                count += frames.iter().filter(|frame| is_icmp(frame)).count();
                count
            };
            eventually(&format!("{words}: copies"), BOUND, || take() >= copies);
            assert_eq!(take(), copies, "{words}");
        }
        assert_buffers_are_back(&router);
    }
}
