//! Which interfaces take part, and why others do not.

use std::io;

use quiver_drivers::af_packet::{AfPacket, Mode};
use quiver_drivers::af_xdp::AfXdp;
use quiver_drivers::fast_path::{FastPath, Input, Output};
use quiver_graph::IfIndex;
use quiver_net::data::if_flags;
use quiver_net::{Interface, Router};

use crate::control::State;

/// What an interface may do in the fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it meets packets.
    pub hook: Hook,
    /// Packets that come in are looked at; or why not.
    pub input: Result<Input, String>,
    /// Largest packets of both families that may leave by it; or why none may.
    pub output: Result<[u16; 2], String>,
    /// The kernel's index of its device.
    pub device: u32,
    /// The interface's own address.
    pub mac: [u8; 6],
    /// Its device takes frames from programs in the driver hook.
    pub takes: bool,
    /// Frames with a socket buffer go straight to the other end of its veth.
    pub direct: bool,
}

impl Part {
    /// The port as the kernel's programs see it.
    pub fn as_output(&self) -> Output {
        let [mtu4, mtu6] = self.output.clone().unwrap_or_default();
        Output { device: self.device, mac: self.mac, mtu4, mtu6, takes: self.takes, direct: self.direct }
    }

    /// Whether packets that came in by another one may leave by this one.
    pub fn lets_out(&self, other: &Self) -> bool {
        self.output.is_ok() && (self.takes || other.hook == Hook::Ingress)
    }
}

/// Where the packets of an interface meet the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// In the driver, by AF_XDP.
    Driver,
    /// Behind the packet sockets of a host interface.
    Ingress,
}

/// The hook of an interface; `None` where its kind has none.
pub fn hook(interface: &Interface) -> Option<Hook> {
    if interface.port::<AfXdp>().is_some() { Some(Hook::Driver) } else { interface.port::<AfPacket>().map(|_| Hook::Ingress) }
}

/// Interfaces with a hook that is wanted.
pub fn interfaces(router: &Router, is_wanted: impl Fn(Hook) -> bool) -> Vec<IfIndex> {
    let wanted = |interface: &&Interface| hook(interface).is_some_and(&is_wanted);
    router.interfaces.iter().filter(wanted).map(|interface| interface.index).collect()
}

/// An interface's device.
struct Device {
    hook: Hook,
    /// The kernel's index.
    index: u32,
    /// Why it can never take part.
    unfit: Option<&'static str>,
    /// A kernel at the other end leaves checksums unfinished.
    unfinished: bool,
    /// Frames are sent past the queueing discipline.
    past_queue: bool,
}

/// The device of an interface, where it has one at the moment.
fn device(interface: &Interface) -> Option<Device> {
    if let Some(port) = interface.port::<AfXdp>() {
        let status = port.status();
        let unfit = (!status.native).then_some("its driver does not run XDP programs");
        let (index, unfinished) = (status.present?.index, status.finishes_checksums);
        return Some(Device { hook: Hook::Driver, index, unfit, unfinished, past_queue: true });
    }
    let port: &AfPacket = interface.port()?;
    let unfit = (port.config().mode == Mode::Ip).then_some("it has no Ethernet header");
    // Socket buffers know of unfinished checksums.
    let (index, past_queue) = (port.device()?.index, port.config().qdisc_bypass);
    Some(Device { hook: Hook::Ingress, index, unfit, unfinished: false, past_queue })
}

/// What an interface may do; `None` where it has no device at the moment.
pub fn part(router: &Router, index: IfIndex, state: &State) -> Option<Part> {
    let interface = router.interfaces.get(index)?;
    let Device { hook, index: device, unfit, unfinished, past_queue } = device(interface)?;
    let record = router.data.interfaces.get(index);
    let mac = record.mac.0;
    let is = |flag: u16| record.flags & flag != 0;
    let features = router.graph.features_of(index);
    let first_on = |arc: &str| features.iter().find(|(name, _)| *name == arc).and_then(|(_, features)| features.first());
    let on = |arc: &str| first_on(arc).map(|feature| format!("{feature} is on"));
    let never = if let Some(why) = unfit {
        Some(why.to_owned())
    } else if !is(if_flags::UP) {
        Some("it is down".to_owned())
    } else {
        None
    };
    let input = never.clone().or_else(|| {
        if state.held && hook == Hook::Ingress {
            Some("another process takes over".to_owned())
        } else if is(if_flags::L2) {
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
            unfinished,
        }),
    };
    let takes = state.takers.as_ref().map(|takers| takers.takes(device));
    let is_taker = matches!(takes, Some(Ok(true)));
    let output = never.or_else(|| on("interface-output")).or_else(|| match takes {
        // A device takes all that has a socket buffer.
        _ if hook == Hook::Ingress || is_taker => None,
        Some(Ok(_)) => Some("its device takes no frames of others (a veth: switch GRO on at the other end)".to_owned()),
        Some(Err(error)) => Some(format!("the kernel does not say whether its device takes frames of others: {error}")),
        None => Some("the kernel does not say whether devices take frames of others (Linux 6.3)".to_owned()),
    });
    let output = match (output, on("ip4-output"), on("ip6-output")) {
        (Some(why), ..) => Err(why),
        (None, Some(why), Some(_)) => Err(why),
        (None, off4, off6) => Ok([if off4.is_some() { 0 } else { record.mtu4 }, if off6.is_some() { 0 } else { record.mtu6 }]),
    };
    let asks = state.ingress && past_queue;
    let direct = asks && state.peers.as_ref().is_some_and(|peers| peers.takes_directly(device));
    Some(Part { hook, input, output, device, mac, takes: is_taker, direct })
}

/// Has the device of an interface run the fast path, or not.
///
/// # Errors
/// The driver's.
pub fn set_member(router: &mut Router, index: IfIndex, fast: Option<(&FastPath, u32)>) -> io::Result<()> {
    let Some(interface) = router.interfaces.get_mut(index) else { return Ok(()) };
    if let Some(device) = interface.port::<AfXdp>() {
        return match fast {
            Some(_) if device.is_fast() => Ok(()),
            Some((fast, number)) => device.join(fast, number),
            None => device.leave(),
        };
    }
    match (interface.port_mut::<AfPacket>(), fast) {
        (Some(device), Some((fast, _))) if !device.is_fast() => device.join(fast),
        (Some(device), None) => {
            device.leave();
            Ok(())
        }
        _ => Ok(()),
    }
}
