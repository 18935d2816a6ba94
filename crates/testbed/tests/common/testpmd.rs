//! DPDK's `dpdk-testpmd` as a memif peer: an implementation of the protocol that is not ours.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use quiver_testbed::{Guard, Host};

/// What the program is called.
pub const PROGRAM: &str = "dpdk-testpmd";

/// A memif port of testpmd.
#[derive(Debug, Clone)]
pub struct Vdev {
    /// Path of the socket.
    pub socket: PathBuf,
    /// Interface on it.
    pub id: u32,
    /// testpmd listens.
    pub server: bool,
    /// Ring size, as a power of two (client).
    pub log2_ring: u8,
    /// Bytes of a buffer (client).
    pub buffer: u32,
    /// Secret, where there is one.
    pub secret: Option<&'static str>,
}

impl Vdev {
    /// A client with the usual settings.
    pub fn client(socket: impl AsRef<Path>, id: u32) -> Self {
        Self { socket: socket.as_ref().to_owned(), id, server: false, log2_ring: 10, buffer: 2048, secret: None }
    }

    /// A server.
    pub fn server(socket: impl AsRef<Path>, id: u32) -> Self {
        Self { server: true, ..Self::client(socket, id) }
    }

    fn argument(&self, number: usize) -> String {
        let role = if self.server { "server" } else { "client" };
        let mut text = format!(
            "--vdev=net_memif{number},role={role},id={},socket={},socket-abstract=no,rsize={},bsize={}",
            self.id,
            self.socket.display(),
            self.log2_ring,
            self.buffer
        );
        if let Some(secret) = self.secret {
            text.push_str(&format!(",secret={secret}"));
        }
        text
    }
}

/// A running testpmd with its command line; killed on drop.
#[derive(Debug)]
pub struct Testpmd {
    guard: Guard,
    input: ChildStdin,
    output: PathBuf,
    /// What DPDK keeps of it.
    state: PathBuf,
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.guard.kill();
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

impl Testpmd {
    /// Starts it on memory of plain pages and any processor, ports up, not yet forwarding.
    pub fn start(host: &Host, folder: &Path, vdevs: &[Vdev], queues: u32, extra: &[&str]) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let all = if cpus > 1 { format!("(0-{})", cpus - 1) } else { "0".to_owned() };
        let lcores = format!("0@{all},1@{all}");
        Self::start_on(host, folder, vdevs, queues, extra, &["--lcores", &lcores, "--no-huge", "-m", "192"])
    }

    /// Starts it with these arguments about processors and memory.
    pub fn start_on(host: &Host, folder: &Path, vdevs: &[Vdev], queues: u32, extra: &[&str], eal: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("testpmd-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let output = folder.join(format!("{name}.log"));
        let log = File::create(&output).expect("a log file");
        // Into a file it would keep its words back until it ends.
        let mut command = host.command("stdbuf");
        // By a name of its own: of two with the same DPDK starts one.
        command.args(["-oL", PROGRAM]).args(eal).args(["--no-pci", "--no-telemetry", "--file-prefix", &name]);
        command.args(["--log-level", "lib.eal:4"]);
        command.args(vdevs.iter().enumerate().map(|(k, v)| v.argument(k)));
        command.args(["--", "-i", "--total-num-mbufs=16384", "--nb-cores=1"]);
        command.args([format!("--rxq={queues}"), format!("--txq={queues}")]);
        command.args(extra);
        command.stdin(Stdio::piped()).stdout(log.try_clone().expect("a log file")).stderr(log);
        let mut guard = host.spawn(command).expect("testpmd");
        let input = guard.take_stdin().expect("its input");
        Self { guard, input, output, state: Path::new("/var/run/dpdk").join(name) }
    }

    /// Gives it a command.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").and_then(|()| self.input.flush()).unwrap_or_else(|e| panic!("{line}: {e}\n{}", self.log()));
    }

    /// What it has printed.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Packets received and sent by each port since its start, as it counts them itself.
    pub fn packets(&mut self) -> Vec<(u64, u64)> {
        let before = self.log().len();
        self.tell("show port stats all");
        // The answer ends with a line that only a command nobody knows brings.
        self.tell("end-of-answer");
        super::eventually("testpmd's figures", super::BOUND, || {
            self.log()[before..].contains("Bad arguments") || self.log()[before..].contains("Command not found")
        });
        let log = self.log();
        let number = |line: &str, key: &str| -> Option<u64> { line.split_once(key)?.1.split_whitespace().next()?.parse().ok() };
        let rx = log[before..].lines().filter_map(|l| number(l, "RX-packets:"));
        let tx = log[before..].lines().filter_map(|l| number(l, "TX-packets:"));
        rx.zip(tx).collect()
    }

    /// Ends it as a crash would.
    pub fn kill9(mut self) {
        self.guard.kill().expect("testpmd is killed");
    }

    /// Ends it politely.
    pub fn quit(mut self) {
        self.tell("stop");
        self.tell("quit");
        let ended = self.guard.wait(super::BOUND).expect("its end");
        assert!(ended.is_some(), "testpmd does not end:\n{}", self.log());
    }

    /// True while it runs.
    pub fn is_running(&mut self) -> bool {
        self.guard.is_running()
    }
}
