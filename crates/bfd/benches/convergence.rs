//! How long routes go on using a next hop whose BFD session is lost, beyond the detection time.
//!
//! `cargo bench -p quiver-bfd --bench convergence [-- PREFIXES [LOSSES]]`
//!
//! PREFIXES (default 500,000) lead by a neighbour on one interface, and by one on another as a backup. A worker has a session with the first
//! neighbour: 10 ms, three packets. The bench plays that neighbour and stops, LOSSES times (default 30). Printed is when the
//! load-balance that all prefixes share leads to the backup, from before the last packet was put in; the detection time is taken off. Then
//! 1,000 prefixes are looked up. The main thread does nothing else but what sessions tell it. No root needed.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};

use quiver_bfd::control;
use quiver_bfd::ops::{SessionInfo, ShowSessions};
use quiver_bfd::packet::{Control, State};
use quiver_command::config::Schema;
use quiver_command::request::Execute;
use quiver_graph::IfIndex;
use quiver_net::fib::{Path, Source};
use quiver_net::ops::done;
use quiver_net::ops::testing::{execute, registry};
use quiver_net::testing::{Harness, host_mac, router_mac};
use quiver_wire::IpPrefix;
use quiver_wire::build::Packet;

/// What the session waits for: three packets in 10 ms each.
const DETECTION: u64 = 30_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let prefixes: u32 = words.next().map_or(Ok(500_000), |word| word.parse())?;
    let losses: usize = words.next().map_or(Ok(30), |word| word.parse())?;
    let mut bed = Bed::new(prefixes)?;
    let mut beyond: Vec<u64> = (0..losses).map(|_| bed.lose(prefixes)).collect();
    beyond.sort_unstable();
    let at = |share: usize| beyond.get(beyond.len() * share / 100).or(beyond.last()).map_or(0, |ns| ns / 1000);
    println!(
        "{prefixes} prefixes, {losses} losses: beyond the detection time {} µs (least), {} µs (median), {} µs (90 %), {} µs (most)",
        at(0),
        at(50),
        at(90),
        at(100)
    );
    Ok(())
}

fn prefix(n: u32) -> IpPrefix {
    IpPrefix::new(Ipv4Addr::from_bits(0x1400_0000 + n * 256).into(), 24)
        .unwrap_or_else(|_| unreachable!("24 bits of an IPv4 address"))
}

struct Bed {
    harness: Harness,
    links: [IfIndex; 2],
}

impl Bed {
    fn new(prefixes: u32) -> Result<Self, Box<dyn Error>> {
        let mut harness = Harness::with_workers(1);
        control::start(&mut harness.router, &Schema::new().defaults())?;
        let links = [harness.interface(0), harness.interface(1)];
        let lines = "set interface ip address x0 10.0.0.1/24
                     set interface ip address x1 10.0.1.1/24
                     set ip neighbor x0 10.0.0.2 02:00:00:00:10:00 static
                     set ip neighbor x1 10.0.1.2 02:00:00:00:10:01 static
                     bfd udp session add interface x0 local-addr 10.0.0.1 peer-addr 10.0.0.2 desired-min-tx 10000 required-min-rx 10000 detect-mult 3";
        let registry = registry(&[quiver_bfd::ops::register]);
        for line in lines.lines() {
            execute(&registry, &mut harness.router, line.trim())?;
        }
        let [first, backup] = [(links[0], "10.0.0.2"), (links[1], "10.0.1.2")];
        let backup = Path { preference: 10, ..Path::neighbor(backup.0, backup.1.parse()?) };
        let paths = vec![Path::neighbor(first.0, first.1.parse()?), backup];
        for n in 0..prefixes {
            harness.router.add_route(0, prefix(n), Source::Cli, paths.clone())?;
        }
        Ok(Self { harness, links })
    }

    fn now(&self) -> u64 {
        self.harness.router.graph.clock().now()
    }

    fn session(&mut self) -> SessionInfo {
        let shown = ShowSessions {}.execute(&mut self.harness.router).and_then(done);
        shown.unwrap_or_else(|error| panic!("{error}")).0.remove(0)
    }

    /// A packet of the neighbour.
    fn say(&mut self, state: State, your_discriminator: u32) {
        let control = Control {
            state,
            your_discriminator,
            detect_mult: 3,
            my_discriminator: 77,
            desired_min_tx: 10_000,
            required_min_rx: 10_000,
            ..Control::default()
        };
        let frame = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 0, 0, 1]).ttl(255);
        let frame = frame.udp(50_000, 3784).payload(&control.to_bytes()).build();
        self.harness.inject(self.links[0], &frame);
    }

    /// Says it until the session is in a state.
    fn until(&mut self, said: State, wanted: State) {
        loop {
            let session = self.session();
            if session.state == wanted {
                return self.take_notices();
            }
            self.say(said, if said == State::Down { 0 } else { session.local_discriminator });
            self.harness.run();
        }
    }

    /// What the main loop does: processes that are due.
    fn take_notices(&mut self) {
        let now = self.harness.router.graph.clock().timer_now();
        self.harness.router.run_processes(now);
    }

    /// The interface that packets to a prefix leave by.
    fn leaves_by(&self, n: u32) -> Option<IfIndex> {
        let router = &self.harness.router;
        let address = IpAddr::from(Ipv4Addr::from_bits(0x1400_0001 + n * 256));
        let bucket = *router.route_lookup(0, address)?.buckets.first()?;
        Some(router.data.adjacencies.get(bucket.index()).tx_if)
    }

    /// The session comes up and is lost; how long routes went by it beyond the detection time, ns.
    fn lose(&mut self, prefixes: u32) -> u64 {
        self.until(State::Down, State::Init);
        self.until(State::Init, State::Up);
        while self.leaves_by(0) != Some(self.links[0]) {
            self.take_notices();
        }
        // Polls are answered, so that the interval is the short one.
        let own = self.session().local_discriminator;
        for _ in 0..5 {
            self.say(State::Up, own);
            self.harness.run();
        }
        let before = self.now();
        self.say(State::Up, own);
        self.harness.run();
        while self.leaves_by(0) != Some(self.links[1]) {
            self.take_notices();
        }
        let beyond = self.now().saturating_sub(before + DETECTION);
        let mut some = (0..1000_u64).map(|n| (n * 7919 % u64::from(prefixes.max(1))) as u32);
        assert!(some.all(|n| self.leaves_by(n) == Some(self.links[1])), "each prefix goes by the backup");
        beyond
    }
}
