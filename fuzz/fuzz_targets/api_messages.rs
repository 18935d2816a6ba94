//! Messages of the binary API: any bytes are a message or too short, and what was read is written alike; any bytes are frames.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_api::frame::{self, Front};
use quiver_api::{Catalog, WireError};

thread_local! {
    static CATALOG: Catalog = Catalog::default();
}

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Front::Message(_, taken) = frame::front(rest) {
        rest = &rest[taken..];
    }
    let Some((id, fields)) = data.split_first_chunk() else { return };
    CATALOG.with(|catalog| {
        let entries = catalog.entries();
        let entry = &entries[usize::from(u16::from_be_bytes(*id)) % entries.len()];
        match (entry.info.recode)(fields) {
            Ok(written) => assert_eq!((entry.info.recode)(&written).as_ref(), Ok(&written)),
            Err(WireError::Short) => {}
        }
    });
});
