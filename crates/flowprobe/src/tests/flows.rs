//! The flows of a thread and what it sends, by a clock of the test's own.

use quiver_net::Due as _;
use quiver_net::local::datagram::UdpPath;
use quiver_tables::qsbr::Domain;
use quiver_wire::build::Packet;

use super::decode::{Collector, number};
use crate::flows::{FLOWS_MAX, Flows, Noted, Params};
use crate::key::{Record, Variant, Way};
use crate::observe::{self, Seen};
use crate::template::{Reason, Template};
use quiver_ipfix::{Destination, Times};

const SECOND: u64 = 1_000_000_000;
/// 2026-01-01, ns.
const UNIX: u64 = 1_767_225_600 * SECOND;

fn at(now: u64) -> Times {
    Times { now, unix: UNIX }
}

fn destination(path_mtu: u16) -> Destination {
    let path = UdpPath {
        src: "10.0.0.1".parse().unwrap(),
        dst: "10.0.0.2".parse().unwrap(),
        src_port: 4739,
        dst_port: 2055,
        fib: 0,
        checksum: false,
    };
    Destination { path, path_mtu, template_interval: 20 * SECOND }
}

fn flows(params: Params) -> Flows {
    let mut flows = Flows::new(0);
    flows.set_params(params, 0);
    flows.set_destination(Some(destination(1400)), 0);
    flows.prepare(&Domain::new(), &[], 0).unwrap();
    flows
}

const ALL: Record = Record::new(true, true, true);

/// A UDP packet of 100 bytes of a flow.
fn seen(flow: u32) -> Seen {
    let [_, a, b, c] = flow.to_be_bytes();
    let packet = Packet::new().ipv4([10, a, b, c], [10, 9, 9, 9]).udp(1000, 53).payload(&[0; 72]).build();
    observe::packet(&packet, true, None, ALL, Way::Rx)
}

/// What leaves until then, as a collector hears it.
fn drain(flows: &mut Flows, now: u64, collector: &mut Collector) -> usize {
    let mut messages = 0;
    for flush in [false, true] {
        if flush {
            flows.stream.flush();
        }
        while flows.due() <= now {
            flows.advance(at(now));
            while let Some(ready) = flows.stream.outbox_mut().pop() {
                assert!(ready.data.len() <= 1372, "a message of {} bytes is too long for the path", ready.data.len());
                collector.hear(&ready.data);
                messages += 1;
                flows.stream.outbox_mut().keep(ready.data);
            }
        }
    }
    messages
}

#[test]
fn a_flow_ends_by_the_passive_timeout_and_tells_what_it_was() {
    let (mut flows, mut collector) = (flows(Params { record: ALL, ..Params::default() }), Collector::default());
    assert_eq!(flows.note(&seen(1), 114, SECOND), Noted::New);
    assert_eq!(flows.note(&seen(1), 114, 3 * SECOND), Noted::Recorded);
    drain(&mut flows, 10 * SECOND, &mut collector);
    assert_eq!((collector.records.len(), flows.len()), (0, 1));
    // Active first: 15 s after the start.
    drain(&mut flows, 18 * SECOND, &mut collector);
    let record = &collector.records[0];
    assert_eq!((number(record, 2), number(record, 1), number(record, 136)), (2, 200, Reason::Active as u64));
    assert_eq!((number(record, 152), number(record, 153)), ((UNIX + SECOND) / 1_000_000, (UNIX + 3 * SECOND) / 1_000_000));
    assert_eq!((number(record, 8), number(record, 12), number(record, 4)), (0x0a00_0001, 0x0a09_0909, 17));
    assert_eq!((number(record, 7), number(record, 11), number(record, 61)), (1000, 53, 0));
    flows.note(&seen(1), 114, 20 * SECOND);
    (21..=200).for_each(|second| _ = drain(&mut flows, second * SECOND, &mut collector));
    let told: Vec<_> = collector.records.iter().map(|r| (number(r, 2), number(r, 136))).collect();
    assert_eq!(told, [(2, 2), (1, 2)], "what was told once is not told again when the flow is idle");
    assert_eq!((flows.len(), collector.lost), (0, 0));
    // Room is used again.
    assert_eq!(flows.note(&seen(1), 114, 300 * SECOND), Noted::New);
}

#[test]
fn without_an_active_timeout_a_flow_is_told_once() {
    let params = Params { record: ALL, active: 0, passive: 10, sample: 1 };
    let (mut flows, mut collector) = (flows(params), Collector::default());
    for second in 1..60 {
        flows.note(&seen(1), 114, second * SECOND);
        drain(&mut flows, second * SECOND, &mut collector);
    }
    assert_eq!(collector.records.len(), 0);
    drain(&mut flows, 72 * SECOND, &mut collector);
    let told: Vec<_> = collector.records.iter().map(|r| (number(r, 2), number(r, 136))).collect();
    assert_eq!(told, [(59, 1)]);
}

#[test]
fn without_a_passive_timeout_each_packet_is_a_record() {
    let params = Params { record: ALL, active: 0, passive: 0, sample: 1 };
    let (mut flows, mut collector) = (flows(params), Collector::default());
    (0..100).for_each(|n| assert_eq!(flows.note(&seen(n % 3), 114, SECOND), Noted::Recorded));
    drain(&mut flows, 3 * SECOND, &mut collector);
    assert_eq!((collector.records.len(), flows.len(), collector.lost), (100, 0, 0));
}

#[test]
fn a_full_table_refuses_flows_and_keeps_those_it_has() {
    let (mut flows, mut collector) = (flows(Params { record: ALL, ..Params::default() }), Collector::default());
    for n in 0..FLOWS_MAX {
        assert_eq!(flows.note(&seen(n), 114, SECOND), Noted::New, "{n}");
    }
    assert_eq!(flows.note(&seen(FLOWS_MAX), 114, SECOND), Noted::Full);
    assert_eq!(flows.note(&seen(7), 114, SECOND), Noted::Recorded);
    drain(&mut flows, 17 * SECOND, &mut collector);
    assert_eq!(collector.records.len(), FLOWS_MAX as usize);
    let packets: u64 = collector.records.iter().map(|record| number(record, 2)).sum();
    assert_eq!((packets, collector.lost), (u64::from(FLOWS_MAX) + 1, 0));
    drain(&mut flows, 200 * SECOND, &mut collector);
    assert!(flows.is_empty());
}

#[test]
fn one_packet_in_so_many_is_chosen_and_the_collector_is_told() {
    let (mut flows, mut collector) = (flows(Params { record: ALL, sample: 10, ..Params::default() }), Collector::default());
    flows.prepare(&Domain::new(), &[Template::new(Variant::Ip4, ALL).unwrap()], 0).unwrap();
    let chosen: Vec<bool> = (0..1000).map(|_| flows.choose()).collect();
    assert_eq!(chosen.iter().filter(|chosen| **chosen).count(), 100);
    assert!(chosen.iter().enumerate().all(|(n, chosen)| *chosen == (n % 10 == 0)), "systematic count-based sampling");
    flows.note(&seen(1), 114, SECOND);
    drain(&mut flows, 60 * SECOND, &mut collector);
    let option = &collector.options[0];
    assert_eq!((number(option, 304), number(option, 305), number(option, 306)), (1, 1, 9));
    flows.set_params(Params { record: ALL, ..Params::default() }, 61 * SECOND);
    drain(&mut flows, 62 * SECOND, &mut collector);
    assert_eq!(number(collector.options.last().unwrap(), 306), 0, "the collector hears that all packets count again");
}

#[test]
fn templates_come_first_and_again_with_each_interval() {
    let mut flows = flows(Params { record: ALL, ..Params::default() });
    let mut collector = Collector::default();
    flows.prepare(&Domain::new(), &[Template::new(Variant::Ip4, ALL).unwrap()], 0).unwrap();
    for second in 0..100 {
        drain(&mut flows, second * SECOND, &mut collector);
    }
    assert_eq!(collector.announced, 5, "at 0, 20, 40, 60 and 80 seconds");
    assert!(collector.records.is_empty());
}

#[test]
fn messages_fit_the_path_and_lost_ones_leave_a_gap_in_the_numbers() {
    let params = Params { record: ALL, active: 0, passive: 0, sample: 1 };
    let (mut flows, mut collector) = (flows(params), Collector::default());
    flows.set_destination(Some(destination(256)), 0);
    // Twice what may wait.
    let records = 2 * 256 * 2;
    for n in 0..records {
        flows.note(&seen(n), 114, SECOND);
    }
    let mut longest = 0;
    flows.stream.flush();
    while flows.due() <= SECOND {
        flows.advance(at(SECOND));
        while let Some(ready) = flows.stream.outbox_mut().pop() {
            longest = longest.max(ready.data.len());
            collector.hear(&ready.data);
        }
    }
    assert!(longest <= 256 - 28 && longest > 150, "{longest}");
    let totals = *flows.stream.outbox().totals();
    assert!(totals.lost_items > 0 && totals.lost > 0);
    assert_eq!(collector.records.len() as u64 + totals.lost_items, u64::from(records));
    // The collector learns of them from the next message.
    flows.note(&seen(0), 114, 2 * SECOND);
    drain(&mut flows, 4 * SECOND, &mut collector);
    assert_eq!(u64::from(collector.lost), totals.lost_items);
}

#[test]
fn records_without_a_collector_are_counted() {
    let mut flows = flows(Params { record: ALL, active: 0, passive: 0, sample: 1 });
    flows.set_destination(None, 0);
    (0..5).for_each(|n| _ = flows.note(&seen(n), 114, SECOND));
    assert_eq!((flows.stream.homeless(), flows.stream.records()), (5, 0));
    assert_eq!(flows.due(), u64::MAX);
}

#[test]
fn what_a_thread_has_is_told_when_it_leaves() {
    let (mut flows, mut collector) = (flows(Params { record: ALL, ..Params::default() }), Collector::default());
    (0..10).for_each(|n| _ = flows.note(&seen(n), 114, SECOND));
    flows.end(at(2 * SECOND));
    drain(&mut flows, 2 * SECOND, &mut collector);
    assert_eq!(collector.records.len(), 10);
    assert!(collector.records.iter().all(|record| number(record, 136) == Reason::Forced as u64));
    assert!(flows.is_empty());
}

#[test]
fn every_template_describes_its_records() {
    let frame = || Packet::ethernet(quiver_wire::MacAddr([2; 6]), quiver_wire::MacAddr([4; 6]));
    let mut count = 0;
    for template in (0..crate::template::COUNT).filter_map(Template::at) {
        let mut bytes = Vec::new();
        template.write(&mut bytes);
        assert_eq!(bytes.len(), template.template_len());
        assert!(template.template_len().max(template.record_len()) + 16 + 4 + 48 <= 256, "fits the least path MTU");
        count += 1;
    }
    assert_eq!(count, 35, "five kinds, seven records each");
    for record in (1..8).map(Record::from_bits) {
        let udp4 = frame().ipv4([1, 2, 3, 4], [5, 6, 7, 8]).udp(1, 2).build();
        let udp6 = frame().ipv6([1; 16], [2; 16]).udp(1, 2).build();
        for seen in [
            observe::frame(&udp4, record, Way::Tx),
            observe::frame(&udp6, record, Way::Tx),
            observe::frame(&[7; 60], record, Way::Rx),
            observe::packet(&udp4[14..], true, None, record, Way::Rx),
            observe::packet(&udp6[14..], false, None, record, Way::Rx),
        ] {
            let mut flows = flows(Params { record, active: 0, passive: 0, sample: 1 });
            let mut collector = Collector::default();
            flows.note(&seen, 60, SECOND);
            drain(&mut flows, 3 * SECOND, &mut collector);
            assert_eq!(collector.records.len(), 1, "{seen:?}");
            let told = &collector.records[0];
            let is_ip = seen.key.addresses().is_some();
            assert_eq!(told.contains_key(&7), record.l4() && is_ip);
            assert_eq!(told.contains_key(&56), record.l2());
            assert_eq!(told.contains_key(&4), record.l3() && is_ip);
            assert_eq!(told.contains_key(&352), seen.key.variant().is_l2());
        }
    }
}

#[test]
fn later_fragments_have_no_ports_and_odd_bytes_give_a_key() {
    let mut packet = Packet::new().ipv4([1, 2, 3, 4], [5, 6, 7, 8]).tcp(80, 443, quiver_wire::tcp::TcpFlags::SYN).build();
    let whole = observe::packet(&packet, true, None, ALL, Way::Rx);
    assert_eq!(whole.key.ports(), (80, 443));
    packet[7] = 5;
    assert_eq!(observe::packet(&packet, true, None, ALL, Way::Rx).key.ports(), (0, 0));
    for len in 0..60 {
        let bytes = vec![0x45; len];
        observe::packet(&bytes, true, None, ALL, Way::Rx);
        observe::packet(&bytes, false, None, ALL, Way::Rx);
        observe::frame(&bytes, ALL, Way::Rx);
    }
}
