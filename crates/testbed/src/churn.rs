//! A router between packet generators whose routes come from an [`Announcer`]: route loads and churn, with packets meanwhile.
//!
//! ```text
//!   pg0 ──► router ──► pg1, pg2: 64 neighbours
//!             │ p1, p2
//!           Linux, the announcer
//! ```
//!
//! A default route leads to the first neighbour, so that a packet is forwarded whatever the announcer says: each one that does not come
//! out is lost.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use quiver_tables::synth::{self, Random};
use quiver_wire::MacAddr;
use quiver_wire::build::Packet;
use quiver_wire::pcapfile::{LinkType, Writer};

use crate::announce::{Announcement, Announcer};
use crate::{Guard, Host, Router};

/// Where the router listens for the announcer's stream.
pub const FPM: &str = "127.0.0.1:2620";
/// Neighbours, half of them on each interface. Numbers begin at 2.
pub const NEIGHBORS: u8 = 64;
/// Frames that are sent again and again.
const FRAMES: usize = 16_384;
const PG0: MacAddr = MacAddr([2, 0, 0, 0, 9, 0]);
/// After which a wait hangs.
const BOUND: Duration = Duration::from_secs(300);

/// Prefixes of both families.
#[derive(Clone, Debug, Default)]
pub struct Prefixes {
    /// IPv4.
    pub four: Vec<(u32, u8)>,
    /// IPv6.
    pub six: Vec<(u128, u8)>,
}

impl Prefixes {
    /// Real full tables where they are, cut to so many prefixes of each family; and where they come from, in a word.
    pub fn full(most: usize) -> (Self, &'static str) {
        let (mut four, origin) = synth::full_table4();
        let (mut six, _) = synth::full_table6();
        // Networks that are the scene's own, or nobody's.
        four.retain(|(address, len)| {
            *len > 0 && (1..224).contains(&(address >> 24)) && ![10, 127, 192, 203].contains(&(address >> 24))
        });
        six.retain(|(address, len)| *len > 0 && address >> 125 == 1 && address >> 96 != 0x2001_0db8);
        four.truncate(most);
        six.truncate(most);
        (Self { four, six }, origin)
    }

    /// All of them.
    pub fn len(&self) -> usize {
        self.four.len() + self.six.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The router and what is around it.
pub struct Scene {
    /// The router.
    pub router: Router,
    /// Its Linux side.
    pub linux: Host,
    prefixes: Prefixes,
    /// Neighbour of each prefix as announced last; none: withdrawn.
    now: Vec<Option<u8>>,
    links: [u32; 2],
    _keeper: Guard,
}

/// What a neighbour is called.
fn via4(neighbor: u8) -> [u8; 4] {
    [203, 0, 113 + neighbor % 2, 2 + neighbor / 2]
}

fn via6(neighbor: u8) -> [u8; 16] {
    Ipv6Addr::new(0x2001, 0xdb8, 1 + u16::from(neighbor % 2), 0, 0, 0, 0, 2 + u16::from(neighbor / 2)).octets()
}

impl Scene {
    /// Starts it, with further sections of `startup.conf`.
    ///
    /// # Errors
    /// The operating system's or the router's.
    pub fn new(prefixes: Prefixes, conf: &str) -> io::Result<Self> {
        let (middle, linux) = (Host::new("router")?, Host::new("linux")?);
        let keeper = linux.background("sleep 86400")?;
        let router = Router::start(&middle, conf)?;
        let mut commands =
            format!("lcp default netns pid:{}\nlcp lcp-sync on\nlcp fpm listen {FPM} hold-time 3600\n", keeper.pid());
        for (name, more) in [("pg0", format!(" hw-addr {PG0}")), ("pg1", String::new()), ("pg2", String::new())] {
            let _ = writeln!(commands, "create packet-generator interface {name}{more}\nset interface state {name} up");
        }
        commands += "set interface ip address pg0 192.0.2.1/24\nset interface ip address pg0 2001:db8::1/64\n";
        for n in 1..=2 {
            let _ = writeln!(commands, "set interface ip address pg{n} 203.0.{}.1/24", 112 + n);
            let _ = writeln!(commands, "set interface ip address pg{n} 2001:db8:{n}::1/64\nlcp create pg{n} host-if p{n}");
        }
        for neighbor in 0..NEIGHBORS {
            let (interface, mac) = (1 + neighbor % 2, format!("02:00:00:00:0a:{neighbor:02x}"));
            let _ = writeln!(commands, "set ip neighbor pg{interface} {} {mac} static", Ipv4Addr::from(via4(neighbor)));
            let _ = writeln!(commands, "set ip neighbor pg{interface} {} {mac} static", Ipv6Addr::from(via6(neighbor)));
        }
        let _ = writeln!(commands, "ip route add 0.0.0.0/0 via {} pg1", Ipv4Addr::from(via4(0)));
        let _ = writeln!(commands, "ip route add ::/0 via {} pg1", Ipv6Addr::from(via6(0)));
        let file = router.file("churn.cli");
        fs::create_dir_all(router.file(""))?;
        fs::write(&file, commands)?;
        router.cli(&format!("exec {}", file.display())).map_err(io::Error::other)?;
        let index = |name: &str| -> io::Result<u32> {
            let text = linux.run_args(&["cat", &format!("/sys/class/net/{name}/ifindex")], BOUND)?.stdout;
            text.trim().parse().map_err(io::Error::other)
        };
        let links = [index("p1")?, index("p2")?];
        let now = vec![None; prefixes.len()];
        let scene = Self { router, linux, prefixes, now, links, _keeper: keeper };
        scene.write_frames()?;
        Ok(scene)
    }

    /// Frames to random destinations in the prefixes, a quarter of them of IPv6 where there are such.
    fn write_frames(&self) -> io::Result<()> {
        let n6 = if self.prefixes.six.is_empty() { 0 } else { FRAMES / 4 };
        let four = synth::addresses4(&self.prefixes.four, FRAMES - n6, 42);
        let six = synth::addresses6(&self.prefixes.six, n6, 43);
        let mut file = Writer::new(BufWriter::new(File::create(self.router.file("churn.pcap"))?), LinkType::ETHERNET)?;
        let packet = || Packet::ethernet(MacAddr([2, 0, 0, 0, 9, 1]), PG0);
        for at in 0..FRAMES {
            let packet = match six.get(at / 4).filter(|_| n6 > 0 && at % 4 == 3) {
                Some(address) => packet().ipv6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2), Ipv6Addr::from(*address)),
                None => packet().ipv4([192, 0, 2, 2], Ipv4Addr::from(four[at % four.len()])),
            };
            let frame = packet.udp(1024, 1024 + (at % 1000) as u16).payload_len(18).build();
            file.write(0, &frame, frame.len())?;
        }
        file.flush()
    }

    /// Prefixes.
    pub fn len(&self) -> usize {
        self.now.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.now.is_empty()
    }

    /// Who announces, by the stream or to the kernel.
    ///
    /// # Errors
    /// The operating system's: nobody listens.
    pub fn announcer(&self, by_stream: bool) -> io::Result<Announcer> {
        if by_stream {
            self.until("the router listens", || Announcer::to_fpm(&self.linux, FPM).ok().ok_or_else(String::new))
        } else {
            Announcer::to_kernel(&self.linux)
        }
    }

    /// Announces a prefix by this neighbour, or withdraws it.
    ///
    /// # Errors
    /// The listener's.
    pub fn say(&mut self, to: &mut Announcer, at: usize, neighbor: Option<u8>) -> io::Result<()> {
        let before = std::mem::replace(&mut self.now[at], neighbor);
        let link = self.links[usize::from(neighbor.or(before).unwrap_or(0) % 2)];
        let (address, len, via) = match self.prefixes.four.get(at) {
            Some((address, len)) => (address.to_be_bytes().to_vec(), *len, via4(neighbor.unwrap_or(0)).to_vec()),
            None => {
                let (address, len) = self.prefixes.six[at - self.prefixes.four.len()];
                (address.to_be_bytes().to_vec(), len, via6(neighbor.unwrap_or(0)).to_vec())
            }
        };
        let route = Announcement { network: &address, len, link, via: &via };
        if neighbor.is_some() { to.announce(&route) } else { to.withdraw(&route) }
    }

    /// The neighbour that a prefix has at first.
    fn first(at: usize) -> u8 {
        (at % usize::from(NEIGHBORS)) as u8
    }

    /// Announces all prefixes by their first neighbours, where they have others.
    ///
    /// # Errors
    /// The listener's.
    pub fn announce_all(&mut self, to: &mut Announcer) -> io::Result<()> {
        for at in 0..self.len() {
            if self.now[at] != Some(Self::first(at)) {
                self.say(to, at, Some(Self::first(at)))?;
            }
        }
        to.flush()
    }

    /// Withdraws all.
    ///
    /// # Errors
    /// The listener's.
    pub fn withdraw_all(&mut self, to: &mut Announcer) -> io::Result<()> {
        for at in 0..self.len() {
            if self.now[at].is_some() {
                self.say(to, at, None)?;
            }
        }
        to.flush()
    }

    /// All routes are gone, because the stream has been forgotten.
    pub fn forget(&mut self) {
        self.now.fill(None);
    }

    /// `n` changes of random prefixes: half of them get another neighbour, a quarter are withdrawn and a quarter come back.
    ///
    /// # Errors
    /// The listener's.
    pub fn change(&mut self, to: &mut Announcer, random: &mut Random, n: usize) -> io::Result<()> {
        for _ in 0..n {
            let at = random.below(self.len() as u64) as usize;
            let other = random.below(u64::from(NEIGHBORS)) as u8;
            let neighbor = if self.now[at].is_some() && random.below(3) == 0 { None } else { Some(other) };
            self.say(to, at, neighbor)?;
        }
        to.flush()
    }

    /// Prefixes that are announced now.
    pub fn announced(&self) -> usize {
        self.now.iter().filter(|neighbor| neighbor.is_some()).count()
    }

    /// Prefixes of the announcer that the router forwards by.
    ///
    /// # Errors
    /// The router's.
    pub fn installed(&self) -> Result<usize, String> {
        let shown = self.json("show lcp netlink")?;
        let namespaces = shown["namespaces"].as_array().cloned().unwrap_or_default();
        let sum: u64 = namespaces.iter().filter_map(|namespace| namespace["installed"].as_u64()).sum();
        let waiting: u64 = namespaces.iter().filter_map(|namespace| namespace["waiting"].as_u64()).sum();
        if waiting > 0 { Err(format!("{waiting} prefixes wait")) } else { Ok(sum as usize) }
    }

    /// Prefixes in the forwarding tables, whoever they are from.
    ///
    /// # Errors
    /// The router's.
    pub fn forwarded_by(&self) -> Result<usize, String> {
        let count = |command: &str| -> Result<usize, String> {
            let shown = self.router.cli(command)?;
            let rows = shown.lines().skip_while(|line| !line.contains("Prefix length")).skip(1);
            Ok(rows.map_while(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok()).sum())
        };
        Ok(count("show ip fib summary")? + count("show ip6 fib summary")?)
    }

    /// The answer of a command.
    ///
    /// # Errors
    /// The router's, or what is no JSON.
    pub fn json(&self, command: &str) -> Result<serde_json::Value, String> {
        serde_json::from_str(&self.router.cli_json(command)?).map_err(|error| error.to_string())
    }

    /// Repeats until there is an answer.
    ///
    /// # Errors
    /// There is none within five minutes.
    pub fn until<T>(&self, what: &str, mut ask: impl FnMut() -> Result<T, String>) -> io::Result<T> {
        let end = Instant::now() + BOUND;
        loop {
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(why) if Instant::now() > end => return Err(io::Error::other(format!("not within {BOUND:?}: {what} ({why})"))),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Begins to send, as fast as the router can or so many packets a second.
    ///
    /// # Errors
    /// The router's.
    pub fn send(&self, rate: Option<u64>) -> Result<(), String> {
        let rate = rate.map(|rate| format!("rate {rate} ")).unwrap_or_default();
        self.router.cli(&format!("packet-generator new name churn {rate}interface pg0 pcap churn.pcap limit 0"))?;
        self.router.cli("clear interfaces")?;
        self.router.cli("clear runtime")?;
        self.router.cli("packet-generator enable-stream churn").map(drop)
    }

    /// Stops sending; what became of the packets since [`Scene::send`].
    ///
    /// # Errors
    /// The router's.
    pub fn stop(&self) -> Result<Packets, String> {
        self.router.cli("packet-generator disable-stream churn")?;
        let packets = self.packets()?;
        self.router.cli("packet-generator delete churn")?;
        Ok(packets)
    }

    /// What became of the packets since [`Scene::send`].
    ///
    /// # Errors
    /// The router's.
    pub fn packets(&self) -> Result<Packets, String> {
        let shown = self.json("show interface")?;
        let interfaces = shown["interfaces"].as_array().cloned().unwrap_or_default();
        let sum = |names: &[&str], what: &[&str]| -> u64 {
            let of = interfaces.iter().filter(|interface| interface["name"].as_str().is_some_and(|name| names.contains(&name)));
            let counters = of.flat_map(|interface| interface["counters"].as_array().cloned().unwrap_or_default());
            let wanted = counters.filter(|counter| counter[0].as_str().is_some_and(|name| what.contains(&name)));
            wanted.filter_map(|counter| counter[1].as_u64()).sum()
        };
        Ok(Packets {
            received: sum(&["pg0"], &["rx packets"]),
            sent: sum(&["pg1", "pg2"], &["tx packets"]),
            dropped: sum(&["pg0"], &["drops", "rx-error", "rx-miss", "rx-no-buf"]) + sum(&["pg1", "pg2"], &["tx-error"]),
        })
    }
}

/// Packets by what became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    /// Made by the packet generator.
    pub received: u64,
    /// Sent to neighbours, with the few that Linux sends by itself.
    pub sent: u64,
    /// Dropped, for whatever reason.
    pub dropped: u64,
}

impl Packets {
    /// Those that have not come out.
    pub fn lost(&self) -> u64 {
        self.dropped.max(self.received.saturating_sub(self.sent))
    }
}
