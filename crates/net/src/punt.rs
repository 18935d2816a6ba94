//! Punt: who gets what this router does not handle itself.
//!
//! ```text
//!   ip4-receive ── protocol that no node takes ──┐                        ┌─► by the redirect of the interface ──► ip4-rewrite, …
//!   ip4-udp-lookup ── port of `set punt` ────────┼──► ip4-punt ───────────┼─► error-punt    (asked for, and no redirect)
//!   ip4-lookup ── route `via punt` ──────────────┘                        └─► ip4-icmp-error (a protocol nobody asked for)
//! ```
//!
//! Between `ip4-punt` and what it decides packets pass the features of the arc `ip4-punt`, where there are some; `ip4-punt-redirect` then
//! decides.
//!
//! A program that has registered for a port, a protocol or a reason gets such packets by a socket instead ([`clients`]).
//!
//! What a node of the router takes stays with it, whatever is asked here. A packet that is redirected goes on as it came, with
//! the time to live that it has.

pub(crate) mod api;
pub mod clients;
mod node;
pub mod ops;
pub(crate) mod tables;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use quiver_graph::{IfIndex, NodeSpec, Published};

use quiver_wire::ipv4::IpProtocol;

use self::clients::{Clients, Sockets};
pub use self::tables::L4;
use self::tables::{PuntTables, Punted, RedirectTable};
use crate::Router;
use crate::fib::{FibError, Hop, Path};
use crate::interface::IfEvent;
use crate::ip::{FamilyId, V4, V6};

/// Redirects of a family at most.
pub const REDIRECTS_MAX: usize = 4096;
/// Paths of a redirect at most.
pub const PATHS_MAX: usize = 16;

/// Why something cannot be punted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PuntError {
    /// There is none to remove.
    #[error("no such redirect")]
    NoRedirect,
    /// Not to a neighbour on a link, or of another family.
    #[error("a redirect leads to a neighbour, or to all of a link: {0}")]
    Path(String),
    /// Clients have nowhere to register.
    #[error("no punt socket is configured: `punt {{ socket <path> }}' in startup.conf")]
    NoSocket,
    /// Not the path of a client's socket.
    #[error("invalid socket `{}'; a socket has an absolute path of at most 107 bytes, and is not the router's own", .0.display())]
    SocketPath(PathBuf),
    /// Too many of them.
    #[error("more than {0} {1}")]
    Full(usize, &'static str),
    /// A path that the tables do not take.
    #[error(transparent)]
    Fib(#[from] FibError),
}

/// Where packets of an interface are redirected.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Redirect {
    paths: Vec<Path>,
    /// Load-balance, held.
    lb: u32,
}

/// What is punted of one family.
struct Asked {
    tables: PuntTables,
    /// Ports; none: all of them.
    ports: BTreeSet<(L4, Option<u16>)>,
    redirects: BTreeMap<Option<IfIndex>, Redirect>,
    published: Published<Arc<RedirectTable>>,
}

impl Asked {
    fn new() -> Self {
        Self {
            tables: PuntTables::new(),
            ports: BTreeSet::new(),
            redirects: BTreeMap::new(),
            published: Published::new(Arc::new(RedirectTable::default())),
        }
    }

    fn publish(&self) {
        self.published.publish(RedirectTable::new(self.redirects.iter().map(|(interface, r)| (*interface, r.lb))));
        self.tables.set_has_redirects(!self.redirects.is_empty());
    }
}

/// The module's state on the main thread.
pub(crate) struct Punt {
    families: [Asked; 2],
    sockets: Sockets,
    clients: Published<Arc<Clients>>,
}

impl Punt {
    /// Has packets know whether a port is punted.
    fn mark_port(&self, family: FamilyId, l4: L4, port: u16) {
        let asked = &self.families[family as usize];
        let on = asked.ports.contains(&(l4, Some(port))) || self.sockets.wants_port(family, l4, port);
        asked.tables.set_port(l4, port, if on { Punted::Punt } else { Punted::No });
    }

    /// Has packets know whether a protocol is punted.
    fn mark_protocol(&self, family: FamilyId, protocol: IpProtocol) {
        let on = self.sockets.wants_protocol(family, protocol);
        self.families[family as usize].tables.set_protocol(protocol, if on { Punted::Punt } else { Punted::No });
    }
}

/// Makes the state that nodes are made from; before the nodes.
pub(crate) fn prepare(router: &mut Router) {
    let (sockets, clients) = (Sockets::default(), Published::new(Arc::default()));
    router.add_part(Punt { families: [Asked::new(), Asked::new()], sockets, clients });
    router.listen(on_event);
}

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    let Some(part) = router.part::<Punt>() else { return Vec::new() };
    let mut nodes = node::nodes::<V4>(router, part);
    nodes.extend(node::nodes::<V6>(router, part));
    nodes.push(clients::node());
    nodes
}

pub(crate) use node::arcs;

/// Redirects go with the interfaces that they are from or to.
fn on_event(router: &mut Router, event: &IfEvent) {
    if let IfEvent::Created(_) = event
        && router.part::<Punt>().is_some_and(|part| part.sockets.any())
    {
        router.publish_punt_clients(None);
    }
    let IfEvent::Deleted(index) = event else { return };
    for family in [FamilyId::V4, FamilyId::V6] {
        let leads = |paths: &[Path]| paths.iter().any(|path| path.interface() == Some(*index));
        let gone: Vec<Option<IfIndex>> = router
            .punt_redirects(family)
            .into_iter()
            .filter(|(rx, paths)| *rx == Some(*index) || leads(paths))
            .map(|(rx, _)| rx)
            .collect();
        for rx in gone {
            // It is there.
            let _ = router.remove_punt_redirect(family, rx);
        }
    }
}

impl Router {
    fn punt_mut(&mut self, family: FamilyId) -> Option<&mut Asked> {
        self.part_mut::<Punt>().map(|part| &mut part.families[family as usize])
    }

    /// The tables by which packets are sorted.
    pub(crate) fn punt_tables(&self, family: FamilyId) -> PuntTables {
        self.part::<Punt>().map_or_else(PuntTables::new, |part| part.families[family as usize].tables.clone())
    }

    /// Punts packets for this router to a port, or to all ports (`None`), that no node takes; or ends that.
    pub fn set_punt_port(&mut self, family: FamilyId, l4: L4, port: Option<u16>, on: bool) {
        let Some(asked) = self.punt_mut(family) else { return };
        if on {
            asked.ports.insert((l4, port));
        } else {
            asked.ports.remove(&(l4, port));
        }
        if port.is_none() {
            asked.tables.set_all_ports(l4, if on { Punted::Punt } else { Punted::No });
        }
        if let (Some(port), Some(part)) = (port, self.part::<Punt>()) {
            part.mark_port(family, l4, port);
        }
    }

    /// Ports that are punted; `None`: all of them.
    pub fn punt_ports(&self, family: FamilyId) -> Vec<(L4, Option<u16>)> {
        self.part::<Punt>().map(|part| part.families[family as usize].ports.iter().copied().collect()).unwrap_or_default()
    }

    /// Redirects punted packets that came in on an interface, or on any that has no redirect of its own (`None`). Without paths they
    /// are dropped.
    ///
    /// # Errors
    /// Paths to something else than neighbours and links, no room.
    pub fn set_punt_redirect(&mut self, family: FamilyId, rx: Option<IfIndex>, paths: Vec<Path>) -> Result<(), PuntError> {
        if let Some(index) = rx
            && self.interfaces.get(index).is_none()
        {
            return Err(FibError::NoInterface(index.0).into());
        }
        if paths.len() > PATHS_MAX {
            return Err(PuntError::Full(PATHS_MAX, "paths of a redirect"));
        }
        for path in &paths {
            match path.hop {
                Hop::Neighbor { address, .. } if FamilyId::of(&address) == family => {}
                Hop::Attached { .. } => {}
                Hop::Neighbor { address, .. } => return Err(PuntError::Path(format!("{address} is of the other family"))),
                _ => return Err(PuntError::Path("an interface is missing".into())),
            }
        }
        let count = self.part::<Punt>().map_or(0, |part| part.families[family as usize].redirects.len());
        let hops = if paths.is_empty() { vec![Path::new(Hop::Drop)] } else { paths.clone() };
        if count >= REDIRECTS_MAX && !self.punt_redirects(family).iter().any(|(other, _)| *other == rx) {
            return Err(PuntError::Full(REDIRECTS_MAX, "redirects"));
        }
        let lb = self.hold_paths(family, hops)?;
        let Some(asked) = self.punt_mut(family) else { return Ok(()) };
        let before = asked.redirects.insert(rx, Redirect { paths, lb });
        asked.publish();
        if let Some(Redirect { lb, .. }) = before {
            self.release_next_hop(lb);
        }
        Ok(())
    }

    /// Ends a redirect.
    ///
    /// # Errors
    /// There is none.
    pub fn remove_punt_redirect(&mut self, family: FamilyId, rx: Option<IfIndex>) -> Result<(), PuntError> {
        let asked = self.punt_mut(family).ok_or(PuntError::NoRedirect)?;
        let Redirect { lb, .. } = asked.redirects.remove(&rx).ok_or(PuntError::NoRedirect)?;
        asked.publish();
        self.release_next_hop(lb);
        Ok(())
    }

    /// Redirects, by the interface that packets came in on; `None`: any.
    pub fn punt_redirects(&self, family: FamilyId) -> Vec<(Option<IfIndex>, Vec<Path>)> {
        let Some(part) = self.part::<Punt>() else { return Vec::new() };
        part.families[family as usize].redirects.iter().map(|(rx, r)| (*rx, r.paths.clone())).collect()
    }
}

/// A path of a redirect: to a neighbour, or to whoever on a link has the packet's destination.
pub(crate) fn path_to(interface: IfIndex, next_hop: Option<IpAddr>) -> Path {
    match next_hop {
        Some(address) => Path::neighbor(interface, address),
        None => Path::new(Hop::Attached { interface, source: None }),
    }
}
