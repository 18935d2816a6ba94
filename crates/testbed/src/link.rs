//! Links between hosts: veth pairs, addresses, routes, and the offloads of an interface.

use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::host::Host;
use crate::sys::{self, with_context};

/// What a veth pair is made with. Both ends are alike; MAC addresses differ.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// Receive and transmit queues of each end.
    pub queues: u32,
    /// MTU of both ends, in bytes of IP packet.
    pub mtu: u32,
    /// MAC addresses of the two ends; the kernel draws random ones for `None`.
    pub macs: [Option<[u8; 6]>; 2],
    /// Offloads of both ends.
    pub offloads: Offloads,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self { queues: 1, mtu: 1500, macs: [None; 2], offloads: Offloads::On }
    }
}

/// Whether a kernel end leaves work to the "device": checksums unfinished, TCP in super-frames of up to 64 kB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Offloads {
    /// As the kernel makes a veth.
    #[default]
    On,
    /// Complete checksums, no frame longer than the MTU, nothing merged at receive.
    Off,
}

impl Host {
    /// Joins `self` (interface `name`) with `peer` (interface `peer_name`) by a veth pair, both ends up.
    /// Calling it again after [`delete_link`](Self::delete_link) recreates the link.
    pub fn veth(&self, name: &str, peer: &Host, peer_name: &str, options: &LinkOptions) -> io::Result<()> {
        let end = |mac: Option<[u8; 6]>| {
            let address = mac.map(|m| format!(" address {}", mac_text(m))).unwrap_or_default();
            let (queues, mtu) = (options.queues.max(1), options.mtu);
            format!("mtu {mtu} numtxqueues {queues} numrxqueues {queues}{address}")
        };
        let (near, far) = (end(options.macs[0]), end(options.macs[1]));
        let far_place = peer.net_path();
        self.ip(&format!("link add {name} {near} type veth peer name {peer_name} {far} netns {far_place}\nlink set {name} up"))?;
        peer.link_up(peer_name)?;
        if options.offloads == Offloads::Off {
            self.set_offloads(name, Offloads::Off)?;
            peer.set_offloads(peer_name, Offloads::Off)?;
        }
        for (host, end) in [(self, name), (peer, peer_name)] {
            if !host.wait_for_carrier(end, Duration::from_secs(60))? {
                return Err(io::Error::other(format!("{}: {end} got no carrier", host.name())));
            }
        }
        Ok(())
    }

    /// Deletes an interface; the other end of a veth pair goes with it.
    pub fn delete_link(&self, name: &str) -> io::Result<()> {
        self.ip(&format!("link delete {name}"))
    }

    /// Takes an interface up.
    pub fn link_up(&self, name: &str) -> io::Result<()> {
        self.ip(&format!("link set {name} up"))
    }

    /// Takes an interface down; the peer loses its carrier.
    pub fn link_down(&self, name: &str) -> io::Result<()> {
        self.ip(&format!("link set {name} down"))
    }

    /// Waits until an interface that is up can also send; false when `bound` passed first. The kernel puts its queue to work
    /// some time after both ends are up, and until then drops what is sent without a word.
    pub fn wait_for_carrier(&self, name: &str, bound: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + bound;
        loop {
            let running = self.enter(|| is_running(name).map_err(|e| with_context(name, e)))?;
            if running || Instant::now() >= deadline {
                return Ok(running);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Changes the MTU of an interface.
    pub fn set_mtu(&self, name: &str, mtu: u32) -> io::Result<()> {
        self.ip(&format!("link set {name} mtu {mtu}"))
    }

    /// Adds an address with its prefix length, either family, usable at once (no duplicate address detection).
    pub fn address(&self, name: &str, prefix: &str) -> io::Result<()> {
        let nodad = if prefix.contains(':') { " nodad" } else { "" };
        self.ip(&format!("address add {prefix} dev {name}{nodad}"))
    }

    /// Adds a route: `prefix` or `default`, via a gateway address. The family follows from the gateway.
    pub fn route(&self, prefix: &str, gateway: &str) -> io::Result<()> {
        let family = if gateway.contains(':') { "-6" } else { "-4" };
        // The batch has one family flag for all lines at most, so it is given as an option of the command line here.
        self.run_args(&["ip", family, "route", "add", prefix, "via", gateway], Duration::from_secs(60))?.ok_or_error("ip route")
    }

    /// Forgets the neighbours (ARP and ND entries) of an interface.
    pub fn flush_neighbours(&self, name: &str) -> io::Result<()> {
        self.ip(&format!("neighbour flush dev {name}"))
    }

    /// Takes IPv6 off an interface, so that the kernel sends nothing by itself on it.
    pub fn disable_ipv6(&self, name: &str) -> io::Result<()> {
        self.sysctl(&format!("net.ipv6.conf.{}.disable_ipv6", name.replace('.', "/")), "1")
    }

    /// Whether the kernel takes addresses and routes from router advertisements on an interface (off after the start).
    pub fn accept_router_advertisements(&self, name: &str, on: bool) -> io::Result<()> {
        let name = name.replace('.', "/");
        // 2 accepts them on a forwarding host as well.
        self.sysctl(&format!("net.ipv6.conf.{name}.autoconf"), if on { "1" } else { "0" })?;
        self.sysctl(&format!("net.ipv6.conf.{name}.accept_ra"), if on { "2" } else { "0" })
    }

    /// MAC address of an interface.
    pub fn mac(&self, name: &str) -> io::Result<[u8; 6]> {
        let line = self.run_args(&["cat", &format!("/sys/class/net/{name}/address")], Duration::from_secs(60))?;
        parse_mac(line.stdout.trim()).ok_or_else(|| io::Error::other(format!("{}: no MAC address of {name}: {line}", self.name())))
    }

    /// Switches the checksum, scatter-gather, TSO and GSO offloads of an interface together, as `ethtool -K` does; off
    /// includes GRO.
    pub fn set_offloads(&self, name: &str, offloads: Offloads) -> io::Result<()> {
        // From ethtool's interface (linux/ethtool.h). On the way up scatter-gather and checksums come first, as the
        // segmentation offloads need them; on the way down the order does not matter: the kernel drops what depends.
        const COMMANDS: [(&str, u32); 6] = [("rx", 0x15), ("tx", 0x17), ("sg", 0x19), ("tso", 0x1f), ("gso", 0x24), ("gro", 0x2c)];
        let on = u32::from(offloads == Offloads::On);
        self.enter(|| {
            // A veth starts with GRO off; it is taken off only in case somebody had turned it on.
            let count = COMMANDS.len() - on as usize;
            for (label, command) in COMMANDS.into_iter().take(count) {
                ethtool(name, command, on).map_err(|e| with_context(format!("offload {label} of {name}"), e))?;
            }
            Ok(())
        })
    }
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// One request with a single value, answered with a single value, in the calling thread's namespace.
fn ethtool(interface: &str, command: u32, data: u32) -> io::Result<u32> {
    let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut value = EthtoolValue { command, data };
    let mut request = interface_request(interface)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL takes an ifreq whose data points to an ethtool_value; both live over the call.
    sys::check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) })?;
    Ok(value.data)
}

/// Whether the interface is up, has its carrier, and its queue is at work.
fn is_running(interface: &str) -> io::Result<bool> {
    const ETHTOOL_GLINK: u32 = 0x0a;
    // Asked first: newer kernels bring a pending change of state to its end for the answer, others within a second.
    if ethtool(interface, ETHTOOL_GLINK, 0)? == 0 {
        return Ok(false);
    }
    let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut request = interface_request(interface)?;
    // SAFETY: SIOCGIFFLAGS takes an ifreq, which lives over the call.
    sys::check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) })?;
    // SAFETY: SIOCGIFFLAGS has filled this member of the union.
    let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    Ok(flags & libc::IFF_RUNNING != 0)
}

fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: ifreq is plain C data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte stays zero as the terminator.
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("interface name {name} is too long")));
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    Ok(request)
}

pub(crate) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_round_trip() {
        let mac = [0x02, 0, 0xfe, 1, 0x7f, 0xff];
        assert_eq!(mac_text(mac), "02:00:fe:01:7f:ff");
        assert_eq!(parse_mac(&mac_text(mac)), Some(mac));
        assert_eq!(parse_mac("02:00"), None);
        assert_eq!(parse_mac("02:00:00:00:00:00:00"), None);
    }
}
