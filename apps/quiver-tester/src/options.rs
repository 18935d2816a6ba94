//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use quiver_tester_core::MacAddr;
use quiver_tester_core::port::PortSpec;
use quiver_tester_core::profile::{Profile, Size};
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
    /// Control over a Unix socket, JSON lines
    Serve(ServeOptions),
    /// A profile of what another program describes: siitperf.conf, a capture
    Import(ImportOptions),
    /// What a trial would send, as a capture file; needs no ports
    Frames(FramesOptions),
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
}

/// A trial.
#[derive(Debug, Args)]
pub struct TrialOptions {
    /// A port, once or twice: memif:socket=PATH,id=0,role=server|client[,mode=ip], af-packet:DEVICE, af-xdp:DEVICE, tap:NAME;
    /// further keys: ip4=A/LEN, ip6=A/LEN, gateway=A, answer=PREFIX, mac=M, dst-mac=M, tx-core=N, rx-core=N
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
    /// Seconds to wait for what is under way
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds_or_none)]
    pub settle: Duration,
    /// The line's rate, for loads in percent: 10Gbps
    #[arg(long, value_parser = line_rate)]
    pub line_rate: Option<f64>,
    /// Microseconds that 99 % of the departures may be late at most in a valid trial
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 1000)]
    pub departure_limit: u64,
    /// Seconds to wait for a port's link
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds_or_none)]
    pub wait: Duration,
    /// Seed of what the profile leaves to chance
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
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
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
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
