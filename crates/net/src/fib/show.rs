//! What can be shown of the FIB.

use std::net::IpAddr;

use quiver_tables::TableMemory;
use quiver_wire::IpPrefix;

use super::path::Path;
use super::records::Bucket;
use super::source::Source;
use super::table::{Select, Table, by_family};
use super::{Fib, FibError};
use crate::Router;
use crate::ip::{Family as _, FamilyId, FlowHash, PrefixTable as _};

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Family.
    pub family: FamilyId,
    /// User's number.
    pub id: u32,
    /// Internal number.
    pub fib: u32,
    /// User's name.
    pub name: String,
    /// What chooses among equal paths.
    pub flow_hash: FlowHash,
    /// Number of prefixes.
    pub routes: usize,
    /// Memory.
    pub memory: TableMemory,
    /// Nobody has deleted it: it does not only wait for its interfaces to leave it.
    pub wanted: bool,
}

/// What one source has for a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// Who.
    pub source: Source,
    /// Its paths.
    pub paths: Vec<Path>,
    /// The load-balance made of them.
    pub load_balance: u32,
    /// Prefixes that share it.
    pub references: u32,
}

/// A prefix with all that is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteInfo {
    /// The prefix.
    pub prefix: IpPrefix,
    /// Its sources, best first.
    pub sources: Vec<SourceInfo>,
    /// Load-balance of the best one.
    pub load_balance: u32,
    /// What packets find there.
    pub buckets: Vec<Bucket>,
    /// Packets and bytes that the load-balance has forwarded, for all prefixes that share it.
    pub counters: (u64, u64),
}

impl Fib {
    fn source_info(&self, lb: u32) -> Option<SourceInfo> {
        let list = self.lists.get(lb)?;
        Some(SourceInfo { source: list.key.source, paths: list.key.paths.to_vec(), load_balance: lb, references: list.refs })
    }

    fn route_info<F: Select>(&self, table: &Table<F>, (address, len, lb): (F::Addr, u8, u32)) -> Option<RouteInfo> {
        let mut sources: Vec<SourceInfo> = self.source_info(lb).into_iter().collect();
        sources.extend(table.others.get(&(address, len)).into_iter().flatten().filter_map(|lb| self.source_info(*lb)));
        sources.sort_by_key(|s| s.source);
        Some(RouteInfo {
            prefix: IpPrefix::new(F::address(address), len).ok()?,
            sources,
            load_balance: lb,
            buckets: self.lists.buckets(&self.records, lb),
            counters: self.lists.counters.sum(lb),
        })
    }
}

impl Router {
    /// All tables of a family, by number.
    pub fn tables(&self, family: FamilyId) -> Vec<TableInfo> {
        by_family!(family, F => {
            let tables = <F as Select>::tables(&self.fib);
            let info = |(id, fib): (&u32, &u32)| {
                let t = tables.get(*fib)?;
                Some(TableInfo {
                    family,
                    id: *id,
                    fib: *fib,
                    name: t.name.clone(),
                    flow_hash: t.flow_hash,
                    routes: t.routes.count(),
                    memory: t.routes.memory(),
                    wanted: t.wanted,
                })
            };
            tables.ids.iter().filter_map(info).collect()
        })
    }

    /// At most `n` routes of a table (user's number) in order of prefix, those after `after`.
    ///
    /// # Errors
    /// No such table.
    pub fn routes(&self, family: FamilyId, id: u32, after: Option<IpPrefix>, n: usize) -> Result<Vec<RouteInfo>, FibError> {
        by_family!(family, F => {
            let tables = <F as Select>::tables(&self.fib);
            let Some(table) = tables.get(tables.fib(id)?) else { return Ok(Vec::new()) };
            let from = after.and_then(|p| Some((F::number(p.addr())?, p.len())));
            let routes = match from {
                Some((address, len)) => table.routes.iter_after(address, len),
                None => table.routes.iter(),
            };
            Ok(routes.take(n).filter_map(|r| self.fib.route_info::<F>(table, r)).collect())
        })
    }

    /// The route of exactly a prefix.
    ///
    /// # Errors
    /// No such table.
    pub fn route(&self, id: u32, prefix: IpPrefix) -> Result<Option<RouteInfo>, FibError> {
        let prefix = prefix.masked();
        by_family!(FamilyId::of(&prefix.addr()), F => {
            let tables = <F as Select>::tables(&self.fib);
            let Some(table) = tables.get(tables.fib(id)?) else { return Ok(None) };
            let Some(address) = F::number(prefix.addr()) else { return Ok(None) };
            let Some(lb) = table.routes.get(address, prefix.len()) else { return Ok(None) };
            Ok(self.fib.route_info::<F>(table, (address, prefix.len(), lb)))
        })
    }

    /// Index of a prefix's load-balance, by which the statistics count what it forwards.
    pub fn route_index(&self, id: u32, prefix: IpPrefix) -> Option<u32> {
        let prefix = prefix.masked();
        by_family!(FamilyId::of(&prefix.addr()), F => {
            let tables = <F as Select>::tables(&self.fib);
            tables.get(tables.fib(id).ok()?)?.routes.get(F::number(prefix.addr())?, prefix.len())
        })
    }

    /// The route that decides about an address.
    ///
    /// # Errors
    /// No such table.
    pub fn route_for(&self, id: u32, address: IpAddr) -> Result<Option<RouteInfo>, FibError> {
        let Some(len) = by_family!(FamilyId::of(&address), F => {
            let tables = <F as Select>::tables(&self.fib);
            let table = tables.get(tables.fib(id)?);
            table.and_then(|t| t.routes.longest_match(F::number(address)?)).map(|(len, _)| len)
        }) else {
            return Ok(None);
        };
        match IpPrefix::new(address, len) {
            Ok(prefix) => self.route(id, prefix),
            Err(_) => Ok(None),
        }
    }

    /// Prefixes of a table by length.
    ///
    /// # Errors
    /// No such table.
    pub fn route_lengths(&self, family: FamilyId, id: u32) -> Result<Vec<(u8, usize)>, FibError> {
        by_family!(family, F => {
            let tables = <F as Select>::tables(&self.fib);
            let Some(table) = tables.get(tables.fib(id)?) else { return Ok(Vec::new()) };
            let mut counts = vec![0_usize; usize::from(family.bits()) + 1];
            for (_, len, _) in table.routes.iter() {
                counts[usize::from(len)] += 1;
            }
            Ok((0..).zip(counts).filter(|(_, n)| *n > 0).collect())
        })
    }

    /// Packets and bytes that an adjacency has sent.
    pub fn adjacency_counters(&self, index: u32) -> (u64, u64) {
        self.fib.adjacencies.counters.sum(index)
    }
}
