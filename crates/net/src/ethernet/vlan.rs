//! Tagged frames: which sub-interface do they belong to?

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

use quiver_graph::{
    ArcPoint, Batch, FastPath, IfIndex, Node, NodeCx, Pkt, Sent, Shared, Snapshot, Verdict, drop_reasons, flags, next_nodes,
};
use quiver_tables::chunks::Chunks;
use quiver_wire::ethernet::{EtherType, EthernetHeader};
use quiver_wire::{MacAddr, U16Be};

use super::MoreMacs;
use super::input::{is_tag, mine};
use crate::data::{IfTable, if_flags};
use crate::interface::{SubMatch, VlanId};
use crate::run_counter::RunCounter;

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

/// 2^64 by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads keys by one multiplication. Nobody but the operator chooses them, so they need no hash that withstands chosen ones, and each
/// tagged frame that the cache does not have asks for one.
#[derive(Clone, Copy, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline(always)]
    fn write_u64(&mut self, word: u64) {
        // The table looks at the highest and the lowest bits.
        let product = (self.0 ^ word).wrapping_mul(GOLDEN);
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

/// Tags, and the sub-interface that they were found to belong to.
#[derive(Clone, Copy)]
struct Found {
    /// As [`ONE_TAG`] or [`TWO_TAGS`] leave them.
    tags: u64,
    parent: IfIndex,
    sub: IfIndex,
}

/// Entries of a thread's cache.
const CACHED: usize = 1 << CACHED_BITS;
const CACHED_BITS: u32 = 12;

/// A thread's cache of look-ups in [`VlanTable`], whichever of its rules was the one: one line in place of the several that the table takes.
/// Newer tags take the place of older ones.
#[derive(Clone)]
pub(super) struct Cache(Box<[Found; CACHED]>);

impl Cache {
    /// No interface has this number.
    const NOTHING: Found = Found { tags: 0, parent: IfIndex(u32::MAX), sub: IfIndex::LOCAL0 };

    pub fn new() -> Self {
        Self(Box::new([Self::NOTHING; CACHED]))
    }

    fn clear(&mut self) {
        self.0.fill(Self::NOTHING);
    }

    /// The place of tags, whatever is there.
    #[inline(always)]
    fn place(tags: u64) -> usize {
        // The numbers of a parent's VLANs, which follow one another, are spread evenly.
        (tags.wrapping_mul(GOLDEN) >> (u64::BITS - CACHED_BITS)) as usize
    }
}

/// The first word of tags, from the first type on: type, tag, type, tag. What is not of VLAN numbers is left out: priorities, and behind one
/// tag the rest.
const ONE_TAG: u64 = 0xffff_0fff_0000_0000;
const TWO_TAGS: u64 = ONE_TAG | 0xffff_0fff;

/// Sorts tagged frames (and untagged ones where a sub-interface wants them): zero to three tags. The common untagged frame never
/// comes here.
#[derive(Clone)]
pub struct EthernetVlan {
    pub(super) interfaces: IfTable,
    pub(super) table: Snapshot<VlanTable>,
    pub(super) cache: Cache,
    /// Counts what sub-interfaces receive.
    pub(super) count: RunCounter,
    /// Features that take frames of unknown types.
    pub(super) unknown: ArcPoint,
    /// MAC addresses beside the interfaces' own.
    pub(super) more: Snapshot<MoreMacs>,
}

impl EthernetVlan {
    /// Looks up and caches to whom the tags of a batch belong; `None` where some belong to nobody.
    #[inline(never)]
    fn look_up<const W: usize>(&mut self, parent: IfIndex, words: &[u64; W]) -> Option<[IfIndex; W]> {
        let mut subs = [parent; W];
        for (sub, word) in subs.iter_mut().zip(words) {
            let tags = [32, 0].map(|shift| ((word >> (shift + 16)) as u16, (word >> shift) as u16));
            let tags = if word & !ONE_TAG == 0 { &tags[..1] } else { &tags };
            if !tags.iter().all(|(tpid, _)| is_tag(*tpid)) {
                return None;
            }
            *sub = self.table.get().find(parent, tags)?;
            self.cache.0[Cache::place(*word)] = Found { tags: *word, parent, sub: *sub };
        }
        Some(subs)
    }
}

/// Takes the first tag out of a frame.
fn untag(packet: &mut Pkt<'_, Shared>) {
    let addresses: [u8; 12] = packet.head();
    if packet.pull(TAG) {
        packet.set_head(addresses);
    }
}

impl Node<Shared> for EthernetVlan {
    type Next = Next;
    type Drop = Drop;

    fn start(&mut self, thread: usize) {
        self.count.start(thread);
    }

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        if self.table.refresh() {
            self.cache.clear();
        }
    }

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, packet: Pkt<'_, Shared>) -> Verdict {
        self.sort(packet)
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.count.flush();
    }
}

impl EthernetVlan {
    /// The rules, for any frame.
    #[inline(never)]
    fn sort(&mut self, mut packet: Pkt<'_, Shared>) -> Verdict {
        let mut tags = [(0_u16, 0_u16); 3];
        let mut count = 0;
        let mut at = 12;
        let word = |packet: &Pkt<'_, Shared>, at| packet.read_at::<U16Be>(at).map(U16Be::get);
        let ether_type = loop {
            let Some(ether_type) = word(&packet, at) else { return packet.drop(Drop::Short) };
            if !EtherType(ether_type).is_vlan() || count == tags.len() {
                break ether_type;
            }
            let Some(tci) = word(&packet, at + 2) else { return packet.drop(Drop::Short) };
            tags[count] = (ether_type, tci & ID);
            count += 1;
            at += TAG;
        };
        let dst: MacAddr = packet.head();
        packet.mark(if dst.is_multicast() { flags::LINK_MULTICAST } else { 0 });
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
            self.count.add(sub.0, packet.total_len() as u32);
        }
        if record.flags & if_flags::L2 != 0 {
            return Next::L2.into();
        }
        let mine = dst == record.mac || dst.is_multicast() || record.flags & if_flags::PROMISCUOUS != 0;
        if !mine && !self.accepts(sub, dst) {
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

    #[cold]
    fn accepts(&mut self, sub: IfIndex, dst: MacAddr) -> bool {
        self.more.refresh();
        self.more.get().accepts(sub, dst)
    }
}

impl FastPath<Shared> for EthernetVlan {
    const WIDTH: u8 = 4;
    const PULLS: usize = ETHERNET + TAG;

    /// IP behind one tag or two, to the address of the routed sub-interface that they belong to. Or of layer 2: then to no group.
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let parent = batch.first_rx_if();
        if !batch.all_from(parent, flags::LOCAL | flags::CHAINED) {
            return None;
        }
        let is_ip = |t: u16| (t == EtherType::IPV4.0) | (t == EtherType::IPV6.0);
        let (mut words, mut types): ([u64; W], _) = (batch.heads::<_, 12>(), [0; W]);
        for k in 0..W {
            words[k] = u64::from_be(words[k]);
            types[k] = (words[k] >> 16) as u16;
        }
        let one_tag = types.iter().fold(true, |all, t| all & is_ip(*t));
        if !one_tag {
            types = batch.heads::<_, 20>();
            let mut all_ip = true;
            for ether_type in &mut types {
                *ether_type = u16::from_be(*ether_type);
                all_ip &= is_ip(*ether_type);
            }
            if !all_ip {
                return None;
            }
        }
        let numbers = if one_tag { ONE_TAG } else { TWO_TAGS };
        let (mut subs, mut differ) = ([parent; W], 0);
        for k in 0..W {
            words[k] &= numbers;
            let found = &self.cache.0[Cache::place(words[k])];
            differ |= (found.tags ^ words[k]) | u64::from(found.parent.0 ^ parent.0);
            subs[k] = found.sub;
        }
        if differ != 0 {
            subs = self.look_up(parent, &words)?;
        }
        let (destinations, interfaces): ([u64; W], _) = (batch.heads::<_, 0>(), self.interfaces.view());
        let (mut differ, mut kinds, mut group) = (0, u16::MAX, 0);
        for k in 0..W {
            let link = interfaces.link(subs[k]);
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
        if subs.iter().fold(0, |differ, sub| differ | (sub.0 ^ subs[0].0)) == 0 {
            self.count.add_all(subs[0].0, &lens);
        } else {
            self.count.add_each(&subs.map(|sub| sub.0), &lens);
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
