//! Classic BPF programs: any text is a program or refused, and a program ends on any packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_wire::bpf::{Instruction, Program};

fuzz_target!(|data: &[u8]| {
    let _ = std::str::from_utf8(data).map(Program::parse);
    // Instructions of 8 bytes, then the packet.
    let Some((count, rest)) = data.split_first() else { return };
    let (program, packet) = rest.split_at(rest.len().min(8 * usize::from(*count)));
    let instruction = |bytes: &[u8; 8]| Instruction {
        code: u16::from_le_bytes([bytes[0], bytes[1] & 1]),
        jump_true: bytes[2],
        jump_false: bytes[3],
        k: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    };
    let Ok(program) = Program::new(program.as_chunks::<8>().0.iter().map(instruction).collect()) else { return };
    program.run(packet, packet.len());
    assert_eq!(Program::parse(&program.text()), Ok(program));
});
