use super::*;

const PLAIN: &str = "
schema: quiver-profile/1
name: plain
streams:
  - name: one
    size: 64
    ipv4: { src: 198.18.0.2, dst: { increment: { first: 198.19.0.2, count: 254 } } }
    udp: { src: { random: { first: 1024, last: 65535 } }, dst: [7, 9] }
";

fn error_of(text: &str) -> String {
    Profile::of_yaml("p.yaml", text).unwrap_err().to_string()
}

fn stream(lines: &str) -> String {
    format!("name: p\nstreams:\n- name: s\n{}", lines.lines().map(|l| format!("  {l}\n")).collect::<String>())
}

#[test]
fn fields_are_read_as_they_are_written() {
    let profile = Profile::of_yaml("p", PLAIN).unwrap();
    let stream = &profile.streams[0];
    let ip = stream.ipv4.as_ref().unwrap();
    let [a, b, c] = ["198.18.0.2", "198.19.0.2", "198.19.0.255"].map(|t| t.parse::<Ipv4Addr>().unwrap());
    assert_eq!(ip.src, Some(Field::Fixed(a)));
    assert_eq!(ip.dst, Some(Field::Increment { first: b, last: c, step: 1, every: 1 }));
    let udp = stream.udp.as_ref().unwrap();
    assert_eq!(udp.src, Some(Field::Random { first: 1024, last: 65535, step: 1, seed: None }));
    assert_eq!(udp.dst, Some(Field::List(vec![7, 9])));
    assert_eq!((stream.size.clone(), ip.ttl), (Some(Size::Fixed(64)), 64));
}

#[test]
fn json_says_the_same_as_yaml() {
    let text =
        r#"{"name":"j","streams":[{"name":"s","rate":"5000pps","size":{"imix":[{"size":84,"weight":3}]},"ipv6":{},"udp":{}}]}"#;
    let profile = Profile::of_json("p.json", text).unwrap();
    assert_eq!(profile.streams[0].rate, Some(Rate::Pps(5000.0)));
    assert_eq!(profile.streams[0].size, Some(Size::Mix(vec![(84, 3)])));
}

#[test]
fn frames_with_times_of_devices_leave_one_at_a_time() {
    let of = |more: &str| Profile::of_yaml("p", &stream(&format!("timestamps: card\nipv4: {{}}\nudp: {{}}\n{more}")));
    assert_eq!(of("rate: 1000pps").unwrap().streams[0].timestamps, Some(Timestamps::Card));
    for more in
        ["", "share: 2", "rate: 1pps\nburst: { frames: 2 }", "rate: 1pps\ndepartures: poisson", "rate: 1pps\nsignature: none"]
    {
        let error = of(more).unwrap_err().to_string();
        assert!(error.starts_with("p: streams[0].timestamps: frames with timestamps leave one at a time"), "{more}: {error}");
    }
}

#[test]
fn errors_name_the_file_the_place_and_what_to_do() {
    assert_eq!(
        error_of(&stream("size: 63")),
        "p.yaml: streams[0].size: invalid value: integer `63`, expected a size of 64 to 9216 bytes (with FCS)"
    );
    assert_eq!(
        error_of(&stream("ipv4: { dst: 10.0.0.300 }")),
        "p.yaml: streams[0].ipv4.dst: invalid value: string \"10.0.0.300\", expected an IPv4 address"
    );
    let unknown = error_of(&stream("ipv4: { dts: 10.0.0.3 }"));
    assert!(unknown.starts_with("p.yaml: streams[0].ipv4.dts: unknown field `dts`, expected one of `src`"), "{unknown}");
    let broken = error_of(&stream("\"na\\np\": 1"));
    assert!(
        broken.starts_with("p.yaml: streams[0].na p: unknown field `na p`, expected one of") && !broken.contains('\n'),
        "{broken}"
    );
    assert_eq!(
        error_of(&stream("ipv6: {}\nudp: {}\nsize: 64")),
        "p.yaml: streams[0].size: frames of 64 bytes have no room for headers and signature: 84 bytes or more"
    );
    assert!(error_of(&stream("udp: {}")).ends_with("need ipv4 or ipv6: add `ipv4: {}' for the usual addresses"));
    assert!(error_of(&stream("rate: fast")).contains("streams[0].rate: `fast' is no rate"));
    assert!(error_of("schema: other/2\nname: x\nstreams: []").contains("schema: `other/2' is not known"));
    assert!(error_of("name: x\nstreams: []").contains("streams: there are 0"));
    assert!(error_of("name: [").starts_with("p.yaml: "));
    assert_eq!(error_of("name: [").lines().count(), 1);
}

#[test]
fn fields_that_cannot_be_are_refused() {
    let ports = |field: &str| error_of(&stream(&format!("ipv4: {{}}\nudp: {{ dst: {field} }}")));
    assert!(ports("70000").contains("streams[0].udp.dst: invalid value: integer `70000`"));
    assert!(ports("-1").contains("integer `-1`"));
    assert!(ports("{ increment: { first: 9 } }").contains("`last' or `count' is missing"));
    assert!(ports("{ increment: { first: 9, last: 3 } }").contains("`last' lies below `first'"));
    assert!(ports("{ decrement: { first: 9, last: 10 } }").contains("`last' lies above `first'"));
    assert!(ports("{ increment: { first: 65000, count: 1000 } }").contains("outside the field"));
    assert!(ports("{ increment: { first: 1, count: 0 } }").contains("outside the field"));
    assert!(ports("{ increment: { first: 1, last: 5, step: 0 } }").contains("a number from 1"));
    assert!(ports("{ random: { first: 9, last: 3 } }").contains("below"));
    assert!(ports("[]").contains("empty list"));
    assert!(ports("{ pareto: 3 }").contains("unknown variant `pareto`"));
    assert!(error_of(&stream("ipv4: { dst: 5 }")).contains("expected an IPv4 address"));
    assert!(error_of(&stream("vlan: [ { id: 4095 } ]")).contains("streams[0].vlan[0].id: a VLAN number is 0 to 4094"));
}

#[test]
fn smallest_frames_are_those_of_the_signature() {
    let smallest = |lines: &str| Profile::of_yaml("p", &stream(lines)).unwrap().streams[0].smallest();
    assert_eq!(smallest("ipv4: {}\nudp: {}"), 64);
    assert_eq!(smallest("ipv6: {}\nudp: {}"), 84);
    assert_eq!(smallest("ipv4: {}\ntcp: {}"), 76);
    assert_eq!(smallest("ipv6: {}\ntcp: {}"), 96);
    assert_eq!(smallest("ipv4: {}\nudp: {}\nvlan: [ { id: 3 } ]"), 68);
    assert_eq!(smallest("ipv6: {}\nudp: {}\nsignature: none"), 66);
}

#[test]
fn a_mirrored_stream_has_its_addresses_exchanged() {
    let text = format!("{PLAIN}\nbidirectional: true\n");
    let profile = Profile::of_yaml("p", &text).unwrap();
    let (left, right) = (profile.streams_from(Side::Left), profile.streams_from(Side::Right));
    assert_eq!((left.len(), right.len()), (1, 1));
    let (a, b) = (left[0].ipv4.as_ref().unwrap(), right[0].ipv4.as_ref().unwrap());
    assert_eq!((&a.src, &a.dst), (&b.dst, &b.src));
    assert_eq!(right[0].from, Side::Right);
}

#[test]
fn tuples_become_fields_that_take_turns_together() {
    let values = "{ src: 10.0.0.1, src_port: 1 }, { src: 10.0.0.2, src_port: 2 }";
    let read = |more: &str| {
        Profile::of_yaml("p", &stream(&format!("ipv4: {{}}\nudp: {{ dst: 7 }}\ntuples: {{ values: [ {values} ]{more} }}")))
    };
    let turns = read("").unwrap().streams.remove(0);
    assert_eq!(turns.udp.unwrap().src, Some(Field::List(vec![1, 2])));
    let drawn = read(", order: random, seed: 4").unwrap().streams.remove(0);
    assert_eq!(drawn.udp.unwrap().src, Some(Field::Pick { values: vec![1, 2], seed: Some(4) }));
    assert!(matches!(drawn.ipv4.unwrap().src, Some(Field::Pick { seed: Some(4), .. })));
    for (lines, words) in [
        ("ipv4: {}\ntuples: { values: [] }", "streams[0].tuples: an empty list"),
        ("ipv4: {}\ntuples: { values: [ { src: 10.0.0.1 }, { dst: 10.0.0.1 } ] }", "`src' is in some tuples and not in others"),
        ("ipv4: {}\ntuples: { values: [ { src: '::1' } ] }", "::1 is not an IPv4 address"),
        ("ipv4: { src: 10.0.0.1 }\ntuples: { values: [ { src: 10.0.0.1 } ] }", "in the tuples and in the header"),
        ("ipv4: {}\ntuples: { values: [ { src_port: 1 } ] }", "ports in tuples need udp or tcp"),
        ("tuples: { values: [ { src: 10.0.0.1 } ] }", "tuples need ipv4 or ipv6"),
    ] {
        assert!(error_of(&stream(lines)).contains(words), "{}", error_of(&stream(lines)));
    }
}

#[test]
fn bursts_and_streams_that_follow_others_are_checked() {
    let two = |first: &str, second: &str| {
        format!(
            "name: p\nstreams:\n- {{ name: a, ipv4: {{}}, udp: {{}}{first} }}\n- {{ name: b, ipv4: {{}}, udp: {{}}{second} }}\n"
        )
    };
    let fine = Profile::of_yaml("p", &two(", burst: { frames: 5 }", ", after: a, start: 10us")).unwrap();
    assert_eq!((fine.streams[1].after.as_deref(), fine.streams[1].start), (Some("a"), Some(Span(10_000))));
    for (first, second, words) in [
        ("", ", after: a", "streams[1].after: stream `a' has no end"),
        (", burst: { frames: 5, gap: 1ms }", ", after: a", "has no end"),
        ("", ", after: c", "`c' is no earlier stream"),
        (", after: b", "", "`b' is no earlier stream"),
        (", burst: { frames: 5 }", ", after: a, from: right", "from the same side"),
        (", burst: { frames: 0 }", "", "streams[0].burst: there is at least one"),
        (", burst: { frames: 1, count: 2 }", "", "need a `gap'"),
        (", burst: { frames: 1 }, departures: poisson", "", "leave evenly"),
        (", start: 5", "", "streams[0].start"),
        (", start: 5min", "", "`5min' is no time"),
    ] {
        assert!(error_of(&two(first, second)).contains(words), "{}", error_of(&two(first, second)));
    }
}

#[test]
fn prefixes_by_popularity_and_flags_are_checked() {
    let dst = |field: &str| error_of(&stream(&format!("ipv4: {{ dst: {field} }}\nudp: {{}}")));
    assert!(dst("{ zipf: { prefixes: [] } }").contains("there are 0 prefixes"));
    assert!(dst("{ zipf: { prefixes: [ 10.0.0.0/33 ] } }").contains("\"10.0.0.0/33\" is no prefix of an IPv4 address"));
    assert!(dst("{ zipf: {} }").contains("either `routes'"));
    assert!(dst("{ zipf: { prefixes: [ 10.0.0.0/8 ], exponent: 11 } }").contains("from 0 to 10"));
    assert!(dst("{ zipf: { routes: / } }").contains("/ is no file"));
    assert!(dst("{ increment: { first: 10.0.0.1, count: 2, every: 0 } }").contains("from 1"));
    assert!(dst("{ pick: { values: [] } }").contains("empty list"));
    assert!(
        error_of(&stream("ipv4: {}\nudp: { dst: { zipf: { prefixes: [ 10.0.0.0/8 ] } } }")).contains("zipf is for IP addresses")
    );
    assert!(error_of(&stream("ipv4: {}\nudp: { flags: [ syn ] }")).contains("UDP has no flags"));
    assert!(error_of(&stream("ipv4: {}\ntcp: { flags: [ xyz ] }")).contains("unknown variant `xyz`"));
}

#[test]
fn what_stands_around_a_packet_is_checked() {
    let ip = |lines: &str| error_of(&stream(&format!("ipv4: {{}}\nudp: {{}}\n{lines}")));
    for (lines, words) in [
        ("mpls: [ { label: 1048576 } ]", "streams[0].mpls[0].label: a label is 0 to 1048575"),
        ("mpls: [ { label: 1, tc: 8 } ]", "streams[0].mpls[0].tc: a traffic class is 0 to 7"),
        ("tunnel: { kind: gre }", "streams[0].tunnel: it has one of ipv4 and ipv6"),
        ("tunnel: { kind: gre, ipv4: {}, ipv6: {} }", "streams[0].tunnel: it has one of"),
        ("tunnel: { kind: gre, ipv4: {}, vni: 3 }", "streams[0].tunnel.vni: of `kind: vxlan' only"),
        ("tunnel: { kind: ip, ipv4: {}, source-port: 3 }", "streams[0].tunnel.source-port: of `kind: vxlan' only"),
        ("tunnel: { kind: ip, ipv4: {}, ethernet: {} }", "streams[0].tunnel.ethernet: of"),
        ("tunnel: { kind: ip, ipv4: {}, key: 3 }", "streams[0].tunnel.key: of `kind: gre' only"),
        ("tunnel: { kind: vxlan, ipv4: {} }", "streams[0].tunnel.vni: vxlan has a network identifier"),
        ("tunnel: { kind: vxlan, ipv4: {}, vni: 16777216 }", "streams[0].tunnel.vni: vxlan has"),
        ("tunnel: { kind: ip, ipv6: { dscp: 64 } }", "streams[0].tunnel.ipv6.dscp: a code point is 0 to 63"),
        ("tunnel: { kind: geneve, ipv4: {} }", "streams[0].tunnel.kind: unknown variant `geneve`"),
        ("payload: abc", "streams[0].payload: bytes are written in hexadecimal"),
        ("payload: 0g", "streams[0].payload: bytes are written in hexadecimal"),
        ("payload: ''", "streams[0].payload: bytes are written in hexadecimal"),
        ("size: 64\npayload: '00'", "frames of 64 bytes have no room for headers and signature: 65 bytes or more"),
    ] {
        assert!(ip(lines).contains(words), "{lines}: {}", ip(lines));
    }
    let nine = format!("mpls: [ {} ]", "{ label: 1 }, ".repeat(9));
    assert!(ip(&nine).contains("streams[0].mpls: a frame has at most eight labels"));
    assert!(error_of(&stream("mpls: [ { label: 3 } ]")).contains("labels and tunnels carry ipv4 or ipv6"));
}

#[test]
fn labels_tunnels_and_payload_take_room() {
    let smallest =
        |lines: &str| Profile::of_yaml("p", &stream(&format!("ipv4: {{}}\nudp: {{}}\n{lines}"))).unwrap().streams[0].smallest();
    assert_eq!(smallest("mpls: [ { label: 1 }, { label: 2 } ]"), 72);
    assert_eq!(smallest("tunnel: { kind: ip, ipv4: {} }"), 84);
    assert_eq!(smallest("tunnel: { kind: gre, ipv6: {}, key: 1 }"), 112);
    assert_eq!(smallest("tunnel: { kind: vxlan, ipv4: {}, vni: 1 }"), 114);
    assert_eq!(smallest("payload: '0011223344'"), 69);
}

#[test]
fn a_mirrored_tunnel_has_its_addresses_exchanged() {
    let text = "name: p
bidirectional: true
streams:
- name: s
  ipv4: {}
  udp: {}
  tunnel: { kind: vxlan, vni: 1, ipv4: { src: 10.0.0.1, dst: 10.0.0.2 }, ethernet: { src: '02:00:00:00:00:01' } }
";
    let profile = Profile::of_yaml("p", text).unwrap();
    let (left, right) = (profile.streams_from(Side::Left), profile.streams_from(Side::Right));
    let [a, b] = [&left, &right].map(|s| s[0].tunnel.clone().unwrap());
    let [x, y] = [&a, &b].map(|t| t.ipv4.unwrap());
    assert_eq!((x.src, x.dst), (y.dst, y.src));
    assert_eq!(a.ethernet.unwrap().src.map(|m| m.0), b.ethernet.unwrap().dst.map(|m| m.0));
}
