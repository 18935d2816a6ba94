//! `ip`: routes.

mod path_mtu;
mod source;

use quiver_api::defs::*;
use quiver_command::operation::{OpError, retval};
use quiver_wire::IpPrefix;

use crate::api::{ALL, Call, Flow, Handlers, family, from_prefix, from_union, next_hop, prefix};
use crate::fib::ops::{ChangeRoute, PathRequest, RouteRequest, RouteSource};
use crate::fib::{Hop, Path, ResolveVia, RouteInfo, Source};
use crate::ip::api::exists;
use crate::{IfIndex, Router};

/// Routes that a dump sends before it gives the thread back.
const AT_ONCE: usize = 32;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.reply::<IpRouteAddDel, IpRouteAddDelReply>(|router, m| {
        let IpRoute { table_id, prefix, paths, .. } = &m.route;
        let stats_index = change(router, Source::Api, m.is_add, m.is_multipath, *table_id, prefix, paths)?;
        Ok(IpRouteAddDelReply { retval: 0, stats_index })
    });
    handlers.reply::<IpRouteAddDelV2, IpRouteAddDelV2Reply>(|router, m| {
        let IpRouteV2 { table_id, prefix, paths, src, .. } = &m.route;
        let source = match src {
            0 => Source::Api,
            id => router.route_source(*id).filter(|source| source.is_user()).ok_or_else(|| no_source(*id))?,
        };
        let stats_index = change(router, source, m.is_add, m.is_multipath, *table_id, prefix, paths)?;
        Ok(IpRouteAddDelV2Reply { retval: 0, stats_index })
    });
    handlers.call::<IpRouteDump>(|_, m| {
        dump(m.table, |call, table, route| {
            let route = encode(call.router, table, &route);
            call.send(&IpRouteDetails { route });
        })
    });
    handlers.call::<IpRouteV2Dump>(|_, m| {
        let wanted = m.src;
        dump(m.table, move |call, table, route| {
            let route = encode_v2(call.router, table, &route);
            if wanted == 0 || wanted == route.src {
                call.send(&IpRouteV2Details { route });
            }
        })
    });
    handlers.get::<IpRouteLookup, IpRouteLookupReply>(|router, m| {
        let route = lookup(router, m.table_id, m.exact != 0, &m.prefix)?;
        Ok(IpRouteLookupReply { retval: 0, route: encode(router, m.table_id, &route) })
    });
    handlers.get::<IpRouteLookupV2, IpRouteLookupV2Reply>(|router, m| {
        let route = lookup(router, m.table_id, m.exact != 0, &m.prefix)?;
        Ok(IpRouteLookupV2Reply { retval: 0, route: encode_v2(router, m.table_id, &route) })
    });
    handlers.reads::<IpRouteDump>();
    handlers.reads::<IpRouteV2Dump>();
    path_mtu::add(handlers);
    source::add(handlers);
}

fn no_source(id: u8) -> OpError {
    OpError::new(retval::INVALID_VALUE, format!("{id} is no source that routes can be set from")).key("src")
}

fn no_table(id: u32) -> OpError {
    OpError::new(retval::NO_SUCH_FIB, format!("no table {id}")).key("table_id")
}

/// Adds, replaces or removes a route; gives its index in the statistics.
fn change(
    router: &mut Router,
    source: Source,
    add: bool,
    multipath: bool,
    table: u32,
    prefix: &Prefix,
    paths: &[FibPath],
) -> Result<u32, OpError> {
    let six = crate::api::is_six(&prefix.address.af);
    let prefix = from_prefix(prefix)?.masked();
    let paths: Result<Vec<Path>, OpError> = paths.iter().map(|path| decode(router, six, path)).collect();
    let paths = paths?;
    if paths.is_empty() && (add || multipath) {
        return Err(OpError::new(retval::NO_PATHS_IN_ROUTE, "a route without paths").key("paths"));
    }
    // Routes of other sources are those of a protocol, which tells them again.
    let configured = source == Source::Api;
    let said = if configured && crate::api::is_recorded(router) { &paths[..] } else { &[] };
    let requests: Vec<PathRequest> = said.iter().filter_map(|path| PathRequest::of(router, path)).collect();
    let result = match (add, multipath) {
        (true, true) => router.add_route(table, prefix, source, paths),
        (true, false) => router.replace_route(table, prefix, source, paths),
        (false, true) => router.remove_route(table, prefix, source, Some(&paths)),
        (false, false) => router.remove_route(table, prefix, source, None),
    };
    match result {
        // What is not there has not to be removed: VPP says the same.
        Err(crate::fib::FibError::NoRoute | crate::fib::FibError::NoPath) if !add => return Ok(ALL),
        other => other.map_err(|e| OpError::from(e).value(prefix))?,
    }
    if configured {
        record(router, add, multipath, (table, prefix), requests);
    }
    Ok(if add { router.route_index(table, prefix).unwrap_or(ALL) } else { ALL })
}

/// Notes a route of the binary API as configuration.
fn record(router: &mut Router, add: bool, multipath: bool, (table, prefix): (u32, IpPrefix), requests: Vec<PathRequest>) {
    crate::api::record::<ChangeRoute>(router, || {
        let (remove, replace, source) = (!add, add && !multipath, RouteSource::Api);
        let paths = if add || multipath { requests } else { Vec::new() };
        RouteRequest { prefix, table, remove, replace, count: 1, source, paths }
    });
    if add {
        crate::api::replace::route_said(router, table, prefix);
    }
}

/// A path as the router has it.
pub(crate) fn decode(router: &Router, six: bool, path: &FibPath) -> Result<Path, OpError> {
    let hop = match path.r#type {
        FibPathType::FIB_API_PATH_TYPE_NORMAL => normal(router, six, path)?,
        FibPathType::FIB_API_PATH_TYPE_LOCAL => Hop::Receive,
        FibPathType::FIB_API_PATH_TYPE_DROP => Hop::Drop,
        FibPathType::FIB_API_PATH_TYPE_ICMP_UNREACH => Hop::Unreachable,
        FibPathType::FIB_API_PATH_TYPE_ICMP_PROHIBIT => Hop::Prohibited,
        FibPathType::FIB_API_PATH_TYPE_SOURCE_LOOKUP => match normal(router, six, path)? {
            Hop::Lookup(table) => Hop::SourceLookup(table),
            _ => return Err(OpError::new(retval::INVALID_VALUE, "a source lookup has no next hop and no interface").key("nh")),
        },
        FibPathType::FIB_API_PATH_TYPE_INTERFACE_RX => match normal(router, six, path)? {
            Hop::Attached { interface, .. } => Hop::InterfaceRx(interface),
            _ => return Err(OpError::new(retval::INVALID_VALUE, "`interface rx` takes an interface alone").key("sw_if_index")),
        },
        FibPathType(other) => {
            return Err(OpError::new(retval::UNIMPLEMENTED, format!("paths of type {other} are not there")).key("type"));
        }
    };
    if path.n_labels > 0 {
        return Err(OpError::new(retval::UNIMPLEMENTED, "there are no MPLS labels").key("n_labels"));
    }
    Ok(Path { preference: path.preference, hop, weight: path.weight.max(1) })
}

fn normal(router: &Router, six: bool, path: &FibPath) -> Result<Hop, OpError> {
    let six = match path.proto {
        FibPathNhProto::FIB_API_PATH_NH_PROTO_IP4 => false,
        FibPathNhProto::FIB_API_PATH_NH_PROTO_IP6 => true,
        FibPathNhProto(other) => {
            // A path without a next hop need not tell its protocol right.
            if path.nh.address.0 != [0; 16] {
                return Err(
                    OpError::new(retval::UNIMPLEMENTED, format!("next hops of protocol {other} are not there")).key("proto")
                );
            }
            six
        }
    };
    let address = Some(from_union(six, &path.nh.address)).filter(|address| !address.is_unspecified());
    let interface = match path.sw_if_index {
        ALL => None,
        index => {
            let known = router.interfaces.get(IfIndex(index)).map(|interface| interface.index);
            let missing = || OpError::new(retval::NO_MATCHING_INTERFACE, format!("no interface {index}")).key("sw_if_index");
            Some(known.ok_or_else(missing)?)
        }
    };
    let has = |flag: FibPathFlags| path.flags.0 & flag.0 != 0;
    let via = match () {
        () if has(FibPathFlags::FIB_API_PATH_FLAG_RESOLVE_VIA_HOST) => ResolveVia::Host,
        () if has(FibPathFlags::FIB_API_PATH_FLAG_RESOLVE_VIA_ATTACHED) => ResolveVia::Attached,
        () => ResolveVia::Any,
    };
    let table = path.table_id;
    if interface.is_none() && !exists(router, six, table) {
        return Err(no_table(table));
    }
    Ok(match (address, interface) {
        (Some(address), Some(interface)) => Hop::Neighbor { interface, address },
        (Some(address), None) => Hop::Recursive { table, address, via },
        (None, Some(interface)) => Hop::Attached { interface, source: None },
        (None, None) => Hop::Lookup(table),
    })
}

fn lookup(router: &mut Router, table: u32, exact: bool, prefix: &Prefix) -> Result<RouteInfo, OpError> {
    let prefix = from_prefix(prefix)?;
    let route = match exact {
        true => router.route(table, prefix),
        // The longest one that covers all of it.
        false => (0..=prefix.len())
            .rev()
            .filter_map(|len| IpPrefix::new(prefix.addr(), len).ok())
            .find_map(|shorter| router.route(table, shorter).transpose())
            .transpose(),
    };
    let missing = || OpError::new(retval::NO_SUCH_ENTRY, format!("no route for {prefix}")).key("prefix");
    route?.ok_or_else(missing)
}

/// Sends a table, some routes at a time.
fn dump(table: IpTable, send: impl Fn(&mut Call<'_>, u32, RouteInfo) + 'static) -> Flow {
    let (family, id) = (family(table.is_ip6), table.table_id);
    let mut after: Option<IpPrefix> = None;
    Flow::More(Box::new(move |call| {
        // A table that is not there, or goes meanwhile, has no routes.
        let routes = call.router.routes(family, id, after, AT_ONCE).unwrap_or_default();
        let last = routes.len() < AT_ONCE;
        after = routes.last().map(|route| route.prefix);
        routes.into_iter().for_each(|route| send(call, id, route));
        last
    }))
}

fn encode(router: &Router, table_id: u32, route: &RouteInfo) -> IpRoute {
    let IpRouteV2 { stats_index, prefix, n_paths, paths, .. } = encode_v2(router, table_id, route);
    IpRoute { table_id, stats_index, prefix, n_paths, paths }
}

fn encode_v2(router: &Router, table_id: u32, route: &RouteInfo) -> IpRouteV2 {
    let six = route.prefix.addr().is_ipv6();
    let best = route.sources.first();
    let mut paths: Vec<FibPath> = best.iter().flat_map(|source| &source.paths).map(|path| encode_path(six, path)).collect();
    if let ([path], Some(Source::Interface)) = (paths.as_mut_slice(), best.map(|source| source.source))
        && path.r#type == FibPathType::FIB_API_PATH_TYPE_LOCAL
    {
        // Clients look for the interface whose address it is.
        path.sw_if_index = owner(router, table_id, route.prefix).map_or(ALL, |index| index.0);
    }
    IpRouteV2 {
        table_id,
        stats_index: route.load_balance,
        prefix: prefix(route.prefix.addr(), route.prefix.len()),
        n_paths: 0,
        src: best.map_or(0, |source| source.source.id()),
        paths,
    }
}

/// The interface that has an address of a table.
fn owner(router: &Router, table: u32, host: IpPrefix) -> Option<IfIndex> {
    let address = host.addr();
    let of_table = |i: &&crate::Interface| if address.is_ipv6() { i.tables.1 == table } else { i.tables.0 == table };
    let mut interfaces = router.interfaces.iter().filter(of_table);
    interfaces.find(|i| i.addresses.iter().any(|(own, _)| *own == address)).map(|i| i.index)
}

pub(crate) fn encode_path(six: bool, path: &Path) -> FibPath {
    let proto = match path.next_hop().map_or(six, |address| address.is_ipv6()) {
        true => FibPathNhProto::FIB_API_PATH_NH_PROTO_IP6,
        false => FibPathNhProto::FIB_API_PATH_NH_PROTO_IP4,
    };
    let (table_id, r#type, flags) = match path.hop {
        Hop::Recursive { table, via, .. } => {
            let flags = match via {
                ResolveVia::Any => FibPathFlags::FIB_API_PATH_FLAG_NONE,
                ResolveVia::Host => FibPathFlags::FIB_API_PATH_FLAG_RESOLVE_VIA_HOST,
                ResolveVia::Attached => FibPathFlags::FIB_API_PATH_FLAG_RESOLVE_VIA_ATTACHED,
            };
            (table, FibPathType::FIB_API_PATH_TYPE_NORMAL, flags)
        }
        Hop::Lookup(table) | Hop::SourceLookup(table) => (table, path_type(path.hop), FibPathFlags::FIB_API_PATH_FLAG_NONE),
        _ => (0, path_type(path.hop), FibPathFlags::FIB_API_PATH_FLAG_NONE),
    };
    FibPath {
        sw_if_index: path.interface().map_or(ALL, |index| index.0),
        table_id,
        weight: path.weight,
        preference: path.preference,
        r#type,
        flags,
        proto,
        nh: FibPathNh { address: path.next_hop().map(next_hop).unwrap_or_default(), ..FibPathNh::default() },
        ..FibPath::default()
    }
}

fn path_type(hop: Hop) -> FibPathType {
    match hop {
        Hop::Receive => FibPathType::FIB_API_PATH_TYPE_LOCAL,
        Hop::Drop | Hop::Gone | Hop::Punt => FibPathType::FIB_API_PATH_TYPE_DROP,
        Hop::SourceLookup(_) => FibPathType::FIB_API_PATH_TYPE_SOURCE_LOOKUP,
        Hop::InterfaceRx(_) => FibPathType::FIB_API_PATH_TYPE_INTERFACE_RX,
        Hop::Unreachable => FibPathType::FIB_API_PATH_TYPE_ICMP_UNREACH,
        Hop::Prohibited => FibPathType::FIB_API_PATH_TYPE_ICMP_PROHIBIT,
        _ => FibPathType::FIB_API_PATH_TYPE_NORMAL,
    }
}
