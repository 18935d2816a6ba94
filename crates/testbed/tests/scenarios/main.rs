//! Scenarios: the daemon, the tester and the testbed itself among kernel hosts in network namespaces. One program, so that it is
//! linked once; several scenarios run side by side.
//!
//! To add a file: put it here, name it below, and write `use crate::common;` where it uses what several share. Each scenario
//! begins with `Scenario::begin`, or with `Scenario::alone` where it measures time, needs a core for itself, or looks at what the
//! whole machine has (processes, huge pages, BPF programs). The latter are functions, and tests in `alone`.
//!
//! Scenarios that depend on the size of pages (memory of buffers, rings, tables) are in a module named `pages`, which is a folder
//! here or a part of a file: the gate runs these a second time without huge pages.

#[path = "../common/mod.rs"]
mod common;

mod acl;
mod alone;
mod apply;
mod attack_program;
mod attacks_clients;
mod attacks_files;
mod attacks_graph;
mod attacks_wire;
mod bfd;
mod bfd_bird;
mod bfd_frr;
mod bond;
mod bridge;
mod capture;
mod documents;
mod fast_path;
mod filters;
mod flows;
mod forwarding;
mod frames;
mod frr;
mod full_disk;
mod hosts;
mod icmp;
mod layer2;
mod linux_cp;
mod linux_nl;
mod lldp;
mod mix;
mod nat44;
mod nat44_stateful;
mod nat44_workers;
mod neighbors;
mod packaging;
mod page;
mod pages;
mod plugins;
mod privileges;
mod restart;
mod restart_memif;
mod routing;
mod scene;
mod snmp;
mod tester;
mod tester_tcp;
mod tester_times;
mod vrrp;
mod vxlan;
mod watchdog;
mod workers;
