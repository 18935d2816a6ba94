//! `show ip fib` and `show ip6 fib`, in VPP's form.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use quiver_command::grammar::{Args, Command};
use quiver_command::operation::{Access, Invocation, Job, OpError, Operation, Outcome, Registry, Step, Text, View};
use quiver_tables::{CopyInfo, TableMemory};
use quiver_wire::IpPrefix;
use serde::{Deserialize, Serialize};

use super::Family;
use super::adjacency::bucket_in_words;
use crate::Router;
use crate::fib::{FibError, Hop, Path, ResolveVia, RouteInfo, SourceInfo, TableInfo};
use crate::ip::FamilyId;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.operation::<ShowRoutes>();
    let syntax = "[summary] [table <id>] [<addr>|<prefix>] [detail] [memory]";
    registry.command_of::<ShowRoutes>(Command {
        path: "show ip fib",
        syntax,
        help: "Shows IPv4 routes: of all tables or one, all or those that decide about an address",
        parse: |args, _| parse(args, Family::Ip4),
    });
    registry.command_of::<ShowRoutes>(Command {
        path: "show ip6 fib",
        syntax,
        help: "Shows IPv6 routes: of all tables or one, all or those that decide about an address",
        parse: |args, _| parse(args, Family::Ip6),
    });
}

fn parse(args: &mut Args<'_>, family: Family) -> Result<Invocation<Router>, OpError> {
    let mut request = ShowRoutesRequest { family, ..ShowRoutesRequest::default() };
    while !args.is_empty() {
        if args.take_keyword("summary") {
            request.summary = true;
        } else if args.take_keyword("table") {
            request.table = Some(args.number("table id")?);
        } else if args.take_keyword("detail") {
            request.detail = true;
        } else if args.take_keyword("memory") || args.take_keyword("mtrie") {
            request.memory = true;
        } else if let Some(address) = args.try_ip() {
            request.address = Some(address);
        } else if let Some((address, len)) = args.try_prefix()? {
            request.prefix = IpPrefix::new(address, len).ok();
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(Invocation::new::<ShowRoutes>(request))
}

/// Shows routes.
pub struct ShowRoutes;

/// Which routes [`ShowRoutes`] shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowRoutesRequest {
    /// Family.
    pub family: Family,
    /// One table; all where none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The route that decides about this address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The route of exactly this prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<IpPrefix>,
    /// Only how many there are by length.
    pub summary: bool,
    /// Paths and sources too.
    pub detail: bool,
    /// Only how much memory tables take.
    pub memory: bool,
}

/// What [`ShowRoutes`] shows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ShowRoutesReply {
    /// Tables.
    pub tables: Vec<TableReply>,
    #[serde(skip)]
    memory: bool,
}

/// A table as shown.
#[derive(Debug, Clone, Serialize)]
pub struct TableReply {
    /// User's number.
    pub table: u32,
    /// Internal number.
    pub fib_index: u32,
    /// Name.
    pub name: String,
    /// What chooses among equal paths.
    pub flow_hash: Vec<String>,
    /// Number of routes.
    pub count: usize,
    /// Bytes of memory.
    pub memory: usize,
    /// The same by memory node, where the lookup structure has copies on some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_parts: Option<MemoryParts>,
    /// Prefixes by length, with `summary`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<Vec<(u8, usize)>>,
    /// Routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<Vec<RouteText>>,
    #[serde(skip)]
    heading: String,
}

/// Memory of a table whose lookup structure has copies on memory nodes.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryParts {
    /// Bytes of what exists once: the prefixes.
    pub prefixes: usize,
    /// The copies.
    pub copies: Vec<CopyReply>,
}

/// A copy of a lookup structure as shown.
#[derive(Debug, Clone, Serialize)]
pub struct CopyReply {
    /// Memory node, the kernel's number.
    pub numa: u32,
    /// Bytes.
    pub memory: usize,
    /// Why the kernel did not place it there: it may lie on any node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl MemoryParts {
    /// Nothing where no copies were asked for.
    fn new(memory: &TableMemory) -> Option<Self> {
        let reply = |copy: &CopyInfo| {
            let CopyInfo { node, refused, bytes } = copy.clone();
            Some(CopyReply { numa: node?, memory: bytes, refused })
        };
        let copies: Vec<_> = memory.copies.iter().filter_map(reply).collect();
        (!copies.is_empty()).then_some(Self { prefixes: memory.store, copies })
    }
}

impl Text for MemoryParts {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "  prefixes: {} bytes", self.prefixes);
        for CopyReply { numa, memory, refused } in &self.copies {
            let _ = write!(out, "  lookup, numa {numa}: {memory} bytes");
            let _ = match refused {
                Some(error) => writeln!(out, ", not placed there: {error}"),
                None => writeln!(out),
            };
        }
    }
}

/// A route as shown.
#[derive(Debug, Clone, Serialize)]
pub struct RouteText {
    /// Prefix.
    pub prefix: IpPrefix,
    /// Sources, best first.
    pub sources: Vec<SourceReply>,
    /// Statistics index.
    pub load_balance: u32,
    /// Packets forwarded.
    pub packets: u64,
    /// Bytes forwarded.
    pub bytes: u64,
    /// Where packets go: first bucket, last bucket, in words.
    pub buckets: Vec<(usize, usize, String)>,
    #[serde(skip)]
    detail: bool,
    #[serde(skip)]
    family: Family,
    #[serde(skip)]
    fib: u32,
}

/// What a source has.
#[derive(Debug, Clone, Serialize)]
pub struct SourceReply {
    /// Who.
    pub source: &'static str,
    /// Statistics index of its paths.
    pub load_balance: u32,
    /// Prefixes that share the paths.
    pub references: u32,
    /// Paths.
    pub paths: Vec<PathReply>,
}

/// A path as shown.
#[derive(Debug, Clone, Serialize)]
pub struct PathReply {
    /// In words.
    pub path: String,
    /// Kind as VPP names it.
    pub kind: &'static str,
    /// Share.
    pub weight: u8,
    /// Lower is preferred.
    pub preference: u8,
}

impl PathReply {
    fn new(router: &Router, path: &Path) -> Self {
        let name = |i| router.interfaces.name(i);
        let (kind, text) = match path.hop {
            Hop::Neighbor { interface, address } => ("attached-nexthop", format!("{address} {}", name(interface))),
            Hop::Attached { interface, .. } => ("attached", name(interface)),
            Hop::Recursive { table, address, via } => {
                let via = match via {
                    ResolveVia::Any => "",
                    ResolveVia::Host => " resolve-via-host",
                    ResolveVia::Attached => " resolve-via-attached",
                };
                ("recursive", format!("via {address} in table {table}{via}"))
            }
            Hop::Lookup(table) => ("deag", format!("lookup in table {table}")),
            Hop::SourceLookup(table) => ("deag", format!("source lookup in table {table}")),
            Hop::InterfaceRx(interface) => ("intf-rx", format!("rx {}", name(interface))),
            Hop::Receive => ("receive", "local".into()),
            Hop::Drop => ("special", "drop".into()),
            Hop::Punt => ("special", "punt".into()),
            Hop::Unreachable => ("special", "null-send-unreach".into()),
            Hop::Prohibited => ("special", "null-send-prohibit".into()),
            Hop::LinkLocal => ("exclusive", "link-local".into()),
            Hop::Gone => ("attached-nexthop", "DELETED".into()),
        };
        Self { path: text, kind, weight: path.weight, preference: path.preference }
    }
}

impl TableReply {
    fn new(router: &Router, info: &TableInfo) -> Self {
        let mut locks = format!("{}:1, ", if info.id == 0 { "default-route" } else { "CLI" });
        let bound = router.interfaces.iter().filter(|i| i.index.0 != 0);
        let bound = bound.filter(|i| info.id != 0 && info.id == if info.family == FamilyId::V4 { i.tables.0 } else { i.tables.1 });
        let bound = bound.count();
        if bound > 0 {
            let _ = write!(locks, "interface:{bound}, ");
        }
        Self {
            table: info.id,
            fib_index: info.fib,
            name: info.name.clone(),
            flow_hash: info.flow_hash.to_string().split_whitespace().map(Into::into).collect(),
            count: info.routes,
            memory: info.memory.total(),
            memory_parts: MemoryParts::new(&info.memory),
            lengths: None,
            routes: None,
            heading: format!(
                "{}, fib_index:{}, flow hash:[{}] epoch:0 flags:none locks:[{locks}]\n",
                info.name, info.fib, info.flow_hash
            ),
        }
    }
}

impl RouteText {
    fn new(router: &Router, family: Family, fib: u32, route: &RouteInfo, detail: bool) -> Self {
        let id = FamilyId::from(family);
        let receive = match router.interfaces.iter().find(|i| i.addresses.iter().any(|(a, _)| *a == route.prefix.addr())) {
            Some(interface) => format!("{} on {}", route.prefix.addr(), interface.name),
            None => String::new(),
        };
        let mut buckets: Vec<(usize, usize, String)> = Vec::new();
        let mut before = None;
        for (at, bucket) in route.buckets.iter().enumerate() {
            match buckets.last_mut() {
                Some(last) if before == Some(*bucket) => last.1 = at,
                _ => buckets.push((at, at, bucket_in_words(router, id, *bucket, &receive).trim_end().to_owned())),
            }
            before = Some(*bucket);
        }
        let source = |s: &SourceInfo| SourceReply {
            source: s.source.name(),
            load_balance: s.load_balance,
            references: s.references,
            paths: s.paths.iter().map(|p| PathReply::new(router, p)).collect(),
        };
        Self {
            prefix: route.prefix,
            sources: route.sources.iter().map(source).collect(),
            load_balance: route.load_balance,
            packets: route.counters.0,
            bytes: route.counters.1,
            buckets,
            detail,
            family,
            fib,
        }
    }

    fn count(&self) -> usize {
        self.buckets.last().map_or(0, |(_, last, _)| last + 1)
    }

    fn forwarding(&self, out: &mut String) {
        let proto = match self.family {
            Family::Ip4 => "ip4",
            Family::Ip6 => "ip6",
        };
        let _ = writeln!(
            out,
            "  [@0]: dpo-load-balance: [proto:{proto} index:{lb} buckets:{} uRPF:{lb} to:[{}:{}]]",
            self.count(),
            self.packets,
            self.bytes,
            lb = self.load_balance,
        );
        for (first, last, text) in &self.buckets {
            let range = if first == last { first.to_string() } else { format!("{first}-{last}") };
            let _ = writeln!(out, "    [{range}] {text}");
        }
    }

    fn details(&self, out: &mut String) {
        let _ = writeln!(out, "{} fib:{} index:{} locks:{}", self.prefix, self.fib, self.load_balance, self.sources.len() + 1);
        for (at, source) in self.sources.iter().enumerate() {
            let flags = if at == 0 { "added,contributing,active," } else { "added," };
            let _ = writeln!(out, "  {} refs:1 src-flags:{flags}", source.source);
            let lb = source.load_balance;
            let shared = if source.references > 1 { "shared," } else { "" };
            let _ = writeln!(out, "    path-list:[{lb}] locks:{} flags:{shared} uPRF-list:{lb}", source.references);
            for (n, path) in source.paths.iter().enumerate() {
                let proto = if self.family == Family::Ip4 { "ip4" } else { "ip6" };
                let PathReply { path, kind, weight, preference } = path;
                let _ = writeln!(
                    out,
                    "      path:[{n}] pl-index:{lb} {proto} weight={weight} pref={preference} {kind}:\n        {path}"
                );
            }
        }
        out.push_str(" forwarding:");
    }
}

impl Text for RouteText {
    fn text(&self, out: &mut String, _view: &View) {
        if self.detail {
            self.details(out);
            out.push_str("   ");
        } else {
            let _ = writeln!(out, "{}", self.prefix);
            out.push_str("  ");
        }
        let _ = writeln!(out, "unicast-{}-chain", if self.family == Family::Ip4 { "ip4" } else { "ip6" });
        self.forwarding(out);
    }
}

impl Text for ShowRoutesReply {
    fn text(&self, out: &mut String, view: &View) {
        for table in &self.tables {
            if self.memory {
                let _ = writeln!(out, "{}: {} routes, {} bytes", table.name, table.count, table.memory);
                table.memory_parts.text(out, view);
                continue;
            }
            out.push_str(&table.heading);
            if let Some(lengths) = &table.lengths {
                let _ = writeln!(out, "{:>20}{:>16}", "Prefix length", "Count");
                for (len, count) in lengths {
                    let _ = writeln!(out, "{len:>20}{count:>16}");
                }
            }
            table.routes.text(out, view);
        }
    }
}

impl Operation<Router> for ShowRoutes {
    const NAME: &'static str = "ip_route_dump";
    const ACCESS: Access = Access::Read;
    type Request = ShowRoutesRequest;
    type Reply = ShowRoutesReply;

    fn run(router: &mut Router, request: ShowRoutesRequest) -> Result<Outcome<Router, ShowRoutesReply>, OpError> {
        let family = FamilyId::from(request.family);
        let mut tables = router.tables(family);
        if let Some(id) = request.table {
            tables.retain(|t| t.id == id);
            if tables.is_empty() {
                return Err(OpError::from(FibError::NoTable { family, id }).value(id));
            }
        }
        let address = request.address.or(request.prefix.map(|p| p.addr()));
        if let Some(address) = address
            && FamilyId::of(&address) != family
        {
            return Err(OpError::from(FibError::Family { expected: family, address }).value(address));
        }
        let mut reply = ShowRoutesReply { tables: Vec::new(), memory: request.memory };
        let whole = address.is_none() && !request.summary && !request.memory;
        for info in &tables {
            let mut table = TableReply::new(router, info);
            if request.summary {
                table.lengths = Some(router.route_lengths(family, info.id)?);
            } else if address.is_some() {
                let found = match (request.address, request.prefix) {
                    (Some(address), _) => router.route_for(info.id, address),
                    (_, Some(prefix)) => router.route(info.id, prefix),
                    _ => Ok(None),
                };
                let found = found?;
                table.routes = Some(found.iter().map(|r| RouteText::new(router, request.family, info.fib, r, true)).collect());
            } else if whole {
                table.routes = Some(Vec::new());
            }
            reply.tables.push(table);
        }
        if whole {
            return Ok(Outcome::job(Dump { reply, request, at: 0, after: None }));
        }
        Ok(Outcome::Done(reply))
    }
}

/// Walks whole tables in slices; routes that come or go meanwhile are shown or not.
struct Dump {
    reply: ShowRoutesReply,
    request: ShowRoutesRequest,
    at: usize,
    after: Option<IpPrefix>,
}

/// Routes between two looks at the clock.
const SLICE: usize = 16;

impl Job<Router, ShowRoutesReply> for Dump {
    fn step(&mut self, router: &mut Router, budget: Duration) -> Step<ShowRoutesReply> {
        let start = Instant::now();
        loop {
            let Some(table) = self.reply.tables.get_mut(self.at) else {
                return Step::Done(Ok(std::mem::take(&mut self.reply)));
            };
            let family = self.request.family;
            // A table that has been removed meanwhile has no more routes.
            let routes = router.routes(family.into(), table.table, self.after, SLICE).unwrap_or_default();
            self.after = routes.last().map(|r| r.prefix);
            if routes.is_empty() {
                self.at += 1;
            }
            let text = routes.iter().map(|r| RouteText::new(router, family, table.fib_index, r, self.request.detail));
            table.routes.get_or_insert_default().extend(text);
            if start.elapsed() >= budget {
                return Step::Again;
            }
        }
    }

    fn exclusive(&self) -> bool {
        false
    }

    fn cancel(&mut self, _router: &mut Router) {
        self.at = self.reply.tables.len();
    }
}
