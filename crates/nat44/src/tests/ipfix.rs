//! Records for a collector of IPFIX, read by the templates that came before them.

use std::collections::{BTreeMap, HashMap};

use quiver_ipfix::exporter;
use quiver_ipfix::{Exporter, PORT};

use super::*;

/// The collector, outside.
const COLLECTOR: [u8; 4] = [203, 0, 113, 77];

/// A record: values by information element.
type Record = BTreeMap<u16, u64>;

/// What the collector knows, and what it has got.
#[derive(Default)]
struct Collector {
    templates: HashMap<u16, Vec<(u16, u16)>>,
    records: Vec<Record>,
    domains: Vec<u32>,
    ports: Vec<u16>,
    next: u32,
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

impl Collector {
    fn take(&mut self, frame: &[u8]) {
        let (ports, message) = (&frame[34..38], &frame[42..]);
        if frame[30..34] != COLLECTOR || word(ports, 2) != 2055 {
            return;
        }
        self.ports.push(word(ports, 0));
        assert_eq!((word(message, 0), usize::from(word(message, 2))), (10, message.len()));
        let long = |at: usize| u32::from_be_bytes(message[at..at + 4].try_into().unwrap());
        assert_eq!(long(8), self.next, "sequence");
        self.domains.push(long(12));
        let mut at = 16;
        while at < message.len() {
            let (set, len) = (word(message, at), usize::from(word(message, at + 2)));
            let body = &message[at + 4..at + len];
            if set == 2 {
                self.take_templates(body)
            } else {
                self.take_records(set, body)
            }
            at += len;
        }
    }

    fn take_templates(&mut self, mut body: &[u8]) {
        while !body.is_empty() {
            let (id, count) = (word(body, 0), usize::from(word(body, 2)));
            let fields = (0..count).map(|n| (word(body, 4 + 4 * n), word(body, 6 + 4 * n))).collect();
            self.templates.insert(id, fields);
            body = &body[4 + 4 * count..];
        }
    }

    fn take_records(&mut self, set: u16, mut body: &[u8]) {
        let fields = self.templates.get(&set).expect("a template came before");
        while !body.is_empty() {
            let mut record = Record::new();
            for (element, len) in fields {
                let (value, rest) = body.split_at(usize::from(*len));
                record.insert(*element, value.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)));
                body = rest;
            }
            self.records.push(record);
            self.next += 1;
        }
    }
}

/// Sends what there is, and has the collector take it; gives the records that are new.
fn collect(bed: &mut Bed, collector: &mut Collector) -> Vec<Record> {
    // What threads have told is written first.
    bed.settle();
    exporter::flush(&mut bed.h.router);
    bed.settle();
    // Once more for what goes by way of another thread.
    [bed.h.run(), bed.h.run()].concat().iter().for_each(|(_, frame)| collector.take(frame));
    std::mem::take(&mut collector.records)
}

fn exporter() -> Exporter {
    Exporter { collector: COLLECTOR.into(), port: 2055, src: [198, 51, 100, 1].into(), path_mtu: 400, ..Exporter::NONE }
}

fn number(address: [u8; 4]) -> u64 {
    u32::from_be_bytes(address).into()
}

/// The values of these elements.
fn of<const N: usize>(record: &Record, elements: [u16; N]) -> [u64; N] {
    elements.map(|element| *record.get(&element).unwrap_or_else(|| panic!("no {element} in {record:?}")))
}

#[test]
fn sessions_are_told_when_they_begin_and_end() {
    for workers in [0, 2] {
        let mut bed = Bed::usual(workers);
        let mut collector = Collector::default();
        exporter::set(&mut bed.h.router, Some(exporter())).unwrap();
        run(&mut bed.h, "nat ipfix logging domain 5 src-port 4000");
        assert_eq!(collect(&mut bed, &mut collector), [], "templates come first");
        assert_eq!(collector.templates.len(), 6);
        let seen = bed.out(from_inside(2).udp(1000, 9));
        let begun = collect(&mut bed, &mut collector);
        assert_eq!(begun.len(), 1);
        // natEvent, source, protocol, port, table; the remote end before and after.
        let expected = [4, number([10, 0, 0, 2]), 17, 1000, 0, number(REMOTE), number(REMOTE), 9, 9];
        assert_eq!(of(&begun[0], [230, 8, 4, 7, 234, 12, 226, 11, 228]), expected);
        assert_eq!(of(&begun[0], [225, 227]), [number(seen.src.octets()), seen.sport.into()]);
        assert!(begun[0][&323] > 1_700_000_000_000, "milliseconds since 1970");
        // More than a message has room for; all end by time.
        for port in 0..20 {
            bed.out(from_inside(3).udp(2000 + port, 9));
        }
        assert_eq!(collect(&mut bed, &mut collector).len(), 20);
        bed.now += 301_000_000_000;
        // Sessions end a few at a time.
        let mut ended = collect(&mut bed, &mut collector);
        for _ in 0..50 {
            ended.extend(collect(&mut bed, &mut collector));
        }
        let shown = run(&mut bed.h, "show nat44 logging");
        assert!(ended.len() == 21 && ended.iter().all(|record| record[&230] == 5), "{workers} workers: {ended:?}\n{shown}");
        assert!(collector.domains.iter().all(|domain| *domain == 5) && collector.ports.iter().all(|port| *port == 4000));
        let expected = "nat44 logging: disabled\nnat ipfix logging: domain 5 from port 4000, collector 203.0.113.77:2055, records 42, \
                        without collector 0, lost messages 0\n";
        assert_eq!(shown, expected);
        run(&mut bed.h, "nat ipfix logging disable");
        bed.out(from_inside(2).udp(1000, 9));
        assert_eq!(collect(&mut bed, &mut collector), []);
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn mappings_are_told_with_their_first_and_last_session() {
    let mut bed = Bed::new(0, "nat44 add address 198.51.100.10 endpoint-independent");
    let mut collector = Collector::default();
    exporter::set(&mut bed.h.router, Some(exporter())).unwrap();
    run(&mut bed.h, "nat ipfix logging");
    collect(&mut bed, &mut collector);
    let to = |port| from_inside(2).udp(1000, port);
    bed.out(to(9));
    bed.out(to(10));
    let events = |records: &[Record]| records.iter().map(|record| record[&230]).collect::<Vec<_>>();
    let begun = collect(&mut bed, &mut collector);
    assert_eq!(events(&begun), [8, 4, 4]);
    let mapping = of(&begun[0], [8, 225, 4, 7]);
    assert_eq!(mapping, [number([10, 0, 0, 2]), number([198, 51, 100, 10]), 17, 1000]);
    assert!(!begun[0].contains_key(&12), "it has no remote end");
    run(&mut bed.h, "nat44 del session in 10.0.0.2:1000 udp external-host 203.0.113.9:9");
    assert_eq!(events(&collect(&mut bed, &mut collector)), [5]);
    run(&mut bed.h, "nat44 del session in 10.0.0.2:1000 udp external-host 203.0.113.9:10");
    assert_eq!(events(&collect(&mut bed, &mut collector)), [5, 9]);
}

#[test]
fn limits_are_told_once_a_second() {
    let limits = "nat44 plugin enable sessions 6\nnat44 add address 198.51.100.10\nset nat44 session limit 3\nset nat44 session limit 4 vrf 0";
    let mut bed = Bed::new(0, limits);
    let mut collector = Collector::default();
    exporter::set(&mut bed.h.router, Some(exporter())).unwrap();
    run(&mut bed.h, "nat ipfix logging");
    collect(&mut bed, &mut collector);
    let send = |bed: &mut Bed, host: u8| {
        for port in 0..8 {
            bed.h.exchange(bed.inside, &from_inside(host).udp(1000 + port, 9).build());
        }
    };
    let limits = |records: Vec<Record>| records.into_iter().filter(|record| record[&230] > 5).collect::<Vec<_>>();
    // A host's, then the table's, then the thread's.
    send(&mut bed, 2);
    let told = limits(collect(&mut bed, &mut collector));
    assert_eq!(told.iter().map(|record| of(record, [230, 466, 473, 8])).collect::<Vec<_>>(), [[13, 3, 3, number([10, 0, 0, 2])]]);
    send(&mut bed, 3);
    let told = limits(collect(&mut bed, &mut collector));
    assert_eq!(told.iter().map(|record| of(record, [230, 466, 471, 234])).collect::<Vec<_>>(), [[13, 1, 4, 0]]);
    run(&mut bed.h, "set nat44 session limit 0 vrf 0");
    (4..6).for_each(|host| send(&mut bed, host));
    let told = limits(collect(&mut bed, &mut collector));
    assert_eq!(told.iter().map(|record| of(record, [230, 466])).collect::<Vec<_>>().last(), Some(&[13, 1]), "{told:?}");
    assert_eq!(told.last().map(|record| (record[&471], record.contains_key(&234))), Some((6, false)));
}

#[test]
fn a_pool_without_a_free_port_is_told() {
    let mut bed = Bed::new(0, "nat44 plugin enable sessions 70000\nnat44 add address 198.51.100.10");
    let mut collector = Collector::default();
    exporter::set(&mut bed.h.router, Some(exporter())).unwrap();
    // Every port that a session may get. Each session has its own one as the source, which it keeps: a search among random ones
    // would end before the last port is found.
    let ports: Vec<u16> = (1024..=u16::MAX).collect();
    for (host, ports) in (0..).zip(ports.chunks(1000)) {
        let frames: Vec<_> = ports.iter().map(|port| from_host([10, 2, 0, host]).udp(*port, 9).build()).collect();
        for vector in frames.chunks(250) {
            bed.h.inject_many(bed.inside, vector, 0);
            assert_eq!(bed.h.run().len(), vector.len(), "each has a port");
        }
    }
    run(&mut bed.h, "nat ipfix logging");
    collect(&mut bed, &mut collector);
    let frames: Vec<_> = (0..200).map(|p| from_host([10, 3, 0, 1]).udp(10_000 + p, 9).build()).collect();
    bed.h.inject_many(bed.inside, &frames, 0);
    bed.h.run();
    let told = collect(&mut bed, &mut collector);
    let told: Vec<_> = told.iter().filter(|record| record[&230] == 3).map(|record| record[&283]).collect();
    assert_eq!(told, [0], "once, of the only pool");
}

#[test]
fn without_an_exporter_records_are_counted_and_nothing_is_sent() {
    let mut bed = Bed::usual(0);
    run(&mut bed.h, "nat ipfix logging enable domain 9");
    bed.out(from_inside(2).udp(1000, 9));
    bed.settle();
    let shown = run(&mut bed.h, "show nat44 logging");
    let expected = format!(
        "nat ipfix logging: domain 9 from port {PORT}, no collector, `set ipfix exporter' names one, records 0, without collector 1"
    );
    assert!(shown.contains(&expected), "{shown}");
    run(&mut bed.h, "nat44 plugin disable");
    assert!(error(&mut bed.h, "nat ipfix logging").contains("not enabled"));
}
