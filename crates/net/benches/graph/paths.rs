//! The paths through the graph that are measured.

use quiver_tables::synth;

use crate::bed::{self, Bed, Flow, Way};

/// A path through the graph under measurement.
pub struct Path {
    /// Its name in the reports.
    pub name: &'static str,
    /// Its nodes, from the first to the output.
    pub nodes: &'static [&'static str],
    /// The router that it leads through.
    pub bed: Bed,
}

const V4: &[&str] = &["ethernet-input", "ip4-input", "ip4-lookup", "ip4-rewrite", "x1-output"];
const FEATURE: &[&str] = &["ethernet-input", "ip4-input", bed::FEATURE, "ip4-lookup", "ip4-rewrite", "x1-output"];
const VLAN: &[&str] = &["ethernet-input", "ethernet-vlan", "ip4-input", "ip4-lookup", "ip4-rewrite", "x1.30-output"];
const V6: &[&str] = &["ethernet-input", "ip6-input", "ip6-lookup", "ip6-rewrite", "x1-output"];
const BRIDGE: &[&str] = &["ethernet-input", "l2-input", "l2-bridge", "x1-output"];
const L2: &[&str] = &["ethernet-input", "l2-input", "x1-output"];

/// Those whose names are wanted; each gets so many packets.
pub fn paths(wanted: impl Fn(&str) -> bool, ring: usize) -> Vec<Path> {
    let mut paths = Vec::new();
    let mut add = |name, nodes, make: &dyn Fn() -> Bed| {
        if wanted(name) {
            eprintln!("preparing {name}");
            paths.push(Path { name, nodes, bed: make() });
        }
    };
    for (name, nodes) in [("ip4-1024", V4), ("ip4-feature", FEATURE)] {
        add(name, nodes, &|| {
            let mut bed = Bed::new(Way::Route4 { prefixes: vec![(0x0b00_0000, 16)] });
            if nodes == FEATURE {
                bed.add_feature();
            }
            bed.fill(ring, |i| Flow::V4 { src: 0x0a00_0002 + (i % 246), dst: 0x0b00_0000 + (i % 1024) });
            bed
        });
    }
    for (name, customers) in [("ip4-vlan", 1), ("ip4-qinq", 1024)] {
        add(name, VLAN, &|| {
            let mut bed = Bed::new(Way::Vlans { customers, prefixes: vec![(0x0b00_0000, 16)] });
            bed.fill(ring, |i| Flow::of_customer(i % customers, customers, 0x0b00_0000 + i % 1024));
            bed
        });
    }
    add("ip4-bgp", V4, &|| {
        let (table, _) = synth::full_table4();
        let addresses = synth::addresses4(&table, bed::RING, 7);
        let mut bed = Bed::new(Way::Route4 { prefixes: table });
        bed.fill(ring, |i| Flow::V4 { src: 0x0a00_0002, dst: addresses[i as usize] });
        bed
    });
    add("ip6-few", V6, &|| {
        let mut bed = Bed::new(Way::Route6 { prefixes: vec![(0x2001_0db8_0002 << 80, 48)] });
        bed.fill(ring, |i| Flow::V6 { src: 0x2001_0db8 << 96 | 2, dst: 0x2001_0db8_0002 << 80 | u128::from(1 + i % 1024) });
        bed
    });
    add("ip6-bgp", V6, &|| {
        let (table, _) = synth::full_table6();
        let addresses = synth::addresses6(&table, bed::RING, 7);
        let mut bed = Bed::new(Way::Route6 { prefixes: table });
        bed.fill(ring, |i| Flow::V6 { src: 0x2001_0db8 << 96 | 2, dst: addresses[i as usize] });
        bed
    });
    add("l2-xconnect", L2, &|| {
        let mut bed = Bed::new(Way::CrossConnect);
        bed.fill(ring, |_| Flow::V4 { src: 1, dst: 2 });
        bed
    });
    for (name, stations) in [("l2-bridge-2", 2), ("l2-bridge-10", 10), ("l2-bridge-100k", 100_000)] {
        add(name, BRIDGE, &|| {
            let mut bed = Bed::new(Way::Bridge { stations });
            // Between stations 0 and 1 at first: the sink draws others.
            bed.fill(ring, |_| Flow::Stations(1, 0));
            bed
        });
    }
    paths
}
