//! VLAN tag rewrite: what happens to the tags of frames that enter a layer-2 interface, undone when frames leave it.
//!
//! ```text
//!   in:    take n tags off, put m on          l2-input ──► l2-input-vtr ──► l2-bridge or the peer of a cross-connect
//!   out:   take m tags off, put n on          l2-bridge, … ──► l2-output-vtr ──► <if>-output
//! ```
//!
//! The n tags that are put back on are those by which the sub-interface is known. Priority and drop eligibility of the outer
//! tag that is taken off go into the tags that are put on.

use std::collections::HashMap;
use std::fmt;

use quiver_graph::{IfIndex, NoNext, Node, NodeCx, Pkt, Snapshot, Verdict, drop_reasons};
use quiver_wire::MacAddr;
use quiver_wire::ethernet::EtherType;
use quiver_wire::vlan::{Tci, VlanTag};

/// A tag to put on: TPID and VLAN id.
pub type Tag = (u16, u16);

/// A rewrite, as `set interface l2 tag-rewrite` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRewrite {
    /// Tags taken off on the way in, 0 to 2.
    pub pop: u8,
    /// Tags put on then, outermost first; at most two.
    pub push: Vec<Tag>,
}

impl fmt::Display for TagRewrite {
    /// As VPP names them: `pop-1`, `push-2 dot1ad 100 20`, `trans-1-2 dot1q 5 6`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pop, self.push.len()) {
            (n, 0) => return write!(f, "pop-{n}"),
            (0, m) => write!(f, "push-{m}")?,
            (n, m) => write!(f, "trans-{n}-{m}")?,
        }
        let dot1q = self.push.first().is_none_or(|(tpid, _)| *tpid == EtherType::VLAN.0);
        f.write_str(if dot1q { " dot1q" } else { " dot1ad" })?;
        self.push.iter().try_for_each(|(_, id)| write!(f, " {id}"))
    }
}

drop_reasons! {
    /// Why frames are dropped.
    pub enum Drop {
        /// The tag rewrite of the interface wants to take off tags that the frame does not have.
        ///
        /// Causes: untagged frames on a port whose tag rewrite pops tags.
        /// Check: compare `set interface l2 tag-rewrite` with the tags in a capture.
        /// See: `set interface l2 tag-rewrite`, `pcap trace drop`.
        NoTag = "frame has not the tags to take off",
        /// There is no room in front of the frame for a tag.
        NoRoom = "no room for a tag",
        /// The tag rewrite of the interface was removed meanwhile.
        Gone = "no tag rewrite on the interface",
    }
}

/// One direction of a rewrite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub pop: u8,
    pub push: Vec<Tag>,
    /// Where the node sends frames then.
    pub next: Verdict,
}

/// Both directions by interface, as the data path sees them.
#[derive(Clone, Default)]
pub(super) struct Rewrites {
    pub rx: HashMap<IfIndex, Change>,
    pub tx: HashMap<IfIndex, Change>,
}

/// Either node.
#[derive(Clone)]
pub(super) struct Rewrite {
    /// On the way in: the interface is the packet's; on the way out: the aux lane's.
    pub inwards: bool,
    pub rewrites: Snapshot<Rewrites>,
}

impl Node for Rewrite {
    type Next = NoNext;
    type Drop = Drop;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.rewrites.refresh();
    }

    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let rewrites = self.rewrites.get();
        let change = if self.inwards { rewrites.rx.get(&packet.rx_if()) } else { rewrites.tx.get(&IfIndex(packet.aux())) };
        let Some(change) = change else { return packet.drop(Drop::Gone) };
        match change.apply(&mut packet) {
            Ok(()) => change.next,
            Err(reason) => packet.drop(reason),
        }
    }
}

impl Change {
    fn apply(&self, packet: &mut Pkt<'_>) -> Result<(), Drop> {
        let addresses: [MacAddr; 2] = packet.head();
        let tags: [VlanTag; 2] = packet.head_at::<_, 12>();
        let pop = usize::from(self.pop);
        // The type behind the last tag belongs to the frame.
        if packet.len() < 14 + 4 * pop || !tags.iter().take(pop).all(|tag| tag.tpid().is_vlan()) {
            return Err(Drop::NoTag);
        }
        let outer = if pop > 0 { tags[0].tci() } else { Tci(0) };
        packet.pull(4 * pop);
        if !packet.push(4 * self.push.len()) {
            return Err(Drop::NoRoom);
        }
        packet.set_head(addresses);
        let put = |(tpid, id): &Tag| {
            let mut tag = VlanTag::new(EtherType(*tpid), *id);
            tag.tci = quiver_wire::U16Be::new(outer.0 & 0xf000 | id & 0x0fff);
            tag
        };
        match self.push.as_slice() {
            [] => {}
            [one] => packet.set_head_at::<_, 12>(put(one)),
            [one, two, ..] => packet.set_head_at::<_, 12>([put(one), put(two)]),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrites_are_named_as_usual() {
        let text = |pop, push: &[Tag]| TagRewrite { pop, push: push.to_vec() }.to_string();
        assert_eq!(text(1, &[]), "pop-1");
        assert_eq!(text(2, &[]), "pop-2");
        assert_eq!(text(0, &[(0x8100, 10)]), "push-1 dot1q 10");
        assert_eq!(text(0, &[(0x88a8, 10), (0x8100, 20)]), "push-2 dot1ad 10 20");
        assert_eq!(text(1, &[(0x8100, 5)]), "trans-1-1 dot1q 5");
        assert_eq!(text(1, &[(0x88a8, 5), (0x8100, 6)]), "trans-1-2 dot1ad 5 6");
        assert_eq!(text(2, &[(0x8100, 5)]), "trans-2-1 dot1q 5");
    }
}
