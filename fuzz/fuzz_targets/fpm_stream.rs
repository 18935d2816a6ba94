//! A forwarding plane manager's stream beside the kernel: however the bytes are cut, they are frames or the end of the connection; the
//! table of routes takes what is in them, and what was told is what it holds at the end.
#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use quiver_linux_nl::fpm::frame::Frames;
use quiver_linux_nl::fpm::push;
use quiver_linux_nl::message::{Envelopes, Link, Message};
use quiver_linux_nl::rib::Rib;

fuzz_target!(|data: &[u8]| {
    let Some((&events, bytes)) = data.split_first() else { return };
    let mut rib = Rib::default();
    rib.set_interfaces((0..4).map(|n| (n, quiver_linux_nl::IfIndex(n))).collect());
    let mut table = HashMap::new();
    let mut follow = |rib: &mut Rib| {
        rib.settle_pushed();
        while let Some(change) = rib.change() {
            match change.paths {
                Some(paths) => drop(table.insert((change.table, change.prefix), paths)),
                None => assert!(table.remove(&(change.table, change.prefix)).is_some()),
            }
        }
        assert_eq!(rib.told() as usize, table.len());
    };
    let mut frames = Frames::default();
    'connection: for (n, piece) in bytes.chunks(usize::from(events) + 1).enumerate() {
        frames.push(piece);
        while let Some(frame) = frames.next_frame() {
            let Ok(frame) = frame else { break 'connection };
            for message in Envelopes::new(frame).flatten().filter_map(|envelope| Message::parse(&envelope).ok()) {
                // The kernel has some of the routes as well.
                match &message {
                    Message::Route(route) if events & 1 == 1 => rib.add(route, 0, false),
                    Message::RouteGone(route) if events & 2 == 2 => rib.remove(route),
                    _ => {}
                }
                push(&mut rib, message);
            }
        }
        match n % 8 {
            3 => {
                let up = n % 16 == 3;
                rib.set_link(Link { index: 1, name: String::new(), up, carrier: up, mtu: 1500, master: None, vrf: None });
            }
            5 => rib.begin_pushed(),
            7 => {
                rib.sweep_pushed();
            }
            _ => {}
        }
        follow(&mut rib);
    }
    rib.clear_pushed();
    assert_eq!((rib.pushed_routes(), rib.pushed_objects()), (0, 0));
    follow(&mut rib);
    rib.clear();
    follow(&mut rib);
    assert_eq!(rib.told(), 0);
});
