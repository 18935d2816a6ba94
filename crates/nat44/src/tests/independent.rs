//! Endpoint-independent mapping; what else is set for the NAT as a whole.

use quiver_wire::tcp::TcpFlags;

use super::*;

const POOL: [u8; 4] = [198, 51, 100, 10];

fn bed(workers: usize) -> Bed {
    Bed::new(workers, "nat44 add address 198.51.100.10 endpoint-independent")
}

fn to(remote: [u8; 4], host: u8) -> Packet {
    Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, host], remote)
}

fn back(remote: [u8; 4]) -> Packet {
    Packet::ethernet(host_mac(1), router_mac(1)).ipv4(remote, POOL)
}

#[test]
fn an_inside_endpoint_looks_the_same_to_all_and_anyone_reaches_it() {
    for workers in [0, 1, 2, 4] {
        let mut bed = bed(workers);
        let first = bed.out(from_inside(2).udp(1234, 80)).from();
        for remote in 1..9 {
            assert_eq!(bed.out(to([203, 0, 113, remote], 2).udp(1234, 53)).from(), first, "to {remote}");
        }
        assert_eq!(first.1 % 2, 0, "an even port for an even one");
        assert_ne!(bed.out(from_inside(2).udp(1235, 80)).from(), first, "another endpoint");
        assert_ne!(bed.out(from_inside(3).udp(1234, 80)).from(), first, "another host");
        // Whoever has never been spoken to gets through, and is answered under the same endpoint.
        let seen = bed.back(back([192, 0, 2, 77]).udp(7, first.1));
        assert_eq!(seen.to(), ([10, 0, 0, 2].into(), 1234));
        assert_eq!(bed.out(to([192, 0, 2, 77], 2).udp(1234, 7)).from(), first);
        bed.nothing(bed.outside, back([192, 0, 2, 77]).tcp(7, first.1, TcpFlags::SYN));
        assert!(run(&mut bed.h, "show nat44 summary").contains("endpoint-independent mappings: 3\n"));
        bed.pass(301);
        bed.h.run();
        assert_eq!(bed.sessions(), 0);
        assert!(run(&mut bed.h, "show nat44 summary").contains("endpoint-independent mappings: 0\n"));
        bed.nothing(bed.outside, back([192, 0, 2, 77]).udp(7, first.1));
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn no_outside_endpoint_is_anothers_even_for_other_remotes() {
    let mut bed = bed(0);
    let mut owners = std::collections::HashMap::new();
    for n in 0..3000_u32 {
        let host = [10, 3, (n >> 8) as u8, n as u8];
        let packet = Packet::ethernet(host_mac(0), router_mac(0)).ipv4(host, [203, 0, (n % 50) as u8, 9]);
        let seen = bed.out(packet.udp(4000, 53));
        assert_eq!(owners.insert(seen.from(), n), None);
    }
}

#[test]
fn hosts_inside_reach_each_others_dynamic_endpoints() {
    for workers in [0, 1, 2, 4] {
        let mut bed = bed(workers);
        let other = bed.out(from_inside(3).udp(9999, 80)).from();
        let got = bed.send_on(0, bed.inside, to(POOL, 2).udp(1234, other.1).build());
        let seen = bed.one(got, bed.inside);
        assert_eq!(seen.to(), ([10, 0, 0, 3].into(), 9999));
        assert_eq!(seen.src, Ipv4Addr::from(POOL), "the outside address is its source (RFC 4787, REQ-9)");
        let got = bed.send_on(1, bed.inside, to(POOL, 3).udp(9999, seen.sport).build());
        let answer = bed.one(got, bed.inside);
        assert_eq!((answer.from(), answer.to()), (other, ([10, 0, 0, 2].into(), 1234)));
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn a_pool_that_goes_takes_its_mappings_along() {
    let mut bed = bed(2);
    let first = bed.out(from_inside(2).udp(1234, 80)).from();
    run(&mut bed.h, "nat44 add address 198.51.100.10 del\nnat44 add address 198.51.100.11");
    bed.settle();
    assert_eq!(bed.out(from_inside(2).udp(1234, 80)).src, Ipv4Addr::new(198, 51, 100, 11));
    bed.nothing(bed.outside, back([192, 0, 2, 77]).udp(7, first.1));
    let addresses = "NAT44 pool addresses:\n198.51.100.11\n  tenant VRF independent\nNAT44 twice-nat pool addresses:\n";
    assert_eq!(run(&mut bed.h, "show nat44 addresses"), addresses);
    run(&mut bed.h, "nat44 add address 198.51.100.12 endpoint-independent");
    assert!(run(&mut bed.h, "show nat44 addresses").contains("198.51.100.12\n  tenant VRF independent\n  endpoint-independent\n"));
    assert!(error(&mut bed.h, "nat44 add address 198.51.100.13 twice-nat endpoint-independent").contains("endpoint-independent"));
}

#[test]
fn segment_sizes_are_lowered_in_both_directions() {
    // MSS 1460 as the only option: a header of 24 bytes.
    let syn = |packet: Packet, sport: u16, dport: u16, flags: TcpFlags| {
        let mut frame = packet.tcp(sport, dport, flags).payload(&[2, 4, 5, 180]).build();
        frame[46] = 6 << 4;
        let ip = Ipv4Header::parse(&frame[14..]).unwrap();
        frame[50..52].fill(0);
        let sum = Sum::new().add_pseudo_v4(ip.src.get(), ip.dst.get(), ip.protocol, 24).add_bytes(&frame[34..58]);
        frame[50..52].copy_from_slice(&sum.checksum().to_be_bytes());
        frame
    };
    let mut bed = Bed::usual(0);
    run(&mut bed.h, "nat mss-clamping 1400");
    assert_eq!(run(&mut bed.h, "show nat mss-clamping"), "mss-clamping 1400\n");
    let got = bed.send_on(0, bed.inside, syn(from_inside(2), 5, 80, TcpFlags::SYN));
    let out = bed.one(got, bed.outside);
    assert_eq!(out.bytes[54..58], [2, 4, 5, 120]);
    let answer = || syn(back(REMOTE), 80, out.sport, TcpFlags::SYN | TcpFlags::ACK);
    let got = bed.send_on(0, bed.outside, answer());
    assert_eq!(bed.one(got, bed.inside).bytes[54..58], [2, 4, 5, 120]);
    run(&mut bed.h, "nat mss-clamping disable");
    let got = bed.send_on(0, bed.outside, answer());
    assert_eq!(bed.one(got, bed.inside).bytes[54..58], [2, 4, 5, 180]);
    assert_eq!(run(&mut bed.h, "show nat mss-clamping"), "mss-clamping disabled\n");
    assert!(error(&mut bed.h, "nat mss-clamping 100").contains("expected 536 to 65535"));
}

#[test]
fn sessions_are_on_the_chosen_workers_only() {
    let mut bed = Bed::usual(4);
    run(&mut bed.h, "set nat workers 1-2");
    let names: String = [2, 3].map(|t| format!("  {}\n", quiver_graph::thread_name(t))).concat();
    assert_eq!(run(&mut bed.h, "show nat workers"), format!("2 workers\n{names}"));
    for host in 2..12 {
        for thread in 0..4 {
            let got = bed.send_on(thread, bed.inside, from_inside(host).udp(thread as u16, 9).build());
            let out = bed.one(got, bed.outside);
            let got = bed.send_on(thread + 1, bed.outside, from_outside(out.src).udp(9, out.sport).build());
            assert_eq!(bed.one(got, bed.inside).to(), ([10, 0, 0, host].into(), thread as u16));
        }
    }
    assert_eq!(bed.sessions(), 40);
    let shown = run(&mut bed.h, "show nat44 sessions");
    assert!(!shown.contains("thread 1 ") && !shown.contains("thread 4 ") && shown.contains("thread 2 "), "{shown}");
    assert!(error(&mut bed.h, "set nat workers 4").contains("no worker 4"));
    assert!(error(&mut bed.h, "set nat workers x").contains("no list of workers"));
    bed.h.assert_buffers_held(0);
}

#[test]
fn what_begins_and_ends_is_told_to_the_collector() {
    for workers in [0, 2] {
        let collector = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        collector.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let port = collector.local_addr().unwrap().port();
        let next = || {
            let mut bytes = [0; 1024];
            let (n, _) = collector.recv_from(&mut bytes).expect("a datagram");
            String::from_utf8(bytes[..n].to_vec()).unwrap()
        };
        let mut bed = Bed::usual(workers);
        run(&mut bed.h, &format!("nat44 logging collector 127.0.0.1 port {port}"));
        let mut seen = Vec::new();
        for host in 2..8 {
            let out = bed.out(from_inside(host).udp(1234, 53));
            bed.settle();
            let told = next();
            assert!(told.starts_with("<134>1 20") && told.contains(" SADD [nsess "), "{told}");
            let ends = format!(
                "ISADDR=\"10.0.0.{host}\" ISPORT=\"1234\" XATYP=\"IPv4\" XSADDR=\"198.51.100.10\" XSPORT=\"{}\"",
                out.sport
            );
            assert!(told.contains(&ends), "{told}");
            seen.push(ends);
        }
        run(&mut bed.h, "clear nat44 ed sessions");
        bed.settle();
        let gone: Vec<String> = (2..8).map(|_| next()).collect();
        assert!(seen.iter().all(|ends| gone.iter().any(|told| told.contains(ends) && told.contains(" SDEL "))), "{gone:?}");
        let shown = format!("nat44 logging: collector 127.0.0.1:{port}, sent 12, lost 0\n");
        assert_eq!(run(&mut bed.h, "show nat44 logging"), shown);
        run(&mut bed.h, "nat44 logging disable");
        bed.out(from_inside(2).udp(1, 53));
        bed.settle();
        assert_eq!(run(&mut bed.h, "show nat44 logging"), "nat44 logging: disabled\n");
        collector.set_nonblocking(true).unwrap();
        assert!(collector.recv_from(&mut [0; 16]).is_err(), "silence");
    }
}

#[test]
fn the_routers_own_tables_lead_to_the_collector_where_a_source_is_given() {
    for workers in [0, 2] {
        let mut bed = Bed::usual(workers);
        run(&mut bed.h, "ip table add 7\nnat44 logging collector 10.0.0.9 source 10.0.0.1");
        bed.out(from_inside(2).udp(1234, 53));
        bed.settle();
        // Once more for what goes by way of another thread.
        let sent = [bed.h.run(), bed.h.run()].concat();
        assert_eq!(sent.len(), 1, "{workers} workers: {:?} {}", bed.h.counts(), run(&mut bed.h, "show nat44 logging"));
        let (frame, text) = (Seen::of(&sent[0].1), String::from_utf8_lossy(&sent[0].1).into_owned());
        assert_eq!((sent[0].0, frame.from(), frame.to()), (bed.inside, ([10, 0, 0, 1].into(), 514), ([10, 0, 0, 9].into(), 514)));
        assert!(text.contains("- NAT - SADD [nsess ") && text.contains("ISADDR=\"10.0.0.2\""), "{text}");
        let shown = "nat44 logging: collector 10.0.0.9:514 from 10.0.0.1 by table 0, sent 1, lost 0\n";
        assert_eq!(run(&mut bed.h, "show nat44 logging"), shown);
        // A connection over the ports of one that has ended is another session for whoever reads.
        let segment = |flags| from_inside(4).tcp(1234, 80, flags);
        for (flags, told) in [(TcpFlags::SYN, "SADD"), (TcpFlags::FIN, ""), (TcpFlags::SYN, "SDEL SADD"), (TcpFlags::SYN, "")] {
            bed.out(segment(flags));
            bed.settle();
            let sent = [bed.h.run(), bed.h.run()].concat();
            let names = sent.iter().map(|(_, frame)| if frame.windows(6).any(|w| w == b" SADD ") { "SADD" } else { "SDEL" });
            assert_eq!(names.collect::<Vec<_>>().join(" "), told);
        }
        run(&mut bed.h, "set syslog filter severity notice");
        bed.out(from_inside(3).udp(1234, 53));
        bed.settle();
        assert_eq!([bed.h.run(), bed.h.run()].concat(), [], "sessions are `info`");
        assert!(run(&mut bed.h, "show nat44 logging").contains("sent 4, lost 0, nothing by `set syslog filter`"));
        run(&mut bed.h, "set syslog filter severity debug\nnat44 logging collector 10.0.0.9 port 5140 source 10.0.0.1 table 7");
        let shown = run(&mut bed.h, "show nat44 logging");
        assert!(shown.ends_with("  the collector is not reached: no route to 10.0.0.9 in table 7\n"), "{shown}");
        assert!(error(&mut bed.h, "ip table del 7").contains("the mapping log"));
        assert!(error(&mut bed.h, "nat44 logging collector 10.0.0.9 source 10.0.0.1 table 8").contains("table 8"));
        assert!(error(&mut bed.h, "nat44 logging collector 10.0.0.9 table 7").contains("table"));
        run(&mut bed.h, "nat44 plugin disable\nip table del 7");
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn what_leaves_by_an_output_interface_is_translated_wherever_it_comes_from() {
    for workers in [0, 2] {
        let mut bed = Bed::usual(workers);
        run(&mut bed.h, "set interface nat44 in x0 out x1 del\nset interface nat44 out x1 output-feature");
        assert_eq!(run(&mut bed.h, "show nat44 interfaces"), "NAT44 interfaces:\n x1 output-feature\n");
        // One that was there, and one that is made later.
        let later = bed.h.interface(2);
        run(&mut bed.h, "set interface ip address x2 172.16.0.1/24\nset ip neighbor x2 172.16.0.2 02:00:00:00:10:02");
        bed.settle();
        let pool = Ipv4Addr::new(198, 51, 100, 10);
        assert_eq!(bed.out(from_inside(2).udp(1, 53)).src, pool);
        let from_later = Packet::ethernet(host_mac(2), router_mac(2)).ipv4([172, 16, 0, 2], REMOTE).udp(5, 53);
        let got = bed.send_on(0, later, from_later.build());
        let seen = bed.one(got, bed.outside);
        assert_eq!(seen.src, pool);
        let got = bed.send_on(0, bed.outside, from_outside(pool).udp(53, seen.sport).build());
        assert_eq!(bed.one(got, later).to(), ([172, 16, 0, 2].into(), 5));
        // Between the others nothing is changed.
        let across = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [172, 16, 0, 2]).udp(1, 2);
        let got = bed.send_on(0, bed.inside, across.build());
        assert_eq!(bed.one(got, later).from(), ([10, 0, 0, 2].into(), 1));
        assert!(error(&mut bed.h, "set interface nat44 out x1 output-feature").contains("exists already"));
        run(&mut bed.h, "set interface nat44 out x1 output-feature del");
        assert_eq!(bed.out(from_inside(2).udp(1, 53)).src, Ipv4Addr::new(10, 0, 0, 2), "as it came");
        run(&mut bed.h, "set interface nat44 out x1 output-feature");
        bed.h.router.delete_interface(bed.outside).unwrap();
        assert_eq!(run(&mut bed.h, "show nat44 interfaces"), "NAT44 interfaces:\n");
        run(&mut bed.h, "nat44 plugin disable");
        bed.h.assert_buffers_held(0);
    }
}
