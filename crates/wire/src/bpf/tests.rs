//! Programs that tcpdump made, and others that nobody should run.

use super::*;
use crate::MacAddr;
use crate::build::Packet;
use crate::tcp::TcpFlags;

/// `tcpdump -ddd -y EN10MB 'tcp port 80 and host 10.0.0.1'`
const WEB: &str = "18,40 0 0 12,21 15 0 34525,21 0 14 2048,48 0 0 23,21 0 12 6,40 0 0 20,69 10 0 8191,177 0 0 14,72 0 0 14,21 2 0 80,\
                   72 0 0 16,21 0 5 80,32 0 0 26,21 2 0 167772161,32 0 0 30,21 0 1 167772161,6 0 0 262144,6 0 0 0,";
/// `tcpdump -ddd -y EN10MB 'vlan 5 and ip'`
const TAGGED: &str = "11\n40 0 0 12\n21 2 0 33024\n21 1 0 34984\n21 0 6 37120\n40 0 0 14\n84 0 0 4095\n21 0 3 5\n40 0 0 16\n21 0 1 2048\n\
                      6 0 0 262144\n6 0 0 0\n";

fn frame() -> Packet {
    Packet::ethernet(MacAddr([2; 6]), MacAddr([4; 6]))
}

fn wants(program: &str, packet: &[u8]) -> bool {
    Program::parse(program).unwrap().wants(packet, packet.len())
}

#[test]
fn programs_of_tcpdump_choose_the_packets_that_they_name() {
    let tcp = |src, dst, from: [u8; 4]| frame().ipv4(from, [9, 9, 9, 9]).tcp(src, dst, TcpFlags::SYN).build();
    assert!(wants(WEB, &tcp(80, 5, [10, 0, 0, 1])));
    assert!(wants(WEB, &tcp(5, 80, [10, 0, 0, 1])));
    assert!(!wants(WEB, &tcp(5, 81, [10, 0, 0, 1])));
    assert!(!wants(WEB, &tcp(80, 5, [10, 0, 0, 2])));
    assert!(!wants(WEB, &frame().ipv4([10, 0, 0, 1], [9, 9, 9, 9]).udp(80, 80).build()));
    assert!(!wants(WEB, &tcp(80, 5, [10, 0, 0, 1])[..30]), "what is cut off is not wanted");
    let tagged =
        |id| Packet::ethernet(MacAddr([2; 6]), MacAddr([4; 6])).vlan(id).ipv4([1, 1, 1, 1], [2, 2, 2, 2]).udp(1, 2).build();
    assert!(wants(TAGGED, &tagged(5)) && !wants(TAGGED, &tagged(6)));
}

#[test]
fn each_instruction_does_what_it_is_for() {
    // ld #k, then an operation by k, then return A.
    let by = |code: u16, a: u32, k: u32| Program::parse(&format!("3,0 0 0 {a},{code} 0 0 {k},22 0 0 0")).map(|p| p.run(&[], 0));
    let cases = [(4, 7, 5, 12), (20, 7, 5, 2), (36, 7, 5, 35), (52, 7, 5, 1), (148, 7, 5, 2), (68, 6, 9, 15), (84, 6, 3, 2)];
    for (code, a, k, result) in cases.into_iter().chain([(164, 6, 3, 5), (100, 1, 4, 16), (116, 16, 4, 1), (132, 1, 0, u32::MAX)]) {
        assert_eq!(by(code, a, k), Ok(result), "{code}");
    }
    assert_eq!(by(4, u32::MAX, 1), Ok(0));
    assert_eq!(by(52, 1, 0), Err(BpfError::Operand(2)));
    assert_eq!(by(100, 1, 32), Err(BpfError::Operand(2)));
    // ldx #4, ld [x + 1], st M[3], ld #0, ld M[3], tax, txa, ret A; ld len.
    let packet = [0, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(
        Program::parse("8,1 0 0 4,64 0 0 1,2 0 0 3,0 0 0 0,96 0 0 3,7 0 0 0,135 0 0 0,22 0 0 0").unwrap().run(&packet, 9),
        0x0506_0708
    );
    assert_eq!(Program::parse("2,128 0 0 0,22 0 0 0").unwrap().run(&packet, 1500), 1500);
    // Division by X, which is zero: not wanted, as in the kernel.
    assert_eq!(Program::parse("4,0 0 0 8,1 0 0 0,60 0 0 0,6 0 0 1").unwrap().run(&packet, 9), 0);
    // Jumps: over one instruction or none.
    for (code, k, result) in [(21, 5, 2), (37, 5, 1), (53, 5, 2), (69, 4, 2), (21, 6, 1)] {
        assert_eq!(Program::parse(&format!("4,0 0 0 5,{code} 1 0 {k},6 0 0 1,6 0 0 2")).unwrap().run(&[], 0), result, "{code} {k}");
    }
    assert_eq!(Program::parse("3,5 0 0 1,6 0 0 1,6 0 0 2").unwrap().run(&[], 0), 2);
}

#[test]
fn what_is_not_a_program_is_refused_with_the_place() {
    let error = |text: &str| Program::parse(text).unwrap_err();
    assert_eq!(error(""), BpfError::NotNumbers(0));
    assert_eq!(error("1"), BpfError::Count { said: 1, found: 0 });
    assert_eq!(error("0"), BpfError::Length(0));
    assert_eq!(error("1,6 0 0"), BpfError::NotNumbers(1));
    assert_eq!(error("1,6 0 0 0 0"), BpfError::NotNumbers(1));
    assert_eq!(error("1,6 256 0 0"), BpfError::NotNumbers(1));
    assert_eq!(error("1,0 0 0 0"), BpfError::NoReturn);
    assert_eq!(error("2,5 0 0 4294967295,6 0 0 0"), BpfError::Jump(1));
    assert_eq!(error("2,21 1 0 0,6 0 0 0"), BpfError::Jump(1));
    assert_eq!(error("2,2 0 0 16,6 0 0 0"), BpfError::Memory(1));
    assert_eq!(error("2,96 0 0 16,6 0 0 0"), BpfError::Memory(1));
    // A question to the kernel: the protocol (SKF_AD_OFF), and an instruction that nobody knows.
    assert_eq!(error("2,40 0 0 4294963200,6 0 0 0"), BpfError::Unknown(1, 40));
    assert_eq!(error("2,65535 0 0 0,6 0 0 0"), BpfError::Unknown(1, 65535));
    let long = format!("{},{}", LONGEST + 1, "6 0 0 0,".repeat(LONGEST + 1));
    assert_eq!(error(&long), BpfError::Length(LONGEST + 1));
    assert!(error("2,21 1 0 0,6 0 0 0").to_string().starts_with("instruction 1 jumps out of the program"));
}

#[test]
fn a_program_is_written_as_it_was_read() {
    for text in [WEB, TAGGED] {
        let program = Program::parse(text).unwrap();
        assert_eq!(Program::parse(&program.text()), Ok(program));
    }
}
