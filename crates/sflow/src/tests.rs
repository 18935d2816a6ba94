//! Datagrams, choice, nodes, commands and binary messages.

use quiver_api::Catalog;
use quiver_api::defs::InterfaceIndex;
use quiver_net::api::testing::{ask, assert_names, read, table};
use quiver_net::ops::testing::assert_rebuilt;
use quiver_net::testing::{Harness, error, host_mac, index, router_mac, run};
use quiver_wire::build::Packet;

use crate::api::*;

fn bare(workers: usize) -> Harness {
    Harness::with_plugin(&crate::plugin(), workers, 3)
}

/// x0, x1 and x2 with 10.0.n.1/24 and hosts `.2` that are known; the collector is behind x2.
fn bed(workers: usize) -> Harness {
    let mut h = bare(workers);
    for n in 0..3 {
        let mac = host_mac(n);
        run(&mut h, &format!("set interface ip address x{n} 10.0.{n}.1/24\nset ip neighbor x{n} 10.0.{n}.2 {mac}"));
    }
    run(&mut h, "sflow collector 10.0.2.2 src 10.0.2.1");
    h.run();
    h
}

/// A sample of a frame, as a collector reads it.
#[derive(Debug, PartialEq, Eq)]
struct Flow {
    sequence: u32,
    source: u32,
    rate: u32,
    pool: u32,
    input: u32,
    output: u32,
    frame_len: u32,
    header: Vec<u8>,
}

/// What a collector has heard.
#[derive(Default)]
struct Collector {
    flows: Vec<Flow>,
    /// Number of the interface, bytes received and sent.
    counters: Vec<(u32, u64, u64)>,
}

/// Reads by the standard: words and lengths.
fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

impl Collector {
    fn hear(&mut self, data: &[u8]) {
        assert_eq!(data.len() % 4, 0);
        let head = words(data);
        assert_eq!((head[0], head[1], head[2]), (5, 1, 0x0a00_0201), "version, agent");
        let (samples, mut at) = (head[6], 28);
        for _ in 0..samples {
            let kind = words(&data[at..at + 8]);
            let body = &data[at + 8..at + 8 + kind[1] as usize];
            let words = words(body);
            match kind[0] {
                1 => {
                    assert_eq!((words[7], words[8], words[10]), (1, 1, 1), "one record: a raw header of Ethernet");
                    assert_eq!(words[9] as usize, body.len() - 40, "length of the record");
                    let header = body[56..56 + words[13] as usize].to_vec();
                    self.flows.push(Flow {
                        sequence: words[0],
                        source: words[1],
                        rate: words[2],
                        pool: words[3],
                        input: words[5],
                        output: words[6],
                        frame_len: words[11] - words[12],
                        header,
                    });
                }
                2 => {
                    assert_eq!((words[2], words[3], words[4]), (1, 1, 88));
                    let wide = |at: usize| u64::from(words[at]) << 32 | u64::from(words[at + 1]);
                    assert_eq!(words[5], words[1], "the interface is the source");
                    self.counters.push((words[5], wide(11), wide(19)));
                }
                other => panic!("sample of kind {other}"),
            }
            at += 8 + kind[1] as usize;
        }
        assert_eq!(at, data.len());
    }
}

/// A frame to the host behind x1, from the one behind x0.
fn frame(payload: usize) -> Vec<u8> {
    Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 0, 1, 2]).udp(1, 2).payload(&vec![7; payload]).build()
}

/// Has everything sent and gives what the collector hears.
fn collect(h: &mut Harness, collector: &mut Collector) {
    let mut frames = h.run();
    crate::control::on_each(&mut h.router, |_, sampler| sampler.flush(0)).unwrap();
    frames.extend(h.run());
    let x2 = index(h, "x2");
    for (by, frame) in frames {
        if by == x2 && frame.get(36..38) == Some(&6343_u16.to_be_bytes()) {
            collector.hear(&frame[42..]);
        }
    }
}

#[test]
fn frames_that_leave_are_sampled_with_their_first_bytes() {
    for workers in [0, 2] {
        let (mut h, mut collector) = (bed(workers), Collector::default());
        run(
            &mut h,
            "sflow sampling-rate 1\nsflow direction tx\nsflow header-bytes 64\nsflow polling-interval 0\nsflow enable-disable x1",
        );
        let [x0, x1] = ["x0", "x1"].map(|name| index(&h, name));
        h.inject_many(x0, &vec![frame(100); 10], 0);
        collect(&mut h, &mut collector);
        assert_eq!(collector.flows.len(), 10);
        let first = &collector.flows[0];
        assert_eq!((first.sequence, first.source, first.rate, first.pool), (1, x1.0, 1, 1));
        assert_eq!((first.input, first.output, first.frame_len, first.header.len()), (x0.0, x1.0, 142, 64));
        assert_eq!(first.header[..6], host_mac(1).0);
        assert_eq!(collector.flows[9].pool, 10);
        assert_eq!(h.count("sflow-output", "sflow packets sampled"), 10);
        h.assert_buffers_held(0);
        run(&mut h, "sflow enable-disable x1 disable");
        h.inject_many(x0, &vec![frame(100); 10], 0);
        collect(&mut h, &mut collector);
        assert_eq!(collector.flows.len(), 10);
    }
}

#[test]
fn one_frame_in_so_many_is_chosen_in_the_mean() {
    let mut sampler = crate::sampler::Sampler::new(0, crate::sampler::Settings { rate: 10_000, header: 128 }, 1);
    sampler.set(crate::sampler::Settings { rate: 100, header: 128 }, 4);
    let chosen = (0..1_000_000).filter(|_| sampler.choose(1)).count();
    assert!((9_000..11_000).contains(&chosen), "{chosen} of a million, one in a hundred");
    sampler.set(crate::sampler::Settings { rate: 1, header: 128 }, 4);
    assert!((0..100).all(|_| sampler.choose(1)));
}

#[test]
fn counters_are_sampled_by_the_process() {
    let (mut h, mut collector) = (bed(1), Collector::default());
    run(&mut h, "sflow polling-interval 20\nsflow enable-disable x0\nsflow enable-disable x1");
    let x0 = index(&h, "x0");
    let x1 = index(&h, "x1").0;
    // What a device counts; those of the harness count nothing.
    h.router.graph.interfaces().tx.add(0, x1, 10, 1420);
    let now = h.router.graph.clock().timer_now();
    h.router.run_processes(now);
    h.run();
    collect(&mut h, &mut collector);
    let sent = h.router.graph.interfaces().tx.sum(x1).1;
    assert_eq!(collector.counters.iter().map(|(index, ..)| *index).collect::<Vec<_>>(), [x0.0, x1]);
    assert_eq!((collector.counters[1].2, sent), (1420, 1420));
    // Not again before the interval is over.
    h.router.run_processes(now + 1_000_000_000);
    h.run();
    collect(&mut h, &mut collector);
    assert_eq!(collector.counters.len(), 2);
    h.router.run_processes(now + 21_000_000_000);
    h.run();
    collect(&mut h, &mut collector);
    assert_eq!(collector.counters.len(), 4);
}

#[test]
fn what_is_shown_has_vpps_words() {
    let mut h = bed(0);
    run(&mut h, "sflow sampling-rate 77\nsflow header-bytes 100\nsflow direction both\nsflow enable-disable x1");
    let shown = run(&mut h, "show sflow");
    let expected = "sflow sampling-rate 77\nsflow direction both\nsflow polling-interval 20\nsflow header-bytes 128\n\
                    sflow collector 10.0.2.2 port 6343 src 10.0.2.1 fib-id 0 path-mtu 1400\nsflow enable x1\nStatus\n  interfaces enabled: 1\n";
    assert!(shown.starts_with(expected), "{shown}");
    for (given, kept) in [(0, 64), (64, 64), (65, 96), (1_000_000, 256)] {
        run(&mut h, &format!("sflow header-bytes {given}"));
        assert!(run(&mut h, "show sflow").contains(&format!("header-bytes {kept}\n")), "{given}");
    }
}

#[test]
fn the_configuration_rebuilds_everything() {
    let lines = "set interface ip address x2 10.0.2.1/24
        ip table add 7
        sflow collector 10.0.2.2 port 9999 src 10.0.2.1 fib-id 7 path-mtu 1500
        sflow sampling-rate 5
        sflow polling-interval 0
        sflow header-bytes 256
        sflow direction both
        sflow enable-disable x0
        sflow enable-disable x1";
    assert_rebuilt(&[crate::ops::register], || bare(0), lines, &["show sflow"]);
}

#[test]
fn errors_say_what_is_wrong() {
    let mut h = bed(0);
    run(&mut h, "sflow enable-disable x0\ncreate sub-interfaces x1 7");
    assert!(error(&mut h, "sflow enable-disable x0").contains("x0 is sampled already"));
    assert!(error(&mut h, "sflow enable-disable x1 disable").contains("x1 is not sampled"));
    let wrong = error(&mut h, "sflow enable-disable x1.7");
    assert!(wrong.contains("x1.7 is a sub-interface") && wrong.contains("name x1"), "{wrong}");
    assert!(error(&mut h, "sflow enable-disable local0").contains("no Ethernet frames"));
    assert!(error(&mut h, "sflow collector 10.0.2.9").contains("need a source address"));
    assert!(error(&mut h, "sflow sampling-rate 0").contains("1 to 16777216"));
    let x0 = index(&h, "x0");
    h.router.delete_interface(x0).unwrap();
    assert!(run(&mut h, "show sflow").contains("interfaces enabled: 0"));
}

#[test]
fn numbers_of_messages_are_those_of_vpp() {
    let names = [
        "sflow_enable_disable_8499814f",
        "sflow_enable_disable_reply_e8d4e804",
        "sflow_sampling_rate_get_51077d14",
        "sflow_sampling_rate_get_reply_9c8c8236",
        "sflow_sampling_rate_set_94778f50",
        "sflow_sampling_rate_set_reply_e8d4e804",
        "sflow_polling_interval_set_7f19cb51",
        "sflow_polling_interval_set_reply_e8d4e804",
        "sflow_polling_interval_get_51077d14",
        "sflow_polling_interval_get_reply_e929801c",
        "sflow_header_bytes_set_5baf56f3",
        "sflow_header_bytes_set_reply_e8d4e804",
        "sflow_header_bytes_get_51077d14",
        "sflow_header_bytes_get_reply_624c95b9",
        "sflow_direction_set_fbca6f34",
        "sflow_direction_set_reply_e8d4e804",
        "sflow_direction_get_51077d14",
        "sflow_direction_get_reply_f3316252",
        "sflow_interface_dump_451a727d",
        "sflow_interface_details_b7b9143f",
    ];
    assert_names(&Catalog::of([sflow()]), &names);
}

#[test]
fn messages_do_what_commands_do() {
    let mut h = bare(0);
    let table = table(add);
    let x0 = InterfaceIndex(index(&h, "x0").0);
    let on = SflowEnableDisable { enable_disable: true, hw_if_index: x0.clone() };
    assert_eq!(read::<SflowEnableDisableReply>(&ask(&mut h, &table, 1, &on)[0]).retval, 0);
    assert!(read::<SflowEnableDisableReply>(&ask(&mut h, &table, 1, &on)[0]).retval < 0, "it is on");
    let shown = ask(&mut h, &table, 1, &SflowInterfaceDump { hw_if_index: InterfaceIndex(u32::MAX) });
    assert_eq!(read::<SflowInterfaceDetails>(&shown[0]).hw_if_index, x0);
    assert_eq!(read::<SflowSamplingRateSetReply>(&ask(&mut h, &table, 1, &SflowSamplingRateSet { sampling_N: 9 })[0]).retval, 0);
    assert_eq!(read::<SflowSamplingRateGetReply>(&ask(&mut h, &table, 1, &SflowSamplingRateGet {})[0]).sampling_N, 9);
    assert_eq!(
        read::<SflowPollingIntervalSetReply>(&ask(&mut h, &table, 1, &SflowPollingIntervalSet { polling_S: 3 })[0]).retval,
        0
    );
    assert_eq!(read::<SflowPollingIntervalGetReply>(&ask(&mut h, &table, 1, &SflowPollingIntervalGet {})[0]).polling_S, 3);
    assert_eq!(read::<SflowHeaderBytesSetReply>(&ask(&mut h, &table, 1, &SflowHeaderBytesSet { header_B: 96 })[0]).retval, 0);
    assert_eq!(read::<SflowHeaderBytesGetReply>(&ask(&mut h, &table, 1, &SflowHeaderBytesGet {})[0]).header_B, 96);
    assert_eq!(read::<SflowDirectionSetReply>(&ask(&mut h, &table, 1, &SflowDirectionSet { sampling_D: 3 })[0]).retval, 0);
    assert_eq!(read::<SflowDirectionGetReply>(&ask(&mut h, &table, 1, &SflowDirectionGet {})[0]).sampling_D, 3);
    assert!(read::<SflowDirectionSetReply>(&ask(&mut h, &table, 1, &SflowDirectionSet { sampling_D: 4 })[0]).retval < 0);
}
