//! State of another process: any bytes are sections or refused, and no subject reads beyond its own.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_net::restart::{Load, MAGIC, Round, Save, VERSION, sections};

/// Reads values of all kinds, as the bytes themselves say.
fn walk(bytes: &[u8]) {
    let mut load = Load::new(bytes);
    while let Ok(kind) = load.u8() {
        let done = match kind % 8 {
            0 => load.u16().map(drop),
            1 => load.u32().map(drop),
            2 => load.u64().map(drop),
            3 => load.text().map(drop),
            4 => load.mac().map(drop),
            5 => load.ip().map(drop),
            6 => load.count(4).map(drop),
            _ => load.raw(usize::from(kind)).map(drop),
        };
        if done.is_err() {
            return;
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let _ = sections(data);
    let _ = sections(&[MAGIC.as_slice(), &VERSION.to_le_bytes(), data].concat());
    walk(data);
    // With a right head and checksum, so that the sections themselves are looked at.
    let mut save = Save::new(Round::Ahead);
    save.raw(data);
    let whole = save.finish();
    for section in sections(&whole).unwrap_or_default() {
        walk(section.bytes);
    }
});
