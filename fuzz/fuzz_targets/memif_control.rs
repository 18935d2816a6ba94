//! Control channel of memif: any bytes are a message or an error; a server goes on whatever a client says, in whatever order,
//! with whatever descriptors.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_drivers::memif::fuzzing::Bench;
use quiver_drivers::memif::message::Message;

fuzz_target!(|data: &[u8]| {
    if let Ok(message) = Message::parse(data) {
        let once = Message::parse(&message.emit()).expect("what was written can be read");
        assert_eq!(Message::parse(&once.emit()).as_ref(), Ok(&once));
    }
    // The rest is a conversation: for each message a byte that says which descriptor comes with it, its type, its fields.
    Bench::with(|bench| bench.converse(data));
});
