//! `show adj`, and adjacencies and buckets in words.

use std::fmt::Write as _;
use std::net::IpAddr;

use quiver_command::grammar::{Command, IfRef};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View, retval};
use serde::{Deserialize, Serialize};

use super::Family;
use crate::Router;
use crate::fib::{AdjKind, AdjacencyInfo, Bucket, Class, Null};
use crate::interface::ops::resolve;
use crate::ip::FamilyId;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.operation::<ShowAdjacencies>().operation::<SetAdjacencyCounters>();
    registry.command_of::<SetAdjacencyCounters>(Command {
        path: "adjacency counters",
        syntax: "enable",
        help: "Accepted for VPP's scripts: adjacencies always count packets here",
        parse: |args, _| {
            let enable = args.expect_one_of(&[("enable", true), ("disable", false)])?;
            Ok(Invocation::new::<SetAdjacencyCounters>(AdjacencyCountersRequest { enable }))
        },
    });
    registry.command_of::<ShowAdjacencies>(Command {
        path: "show adj",
        syntax: "[<n>] [<if>] [nbr] [summary]",
        help: "Shows adjacencies: how neighbours are reached",
        parse: |args, router| {
            let mut request = ShowAdjacenciesRequest::default();
            while !args.is_empty() {
                if args.take_keyword("summary") {
                    request.summary = true;
                } else if args.take_keyword("nbr") {
                    request.neighbors = true;
                } else if args.peek().is_some_and(|word| router.interfaces.by_name(&word).is_some()) {
                    request.interface = Some(args.interface()?);
                } else {
                    request.index = Some(args.number("adjacency index")?);
                }
            }
            Ok(Invocation::new::<ShowAdjacencies>(request))
        },
    });
}

/// Switches the counters of adjacencies, which are always on.
pub struct SetAdjacencyCounters;

/// What [`SetAdjacencyCounters`] wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdjacencyCountersRequest {
    /// On.
    pub enable: bool,
}

impl Operation<Router> for SetAdjacencyCounters {
    const NAME: &'static str = "adjacency_counters_set";
    const ACCESS: Access = Access::Change;
    type Request = AdjacencyCountersRequest;
    type Reply = ();

    fn run(_: &mut Router, request: AdjacencyCountersRequest) -> Result<Outcome<Router, ()>, OpError> {
        match request.enable {
            true => Ok(Outcome::Done(())),
            false => Err(OpError::new(retval::UNSUPPORTED, "adjacencies are always counted").key("enable")),
        }
    }
}

/// Shows adjacencies.
pub struct ShowAdjacencies;

/// Which ones [`ShowAdjacencies`] shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowAdjacenciesRequest {
    /// This one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Those on this interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<IfRef>,
    /// Those of neighbours.
    pub neighbors: bool,
    /// Only how many.
    pub summary: bool,
}

/// An adjacency as shown.
#[derive(Debug, Clone, Serialize)]
pub struct AdjacencyReply {
    /// Its index.
    pub index: u32,
    /// Family of the packets.
    pub family: Family,
    /// Interface.
    pub interface: String,
    /// `neighbor` or `glean`.
    pub kind: &'static str,
    /// Next hop, or the own address that asks.
    pub address: Option<IpAddr>,
    /// Neighbour's MAC address.
    pub mac: Option<String>,
    /// Largest packet.
    pub mtu: u16,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    #[serde(skip)]
    text: String,
}

impl AdjacencyReply {
    fn new(router: &Router, info: &AdjacencyInfo) -> Self {
        let (packets, bytes) = router.adjacency_counters(info.index);
        let (kind, address) = match info.kind {
            AdjKind::Neighbor(address) => ("neighbor", Some(address)),
            AdjKind::Glean(address) => ("glean", address),
        };
        Self {
            index: info.index,
            family: info.family.into(),
            interface: router.interfaces.name(info.interface),
            kind,
            address,
            mac: info.mac.map(|m| m.to_string()),
            mtu: info.record.mtu,
            packets,
            bytes,
            text: in_words(router, info),
        }
    }
}

/// An adjacency as VPP writes it.
pub(super) fn in_words(router: &Router, info: &AdjacencyInfo) -> String {
    let interface = router.interfaces.name(info.interface);
    let record = &info.record;
    let header: String = record.link_header().iter().map(|b| format!("{b:02x}")).collect();
    let rest = |header: &str| format!("mtu:{} next:{} flags:[] {header}", record.mtu, record.next);
    match (info.kind, info.mac) {
        (AdjKind::Glean(source), _) => {
            let source = source.map(|s| connected(router, info, s)).unwrap_or_default();
            // What a request is sent with: to everybody, from us.
            let header = match (info.family, router.interfaces.get(info.interface)) {
                (FamilyId::V4, Some(i)) => {
                    let mac: String = i.mac.0.iter().map(|b| format!("{b:02x}")).collect();
                    format!("ffffffffffff{mac}0806")
                }
                _ => String::new(),
            };
            format!("{}-glean: [src:{source}] {interface}: {}", info.family, rest(&header)).trim_end().to_owned()
        }
        (AdjKind::Neighbor(address), Some(_)) => format!("{} via {address} {interface}: {}", info.family, rest(&header)),
        (AdjKind::Neighbor(address), None) => format!("arp-{}: via {address} {interface}", info.family),
    }
}

/// The link that an own address is on.
fn connected(router: &Router, info: &AdjacencyInfo, source: IpAddr) -> String {
    let addresses = router.interfaces.get(info.interface).map(|i| i.addresses.clone()).unwrap_or_default();
    let len = addresses.iter().find(|(a, _)| *a == source).map(|(_, len)| *len);
    match len.and_then(|len| quiver_wire::IpPrefix::new(source, len).ok()) {
        Some(prefix) => prefix.masked().to_string(),
        None => source.to_string(),
    }
}

/// A bucket as VPP writes a data-path object.
pub(super) fn bucket_in_words(router: &Router, family: FamilyId, bucket: Bucket, receive: &str) -> String {
    let name = match family {
        FamilyId::V4 => "ip4",
        FamilyId::V6 => "ip6",
    };
    let text = match bucket.class() {
        Class::Drop => format!("dpo-drop {name}"),
        Class::Punt => format!("dpo-punt {name}"),
        Class::Receive => format!("dpo-receive: {receive}"),
        Class::Glean | Class::Incomplete | Class::Rewrite => match router.adjacency_info(bucket.index()) {
            Some(info) => in_words(router, &info),
            None => "unresolved".to_owned(),
        },
        Class::Lookup | Class::SourceLookup => {
            let table = router.table_of_fib(family, bucket.index()).map_or_else(|| "deleted".into(), |t| t.to_string());
            let by = if bucket.class() == Class::Lookup { "dst" } else { "src" };
            format!("{by}-address,unicast lookup in {family}-VRF:{table}")
        }
        Class::InterfaceRx => format!("intf-rx-dpo: {}", router.interfaces.name(quiver_graph::IfIndex(bucket.index()))),
        Class::Null if bucket.index() == Null::Unreachable as u32 => format!("{name}-null-dpo: send-unreach"),
        Class::Null => format!("{name}-null-dpo: send-prohibit"),
        Class::LinkLocal => "ip6-link-local".to_owned(),
    };
    format!("[@{}]: {text}", bucket.class() as u8)
}

/// What [`ShowAdjacencies`] shows.
#[derive(Debug, Clone, Serialize)]
pub struct ShowAdjacenciesReply {
    /// How many there are.
    pub count: usize,
    /// Those asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adjacencies: Option<Vec<AdjacencyReply>>,
    /// The number that was asked for, where no adjacency has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<u32>,
}

impl Text for ShowAdjacenciesReply {
    fn text(&self, out: &mut String, _view: &View) {
        if let Some(index) = self.missing {
            let _ = writeln!(out, "adjacency {index} invalid");
        }
        match &self.adjacencies {
            None => {
                let _ = writeln!(out, "Number of adjacencies: {}", self.count);
            }
            Some(adjacencies) => {
                for adjacency in adjacencies {
                    let _ = writeln!(out, "[@{}] {}", adjacency.index, adjacency.text);
                    if adjacency.packets > 0 {
                        let _ = writeln!(out, "   counts:[{}:{}]", adjacency.packets, adjacency.bytes);
                    }
                }
            }
        }
    }
}

impl Operation<Router> for ShowAdjacencies {
    const NAME: &'static str = "adjacency_dump";
    const ACCESS: Access = Access::Read;
    type Request = ShowAdjacenciesRequest;
    type Reply = ShowAdjacenciesReply;

    fn run(router: &mut Router, request: ShowAdjacenciesRequest) -> Result<Outcome<Router, Self::Reply>, OpError> {
        let interface = request.interface.as_ref().map(|i| resolve(router, i)).transpose()?;
        let all = router.adjacencies();
        if let Some(index) = request.index
            && !all.iter().any(|a| a.index == index)
        {
            // A number to look at is a guess, and no adjacency an answer to it, for scripts written for VPP too.
            return Ok(Outcome::Done(ShowAdjacenciesReply {
                count: all.len(),
                adjacencies: Some(Vec::new()),
                missing: Some(index),
            }));
        }
        let wanted = |a: &&AdjacencyInfo| {
            request.index.is_none_or(|i| a.index == i)
                && interface.is_none_or(|i| a.interface == i)
                && (!request.neighbors || matches!(a.kind, AdjKind::Neighbor(_)))
        };
        let adjacencies = all.iter().filter(wanted).map(|a| AdjacencyReply::new(router, a)).collect();
        let adjacencies = (!request.summary).then_some(adjacencies);
        Ok(Outcome::Done(ShowAdjacenciesReply { count: all.len(), adjacencies, missing: None }))
    }
}
