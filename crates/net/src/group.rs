//! Which groups this router listens to on each link, and telling routers and switches so: the host side of IGMPv3 (RFC 3376) and
//! MLDv2 (RFC 3810), which speak the older versions where an older router asks.
//!
//! ```text
//!  nd, plugins, routes ── want_groups ──► membership of each interface and family ── due ──► reports ──► <if>-output
//!                                              ▲ one bounded channel
//!  igmp-input, icmp6-multicast-listener-query ─┘ queries
//! ```
//!
//! *Whoever listens to groups says all of them* ([`Router::want_groups`]): a group is joined with its first user on an interface and
//! left with its last. With IPv6 an interface listens to all routers of the link and of the site and to the solicited-node groups
//! of its addresses (RFC 4291, 2.8). It reports them before duplicate address detection begins (RFC 4862, 5.4.2): a switch that
//! snoops lets solicitations through only then.
//!
//! *Limits.* Queries are heard only from this link: TTL 1 and router alert, for IPv6 a link-local source. They wait for main in a
//! bounded channel, of which each interface has a share; each can only set one timer that there is anyway.
//!
//! Not done here: the router's side (querying, and knowing what hosts listen to), and listening to some sources only.

mod input;
mod membership;
mod message;
pub mod ops;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use quiver_graph::{IfIndex, NodeSpec};
use quiver_wire::group::{Version, mld_type};
use quiver_wire::ipv4::IpProtocol;
use quiver_wire::ipv6::address::{ALL_ROUTERS, solicited_node};

use crate::interface::{IfEvent, L2Mode};
use crate::ip::FamilyId;
use crate::local::RegisterError;
use crate::neighbor::is_running;
use crate::neighbor::state::SECOND;
use crate::random::Random;
use crate::{NetError, ProcessSignal, Router};
use input::{Channel, Heard};
use membership::Membership;
use message::ROUTERS6;

/// Name of the process that sends reports.
pub(crate) const PROCESS: &str = "group-process";
/// All routers of the site.
const ALL_ROUTERS_OF_SITE: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 2);
/// Who listens to the groups that IPv6 itself needs.
const ND: &str = "ip6-nd";
/// Memberships handled at a time.
const AT_ONCE: usize = 64;

type Key = (IfIndex, FamilyId);

/// State of this module on the main thread.
pub(crate) struct Groups {
    members: BTreeMap<Key, Membership>,
    /// When each membership has something to say next.
    timers: BTreeSet<(u64, Key)>,
    due: BTreeMap<Key, u64>,
    channel: Channel,
    random: Random,
}

impl Groups {
    pub fn new(signal: ProcessSignal, seed: u64) -> Self {
        let (members, timers, due) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { members, timers, due, channel: Channel::new(signal), random: Random::new(seed) }
    }

    /// Changes a membership, and its timer with it.
    fn change<R>(&mut self, key: Key, f: impl FnOnce(&mut Membership, &mut dyn FnMut(u64) -> u64) -> R) -> R {
        let numbers = &mut self.random;
        let mut random = |below| numbers.below(below);
        let membership = self.members.entry(key).or_default();
        let result = f(membership, &mut random);
        let (due, idle) = (membership.next_due(), membership.is_idle());
        if let Some(old) = self.due.remove(&key) {
            self.timers.remove(&(old, key));
        }
        if let Some(due) = due {
            self.due.insert(key, due);
            self.timers.insert((due, key));
        }
        if idle {
            self.members.remove(&key);
        }
        result
    }

    fn forget(&mut self, key: Key) {
        self.members.remove(&key);
        if let Some(due) = self.due.remove(&key) {
            self.timers.remove(&(due, key));
        }
    }
}

/// A group that an interface listens to, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listened {
    /// Group.
    pub group: IpAddr,
    /// Who listens.
    pub users: Vec<&'static str>,
}

/// What an interface does in a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFigures {
    /// Version that it speaks, in IGMP's numbers.
    pub version: Version,
    /// Queries heard.
    pub heard: u64,
    /// Reports sent.
    pub sent: u64,
}

impl Router {
    /// Sets which groups of a family `user` listens to on an interface, in place of those that it listened to. The router reports
    /// what changed to routers and switches of the link, so that they forward the groups here; it receives frames to groups anyway.
    pub fn want_groups(&mut self, interface: IfIndex, family: FamilyId, user: &'static str, groups: &BTreeSet<IpAddr>) {
        let key = (interface, family);
        let groups: BTreeSet<IpAddr> =
            groups.iter().filter(|group| group.is_multicast() && FamilyId::of(group) == family).copied().collect();
        if groups.is_empty() && !self.groups.members.contains_key(&key) {
            return;
        }
        let (now, sends) = (self.graph.clock().timer_now(), self.tells_groups(interface));
        self.groups.change(key, |membership, _| {
            membership.set_running(sends, now);
            membership.want(user, &groups, now);
        });
        self.wake_groups();
    }

    /// Groups of a family that an interface listens to.
    pub fn groups(&self, interface: IfIndex, family: FamilyId) -> Vec<Listened> {
        let users = self.groups.members.get(&(interface, family)).into_iter().flat_map(Membership::users);
        users.map(|(group, users)| Listened { group: *group, users: users.iter().copied().collect() }).collect()
    }

    /// What an interface does in a family; none where it listens to nothing.
    pub fn group_figures(&self, interface: IfIndex, family: FamilyId) -> Option<GroupFigures> {
        let membership = self.groups.members.get(&(interface, family))?;
        Some(GroupFigures { version: membership.version(), heard: membership.heard, sent: membership.sent })
    }

    /// Whether there is a link on which somebody could want to know.
    fn tells_groups(&self, interface: IfIndex) -> bool {
        let Some(i) = self.interfaces.get(interface) else { return false };
        let lonely = i.kind.is_loop() && i.l2 == L2Mode::L3;
        is_running(self, interface) && i.has_link_layer() && !lonely
    }

    /// The IPv6 addresses of an interface have changed.
    pub(crate) fn follow_addresses(&mut self, interface: IfIndex) {
        let own = self.interfaces.get(interface).map(|i| i.addresses.as_slice()).unwrap_or_default();
        let mut groups: BTreeSet<IpAddr> = BTreeSet::new();
        for (address, _) in own {
            let IpAddr::V6(address) = address else { continue };
            groups.insert(solicited_node(*address).into());
        }
        if !groups.is_empty() {
            groups.extend([ALL_ROUTERS, ALL_ROUTERS_OF_SITE, ROUTERS6].map(IpAddr::from));
        }
        self.want_groups(interface, FamilyId::V6, ND, &groups);
    }

    /// An interface has a usable link-local address now: routers take no reports from none.
    pub(crate) fn tell_groups_again(&mut self, interface: IfIndex) {
        let key = (interface, FamilyId::V6);
        if self.groups.members.contains_key(&key) {
            let now = self.graph.clock().timer_now();
            self.groups.change(key, |membership, _| membership.tell_all(now));
            self.wake_groups();
        }
    }

    fn wake_groups(&mut self) {
        if let Some((due, _)) = self.groups.timers.first() {
            let due = *due;
            self.wake_process(PROCESS, due);
        }
    }
}

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    input::nodes(&router.groups.channel)
}

/// Takes protocol and message types and starts the process; nodes exist.
pub(crate) fn init(router: &mut Router) -> Result<(), NetError> {
    let refused = |error| match error {
        RegisterError::Graph(error) => NetError::Graph(error),
        _ => NetError::Memory("protocols of groups"),
    };
    router.register_ip_protocol(FamilyId::V4, IpProtocol::IGMP, input::IGMP).map_err(refused)?;
    router.register_icmp_type(FamilyId::V6, mld_type::QUERY, input::QUERY).map_err(refused)?;
    for kind in [mld_type::REPORT_V1, mld_type::DONE, mld_type::REPORT_V2] {
        router.register_icmp_type(FamilyId::V6, kind, input::REPORT).map_err(refused)?;
    }
    router.add_process(PROCESS, process);
    router.listen(on_interface);
    Ok(())
}

fn on_interface(router: &mut Router, event: &IfEvent) {
    let changed = match *event {
        IfEvent::Admin(index, _) | IfEvent::Link(index, _) | IfEvent::L2(index) | IfEvent::Mac(index) => index,
        IfEvent::Deleted(index) => {
            for family in [FamilyId::V4, FamilyId::V6] {
                router.groups.forget((index, family));
            }
            return;
        }
        _ => return,
    };
    let now = router.graph.clock().timer_now();
    let all: Vec<IfIndex> = std::iter::once(changed).chain(router.interfaces.subs(changed)).collect();
    for key in all.into_iter().flat_map(|index| [(index, FamilyId::V4), (index, FamilyId::V6)]) {
        if router.groups.members.contains_key(&key) {
            let sends = router.tells_groups(key.0);
            router.groups.change(key, |membership, _| membership.set_running(sends, now));
        }
    }
    router.wake_groups();
}

fn process(router: &mut Router, now: u64) -> u64 {
    let (queries, more) = router.groups.channel.take(AT_ONCE);
    for Heard { interface, family, query } in queries {
        if router.groups.members.contains_key(&(interface, family)) {
            router.groups.change((interface, family), |membership, random| membership.hear(&query, now, random));
        }
    }
    for _ in 0..AT_ONCE {
        let Some((_, key)) = router.groups.timers.first().copied().filter(|(due, _)| *due <= now) else { break };
        send(router, key, now);
    }
    match router.groups.timers.first() {
        _ if more => now,
        Some((due, _)) => *due,
        None => now + 3600 * SECOND,
    }
}

fn send(router: &mut Router, key: Key, now: u64) {
    let said = router.groups.change(key, |membership, random| membership.take_due(now, random));
    let Some(view) = router.neighbor_view(key.0) else { return };
    let Some(interface) = router.interfaces.get(key.0) else { return };
    let mtu = if key.1 == FamilyId::V4 { interface.mtu4() } else { interface.mtu6() };
    let frames: Vec<_> = said.into_iter().flat_map(|say| message::frames(&view, key.1, say, mtu)).collect();
    let count = frames.len() as u64;
    if let Some(membership) = router.groups.members.get_mut(&key) {
        membership.sent += count;
    }
    router.send_frames(frames.into_iter().map(|frame| (key.0, frame)).collect());
}

#[cfg(test)]
mod tests;
