//! Sources of routes: the best one that a prefix has decides.

use std::cmp::Ordering;

use crate::Router;

/// Most sources that clients can add.
const ADDED_MAX: usize = 64;

/// Who put a route there; the one with the lowest priority that a prefix has decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Always there: multicast, reserved blocks, link-local.
    Special,
    /// An interface's addresses.
    Interface,
    /// Linux' routes (the plugin linux-nl).
    Linux,
    /// The binary API and JSON clients.
    Api,
    /// The command language.
    Cli,
    /// A protocol module or plugin.
    Plugin,
    /// Hosts that proxy neighbour discovery answers for.
    NdProxy,
    /// Routers of a link, by their advertisements.
    Autoconfig,
    /// A neighbour whose MAC address is known.
    Adjacency,
    /// Default routes that drop, in every table.
    DefaultRoute,
    /// A source that a client has added, with its priority.
    Added {
        /// Priority.
        priority: u8,
        /// Number among those that were added.
        number: u8,
        /// Name.
        name: &'static str,
    },
}

impl Source {
    /// Those that are always there.
    pub const ALL: [Self; 10] = [
        Self::Special,
        Self::Interface,
        Self::Linux,
        Self::Api,
        Self::Cli,
        Self::Plugin,
        Self::NdProxy,
        Self::Autoconfig,
        Self::Adjacency,
        Self::DefaultRoute,
    ];

    /// As `show ip fib` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Special => "special",
            Self::Interface => "interface",
            Self::Linux => "lcp-rt",
            Self::Api => "API",
            Self::Cli => "CLI",
            Self::Plugin => "plugin",
            Self::NdProxy => "IPv6-proxy-nd",
            Self::Autoconfig => "autoconfig",
            Self::Adjacency => "adjacency",
            Self::DefaultRoute => "default-route",
            Self::Added { name, .. } => name,
        }
    }

    /// Lower is better. There is room for others in between.
    pub const fn priority(self) -> u8 {
        match self {
            Self::Special => 0x10,
            Self::Interface => 0x20,
            Self::Linux => 0x40,
            Self::Api => 0x60,
            Self::Cli => 0x80,
            Self::Plugin => 0xa0,
            Self::NdProxy => 0xb0,
            Self::Autoconfig => 0xc0,
            Self::Adjacency => 0xe0,
            Self::DefaultRoute => 0xff,
            Self::Added { priority, .. } => priority,
        }
    }

    /// The number by which the binary API knows it; VPP's depend on its build, and it lists them by `fib_source_dump`.
    pub const fn id(self) -> u8 {
        match self {
            Self::Special => 1,
            Self::Interface => 2,
            Self::Linux => 3,
            Self::Api => 4,
            Self::Cli => 5,
            Self::Plugin => 6,
            Self::NdProxy => 7,
            Self::Autoconfig => 8,
            Self::Adjacency => 9,
            Self::DefaultRoute => 10,
            Self::Added { number, .. } => 64 + number,
        }
    }

    /// Whether its routes are users', and go when a user deletes their table.
    pub const fn is_user(self) -> bool {
        matches!(self, Self::Api | Self::Cli | Self::Plugin | Self::Added { .. })
    }
}

impl Ord for Source {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.priority(), self.id()).cmp(&(other.priority(), other.id()))
    }
}

impl PartialOrd for Source {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Why a source was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// One of that name is there, with another priority.
    #[error("there is a source {name} with priority {priority}")]
    Exists {
        /// Name.
        name: String,
        /// Its priority.
        priority: u8,
    },
    /// It has no name.
    #[error("a source has a name")]
    Unnamed,
    /// A priority that only the router's own sources have.
    #[error("priority {0} is out of range: better than those of interfaces, or worse than all")]
    Priority(u8),
    /// Too many.
    #[error("no more than {ADDED_MAX} sources can be added")]
    Full,
}

impl Router {
    /// All sources, the best first.
    pub fn route_sources(&self) -> Vec<Source> {
        let mut all: Vec<Source> = Source::ALL.into_iter().chain(self.fib.added_sources.iter().copied()).collect();
        all.sort_unstable();
        all
    }

    /// The source that the binary API knows by a number.
    pub fn route_source(&self, id: u8) -> Option<Source> {
        self.route_sources().into_iter().find(|source| source.id() == id)
    }

    /// Adds a source of routes, or gives the one of this name and priority. It stays until the router ends.
    ///
    /// # Errors
    /// See [`SourceError`].
    pub fn add_route_source(&mut self, name: &str, priority: u8) -> Result<Source, SourceError> {
        if name.is_empty() {
            return Err(SourceError::Unnamed);
        }
        if let Some(known) = self.route_sources().into_iter().find(|source| source.name() == name) {
            let same = known.priority() == priority;
            let exists = SourceError::Exists { name: name.to_owned(), priority: known.priority() };
            return if same { Ok(known) } else { Err(exists) };
        }
        if !(Source::Interface.priority() + 1..Source::DefaultRoute.priority()).contains(&priority) {
            return Err(SourceError::Priority(priority));
        }
        let added = &mut self.fib.added_sources;
        let number = u8::try_from(added.len()).ok().filter(|_| added.len() < ADDED_MAX).ok_or(SourceError::Full)?;
        // Kept for good: routes name it by value, and there are few of them.
        let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
        let source = Source::Added { priority, number, name };
        added.push(source);
        Ok(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fib::{Hop, Path};
    use crate::testing::Harness;

    #[test]
    fn sources_are_ranked_by_priority_and_known_by_their_numbers() {
        assert!(Source::ALL.is_sorted());
        let mut h = Harness::new();
        let bgp = h.router.add_route_source("bgp", Source::Api.priority() - 1).unwrap();
        assert!(Source::Linux < bgp && bgp < Source::Api);
        assert_eq!(h.router.add_route_source("bgp", bgp.priority()), Ok(bgp));
        assert_eq!(h.router.route_source(bgp.id()), Some(bgp));
        assert!(matches!(h.router.add_route_source("bgp", 1), Err(SourceError::Exists { .. })));
        assert_eq!(h.router.add_route_source("x", 0xff), Err(SourceError::Priority(0xff)));
        assert_eq!(h.router.add_route_source("x", 0x20), Err(SourceError::Priority(0x20)));
        assert_eq!(h.router.add_route_source("", 0x50), Err(SourceError::Unnamed));
        for n in 1..ADDED_MAX {
            h.router.add_route_source(&format!("s{n}"), 0x50).unwrap();
        }
        assert_eq!(h.router.add_route_source("x", 0x50), Err(SourceError::Full));
    }

    #[test]
    fn an_added_source_decides_by_its_priority_and_goes_with_the_table() {
        let mut h = Harness::new();
        let bgp = h.router.add_route_source("bgp", 0x50).unwrap();
        let prefix = "10.1.0.0/16".parse().unwrap();
        h.router.add_table(crate::ip::FamilyId::V4, Some(7), None).unwrap();
        h.router.add_route(7, prefix, Source::Api, vec![Path::new(Hop::Drop)]).unwrap();
        h.router.add_route(7, prefix, bgp, vec![Path::new(Hop::Receive)]).unwrap();
        let best = |h: &Harness| h.router.route(7, prefix).unwrap().map(|route| route.sources[0].source);
        assert_eq!(best(&h), Some(bgp));
        h.router.remove_route(7, prefix, bgp, None).unwrap();
        assert_eq!(best(&h), Some(Source::Api));
        h.router.add_route(7, prefix, bgp, vec![Path::new(Hop::Receive)]).unwrap();
        h.router.remove_table(crate::ip::FamilyId::V4, 7).unwrap();
    }
}
