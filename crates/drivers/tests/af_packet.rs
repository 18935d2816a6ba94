//! AF_PACKET on real devices: veth pairs between namespaces, kernels and raw sockets as peers.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Rig, frame, noise, quiet_scene};
use quiver_drivers::af_packet::AfPacketConfig;
use quiver_drivers::link_watch::LinkWatch;
use quiver_drivers::netdev::NetDevices;
use quiver_graph::PortState;
use quiver_testbed::{Host, LinkOptions, Offloads, RawPort, Scenario, Tag};
use quiver_wire::Header;
use quiver_wire::checksum::{Sum, l4_sum_v4, l4_sum_v6};
use quiver_wire::ethernet::{EtherType, skip_tags};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;

const LONG: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_millis(100);

fn configs(queues: usize) -> [AfPacketConfig; 2] {
    ["r0", "r1"].map(|name| AfPacketConfig { rx_queues: queues, ..AfPacketConfig::new(name) })
}

/// Sends all frames in bursts and takes as many out on the other side; sorted, since queues may overtake one another.
fn carry(from: &mut RawPort, to: &mut RawPort, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    for burst in frames.chunks(200) {
        burst.iter().for_each(|f| from.send(f).unwrap());
        for _ in burst {
            got.extend(to.recv(LONG).unwrap());
        }
    }
    got.extend(to.drain(QUIET).unwrap());
    got
}

#[test]
fn frames_of_all_sizes_cross_unchanged_with_one_and_two_queues() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for queues in [1, 2] {
        let (a, middle, b) = quiet_scene(&LinkOptions { queues: queues as u32, ..LinkOptions::default() });
        let mut rig = Rig::new(&middle, queues, configs(queues));
        let (mut left, mut right) = (a.raw("eth0").unwrap(), b.raw("eth0").unwrap());
        let frames: Vec<_> = (60..=1514).enumerate().map(|(i, len)| frame(i as u32, len)).collect();
        let mut got = carry(&mut left, &mut right, &frames);
        got.sort_by_key(Vec::len);
        assert!(got == frames, "{} of {} arrived\n{}", got.len(), frames.len(), rig.report());
        let mut back = carry(&mut right, &mut left, &frames);
        back.sort_by_key(Vec::len);
        assert!(back == frames, "{} of {} came back\n{}", back.len(), frames.len(), rig.report());
        assert_eq!(rig.packets(0), (1455, 1455));
        assert_eq!(rig.packets(1), (1455, 1455));
        rig.assert_pool_is_whole();
    }
}

/// Kernel hosts a (10.0.0.1) and b (10.0.0.2), fd00::1 and fd00::2, with the rig between them.
fn kernel_scene(offloads: Offloads, mtu: u32) -> (Host, Host, Host) {
    let (a, middle, b) = (Host::new("a").unwrap(), Host::new("middle").unwrap(), Host::new("b").unwrap());
    let options = LinkOptions { offloads, mtu, ..LinkOptions::default() };
    for (host, port, number) in [(&a, "r0", 1), (&b, "r1", 2)] {
        host.veth("eth0", &middle, port, &options).unwrap();
        middle.disable_ipv6(port).unwrap();
        host.address("eth0", &format!("10.0.0.{number}/24")).unwrap();
        host.address("eth0", &format!("fd00::{number}/64")).unwrap();
    }
    (a, middle, b)
}

/// Sends `bytes` over TCP from a to `address` on b and gives what arrived.
fn transfer(a: &Host, b: &Host, address: &str, bytes: &[u8]) -> Vec<u8> {
    let listener = b.enter(|| TcpListener::bind((address, 5001))).unwrap();
    let receiver = std::thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else { return Vec::new() };
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut got = Vec::new();
        // What came before an error tells more than the error.
        let _ = stream.read_to_end(&mut got);
        got
    });
    let to = SocketAddr::new(address.parse().unwrap(), 5001);
    let mut stream = a.enter(|| TcpStream::connect_timeout(&to, LONG)).unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    let _ = stream.write_all(bytes);
    drop(stream);
    receiver.join().unwrap()
}

/// Sends three megabytes by TCP, and gives the frames that b saw of it.
fn frames_of_transfer(a: &Host, b: &Host, address: &str, rig: &Rig) -> Vec<Vec<u8>> {
    let mut wire = b.raw("eth0").unwrap();
    let bytes = noise(7, 3_000_000);
    let got = transfer(a, b, address, &bytes);
    assert!(got == bytes, "{address}: {} of {} bytes\n{}", got.len(), bytes.len(), rig.report());
    wire.drain(QUIET).unwrap()
}

/// Whether the layer-4 checksum of an IP frame is right; `None` for other frames.
fn checksum_is_right(frame: &[u8]) -> Option<bool> {
    let (l3, kind) = skip_tags(frame, 4)?;
    let packet = &frame[l3..];
    let (protocol, sum) = match kind {
        EtherType::IPV4 => {
            let ip = Ipv4Header::read(packet)?;
            let l4 = &packet[ip.header_len()..usize::from(ip.total_len.get())];
            (ip.protocol, l4_sum_v4(&ip, ip.protocol, l4))
        }
        EtherType::IPV6 => {
            let ip = Ipv6Header::read(packet)?;
            (ip.next_header, l4_sum_v6(&ip, ip.next_header, &packet[40..]))
        }
        _ => return None,
    };
    matches!(protocol, IpProtocol::TCP | IpProtocol::UDP).then(|| sum.checksum() == 0)
}

#[test]
fn super_frames_of_a_kernel_arrive_as_segments_with_right_checksums() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for (offloads, rx_frame) in [(Offloads::On, None), (Offloads::On, Some(65_536)), (Offloads::Off, None)] {
        let (a, middle, b) = kernel_scene(offloads, 1500);
        // What goes out is not joined again.
        let config = configs(1).map(|c| AfPacketConfig { rx_frame, rx_size: 256, cksum_gso: false, ..c });
        let mut rig = Rig::new(&middle, 1, config);
        for address in ["10.0.0.2", "fd00::2"] {
            let frames = frames_of_transfer(&a, &b, address, &rig);
            assert!(frames.len() > 2000, "{} frames", frames.len());
            for frame in &frames {
                assert!(frame.len() <= 1514, "{} bytes", frame.len());
                assert_ne!(checksum_is_right(frame), Some(false), "{frame:02x?}");
            }
        }
        // A ring that ran over on a busy machine is TCP's to mend; a damaged frame would be ours.
        assert_eq!(rig.counter("rx-error", 0) + rig.counter("tx-error", 1), 0, "{}", rig.report());
        rig.assert_pool_is_whole();
    }
}

#[test]
fn segments_leave_as_super_frames_where_the_device_takes_them() {
    let Some(_scenario) = Scenario::begin(&["ethtool"]) else { return };
    for takes in [true, false] {
        let (a, middle, b) = kernel_scene(Offloads::On, 1500);
        if !takes {
            middle.run("ethtool -K r1 tso off", LONG).unwrap().expect("ethtool");
        }
        let mut rig = Rig::new(&middle, 1, configs(1));
        for address in ["10.0.0.2", "fd00::2"] {
            let frames = frames_of_transfer(&a, &b, address, &rig);
            let joined = frames.iter().filter(|frame| frame.len() > 1514).count();
            // Most of what arrived came in a few frames, or nothing did.
            assert_eq!(
                joined > 0 && frames.len() < 1500,
                takes,
                "{address}: {joined} of {} frames\n{}",
                frames.len(),
                rig.report()
            );
            assert_eq!(joined == 0, !takes, "{address}");
        }
        assert_eq!(rig.counter("rx-error", 0) + rig.counter("tx-error", 1), 0, "{}", rig.report());
        rig.assert_pool_is_whole();
    }
}

#[test]
fn udp_super_frames_arrive_as_datagrams() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let (a, middle, b) = kernel_scene(Offloads::On, 1500);
    let mut rig = Rig::new(&middle, 1, configs(1));
    for (near, far) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let to = b.enter(|| UdpSocket::bind((far, 5002))).unwrap();
        to.set_read_timeout(Some(LONG)).unwrap();
        let from = a.enter(|| UdpSocket::bind((near, 5003))).unwrap();
        // UDP_SEGMENT: one call, a super-frame, 1000 bytes a datagram.
        let size: libc::c_int = 1000;
        // SAFETY: pointer and length describe `size`, which the kernel only reads.
        let set = unsafe { libc::setsockopt(from.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const size).cast(), 4) };
        assert_eq!(set, 0);
        let bytes = noise(3, 40_500);
        from.send_to(&bytes, (far, 5002)).unwrap();
        let mut space = [0; 2000];
        for (i, part) in bytes.chunks(1000).enumerate() {
            let n = to.recv(&mut space).unwrap_or_else(|e| panic!("datagram {i}: {e}\n{}", rig.report()));
            assert_eq!(&space[..n], part, "datagram {i}");
        }
    }
    rig.assert_pool_is_whole();
}

#[test]
fn tags_are_carried_inline_whether_stripped_or_not() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let (a, middle, b) = quiet_scene(&LinkOptions::default());
    let mut rig = Rig::new(&middle, 1, configs(1));
    let (from, mut to) = (a.raw("eth0").unwrap(), b.raw("eth0").unwrap());
    let plain = frame(1, 700);
    for tags in [&[0x8100_u16][..], &[0x88a8], &[0x88a8, 0x8100], &[0x8100, 0x8100], &[0x88a8, 0x8100, 0x8100]] {
        for tci in [0_u16, 1, 0xefff] {
            let mut sent = plain[..12].to_vec();
            tags.iter().for_each(|tpid| {
                sent.extend(tpid.to_be_bytes());
                sent.extend(tci.to_be_bytes());
            });
            sent.extend(&plain[12..]);
            from.send(&sent).unwrap();
            assert_eq!(to.recv(LONG).unwrap().as_deref(), Some(&sent[..]), "{tags:04x?} {tci}\n{}", rig.report());
        }
    }
    rig.assert_pool_is_whole();
}

#[test]
fn tagged_kernels_talk_in_super_frames() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for tags in [vec![Tag::dot1q(10)], vec![Tag::dot1ad(100), Tag::dot1q(10)]] {
        // A veth takes one tag beyond its MTU. The kernel hides another one from it, which no packet socket can do, so the
        // links have room for it and the hosts do not use that.
        let (a, middle, b) = kernel_scene(Offloads::On, 1504);
        for host in [&a, &b] {
            host.ip("route change 10.0.0.0/24 dev eth0 mtu lock 1500").unwrap();
        }
        let _speak = [a.speak_vlan("eth0", &tags).unwrap(), b.speak_vlan("eth0", &tags).unwrap()];
        let mut rig = Rig::new(&middle, 1, configs(1));
        let bytes = noise(9, 1_000_000);
        let got = transfer(&a, &b, "10.0.0.2", &bytes);
        assert!(got == bytes, "{} of {} bytes\n{}", got.len(), bytes.len(), rig.report());
        rig.assert_pool_is_whole();
    }
}

#[test]
fn jumbo_frames_cross_in_chains() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for rx_frame in [None, Some(2000)] {
        let (a, middle, b) = quiet_scene(&LinkOptions { mtu: 9000, ..LinkOptions::default() });
        let mut rig = Rig::new(&middle, 1, configs(1).map(|c| AfPacketConfig { rx_frame, ..c }));
        let (mut from, mut to) = (a.raw("eth0").unwrap(), b.raw("eth0").unwrap());
        let sizes = [1514, 2047, 2048, 2049, 4095, 4096, 4097, 6144, 8192, 9013, 9014];
        let frames: Vec<_> = sizes.iter().enumerate().map(|(i, len)| frame(i as u32, *len)).collect();
        assert!(carry(&mut from, &mut to, &frames) == frames, "{}", rig.report());
        rig.assert_pool_is_whole();
    }
}

#[test]
fn frames_over_the_mtu_of_the_way_out_are_counted_and_hold_nobody_up() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let (a, middle, b) = quiet_scene(&LinkOptions { mtu: 9000, ..LinkOptions::default() });
    middle.set_mtu("r1", 1500).unwrap();
    b.set_mtu("eth0", 1500).unwrap();
    let mut rig = Rig::new(&middle, 1, configs(1));
    let (mut from, mut to) = (a.raw("eth0").unwrap(), b.raw("eth0").unwrap());
    let frames: Vec<_> = [60, 9014, 1514, 1515, 700, 4000].iter().enumerate().map(|(i, len)| frame(i as u32, *len)).collect();
    frames.iter().for_each(|f| from.send(f).unwrap());
    let fit: Vec<_> = frames.iter().filter(|f| f.len() <= 1514).cloned().collect();
    let got: Vec<_> = fit.iter().filter_map(|_| to.recv(LONG).unwrap()).collect();
    assert!(got == fit, "{}", rig.report());
    rig.assert_pool_is_whole();
    assert_eq!(rig.counter("tx-error", 1), 3, "{}", rig.report());
    assert!(rig.report().contains("if2-tx: frame is larger than the device takes 3"), "{}", rig.report());
    // The way out grows: a change that refresh brings to the queues.
    for (host, name) in [(&middle, "r1"), (&b, "eth0")] {
        host.set_mtu(name, 9000).unwrap();
    }
    let state = rig.refresh(1).unwrap();
    assert_eq!((state.max_frame, state.reopened), (9014, false));
    let large = [frames[1].clone(), frames[0].clone(), frames[5].clone()];
    let got = carry(&mut from, &mut to, &large);
    assert!(got == large, "{:?}\n{}", got.iter().map(Vec::len).collect::<Vec<_>>(), rig.report());
    rig.assert_pool_is_whole();
}

/// What a control side does: changes of links refresh the ports of that name.
fn follow(watch: &mut LinkWatch, rig: &mut Rig) -> Vec<PortState> {
    let changes = watch.changes().unwrap();
    let mut states = Vec::new();
    for (at, name) in ["r0", "r1"].into_iter().enumerate() {
        if changes.iter().any(|c| c.concerns(name)) {
            states.push(rig.refresh(at).unwrap());
        }
    }
    states
}

/// Follows until a port is as wanted: the kernel tells of carriers a moment later.
fn follow_until(watch: &mut LinkWatch, rig: &mut Rig, wanted: impl Fn(&PortState) -> bool) {
    let deadline = Instant::now() + LONG;
    let mut states = Vec::new();
    while !states.iter().any(&wanted) {
        assert!(Instant::now() < deadline, "{states:?}");
        std::thread::sleep(Duration::from_millis(2));
        states.extend(follow(watch, rig));
    }
}

/// Open descriptors and mappings of packet sockets of this process.
fn held() -> (usize, usize) {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().filter(|l| l.contains("socket:")).count();
    (fds, maps)
}

/// Sets its flag when dropped.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_device_that_was_deleted_and_made_again_goes_on_under_traffic() {
    let Some(_scenario) = Scenario::alone(&[]) else { return };
    for queues in [1, 2] {
        let options = LinkOptions { queues: queues as u32, ..LinkOptions::default() };
        let (a, middle, b) = quiet_scene(&options);
        let mut watch = middle.enter(LinkWatch::open).unwrap();
        let mut rig = Rig::new(&middle, 2, configs(queues));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Both directions, all the time; errors while the device is away are what this is about.
            for (host, first) in [(&a, 0), (&b, 1 << 20)] {
                let stop = &stop;
                scope.spawn(move || {
                    let mut port = host.raw("eth0").ok();
                    let mut number = first;
                    while !stop.load(Ordering::Relaxed) {
                        number += 1;
                        if port.as_ref().is_none_or(|p| p.send(&frame(number, 200)).is_err()) {
                            port = host.raw("eth0").ok();
                        }
                        std::thread::sleep(Duration::from_micros(200));
                    }
                });
            }
            // Also when an assertion fails, or the senders would be waited for without end.
            let _stop = StopAtEnd(&stop);
            let mut baseline = (0, 0);
            for round in 0..10 {
                let (peer, port) = if round % 2 == 0 { (&a, "r0") } else { (&b, "r1") };
                let at = round % 2;
                if round % 3 == 0 { middle.delete_link(port) } else { peer.delete_link("eth0") }.unwrap();
                std::thread::sleep(Duration::from_millis(20));
                follow_until(&mut watch, &mut rig, |s| !s.present && !s.link.up);
                // Traffic towards a device that is not there is dropped, counted.
                let before = rig.counter("tx-error", at);
                let deadline = Instant::now() + LONG;
                while rig.counter("tx-error", at) == before {
                    assert!(Instant::now() < deadline, "round {round}\n{}", rig.report());
                    std::thread::sleep(Duration::from_millis(1));
                }
                peer.veth("eth0", &middle, port, &options).unwrap();
                follow_until(&mut watch, &mut rig, |s| s.present && s.reopened);
                let mut wire = peer.raw("eth0").unwrap();
                let (rx, tx) = rig.packets(at);
                assert!(wire.recv(LONG).unwrap().is_some(), "round {round}: nothing goes out\n{}", rig.report());
                let deadline = Instant::now() + LONG;
                while rig.packets(at).0 < rx + 10 || rig.packets(at).1 < tx + 10 {
                    assert!(Instant::now() < deadline, "round {round}: {rx} {tx}\n{}", rig.report());
                    std::thread::sleep(Duration::from_millis(1));
                }
                drop(wire);
                // The dead sockets are collected with the next look.
                let state = rig.refresh(at).unwrap();
                assert!(state.present && !state.reopened, "{state:?}");
                // A queue that never sends keeps its dead socket until it does, so both devices must have been away once. The
                // senders' own sockets may be open or not at this moment.
                let now = held();
                if round < 4 {
                    baseline = (baseline.0.max(now.0), baseline.1.max(now.1));
                } else {
                    assert!(now.0 <= baseline.0 + 2 && now.1 <= baseline.1, "round {round}: {now:?} held, {baseline:?} before");
                }
            }
        });
        rig.assert_pool_is_whole();
    }
}

#[test]
fn a_link_that_goes_down_and_up_needs_no_new_sockets() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let (a, middle, b) = quiet_scene(&LinkOptions::default());
    let mut watch = middle.enter(LinkWatch::open).unwrap();
    let mut rig = Rig::new(&middle, 1, configs(1));
    let mut number = 0;
    // The device itself, then only its carrier.
    for (host, name) in [(&middle, "r0"), (&a, "eth0")] {
        host.link_down(name).unwrap();
        follow_until(&mut watch, &mut rig, |s| s.present && !s.link.up && !s.reopened);
        // An idle worker must not be kept awake by the error that the socket has.
        let (spent, passed) = rig.idle_cpu(Duration::from_millis(300));
        assert!(spent < passed / 5, "{spent:?} of {passed:?}, {name} down");
        host.link_up(name).unwrap();
        follow_until(&mut watch, &mut rig, |s| s.present && s.link.up && !s.reopened);
        let (mut from, mut to) = (a.raw("eth0").unwrap(), b.raw("eth0").unwrap());
        number += 1;
        let frames = [frame(number, 100)];
        assert!(carry(&mut from, &mut to, &frames) == frames, "{}", rig.report());
        assert!(carry(&mut to, &mut from, &frames) == frames, "{}", rig.report());
    }
    // The port takes its device up and down itself.
    rig.set_up(0, false).unwrap();
    assert!(!rig.refresh(0).unwrap().link.up);
    rig.set_up(0, true).unwrap();
    follow_until(&mut watch, &mut rig, |s| s.link.up);
    rig.assert_pool_is_whole();
}

#[test]
fn a_link_carries_from_the_moment_that_its_device_says_so() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let (_a, middle, _b) = quiet_scene(&LinkOptions::default());
    // The kernel calls a device that has just come up `running' up to a second later; one of this mode, never.
    middle.ip("link set dev r0 mode dormant").unwrap();
    middle.link_down("r0").unwrap();
    middle.link_up("r0").unwrap();
    let device = middle.enter(|| NetDevices::open()?.get("r0")).unwrap();
    assert!(device.up && device.carrier, "{device:?}");
    let watch = middle.enter(LinkWatch::open).unwrap();
    assert!(watch.links().any(|link| link.name == "r0" && link.carrier));
}

#[test]
fn nothing_is_left_open_behind() {
    let Some(_scenario) = Scenario::alone(&[]) else { return };
    let (a, middle, b) = quiet_scene(&LinkOptions::default());
    let mut first = None;
    for round in 0..4 {
        let mut rig = Rig::new(&middle, 2, configs(2));
        let (mut from, mut to) = (a.raw("eth0").unwrap(), b.raw("eth0").unwrap());
        let frames: Vec<_> = (0..50).map(|i| frame(i, 100 + i as usize)).collect();
        assert_eq!(carry(&mut from, &mut to, &frames).len(), 50);
        rig.assert_pool_is_whole();
        drop(rig);
        drop((from, to));
        let now = held();
        assert_eq!(now.1, 0, "round {round}: mappings left");
        assert_eq!(now, *first.get_or_insert(now), "round {round}");
    }
}

#[test]
fn frames_lost_for_want_of_slots_are_counted() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let (a, middle, b) = quiet_scene(&LinkOptions::default());
    let mut rig = Rig::new(&middle, 1, configs(1).map(|c| AfPacketConfig { rx_size: 64, ..c }));
    let from = a.raw("eth0").unwrap();
    let mut to = b.raw("eth0").unwrap();
    // The worker is kept from its ring while more arrives than that holds.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (holds, held) = std::sync::mpsc::channel::<()>();
    let thread = rig.graph.fleet().threads()[0];
    rig.graph.fleet().cast(thread, move |_| {
        holds.send(()).unwrap();
        let _ = wait.recv();
    });
    held.recv().unwrap();
    (0..200).for_each(|i| from.send(&frame(i, 100)).unwrap());
    drop(go);
    let mut arrived = (0..64).map_while(|_| to.recv(LONG).unwrap()).count() as u64;
    arrived += to.drain(QUIET).unwrap().len() as u64;
    // What was lost is told with the next frame.
    from.send(&frame(200, 100)).unwrap();
    assert!(to.recv(LONG).unwrap().is_some());
    assert_eq!(arrived, 64, "{}", rig.report());
    assert_eq!(rig.counter("rx-miss", 0), 136, "{}", rig.report());
    rig.assert_pool_is_whole();
}

#[test]
fn an_unfinished_checksum_leaves_finished_or_to_be_finished_by_the_kernel() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for (cksum_gso, len) in [(true, 200), (false, 200), (false, 5000), (true, 5000)] {
        let (a, middle, b) = quiet_scene(&LinkOptions { mtu: 9000, ..LinkOptions::default() });
        let mut rig = Rig::new(&middle, 1, configs(1).map(|c| AfPacketConfig { cksum_gso, ..c }));
        let (from, mut to) = (a.raw("eth0").unwrap(), b.raw("eth0").unwrap());
        let mut sent = frame(1, len);
        sent[34..38].copy_from_slice(&[0, 9, 0, 9]);
        // The sum over the pseudo-header, as a sender leaves it.
        let ip = Ipv4Header::read(&sent[14..]).unwrap();
        let pseudo = Sum::new().add_pseudo_v4(ip.src.get(), ip.dst.get(), IpProtocol::UDP, (len - 34) as u16);
        sent[40..42].copy_from_slice(&(!pseudo.checksum()).to_be_bytes());
        from.send(&sent).unwrap();
        let got = to.recv(LONG).unwrap().unwrap_or_else(|| panic!("{cksum_gso} {len}\n{}", rig.report()));
        if cksum_gso {
            // A veth takes it as it is: "unfinished" travels beside the frame.
            assert!(got == sent || checksum_is_right(&got) == Some(true), "{cksum_gso} {len}");
        } else {
            assert_eq!(checksum_is_right(&got), Some(true), "{cksum_gso} {len}");
        }
        assert!(got[42..] == sent[42..] && got[..40] == sent[..40]);
        rig.assert_pool_is_whole();
    }
}
