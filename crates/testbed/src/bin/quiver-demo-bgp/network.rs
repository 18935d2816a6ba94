//! Hosts, daemons, and what forwards between them.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use quiver_testbed::{Frr, Guard, Host, LinkOptions, Router, bird};

use crate::table::{Table, text};

/// The client's address.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
/// Its MAC address.
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];
/// The router's MAC address on the client's link.
pub const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// The three links: name in the router, its address there.
const LINKS: [(&str, &str); 3] = [("r0", "10.0.1.1/24"), ("r1", "10.0.2.1/24"), ("r2", "10.0.3.1/24")];
const ROUTER_AS: u32 = 64_512;
const UPSTREAM_AS: u32 = 64_513;
const PEER_AS: u32 = 64_514;
/// After which a step hangs.
pub const BOUND: Duration = Duration::from_secs(300);
/// Between two looks.
pub const LOOK: Duration = Duration::from_millis(250);

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarder {
    /// Quiver, with its Linux side.
    Quiver,
    /// Linux itself.
    Kernel,
}

/// The whole network, but for the router's own routing daemon.
pub struct Network<'a> {
    /// Sends probes.
    pub client: Host,
    /// Announces the full table.
    pub upstream: Host,
    /// Announces a default route and more specific prefixes.
    pub peer: Host,
    /// Quiver; none: the kernel forwards.
    pub router: Option<Router>,
    /// Where the router's routing daemon lives.
    linux: Host,
    folder: &'a Path,
    _keeper: Guard,
    _bird: Guard,
    _frr: Frr,
}

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let end = Instant::now() + BOUND;
    while !holds()? {
        if Instant::now() > end {
            return Err(io::Error::other(format!("not within {} s: {what}", BOUND.as_secs())));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

impl<'a> Network<'a> {
    /// Makes it, and waits until the upstream's BIRD has its table.
    pub fn new(forwarder: Forwarder, table: &Table, folder: &'a Path) -> io::Result<Self> {
        let host = |name| Host::new(name);
        let (client, middle, upstream, peer) = (host("client")?, host("router")?, host("upstream")?, host("peer")?);
        let client_link = LinkOptions { macs: [Some(CLIENT_MAC), Some(ROUTER_MAC)], ..LinkOptions::default() };
        client.veth("eth0", &middle, "r0", &client_link)?;
        upstream.veth("eth0", &middle, "r1", &LinkOptions::default())?;
        peer.veth("eth0", &middle, "r2", &LinkOptions::default())?;
        LINKS.iter().try_for_each(|(name, _)| middle.disable_ipv6(name))?;
        client.address("eth0", "10.0.1.2/24")?;
        upstream.address("eth0", "10.0.2.2/24")?;
        peer.address("eth0", "10.0.3.2/24")?;
        let linux = if forwarder == Forwarder::Quiver { host("linux")? } else { middle.clone() };
        let keeper = linux.background("sleep 86400")?;
        let router = match forwarder {
            Forwarder::Quiver => Some(quiver(&middle, &keeper)?),
            Forwarder::Kernel => {
                LINKS.iter().try_for_each(|(name, address)| middle.address(name, address))?;
                middle.sysctl("net.ipv4.ip_forward", "1")?;
                None
            }
        };
        let frr = frr_of_peer(&peer, table)?;
        let bird = bird(&upstream, folder, "upstream", &bird_of_upstream(table, folder)?)?;
        let network = Self { client, upstream, peer, router, linux, folder, _keeper: keeper, _bird: bird, _frr: frr };
        let announced = table.upstream.len() as u64;
        until("the upstream's table", || Ok(network.routes_of_bird(&network.upstream, "upstream")? >= announced))?;
        Ok(network)
    }

    /// Starts the router's BIRD.
    pub fn start_bird(&self) -> io::Result<Guard> {
        let neighbor = |name: &str, address: &str, number: u32| {
            format!(
                "protocol bgp {name} {{ local as {ROUTER_AS}; neighbor {address} as {number}; check link yes; connect delay time 1; \
                 connect retry time 2; ipv4 {{ import all; export none; }}; }}\n"
            )
        };
        let text = "router id 10.0.1.1;\nprotocol device { scan time 1; }\n\
                    protocol kernel { ipv4 { import none; export all; }; }\n"
            .to_owned()
            + &neighbor("upstream", "10.0.2.2", UPSTREAM_AS)
            + &neighbor("peer", "10.0.3.2", PEER_AS);
        bird(&self.linux, self.folder, "router", &text)
    }

    /// Routes that the router's BIRD has.
    pub fn routes_learned(&self) -> io::Result<u64> {
        self.routes_of_bird(&self.linux, "router")
    }

    fn routes_of_bird(&self, host: &Host, name: &str) -> io::Result<u64> {
        let socket = self.folder.join(format!("{name}.ctl"));
        let shown = host.run(&format!("birdc -s {} show route count", socket.display()), BOUND)?.stdout;
        // "BIRD 2.0.12 ready." and "901899 of 901899 routes for …"; none while it still reads its configuration.
        let line = shown.lines().find(|line| line.contains(" routes for "));
        Ok(line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0))
    }

    /// Prefixes that packets are forwarded by.
    pub fn routes(&self) -> io::Result<u64> {
        match &self.router {
            Some(router) => {
                let shown = router.cli("show ip fib summary").map_err(io::Error::other)?;
                let rows = shown.lines().skip_while(|line| !line.contains("Prefix length")).skip(1);
                let counts = rows.map_while(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
                Ok(counts.sum())
            }
            None => {
                let shown = self.linux.run("cat /proc/net/fib_triestat", BOUND)?.stdout;
                // Both of its tables are one.
                let line = shown.lines().find_map(|line| line.trim().strip_prefix("Prefixes:"));
                Ok(line.and_then(|count| count.trim().parse().ok()).unwrap_or(0))
            }
        }
    }
}

/// Quiver in a host, with a host interface for each link in the keeper's namespace.
fn quiver(middle: &Host, keeper: &Guard) -> io::Result<Router> {
    let router = Router::start(middle, "cpu { workers 1 }\nbuffers { buffers-per-numa 16384 }")?;
    let mut commands = format!("lcp default netns pid:{}\nlcp lcp-sync on\n", keeper.pid());
    for (name, address) in LINKS {
        let mac = if name == "r0" { " hw-addr 02:00:00:00:01:01" } else { "" };
        let _ = write!(
            commands,
            "create host-interface name {name}{mac}\nset interface state host-{name} up\n\
             lcp create host-{name} host-if e{}\nset interface ip address host-{name} {address}\n",
            &name[1..]
        );
    }
    router.script(&commands).map_err(io::Error::other)?;
    Ok(router)
}

fn bird_of_upstream(table: &Table, folder: &Path) -> io::Result<String> {
    fs::create_dir_all(folder)?;
    let file = folder.join("full-table");
    let lines: String = table.upstream.iter().map(|prefix| format!("route {} blackhole;\n", text(prefix))).collect();
    fs::write(&file, lines)?;
    Ok(format!(
        "router id 10.0.2.2;\nprotocol device {{ scan time 1; }}\nprotocol static full {{ ipv4;\ninclude \"{}\";\n}}\n\
         protocol bgp {{ local as {UPSTREAM_AS}; neighbor 10.0.2.1 as {ROUTER_AS}; passive yes; \
         ipv4 {{ import none; export all; }}; }}\n",
        file.display()
    ))
}

/// FRR at the peer: BGP with the prefixes that are its own, and a default route.
fn frr_of_peer(peer: &Host, table: &Table) -> io::Result<Frr> {
    let networks: String = table.peer.iter().map(|prefix| format!("  network {}\n", text(prefix))).collect();
    let bgp = format!(
        "router bgp {PEER_AS}\n bgp router-id 10.0.3.2\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
         neighbor 10.0.3.1 remote-as {ROUTER_AS}\n neighbor 10.0.3.1 passive\n \
         address-family ipv4 unicast\n  neighbor 10.0.3.1 default-originate\n{networks} exit-address-family\n"
    );
    let mut frr = Frr::new(peer)?;
    frr.start("zebra", "", "")?;
    frr.start("bgpd", &bgp, "")?;
    Ok(frr)
}
