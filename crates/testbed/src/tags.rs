//! Kernel hosts that speak 802.1Q and QinQ without VLAN devices.
//!
//! A traffic-control program at the host's interface pushes tags on what the kernel sends and pops them from what arrives,
//! so that its stack sees plain Ethernet. What arrives without exactly the expected tags is dropped, as a VLAN device would.

use std::io;

use crate::bpf::{self, Assembler, Attachment, Direction, Instruction, Reg};
use crate::host::Host;

/// One VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Tag protocol identifier: 0x8100 or 0x88a8.
    pub tpid: u16,
    /// VLAN identifier, `0..4096`.
    pub vid: u16,
}

impl Tag {
    /// A customer tag (802.1Q, 0x8100).
    pub const fn dot1q(vid: u16) -> Self {
        Self { tpid: 0x8100, vid }
    }

    /// A service tag (802.1ad, 0x88a8).
    pub const fn dot1ad(vid: u16) -> Self {
        Self { tpid: 0x88a8, vid }
    }
}

impl From<(u16, u16)> for Tag {
    fn from((tpid, vid): (u16, u16)) -> Self {
        Self { tpid, vid }
    }
}

/// Programs at an interface; dropping them takes them off (on kernels before 6.6 they stay with the interface).
#[derive(Debug)]
pub struct TagProgram {
    _attachments: Vec<Attachment>,
}

impl Host {
    /// Pushes these tags (as on the wire, outermost first) on everything the kernel sends from `interface`.
    pub fn push_vlan_on_egress(&self, interface: &str, tags: &[Tag]) -> io::Result<TagProgram> {
        self.attach_tags(interface, &[(Direction::Egress, push_program(tags))])
    }

    /// Pops these tags (outermost first) from what arrives at `interface`, and drops what does not carry them.
    pub fn pop_vlan_on_ingress(&self, interface: &str, tags: &[Tag]) -> io::Result<TagProgram> {
        self.attach_tags(interface, &[(Direction::Ingress, pop_program(tags))])
    }

    /// Both ways: the host is in this VLAN as far as the wire can tell.
    pub fn speak_vlan(&self, interface: &str, tags: &[Tag]) -> io::Result<TagProgram> {
        let programs = [(Direction::Egress, push_program(tags)), (Direction::Ingress, pop_program(tags))];
        self.attach_tags(interface, &programs)
    }

    fn attach_tags(&self, interface: &str, programs: &[(Direction, Vec<Instruction>)]) -> io::Result<TagProgram> {
        let attach = |(direction, code): &(Direction, Vec<Instruction>)| {
            bpf::attach(bpf::load(bpf::BPF_PROG_TYPE_SCHED_CLS, code)?, interface, *direction)
        };
        let attachments = self.enter(|| programs.iter().map(attach).collect::<io::Result<_>>())?;
        Ok(TagProgram { _attachments: attachments })
    }
}

// Helper numbers and offsets in `struct __sk_buff` (linux/bpf.h), verdicts (linux/pkt_cls.h): all stable interface.
const BPF_SKB_VLAN_PUSH: i32 = 18;
const BPF_SKB_VLAN_POP: i32 = 19;
const VLAN_PRESENT: i16 = 20;
const VLAN_TCI: i16 = 24;
const VLAN_PROTO: i16 = 28;
const PASS: i32 = 0;
const DROP: i32 = 2;

fn push_program(tags: &[Tag]) -> Vec<Instruction> {
    let mut code = Assembler::default();
    code.copy(Reg::R6, Reg::R1);
    for tag in tags.iter().rev() {
        code.copy(Reg::R1, Reg::R6);
        code.set(Reg::R2, wire_order(tag.tpid));
        code.set(Reg::R3, i32::from(tag.vid));
        code.call(BPF_SKB_VLAN_PUSH);
        code.require(Reg::R0, 0);
    }
    code.finish(PASS, DROP)
}

fn pop_program(tags: &[Tag]) -> Vec<Instruction> {
    let mut code = Assembler::default();
    code.copy(Reg::R6, Reg::R1);
    for tag in tags {
        code.load_word(Reg::R2, Reg::R6, VLAN_PRESENT);
        code.require(Reg::R2, 1);
        code.load_word(Reg::R2, Reg::R6, VLAN_PROTO);
        code.require(Reg::R2, wire_order(tag.tpid));
        code.load_word(Reg::R2, Reg::R6, VLAN_TCI);
        code.and(Reg::R2, 0x0fff);
        code.require(Reg::R2, i32::from(tag.vid));
        code.copy(Reg::R1, Reg::R6);
        code.call(BPF_SKB_VLAN_POP);
        code.require(Reg::R0, 0);
    }
    code.finish(PASS, DROP)
}

/// The kernel's `__be16` seen as a number.
fn wire_order(tpid: u16) -> i32 {
    i32::from(tpid.to_be())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinkOptions, Scenario};
    use std::time::Duration;

    #[test]
    fn the_filters_of_older_kernels_push_and_pop_as_well() {
        let Some(_scenario) = Scenario::begin(&["ping", Scenario::BPF]) else {
            return;
        };
        let tags = [Tag::dot1ad(100), Tag::dot1q(10)];
        let (a, b) = (Host::new("a").unwrap(), Host::new("b").unwrap());
        a.veth("eth0", &b, "eth0", &LinkOptions::default()).unwrap();
        for (host, last) in [(&a, 1), (&b, 2)] {
            host.address("eth0", &format!("10.9.0.{last}/24")).unwrap();
        }
        let filter = |host: &Host, direction, code: Vec<Instruction>| {
            host.enter(|| bpf::attach_filter(&bpf::load(bpf::BPF_PROG_TYPE_SCHED_CLS, &code)?, "eth0", direction)).unwrap();
        };
        filter(&a, Direction::Egress, push_program(&tags));
        let mut wire = b.raw("eth0").unwrap();
        assert!(!a.pings("10.9.0.2", 1).unwrap(), "only one side is tagged");
        let request = wire.recv(Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(request[12..20], [0x88, 0xa8, 0, 100, 0x81, 0, 0, 10]);
        filter(&a, Direction::Ingress, pop_program(&tags));
        filter(&b, Direction::Egress, push_program(&tags));
        filter(&b, Direction::Ingress, pop_program(&tags));
        a.flush_neighbours("eth0").unwrap();
        assert!(a.pings("10.9.0.2", 5).unwrap());
    }

    #[test]
    fn a_program_has_a_way_out_only_where_it_is_used() {
        let tags = [Tag::dot1ad(100), Tag::dot1q(10)];
        assert_eq!(push_program(&[]).len(), 3);
        assert_eq!(push_program(&tags).len(), 5 + 2 * 5);
        assert_eq!(pop_program(&tags).len(), 5 + 2 * 10);
    }
}
