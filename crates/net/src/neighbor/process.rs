//! The process of the neighbour tables: applies what workers tell, runs timers, and tells threads what has become of the
//! neighbours that their packets wait for.

use std::net::IpAddr;

use quiver_graph::IfIndex;
use quiver_wire::MacAddr;

use super::ask::{AskFamily, Outcome, send, settle};
use super::facts::{Fact, What};
use super::hold::Key;
use super::state::{Due, SECOND};
use super::table::Usage;
use super::{NeighborEvent, View};
use crate::fib::{AdjKey, AdjKind, Fib};
use crate::ip::{FamilyId, V4, V6};
use crate::{Router, arp, nd};

/// Facts of each kind applied at a time.
const FACTS: usize = 64;
/// Timers handled at a time.
const TIMERS: usize = 64;
/// How often threads look for packets whose neighbour main was never told of.
const SWEEP: u64 = SECOND;
/// Conflicts are written to the log, and own addresses defended, at most so often (RFC 5227, DEFEND_INTERVAL).
const CONFLICT: u64 = 10 * SECOND;

/// One call: what there is, within bounds; says when to call next.
pub(super) fn run(router: &mut Router, now: u64) -> u64 {
    let mut more = false;
    let (facts, left) = router.neighbors.facts.take(FACTS);
    more |= left;
    for fact in facts {
        apply(router, fact, now);
    }
    for family in [FamilyId::V4, FamilyId::V6] {
        more |= timers(router, family, now) == TIMERS;
    }
    announcements(router, now);
    settle_all(router);
    sweep(router, now);
    if more { now } else { next_due(router, now) }
}

fn next_due(router: &Router, now: u64) -> u64 {
    let part = &router.neighbors;
    let sweep = if part.holds.waiting().is_empty() { u64::MAX } else { part.sweep };
    let announcement = part.announcements.next_due();
    let times = [part.v4.next_due(), part.v6.next_due(), announcement, Some(sweep)];
    times.into_iter().flatten().min().unwrap_or(u64::MAX).max(now + 1)
}

fn apply(router: &mut Router, fact: Fact, now: u64) {
    let Fact { interface, address, what } = fact;
    match what {
        What::Wanted => router.want_neighbor((interface, address), now),
        What::Heard { evidence, create } => router.hear_neighbor((interface, address), evidence, create, now),
        What::Conflict(mac) => conflict(router, interface, address, mac, now),
        What::Solicited(mac) => router.router_solicited(interface, address, mac, now),
    }
}

/// Somebody else uses our address.
fn conflict(router: &mut Router, interface: IfIndex, address: IpAddr, mac: MacAddr, now: u64) {
    // A tentative address is given up; it was never used.
    if let IpAddr::V6(a) = address
        && router.duplicate_found(interface, a, mac)
    {
        return;
    }
    let part = &mut router.neighbors;
    part.table_mut(FamilyId::of(&address)).figures.conflicts += 1;
    if part.conflict_logged == 0 || now.saturating_sub(part.conflict_logged) >= CONFLICT {
        part.conflict_logged = now;
        let name = router.interfaces.name(interface);
        tracing::warn!(target: "ip/neighbor", interface = %name, %address, "{mac} uses our address {address} on {name}");
        router.tell_neighbors(&NeighborEvent::Conflict { interface, address, mac });
        // RFC 5227, 2.4 (b): defended once; two routers that both defend for ever would fill the link. Who wants no announcements, wants
        // none of these.
        if router.neighbor_config(FamilyId::of(&address)).announce {
            router.send_announcement(interface, address);
        }
    }
}

fn timers(router: &mut Router, family: FamilyId, now: u64) -> usize {
    let mut done = 0;
    while done < TIMERS {
        let Some(key) = router.neighbors.table(family).expired(now) else { break };
        done += 1;
        let usage = usage(&router.fib, &key);
        let table = router.neighbors.table_mut(family);
        let (due, mac) = table.tick(&key, usage, now);
        match due {
            Due::Quiet => {}
            Due::AskAll => request(router, &key, None),
            Due::AskIt => request(router, &key, mac),
            Due::Unused => {
                table.figures.unused += 1;
                router.drop_neighbor(&key, Outcome::Forgotten);
            }
            Due::Lost => {
                table.figures.lost += 1;
                router.drop_neighbor(&key, Outcome::Silent);
            }
        }
    }
    done
}

/// What a neighbour is used for.
pub(super) fn usage(fib: &Fib, key: &Key) -> Usage {
    let mut usage = Usage::default();
    // IPv4 packets may go to an IPv6 neighbour.
    for family in [FamilyId::V4, FamilyId::V6] {
        let index = fib.adjacencies.find(&AdjKey { family, interface: key.0, kind: AdjKind::Neighbor(key.1) });
        let Some((index, adjacency)) = index.and_then(|i| Some((i, fib.adjacencies.get(i)?))) else { continue };
        // Its own host route is one user; any other is a route that has it as next hop.
        usage.is_next_hop |= adjacency.users.len() > adjacency.in_fibs.len();
        usage.sent += fib.adjacencies.counters.sum(index).0;
    }
    usage
}

/// Asks for a neighbour: everybody, or itself where `mac` says who that is.
pub(super) fn request(router: &mut Router, key: &Key, mac: Option<MacAddr>) {
    let Some(view) = router.neighbor_view(key.0) else { return };
    match key.1 {
        IpAddr::V4(a) => request_frame::<V4>(router, *key, &view, arp::request(&view, a.to_bits(), mac)),
        IpAddr::V6(a) => request_frame::<V6>(router, *key, &view, nd::solicitation(&view, a.to_bits(), mac)),
    }
}

fn request_frame<F: AskFamily>(router: &mut Router, key: Key, view: &View, frame: Option<Vec<u8>>) {
    let (Some(frame), Some(node)) = (frame, router.graph.node(F::NODE)) else { return };
    let interface = view.interface;
    let sent = super::requests_sent(router, F::ID);
    let asked = router.neighbors.sender.asked.clone();
    router.cast_at(node, move |cx| {
        asked.note(&key, cx.now());
        send::<F>(cx, interface, &frame, &sent);
    });
}

fn announcements(router: &mut Router, now: u64) {
    // Bounded in number: there may be one for each address of each interface.
    for _ in 0..TIMERS {
        let Some((interface, address)) = router.neighbors.announcements.take_due(now) else { return };
        router.send_announcement(interface, address);
    }
}

/// Tells the threads that wait for neighbours what has become of them.
fn settle_all(router: &mut Router) {
    let outcomes = std::mem::take(&mut router.neighbors.outcomes);
    if outcomes.is_empty() {
        return;
    }
    let (v4, v6): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|((_, address), _)| address.is_ipv4());
    settle_family::<V4>(router, &v4);
    settle_family::<V6>(router, &v6);
}

fn settle_family<F: AskFamily>(router: &mut Router, outcomes: &[(Key, Outcome)]) {
    let Some(node) = router.graph.node(F::NODE).filter(|_| !outcomes.is_empty()) else { return };
    for (thread, hold) in router.neighbors.holds.waiting() {
        let outcomes = outcomes.to_vec();
        router.graph.fleet().cast(thread, move |w| {
            w.at_node(node, |cx| settle::<F>(cx, &hold, &outcomes));
        });
    }
}

/// Makes threads give up packets whose neighbour main does not know of, because it was too busy to be told.
fn sweep(router: &mut Router, now: u64) {
    if now < router.neighbors.sweep {
        return;
    }
    router.neighbors.sweep = now + SWEEP;
    let Some(node) = router.graph.node(V4::NODE) else { return };
    for (thread, hold) in router.neighbors.holds.waiting() {
        router.graph.fleet().cast(thread, move |w| {
            w.at_node(node, |cx| {
                let mut out = Vec::new();
                hold.lock().expire(cx.now(), &mut out);
                super::ask::give_up::<V4>(cx, out);
            });
        });
    }
}

impl Router {
    /// Drops what threads hold for neighbours of an interface that goes or is down.
    pub(super) fn release_interface(&mut self, index: IfIndex) {
        let Some(node) = self.graph.node(V4::NODE) else { return };
        for (thread, hold) in self.neighbors.holds.waiting() {
            self.graph.fleet().cast(thread, move |w| {
                w.at_node(node, |cx| {
                    let mut out = Vec::new();
                    hold.lock().end_where(|key| key.0 == index, &mut out);
                    super::ask::give_up::<V4>(cx, out);
                });
            });
        }
    }
}
