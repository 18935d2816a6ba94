//! Fragments in any order, with overlaps: held against a map of bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_wire::fragment::{Arrival, Reassembly};

const MAX_LEN: u16 = 2000;

fuzz_target!(|input: &[u8]| {
    let mut whole = Reassembly::new(32, MAX_LEN);
    let mut map = [false; MAX_LEN as usize];
    let mut end = None;
    for (i, &[offset, len_high, len_low, more]) in input.as_chunks::<4>().0.iter().enumerate() {
        let (offset, more) = (u16::from(offset) * 8, more & 1 != 0);
        let len = usize::from(u16::from_be_bytes([len_high & 0x0f, len_low]));
        match whole.insert(offset, len, more, i) {
            Ok(arrival) => {
                let range = usize::from(offset)..usize::from(offset) + len;
                assert!(map[range.clone()].iter().all(|written| !written));
                map[range.clone()].fill(true);
                if !more {
                    assert_eq!(end.replace(range.end), None);
                }
                let complete = end.is_some_and(|end| map[..end].iter().all(|written| *written));
                assert_eq!(matches!(arrival, Arrival::Complete(_)), complete);
                if let Arrival::Complete(len) = arrival {
                    assert_eq!(Some(usize::from(len)), end);
                    assert!(map[usize::from(len)..].iter().all(|written| !written));
                }
            }
            Err(error) if error.condemns() => return,
            Err(_) => {}
        }
        assert!(whole.pieces().len() <= 32);
    }
});
