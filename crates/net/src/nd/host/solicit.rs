//! Router solicitations, repeated until a router answers (RFC 4861, 6.3.7; RFC 7559).

use std::collections::BTreeMap;

use quiver_graph::IfIndex;
use quiver_wire::MacAddr;
use quiver_wire::ethernet::EtherType;
use quiver_wire::icmp6::{Icmp6Header, Icmp6Type};
use quiver_wire::ipv6::address::ALL_ROUTERS;
use quiver_wire::ndp::NdpOption;
use zerocopy::IntoBytes;

use super::super::PROCESS;
use super::super::message::{packet, push_option};
use super::HostError;
use super::heard::Advert;
use crate::Router;
use crate::neighbor::View;
use crate::neighbor::state::SECOND;

/// How solicitations are repeated; all times in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SolicitConfig {
    /// Time to the second one; each next time is twice as long.
    pub initial: u32,
    /// Most time between two; 0: no bound.
    pub most: u32,
    /// How many; 0: until a router answers.
    pub count: u32,
    /// For how long; 0: until a router answers.
    pub duration: u32,
}

impl Default for SolicitConfig {
    fn default() -> Self {
        // As VPP repeats them for addresses.
        Self { initial: 1, most: 120, count: 0, duration: 0 }
    }
}

/// An interface's solicitations.
struct Solicitation {
    config: SolicitConfig,
    /// When the next one goes, ns; `None` while the link has no usable link-local address.
    due: Option<u64>,
    /// When the first one went.
    since: Option<u64>,
    /// Time to the next one, ns.
    wait: u64,
    sent: u32,
}

/// Solicitations of all interfaces.
#[derive(Default)]
pub(super) struct Solicitations(BTreeMap<IfIndex, Solicitation>);

impl Solicitations {
    pub fn forget(&mut self, interface: IfIndex) {
        self.0.remove(&interface);
    }
}

impl Router {
    /// Has an interface solicit routers until one answers, or ends that (`None`).
    ///
    /// # Errors
    /// No such interface, or one without IPv6.
    pub fn solicit_routers(&mut self, interface: IfIndex, config: Option<SolicitConfig>) -> Result<(), HostError> {
        let known = self.interfaces.get(interface).ok_or(HostError::NoInterface(interface.0))?;
        let name = known.name.clone();
        let Some(config) = config else {
            self.nd.host.solicit.forget(interface);
            return Ok(());
        };
        if !known.addresses.iter().any(|(a, _)| a.is_ipv6()) {
            return Err(HostError::NoIp6(name));
        }
        begin(self, interface, config);
        Ok(())
    }

    /// Whether an interface solicits routers.
    pub fn solicits_routers(&self, interface: IfIndex) -> bool {
        self.nd.host.solicit.0.contains_key(&interface)
    }
}

/// Begins, or begins anew. The first one goes as soon as the link-local address can be used.
pub(super) fn begin(router: &mut Router, interface: IfIndex, config: SolicitConfig) {
    router.nd.host.adverts.want();
    let entry = Solicitation { config, due: None, since: None, wait: u64::from(config.initial.max(1)) * SECOND, sent: 0 };
    router.nd.host.solicit.0.insert(interface, entry);
    reconsider(router, interface);
}

/// Starts what waits for a link-local address.
pub(super) fn reconsider(router: &mut Router, interface: IfIndex) {
    let able = router.usable_link_local(interface);
    let now = router.graph.clock().timer_now();
    let Some(entry) = router.nd.host.solicit.0.get_mut(&interface).filter(|entry| able && entry.due.is_none()) else { return };
    entry.due = Some(now);
    router.wake_process(PROCESS, now);
}

/// A router that is one for us ends them (RFC 4861, 6.3.7).
pub(super) fn heard(router: &mut Router, advert: &Advert) {
    if advert.message.router_lifetime() > 0 {
        router.nd.host.solicit.forget(advert.interface);
    }
}

fn frame(view: &View) -> Option<Vec<u8>> {
    let source = view.link_local()?;
    let mut message = Icmp6Header::new(Icmp6Type::ROUTER_SOLICITATION, 0, 0).as_bytes().to_vec();
    push_option(&mut message, &NdpOption::SourceLinkAddress(view.mac));
    let mac = MacAddr::from_ipv6_multicast(ALL_ROUTERS);
    Some(view.frame(mac, EtherType::IPV6, &packet(source, ALL_ROUTERS.to_bits(), &mut message)))
}

/// Sends what is due; says when to be called next.
pub(super) fn run(router: &mut Router, now: u64) -> u64 {
    let all = router.nd.host.solicit.0.iter();
    let due: Vec<IfIndex> = all.filter(|(_, s)| s.due.is_some_and(|due| due <= now)).map(|(i, _)| *i).collect();
    for interface in due {
        let view = router.neighbor_view(interface).filter(|_| router.usable_link_local(interface));
        let frame = view.as_ref().and_then(frame);
        // A tenth more or less, so that hosts that were started together do not speak together (RFC 7559, 2).
        let random = router.nd.random.below(SECOND / 5) as i64 - (SECOND / 10) as i64;
        let Some(entry) = router.nd.host.solicit.0.get_mut(&interface) else { continue };
        let Some(frame) = frame else {
            entry.due = None;
            continue;
        };
        let SolicitConfig { most, count, duration, .. } = entry.config;
        entry.sent = entry.sent.saturating_add(1);
        let since = *entry.since.get_or_insert(now);
        let wait = if most == 0 { entry.wait } else { entry.wait.min(u64::from(most) * SECOND) };
        let spread = (wait / SECOND) as i64 * random;
        entry.due = Some(now.saturating_add(wait).saturating_add_signed(spread));
        entry.wait = wait.saturating_mul(2);
        let counted = count != 0 && entry.sent >= count;
        let late = duration != 0 && now >= since.saturating_add(u64::from(duration) * SECOND);
        if counted || late {
            router.nd.host.solicit.forget(interface);
        }
        router.send_frames(vec![(interface, frame)]);
    }
    router.nd.host.solicit.0.values().filter_map(|s| s.due).min().unwrap_or(now + 3600 * SECOND)
}
