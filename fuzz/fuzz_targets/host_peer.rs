//! Any frame of a kernel peer over AF_XDP, with any MTU: finishing changes two bytes at most, and nothing when done again; a
//! super-frame becomes packets of the MTU, whole frames of the IP version that it had.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_drivers::af_xdp::host_peer::{describe, finish_checksum};
use quiver_drivers::virtio_net::{Delivery, LinkLayer, deliver};
use quiver_wire::ethernet::skip_tags;

/// As `host_peer` looks through.
const MAX_TAGS: usize = 4;

fuzz_target!(|input: &[u8]| {
    let Some((&[high, low], frame)) = input.split_first_chunk() else { return };
    let mtu = usize::from(u16::from_be_bytes([high, low]));
    let mut once = frame.to_vec();
    finish_checksum(&mut once);
    let changed: Vec<usize> = (0..frame.len()).filter(|i| frame[*i] != once[*i]).collect();
    assert!(changed.len() <= 2 && changed.last().zip(changed.first()).is_none_or(|(b, a)| b - a <= 1), "{changed:?}");
    let mut twice = once.clone();
    finish_checksum(&mut twice);
    assert_eq!(once, twice);

    let Some(header) = describe(frame, mtu) else { return };
    let (l3, ether_type) = skip_tags(frame, MAX_TAGS).expect("was looked through before");
    let end = deliver(&mut frame.to_vec(), header, None, LinkLayer::Ethernet, 0, |parts| {
        let packet = parts.concat();
        assert!(packet.len() <= l3 + mtu, "{} bytes, MTU {mtu}", packet.len());
        assert_eq!(skip_tags(&packet, MAX_TAGS), Some((l3, ether_type)));
        true
    });
    assert!(matches!(end, Delivery::Done | Delivery::Damaged));
});
