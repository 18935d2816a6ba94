//! `ip`: multicast routes.

use std::net::IpAddr;

use quiver_api::defs::*;
use quiver_command::operation::{OpError, retval};

use super::ops::{ChangeMroute, MroutePath};
use super::{Change, GroupPrefix, Mroute, PathFlags, RouteFlags, To};
use crate::api::{ALL, Details, Handlers, family, from_union, next_hop};
use crate::fib::ops::RouteSource;
use crate::ip::FamilyId;
use crate::{IfIndex, Router};

type Entry = MfibEntryFlags;
type Itf = MfibItfFlags;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.reply::<IpMrouteAddDel, IpMrouteAddDelReply>(|router, m| {
        let stats_index = change(router, m.is_add, &m.route)?;
        Ok(IpMrouteAddDelReply { retval: 0, stats_index })
    });
    handlers.dump::<IpMtableDump>(|router, _, send| {
        for table in [FamilyId::V4, FamilyId::V6].into_iter().flat_map(|family| router.tables(family)) {
            let is_ip6 = table.family == FamilyId::V6;
            send(&IpMtableDetails { table: IpTable { table_id: table.id, is_ip6, name: table.name.as_str().into() } });
        }
    });
    handlers.dump::<IpMrouteDump>(dump);
}

fn dump(router: &mut Router, m: IpMrouteDump, send: &mut dyn FnMut(&dyn Details)) {
    let (family, table) = (family(m.table.is_ip6), m.table.table_id);
    for route in router.mroutes(family, table) {
        send(&IpMrouteDetails { route: encode(table, route) });
    }
    // What holds in every table without a route, as VPP's entries of it.
    let is_there = router.tables(family).iter().any(|known| known.id == table);
    for route in is_there.then(|| specials(family)).into_iter().flatten() {
        if router.mroutes(family, table).all(|said| said.prefix != route.prefix) {
            send(&IpMrouteDetails { route: encode(table, &route) });
        }
    }
}

/// Packets to groups without a route are dropped; those of the link that every router listens to are received.
fn specials(family: FamilyId) -> Vec<Mroute> {
    let all: &[&str] = match family {
        FamilyId::V4 => &["0.0.0.0/0", "224.0.0.1/32", "224.0.0.2/32"],
        FamilyId::V6 => &["::/0", "ff02::1/128", "ff02::2/128", "ff02::16/128", "ff02::1:ff00:0/104"],
    };
    let prefixes = all.iter().filter_map(|text| text.parse::<GroupPrefix>().ok());
    let route = |prefix: GroupPrefix| {
        let drop = prefix.is_empty();
        let local = (To::Local, PathFlags { accept: false, forward: true });
        let paths = (!drop).then_some(local).into_iter().collect();
        Mroute { prefix, flags: RouteFlags { accept_all: !drop, drop }, paths, index: ALL, client: false, plugin: false }
    };
    prefixes.map(route).collect()
}

fn unimplemented(what: &str, key: &'static str) -> OpError {
    OpError::new(retval::UNIMPLEMENTED, format!("{what} are not there")).key(key)
}

/// Adds, changes or removes a route; gives its index in the statistics.
fn change(router: &mut Router, add: bool, route: &IpMroute) -> Result<u32, OpError> {
    let six = crate::api::is_six(&route.prefix.af);
    let (group, source) = (from_union(six, &route.prefix.grp_address), from_union(six, &route.prefix.src_address));
    // With a source, any length is in order.
    let len = u8::try_from(route.prefix.grp_address_length).unwrap_or(u8::MAX);
    let prefix = GroupPrefix::new(Some(source), group, len)?;
    let has = |flag: Entry| route.entry_flags.0 & flag.0 != 0;
    if has(Entry::MFIB_API_ENTRY_FLAG_SIGNAL) || has(Entry::MFIB_API_ENTRY_FLAG_CONNECTED) {
        return Err(unimplemented("signals of multicast packets", "entry_flags"));
    }
    let paths: Result<Vec<(To, PathFlags)>, OpError> = route.paths.iter().map(|path| decode(router, six, path)).collect();
    let paths = paths?;
    let flags =
        RouteFlags { accept_all: has(Entry::MFIB_API_ENTRY_FLAG_ACCEPT_ALL_ITF), drop: has(Entry::MFIB_API_ENTRY_FLAG_DROP) };
    let said = if crate::api::is_recorded(router) { &paths[..] } else { &[] };
    let requests: Vec<MroutePath> = said.iter().map(|(to, flags)| MroutePath::of(router, *to, *flags)).collect();
    // Paths alone leave the flags as they are, flags alone are set.
    let flags_said = paths.is_empty() || flags != RouteFlags::default();
    let index = if add {
        let change = Change { flags: flags_said.then_some(flags), paths, replace: false, client: true, plugin: false };
        router.change_mroute(route.table_id, prefix, &change)
    } else {
        let paths: Vec<To> = paths.iter().map(|(to, _)| *to).collect();
        match router.remove_mroute(route.table_id, prefix, &paths) {
            // What is not there has not to be removed: VPP says the same.
            Ok(()) | Err(super::MfibError::NoRoute(_)) => Ok(ALL),
            Err(error) => Err(error),
        }
    };
    let index = index.map_err(|error| OpError::from(error).value(prefix))?;
    // What the route has become, and not what was said of it: a message can also take flags back.
    let now = router.mroutes(FamilyId::of(&group), route.table_id).find(|r| r.prefix == prefix).cloned();
    let (table, source) = (route.table_id, RouteSource::Api);
    let request = match &now {
        Some(now) if add => ChangeMroute { replace: true, ..ChangeMroute::of(router, table, now) },
        _ => ChangeMroute {
            route: prefix,
            table,
            remove: true,
            replace: false,
            source,
            accept_all: false,
            drop: false,
            paths: requests,
        },
    };
    crate::api::record::<ChangeMroute>(router, || request);
    if add {
        crate::api::replace::mroute_said(router, table, prefix);
    }
    Ok(index)
}

fn decode(router: &Router, six: bool, path: &MfibPath) -> Result<(To, PathFlags), OpError> {
    let has = |flag: Itf| path.itf_flags.0 & flag.0 != 0;
    let flags = PathFlags { accept: has(Itf::MFIB_API_ITF_FLAG_ACCEPT), forward: has(Itf::MFIB_API_ITF_FLAG_FORWARD) };
    let to = match path.path.r#type {
        FibPathType::FIB_API_PATH_TYPE_LOCAL => To::Local,
        FibPathType::FIB_API_PATH_TYPE_NORMAL => {
            let index = IfIndex(path.path.sw_if_index);
            let missing = || OpError::new(retval::NO_MATCHING_INTERFACE, format!("no interface {}", index.0)).key("sw_if_index");
            let interface = router.interfaces.get(index).ok_or_else(missing)?.index;
            match from_union(six, &path.path.nh.address) {
                address if address.is_unspecified() => To::Interface(interface),
                address => To::Neighbor(interface, address),
            }
        }
        FibPathType(other) => return Err(unimplemented(&format!("multicast paths of type {other}"), "type")),
    };
    Ok((to, flags))
}

fn encode(table_id: u32, route: &Mroute) -> IpMroute {
    let six = route.prefix.group().is_ipv6();
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    let path = |(to, flags): (&To, &PathFlags)| {
        let (kind, index, address) = match to {
            To::Local => (FibPathType::FIB_API_PATH_TYPE_LOCAL, ALL, None),
            To::Interface(index) => (FibPathType::FIB_API_PATH_TYPE_NORMAL, index.0, None),
            To::Neighbor(index, address) => (FibPathType::FIB_API_PATH_TYPE_NORMAL, index.0, Some(*address)),
        };
        let accept = flag(flags.accept, Itf::MFIB_API_ITF_FLAG_ACCEPT.0);
        let itf_flags = MfibItfFlags(accept | flag(flags.forward, Itf::MFIB_API_ITF_FLAG_FORWARD.0));
        let proto = if six { FibPathNhProto::FIB_API_PATH_NH_PROTO_IP6 } else { FibPathNhProto::FIB_API_PATH_NH_PROTO_IP4 };
        let nh = FibPathNh { address: address.map_or_else(Default::default, next_hop), ..Default::default() };
        let path = FibPath { sw_if_index: index, r#type: kind, weight: 1, proto, nh, ..Default::default() };
        MfibPath { itf_flags, path }
    };
    let paths: Vec<MfibPath> = route.paths.iter().map(path).collect();
    let unspecified: IpAddr = if six { std::net::Ipv6Addr::UNSPECIFIED.into() } else { std::net::Ipv4Addr::UNSPECIFIED.into() };
    let bits = if route.prefix.source().is_some() { 2 } else { 1 };
    let prefix = Mprefix {
        af: if six { AddressFamily::ADDRESS_IP6 } else { AddressFamily::ADDRESS_IP4 },
        grp_address_length: u16::from(route.prefix.len()) * bits,
        grp_address: next_hop(route.prefix.group()),
        src_address: next_hop(route.prefix.source().unwrap_or(unspecified)),
    };
    let accept_all = flag(route.flags.accept_all, Entry::MFIB_API_ENTRY_FLAG_ACCEPT_ALL_ITF.0);
    IpMroute {
        table_id,
        entry_flags: MfibEntryFlags(accept_all | flag(route.flags.drop, Entry::MFIB_API_ENTRY_FLAG_DROP.0)),
        rpf_id: 0,
        prefix,
        n_paths: paths.len().min(u8::MAX.into()) as u8,
        paths,
    }
}
