//! Tagged frames: which sub-interface do they belong to?

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

use quiver_graph::{
    ArcPoint, Batch, FastPath, IfIndex, InterfaceCounters, Node, NodeCx, Pkt, Sent, Snapshot, Verdict, drop_reasons, flags,
    next_nodes,
};
use quiver_tables::chunks::Chunks;
use quiver_wire::MacAddr;
use quiver_wire::ethernet::{EtherType, EthernetHeader};

use super::MoreMacs;
use super::input::{is_tag, mine};
use crate::data::{IfTable, if_flags};
use crate::interface::{SubMatch, VlanId};

next_nodes! {
    /// Where frames of sub-interfaces go. The order of the first three is that of `ethernet-input`.
    pub enum Next { Ip4 = "ip4-input", Ip6 = "ip6-input", Arp = "arp-input", L2 = "l2-input" }
}

drop_reasons! {
    /// Why tagged frames are dropped.
    pub enum Drop {
        /// No sub-interface has the frame's VLAN tags.
        ///
        /// Causes: the port of the switch is a trunk with more VLANs than the router has sub-interfaces for; a sub-interface
        /// matches another number of tags (`exact-match`) or another EtherType (dot1ad).
        /// Check: `show interface`, and a capture of drops for the tags; then `create sub-interfaces IF VLAN`.
        /// See: `create sub-interfaces`, `pcap trace drop`.
        UnknownVlan = "unknown vlan",
        /// The sub-interface is down.
        ///
        /// Causes: the sub-interface was created and never set up, or was set down.
        /// Check: `set interface state IF.VLAN up`.
        /// See: `show interface`, `set interface state IF up`.
        Down = "subinterface down",
        /// The frame is for another MAC address than the interface's.
        ///
        /// Causes: a switch floods frames of other hosts to the router; a neighbor has an old MAC address of the router.
        /// Check: `show hardware-interfaces` for the MAC address, and the neighbor's ARP cache. Flooded frames are harmless.
        /// See: `show hardware-interfaces`.
        OtherMac = "l3 mac mismatch",
        /// No node handles frames with this EtherType.
        UnknownType = "unknown ethernet type",
        /// The frame is shorter than its headers.
        Short = "ethernet frame too short",
    }
}

const ANY: u16 = 0xffff;
/// Bytes of a tag.
const TAG: usize = 4;
/// Bytes of a header without tags.
const ETHERNET: usize = size_of::<EthernetHeader>();
/// Bits of a tag that are the VLAN's number.
const ID: u16 = 0x0fff;

/// A parent and tags in one word: 32 bits of the parent's number, then 13 of the outer id, 14 of the inner one, and whether the outer tag is
/// dot1ad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key(u64);

impl Key {
    #[inline(always)]
    fn new(parent: IfIndex, dot1ad: bool, outer: u16, inner: Option<u16>) -> Self {
        // An id has 12 bits; `ANY` and "no tag" are values beyond them.
        let inner = inner.map_or(0x2000, |inner| u64::from(inner) & 0x1fff);
        let outer = u64::from(outer) & 0x1fff;
        Self(u64::from(parent.0) << 32 | outer << 15 | inner << 1 | u64::from(dot1ad))
    }

    /// The part of the table that it is in; by ids, so that those of one parent are spread evenly.
    #[inline(always)]
    fn shard(self) -> usize {
        (self.0 >> 15 ^ self.0 >> 1) as usize % SHARDS
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.0);
    }
}

/// Spreads keys by one multiplication. Nobody but the operator chooses them, so they need no hash that withstands chosen ones, and each
/// tagged frame asks for one.
#[derive(Clone, Copy, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline(always)]
    fn write_u64(&mut self, word: u64) {
        // 2^64 by the golden ratio; the table looks at the highest and the lowest bits.
        let product = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Parts of the table. A change copies one of them.
const SHARDS: usize = 128;

/// Sub-interfaces by tags. A copy shares what it holds with its original, and a change copies a small part.
#[derive(Clone, Default, Debug)]
pub struct VlanTable {
    tagged: Chunks<Option<Arc<Shard>>>,
    default: Chunks<Option<IfIndex>>,
    untagged: Chunks<Option<IfIndex>>,
}

type Shard = HashMap<Key, (IfIndex, bool), BuildHasherDefault<Spread>>;

impl VlanTable {
    /// Says to which sub-interface tags belong; to none any more.
    pub(crate) fn set(&mut self, parent: IfIndex, matching: &SubMatch, index: Option<IfIndex>) {
        let id = |v: &VlanId| match v {
            VlanId::Exactly(v) => *v,
            VlanId::Any => ANY,
        };
        match matching {
            SubMatch::Default => *self.default.get_mut(parent.0 as usize) = index,
            SubMatch::Untagged => *self.untagged.get_mut(parent.0 as usize) = index,
            SubMatch::Tagged { dot1ad, outer, inner, exact } => {
                let key = Key::new(parent, *dot1ad, id(outer), inner.as_ref().map(id));
                let shard = Arc::make_mut(self.tagged.get_mut(key.shard()).get_or_insert_default());
                match index {
                    Some(index) => drop(shard.insert(key, (index, *exact))),
                    None => drop(shard.remove(&key)),
                }
            }
        }
    }

    /// The sub-interface that names exactly these tags, and whether it takes no frames with more.
    #[inline(always)]
    fn exactly(&self, key: Key) -> Option<&(IfIndex, bool)> {
        self.tagged.get(key.shard())?.as_ref()?.get(&key)
    }

    /// The sub-interface for a frame's tags, most specific match first: two tags before one, ids before `any`, then the
    /// default. An exact match does not take frames with more tags than it names.
    fn find(&self, parent: IfIndex, tags: &[(u16, u16)]) -> Option<IfIndex> {
        let Some((tpid, outer)) = tags.first() else { return *self.untagged.get(parent.0 as usize)? };
        let dot1ad = *tpid != EtherType::VLAN.0;
        let get = |outer, inner| self.exactly(Key::new(parent, dot1ad, outer, inner));
        if let Some((_, inner)) = tags.get(1) {
            for (o, i) in [(*outer, *inner), (*outer, ANY), (ANY, *inner), (ANY, ANY)] {
                if let Some((index, exact)) = get(o, Some(i))
                    && (!exact || tags.len() == 2)
                {
                    return Some(*index);
                }
            }
        }
        for o in [*outer, ANY] {
            if let Some((index, exact)) = get(o, None)
                && (!exact || tags.len() == 1)
            {
                return Some(*index);
            }
        }
        *self.default.get(parent.0 as usize)?
    }
}

/// Sorts tagged frames (and untagged ones where a sub-interface wants them): zero to three tags. The common untagged frame never
/// comes here.
#[derive(Clone)]
pub struct EthernetVlan {
    pub(super) interfaces: IfTable,
    pub(super) table: Snapshot<VlanTable>,
    pub(super) counters: Arc<InterfaceCounters>,
    /// Features that take frames of unknown types.
    pub(super) unknown: ArcPoint,
    /// MAC addresses beside the interfaces' own.
    pub(super) more: Snapshot<MoreMacs>,
    /// The thread of this instance, whose counters it adds to.
    pub(super) thread: usize,
}

/// Takes the first tag out of a frame.
fn untag(packet: &mut Pkt<'_>) {
    let addresses: [u8; 12] = packet.head();
    if packet.pull(TAG) {
        packet.set_head(addresses);
    }
}

impl Node for EthernetVlan {
    type Next = Next;
    type Drop = Drop;

    fn start(&mut self, thread: usize) {
        self.thread = thread;
    }

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.table.refresh();
        self.more.refresh();
    }

    #[inline(always)]
    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let bytes = packet.bytes();
        let mut tags = [(0_u16, 0_u16); 3];
        let mut count = 0;
        let mut at = 12;
        let word = |at: usize| bytes.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
        let ether_type = loop {
            let Some(ether_type) = word(at) else { return packet.drop(Drop::Short) };
            if !EtherType(ether_type).is_vlan() || count == tags.len() {
                break ether_type;
            }
            let Some(tci) = word(at + 2) else { return packet.drop(Drop::Short) };
            tags[count] = (ether_type, tci & ID);
            count += 1;
            at += TAG;
        };
        let dst: [u8; 6] = packet.head();
        let (table, parent) = (self.table.get(), packet.rx_if());
        let mut tags = &tags[..count];
        let mut sub = table.find(parent, tags);
        // Number 0 is no VLAN, only a priority: the frame is as without that tag (IEEE 802.1Q, 6.9.1), unless a sub-interface
        // wants it as it is. A bridge hands it on as it came.
        while let (None, [(_, 0), rest @ ..]) = (sub, tags) {
            if self.interfaces.get(parent).flags & if_flags::L2 != 0 {
                return Next::L2.into();
            }
            untag(&mut packet);
            at -= TAG;
            tags = rest;
            sub = table.find(parent, tags).or(tags.is_empty().then_some(parent));
        }
        let Some(sub) = sub else {
            // A bridged or cross-connected interface takes whatever none of its sub-interfaces claims, tags and all.
            if self.interfaces.get(parent).flags & if_flags::L2 != 0 {
                packet.mark(if MacAddr(dst).is_multicast() { flags::LINK_MULTICAST } else { 0 });
                return Next::L2.into();
            }
            return packet.drop(Drop::UnknownVlan);
        };
        let record = self.interfaces.get(sub);
        if record.flags & if_flags::UP == 0 {
            return packet.drop(Drop::Down);
        }
        packet.set_rx_if(sub);
        if sub != parent {
            self.counters.rx.add(cx.thread(), sub.0, 1, packet.total_len() as u64);
        }
        let dst = MacAddr(dst);
        packet.mark(if dst.is_multicast() { flags::LINK_MULTICAST } else { 0 });
        if record.flags & if_flags::L2 != 0 {
            return Next::L2.into();
        }
        let mine = dst == record.mac || dst.is_multicast() || record.flags & if_flags::PROMISCUOUS != 0;
        if !mine && !self.more.get().accepts(sub, dst) {
            return packet.drop(Drop::OtherMac);
        }
        let (next, known) = super::input::by_type(ether_type);
        if !known {
            let feature = self.unknown.next(sub, Verdict::DROP);
            return if feature == Verdict::DROP { packet.drop(Drop::UnknownType) } else { feature };
        }
        if !packet.pull(at + 2) {
            return packet.drop(Drop::Short);
        }
        next
    }
}

impl FastPath for EthernetVlan {
    const WIDTH: u8 = 4;
    const PULLS: usize = ETHERNET + TAG;

    /// IP behind one tag or two, to the address of a routed sub-interface that names these tags: the first match of [`VlanTable::find`].
    /// Or of layer 2: then to no group.
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let parent = batch.first_rx_if();
        if !batch.all_from(parent, flags::LOCAL | flags::CHAINED) {
            return None;
        }
        // From the first type on: type, tag, type, tag.
        let (mut words, mut second): ([u64; W], _) = (batch.heads::<_, 12>(), [0; W]);
        for k in 0..W {
            words[k] = u64::from_be(words[k]);
            second[k] = (words[k] >> 16) as u16;
        }
        let is_ip = |t: u16| (t == EtherType::IPV4.0) | (t == EtherType::IPV6.0);
        let one_tag = second.iter().fold(true, |all, t| all & is_ip(*t));
        let third: [u16; W] = batch.heads::<_, 20>();
        let (mut types, mut other) = (second, false);
        for k in 0..W {
            types[k] = if one_tag { second[k] } else { u16::from_be(third[k]) };
            let tags = is_tag((words[k] >> 48) as u16) & (one_tag | is_tag(second[k]));
            other |= !(tags & is_ip(types[k]));
        }
        if other {
            return None;
        }
        let destinations: [u64; W] = batch.heads::<u64, 0>();
        let (table, mut subs) = (self.table.get(), [parent; W]);
        for k in 0..W {
            let (first, id, inner) = ((words[k] >> 48) as u16, (words[k] >> 32) as u16, words[k] as u16);
            let inner = (!one_tag).then_some(inner & ID);
            let (sub, _) = *table.exactly(Key::new(parent, first != EtherType::VLAN.0, id & ID, inner))?;
            subs[k] = sub;
        }
        let (mut differ, mut kinds, mut group) = (0, u16::MAX, 0);
        for k in 0..W {
            let link = self.interfaces.link(subs[k]);
            differ |= (destinations[k] << 16) ^ mine(link);
            kinds &= (link >> 48) as u16;
            group |= destinations[k] & 1;
        }
        let lens = batch.lens();
        let l2 = kinds & (if_flags::UP | if_flags::L2) == if_flags::UP | if_flags::L2;
        let fits = if l2 {
            group == 0 && batch.all_have((ETHERNET + if one_tag { TAG } else { 2 * TAG }) as u32)
        } else {
            differ == 0
                && if one_tag {
                    batch.pull::<{ (ETHERNET + TAG) as u32 }>()
                } else {
                    batch.pull::<{ (ETHERNET + 2 * TAG) as u32 }>()
                }
        };
        if !fits {
            return None;
        }
        batch.set_rx_ifs(subs);
        if subs.iter().all(|sub| *sub == subs[0]) {
            self.counters.rx.add(self.thread, subs[0].0, W as u64, lens.iter().map(|len| u64::from(*len)).sum());
        } else {
            for k in 0..W {
                self.counters.rx.add(self.thread, subs[k].0, 1, lens[k].into());
            }
        }
        if l2 {
            return Some(batch.send_all(Next::L2.into()));
        }
        let mut verdicts = [Verdict::from(Next::Ip4); W];
        for (verdict, ether_type) in verdicts.iter_mut().zip(types) {
            *verdict = Verdict::select(ether_type == EtherType::IPV4.0, Next::Ip4.into(), Next::Ip6.into());
        }
        Some(batch.send(verdicts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_many_as_what_they_are_made_of() {
        use std::collections::HashSet;
        let ids = [0, 1, 2, 127, 128, 4094, 4095, ANY];
        let mut keys = HashSet::new();
        let mut made = 0;
        for parent in [IfIndex(0), IfIndex(1), IfIndex(u32::MAX)] {
            for (dot1ad, outer) in ids.iter().flat_map(|id| [(false, *id), (true, *id)]) {
                for inner in ids.iter().map(|id| Some(*id)).chain([None]) {
                    let key = Key::new(parent, dot1ad, outer, inner);
                    assert!(key.shard() < SHARDS);
                    keys.insert(key);
                    made += 1;
                }
            }
        }
        assert_eq!(keys.len(), made);
    }

    #[test]
    fn the_ids_of_a_parent_are_spread_over_the_parts_and_within_them() {
        // hashbrown looks at the highest 7 bits for what to compare, and at the lowest for where.
        let hash = |key: Key| {
            let mut hasher = Spread::default();
            key.hash(&mut hasher);
            hasher.finish()
        };
        let keys: Vec<Key> = (0..4096).map(|id| Key::new(IfIndex(3), false, id, None)).collect();
        let mut parts = vec![0; SHARDS];
        keys.iter().for_each(|key| parts[key.shard()] += 1);
        assert!(parts.iter().all(|part| *part == 4096 / SHARDS), "{parts:?}");
        let mut places = vec![0; 64];
        keys.iter().for_each(|key| places[(hash(*key) % 64) as usize] += 1);
        assert!(places.iter().all(|place| *place < 2 * 4096 / 64), "{places:?}");
        let marks: std::collections::HashSet<u64> = keys.iter().map(|key| hash(*key) >> 57).collect();
        assert!(marks.len() > 100, "{}", marks.len());
    }

    fn tagged(dot1ad: bool, outer: VlanId, inner: Option<VlanId>, exact: bool) -> SubMatch {
        SubMatch::Tagged { dot1ad, outer, inner, exact }
    }

    #[test]
    fn the_most_specific_sub_interface_wins() {
        use VlanId::{Any, Exactly};
        let p = IfIndex(1);
        let mut t = VlanTable::default();
        t.set(p, &tagged(false, Exactly(10), None, true), Some(IfIndex(2)));
        t.set(p, &tagged(false, Exactly(10), Some(Exactly(20)), true), Some(IfIndex(3)));
        t.set(p, &tagged(false, Exactly(10), Some(Any), false), Some(IfIndex(4)));
        t.set(p, &tagged(true, Exactly(10), None, false), Some(IfIndex(5)));
        t.set(p, &SubMatch::Default, Some(IfIndex(6)));
        t.set(p, &SubMatch::Untagged, Some(IfIndex(7)));
        let q = EtherType::VLAN.0;
        let ad = EtherType::QINQ.0;
        assert_eq!(t.find(p, &[(q, 10)]), Some(IfIndex(2)));
        assert_eq!(t.find(p, &[(q, 10), (q, 20)]), Some(IfIndex(3)));
        assert_eq!(t.find(p, &[(q, 10), (q, 21)]), Some(IfIndex(4)));
        assert_eq!(t.find(p, &[(q, 10), (q, 20), (q, 1)]), Some(IfIndex(4)), "exact does not take three tags");
        assert_eq!(t.find(p, &[(ad, 10), (q, 1)]), Some(IfIndex(5)));
        assert_eq!(t.find(p, &[(q, 11)]), Some(IfIndex(6)));
        assert_eq!(t.find(p, &[]), Some(IfIndex(7)));
        assert_eq!(t.find(IfIndex(9), &[(q, 10)]), None);
    }
}
