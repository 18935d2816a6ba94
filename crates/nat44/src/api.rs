//! `nat44_ed`: the messages of VPP's plugin of this name.

mod syslog;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use quiver_api::Text;
use quiver_api::defs::*;
use quiver_command::operation::{OpError, retval};
use quiver_net::api::{Details, Flow, Handlers, index_of};
use quiver_net::ip::FamilyId;
use quiver_net::{IfIndex, Router};

use crate::config::{Side, Twice};
use crate::control::{self, Enabled, External, Nat, NatError, PoolSpec, SESSIONS_DEFAULT, StaticSpec};
use crate::ops::{SetMss, SetTimeouts};
use crate::session::{Direction, Endpoint, Session, flag};
use crate::table::Timeouts;

/// No interface, no table, the end of a list.
const NONE: u32 = u32::MAX;
/// Session numbers looked at in one go on their thread.
const STEP: u32 = 1024;

pub(crate) fn add(handlers: &mut Handlers) {
    add_plugin(handlers);
    add_interfaces(handlers);
    add_pools(handlers);
    add_mappings(handlers);
    add_sessions(handlers);
    syslog::add(handlers);
    handlers.reads::<Nat44EdOutputInterfaceGet>();
}

/// Refusals with the codes of VPP's plugin, which calls unsupported what is not enabled.
fn refused(error: NatError) -> OpError {
    match error {
        NatError::Enabled => OpError { code: retval::FEATURE_ALREADY_ENABLED, ..OpError::from(error) },
        error => as_vpp(OpError::from(error)),
    }
}

/// An operation's refusal as [`refused`] has it.
fn as_vpp(error: OpError) -> OpError {
    let code = if error.code == retval::FEATURE_DISABLED { retval::UNSUPPORTED } else { error.code };
    OpError { code, ..error }
}

fn has(flags: &NatConfigFlags, flag: NatConfigFlags) -> bool {
    flags.0 & flag.0 != 0
}

fn flags<const N: usize>(on: [(bool, NatConfigFlags); N]) -> NatConfigFlags {
    NatConfigFlags(on.into_iter().filter(|(on, _)| *on).fold(0, |bits, (_, flag)| bits | flag.0))
}

fn address(address: u32) -> Ip4Address {
    Ip4Address(address.to_be_bytes())
}

fn nat(router: &Router) -> Option<&Nat> {
    router.part::<Nat>().filter(|nat| nat.enabled.is_some())
}

fn add_plugin(handlers: &mut Handlers) {
    handlers.act::<Nat44EdPluginEnableDisable, Nat44EdPluginEnableDisableReply>(|router, m| {
        if !m.enable {
            return control::disable(router).map_err(|e| match e {
                NatError::Disabled => OpError::new(retval::FEATURE_ALREADY_DISABLED, e.to_string()),
                e => refused(e),
            });
        }
        let reduced = Nat44ConfigFlags::NAT44_IS_STATIC_MAPPING_ONLY.0 | Nat44ConfigFlags::NAT44_IS_CONNECTION_TRACKING.0;
        if m.flags.0 & reduced != 0 {
            return Err(OpError::new(retval::UNSUPPORTED, "there is only the whole of it").key("flags"));
        }
        let sessions = if m.sessions == 0 { SESSIONS_DEFAULT } else { m.sessions };
        control::enable(router, Enabled { sessions, vrfs: (m.inside_vrf, m.outside_vrf) }).map_err(refused)
    });
    handlers.act::<Nat44ForwardingEnableDisable, Nat44ForwardingEnableDisableReply>(|router, m| {
        control::set(router, |config| config.forwarding = m.enable).map_err(refused)
    });
    handlers.act::<NatSetTimeouts, NatSetTimeoutsReply>(|router, m| {
        let NatSetTimeouts { udp, tcp_established, tcp_transitory, icmp } = m;
        let [udp, tcp_established, tcp_transitory, icmp] = [udp, tcp_established, tcp_transitory, icmp].map(Some);
        let request = SetTimeouts { udp, tcp_established, tcp_transitory, icmp, reset: false };
        quiver_net::api::perform::<SetTimeouts>(router, request).map(drop).map_err(as_vpp)
    });
    handlers.get::<Nat44ShowRunningConfig, Nat44ShowRunningConfigReply>(|router, _| {
        let Timeouts { udp, tcp_established, tcp_transitory, icmp } = control::timeouts(router);
        let nat = router.part::<Nat>();
        let enabled = nat.and_then(|nat| nat.enabled);
        let (inside_vrf, outside_vrf) = enabled.map_or((0, 0), |enabled| enabled.vrfs);
        Ok(Nat44ShowRunningConfigReply {
            inside_vrf,
            outside_vrf,
            sessions: enabled.map_or(0, |enabled| enabled.sessions),
            forwarding_enabled: nat.is_some_and(|nat| nat.config.forwarding),
            ipfix_logging_enabled: nat.is_some_and(|nat| nat.ipfix.is_some()),
            timeouts: NatTimeouts { udp, tcp_established, tcp_transitory, icmp },
            flags: Nat44ConfigFlags::NAT44_IS_ENDPOINT_DEPENDENT,
            ..Default::default()
        })
    });
    handlers.act::<NatIpfixEnableDisable, NatIpfixEnableDisableReply>(|router, m| {
        let to = (
            if m.domain_id == 0 { crate::ipfix::DOMAIN } else { m.domain_id },
            if m.src_port == 0 { quiver_ipfix::PORT } else { m.src_port },
        );
        control::exports::set(router, m.enable.then_some(to)).map_err(refused)
    });
    handlers.act::<NatSetWorkers, NatSetWorkersReply>(|router, m| {
        let there = router.graph.fleet().worker_threads().len();
        if there < 2 {
            return Err(OpError::new(retval::FEATURE_DISABLED, "there are no workers to choose from").key("worker_mask"));
        }
        let workers: Vec<usize> = (0..64).filter(|n| m.worker_mask >> n & 1 != 0).collect();
        if workers.iter().any(|n| *n >= there) {
            return Err(OpError::new(retval::INVALID_WORKER, format!("there are {there} workers")).key("worker_mask"));
        }
        control::set_workers(router, workers).map_err(refused)
    });
    handlers.dump::<NatWorkerDump>(|router, _, send| {
        let workers = router.graph.fleet().worker_threads();
        for thread in control::threads(router) {
            let Some(index) = workers.iter().position(|worker| *worker == thread) else { continue };
            let name = Text(quiver_graph::thread_name(thread));
            send(&NatWorkerDetails { worker_index: index as u32, lcore_id: NONE, name });
        }
    });
    handlers.act::<Nat44SetSessionLimit, Nat44SetSessionLimitReply>(|router, m| {
        control::set_table_limit(router, m.vrf_id, m.session_limit).map_err(refused)
    });
    handlers.act::<NatSetMssClamping, NatSetMssClampingReply>(|router, m| {
        quiver_net::api::perform::<SetMss>(router, SetMss { bytes: m.enable.then_some(m.mss_value) }).map(drop).map_err(as_vpp)
    });
    handlers.get::<NatGetMssClamping, NatGetMssClampingReply>(|router, _| {
        let mss_value = nat(router).map_or(0, |nat| nat.config.mss);
        Ok(NatGetMssClampingReply { retval: 0, mss_value, enable: mss_value != 0 })
    });
}

fn add_interfaces(handlers: &mut Handlers) {
    handlers.act::<Nat44InterfaceAddDelFeature, Nat44InterfaceAddDelFeatureReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        // What is not said to be inside is outside.
        let inside = has(&m.flags, NatConfigFlags::NAT_IS_INSIDE);
        control::set_interface(router, index, Side { inside, outside: !inside }, m.is_add).map_err(refused)
    });
    handlers.dump::<Nat44InterfaceDump>(|router, _, send| {
        for (index, side) in nat(router).iter().flat_map(|nat| &nat.named) {
            let sides = [(side.inside, NatConfigFlags::NAT_IS_INSIDE), (side.outside, NatConfigFlags::NAT_IS_OUTSIDE)];
            send(&Nat44InterfaceDetails { flags: flags(sides), sw_if_index: InterfaceIndex(index.0) });
        }
    });
    handlers.act::<Nat44EdAddDelOutputInterface, Nat44EdAddDelOutputInterfaceReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        control::set_output(router, index, m.is_add).map_err(refused)
    });
    handlers.call::<Nat44EdOutputInterfaceGet>(|call, m| {
        let all: Vec<IfIndex> = nat(call.router).iter().flat_map(|nat| &nat.outputs).copied().collect();
        for index in all.iter().filter(|index| index.0 >= m.cursor) {
            call.send(&Nat44EdOutputInterfaceDetails { sw_if_index: InterfaceIndex(index.0) });
        }
        call.send(&Nat44EdOutputInterfaceGetReply { retval: 0, cursor: NONE });
        Flow::Done
    });
}

fn add_pools(handlers: &mut Handlers) {
    handlers.act::<Nat44AddDelAddressRange, Nat44AddDelAddressRangeReply>(|router, m| {
        let spec = PoolSpec {
            addr: Ipv4Addr::from(m.first_ip_address.0),
            vrf: Some(m.vrf_id).filter(|id| *id != NONE),
            twice: has(&m.flags, NatConfigFlags::NAT_IS_TWICE_NAT),
            independent: false,
        };
        control::set_pool(router, spec, Ipv4Addr::from(m.last_ip_address.0), m.is_add).map_err(refused)
    });
    handlers.dump::<Nat44AddressDump>(|router, _, send| {
        let Some(nat) = nat(router) else { return };
        for (twice, pool) in [(false, &nat.config.pool), (true, &nat.config.twice_pool)] {
            for one in pool.iter() {
                let flags = flags([(twice, NatConfigFlags::NAT_IS_TWICE_NAT)]);
                let vrf_id = one.tenant.map_or(NONE, |(id, _)| id);
                send(&Nat44AddressDetails { ip_address: address(one.addr), flags, vrf_id });
            }
        }
    });
    handlers.act::<Nat44AddDelInterfaceAddr, Nat44AddDelInterfaceAddrReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        control::set_pool_interface(router, index, has(&m.flags, NatConfigFlags::NAT_IS_TWICE_NAT), m.is_add).map_err(refused)
    });
    handlers.dump::<Nat44InterfaceAddrDump>(|router, _, send| {
        for (index, twice) in nat(router).iter().flat_map(|nat| &nat.pool_interfaces) {
            let flags = flags([(*twice, NatConfigFlags::NAT_IS_TWICE_NAT)]);
            send(&Nat44InterfaceAddrDetails { sw_if_index: InterfaceIndex(index.0), flags });
        }
    });
}

fn twice(flags: &NatConfigFlags) -> Twice {
    match () {
        () if has(flags, NatConfigFlags::NAT_IS_TWICE_NAT) => Twice::Always,
        () if has(flags, NatConfigFlags::NAT_IS_SELF_TWICE_NAT) => Twice::ToSelf,
        () => Twice::No,
    }
}

fn mapping_flags(spec: &StaticSpec) -> NatConfigFlags {
    flags([
        (spec.proto.is_none(), NatConfigFlags::NAT_IS_ADDR_ONLY),
        (spec.twice == Twice::Always, NatConfigFlags::NAT_IS_TWICE_NAT),
        (spec.twice == Twice::ToSelf, NatConfigFlags::NAT_IS_SELF_TWICE_NAT),
        (spec.out2in_only, NatConfigFlags::NAT_IS_OUT2IN_ONLY),
    ])
}

/// The outside of a mapping: the interface where one is given, the address otherwise.
fn external(router: &Router, interface: &InterfaceIndex, address: &Ip4Address) -> Result<External, OpError> {
    match interface.0 {
        NONE => Ok(External::Addr(Ipv4Addr::from(address.0))),
        _ => Ok(External::Interface(index_of(router, interface)?)),
    }
}

fn set_static(router: &mut Router, m: Nat44AddDelStaticMapping) -> Result<(), OpError> {
    let whole = has(&m.flags, NatConfigFlags::NAT_IS_ADDR_ONLY);
    let port = |port: u16| if whole { 0 } else { port };
    let local = Endpoint::new(u32::from_be_bytes(m.local_ip_address.0), port(m.local_port));
    let spec = StaticSpec {
        proto: (!whole).then_some(m.protocol),
        locals: vec![(local, 1)],
        external: external(router, &m.external_sw_if_index, &m.external_ip_address)?,
        port: port(m.external_port),
        vrf: m.vrf_id,
        twice: twice(&m.flags),
        out2in_only: has(&m.flags, NatConfigFlags::NAT_IS_OUT2IN_ONLY),
        identity: false,
        affinity: 0,
        tag: m.tag.0,
    };
    control::set_static(router, spec, m.is_add).map_err(refused)
}

fn set_identity(router: &mut Router, m: Nat44AddDelIdentityMapping) -> Result<(), OpError> {
    let whole = has(&m.flags, NatConfigFlags::NAT_IS_ADDR_ONLY);
    let port = if whole { 0 } else { m.port };
    let spec = StaticSpec {
        proto: (!whole).then_some(m.protocol),
        locals: vec![(Endpoint::new(u32::from_be_bytes(m.ip_address.0), port), 1)],
        external: external(router, &m.sw_if_index, &m.ip_address)?,
        port,
        vrf: m.vrf_id,
        twice: Twice::No,
        out2in_only: false,
        identity: true,
        affinity: 0,
        tag: m.tag.0,
    };
    control::set_static(router, spec, m.is_add).map_err(refused)
}

fn set_balanced(router: &mut Router, m: Nat44AddDelLbStaticMapping) -> Result<(), OpError> {
    let vrf = m.locals.first().map_or(0, |local| local.vrf_id);
    if m.locals.iter().any(|local| local.vrf_id != vrf) {
        return Err(OpError::new(retval::UNSUPPORTED, "back-ends of several tables").key("locals"));
    }
    if m.is_add && m.locals.len() < 2 {
        return Err(OpError::new(retval::INVALID_VALUE, "one back-end is no load balancing").key("locals"));
    }
    let end = |local: &Nat44LbAddrPort| (Endpoint::new(u32::from_be_bytes(local.addr.0), local.port), u32::from(local.probability));
    let spec = StaticSpec {
        proto: Some(m.protocol),
        locals: m.locals.iter().map(end).collect(),
        external: External::Addr(Ipv4Addr::from(m.external_addr.0)),
        port: m.external_port,
        vrf,
        twice: twice(&m.flags),
        out2in_only: has(&m.flags, NatConfigFlags::NAT_IS_OUT2IN_ONLY),
        identity: false,
        affinity: m.affinity,
        tag: m.tag.0,
    };
    control::set_static(router, spec, m.is_add).map_err(refused)
}

fn is_balanced(spec: &StaticSpec) -> bool {
    spec.locals.len() > 1
}

fn add_mappings(handlers: &mut Handlers) {
    handlers.act::<Nat44AddDelStaticMapping, Nat44AddDelStaticMappingReply>(set_static);
    handlers.act::<Nat44AddDelStaticMappingV2, Nat44AddDelStaticMappingV2Reply>(|router, m| {
        if m.match_pool || m.pool_ip_address.0 != [0; 4] {
            return Err(OpError::new(retval::UNSUPPORTED, "no address of the pool can be chosen").key("pool_ip_address"));
        }
        let Nat44AddDelStaticMappingV2 { is_add, flags, local_ip_address, external_ip_address, protocol, .. } = m;
        let Nat44AddDelStaticMappingV2 { local_port, external_port, external_sw_if_index, vrf_id, tag, .. } = m;
        let first = Nat44AddDelStaticMapping {
            is_add,
            flags,
            local_ip_address,
            external_ip_address,
            protocol,
            local_port,
            external_port,
            external_sw_if_index,
            vrf_id,
            tag,
        };
        set_static(router, first)
    });
    handlers.dump::<Nat44StaticMappingDump>(|router, _, send| {
        let Some(nat) = nat(router) else { return };
        for spec in nat.statics.iter().filter(|spec| !spec.identity && !is_balanced(spec)) {
            let (local, _) = spec.locals.first().copied().unwrap_or_default();
            let (outside, interface) = external_of(spec);
            send(&Nat44StaticMappingDetails {
                flags: mapping_flags(spec),
                local_ip_address: address(local.addr),
                external_ip_address: outside,
                protocol: spec.proto.unwrap_or_default(),
                local_port: local.port,
                external_port: spec.port,
                external_sw_if_index: interface,
                vrf_id: spec.vrf,
                tag: Text(spec.tag.clone()),
            });
        }
    });
    handlers.act::<Nat44AddDelIdentityMapping, Nat44AddDelIdentityMappingReply>(set_identity);
    handlers.dump::<Nat44IdentityMappingDump>(|router, _, send| {
        let Some(nat) = nat(router) else { return };
        for spec in nat.statics.iter().filter(|spec| spec.identity) {
            let (ip_address, sw_if_index) = external_of(spec);
            send(&Nat44IdentityMappingDetails {
                flags: mapping_flags(spec),
                ip_address,
                protocol: spec.proto.unwrap_or_default(),
                port: spec.port,
                sw_if_index,
                vrf_id: spec.vrf,
                tag: Text(spec.tag.clone()),
            });
        }
    });
    handlers.act::<Nat44AddDelLbStaticMapping, Nat44AddDelLbStaticMappingReply>(set_balanced);
    handlers.act::<Nat44LbStaticMappingAddDelLocal, Nat44LbStaticMappingAddDelLocalReply>(|router, m| {
        let outside = Endpoint::new(u32::from_be_bytes(m.external_addr.0), m.external_port);
        let Nat44LbAddrPort { addr, port, probability, vrf_id } = &m.local;
        let local = (Endpoint::new(u32::from_be_bytes(addr.0), *port), u32::from(*probability));
        control::set_back_end(router, outside, m.protocol, local, *vrf_id, m.is_add).map_err(refused)
    });
    handlers.dump::<Nat44LbStaticMappingDump>(|router, _, send| {
        let Some(nat) = nat(router) else { return };
        for spec in nat.statics.iter().filter(|spec| is_balanced(spec)) {
            let local = |(end, weight): &(Endpoint, u32)| Nat44LbAddrPort {
                addr: address(end.addr),
                port: end.port,
                probability: u8::try_from(*weight).unwrap_or(u8::MAX),
                vrf_id: spec.vrf,
            };
            send(&Nat44LbStaticMappingDetails {
                external_addr: external_of(spec).0,
                external_port: spec.port,
                protocol: spec.proto.unwrap_or_default(),
                flags: mapping_flags(spec),
                affinity: spec.affinity,
                tag: Text(spec.tag.clone()),
                local_num: 0,
                locals: spec.locals.iter().map(local).collect(),
            });
        }
    });
}

fn external_of(spec: &StaticSpec) -> (Ip4Address, InterfaceIndex) {
    match spec.external {
        External::Addr(outside) => (Ip4Address(outside.octets()), InterfaceIndex(NONE)),
        External::Interface(index) => (Ip4Address::default(), InterfaceIndex(index.0)),
    }
}

/// Calls `f` with every session.
fn each_session(router: &mut Router, mut f: impl FnMut(&Router, &Session)) {
    for thread in control::threads(router) {
        let mut next = Some(0);
        while let Some(from) = next {
            let (some, more) = control::dump(router, thread, from, STEP);
            some.iter().for_each(|(_, session)| f(router, session));
            next = more;
        }
    }
}

fn table_of(router: &Router, session: &Session) -> u32 {
    router.table_of_fib(FamilyId::V4, session.i2o.fib().into()).unwrap_or_default()
}

fn users(router: &mut Router, _: Nat44UserDump, send: &mut dyn FnMut(&dyn Details)) {
    let mut users = BTreeMap::<(u32, u32), (u32, u32)>::new();
    each_session(router, |router, session| {
        let user = users.entry((table_of(router, session), session.inside().addr)).or_default();
        match session.is_static() {
            false => user.0 += 1,
            true => user.1 += 1,
        }
    });
    for ((vrf_id, inside), (nsessions, nstaticsessions)) in users {
        send(&Nat44UserDetails { vrf_id, ip_address: address(inside), nsessions, nstaticsessions });
    }
}

/// The sessions of an inside host, in the largest of the forms in which they are sent.
fn sessions_of(router: &mut Router, host: &Ip4Address, table: u32) -> Vec<Nat44UserSessionV3Details> {
    let (host, timeouts, now) = (u32::from_be_bytes(host.0), control::timeouts(router), control::now(router));
    let mut all = Vec::new();
    each_session(router, |router, session| {
        let inside = session.inside();
        if inside.addr != host || table_of(router, session) != table {
            return;
        }
        let outside = session.outside();
        let twice = session.flags & flag::TWICE != 0;
        // Remote ends: as the inside knows it, and as it is.
        let (near, far) = (session.i2o.dst(), session.o2i.src());
        let near = if twice { near } else { Endpoint::default() };
        let idle = now.saturating_sub(session.last_heard);
        all.push(Nat44UserSessionV3Details {
            outside_ip_address: address(outside.addr),
            outside_port: outside.port,
            inside_ip_address: address(inside.addr),
            inside_port: inside.port,
            protocol: session.i2o.proto().into(),
            flags: flags([
                (session.is_static(), NatConfigFlags::NAT_IS_STATIC),
                (twice, NatConfigFlags::NAT_IS_TWICE_NAT),
                (true, NatConfigFlags::NAT_IS_EXT_HOST_VALID),
            ]),
            last_heard: session.last_heard.into(),
            time_since_last_heard: idle.into(),
            total_bytes: session.bytes,
            total_pkts: session.packets as u32,
            ext_host_address: address(far.addr),
            ext_host_port: far.port,
            ext_host_nat_address: address(near.addr),
            ext_host_nat_port: near.port,
            is_timed_out: idle >= timeouts.of(session),
        });
    });
    all
}

/// An older version of a session's message.
macro_rules! older {
    ($name:ident, $version:ident $(, $more:ident)?) => {
        fn $name(v3: Nat44UserSessionV3Details) -> $version {
            $version {
                outside_ip_address: v3.outside_ip_address,
                outside_port: v3.outside_port,
                inside_ip_address: v3.inside_ip_address,
                inside_port: v3.inside_port,
                protocol: v3.protocol,
                flags: v3.flags,
                last_heard: v3.last_heard,
                total_bytes: v3.total_bytes,
                total_pkts: v3.total_pkts,
                ext_host_address: v3.ext_host_address,
                ext_host_port: v3.ext_host_port,
                ext_host_nat_address: v3.ext_host_nat_address,
                ext_host_nat_port: v3.ext_host_nat_port,
                $( $more: v3.$more, )?
            }
        }
    };
}

older!(first, Nat44UserSessionDetails);
older!(second, Nat44UserSessionV2Details, is_timed_out);

fn add_sessions(handlers: &mut Handlers) {
    handlers.dump::<Nat44UserDump>(users);
    handlers.dump::<Nat44UserSessionDump>(|router, m, send| {
        sessions_of(router, &m.ip_address, m.vrf_id).into_iter().for_each(|session| send(&first(session)));
    });
    handlers.dump::<Nat44UserSessionV2Dump>(|router, m, send| {
        sessions_of(router, &m.ip_address, m.vrf_id).into_iter().for_each(|session| send(&second(session)));
    });
    handlers.dump::<Nat44UserSessionV3Dump>(|router, m, send| {
        sessions_of(router, &m.ip_address, m.vrf_id).into_iter().for_each(|session| send(&session));
    });
    handlers.act::<Nat44DelSession, Nat44DelSessionReply>(|router, m| {
        let direction = match has(&m.flags, NatConfigFlags::NAT_IS_INSIDE) {
            true => Direction::In2Out,
            false => Direction::Out2In,
        };
        let end = Endpoint::new(u32::from_be_bytes(m.address.0), m.port);
        let remote = Endpoint::new(u32::from_be_bytes(m.ext_host_address.0), m.ext_host_port);
        let remote = (remote != Endpoint::default()).then_some(remote);
        control::delete_session(router, direction, end, m.protocol, m.vrf_id, remote).map_err(refused)
    });
}
