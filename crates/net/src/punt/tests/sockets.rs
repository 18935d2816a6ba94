//! Programs with sockets: what they get, what they send, what becomes of packets that they do not take.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;

use quiver_api::Text;
use quiver_wire::ipv4::IpProtocol;

use super::*;
use crate::interface::{SubMatch, VlanId};
use crate::ops::testing::assert_rebuilt;
use crate::punt::PuntError;
use crate::punt::clients::{Reason, Wanted};

/// A folder of its own for a test's sockets.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quiver-punt-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn socket(&self, name: &str) -> (UnixDatagram, PathBuf) {
        let path = self.0.join(name);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        (socket, path)
    }

    fn open(&self, h: &mut Harness) {
        let (socket, path) = self.socket("router");
        h.router.open_punt_socket(Arc::new(socket), &path).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// All that waits in a socket.
fn received(socket: &UnixDatagram) -> Vec<Vec<u8>> {
    let mut room = [0; 4096];
    std::iter::from_fn(|| socket.recv(&mut room).ok().map(|len| room[..len].to_vec())).collect()
}

/// A frame as a client gets it.
fn with_descriptor(interface: IfIndex, action: u32, bytes: &[u8]) -> Vec<u8> {
    [&interface.0.to_ne_bytes()[..], &action.to_ne_bytes(), bytes].concat()
}

#[test]
fn a_client_gets_whole_frames_of_its_port_protocol_or_reason_and_nobody_is_answered() {
    for workers in [0, 2] {
        let folder = Folder::new(&format!("gets{workers}"));
        let (mut h, x) = bed(workers);
        folder.open(&mut h);
        let (client, path) = folder.socket("client");
        let esp = |family| frame(&ip(family).next(50).payload(&[0, 0, 0, 99, 0, 0, 0, 1]));
        let [v4, v6] = FAMILIES;
        for (wanted, sent) in [
            (Wanted::Port(v4, L4::Udp, 1111), frame(&ip(v4).udp(9876, 1111).payload(b"data"))),
            (Wanted::Port(v6, L4::Udp, 1111), frame(&ip(v6).udp(9876, 1111).payload(b"data"))),
            (Wanted::Port(v4, L4::Tcp, 179), frame(&ip(v4).tcp(1000, 179, TcpFlags::SYN))),
            (Wanted::Protocol(v4, IpProtocol(89)), frame(&ip(v4).next(89).payload(b"hello"))),
            (Wanted::Protocol(v6, IpProtocol(89)), frame(&ip(v6).next(89).payload(b"hello"))),
            (Wanted::Reason(Reason::Ipsec4NoSuchTunnel), esp(v4)),
            (Wanted::Reason(Reason::Ipsec6NoSuchTunnel), esp(v6)),
            (Wanted::Reason(Reason::Ipsec4SpiOverUdp0), frame(&ip(v4).udp(9, 4500).payload(&[0, 0, 0, 0, 1]))),
        ] {
            assert_eq!(h.exchange(x[0], &sent).len(), 1, "{wanted:?}: an ICMP error before");
            h.router.register_punt_client(wanted, &path).unwrap();
            assert!(h.exchange(x[0], &sent).is_empty());
            h.inject_many(x[0], &vec![sent.clone(); 3], 0);
            assert!(h.run().is_empty());
            assert_eq!(received(&client), vec![with_descriptor(x[0], 0, &sent); 4], "{wanted:?}");
            h.router.deregister_punt_client(wanted);
            assert_eq!(h.exchange(x[0], &sent).len(), 1, "{wanted:?}: and after");
            assert!(received(&client).is_empty());
            h.assert_buffers_held(0);
        }
    }
}

#[test]
fn frames_of_a_sub_interface_come_with_their_tags_and_others_stay_what_they_are() {
    let folder = Folder::new("tags");
    let (mut h, x) = bed(0);
    folder.open(&mut h);
    let (client, path) = folder.socket("client");
    h.router.register_punt_client(Wanted::Port(FamilyId::V4, L4::Udp, 1111), &path).unwrap();
    let tagged = SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(7), inner: None, exact: true };
    let sub = h.router.create_sub_interface(x[0], 7, tagged).unwrap();
    h.router.set_interface_up(sub, true).unwrap();
    h.router.add_address(sub, "10.7.0.1".parse().unwrap(), 24).unwrap();
    let mut sent = frame(&Packet::new().ipv4([10, 7, 0, 2], [10, 7, 0, 1]).udp(1, 1111).payload(b"data"));
    sent.splice(12..12, [0x81, 0, 0, 7]);
    assert!(h.exchange(x[0], &sent).is_empty());
    assert_eq!(received(&client), [with_descriptor(sub, 0, &sent)]);
    let other = frame(&ip(FamilyId::V4).udp(1, 1112));
    assert_eq!(h.exchange(x[0], &other).len(), 1);
    h.router.set_punt_port(FamilyId::V4, L4::Udp, Some(1111), true);
    h.router.deregister_punt_client(Wanted::Port(FamilyId::V4, L4::Udp, 1111));
    assert!(h.exchange(x[0], &sent).is_empty(), "still punted by `set punt'");
}

#[test]
fn what_a_client_does_not_take_is_dropped_and_counted() {
    let folder = Folder::new("stuck");
    let (mut h, x) = bed(0);
    folder.open(&mut h);
    let (client, path) = folder.socket("client");
    h.router.register_punt_client(Wanted::Port(FamilyId::V4, L4::Udp, 1111), &path).unwrap();
    let sent = frame(&ip(FamilyId::V4).udp(9876, 1111).payload(&[0xa5; 1000]));
    // More than any queue has room for, and the client reads nothing.
    let many = 2000;
    for _ in 0..many / 100 {
        h.inject_many(x[0], &vec![sent.clone(); 100], 0);
        assert!(h.run().is_empty());
    }
    let lost = h.count("ip4-punt", "Socket TX error");
    let got = received(&client).len() as u64;
    assert!(lost > 0 && got > 0 && lost + got == many, "{lost} {got}");
    drop(client);
    std::fs::remove_file(&path).unwrap();
    assert!(h.exchange(x[0], &sent).is_empty());
    assert_eq!(h.count("ip4-punt", "Socket TX error"), lost + 1, "it has gone");
    let (client, _) = folder.socket("client");
    assert!(h.exchange(x[0], &sent).is_empty());
    assert_eq!(received(&client).len(), 1, "it is back");
    h.assert_buffers_held(0);
}

#[test]
fn what_clients_send_is_routed_or_leaves_as_it_is() {
    let (mut h, x) = bed(0);
    for family in FAMILIES {
        let packet = match (address(family, 0, 1), address(family, 1, 2)) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Packet::new().ipv4(src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Packet::new().ipv6(src, dst),
            _ => unreachable!("one family"),
        };
        let packet = packet.ttl(1).udp(1, 2).payload(b"data").build();
        let action = family as u32 + 1;
        h.router.take_from_punt_client(&with_descriptor(x[0], action, &[&packet[..], b"more"].concat()));
        let out = h.run();
        assert_eq!((out.len(), out[0].0, &out[0].1[14..]), (1, x[1], &packet[..]), "{family:?}");
        let cut = &packet[..packet.len() - 1];
        h.router.take_from_punt_client(&with_descriptor(x[0], action, cut));
        assert!(h.run().is_empty());
    }
    let whole = frame(&ip(FamilyId::V4).udp(1, 2));
    h.router.take_from_punt_client(&with_descriptor(x[1], 0, &whole));
    assert_eq!(h.run(), [(x[1], whole.clone())]);
    for wrong in [with_descriptor(IfIndex(77), 0, &whole), with_descriptor(x[0], 3, &whole), vec![0; 7], vec![0; 9], vec![]] {
        h.router.take_from_punt_client(&wrong);
    }
    assert!(h.run().is_empty());
    let counts = ["Socket RX", "socket read failure", "invalid packet descriptor"].map(|text| h.count("punt-socket-rx", text));
    assert_eq!(counts, [3, 5, 2]);
    h.assert_buffers_held(0);
}

#[test]
fn clients_are_registered_dumped_and_removed_by_messages() {
    let folder = Folder::new("messages");
    let mut handlers = Handlers::default();
    crate::punt::api::add(&mut handlers);
    let table = Rc::new(Table::new(handlers));
    assert_names(
        table.catalog(),
        &[
            "punt_socket_register_7875badb",
            "punt_socket_register_reply_bd30ae90",
            "punt_socket_dump_916fb004",
            "punt_socket_details_330466e4",
            "punt_socket_deregister_75afa766",
            "punt_reason_dump_5c0dd4fe",
            "punt_reason_details_2c9d4a40",
        ],
    );
    let (mut h, _) = bed(0);
    let punt = |r#type, room: [u8; 4]| Punt { r#type, punt: PuntUnion(room) };
    let (l4, proto, exception) = (PuntType::PUNT_API_TYPE_L4, PuntType::PUNT_API_TYPE_IP_PROTO, PuntType::PUNT_API_TYPE_EXCEPTION);
    let register = |h: &mut Harness, header_version, punt, path: &str| {
        let m = PuntSocketRegister { header_version, punt, pathname: Text(path.into()) };
        read::<PuntSocketRegisterReply>(&ask(h, &table, 1, &m)[0])
    };
    assert_eq!(register(&mut h, 1, punt(l4.clone(), [0, 17, 4, 87]), "/tmp/a").retval, -30, "no socket is configured");
    folder.open(&mut h);
    let own = folder.0.join("router").display().to_string();
    let made = register(&mut h, 1, punt(l4.clone(), [0, 17, 4, 87]), "/tmp/a");
    assert_eq!((made.retval, made.pathname.as_str()), (0, &own[..]));
    for (version, wrong, path) in [
        (2, punt(l4.clone(), [0, 17, 0, 1]), "/tmp/a"),
        (1, punt(l4.clone(), [0, 17, 0xff, 0xff]), "/tmp/a"),
        (1, punt(l4.clone(), [0, 89, 0, 1]), "/tmp/a"),
        (1, punt(exception.clone(), [0, 0, 0, 9]), "/tmp/a"),
        (1, punt(l4.clone(), [0, 17, 0, 1]), &own),
        (1, punt(l4.clone(), [0, 17, 0, 1]), "relative"),
    ] {
        assert_eq!(register(&mut h, version, wrong, path).retval, -7);
    }
    assert_eq!(register(&mut h, 1, punt(proto.clone(), [0, 89, 0, 0]), "/tmp/b").retval, 0);
    assert_eq!(register(&mut h, 1, punt(proto.clone(), [0, 88, 0, 0]), "/tmp/c").retval, 0);
    assert_eq!(register(&mut h, 1, punt(exception.clone(), [0, 0, 0, 2]), "/tmp/d").retval, 0);
    let dump = |h: &mut Harness, r#type| -> Vec<(Punt, String)> {
        let all = ask(h, &table, 1, &PuntSocketDump { r#type });
        all.iter().map(|one| read::<PuntSocketDetails>(one)).map(|d| (d.punt, d.pathname.0)).collect()
    };
    assert_eq!(dump(&mut h, l4.clone()), [(punt(l4.clone(), [0, 17, 4, 87]), "/tmp/a".to_owned())]);
    let ospf = (punt(proto.clone(), [0, 89, 0, 0]), "/tmp/b".to_owned());
    assert_eq!(dump(&mut h, proto.clone()), [ospf, (punt(proto.clone(), [0, 88, 0, 0]), "/tmp/c".to_owned())]);
    assert_eq!(dump(&mut h, exception.clone()).len(), 1);
    for gone in [punt(proto.clone(), [0, 89, 0, 0]), punt(proto.clone(), [0, 7, 0, 0])] {
        let answer = ask(&mut h, &table, 1, &PuntSocketDeregister { punt: gone });
        assert_eq!(read::<PuntSocketDeregisterReply>(&answer[0]).retval, 0);
    }
    assert_eq!(dump(&mut h, proto).len(), 1);
    let reasons = |h: &mut Harness, name: &str| -> Vec<(u32, String)> {
        let m = PuntReasonDump { reason: PuntReason { id: 0, name: name.into() } };
        ask(h, &table, 1, &m).iter().map(|one| read::<PuntReasonDetails>(one).reason).map(|r| (r.id, r.name)).collect()
    };
    assert_eq!(reasons(&mut h, "").len(), 3);
    assert_eq!(reasons(&mut h, "ipsec6-no-such-tunnel"), [(2, "ipsec6-no-such-tunnel".to_owned())]);
}

#[test]
fn clients_are_shown_and_configured_again() {
    fn opened() -> Harness {
        let mut h = Harness::new();
        h.router.open_punt_socket(Arc::new(UnixDatagram::unbound().unwrap()), "/run/router.sock".as_ref()).unwrap();
        h
    }
    assert_rebuilt(
        &[],
        opened,
        "punt socket register 1111 socket /run/a.sock
         punt socket register ipv6 tcp 179 socket /run/b.sock
         punt socket register ip6 protocol 89 socket /run/a.sock
         punt socket register reason ipsec4-no-such-tunnel socket \"/run/an ike.sock\"",
        &["show punt socket registrations", "show punt socket registrations l4", "show punt socket registrations exception"],
    );
    let error = Harness::new().router.register_punt_client(Wanted::Reason(Reason::Ipsec6NoSuchTunnel), "/a".as_ref());
    assert_eq!(error, Err(PuntError::NoSocket));
}
