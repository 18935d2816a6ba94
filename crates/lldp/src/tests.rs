//! Ports in a router: frames, commands, messages. Time is that of timers, which tests move.

mod api;
mod commands;
mod ports;

use quiver_graph::IfIndex;
use quiver_net::testing::{Harness, error, index, run};
use quiver_wire::MacAddr;

use crate::ops::{PortInfo, shown};
use crate::pdu::write::Local;
use crate::pdu::{Info, NEAREST_BRIDGE, Unit};

/// A neighbour's MAC address.
fn neighbour(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0x20, n])
}

/// A router with the plugin and interfaces x0, x1 and x2.
fn bed(workers: usize) -> Harness {
    Harness::with_plugin(&crate::plugin(), workers, 3)
}

/// Lets time pass, and everything be done that is due. Units that have left, by interface.
fn pass(h: &mut Harness, ms: i64) -> Vec<(IfIndex, Info)> {
    h.router.graph.clock().adjust(ms * 1_000_000);
    settle(h)
}

/// Lets everything be done that is due.
fn settle(h: &mut Harness) -> Vec<(IfIndex, Info)> {
    let mut out = h.run();
    loop {
        let now = h.router.graph.clock().timer_now();
        let next = h.router.run_processes(now);
        out.extend(h.run());
        if next.is_none_or(|next| next > now) {
            break;
        }
    }
    let of_lldp = out.into_iter().filter(|(_, frame)| frame[..6] == NEAREST_BRIDGE.0 && frame[12..14] == [0x88, 0xcc]);
    of_lldp.map(|(by, frame)| (by, Info::from(&Unit::parse(&frame[14..]).unwrap()))).collect()
}

/// The frame of a neighbour.
fn said(n: u8, ttl: u16) -> Vec<u8> {
    let local = Local {
        chassis: neighbour(n),
        port: format!("port{n}"),
        ttl,
        system_name: Some(format!("system{n}")),
        capabilities: (0x14, 0x04),
        ip4: Some([10, 0, 0, n].into()),
        ..Local::default()
    };
    local.frame(neighbour(n), 1514).frame
}

fn ports(h: &Harness) -> Vec<PortInfo> {
    shown(&h.router, false).unwrap().ports
}

/// Names of the neighbours of the first port.
fn names(h: &Harness) -> Vec<String> {
    ports(h)[0].neighbors.iter().map(|known| known.info.system_name.clone().unwrap_or_default()).collect()
}
