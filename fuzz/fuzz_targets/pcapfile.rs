//! Any bytes as a capture file: packets or an error, and what was read writes and reads again. What was read as a captured packet: at most
//! a link header is missing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_wire::pcapfile::{LinkType, Reader, Writer, missing_header};

fuzz_target!(|bytes: &[u8]| {
    let Ok(reader) = Reader::new(bytes) else { return };
    let packets: Vec<_> = reader.flatten().collect();
    assert!(packets.iter().map(|packet| packet.bytes.len()).sum::<usize>() <= bytes.len());
    let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET).expect("a Vec takes all");
    for packet in &packets {
        // classic stamps end in 2106
        let time_ns = packet.time_ns % (u64::from(u32::MAX) * 1_000_000_000);
        let len = packet.original_len as usize;
        writer.write(time_ns, &packet.bytes, len).expect("a Vec takes all");
        let (pulled, data) = packet.bytes.split_at(packet.bytes.len().min(22));
        assert!(missing_header(pulled, data, len).len() <= 22);
    }
    let file = writer.finish().expect("a Vec takes all");
    let again = Reader::new(&file[..]).expect("what we wrote").map(|packet| packet.expect("what we wrote"));
    assert!(again.map(|packet| packet.bytes).eq(packets.iter().map(|packet| packet.bytes.clone())));
});
