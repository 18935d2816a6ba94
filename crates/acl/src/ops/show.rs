//! What is shown of access lists, of interfaces that use them, and of sessions.

use std::fmt::Write as _;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::interface::ops::resolve;
use quiver_net::{IfIndex, Router};
use serde::Serialize;

use super::Which;
use super::rules::text;
use crate::control::{Acls, List};
use crate::rule::Rule;
use crate::session::Shown;

request! {
    /// Shows access lists: their rules, how many packets each had, and which interfaces use them.
    pub read ShowAcls "acl_show" ["show acl-plugin acl"] {
        /// One list; all where absent.
        pub index: Option<u32> = "index <n>",
    }
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleInfo {
    /// The rule.
    #[serde(flatten)]
    pub rule: Rule,
    /// Packets that it had which were in no session; none where they are not counted.
    pub packets: Option<u64>,
    /// Bytes of these.
    pub bytes: Option<u64>,
}

/// A list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AclInfo {
    /// Its number.
    pub acl: u32,
    /// What its user calls it.
    pub tag: String,
    /// Its rules.
    pub rules: Vec<RuleInfo>,
    /// Interfaces that use it for what comes in.
    pub input: Vec<String>,
    /// Interfaces that use it for what leaves.
    pub output: Vec<String>,
    /// Numbers of these.
    #[serde(skip)]
    indices: [Vec<IfIndex>; 2],
}

fn info(router: &Router, state: &Acls, number: u32, list: &List) -> AclInfo {
    let rules = list.rules.iter().enumerate().map(|(at, rule)| {
        let (packets, bytes) = list.count(at).unzip();
        RuleInfo { rule: *rule, packets, bytes }
    });
    let indices = [false, true].map(|tx| state.users(number, tx));
    let [input, output] = indices.each_ref().map(|users| users.iter().map(|user| router.interfaces.name(*user)).collect());
    AclInfo { acl: number, tag: list.tag.clone(), rules: rules.collect(), input, output, indices }
}

/// The answer of [`ShowAcls`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct AclList(Vec<AclInfo>);

fn joined(numbers: impl Iterator<Item = impl ToString>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
}

impl Text for AclList {
    fn text(&self, out: &mut String, _: &View) {
        for AclInfo { acl, tag, rules, indices, .. } in &self.0 {
            let _ = writeln!(out, "acl-index {acl} count {} tag {{{tag}}}", rules.len());
            for (at, RuleInfo { rule, packets, bytes }) in rules.iter().enumerate() {
                let family = if rule.is_six() { "ipv6" } else { "ipv4" };
                let _ = write!(out, "{at:>11}: {family} {}", text(rule, false));
                let _ = match (packets, bytes) {
                    (Some(packets), Some(bytes)) if *packets > 0 => writeln!(out, " [{packets} packets, {bytes} bytes]"),
                    _ => writeln!(out),
                };
            }
            for (direction, users) in ["inbound", "outbound"].iter().zip(indices) {
                if !users.is_empty() {
                    let _ = writeln!(out, "  applied {direction} on sw_if_index: {}", joined(users.iter()));
                }
            }
        }
    }
}

impl Execute<Router> for ShowAcls {
    type Reply = AclList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, AclList>, OpError> {
        let state = router.state::<Acls>()?;
        if let Some(index) = self.index {
            return Ok(Outcome::Done(AclList(vec![info(router, state, index, state.list(index)?)])));
        }
        Ok(Outcome::Done(AclList(state.lists().map(|(number, list)| info(router, state, number, list)).collect())))
    }
}

request! {
    /// Shows which access lists decide on the packets of interfaces; with `acl` their rules too.
    pub read ShowInterfaces "acl_interfaces_show" ["show acl-plugin interface"] {
        /// One interface; all where absent.
        pub interface: Option<IfRef> = "<if>",
        /// One interface by its number.
        pub sw_if_index: Option<u32> = "sw_if_index <n>",
        /// Rules too.
        pub acl: bool = "acl",
        /// As without it: there is no more to show.
        pub detail: bool = "detail",
    }
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterfaceInfo {
    /// Its name.
    pub interface: String,
    /// Its number.
    pub sw_if_index: u32,
    /// Lists for what comes in.
    pub input: Vec<u32>,
    /// Lists for what leaves.
    pub output: Vec<u32>,
    /// EtherTypes that frames may have which come in and are not IP.
    pub input_ethertypes: Vec<u16>,
    /// EtherTypes that frames may have which leave and are not IP.
    pub output_ethertypes: Vec<u16>,
    /// The lists, where they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lists: Option<Vec<AclInfo>>,
}

/// The answer of [`ShowInterfaces`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct InterfaceList(Vec<InterfaceInfo>);

impl Text for InterfaceList {
    fn text(&self, out: &mut String, view: &View) {
        for info in &self.0 {
            let _ = writeln!(out, "sw_if_index {}:", info.sw_if_index);
            let types = |types: &[u16]| types.iter().map(|kind| format!("{kind:04x}")).collect::<Vec<_>>().join(", ");
            if !info.input_ethertypes.is_empty() {
                let _ = writeln!(out, "  input etype whitelist: {}", types(&info.input_ethertypes));
            }
            if !info.output_ethertypes.is_empty() {
                let _ = writeln!(out, " output etype whitelist: {}", types(&info.output_ethertypes));
            }
            for (name, lists) in [("input", &info.input), ("output", &info.output)] {
                if !lists.is_empty() {
                    let _ = writeln!(out, "  {name} acl(s): {}", joined(lists.iter()));
                }
            }
            if let Some(lists) = &info.lists {
                AclList(lists.clone()).text(out, view);
            }
        }
    }
}

impl Execute<Router> for ShowInterfaces {
    type Reply = InterfaceList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, InterfaceList>, OpError> {
        let one =
            self.interface.as_ref().map(|interface| resolve(router, interface)).transpose()?.or(self.sw_if_index.map(IfIndex));
        let state = router.state::<Acls>()?;
        let shown = state.used().filter(|(interface, _)| one.is_none_or(|one| one == *interface)).map(|(interface, used)| {
            let [input, output] = used.lists.clone();
            let [input_ethertypes, output_ethertypes] = used.ether_types.clone();
            let lists = self.acl.then(|| {
                let numbers = input.iter().chain(&output);
                numbers.filter_map(|number| Some(info(router, state, *number, state.list(*number).ok()?))).collect()
            });
            let name = router.interfaces.name(interface);
            InterfaceInfo { interface: name, sw_if_index: interface.0, input, output, input_ethertypes, output_ethertypes, lists }
        });
        Ok(Outcome::Done(InterfaceList(shown.collect())))
    }
}

request! {
    /// Shows how many sessions there are, and with `verbose` which ones.
    pub read ShowSessions "acl_sessions_show" ["show acl-plugin sessions"] {
        /// Sessions too.
        pub verbose: bool = "verbose",
        /// As many of them at most.
        pub max: usize = "max <n>" default(1000),
        /// Only those of an interface.
        pub interface: Option<IfRef> = "<if>",
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionInfo {
    /// Its interface.
    pub interface: String,
    /// Address of the side that packets come in from.
    pub inside: std::net::IpAddr,
    /// Its port; of ICMP its identifier.
    pub inside_port: u16,
    /// Address of the other side.
    pub outside: std::net::IpAddr,
    /// Its port.
    pub outside_port: u16,
    /// Protocol.
    pub protocol: u8,
    /// Which timeout it has.
    pub timeout: Which,
    /// Seconds since its last packet.
    pub idle: u32,
}

/// The answer of [`ShowSessions`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionList {
    /// Sessions that have begun.
    pub begun: u64,
    /// Sessions that have ended and are removed.
    pub ended: u64,
    /// Places in use: sessions, and what is over and not removed yet.
    pub used: u32,
    /// Sessions at most.
    pub max: u32,
    /// Sessions that are not over.
    pub active: usize,
    /// They, where they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Vec<SessionInfo>>,
}

impl Text for SessionList {
    fn text(&self, out: &mut String, _: &View) {
        let Self { begun, ended, used, max, active, sessions } = self;
        let _ = writeln!(out, "Sessions total: add {begun} - del {ended} = {used}");
        let _ = writeln!(out, "Sessions active: {active} of {max}");
        for SessionInfo { interface, inside, inside_port, outside, outside_port, protocol, timeout, idle } in
            sessions.iter().flatten()
        {
            let _ = writeln!(
                out,
                "  {interface}: {} <-> {} proto {protocol}, idle {idle} s ({})",
                socket(*inside, *inside_port),
                socket(*outside, *outside_port),
                timeout.words()
            );
        }
        if let Some(sessions) = sessions.as_ref().filter(|sessions| sessions.len() < *active) {
            let _ = writeln!(out, "  ... {} more", active - sessions.len());
        }
    }
}

fn socket(address: std::net::IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address, port).to_string()
}

impl Execute<Router> for ShowSessions {
    type Reply = SessionList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, SessionList>, OpError> {
        let one = self.interface.as_ref().map(|interface| resolve(router, interface)).transpose()?;
        let state = router.state::<Acls>()?;
        let (mut active, mut sessions) = (0, Vec::new());
        state.each_session(router, |shown| {
            if one.is_some_and(|one| one.0 != shown.interface) {
                return;
            }
            active += 1;
            if self.verbose && sessions.len() < self.max {
                sessions.push(session(router, &shown));
            }
        });
        let (begun, ended) = state.sessions().map_or((0, 0), |sessions| sessions.turnover());
        let (used, max) = (state.sessions().map_or(0, |sessions| sessions.len()), state.settings().sessions);
        Ok(Outcome::Done(SessionList { begun, ended, used, max, active, sessions: self.verbose.then_some(sessions) }))
    }
}

fn session(router: &Router, shown: &Shown) -> SessionInfo {
    let Shown { interface, addresses: (inside, outside), ports: (inside_port, outside_port), protocol, timeout, idle } = *shown;
    let interface = router.interfaces.name(IfIndex(interface));
    SessionInfo { interface, inside, inside_port, outside, outside_port, protocol, timeout: timeout.into(), idle }
}

request! {
    /// Shows what holds for all access lists, and how much memory their structures take.
    pub read ShowSettings "acl_settings_show" ["show acl-plugin settings", "show acl-plugin memory"] {}
}

/// The answer of [`ShowSettings`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingsInfo {
    /// Seconds after which a session is over that is not TCP.
    pub udp_idle: u32,
    /// Seconds after which a connection of TCP is over that is not established, or that ends.
    pub tcp_transient: u32,
    /// Seconds after which an established connection of TCP is over.
    pub tcp_idle: u32,
    /// Sessions at most.
    pub sessions_max: u32,
    /// Whether sessions are looked at again when lists change.
    pub reclassify_sessions: bool,
    /// Whether later fragments are in rules that look at ports.
    pub l4_match_nonfirst_fragment: bool,
    /// Whether packets are counted by rule.
    pub counters: bool,
    /// Bytes of the structures in which rules are looked up.
    pub lookup_bytes: usize,
}

impl Text for SettingsInfo {
    fn text(&self, out: &mut String, _: &View) {
        let _ = writeln!(
            out,
            "Session timeouts: udp idle {} s, tcp transient {} s, tcp idle {} s",
            self.udp_idle, self.tcp_transient, self.tcp_idle
        );
        let _ = writeln!(out, "Sessions at most: {}", self.sessions_max);
        let _ = writeln!(out, "Reclassify sessions: {}", u8::from(self.reclassify_sessions));
        let _ = writeln!(out, "Later fragments in rules with ports: {}", u8::from(self.l4_match_nonfirst_fragment));
        let _ = writeln!(out, "Stats counters enabled for interface ACLs: {}", u8::from(self.counters));
        let _ = writeln!(out, "Memory of lookup structures: {} bytes", self.lookup_bytes);
    }
}

impl Execute<Router> for ShowSettings {
    type Reply = SettingsInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, SettingsInfo>, OpError> {
        let state = router.state::<Acls>()?;
        let settings = state.settings();
        let [udp_idle, tcp_transient, tcp_idle] = settings.timeouts;
        Ok(Outcome::Done(SettingsInfo {
            udp_idle,
            tcp_transient,
            tcp_idle,
            sessions_max: settings.sessions,
            reclassify_sessions: settings.reclassify,
            l4_match_nonfirst_fragment: !settings.ported_fragments,
            counters: settings.counters,
            lookup_bytes: state.memory_bytes(),
        }))
    }
}
