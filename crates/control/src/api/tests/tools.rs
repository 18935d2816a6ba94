//! Path MTUs, traces, ping.

use quiver_command::session::Request;
use quiver_net::api::Behind;

use super::*;

fn code<M: Message, R: Message>(h: &mut Harness, table: &Table, message: &M) -> i32 {
    request::<M, R>(h, table, message).1
}

fn path_mtu(h: &mut Harness, table: &Table, host: &str, mtu: u16) -> i32 {
    let nh = quiver_net::api::address(host.parse().unwrap());
    let pmtu = IpPathMtu { nh, path_mtu: mtu, ..Default::default() };
    code::<_, IpPathMtuUpdateReply>(h, table, &IpPathMtuUpdate { pmtu })
}

fn path_mtus(h: &mut Harness, table: &Table, cursor: u32) -> Vec<u16> {
    let answers = ask(h, table, &bytes(table, &IpPathMtuGet { cursor }));
    let (reply, details) = answers.split_last().unwrap();
    let reply = IpPathMtuGetReply::read(&mut Reader::new(&reply[6..])).unwrap();
    assert_eq!((reply.retval, reply.cursor), (0, u32::MAX), "all of them");
    details.iter().map(|d| IpPathMtuDetails::read(&mut Reader::new(&d[6..])).unwrap().pmtu.path_mtu).collect()
}

#[test]
fn path_mtus_are_set_listed_replaced_and_refused_where_they_have_no_effect() {
    let (mut h, table) = bed();
    h.router.add_address(quiver_net::IfIndex(1), "10.0.0.1".parse().unwrap(), 24).unwrap();
    assert_eq!(path_mtu(&mut h, &table, "10.0.0.2", 900), 0);
    assert_eq!(path_mtu(&mut h, &table, "10.0.0.3", 1000), 0);
    assert_eq!((path_mtus(&mut h, &table, 0), path_mtus(&mut h, &table, 1)), (vec![900, 1000], vec![1000]));
    assert_eq!(path_mtu(&mut h, &table, "192.0.2.1", 900), -9, "no neighbour");
    assert_eq!(path_mtu(&mut h, &table, "10.0.0.4", 67), -7);
    let other = IpPathMtuUpdate { pmtu: IpPathMtu { table_id: 9, path_mtu: 900, ..Default::default() } };
    assert_eq!(code::<_, IpPathMtuUpdateReply>(&mut h, &table, &other), -3);
    assert_eq!(code::<_, IpPathMtuReplaceBeginReply>(&mut h, &table, &IpPathMtuReplaceBegin {}), 0);
    assert_eq!(path_mtu(&mut h, &table, "10.0.0.3", 950), 0);
    assert_eq!(path_mtus(&mut h, &table, 0), [900, 950], "until the end both are there");
    assert_eq!(code::<_, IpPathMtuReplaceEndReply>(&mut h, &table, &IpPathMtuReplaceEnd {}), 0);
    assert_eq!(path_mtus(&mut h, &table, 0), [950]);
    assert_eq!(path_mtu(&mut h, &table, "10.0.0.3", 0), 0);
    assert!(path_mtus(&mut h, &table, 0).is_empty());
}

#[test]
fn nodes_are_found_by_name_and_only_those_that_bring_packets_in_are_traced() {
    let (mut h, table) = bed();
    let node = |h: &mut Harness, name: &str| {
        let (reply, code) = request::<_, GetNodeIndexReply>(h, &table, &GetNodeIndex { node_name: name.into() });
        (code == 0).then_some(reply.node_index)
    };
    let input = h.router.graph.nodes().into_iter().find(|n| n.kind == quiver_graph::NodeKind::Input).unwrap();
    assert_eq!(node(&mut h, &input.name), Some(u32::from(input.id.0)));
    assert_eq!(node(&mut h, "nowhere"), None);
    let lookup = node(&mut h, "ip4-lookup").unwrap();
    let capture = |node_index, max_packets| TraceCapturePackets { node_index, max_packets, ..Default::default() };
    let code = |h: &mut Harness, m: &TraceCapturePackets| code::<_, TraceCapturePacketsReply>(h, &table, m);
    assert_eq!(code(&mut h, &capture(lookup, 5)), -63);
    assert_eq!(code(&mut h, &capture(u32::MAX, 5)), -63);
    assert_eq!(code(&mut h, &capture(input.id.0.into(), 5)), 0);
    let filter = TraceSetFilters { flag: TraceFilterFlag::TRACE_FF_INCLUDE_CLASSIFIER, ..Default::default() };
    assert_eq!(request::<_, TraceSetFiltersReply>(&mut h, &table, &filter).1, -7);
    // Only to forget is a request of its own; without traces there is no entry.
    let dump = |thread_id, position| TraceDump { thread_id, position, max_records: 10, clear_cache: 1 };
    let (reply, code) = request::<_, TraceDumpReply>(&mut h, &table, &dump(u32::MAX, u32::MAX));
    assert_eq!((code, reply.flush_only, reply.done), (0, 1, 1));
    assert_eq!(request::<_, TraceDumpReply>(&mut h, &table, &dump(0, 0)).1, -6);
}

#[test]
fn a_ping_is_answered_at_once_and_runs_behind_the_client() {
    let (mut h, table) = bed();
    let mut run = |interval, repeat| {
        let address = quiver_net::api::address("10.0.0.2".parse().unwrap());
        let message = bytes(&table, &WantPingFinishedEvents { address, repeat, interval });
        let mut out = Vec::new();
        let mut call = Call { router: &mut h.router, table: &table, client: 1, context: 0, out: &mut out };
        let flow = table.dispatch(&mut call, &message);
        let request = match flow {
            Flow::Behind(Behind { request: Request::Operation { name, request, .. }, .. }) => {
                Some((name, request["repeat"].clone()))
            }
            _ => None,
        };
        (request, i32::from_be_bytes(out[16 + 6..16 + 10].try_into().unwrap()))
    };
    assert_eq!(run(0.5, 3), (Some(("ping".into(), 3.into())), 0));
    assert_eq!(run(0.5, 0), (None, 0), "nothing to send");
    assert_eq!([run(-1.0, 1), run(f64::NAN, 1)], [(None, -7), (None, -7)]);
}
