//! What an operator sees of packets on their way: traces, captures, counters, figures, drawings; with and without workers.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{Json, Router, SOON, allowed_cores};
use serde_json::{Value, json};

/// Configurations in which main, one worker, and (where there are the cores) several workers run the graph.
fn configurations() -> Vec<String> {
    let cores = allowed_cores();
    let workers = |n: usize| (cores.len() > n).then(|| format!("cpu {{ main-core {} workers {n} }}", cores[0]));
    [Some(String::new()), workers(1), workers(2), workers(4)].into_iter().flatten().collect()
}

/// Sends packets that no route takes through the graph.
fn send(router: &Router, packets: u64) {
    for line in [
        "create packet-generator interface pg0 hw-addr 02:fe:00:00:00:01",
        "set interface state pg0 up",
        "set interface ip address pg0 10.0.0.1/24",
    ] {
        router.ask(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let stream = format!(
        "packet-generator new {{ name x limit {packets} size 64-64 interface pg0 node ethernet-input data {{ \
         IP4: 02:00:00:00:00:02 -> 02:fe:00:00:00:01 UDP: 10.0.0.2 -> 192.0.2.1 UDP: 1 -> 2 incrementing 22 }} }}"
    );
    router.ask(&stream).unwrap();
    router.ask("packet-generator enable-stream").unwrap();
}

fn error_count(router: &Router) -> u64 {
    router.data("show errors")["total"].as_array().unwrap().iter().map(|row| row["count"].as_u64().unwrap()).sum()
}

fn wait_for_errors(router: &Router, count: u64) {
    let deadline = Instant::now() + SOON;
    while error_count(router) < count {
        assert!(Instant::now() < deadline, "only {} of {count}", error_count(router));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Where a router's commands put a file.
fn made(router: &Router, name: &str) -> PathBuf {
    router.path("files").join(name)
}

#[test]
fn packets_are_traced_captured_and_counted_whoever_runs_the_graph() {
    for conf in &configurations() {
        let router = Router::start(conf);
        let file = made(&router, "x.pcap");
        // An answer to a source without a route would be a drop, too.
        router.ask("set ip icmp-unreachable ip4 off").unwrap();
        router.ask("trace add pg-input 3").unwrap();
        router.ask("pcap trace rx drop max 1000 file x.pcap").unwrap();
        assert!(router.ask("pcap trace rx").unwrap_err().contains("a capture runs already"));
        send(&router, 300);
        wait_for_errors(&router, 300);

        let trace = router.ask("show trace max 2").unwrap();
        assert!(trace.contains("Packet 2\n\n00:00:") && !trace.contains("Packet 3"), "{trace}");
        for node in [": pg-input\n  ", ": ethernet-input\n  ", ": ip4-lookup\n  ", ": error-drop\n  rx:"] {
            assert!(trace.contains(node), "{node}: {trace}");
        }
        let packets = |router: &Router| -> usize {
            let threads = router.data("show trace");
            threads.as_array().unwrap().iter().map(|thread| thread["packets"].as_array().unwrap().len()).sum()
        };
        assert_eq!(packets(&router), 3);
        router.ask("trace filter exclude ip4-lookup 10").unwrap();
        assert_eq!(packets(&router), 0);
        router.ask("trace filter include ip4-lookup 2").unwrap();
        assert_eq!(packets(&router), 2);
        router.ask("clear trace").unwrap();
        assert!(router.ask("show trace").unwrap().contains("No packets in trace buffer\n"));

        assert!(router.ask("pcap trace status").unwrap().contains("pcap rx drop capture is on: 600 of 1000 pkts"));
        let said = router.ask("pcap trace off").unwrap();
        assert_eq!(said, format!("Write 600 packets to {}, and stop capture...\n", file.display()));
        check_pcap(&fs::read(&file).unwrap(), 600);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "others read no packets");

        let runtime = router.data("show runtime");
        let nodes: Vec<&Value> =
            runtime["threads"].as_array().unwrap().iter().flat_map(|t| t["nodes"].as_array().unwrap()).collect();
        let vectors = |name: &str| {
            nodes.iter().filter(|node| node["name"] == name).map(|node| node["vectors"].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!((vectors("pg-input"), vectors("ip4-input"), vectors("error-drop")), (300, 300, 300), "{conf}: {runtime}");
        let text = router.ask("show runtime").unwrap();
        assert_eq!(text.contains("Thread 1 quiver_wk_0"), !conf.is_empty());
        assert!(text.contains("             Name                 State         Calls          Vectors        Suspends      Packet-Clocks   Vectors/Call  \n"));

        router.ask("clear runtime").unwrap();
        router.ask("clear errors").unwrap();
        assert_eq!(error_count(&router), 0);
        let text = router.ask("show runtime").unwrap();
        assert!(!text.contains("ip4-input"), "{text}");
        let pool = &router.data("show buffers")[0];
        assert_eq!(pool["used"], 0, "{pool}");
    }
}

/// A classic nanosecond capture of whole Ethernet frames.
fn check_pcap(file: &[u8], packets: usize) {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20)), (0xa1b2_3c4d, 1));
    let (mut at, mut count, mut last) = (24, 0, 0);
    while at < file.len() {
        let time = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
        let (kept, len) = (word(at + 8) as usize, word(at + 12));
        assert!(time >= last && len == 64, "in order, whole: {len}");
        let bytes = &file[at + 16..at + 16 + kept];
        assert_eq!((&bytes[12..14], bytes[14]), (&[0x08, 0x00][..], 0x45), "from the Ethernet header on");
        (last, at, count) = (time, at + 16 + kept, count + 1);
    }
    assert_eq!(count, packets);
}

#[test]
fn the_active_graph_is_drawn_and_listed() {
    let router = Router::start("");
    send(&router, 10);
    wait_for_errors(&router, 10);
    let picture = router.ask("show vlib graph svg").unwrap();
    assert!(picture.starts_with("<svg ") && picture.contains(">ip4-lookup</text>") && picture.contains(">10 packets</text>"));
    assert!(!picture.contains(">ip6-lookup<"), "idle nodes are left out");
    router.ask("show vlib graphviz file graph.dot").unwrap();
    let dot = fs::read_to_string(made(&router, "graph.dot")).unwrap();
    assert!(dot.starts_with("digraph") && dot.contains("ip6-lookup") && dot.trim_end().ends_with('}'));
    for (bad, why) in [("../x", "illegal characters in filename"), ("/etc/x", "outside of the folders"), ("a/b", "No such file")] {
        let error = router.ask(&format!("show vlib graph svg file {bad}")).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    let listed = router.ask("show vlib graph ip4-lookup").unwrap();
    assert!(
        listed.starts_with("           Name                      Next                    Previous         \nip4-lookup "),
        "{listed}"
    );
}

#[test]
fn how_nodes_run_can_be_changed_while_they_do() {
    let router = Router::start("");
    router.ask("set node ip4-input multi-loop 2 prefetch 3").unwrap();
    let node = router.data("show node ip4-input");
    assert_eq!((node["loop"]["multi_loop"].as_u64(), node["loop"]["prefetch"].as_u64()), (Some(2), Some(3)));
    let variant = if cfg!(target_arch = "x86_64") { "v2" } else { "base" };
    router.ask(&format!("set node function ip4-input {variant}")).unwrap();
    assert_eq!(router.data("show node ip4-input")["loop"]["variant"], variant);
    assert_eq!(router.data("show fusion")["on"], true);
    router.ask("set fusion off").unwrap();
    let chains = [
        "ethernet-input -> ip4-input -> ip4-lookup -> ip4-rewrite",
        "ethernet-input -> ip6-input -> ip6-lookup -> ip6-rewrite",
        "ip4-input -> ip4-lookup -> ip4-rewrite",
        "ip6-input -> ip6-lookup -> ip6-rewrite",
        "ethernet-input -> ethernet-vlan -> ip4-input",
        "ethernet-input -> ethernet-vlan -> ip6-input",
        "ethernet-input -> ip4-input",
        "ethernet-input -> ip6-input",
        "ip4-lookup -> ip4-rewrite",
        "ip6-lookup -> ip6-rewrite",
        "ethernet-input -> l2-input -> l2-bridge",
        "ethernet-input -> l2-input",
    ];
    assert_eq!(router.ask("show fusion").unwrap(), format!("fusion off\n  {}\n", chains.join("\n  ")));
    for (line, why) in [
        ("set node ip4-input multi-loop 3", "1, 2, 4 or 8"),
        ("set node arp-input multi-loop 4", "has no multi-loop to set"),
        ("set node error-drop prefetch 4", "has no prefetching to set"),
        ("set node ip4-input", "nothing to set"),
        ("set node nowhere prefetch 1", "nowhere"),
        ("set node function ip4-input v9", "no such variant"),
        ("set vector-size 2000", "4 to 1024"),
        ("set fusion maybe", "on"),
        ("trace add ip4-input 5", "doesn't support per-node tracing"),
        ("trace add pg-input 0", "expected 1 to 65536"),
        ("trace filter include nowhere 1", "no such node"),
        ("pcap trace max 5", "nothing to capture"),
        ("pcap trace rx intfc nowhere", "nowhere"),
        ("pcap trace off", "no capture runs"),
        ("show node nowhere", "no such node"),
    ] {
        let error = router.ask(line).unwrap_err();
        assert!(error.contains(why) && !error.trim_end().contains('\n'), "{line}: {error}");
    }
}

#[test]
fn a_ping_to_which_nothing_came_back_is_negative_and_no_error() {
    let router = Router::start("");
    router.ask("create loopback interface").unwrap();
    router.ask("set interface state loop0 up").unwrap();
    router.ask("set interface ip address loop0 192.0.2.1/24").unwrap();
    let mut client = Json::connect(&router.path("json.sock")).unwrap();
    for data in [false, true] {
        let answered = client.ask("ping 192.0.2.1 repeat 1", data);
        assert_eq!((&answered["status"], &answered["negative"]), (&json!("ok"), &json!(null)), "{answered}");
        let silent = client.ask("ping 192.0.2.9 repeat 1 interval 0.001", data);
        assert_eq!((&silent["status"], &silent["negative"]), (&json!("ok"), &json!(true)), "{silent}");
    }
}

#[test]
fn the_clock_the_log_and_the_event_log_can_be_read_and_set() {
    let router = Router::start("");
    let before = router.data("show clock")["seconds"].as_f64().unwrap();
    router.ask("set clock adjust 3600").unwrap();
    assert!(router.data("show clock")["seconds"].as_f64().unwrap() >= before + 3600.0);
    assert!(router.ask("show clock").unwrap().starts_with("Time now 36"));

    assert!(router.ask("show logging").unwrap().contains(" notice     startup        quiver v"));
    router.ask("set logging class startup level debug rate-limit 5").unwrap();
    let unknown = router.ask("set logging class startpu level debug").unwrap_err();
    assert!(unknown.contains("unknown class `startpu'; did you mean `startup'?"), "{unknown}");
    router.ask("set logging class ip/neighbor level debug").expect("known before it says something");
    router.ask("clear logging").unwrap();
    assert_eq!(router.ask("show logging").unwrap(), "");

    router.ask("event-logger stop").unwrap();
    assert!(router.ask("show event-logger").unwrap().contains("logger stopped"));
    router.ask("event-logger start").unwrap();
    router.ask("event-logger save events").unwrap();
    assert!(made(&router, "events").exists());
    router.ask("event-logger clear").unwrap();
    assert!(router.ask("show event-logger").unwrap().starts_with("0 of "));
}

#[test]
fn every_show_is_also_json() {
    let router = Router::start("");
    let help = router.ask("show ?").unwrap();
    assert!(help.lines().count() > 10);
    for line in [
        "show version verbose",
        "show threads",
        "show cpu",
        "show runtime verbose",
        "show errors verbose 2",
        "show node counters",
        "show node ip4-input",
        "show vlib graph",
        "show vlib graphviz",
        "show features verbose",
        "show buffers",
        "show memory",
        "show physmem",
        "show logging",
        "show logging configuration",
        "show clock verbose",
        "show event-logger",
        "show vector-size",
        "show fusion",
        "show trace",
        "show plugins",
        "show macro",
        "show api trace-status",
        "pcap trace status",
        "show interface",
    ] {
        let data = router.data(line);
        assert!(data.is_object() || data.is_array(), "{line}: {data}");
    }
}

#[test]
fn events_of_the_processor_are_counted_by_thread_between_start_and_stop() {
    let router = Router::start("");
    for line in ["show perfmon", "perfmon stop"] {
        assert!(router.ask(line).unwrap_err().contains("nothing is counted: `perfmon start' begins it"), "{line}");
    }
    if let Err(error) = router.ask("perfmon start") {
        // In a container without rights; whoever runs CI has them.
        assert!(error.contains("perf events"), "{error}");
        assert!(std::env::var_os("QUIVER_CI").is_none(), "{error}");
        eprintln!("skipped: {error}");
        return;
    }
    send(&router, 300);
    wait_for_errors(&router, 300);
    let page = router.data("show perfmon");
    assert_eq!(page["running"], true);
    let packets: u64 = page["threads"].as_array().unwrap().iter().map(|t| t["packets"].as_u64().unwrap()).sum();
    assert_eq!(packets, 300, "{page}");
    // Each event is counted, or said to be missing.
    let counted = page["threads"][0]["events"].as_array().unwrap().len();
    assert_eq!(counted + page["missing"].as_array().unwrap().len(), 13, "{page}");
    assert!(router.ask("show perfmon").unwrap().contains("counting, without the kernel's work"));
    router.ask("perfmon stop").unwrap();
    let stopped = router.data("show perfmon");
    assert_eq!((&stopped["running"], &router.data("show perfmon")["threads"]), (&Value::Bool(false), &stopped["threads"]));
    router.ask("perfmon start kernel").unwrap();
    assert!(router.ask("show perfmon").unwrap().contains("counting, with the kernel's work"));
}
