//! The command line.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use quiver_tester_core::MacAddr;
use quiver_tester_core::import::ImportError;
use quiver_tester_core::import::siitperf::Background;
use quiver_tester_core::port::PortSpec;
use quiver_tester_core::profile::{Profile, Size};
use quiver_tester_core::stateful::gateway::Flow;
use quiver_tester_core::stateful::{AddressRange, Measure, Order, PortRange, StatefulRequest};
use quiver_tester_core::tcp;
use quiver_tester_core::trial::Plan;
use quiver_tester_core::units::{Rate, line_rate};

/// Measures routers and switches.
#[derive(Debug, Parser)]
#[command(name = "quiver-tester", version, disable_help_subcommand = true)]
pub struct Options {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One measurement: send, count, time, report
    Trial(TrialOptions),
    /// What the tester itself can do, its ports back to back
    SelfTest(SelfTestOptions),
    /// Gateways that track connections, in the two phases of RFC 9693: the first port is the initiator's, the second the responder's
    Stateful(Box<StatefulOptions>),
    /// Connections of TCP with requests and responses: the first port is the clients', the second the servers'
    Tcp(TcpOptions),
    /// Control over a Unix socket, JSON lines
    Serve(ServeOptions),
    /// A profile of what another program describes: siitperf.conf, a capture
    Import(ImportOptions),
    /// What a trial would send, as a capture file; needs no ports
    Frames(FramesOptions),
    /// Write manual pages and shell completion to a folder
    Generate {
        /// Where to
        folder: PathBuf,
    },
}

/// An import.
#[derive(Debug, Args)]
pub struct ImportOptions {
    /// A configuration file of siitperf's, or a capture (pcap, pcapng)
    pub file: PathBuf,
    /// The profile to write; standard output where there is none
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Packets of a capture that count
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub packets: usize,
    /// Arguments n and m of siitperf's programs: of N frames M are translated, the others IPv6 between real addresses
    #[arg(long, value_name = "N:M")]
    pub background: Option<Background>,
}

/// A trial that is not run.
#[derive(Debug, Args)]
pub struct FramesOptions {
    /// What to send: a file in YAML or JSON
    #[arg(long, value_name = "FILE")]
    pub profile: PathBuf,
    /// The capture to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Port that sends
    #[arg(long, value_parser = ["left", "right"], default_value = "left")]
    pub from: String,
    /// Frames at most
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub count: usize,
    /// Load, as of a trial
    #[arg(long, default_value = "1000pps")]
    pub rate: Rate,
    /// Size in bytes with FCS in place of the profile's; several are a list
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=9216))]
    pub size: Vec<u16>,
    /// Seconds of sending
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub duration: Duration,
    /// The line's rate, for loads in percent: 10Gbps
    #[arg(long, value_parser = line_rate)]
    pub line_rate: Option<f64>,
    /// Hardware address of the port
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:01")]
    pub mac: MacAddr,
    /// Hardware address of its next hop
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:02")]
    pub dst_mac: MacAddr,
    /// IP packets rather than Ethernet frames
    #[arg(long)]
    pub ip: bool,
    /// Seed of what the profile leaves to chance
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl FramesOptions {
    /// The trial.
    pub fn plan(&self, profile: Profile) -> Plan {
        Plan {
            rate: Some(self.rate),
            size: sizes(&self.size),
            duration: self.duration,
            line_rate: self.line_rate,
            seed: self.seed,
            ..Plan::new(profile)
        }
    }
}

/// Sizes as the command line gives them.
fn sizes(sizes: &[u16]) -> Option<Size> {
    match sizes {
        [] => None,
        [size] => Some(Size::Fixed(*size)),
        sizes => Some(Size::List(sizes.to_vec())),
    }
}

/// A server.
#[derive(Debug, Args)]
pub struct ServeOptions {
    /// The socket
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// Command that empties the connection table of the device under test, for `stateful`; clients cannot name one
    #[arg(long, value_name = "COMMAND")]
    pub clear: Option<String>,
}

/// A trial.
#[derive(Debug, Args)]
pub struct TrialOptions {
    /// A port, once or twice: memif:socket=PATH,id=0,role=server|client[,mode=ip], af-packet:DEVICE, af-xdp:DEVICE, xdp:DEVICE,
    /// tap:NAME, dpdk:DEVICE; further keys: ip4=A/LEN, ip6=A/LEN, vlan=N[.N], gateway=A, answer=PREFIX, mac=M, dst-mac=M, tx-core=N,
    /// rx-core=N
    #[arg(long, value_name = "PORT", required = true)]
    pub port: Vec<PortSpec>,
    /// What to send: a file in YAML or JSON
    #[arg(long, value_name = "FILE")]
    pub profile: PathBuf,
    /// Load of each direction: 100000pps, 1.5Mpps, 1Gbps (L2 with FCS), 1GbpsL1, 50% or max
    #[arg(long)]
    pub rate: Option<Rate>,
    /// Size in bytes with FCS in place of the profile's; several are a list
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=9216))]
    pub size: Vec<u16>,
    /// Seconds of sending
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub duration: Duration,
    /// Seconds to wait for what is under way, at most
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds_or_none)]
    pub settle: Duration,
    /// The line's rate, for loads in percent: 10Gbps; more bits a second than that are refused
    #[arg(long, value_parser = line_rate)]
    pub line_rate: Option<f64>,
    /// Microseconds that 99 % of the departures may be late at most in a valid trial
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 1000)]
    pub departure_limit: u64,
    /// Seconds to wait for a port's link, and for its gateway
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds_or_none)]
    pub wait: Duration,
    /// Seed of what the profile leaves to chance
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A stored self-test, which the result is to carry
    #[arg(long, value_name = "FILE")]
    pub self_test: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A self-test.
#[derive(Debug, Args)]
pub struct SelfTestOptions {
    /// Two ports that are joined; a memif connection of the tester's own where there are none
    #[arg(long, value_name = "PORT")]
    pub port: Vec<PortSpec>,
    /// Size of the frames in bytes with FCS
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=9216))]
    pub size: u16,
    /// Seconds of each of its trials
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub duration: Duration,
    /// Seconds of the one at nine tenths of its maximum, where they are others: 60 for a rate that is to be relied on
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub hold: Option<Duration>,
    /// File to store the result in, for `trial --self-test`
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A measurement of RFC 9693.
#[derive(Debug, Args)]
pub struct StatefulOptions {
    /// What to measure: connections, establishment-rate, tear-down-rate, capacity, throughput or trial
    pub measure: Measure,
    /// The initiator's port, then the responder's; as for trial
    #[arg(long, value_name = "PORT", required = true)]
    pub port: Vec<PortSpec>,
    /// Connections to open; of capacity the number to begin with, which the device has room for
    #[arg(long, value_name = "N")]
    pub connections: u64,
    /// Connections opened a second in phase 1; the highest rate tried where it is searched for
    #[arg(long)]
    pub open_rate: Rate,
    /// Load of each direction in phase 2; the highest one tried by throughput
    #[arg(long)]
    pub rate: Option<Rate>,
    /// Rate of the validation as a part of that of phase 1
    #[arg(long, value_name = "PART", default_value_t = 0.8)]
    pub alpha: f64,
    /// Command of the shell that empties the device's connection table, before each step
    #[arg(long, value_name = "COMMAND")]
    pub clear: Option<String>,
    /// Bytes of the initiator's frames with FCS; 64 for IPv4 and 84 for IPv6 unless given
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=9216))]
    pub size: Option<u16>,
    /// Seconds of sending in phase 2
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub duration: Duration,
    /// Seconds to wait for what is under way after each phase
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds_or_none)]
    pub timeout: Duration,
    /// Part that a searched rate may be too low
    #[arg(long, value_name = "PART", default_value_t = 0.01)]
    pub precision: f64,
    /// Connections that a capacity may be off
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub error: u64,
    /// Directions of phase 2: both, forward (from the initiator) or reverse
    #[arg(long, default_value = "both")]
    pub direction: Flow,
    /// A siitperf.conf with a stateful test, whose addresses, ports and order are taken; what is given beside it prevails
    #[arg(long, value_name = "FILE")]
    pub siitperf: Option<PathBuf>,
    /// Addresses of the initiator
    #[arg(long, value_name = "A[-B]")]
    pub initiators: Option<AddressRange>,
    /// Addresses of the responder, as the initiator writes them
    #[arg(long, value_name = "A[-B]")]
    pub responders: Option<AddressRange>,
    /// Source ports of the initiator
    #[arg(long, value_name = "P[-Q]")]
    pub initiator_ports: Option<PortRange>,
    /// Destination ports of the initiator
    #[arg(long, value_name = "P[-Q]")]
    pub responder_ports: Option<PortRange>,
    /// In which order four-tuples come: random, increasing or decreasing
    #[arg(long)]
    pub order: Option<Order>,
    /// Seed of the order, and of the connections that frames of phase 2 belong to
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Connections of TCP.
#[derive(Debug, Args)]
pub struct TcpOptions {
    /// The clients' port, then the servers'; as for trial
    #[arg(long, value_name = "PORT", required = true)]
    pub port: Vec<PortSpec>,
    /// What connections there are, and what is said over them: a file in YAML or JSON
    #[arg(long, value_name = "FILE")]
    pub profile: PathBuf,
    /// Connections opened a second
    #[arg(long, value_name = "N")]
    pub rate: f64,
    /// Seconds in which connections are opened
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub duration: Duration,
    /// Seconds to wait at most for those that are open then
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds_or_none)]
    pub settle: Duration,
    /// Seconds without an answer after which an end gives a connection up
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub timeout: Duration,
    /// Connections that may be open at once
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub most_open: usize,
    /// Microseconds that 99 % of the connections may be opened late at most in a valid trial
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 10_000)]
    pub departure_limit: u64,
    /// Seconds to wait for a port's link, and for its gateway
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds_or_none)]
    pub wait: Duration,
    /// Seed of kinds, four-tuples and sequence numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl TcpOptions {
    /// What the trial is to do with a profile.
    pub fn plan(&self, profile: tcp::Profile) -> tcp::Plan {
        tcp::Plan {
            profile: Arc::new(profile),
            rate: self.rate,
            duration: self.duration,
            settle: self.settle,
            timeout: self.timeout,
            most_open: self.most_open,
            departure_limit: Duration::from_micros(self.departure_limit),
            patience: self.wait,
            seed: self.seed,
        }
    }
}

impl StatefulOptions {
    /// What is asked for.
    ///
    /// # Errors
    /// The file that it is taken from cannot be read.
    pub fn request(&self) -> Result<StatefulRequest, ImportError> {
        let test = self.siitperf.as_deref().map(quiver_tester_core::import::stateful).transpose()?;
        let ends = test.map(|t| t.ends);
        Ok(StatefulRequest {
            measure: self.measure,
            connections: self.connections,
            open_rate: self.open_rate,
            rate: self.rate,
            alpha: Some(self.alpha),
            size: self.size,
            duration: Some(self.duration.as_secs_f64()),
            timeout: Some(self.timeout.as_secs_f64()),
            precision: Some(self.precision),
            error: Some(self.error),
            direction: self.direction,
            initiators: self.initiators.or(ends.map(|e| e.initiators)),
            responders: self.responders.or(ends.map(|e| e.responders)),
            initiator_ports: self.initiator_ports.or(ends.map(|e| e.initiator_ports)),
            responder_ports: self.responder_ports.or(ends.map(|e| e.responder_ports)),
            order: self.order.or(test.map(|t| t.order)).unwrap_or_default(),
            seed: Some(self.seed),
        })
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let time = seconds_or_none(text)?;
    if time.is_zero() { Err("more than 0 seconds are needed".to_owned()) } else { Ok(time) }
}

fn seconds_or_none(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.0..=86_400.0).contains(&number) {
        Ok(Duration::from_secs_f64(number))
    } else {
        Err("0 to 86400 seconds are possible".to_owned())
    }
}

impl TrialOptions {
    /// What the trial is to do with a profile.
    pub fn plan(&self, profile: Profile) -> Plan {
        Plan {
            rate: self.rate,
            size: sizes(&self.size),
            duration: self.duration,
            settle: self.settle,
            line_rate: self.line_rate,
            departure_limit: Duration::from_micros(self.departure_limit),
            patience: self.wait,
            seed: self.seed,
            ..Plan::new(profile)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Options::command().debug_assert();
        let words =
            ["quiver-tester", "trial", "--port", "af-packet:veth0", "--profile", "p.yaml", "--rate", "5000pps", "--size", "64"];
        let Command::Trial(options) = Options::parse_from(words).command else { panic!("a trial") };
        assert_eq!((options.rate, options.size), (Some(Rate::Pps(5000.0)), vec![64]));
        assert!(Options::try_parse_from(words.map(|w| if w == "5000pps" { "fast" } else { w })).is_err());
        assert!(Options::try_parse_from(words.map(|w| if w == "64" { "63" } else { w })).is_err());
    }
}
