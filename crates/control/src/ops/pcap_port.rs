//! Interfaces on capture files: what one file holds comes in, what is sent goes to another.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Invocation, OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request;
use quiver_command::request::{Argument, Execute, Value};
use quiver_drivers::pcap_port::{CaptureFiles, PcapPort, PcapPortConfig, PcapPortError, Timing};
use quiver_graph::Port as _;
use quiver_net::files::{Elsewhere, Files, Place, Use};
use quiver_net::interface::InterfaceKind;
use quiver_net::interface::ops::{Created, DeleteInterface, NewName, create_port_interface, of_kind};
use quiver_net::{Interface, Router};
use serde::{Deserialize, Serialize};

/// Their kind.
pub const PCAP: InterfaceKind = InterfaceKind { name: "pcap", called: "a pcap interface", device_type: "pcap" };

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<CreatePcap>().declare::<ShowPcapPorts>();
    registry.command_of::<DeleteInterface>(Command {
        path: "delete pcap-interface",
        syntax: "<if>",
        help: "Removes an interface on capture files and completes its recording",
        parse: |args, _| Ok(Invocation::new::<DeleteInterface>(DeleteInterface::of(&PCAP, args.interface()?))),
    });
}

request! {
    /// Makes an interface that replays one capture file and records to another, and prints its name.
    pub change CreatePcap "pcap_interface_create" ["create pcap-interface"] {
        /// Name of the interface.
        pub name: String = "name <name>",
        /// File to replay.
        pub rx: Option<PathBuf> = "rx <file>",
        /// File to record to; one that is there is replaced.
        pub tx: Option<PathBuf> = "tx <file>",
        /// When packets come in.
        pub timing: TimingRequest = "timing original|rate <pps>|max" default(TimingRequest::Original),
        /// Rounds to play; 0: without end.
        pub rounds: u64 = "loop <n>|forever" default(1) with(rounds, rounds_text),
        /// MAC address of the interface; drawn at random where absent.
        pub mac: Option<[u8; 6]> = "hw-addr <mac>" unicast(),
    }
}

fn rounds(args: &mut Args<'_>, _: &Argument, _: usize) -> Result<u64, OpError> {
    if args.take_keyword("forever") { Ok(0) } else { args.number_in("loop", 1..=u64::MAX) }
}

fn rounds_text(rounds: &u64) -> String {
    if *rounds == 0 { "forever".to_owned() } else { rounds.to_string() }
}

/// When packets of a file come in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimingRequest {
    /// With the distances that they were recorded with.
    #[default]
    Original,
    /// So many a second.
    Rate(u64),
    /// As fast as they are taken.
    Max,
}

impl Value for TimingRequest {
    const KIND: &'static str = "timing";

    fn take(args: &mut Args<'_>, _: &Argument, _: usize) -> Result<Self, OpError> {
        if let Some(timing) = args.take_one_of(&[("original", Self::Original), ("max", Self::Max)]) {
            return Ok(timing);
        }
        args.expect_keyword("rate")?;
        Ok(Self::Rate(args.number_in("rate", 1..=1_000_000_000)?))
    }

    fn text(&self) -> String {
        match self {
            Self::Original => "original".to_owned(),
            Self::Rate(pps) => format!("rate {pps}"),
            Self::Max => "max".to_owned(),
        }
    }
}

fn driver_error(error: &PcapPortError) -> OpError {
    let (code, key) = match error {
        PcapPortError::Nothing | PcapPortError::Same(_) => (retval::INVALID_VALUE, "rx"),
        PcapPortError::Value { key, .. } => (retval::INVALID_VALUE, *key),
        _ => (retval::CANNOT_CREATE_PCAP_FILE, "file"),
    };
    OpError::new(code, error.to_string()).key(key)
}

impl Execute<Router> for CreatePcap {
    type Reply = Created;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Created>, OpError> {
        if self.name.is_empty() {
            return Err(OpError::unspecified("an interface needs a name").key("name"));
        }
        let name = NewName::given("name", &self.name);
        // Before the recording is begun: it would replace a file.
        name.check(router)?;
        let place = |path: &Option<PathBuf>, what| path.as_ref().map(|path| Files::place(router, path, what)).transpose();
        let places = Places { rx: place(&self.rx, Use::Read)?, tx: place(&self.tx, Use::Write)? };
        let path = |place: &Option<Place>| place.as_ref().map(|place| place.path().to_owned());
        let config = PcapPortConfig {
            rx: path(&places.rx),
            tx: path(&places.tx),
            timing: match self.timing {
                TimingRequest::Original => Timing::Original,
                TimingRequest::Rate(pps) => Timing::Rate(pps),
                TimingRequest::Max => Timing::Max,
            },
            rounds: self.rounds,
            mac: self.mac,
        };
        let open = move || PcapPort::open(config, &places).map_err(|e| driver_error(&e));
        let create = move |router: &mut Router, port| {
            let made = create_port_interface(router, &PCAP, name, None, |_| Ok(port))?;
            router.made_by(made.index(), &self);
            Ok(Created::from(made))
        };
        Ok(Outcome::job(Elsewhere::new(open, create).alone()))
    }
}

/// The files of an interface, found but not opened.
struct Places {
    rx: Option<Place>,
    tx: Option<Place>,
}

impl CaptureFiles for Places {
    fn open(&self, _path: &Path) -> io::Result<File> {
        self.rx.as_ref().ok_or(io::ErrorKind::NotFound)?.open()
    }

    fn create(&self, _path: &Path) -> io::Result<File> {
        // It has its name from the start: a recording can be looked at while it goes on.
        self.tx.as_ref().ok_or(io::ErrorKind::NotFound)?.create()?.finish()
    }
}

request! {
    /// Shows interfaces on capture files: how far the replay is, what was recorded.
    pub read ShowPcapPorts "pcap_interface_show" ["show pcap-interface"] {
        /// One interface; all where absent.
        pub interface: Option<IfRef> = "<if>",
    }
}

/// An interface on capture files.
#[derive(Debug, Clone, Serialize)]
pub struct PcapPortInfo {
    /// Name.
    pub name: String,
    /// Number.
    pub sw_if_index: u32,
    /// Packets in the file to replay.
    pub packets: usize,
    /// Packets replayed.
    pub replayed: u64,
    /// Rounds finished since the interface was brought up.
    pub rounds: u64,
    /// Packets written.
    pub recorded: u64,
    /// Why the recording has ended before its time.
    pub trouble: Option<String>,
    #[serde(skip)]
    lines: Vec<String>,
}

/// The answer of [`ShowPcapPorts`].
#[derive(Debug, Clone, Serialize)]
pub struct PcapPortList {
    /// By number.
    pub interfaces: Vec<PcapPortInfo>,
}

impl Text for PcapPortList {
    fn text(&self, out: &mut String, _: &View) {
        for interface in &self.interfaces {
            let _ = writeln!(out, "{} (sw_if_index {})", interface.name, interface.sw_if_index);
            for line in &interface.lines {
                let _ = writeln!(out, "  {line}");
            }
        }
    }
}

impl PcapPortInfo {
    fn of(interface: &Interface) -> Option<Self> {
        let port = interface.port::<PcapPort>()?;
        let status = port.status();
        Some(Self {
            name: interface.name.clone(),
            sw_if_index: interface.index.0,
            packets: status.packets,
            replayed: status.replayed,
            rounds: status.rounds,
            recorded: status.recorded,
            trouble: status.trouble,
            lines: port.describe(),
        })
    }
}

impl Execute<Router> for ShowPcapPorts {
    type Reply = PcapPortList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, PcapPortList>, OpError> {
        let interfaces = of_kind(router, self.interface.as_ref(), "a pcap", PcapPortInfo::of)?;
        Ok(Outcome::Done(PcapPortList { interfaces }))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use quiver_net::testing::Harness;
    use quiver_wire::pcapfile::{LinkType, Reader, Writer};

    use crate::ops::testing::{OwnFolder, error, run};

    /// Frames 10 µs apart, numbered in their last bytes.
    fn write(path: &Path, count: u32) {
        let mut writer = Writer::new(std::fs::File::create(path).unwrap(), LinkType::ETHERNET).unwrap();
        for i in 0..count {
            let mut frame = [0xff; 60];
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            frame[56..].copy_from_slice(&i.to_be_bytes());
            writer.write(5_000_000_000 + u64::from(i) * 10_000, &frame, 60).unwrap();
        }
        writer.finish().unwrap();
    }

    /// Of the packets that have been written so far.
    fn numbers(path: &Path) -> Vec<u32> {
        let Ok(reader) = Reader::new(std::fs::File::open(path).unwrap()) else { return Vec::new() };
        let bytes = reader.map_while(Result::ok).map(|p| p.bytes);
        bytes.map(|b| u32::from_be_bytes([b[56], b[57], b[58], b[59]])).collect()
    }

    #[test]
    fn a_replay_that_is_cross_connected_is_recorded_in_order_and_each_start_begins_anew() {
        for (timing, count, rounds) in [("max", 1000, 3), ("original", 50, 1), ("rate 100000", 200, 2)] {
            let mut h = Harness::new();
            let folder = OwnFolder::of(&mut h.router, "replay");
            let to = folder.0.join("to.pcap");
            write(&folder.0.join("from.pcap"), count);
            let line = format!("create pcap-interface name in rx from.pcap timing {timing} loop {rounds}");
            assert_eq!(run(&mut h.router, &line), "in\n");
            run(&mut h.router, "create pcap-interface name out tx to.pcap");
            run(&mut h.router, "set interface l2 xconnect in out");
            run(&mut h.router, "set interface state out up");
            for start in 1..=2_usize {
                run(&mut h.router, "set interface state in up");
                let wanted = format!("{} packets replayed", start * rounds * count as usize);
                let deadline = Instant::now() + Duration::from_secs(120);
                while !run(&mut h.router, "show pcap-interface in").contains(&wanted) {
                    assert!(Instant::now() < deadline, "{}", run(&mut h.router, "show pcap-interface"));
                    h.router.graph.fleet().step_here();
                }
                run(&mut h.router, "set interface state in down");
            }
            for _ in 0..4 {
                let _ = h.router.graph.fleet().step_here();
            }
            run(&mut h.router, "delete pcap-interface out");
            run(&mut h.router, "delete pcap-interface in");
            let expected: Vec<u32> = (0..2 * rounds).flat_map(|_| 0..count).collect();
            let deadline = Instant::now() + Duration::from_secs(120);
            while numbers(&to) != expected {
                assert!(Instant::now() < deadline, "{timing}: {} of {}", numbers(&to).len(), expected.len());
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn mistakes_are_one_line_and_leave_nothing() {
        let mut h = Harness::new();
        let folder = OwnFolder::of(&mut h.router, "port-mistakes");
        assert!(std::process::Command::new("mkfifo").arg(folder.0.join("pipe")).status().unwrap().success());
        std::os::unix::fs::symlink("/etc/hostname", folder.0.join("link")).unwrap();
        for (line, expected) in [
            ("create pcap-interface", "name"),
            ("create pcap-interface name p", "needs `rx FILE'"),
            ("create pcap-interface name p rx nonexistent.pcap", "nonexistent.pcap: No such file"),
            ("create pcap-interface name p rx /dev/null", "/dev/null is outside of the folders"),
            ("create pcap-interface name p tx /etc/profile.d/x.sh", "files { write /etc/profile.d }"),
            ("create pcap-interface name p tx missing/x", "missing/x: No such file"),
            ("create pcap-interface name p tx ../x", "illegal characters"),
            // Would wait for somebody who writes, or reads.
            ("create pcap-interface name p rx pipe", "pipe: is no plain file"),
            ("create pcap-interface name p tx pipe", "pipe: is no plain file"),
            ("create pcap-interface name p rx link", "link: is no plain file"),
            ("create pcap-interface name p tx link", "link: is no plain file"),
            ("create pcap-interface name local0 tx never", "exists already"),
            ("create pcap-interface name p tx never timing rate 0", "rate"),
            ("create pcap-interface name p tx never timing slow", "slow"),
            ("create pcap-interface name p tx never loop 0", "loop"),
            ("create pcap-interface name p tx never hw-addr ff:ff:ff:ff:ff:ff", "unicast"),
            ("delete pcap-interface local0", "local0 is not a pcap interface"),
            ("show pcap-interface local0", "local0 is not a pcap interface"),
        ] {
            let error = error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 2, "no file is made by a command that fails");
        assert_eq!(h.router.interfaces.iter().count(), 1);
    }
}
