//! The source of echo packets, and the TOS of all packets.

use std::fmt::Write as _;
use std::net::IpAddr;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use quiver_net::interface::ops::resolve;
use serde::Serialize;

use crate::control;

request! {
    /// Sends BFD echo packets to peers that return them, from an address beside that of an interface.
    pub change SetEchoSource "bfd_udp_echo_source_set" ["bfd udp echo-source set"] {
        /// Interface whose subnets give the source addresses, such as a loopback interface.
        pub interface: IfRef = "interface <if>",
    }
}

impl Execute<Router> for SetEchoSource {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let interface = resolve(router, &self.interface)?;
        control::set_echo_source(router, Some(interface)).map(Outcome::Done)
    }
}

request! {
    /// Sends no BFD echo packets any more.
    pub change DeleteEchoSource "bfd_udp_echo_source_delete" ["bfd udp echo-source del"] {}
}

impl Execute<Router> for DeleteEchoSource {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set_echo_source(router, None).map(Outcome::Done)
    }
}

request! {
    /// Shows where BFD echo packets come from.
    pub read ShowEchoSource "bfd_udp_echo_source_show" ["show bfd echo-source"] {}
}

/// The answer of [`ShowEchoSource`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EchoSourceInfo {
    /// The interface, if one is set.
    pub interface: Option<String>,
    /// Source of IPv4 echo packets.
    pub ip4: Option<IpAddr>,
    /// Source of IPv6 echo packets.
    pub ip6: Option<IpAddr>,
}

impl Text for EchoSourceInfo {
    fn text(&self, out: &mut String, _: &View) {
        let Some(interface) = &self.interface else { return out.push_str("UDP echo source is not set.\n") };
        let _ = writeln!(out, "UDP echo source is: {interface}");
        for (family, address) in [("IPv4", self.ip4), ("IPv6", self.ip6)] {
            let address = address.map_or("none".to_owned(), |address| address.to_string());
            let _ = writeln!(out, "{family} address usable as echo source: {address}");
        }
    }
}

impl Execute<Router> for ShowEchoSource {
    type Reply = EchoSourceInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, EchoSourceInfo>, OpError> {
        let source = control::echo_source(router)?;
        let [ip4, ip6] = source.addresses;
        let interface = source.interface.map(|index| router.interfaces.name(index));
        Ok(Outcome::Done(EchoSourceInfo { interface, ip4, ip6 }))
    }
}

request! {
    /// Sets the TOS and traffic class of BFD packets; 192 (DSCP CS6) where nothing is set.
    pub change SetTos "bfd_udp_tos_set" ["bfd udp tos"] {
        /// The byte of the IP header.
        pub tos: u8 = "<n>",
    }
}

impl Execute<Router> for SetTos {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set_tos(router, self.tos).map(Outcome::Done)
    }
}
