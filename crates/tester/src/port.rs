//! Ports: how they are written, and how they are opened.

use std::fmt;
use std::str::FromStr;

use quiver_wire::{IpPrefix, MacAddr};

use crate::profile::{Field, Stream, Vlan};

/// What a port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Memory shared with another process.
    Memif {
        /// The Unix socket.
        socket: String,
        /// Number on the socket.
        id: u32,
        /// Listens, rather than connects.
        server: bool,
        /// Carries IP packets rather than Ethernet frames.
        ip: bool,
        /// Descriptors of a ring, a power of two.
        ring: u32,
        /// The same of rings that bring frames back.
        rx_ring: u32,
    },
    /// A packet socket on a device of the kernel.
    AfPacket(String),
    /// AF_XDP sockets on a device of the kernel.
    AfXdp(String),
    /// A TAP device that is made.
    Tap(String),
    /// Programs in the kernel, on a device of it.
    Xdp(String),
    /// A device of DPDK's: a PCI address, or a virtual device with its arguments.
    Dpdk(String),
}

impl Engine {
    /// What results call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Memif { .. } => "memif",
            Self::AfPacket(_) => "af-packet",
            Self::AfXdp(_) => "af-xdp",
            Self::Tap(_) => "tap",
            Self::Xdp(_) => "xdp",
            Self::Dpdk(_) => "dpdk",
        }
    }
}

/// The tags that a port's gateway and its own addresses lie behind, outermost first; none for an untagged link.
///
/// Of two, the outer one is a service tag (IEEE 802.1ad).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(Vec<u16>);

impl Tags {
    /// Each with its VLAN number, and whether it is a service tag.
    pub fn all(&self) -> impl Iterator<Item = (u16, bool)> {
        self.0.iter().enumerate().map(|(i, id)| (*id, i + 1 < self.0.len()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same for streams.
    pub fn of_stream(&self) -> Vec<Vlan> {
        self.all().map(|(id, service)| Vlan { id: Field::Fixed(id), priority: 0, service }).collect()
    }

    /// Whether all frames of a stream carry them, and no others.
    pub fn are_those_of(&self, stream: &Stream) -> bool {
        let same = |(tag, (id, service)): (&Vlan, (u16, bool))| tag.id == Field::Fixed(id) && tag.service == service;
        stream.vlan.len() == self.0.len() && stream.vlan.iter().zip(self.all()).all(same)
    }
}

impl FromStr for Tags {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let id = |word: &str| word.parse().ok().filter(|id| (1..=4094).contains(id)).ok_or(());
        let ids: Vec<u16> = text.split('.').map(id).collect::<Result<_, ()>>()?;
        if ids.len() > 2 { Err(()) } else { Ok(Self(ids)) }
    }
}

impl fmt::Display for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<String> = self.0.iter().map(u16::to_string).collect();
        f.write_str(&ids.join("."))
    }
}

/// A port, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// The text.
    pub text: String,
    /// What it is.
    pub engine: Engine,
    /// Hardware address; drawn at random where there is none.
    pub mac: Option<MacAddr>,
    /// Addresses that it answers for as its own.
    pub addresses: Vec<IpPrefix>,
    /// Further prefixes whose addresses it answers for.
    pub answers: Vec<IpPrefix>,
    /// Tags that these and the gateway lie behind.
    pub vlan: Tags,
    /// Next hop, whose hardware address is asked for.
    pub gateway: Option<std::net::IpAddr>,
    /// Hardware address of the next hop, where nobody is to be asked.
    pub dst_mac: Option<MacAddr>,
    /// Cores of the threads that send.
    pub tx_cores: Vec<u32>,
    /// Cores of the threads that receive: queues of the device go to them in turn.
    pub rx_cores: Vec<u32>,
}

/// Why a text is no port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port `{text}': {error}")]
pub struct PortError {
    text: String,
    error: String,
}

impl FromStr for PortSpec {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, PortError> {
        parse(text).map_err(|error| PortError { text: text.to_owned(), error })
    }
}

fn value<T: FromStr>(key: &str, text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{key}={text} is not {what}"))
}

/// Most descriptors of a ring of memif.
const RING_MAX: u32 = 1 << 14;

fn parse(text: &str) -> Result<PortSpec, String> {
    let kinds = "memif:socket=PATH,id=0,role=server|client, af-packet:DEVICE, af-xdp:DEVICE, xdp:DEVICE, tap:NAME or dpdk:DEVICE";
    let (kind, rest) = text.split_once(':').ok_or_else(|| format!("no kind of port; there are {kinds}"))?;
    let mut words = rest.split(',').filter(|w| !w.is_empty()).peekable();
    let (mut socket, mut id, mut server, mut ip, mut ring, mut rx_ring) = (None, 0, None, false, 1024_u32, None);
    let device = |words: &mut std::iter::Peekable<_>| -> Result<String, String> {
        let word: Option<&str> = words.next_if(|w: &&str| !w.contains('='));
        word.map(str::to_owned).ok_or_else(|| format!("a device's name is missing: {kind}:DEVICE"))
    };
    let engine = match kind {
        "memif" => None,
        "af-packet" => Some(Engine::AfPacket(device(&mut words)?)),
        "af-xdp" => Some(Engine::AfXdp(device(&mut words)?)),
        "tap" => Some(Engine::Tap(device(&mut words)?)),
        "xdp" => Some(Engine::Xdp(device(&mut words)?)),
        "dpdk" => Some(Engine::Dpdk(device(&mut words)?)),
        _ => return Err(format!("`{kind}' is no kind of port; there are {kinds}")),
    };
    let mut spec = PortSpec {
        text: text.to_owned(),
        engine: engine.clone().unwrap_or(Engine::Tap(String::new())),
        mac: None,
        addresses: Vec::new(),
        answers: Vec::new(),
        vlan: Tags::default(),
        gateway: None,
        dst_mac: None,
        tx_cores: Vec::new(),
        rx_cores: Vec::new(),
    };
    for word in words {
        let (key, text) = word.split_once('=').ok_or_else(|| format!("`{word}' is no key=value"))?;
        match (key, engine.is_none()) {
            ("socket", true) => socket = Some(text.to_owned()),
            ("id", true) => id = value(key, text, "a number")?,
            ("ring", true) => ring = value(key, text, "a power of two up to 16384")?,
            ("rx-ring", true) => rx_ring = Some(value(key, text, "a power of two up to 16384")?),
            ("role", true) => {
                server = Some(match text {
                    "server" => true,
                    "client" => false,
                    _ => return Err(format!("role={text}: it is server or client")),
                });
            }
            ("mode", true) => {
                ip = match text {
                    "ip" => true,
                    "ethernet" => false,
                    _ => return Err(format!("mode={text}: it is ethernet or ip")),
                };
            }
            ("mac", _) => spec.mac = Some(value(key, text, "an Ethernet address")?),
            ("dst-mac", _) => spec.dst_mac = Some(value(key, text, "an Ethernet address")?),
            ("ip4" | "ip6", _) => {
                let prefix: IpPrefix = value(key, text, "an address with its prefix length, such as 192.0.2.1/24")?;
                if prefix.addr().is_ipv4() != (key == "ip4") {
                    return Err(format!("{key}={text} is an address of the other family"));
                }
                spec.addresses.push(prefix);
            }
            ("answer", _) => spec.answers.push(value(key, text, "a prefix")?),
            ("vlan", _) => spec.vlan = value(key, text, "one or two VLAN numbers from 1 to 4094, such as 100 or 100.200")?,
            ("gateway", _) => spec.gateway = Some(value(key, text, "an address")?),
            ("tx-core", _) => spec.tx_cores.push(value(key, text, "a core's number")?),
            ("rx-core", _) => spec.rx_cores.push(value(key, text, "a core's number")?),
            _ => {
                if let Engine::Dpdk(devargs) = &mut spec.engine {
                    // What is not ours is for DPDK's driver.
                    devargs.push(',');
                    devargs.push_str(word);
                    continue;
                }
                let own = if engine.is_none() { "socket, id, role, mode, ring, rx-ring, " } else { "" };
                return Err(format!(
                    "`{key}' is no key of a {kind} port; there are {own}mac, dst-mac, ip4, ip6, answer, vlan, gateway, tx-core, rx-core"
                ));
            }
        }
    }
    if engine.is_none() {
        let socket = socket.ok_or("socket=PATH is missing")?;
        let server = server.ok_or("role=server or role=client is missing")?;
        // A device that comes back after a while empties the one ring at once: there must be room for all of it in the other.
        let rx_ring = rx_ring.unwrap_or_else(|| ring.saturating_mul(2).min(RING_MAX).max(ring));
        spec.engine = Engine::Memif { socket, id, server, ip, ring, rx_ring };
    }
    if ip && !spec.vlan.is_empty() {
        return Err("a port of mode=ip has no tags: leave out vlan".to_owned());
    }
    if spec.gateway.is_some_and(|g| spec.addresses.iter().all(|p| p.addr().is_ipv4() != g.is_ipv4())) {
        return Err("a gateway needs an address of the port's own in its family: ip4=… or ip6=…".to_owned());
    }
    if matches!(spec.engine, Engine::Xdp(_)) && spec.rx_cores.len() > 1 {
        return Err("an xdp port receives on one core: give rx-core once".to_owned());
    }
    Ok(spec)
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.engine {
            Engine::Memif { socket, id, .. } => write!(f, "memif:{socket},{id}"),
            Engine::AfPacket(name) | Engine::AfXdp(name) | Engine::Tap(name) | Engine::Xdp(name) => {
                write!(f, "{}:{name}", self.engine.name())
            }
            Engine::Dpdk(devargs) => write!(f, "dpdk:{}", devargs.split(',').next().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_the_documents_write_them() {
        let port: PortSpec =
            "memif:socket=/run/m.sock,id=3,role=client,mode=ip,ip4=192.0.2.1/24,gateway=192.0.2.9,tx-core=1".parse().unwrap();
        let engine = Engine::Memif { socket: "/run/m.sock".to_owned(), id: 3, server: false, ip: true, ring: 1024, rx_ring: 2048 };
        assert_eq!((port.engine, port.tx_cores, port.rx_cores), (engine, vec![1], vec![]));
        assert_eq!(port.gateway, "192.0.2.9".parse().ok());
        let port: PortSpec = "af-packet:veth0,mac=02:00:00:00:00:01,dst-mac=02:00:00:00:00:02,answer=10.0.0.0/8".parse().unwrap();
        assert_eq!((port.to_string().as_str(), &port.engine), ("af-packet:veth0", &Engine::AfPacket("veth0".to_owned())));
        assert_eq!(port.answers.len(), 1);
        let port: PortSpec = "dpdk:net_af_packet0,iface=veth0,tx-core=2,qpairs=1,ip4=192.0.2.1/24".parse().unwrap();
        assert_eq!(port.engine, Engine::Dpdk("net_af_packet0,iface=veth0,qpairs=1".to_owned()));
        assert_eq!((port.to_string().as_str(), port.tx_cores, port.addresses.len()), ("dpdk:net_af_packet0", vec![2], 1));
        for (text, all) in [("100", vec![(100, false)]), ("100.200", vec![(100, true), (200, false)])] {
            let port: PortSpec = format!("tap:t0,vlan={text}").parse().unwrap();
            assert_eq!((port.vlan.all().collect::<Vec<_>>(), port.vlan.to_string().as_str()), (all, text));
            let mut stream = Stream::named("s");
            assert!(!port.vlan.are_those_of(&stream));
            stream.vlan = port.vlan.of_stream();
            assert!(port.vlan.are_those_of(&stream) && !Tags::default().are_those_of(&stream));
            stream.vlan[0].service = !stream.vlan[0].service;
            assert!(!port.vlan.are_those_of(&stream));
        }
        let port: PortSpec = "dpdk:0000:01:00.0,mac=02:00:00:00:00:01".parse().unwrap();
        assert_eq!(port.engine, Engine::Dpdk("0000:01:00.0".to_owned()));
    }

    #[test]
    fn what_is_no_port_is_refused_with_what_would_be_one() {
        for (text, words) in [
            ("veth0", "no kind of port"),
            ("pktgen:x", "`pktgen' is no kind of port"),
            ("dpdk:iface=veth0", "a device's name is missing"),
            ("dpdk:net_tap0,fast", "no key=value"),
            ("memif:id=1,role=server", "socket=PATH is missing"),
            ("memif:socket=/x", "role=server or role=client"),
            ("memif:socket=/x,role=master", "it is server or client"),
            ("memif:socket=/x,role=server,id=x", "id=x is not a number"),
            ("af-packet:", "a device's name is missing"),
            ("af-packet:mac=02:00:00:00:00:01", "a device's name is missing"),
            ("tap:t0,role=server", "`role' is no key of a tap port"),
            ("tap:t0,ip4=2001:db8::1/64", "other family"),
            ("tap:t0,gateway=192.0.2.1", "needs an address"),
            ("tap:t0,fast", "no key=value"),
            ("tap:t0,vlan=0", "one or two VLAN numbers from 1 to 4094"),
            ("tap:t0,vlan=1.2.3", "one or two VLAN numbers"),
            ("memif:socket=/x,role=server,mode=ip,vlan=7", "has no tags"),
            ("xdp:", "a device's name is missing"),
            ("xdp:veth0,rx-core=0,rx-core=1", "give rx-core once"),
        ] {
            let error = text.parse::<PortSpec>().unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(text) && !error.contains('\n'), "{error}");
        }
    }
}
