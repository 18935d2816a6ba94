//! `set ip6 nd proxy`, `set interface ip6-nd proxy`, and what is shown of them.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use serde::Serialize;

use crate::Router;
use crate::interface::ops::resolve;
use crate::nd::ProxyError;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetNdProxy>().declare::<SetNdMirror>().declare::<ShowNdProxy>();
}

impl From<ProxyError> for OpError {
    fn from(error: ProxyError) -> Self {
        let (code, key) = match &error {
            ProxyError::Fib(error) => return error.clone().into(),
            ProxyError::NoInterface(_) => (retval::INVALID_SW_IF_INDEX, "interface"),
            ProxyError::Address(_) => (retval::INVALID_VALUE, "address"),
            ProxyError::Elsewhere { .. } => (retval::VALUE_EXIST, "address"),
            ProxyError::NoHost { .. } => (retval::NO_SUCH_ENTRY, "address"),
        };
        OpError::new(code, error.to_string()).key(key)
    }
}

request! {
    /// Adds or removes a host behind an interface for which solicitations on all other links of its table are answered.
    pub change SetNdProxy "ip6nd_proxy_add_del" ["set ip6 nd proxy"] {
        /// Interface that the host is behind.
        pub interface: IfRef = "<if>",
        /// Remove instead of add.
        pub remove: bool = "del",
        /// Address of the host.
        pub address: Ipv6Addr = "<addr>",
    }
}

impl Execute<Router> for SetNdProxy {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        router.set_nd_proxy(index, self.address, !self.remove)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Switches whether an interface answers every solicitation, for a host that has the router's own address.
    pub change SetNdMirror "ip6nd_proxy_enable_disable" ["set interface ip6-nd proxy"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// On or off.
        pub enable: bool = "enable|disable" required(),
    }
}

impl Execute<Router> for SetNdMirror {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        router.set_nd_mirror(index, self.enable)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows hosts for which solicitations are answered, and interfaces that answer all of them.
    pub read ShowNdProxy "ip6nd_proxy_dump" ["show ip6 nd proxy"] {}
}

/// A host as shown.
#[derive(Debug, Clone, Serialize)]
pub struct HostReply {
    /// Interface that it is behind.
    pub interface: String,
    /// Address.
    pub address: Ipv6Addr,
}

/// Proxy neighbour discovery as shown.
#[derive(Debug, Clone, Serialize)]
pub struct NdProxyReply {
    /// Hosts.
    pub hosts: Vec<HostReply>,
    /// Interfaces that answer every solicitation.
    pub mirrors: Vec<String>,
}

impl Text for NdProxyReply {
    fn text(&self, out: &mut String, _view: &View) {
        for HostReply { interface, address } in &self.hosts {
            let _ = writeln!(out, "{address} behind {interface}");
        }
        for interface in &self.mirrors {
            let _ = writeln!(out, "all on {interface}");
        }
    }
}

impl Execute<Router> for ShowNdProxy {
    type Reply = NdProxyReply;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, NdProxyReply>, OpError> {
        let host = |(index, address)| HostReply { interface: router.interfaces.name(index), address };
        let hosts = router.nd_proxies().into_iter().map(host).collect();
        let mirrors = router.interfaces.iter().filter(|i| router.nd_mirror(i.index)).map(|i| i.name.clone()).collect();
        Ok(Outcome::Done(NdProxyReply { hosts, mirrors }))
    }
}
