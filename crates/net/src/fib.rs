//! The forwarding table: routes, path lists, load-balances, adjacencies. The main thread's side; what packets read is in
//! [`records`].
//!
//! ```text
//!   prefix ──► path list = load-balance ──► buckets ──► adjacency ──► link header, interface
//!   (millions) (one for all routes of a     (2^n,       (neighbour, or a link to ask on)
//!               table with the same paths)   by weight)
//! ```
//!
//! A prefix costs a node of the prefix store, whose value is the load-balance's index, and nothing else. So a neighbour that
//! is found, lost or changed is one store for each affected bucket, never one for each prefix.
//!
//! *Recursion.* A path that names only a next hop takes the buckets of the prefix that covers the next hop; where that is
//! a connected link, the neighbour on it. Each such next hop is tracked: a change of the covering prefix, or of its
//! load-balance, resolves the path lists that ask for it again, and then those that depend on these. A path that leads back
//! to its own list is not used, so a loop of routes drops.
//!
//! *Sources.* Every prefix has the routes of several sources (an interface's address, the user, a neighbour); the best
//! one forwards, the others wait ([`Source`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use quiver_graph::stats::Stats;
use quiver_graph::{GraphError, IfIndex};
use quiver_tables::mem::Budget;
use quiver_tables::qsbr::Domain;

use crate::ip::{FamilyId, V4, V6};

mod adjacency;
pub(crate) mod api;
mod control;
#[cfg(test)]
mod cross;
mod events;
mod link_local;
mod list;
mod next_hop;
pub(crate) mod numa;
pub mod ops;
mod path;
mod path_mtu;
pub mod records;
mod resolve;
mod route;
mod show;
mod source;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use adjacency::AdjKey;
pub use adjacency::{AdjKind, AdjacencyInfo};
pub use control::FoundRoute;
pub(crate) use control::init;
pub(crate) use link_local::LinkLocalTable;
pub use path::{Hop, Path, ResolveVia};
pub use path_mtu::PathMtu;
pub use records::{AdjRecord, AdjTable, Bucket, Class, LbTable, Null};
pub use route::Bulk;
pub use show::{RouteInfo, SourceInfo, TableInfo};
pub use source::{Source, SourceError};
pub(crate) use table::{Select, default_name};

use adjacency::{Adjacencies, Env};
use link_local::LinkLocals;
use list::Lists;
use numa::Copies;
use records::Records;
use table::Tables;

/// Why the FIB refused a change. It is then as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FibError {
    /// No such table.
    #[error("Nonexistent table id {id}")]
    NoTable {
        /// Family.
        family: FamilyId,
        /// User's number.
        id: u32,
    },
    /// Table 0 cannot be made or removed.
    #[error("table 0 always exists and cannot change")]
    TableZero,
    /// Interfaces are bound to the table, or routes lead to it.
    #[error("table {id} is in use by {by}")]
    TableInUse {
        /// User's number.
        id: u32,
        /// By what.
        by: String,
    },
    /// The interface does not exist.
    #[error("unknown interface index {0}")]
    NoInterface(u32),
    /// An address of the other family.
    #[error("{address} is not an {expected} address")]
    Family {
        /// What was expected.
        expected: FamilyId,
        /// What came.
        address: IpAddr,
    },
    /// A prefix length over the address's bits.
    #[error("Invalid prefix len: {0}")]
    PrefixLen(u8),
    /// No route for the prefix from this source.
    #[error("no such route")]
    NoRoute,
    /// The route has no such path.
    #[error("the route has no such path")]
    NoPath,
    /// A route needs a path.
    #[error("a route needs at least one path")]
    Empty,
    /// A next hop that cannot be one.
    #[error("{0} cannot be a next hop")]
    NextHop(IpAddr),
    /// A path that cannot stand beside others.
    #[error("only one path of this kind is possible in a route")]
    Alone,
    /// `count` leads past the last address.
    #[error("the address space ends before {0} prefixes")]
    Count(u64),
    /// The interface has addresses of the family.
    #[error("{0} has addresses; remove them first")]
    HasAddresses(String),
    /// A path MTU below what every link takes.
    #[error("a path MTU of {mtu}: expected at least {least}")]
    PathMtu {
        /// What was given.
        mtu: u16,
        /// What every link takes.
        least: u16,
    },
    /// A path MTU of what is not a neighbour.
    #[error("{0} is on no link: only neighbours have path MTUs")]
    NotOnLink(IpAddr),
    /// A fixed number is used up.
    #[error("no room for more {0}")]
    Full(&'static str),
    /// Memory.
    #[error("no memory for more routes")]
    Memory,
    /// The graph refused.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// All of the FIB's state on the main thread.
pub struct Fib {
    pub(crate) records: Records,
    pub(crate) adjacencies: Adjacencies,
    pub(crate) lists: Lists,
    pub(crate) v4: Tables<V4>,
    pub(crate) v6: Tables<V6>,
    pub(crate) link_locals: LinkLocals,
    /// Next hops that routes do not use for the time being, with the lists that would.
    withheld: BTreeMap<(IfIndex, IpAddr), BTreeSet<u32>>,
    /// The same of next hops that a table (user's number) leads to: recursive paths by them are down.
    withheld_remote: BTreeSet<(u32, IpAddr)>,
    /// Sources that clients have added.
    added_sources: Vec<Source>,
    domain: Domain,
    budget: Budget,
}

impl Fib {
    /// An empty FIB; tables are made by [`crate::Router`] once its nodes exist.
    pub(crate) fn new(domain: &Domain, stats: &Stats, copies: &Copies) -> Result<Self, FibError> {
        let memory = |_| FibError::Memory;
        Ok(Self {
            records: Records::new().map_err(memory)?,
            adjacencies: Adjacencies::new(domain, stats.combined("/net/adjacency", records::ADJACENCIES_MAX)),
            lists: Lists::new(domain, stats.combined("/net/route/to", records::LOAD_BALANCES_MAX)),
            v4: Tables::new(copies.clone()),
            v6: Tables::new(copies.clone()),
            link_locals: LinkLocals::new(domain).map_err(memory)?,
            withheld: BTreeMap::new(),
            withheld_remote: BTreeSet::new(),
            added_sources: Vec::new(),
            domain: domain.clone(),
            budget: Budget::unlimited(),
        })
    }

    /// The memory limit of all route tables together.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Bytes of memory of all tables and records.
    pub fn memory_bytes(&self) -> usize {
        let v4: usize = self.v4.iter().map(|(_, t)| t.routes.memory().total()).sum();
        let v6: usize = self.v6.iter().map(|(_, t)| t.routes.memory().total()).sum();
        v4 + v6 + self.records.memory_bytes()
    }

    /// Resolves path lists again, as [`refresh_counted`](Self::refresh_counted).
    pub(crate) fn refresh(&mut self, env: &mut Env<'_>, lists: BTreeSet<u32>) {
        self.refresh_counted(env, lists);
    }

    /// Resolves path lists again, and then what depends on those that changed; gives how many there were.
    fn refresh_counted(&mut self, env: &mut Env<'_>, lists: BTreeSet<u32>) -> usize {
        let mut queue: Vec<u32> = lists.into_iter().rev().collect();
        let mut count = 0;
        while let Some(lb) = queue.pop() {
            count += 1;
            // Where memory ends, packets take one of the paths; see `Fib::resolve`.
            if self.resolve(env, lb).unwrap_or(true) {
                queue.extend(self.dependants(lb));
            }
        }
        count
    }
}
