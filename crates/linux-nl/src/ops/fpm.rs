//! `lcp fpm listen`, `show lcp fpm`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddrV4;
use std::time::Duration;

use quiver_command::configuration::Configuration;
use quiver_command::grammar::Args;
use quiver_command::operation::{OpError, Outcome, Text, View, retval};
use quiver_command::request;
use quiver_command::request::{Argument, Execute, Value};
use quiver_net::Router;
use serde::{Deserialize, Serialize};

use super::{part, protocol};
use crate::control::{LinuxNl, name};
use crate::figures::FpmStream;
use crate::fpm::{FpmConfig, HOLD_TIME, parse_address};

/// Where routing daemons connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FpmAddress(SocketAddrV4);

impl Value for FpmAddress {
    const KIND: &'static str = "IPv4 address and port";

    fn take(args: &mut Args<'_>, argument: &Argument, _: usize) -> Result<Self, OpError> {
        let word = args.word(argument.what())?;
        let address = parse_address(&word);
        address
            .map(Self)
            .ok_or_else(|| OpError::invalid(argument.what(), word, "an IPv4 address with a port, such as 127.0.0.1:2620"))
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

request! {
    /// Listens for a routing daemon that sends its routes by itself (FRR's forwarding plane manager), in each namespace with host interfaces.
    pub change SetFpm "lcp_fpm_listen" ["lcp fpm listen"] {
        /// Address and port (2620 where absent), or `off`.
        pub address: Option<FpmAddress> = "<address>|off" required(),
        /// How long routes stay without the daemon that sent them, seconds.
        pub hold_time: u32 = "hold-time <seconds>" default(120) range(0..=86_400),
    }
}

const _: () = assert!(HOLD_TIME == 120 && crate::fpm::HOLD_TIME_MOST == 86_400, "as the request says");

impl Execute<Router> for SetFpm {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        part(router)?;
        let Some(mut own) = router.take_part::<LinuxNl>() else { return Ok(Outcome::Done(())) };
        let hold = Duration::from_secs(self.hold_time.into());
        let config = self.address.map(|address| FpmConfig { address: address.0, hold });
        let done = own.set_fpm(router, config);
        router.add_part(own);
        let failed = |error: std::io::Error| {
            let address = self.address.map(|address| address.text()).unwrap_or_default();
            OpError::new(retval::SYSCALL_ERROR_1, format!("listening on {address}: {error}"))
        };
        done.map(Outcome::Done).map_err(failed)
    }
}

/// What `show configuration` has of it.
pub(super) fn settings(router: &Router, out: &mut Configuration<Router>) {
    if let Some(config) = router.part::<LinuxNl>().and_then(|own| own.fpm) {
        let off = SetFpm { address: None, hold_time: HOLD_TIME };
        let listen = SetFpm { address: Some(FpmAddress(config.address)), hold_time: config.hold.as_secs() as u32 };
        out.push(&listen).undo(&off).replaced();
    }
}

request! {
    /// Shows routing daemons that send their routes by themselves.
    pub read ShowFpm "lcp_fpm_show" ["show lcp fpm"] {}
}

/// The answer of [`ShowFpm`].
#[derive(Debug, Clone, Default, Serialize)]
pub struct FpmInfo {
    /// Address and port; none: it is off.
    pub address: Option<String>,
    /// How long routes stay without the daemon that sent them, seconds.
    pub hold_time: u64,
    /// Namespaces.
    pub namespaces: Vec<FpmNamespace>,
}

/// The stream of a namespace.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FpmNamespace {
    /// Its name; none: the router's own.
    pub namespace: Option<String>,
    /// `listening`, `connected`, or why it does not listen.
    pub state: String,
    /// What has come.
    #[serde(flatten)]
    pub stream: FpmStream,
    /// Routes by protocol.
    pub routes: BTreeMap<String, u64>,
    /// Next-hop objects.
    pub next_hop_objects: usize,
    /// Seconds until routes go that are not sent again; none where all are sent.
    pub hold_seconds: Option<u64>,
    /// How many these are.
    pub held: u64,
    /// Routes that have gone so.
    pub expired: u64,
}

impl Text for FpmInfo {
    fn text(&self, out: &mut String, _: &View) {
        match &self.address {
            Some(address) => drop(writeln!(out, "fpm listen {address} hold-time {}", self.hold_time)),
            None => drop(writeln!(out, "fpm listen off")),
        }
        for n in &self.namespaces {
            let FpmStream { peer, connections, frames, messages, malformed, ignored, too_many, refused_streams, last_end } =
                &n.stream;
            let peer = peer.as_ref().map(|peer| format!(" from {peer}")).unwrap_or_default();
            let _ = writeln!(out, "namespace {}: {}{peer}", name(&n.namespace), n.state);
            let _ = writeln!(out, "  connections: {connections}, refused {refused_streams}");
            if let Some(why) = last_end {
                let _ = writeln!(out, "  the last one ended: {why}");
            }
            let _ = writeln!(
                out,
                "  {frames} frames, {messages} messages, {malformed} malformed, {ignored} ignored, {too_many} too many"
            );
            let routes: Vec<String> = n.routes.iter().map(|(protocol, count)| format!("{protocol} {count}")).collect();
            let routes = if routes.is_empty() { "none".to_owned() } else { routes.join(", ") };
            let _ = writeln!(out, "  routes: {routes}; next-hop objects {}", n.next_hop_objects);
            if let Some(seconds) = n.hold_seconds {
                let _ = writeln!(out, "  hold time: {} routes that are not sent again go in {seconds} s", n.held);
            }
            if n.expired > 0 {
                let _ = writeln!(out, "  expired: {} routes", n.expired);
            }
        }
    }
}

impl Execute<Router> for ShowFpm {
    type Reply = FpmInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, FpmInfo>, OpError> {
        let own = part(router)?;
        let Some(config) = own.fpm else { return Ok(Outcome::Done(FpmInfo::default())) };
        let namespaces = own.readers.iter().map(|(namespace, follower)| {
            let f = follower.figures().fpm;
            let state = match (&follower.fpm_failed, &f.stream.peer, &f.address) {
                (Some(why), ..) => format!("not listening: {why}"),
                (None, Some(_), _) => "connected".to_owned(),
                (None, None, Some(_)) => "listening".to_owned(),
                (None, None, None) => "starting".to_owned(),
            };
            FpmNamespace {
                namespace: namespace.clone(),
                state,
                stream: f.stream,
                routes: f.by_protocol.iter().map(|(number, count)| (protocol(*number), *count)).collect(),
                next_hop_objects: f.objects,
                hold_seconds: f.hold.map(|hold| hold.as_secs()),
                held: f.held,
                expired: f.expired,
            }
        });
        let namespaces = namespaces.collect();
        Ok(Outcome::Done(FpmInfo { address: Some(config.address.to_string()), hold_time: config.hold.as_secs(), namespaces }))
    }
}
