use super::*;
use proptest::prelude::*;

fn read(bytes: &[u8]) -> Result<Vec<CapturedPacket>, PcapError> {
    Reader::new(bytes)?.collect()
}

fn packet(time_ns: u64, bytes: &[u8]) -> CapturedPacket {
    let original_len = bytes.len() as u32;
    CapturedPacket { time_ns, link_type: LinkType::ETHERNET, original_len, bytes: bytes.to_vec() }
}

/// The words of a file in either byte order.
fn words(big_endian: bool, words: &[u32]) -> Vec<u8> {
    let order = if big_endian { u32::to_be_bytes } else { u32::to_le_bytes };
    words.iter().flat_map(|word| order(*word)).collect()
}

/// A classic file with one packet of 3 bytes at 1.5 s.
fn classic(big_endian: bool, magic: u32, fraction: u32) -> Vec<u8> {
    let mut bytes = words(big_endian, &[magic, 0, 0, 0, 65_535, 1, 1, fraction, 3, 60]);
    bytes.extend([7, 8, 9]);
    bytes
}

/// A pcapng block with its two lengths.
fn block(big_endian: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let len = body.len() as u32 + 12;
    [words(big_endian, &[kind, len]), body.to_vec(), words(big_endian, &[len])].concat()
}

fn section(big_endian: bool) -> Vec<u8> {
    block(big_endian, 0x0a0d_0d0a, &words(big_endian, &[BYTE_ORDER, 1, u32::MAX, u32::MAX]))
}

const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// An interface description with link type 1 and options given as they lie in the file.
fn interface(big_endian: bool, options: &[u8]) -> Vec<u8> {
    let link = if big_endian { [0, 1, 0, 0] } else { [1, 0, 0, 0] };
    block(big_endian, 1, &[&link[..], &[0; 4], options].concat())
}

/// An enhanced packet block on interface 0 with 3 bytes.
fn enhanced(big_endian: bool, stamp: u64) -> Vec<u8> {
    let fields = [0, (stamp >> 32) as u32, stamp as u32, 3, 60];
    block(big_endian, 6, &[&words(big_endian, &fields)[..], &[7, 8, 9, 0]].concat())
}

#[test]
fn classic_files_of_both_orders_and_resolutions_are_read() {
    for big_endian in [false, true] {
        for (magic, fraction) in [(MAGIC_US, 500_000), (MAGIC_NS, 500_000_000)] {
            let packets = read(&classic(big_endian, magic, fraction)).unwrap();
            let expected = CapturedPacket { original_len: 60, ..packet(1_500_000_000, &[7, 8, 9]) };
            assert_eq!(packets, [expected]);
        }
    }
}

#[test]
fn pcapng_of_both_orders_is_read() {
    for big_endian in [false, true] {
        let simple = block(big_endian, 3, &[&words(big_endian, &[2])[..], &[5, 6, 0, 0]].concat());
        let unknown = block(big_endian, 0x0bad, &[1, 2, 3, 4]);
        let file = [section(big_endian), interface(big_endian, &[]), unknown];
        let file = [file.concat(), enhanced(big_endian, 1_500_000), simple].concat();
        let expected = CapturedPacket { original_len: 60, ..packet(1_500_000_000, &[7, 8, 9]) };
        assert_eq!(read(&file).unwrap(), [expected, packet(0, &[5, 6])]);
    }
}

#[test]
fn the_interfaces_time_resolution_and_offset_count() {
    let time = |options: &[u8], stamp| {
        let file = [section(false), interface(false, options), enhanced(false, stamp)].concat();
        read(&file).unwrap()[0].time_ns
    };
    assert_eq!(time(&[9, 0, 1, 0, 9, 0, 0, 0], 1_500_000_000), 1_500_000_000);
    assert_eq!(time(&[9, 0, 1, 0, 0x81, 0, 0, 0, 0, 0, 0, 0], 3), 1_500_000_000);
    assert_eq!(time(&[14, 0, 8, 0, 2, 0, 0, 0, 0, 0, 0, 0], 1), 2_000_001_000);
    // absurd resolutions and offsets end at the nearest time that there is
    assert_eq!(time(&[9, 0, 1, 0, 0x7f, 0, 0, 0], u64::MAX), 0);
    assert_eq!(time(&[9, 0, 1, 0, 0, 0, 0, 0], u64::MAX), u64::MAX);
    assert_eq!(time(&[14, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0x80], 1), 0);
}

#[test]
fn a_new_section_forgets_the_interfaces_and_may_change_the_order() {
    let first = [section(false), interface(false, &[]), enhanced(false, 1)].concat();
    let second = [section(true), interface(true, &[]), enhanced(true, 2)].concat();
    assert_eq!(read(&[first.clone(), second].concat()).unwrap().len(), 2);
    let error = read(&[first, section(true), enhanced(true, 2)].concat()).unwrap_err();
    assert!(matches!(error, PcapError::NoInterface(0)));
}

#[test]
fn damaged_files_end_with_their_reason() {
    assert!(matches!(read(b""), Err(PcapError::NotACapture)));
    assert!(matches!(read(b"GIF89a"), Err(PcapError::NotACapture)));
    let file = classic(false, MAGIC_NS, 0);
    for len in (4..24).chain(25..file.len()) {
        assert!(matches!(read(&file[..len]), Err(PcapError::Truncated)), "{len}");
    }
    assert_eq!(read(&file[..24]).unwrap(), []);
    let mut long = file;
    long[32..36].fill(0xff);
    assert!(matches!(read(&long), Err(PcapError::TooLong(u32::MAX))));
    let mut bad = [section(false), interface(false, &[])].concat();
    let last = bad.len() - 4;
    bad[last] ^= 4;
    assert!(matches!(read(&bad), Err(PcapError::BadBlock)));
    let too_short = [section(false), words(false, &[6, 8, 8])].concat();
    assert!(matches!(read(&too_short), Err(PcapError::BadBlock)));
}

#[test]
fn after_an_error_the_reader_ends() {
    let file = classic(false, MAGIC_NS, 0);
    let mut reader = Reader::new(&file[..file.len() - 1]).unwrap();
    assert!(reader.next().unwrap().is_err());
    assert!(reader.next().is_none());
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        packets in prop::collection::vec((0u64..u64::from(u32::MAX) * 1_000_000_000, any::<Vec<u8>>()), 0..8),
    ) {
        let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET).unwrap();
        let mut expected = Vec::new();
        for (time_ns, bytes) in &packets {
            writer.write(*time_ns, bytes, bytes.len()).unwrap();
            expected.push(packet(*time_ns, bytes));
        }
        prop_assert_eq!(read(&writer.finish().unwrap()).unwrap(), expected);
    }

    #[test]
    fn mutated_files_never_panic(ng: bool, big_endian: bool, changes: Vec<(prop::sample::Index, u8)>) {
        let mut file = if ng {
            [section(big_endian), interface(big_endian, &[9, 0, 1, 0, 9, 0, 0, 0]), enhanced(big_endian, 5)].concat()
        } else {
            classic(big_endian, MAGIC_NS, 0)
        };
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        let _ = read(&file);
    }
}
