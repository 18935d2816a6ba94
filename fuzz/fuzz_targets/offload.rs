//! Any vnet header before any frame: what comes out is the frame whole, or segments that a receiver can parse; where the
//! receiver is full, going on later gives the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_drivers::virtio_net::{Delivery, LinkLayer, VnetHeader, deliver};

fuzz_target!(|input: &[u8]| {
    let Some((&[how, a, b, c, d], rest)) = input.split_first_chunk() else { return };
    let Some((header, frame)) = VnetHeader::parse(rest).map(|h| (h, &rest[VnetHeader::LEN..])) else { return };
    let tag = (how & 1 != 0).then_some([a, b, c, d]);
    let link = if how & 2 != 0 { LinkLayer::Ip } else { LinkLayer::Ethernet };
    let mut whole = Vec::new();
    let end = deliver(&mut frame.to_vec(), header, tag, link, 0, |parts| {
        whole.push(parts.concat());
        true
    });
    assert!(matches!(end, Delivery::Done | Delivery::Damaged));
    assert_eq!(whole.is_empty(), end == Delivery::Damaged);
    assert!(whole.iter().all(|f| f.len() <= frame.len() + 4));
    // One at a time.
    let (mut pieces, mut from) = (Vec::new(), 0);
    loop {
        let before = pieces.len();
        let end = deliver(&mut frame.to_vec(), header, tag, link, from, |parts| {
            let room = pieces.len() == before;
            if room {
                pieces.push(parts.concat());
            }
            room
        });
        match end {
            Delivery::Full(next) => from = next,
            Delivery::Done | Delivery::Damaged => break,
        }
    }
    assert_eq!(pieces, whole);
});
