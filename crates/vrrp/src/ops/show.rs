//! What is shown of virtual routers.

use std::fmt::Write as _;
use std::net::IpAddr;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_graph::thread_name;
use quiver_net::Router;
use quiver_net::interface::ops::resolve;
use quiver_net::ip::FamilyId;
use serde::Serialize;

use crate::control::{self, Configured};
use crate::machine::State;
use crate::packet::virtual_mac;
use crate::thread::{Figures, Key};

/// A tracked interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrackedInfo {
    /// Interface.
    pub interface: String,
    /// Its number.
    pub sw_if_index: u32,
    /// What it takes from the priority while it is down.
    pub priority: u8,
    /// It is up.
    pub up: bool,
}

/// A virtual router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RouterInfo {
    /// Its number for users.
    pub index: u32,
    /// Interface.
    pub interface: String,
    /// Number of the interface.
    pub sw_if_index: u32,
    /// Its number on the link.
    pub vr_id: u8,
    /// Of IPv6.
    pub ipv6: bool,
    /// State.
    pub state: State,
    /// It takes the place of a master of lower priority.
    pub preempt: bool,
    /// Packets to its addresses are accepted.
    pub accept: bool,
    /// Advertisements go to peers.
    pub unicast: bool,
    /// Configured priority.
    pub priority: u8,
    /// Priority, less what tracked interfaces take from it.
    pub adjusted_priority: u8,
    /// Interval of advertisements, hundredths of a second.
    pub interval: u16,
    /// The master's interval, hundredths of a second.
    pub master_interval: u16,
    /// Skew time, hundredths of a second.
    pub skew: u16,
    /// Silence after which it becomes the master, hundredths of a second.
    pub master_down: u16,
    /// The other router that is the master.
    pub master: Option<IpAddr>,
    /// Virtual MAC address.
    pub mac: String,
    /// Virtual addresses.
    pub addresses: Vec<IpAddr>,
    /// Unicast peers.
    pub peers: Vec<IpAddr>,
    /// Tracked interfaces.
    pub tracked: Vec<TrackedInfo>,
    /// Advertisements received.
    pub received: u64,
    /// Advertisements sent.
    pub sent: u64,
    /// The thread that has it.
    pub thread: String,
}

fn info(router: &Router, key: &Key, configured: &Configured, figures: &Figures) -> RouterInfo {
    let settings = &configured.settings;
    let Figures { status, received, sent } = *figures;
    let tracked = |(interface, priority): (&quiver_graph::IfIndex, &u8)| TrackedInfo {
        interface: router.interfaces.name(*interface),
        sw_if_index: interface.0,
        priority: *priority,
        up: router.is_running(*interface),
    };
    RouterInfo {
        index: configured.id,
        interface: router.interfaces.name(key.interface),
        sw_if_index: key.interface.0,
        vr_id: key.vr_id,
        ipv6: key.family == FamilyId::V6,
        state: status.state,
        preempt: settings.config.preempt,
        accept: settings.accept,
        unicast: settings.unicast,
        priority: settings.config.priority,
        adjusted_priority: status.priority,
        interval: settings.config.interval,
        master_interval: status.master_interval,
        skew: status.skew,
        master_down: status.master_down,
        master: status.master,
        mac: virtual_mac(key.family, key.vr_id).to_string(),
        addresses: settings.addresses.clone(),
        peers: configured.peers.iter().map(|(peer, _)| *peer).collect(),
        tracked: configured.tracked.iter().map(tracked).collect(),
        received,
        sent,
        thread: thread_name(configured.owner),
    }
}

request! {
    /// Shows virtual routers.
    pub read ShowRouters "vrrp_vr_show" ["show vrrp vr"] {
        /// Those of this interface.
        pub interface: Option<IfRef> = "<if>",
    } ignores {
        /// The next word is the interface's number.
        "sw_if_index",
    }
}

/// The answer of [`ShowRouters`].
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Routers(pub Vec<RouterInfo>);

const fn yes(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
}

impl Text for Routers {
    fn text(&self, out: &mut String, _: &View) {
        for router in &self.0 {
            let RouterInfo { index, interface, sw_if_index, vr_id, received, sent, thread, mac, .. } = router;
            let _ = writeln!(
                out,
                "[{index}] {interface} sw_if_index {sw_if_index} VR ID {vr_id} IPv{}",
                if router.ipv6 { 6 } else { 4 }
            );
            let (preempt, accept, unicast) = (yes(router.preempt), yes(router.accept), yes(router.unicast));
            let state = router.state.name();
            let _ = writeln!(out, "   state {state} flags: preempt {preempt} accept {accept} unicast {unicast}");
            let _ = writeln!(out, "   priority: configured {} adjusted {}", router.priority, router.adjusted_priority);
            let RouterInfo { interval, master_interval, skew, master_down, .. } = router;
            let _ = writeln!(
                out,
                "   timers: adv interval {interval} master adv {master_interval} skew {skew} master down {master_down}"
            );
            let _ = writeln!(out, "   virtual MAC {mac}");
            let list = |all: &[IpAddr]| all.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ");
            let _ = writeln!(out, "   addresses {}", list(&router.addresses));
            let _ = writeln!(out, "   peer addresses {}", list(&router.peers));
            let tracked = |t: &TrackedInfo| {
                format!(
                    "{} sw_if_index {} priority {} {}",
                    t.interface,
                    t.sw_if_index,
                    t.priority,
                    if t.up { "up" } else { "down" }
                )
            };
            let _ = writeln!(out, "   tracked interfaces {}", router.tracked.iter().map(tracked).collect::<Vec<_>>().join(", "));
            let master = router.master.map_or_else(|| "-".to_owned(), |master| master.to_string());
            let _ = writeln!(out, "   other master {master}, advertisements received {received} sent {sent}, thread {thread}");
        }
    }
}

impl Execute<Router> for ShowRouters {
    type Reply = Routers;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Routers>, OpError> {
        let only = self.interface.map(|interface| resolve(router, &interface)).transpose()?;
        let figures = control::figures(router)?;
        let vrrp = router.state::<control::Vrrp>()?;
        let is = |(key, _): &(&Key, &Configured)| only.is_none_or(|only| only == key.interface);
        let of = |(key, configured): (&Key, &Configured)| Some(info(router, key, configured, figures.get(&configured.serial)?));
        let mut all: Vec<RouterInfo> = vrrp.routers().filter(is).filter_map(of).collect();
        all.sort_unstable_by_key(|router| router.index);
        Ok(Outcome::Done(Routers(all)))
    }
}
