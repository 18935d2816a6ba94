use super::*;

#[test]
fn slots_lie_in_their_blocks_as_the_kernel_counts_them() {
    for bytes in [60, 128, 1608, 1700, 4096, 9110, 65_600] {
        for slots in [1, 8, 63, 64, 1000, 1024] {
            for per_block in [1, 2, 3, 16, 64, 1024] {
                let shape = Shape::new(bytes, slots, per_block);
                let said = format!("{bytes} {slots} {per_block}: {shape:?}");
                assert!(shape.slot >= bytes && (shape.slot / LINE) % 2 == 1 && shape.slot.is_multiple_of(LINE), "{said}");
                assert!(shape.slots >= slots, "{said}");
                // As packet_set_ring computes it.
                let frames_per_block = shape.block() / shape.slot;
                assert_eq!(frames_per_block, shape.per_block, "{said}");
                assert_eq!(frames_per_block * (shape.bytes() / shape.block()), shape.slots, "{said}");
                for i in [0, 1, shape.per_block - 1, shape.per_block, shape.slots - 1].into_iter().filter(|i| *i < shape.slots) {
                    let expected = i / frames_per_block * shape.block() + i % frames_per_block * shape.slot;
                    assert_eq!(shape.offset(i), expected, "{said} slot {i}");
                    assert!(shape.offset(i) + shape.slot <= shape.bytes(), "{said} slot {i}");
                }
            }
        }
    }
}

/// A received slot: `len` bytes of which `cut` are there, from `mac` on.
fn slot(len: u32, cut: u32, mac: u16) -> Vec<u8> {
    let mut bytes = vec![0xa5; 256];
    bytes[4..8].copy_from_slice(&len.to_ne_bytes());
    bytes[8..12].copy_from_slice(&cut.to_ne_bytes());
    bytes[12..14].copy_from_slice(&mac.to_ne_bytes());
    bytes[24..26].copy_from_slice(&0x2007_u16.to_ne_bytes());
    bytes[26..28].copy_from_slice(&0x88a8_u16.to_ne_bytes());
    bytes[42] = 0;
    bytes
}

#[test]
fn a_received_slot_says_where_its_frame_is() {
    let mut bytes = slot(100, 100, 76);
    bytes[66..76].copy_from_slice(&[1, 0, 0, 0, 0, 0, 34, 0, 16, 0]);
    let parsed = RxSlot::parse(libc::TP_STATUS_USER, &bytes).unwrap();
    assert_eq!((parsed.frame, parsed.whole, parsed.tag), ((76, 100), 100, None));
    assert!(parsed.vnet.needs_checksum() && parsed.vnet.csum_start == u16::from_ne_bytes([34, 0]));
    assert!(!parsed.copied && !parsed.losing && !parsed.outgoing);
}

#[test]
fn both_kinds_of_stripped_tags_are_recognised() {
    let bytes = slot(100, 100, 76);
    let both = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
    let tag = |status| RxSlot::parse(libc::TP_STATUS_USER | status, &bytes).unwrap().tag;
    assert_eq!(tag(both), Some([0x88, 0xa8, 0x20, 0x07]));
    assert_eq!(tag(libc::TP_STATUS_VLAN_VALID), Some([0x81, 0x00, 0x20, 0x07]), "the kernel did not say: 802.1Q");
    assert_eq!(tag(0), None);
}

#[test]
fn flags_of_a_slot_are_read() {
    let mut bytes = slot(60_000, 100, 76);
    bytes[42] = libc::PACKET_OUTGOING;
    let parsed = RxSlot::parse(libc::TP_STATUS_COPY | libc::TP_STATUS_LOSING, &bytes).unwrap();
    assert!(parsed.copied && parsed.losing && parsed.outgoing && parsed.whole == 60_000);
}

#[test]
fn a_slot_that_contradicts_itself_is_refused() {
    for (len, cut, mac) in [(100, 300, 76), (100, 200, 76), (100, 100, 0), (100, 100, 31), (100, 100, 300), (9, u32::MAX, 76)] {
        assert_eq!(RxSlot::parse(1, &slot(len, cut, mac)), None, "{len} {cut} {mac}");
    }
    let bytes = slot(100, 100, 76);
    for len in 0..bytes.len() {
        // Any length: no panic.
        let _ = RxSlot::parse(u32::MAX, &bytes[..len]);
    }
}
