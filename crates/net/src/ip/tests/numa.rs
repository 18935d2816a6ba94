//! Threads on several memory nodes, each with its copies of the tables.

use quiver_buffer::{PageSize, RegionConfig};
use quiver_graph::ThreadPlan;
use quiver_tables::lpm4::Lpm4;
use quiver_tables::lpm6::Lpm6;

use super::*;
use crate::RouterConfig;

/// Workers on these memory nodes, of two that there are; with copies on the kernel's node of each place. Threads 1, 2, ...
fn config(workers: &[usize], fib_nodes: &[Option<u32>]) -> RouterConfig {
    RouterConfig {
        buffers: RegionConfig { buffers_per_numa: 4096, numa_nodes: 2, page_size: PageSize::Kb4, ..Default::default() },
        workers: plans(workers),
        fib_nodes: fib_nodes.to_vec(),
        ..Default::default()
    }
}

fn plans(workers: &[usize]) -> Vec<ThreadPlan> {
    workers.iter().map(|numa| ThreadPlan { numa: *numa, ..Default::default() }).collect()
}

/// A table's readers in both families.
type Both = (Option<Lpm4>, Option<Lpm6>);

/// For each thread that runs the graph the copies that its lookups in this FIB read: IPv4's and IPv6's.
fn copies(h: &mut Harness, fib: u32) -> Vec<(Option<usize>, Option<usize>)> {
    let (four, six): (Tables<V4>, Tables<V6>) = (h.router.lookup_tables(), h.router.lookup_tables());
    let tables = (h.router.fib().v4.get(fib), h.router.fib().v6.get(fib));
    let four_of = |n| tables.0.map(|table| V4::reader(&table.routes, n));
    let six_of = |n| tables.1.map(|table| V6::reader(&table.routes, n));
    let of_copy: Vec<Both> = (0..3).map(|n| (four_of(n), six_of(n))).collect();
    let node = h.router.graph.node("ip4-lookup").unwrap();
    let threads = h.router.graph.fleet().threads();
    let mut read_by = |thread: usize| {
        let (mut four, mut six) = (four.clone(), six.clone());
        let refreshed = h.router.graph.fleet().on(thread, move |worker| {
            worker.at_node(node, |cx| {
                four.refresh(cx);
                six.refresh(cx);
            });
            (four, six)
        });
        let (four, six) = refreshed.unwrap();
        let is_four = |(of, _): &Both| of.as_ref().zip(four.reader(fib)).is_some_and(|(a, b)| a.reads_same(b));
        let is_six = |(_, of): &Both| of.as_ref().zip(six.reader(fib)).is_some_and(|(a, b)| a.reads_same(b));
        (of_copy.iter().position(is_four), of_copy.iter().position(is_six))
    };
    threads.into_iter().map(&mut read_by).collect()
}

fn both(copies: &[usize]) -> Vec<(Option<usize>, Option<usize>)> {
    copies.iter().map(|copy| (Some(*copy), Some(*copy))).collect()
}

/// Packets of both families on each thread leave by x1 where there is a way, and are dropped where there is none.
fn forward(h: &mut Harness, x: &[IfIndex], to: [&str; 2], out: Option<usize>) {
    for thread in 0..h.router.graph.fleet().threads().len() {
        for (from, to) in ["10.0.0.2", "2001:db8::2"].into_iter().zip(to) {
            let frame = Packet::new(from, to).frame(host_mac(0), router_mac(0));
            h.inject_many(x[0], &vec![frame.clone(); 70], thread);
            let left = h.run();
            let expected: Vec<_> =
                out.iter().flat_map(|n| vec![(x[*n], forwarded(&frame, router_mac(*n as u8), host_mac(*n as u8))); 70]).collect();
            assert!(left == expected, "{to} on thread {thread}: {} left, {:?}", left.len(), h.counts());
        }
    }
}

#[test]
fn threads_forward_by_the_copy_of_their_memory_node() {
    // What the kernel says to node 1 depends on the machine; the copy is there in any case.
    let (mut h, x) = bed_of(Harness::of(&config(&[0, 1, 0, 1, 7], &[Some(0), Some(1)])), 3);
    assert_eq!(copies(&mut h, 0), both(&[0, 1, 0, 1, 0]), "there is no node of place 7");
    let to = ["198.51.100.7", "2001:db8:77::7"];
    let routes = ["198.51.100.0/24", "2001:db8:77::/48"].map(prefix);
    let hops = |n: usize| [IpAddr::from([10, 0, n as u8, 2]), ip(&format!("2001:db8:{n}::2"))].map(|hop| Path::neighbor(x[n], hop));
    forward(&mut h, &x, to, None);
    for n in [1, 2] {
        for (route, hop) in routes.into_iter().zip(hops(n)) {
            h.router.replace_route(0, route, Source::Cli, vec![hop]).unwrap();
        }
        forward(&mut h, &x, to, Some(n));
    }
    for route in routes {
        h.router.remove_route(0, route, Source::Cli, None).unwrap();
    }
    forward(&mut h, &x, to, None);
    // Many at a time, and the default route, which is a word of each copy.
    let mut bulk = h.router.bulk_routes(0, prefix("198.51.0.0/24"), Source::Cli, vec![hops(1)[0]], 200, false).unwrap();
    h.router.step_bulk(&mut bulk, 1000).unwrap();
    h.router.add_route(0, prefix("::/0"), Source::Cli, vec![hops(1)[1]]).unwrap();
    forward(&mut h, &x, to, Some(1));
    h.assert_buffers_held(0);
}

#[test]
fn tables_and_workers_that_come_later_have_copies_too() {
    let (mut h, x) = bed_of(Harness::of(&config(&[0], &[Some(0), Some(1)])), 2);
    h.router.add_table(FamilyId::V4, Some(7), None).unwrap();
    h.router.add_table(FamilyId::V6, Some(7), None).unwrap();
    let fib = h.router.fib_of_table(FamilyId::V4, 7).unwrap();
    assert_eq!((copies(&mut h, 0), copies(&mut h, fib)), (both(&[0]), both(&[0])));
    h.router.set_workers(&plans(&[0, 1])).unwrap();
    assert_eq!((copies(&mut h, 0), copies(&mut h, fib)), (both(&[0, 1]), both(&[0, 1])));
    forward(&mut h, &x, ["10.0.1.2", "2001:db8:1::2"], Some(1));
    h.router.set_workers(&[]).unwrap();
    assert_eq!(copies(&mut h, fib), both(&[0]), "main");
    forward(&mut h, &x, ["10.0.1.2", "2001:db8:1::2"], Some(1));
    h.assert_buffers_held(0);
}

#[test]
fn main_has_a_memory_node_as_workers_do() {
    let (mut h, x) = bed_of(Harness::of(&RouterConfig { main_numa: 1, ..config(&[], &[Some(0), Some(1)]) }), 2);
    assert_eq!(copies(&mut h, 0), both(&[1]));
    forward(&mut h, &x, ["10.0.1.2", "2001:db8:1::2"], Some(1));
    let cached: Vec<bool> = h.router.graph.pools().iter().map(|pool| pool.usage().cached > 0).collect();
    assert_eq!(cached, [false, true], "its buffers come from there");
    h.router.set_workers(&plans(&[0])).unwrap();
    assert_eq!(copies(&mut h, 0), both(&[0]));
    h.router.set_workers(&[]).unwrap();
    assert_eq!(copies(&mut h, 0), both(&[1]));
    h.assert_buffers_held(0);
}

#[test]
fn without_the_option_all_threads_read_one_structure() {
    let (mut h, x) = bed_of(Harness::of(&config(&[0, 1], &[])), 2);
    assert_eq!(copies(&mut h, 0), both(&[0, 0]));
    let memory = h.router.tables(FamilyId::V4).remove(0).memory;
    assert_eq!((memory.copies.len(), memory.copies[0].node), (1, None));
    forward(&mut h, &x, ["10.0.1.2", "2001:db8:1::2"], Some(1));
}

#[test]
fn show_tells_the_memory_of_each_copy_and_of_one_that_the_kernel_did_not_place() {
    use crate::ops::testing::{registry, run};
    use quiver_command::operation::{Outcome, View};
    // No machine has node 1023.
    let mut h = Harness::of(&config(&[0, 1], &[Some(0), Some(1023)]));
    let refused = "not placed there: ";
    for (line, name) in [("show ip fib memory", "ipv4-VRF:0"), ("show ip6 fib memory", "ipv6-VRF:0")] {
        let text = run(&mut h.router, line);
        let lines: Vec<&str> = text.lines().collect();
        let [table, prefixes, near, far] = lines[..] else { panic!("{text}") };
        let number = |line: &str, before: &str| -> usize {
            let rest = line.strip_prefix(before).unwrap_or_else(|| panic!("{text}"));
            rest.split(' ').next().unwrap().parse().unwrap()
        };
        let sum = number(prefixes, "  prefixes: ") + number(near, "  lookup, numa 0: ") + number(far, "  lookup, numa 1023: ");
        let routes = h.router.tables(if name.contains('4') { FamilyId::V4 } else { FamilyId::V6 })[0].routes;
        assert_eq!(table, format!("{name}: {routes} routes, {sum} bytes"));
        assert!(far.contains(refused), "{text}");
    }
    let json = |h: &mut Harness| -> serde_json::Value {
        let Ok(Outcome::Done(answer)) = registry(&[]).execute(&mut h.router, "show ip fib memory", &View::JSON) else { panic!() };
        serde_json::from_str(&answer.json.unwrap()).unwrap()
    };
    let parts = json(&mut h)["tables"][0]["memory_parts"].clone();
    let copies: Vec<(u64, bool)> = parts["copies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|copy| (copy["numa"].as_u64().unwrap(), copy["refused"].is_string()))
        .collect();
    assert_eq!((copies.len(), copies[0].0, copies[1]), (2, 0, (1023, true)));
    // Without copies all is as it was.
    let mut h = Harness::new();
    let routes = h.router.tables(FamilyId::V4)[0].routes;
    let memory = h.router.tables(FamilyId::V4)[0].memory.total();
    assert_eq!(run(&mut h.router, "show ip fib memory"), format!("ipv4-VRF:0: {routes} routes, {memory} bytes\n"));
    assert!(json(&mut h)["tables"][0].get("memory_parts").is_none());
}
