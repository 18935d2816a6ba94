//! Which interfaces take part, and why others do not.

use std::io;

use quiver_drivers::af_xdp::AfXdp;
use quiver_drivers::fast_path::{Input, Takers};
use quiver_graph::IfIndex;
use quiver_net::data::if_flags;
use quiver_net::{Interface, Router};

/// What an interface may do in the fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Packets that come in are looked at; or why not.
    pub input: Result<Input, String>,
    /// Largest packets of both families that may leave by it; or why none may.
    pub output: Result<[u16; 2], String>,
    /// The kernel's index of its device.
    pub device: u32,
    /// The interface's own address.
    pub mac: [u8; 6],
}

/// The driver's object of an AF_XDP interface.
pub fn af_xdp(interface: &Interface) -> Option<&AfXdp> {
    interface.port()
}

/// AF_XDP interfaces.
pub fn interfaces(router: &Router) -> Vec<IfIndex> {
    router.interfaces.iter().filter(|interface| af_xdp(interface).is_some()).map(|interface| interface.index).collect()
}

/// What an interface may do; `None` where it has no device at the moment.
pub fn part(router: &Router, index: IfIndex, takers: Option<&Takers>) -> Option<Part> {
    let interface = router.interfaces.get(index)?;
    let status = af_xdp(interface)?.status();
    let device = status.present?.index;
    let record = router.data.interfaces.get(index);
    let mac = record.mac.0;
    let is = |flag: u16| record.flags & flag != 0;
    let features = router.graph.features_of(index);
    let first_on = |arc: &str| features.iter().find(|(name, _)| *name == arc).and_then(|(_, features)| features.first());
    let on = |arc: &str| first_on(arc).map(|feature| format!("{feature} is on"));
    let never = if !status.native {
        Some("its driver does not run XDP programs".to_owned())
    } else if !is(if_flags::UP) {
        Some("it is down".to_owned())
    } else {
        None
    };
    let input = never.clone().or_else(|| {
        if is(if_flags::L2) {
            Some("it is bridged or cross-connected".to_owned())
        } else if is(if_flags::UNTAGGED) {
            Some("a sub-interface has its untagged frames".to_owned())
        } else {
            on("device-input")
        }
    });
    let (off4, off6) = (on("ip4-unicast"), on("ip6-unicast"));
    let input = input.or_else(|| match (is(if_flags::IP4), is(if_flags::IP6)) {
        (false, false) => Some("it has no addresses".to_owned()),
        (true, false) => off4.clone(),
        (false, true) => off6.clone(),
        (true, true) => off4.clone().filter(|_| off6.is_some()),
    });
    let input = match input {
        Some(why) => Err(why),
        None => Ok(Input {
            device,
            mac,
            fib4: (is(if_flags::IP4) && off4.is_none()).then_some(record.fib4),
            fib6: (is(if_flags::IP6) && off6.is_none()).then_some(record.fib6),
            unfinished: status.finishes_checksums,
        }),
    };
    let output = never.or_else(|| on("interface-output")).or_else(|| match takers.map(|takers| takers.takes(device)) {
        Some(Ok(true)) => None,
        Some(Ok(false)) => Some("its device takes no frames of others (a veth: switch GRO on at the other end)".to_owned()),
        Some(Err(error)) => Some(format!("the kernel does not say whether its device takes frames of others: {error}")),
        None => Some("the kernel does not say whether devices take frames of others (Linux 6.3)".to_owned()),
    });
    let output = match (output, on("ip4-output"), on("ip6-output")) {
        (Some(why), ..) => Err(why),
        (None, Some(why), Some(_)) => Err(why),
        (None, off4, off6) => Ok([if off4.is_some() { 0 } else { record.mtu4 }, if off6.is_some() { 0 } else { record.mtu6 }]),
    };
    Some(Part { input, output, device, mac })
}

/// Has the device of an interface run the fast path, or the plain program.
///
/// # Errors
/// The driver's.
pub fn set_member(router: &Router, index: IfIndex, fast: Option<(&quiver_drivers::fast_path::FastPath, u32)>) -> io::Result<()> {
    let Some(device) = router.interfaces.get(index).and_then(af_xdp) else { return Ok(()) };
    match fast {
        Some(_) if device.is_fast() => Ok(()),
        Some((fast, number)) => device.join(fast, number),
        None => device.leave(),
    }
}
