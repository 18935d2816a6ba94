//! `show ip punt redirect`, `show punt`.

use std::fmt::Write as _;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use serde::{Deserialize, Serialize};

use super::{ALL, PuntProtocol, RedirectPath, SetPunt, SetRedirect};
use crate::Router;
use crate::fib::Path;
use crate::fib::ops::Family;
use crate::ip::FamilyId;

/// Adds what is shown.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowRedirects>().declare::<ShowPunt>();
}

/// The redirects of a family as requests that make them.
pub(super) fn redirects(router: &Router, family: Family) -> Vec<SetRedirect> {
    let path = |path: &Path| RedirectPath {
        interface: IfRef(path.interface().map(|index| router.interfaces.name(index)).unwrap_or_default()),
        next_hop: path.next_hop(),
    };
    let redirect = |(rx, paths): (Option<crate::IfIndex>, Vec<Path>)| SetRedirect {
        family,
        rx: IfRef(rx.map_or_else(|| ALL.to_owned(), |index| router.interfaces.name(index))),
        remove: false,
        paths: paths.iter().map(path).collect(),
    };
    router.punt_redirects(FamilyId::from(family)).into_iter().map(redirect).collect()
}

/// The ports of a family as requests that punt them.
pub(super) fn ports(router: &Router, family: Family) -> Vec<SetPunt> {
    let set = |(l4, port)| SetPunt { family, protocol: PuntProtocol::from(l4), port, remove: false };
    router.punt_ports(FamilyId::from(family)).into_iter().map(set).collect()
}

/// Where punted packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowRedirects {
    /// Which packets.
    pub family: Family,
}

commands! {
    read ShowRedirects "ip_punt_redirect_show" {
        /// Shows where punted IPv4 packets go.
        ["show ip punt redirect"] {} => { family: Family::Ip4 },
        /// Shows where punted IPv6 packets go.
        ["show ip6 punt redirect"] {} => { family: Family::Ip6 },
    }
}

/// Answer of [`ShowRedirects`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Redirects(Vec<SetRedirect>);

impl Execute<Router> for ShowRedirects {
    type Reply = Redirects;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Redirects>, OpError> {
        Ok(Outcome::Done(Redirects(redirects(router, self.family))))
    }
}

impl Text for Redirects {
    fn text(&self, out: &mut String, _view: &View) {
        for SetRedirect { rx, paths, .. } in &self.0 {
            let _ = writeln!(out, "rx {} redirect", rx.as_str());
            if paths.is_empty() {
                out.push_str("  drop\n");
            }
            for RedirectPath { interface, next_hop } in paths {
                let next_hop = next_hop.map(|address| format!("{address} ")).unwrap_or_default();
                let _ = writeln!(out, "  via {next_hop}{}", interface.as_str());
            }
        }
    }
}

request! {
    /// Shows which ports are punted.
    pub read ShowPunt "punt_show" ["show punt"] {}
}

/// Answer of [`ShowPunt`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PuntedPorts(Vec<SetPunt>);

impl Execute<Router> for ShowPunt {
    type Reply = PuntedPorts;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, PuntedPorts>, OpError> {
        let all = [Family::Ip4, Family::Ip6].into_iter().flat_map(|family| ports(router, family)).collect();
        Ok(Outcome::Done(PuntedPorts(all)))
    }
}

impl Text for PuntedPorts {
    fn text(&self, out: &mut String, _view: &View) {
        for SetPunt { family, protocol, port, .. } in &self.0 {
            let port = port.map_or_else(|| ALL.to_owned(), |port| port.to_string());
            let _ = writeln!(out, "{} {} {port}", family.word(), protocol.word());
        }
    }
}
