//! The plugin's process: takes what workers have put into ports' boxes, sends what is due, forgets who has fallen silent.

use quiver_graph::IfIndex;
use quiver_net::{Interface, Router};

use crate::agent::{News, SECOND};
use crate::control::{self, Lldp, Port};
use crate::pdu::{Info, Unit};

/// Name of the process.
pub(crate) const NAME: &str = "lldp-process";
/// Ports served in one call: some 50 µs.
const STEP: usize = 4;
/// Bells heard in one call.
const BELLS: usize = 64;
/// A port's box is emptied so often, ns.
const EMPTYING: u64 = SECOND / 10;

/// One call; says when to call next.
pub(crate) fn run(router: &mut Router, now: u64) -> u64 {
    let Some(lldp) = router.part_mut::<Lldp>() else { return u64::MAX };
    for index in lldp.bell.clone().try_iter().take(BELLS) {
        if let Some(port) = lldp.ports.get_mut(&index.0) {
            port.mail_due = now.max(port.emptied + EMPTYING);
            lldp.settle(index.0);
        }
    }
    for _ in 0..STEP {
        let Some(index) = lldp_due(router, now) else { break };
        serve(router, IfIndex(index), now);
    }
    let Some(lldp) = router.part::<Lldp>() else { return u64::MAX };
    if !lldp.bell.is_empty() {
        return now;
    }
    lldp.queue.first().map_or(u64::MAX, |(due, _)| *due)
}

fn lldp_due(router: &Router, now: u64) -> Option<u32> {
    router.part::<Lldp>()?.queue.first().filter(|(due, _)| *due <= now).map(|(_, index)| *index)
}

fn serve(router: &mut Router, index: IfIndex, now: u64) {
    let name = router.interfaces.name(index);
    let Some(lldp) = router.part_mut::<Lldp>() else { return };
    let interval = lldp.interval;
    let Some(port) = lldp.ports.get_mut(&index.0) else { return };
    if port.mail_due <= now {
        (port.mail_due, port.emptied) = (u64::MAX, now);
        port.inbox.unlist();
        for heard in port.mail.clone().try_iter().take(crate::node::BOX) {
            // The node has read it already.
            let Ok(unit) = Unit::parse(heard.bytes()) else { continue };
            let news = port.agent.hear(&unit, now);
            tell(port, &name, &unit, &news, now);
        }
    }
    for info in port.agent.expire(now) {
        say(port, now, || format!("{name}: {} has been silent for {} s", called(&info), info.ttl));
    }
    let sends = port.agent.sends(interval, now);
    lldp.settle(index.0);
    if sends {
        send(router, index);
    }
}

fn send(router: &mut Router, index: IfIndex) {
    let Some(local) = control::local(router, index) else { return };
    let Some(interface) = router.interfaces.get(index) else { return };
    let written = local.frame(Interface::link_mac(interface), interface.max_frame as usize);
    if let Some(port) = router.part_mut::<Lldp>().and_then(|lldp| lldp.ports.get_mut(&index.0)) {
        port.agent.counts.length_errors += u64::from(written.omitted > 0);
    }
    router.send_frames(vec![(index, written.frame)]);
}

/// A neighbour's name, and where it is.
fn called(info: &Info) -> String {
    let Info { chassis, port, system_name, .. } = info;
    match system_name {
        Some(name) => format!("neighbor {name} ({chassis}, port {port})"),
        None => format!("neighbor {chassis}, port {port},"),
    }
}

fn tell(port: &mut Port, name: &str, unit: &Unit<'_>, news: &News, now: u64) {
    let called = |unit: &Unit<'_>| called(&Info::from(unit));
    match news {
        News::New => say(port, now, || format!("{name}: {} is there", called(unit))),
        News::Changed => say(port, now, || format!("{name}: {} has changed", called(unit))),
        News::Gone(info) => say(port, now, || format!("{name}: {} speaks no more", self::called(info))),
        News::TooMany => say(port, now, || format!("{name}: no room for {}", called(unit))),
        News::Same | News::Unknown => {}
    }
}

/// Writes a line into the log, unless there were too many.
fn say(port: &mut Port, now: u64, line: impl FnOnce() -> String) {
    if !port.lines.take(now) {
        port.unsaid += 1;
        return;
    }
    match std::mem::take(&mut port.unsaid) {
        0 => tracing::info!(target: "lldp", "{}", line()),
        unsaid => tracing::info!(target: "lldp", "{} ({unsaid} changes before were not logged)", line()),
    }
}
