//! Datagrams of the kernel's route netlink: any bytes are messages or malformed; whatever they say, the table of routes takes it, and
//! what was told is what it holds at the end.
#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use quiver_linux_nl::message::{Envelopes, Message};
use quiver_linux_nl::rib::Rib;

fuzz_target!(|data: &[u8]| {
    let Some((&dumps, bytes)) = data.split_first() else { return };
    let mut rib = Rib::default();
    rib.set_interfaces((0..4).map(|n| (n, quiver_linux_nl::IfIndex(n))).collect());
    let mut table = HashMap::new();
    let mut follow = |rib: &mut Rib| {
        while let Some(change) = rib.change() {
            match change.paths {
                Some(paths) => drop(table.insert((change.table, change.prefix), paths)),
                None => assert!(table.remove(&(change.table, change.prefix)).is_some()),
            }
        }
        assert_eq!(rib.told() as usize, table.len());
    };
    for (n, envelope) in Envelopes::new(bytes).enumerate() {
        let Ok(message) = envelope.and_then(|envelope| Message::parse(&envelope)) else { continue };
        let from_dump = dumps >> (n % 8) & 1 == 1;
        match message {
            Message::Route(route) => rib.add(&route, dumps.into(), from_dump),
            Message::RouteGone(route) => rib.remove(&route),
            Message::Link(link) => rib.set_link(link),
            Message::LinkGone(link) => rib.remove_link(link),
            Message::NextHop(id, object) => rib.set_object(id, object),
            Message::NextHopGone(id) => rib.remove_object(id),
            Message::Done => {
                rib.sweep_objects();
                rib.sweep_routes(from_dump);
                rib.begin_list();
            }
            Message::Address { .. } | Message::Neighbor { .. } | Message::Error(_) | Message::Other => follow(&mut rib),
        }
    }
    follow(&mut rib);
    rib.clear();
    follow(&mut rib);
    assert_eq!((rib.told(), rib.by_protocol().len()), (0, 0));
});
