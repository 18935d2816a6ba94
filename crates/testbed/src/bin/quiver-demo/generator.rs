//! The show without root: the packet generator feeds the same graph.

use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use quiver_testbed::Router;

use crate::report::{Report, number_after};

/// Packets of each stream.
const PACKETS: u64 = 2_000_000;

/// A `quiver` of this user's own; ended and cleaned up when dropped.
struct Daemon {
    child: Child,
    folder: std::path::PathBuf,
}

impl Daemon {
    fn start() -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("quiver-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let socket = folder.join("cli.sock");
        let conf = format!(
            "unix {{ nodaemon runtime-dir {} cli-listen {} log {} }}\n",
            folder.display(),
            socket.display(),
            folder.join("log").display()
        );
        let file = folder.join("startup.conf");
        std::fs::write(&file, conf)?;
        let mut daemon = Self { child: Command::new(Router::binary()?).arg("-c").arg(&file).spawn()?, folder };
        let deadline = Instant::now() + Duration::from_secs(20);
        while daemon.cli("show version").is_err() {
            if daemon.child.try_wait()?.is_some() || Instant::now() > deadline {
                return Err(io::Error::other("quiver did not start"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(daemon)
    }

    fn cli(&self, line: &str) -> Result<String, io::Error> {
        let program = Router::binary()?.with_file_name("quiverctl");
        let out = Command::new(program).arg("-s").arg(self.folder.join("cli.sock")).args(line.split(' ')).output()?;
        if out.status.success() {
            Ok(String::from_utf8_lossy(&out.stdout).into_owned())
        } else {
            Err(io::Error::other(format!("{line}: {}", String::from_utf8_lossy(&out.stderr).trim())))
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Sends streams of both families from pg0 to pg1 through the forwarding graph.
pub fn run(report: &mut Report, folder: &Path) -> io::Result<()> {
    let daemon = Daemon::start()?;
    for line in [
        "create packet-generator interface pg0",
        "create packet-generator interface pg1",
        "set interface state pg0 up",
        "set interface state pg1 up",
        "set interface ip address pg0 10.0.1.1/24",
        "set interface ip address pg1 10.0.2.1/24",
        "set interface ip address pg0 2001:db8:1::1/64",
        "set interface ip address pg1 2001:db8:2::1/64",
        "set ip neighbor pg1 10.0.2.2 02:00:00:00:02:02",
        "set ip neighbor pg1 2001:db8:2::2 02:00:00:00:02:02",
        "ip route add 198.18.0.0/16 via 10.0.2.2 pg1",
        "ip route add 2001:db8:100::/48 via 2001:db8:2::2 pg1",
    ] {
        println!("    quiver# {line}");
        daemon.cli(line)?;
    }
    let mac = "02:00:00:00:01:02 -> 02:fe:00:00:00:00";
    let four = format!(
        "packet-generator new name v4 limit {PACKETS} interface pg0 size 60-60 data {{ IP4: {mac} \
         UDP: 10.0.1.2 -> 198.18.0.1 - 198.18.3.255 UDP: 1024 -> 9 incrementing 8 }}"
    );
    let six = format!(
        "packet-generator new name v6 limit {PACKETS} interface pg0 size 80-80 data {{ IP6: {mac} \
         UDP: 2001:db8:1::2 -> 2001:db8:100::1 - 2001:db8:100::3ff UDP: 1024 -> 9 incrementing 8 }}"
    );
    daemon.cli(&four)?;
    daemon.cli(&six)?;
    daemon.cli("trace add pg-input 1")?;
    let mut rates = Vec::new();
    for stream in ["v4", "v6"] {
        let before = sent(&daemon)?;
        let start = Instant::now();
        daemon.cli(&format!("packet-generator enable-stream {stream}"))?;
        while daemon.cli("show packet-generator")?.contains("Yes") {
            std::thread::sleep(Duration::from_millis(5));
        }
        let seconds = start.elapsed().as_secs_f64();
        let through = sent(&daemon)? - before;
        let text = format!("{:.1} Mpps, {} lost", through as f64 / seconds / 1e6, PACKETS.saturating_sub(through));
        rates.push((text, through == PACKETS));
    }
    report.row("pg0 → pg1, 2 M packets", rates[0].0.clone(), rates[1].0.clone(), rates.iter().all(|r| r.1));
    for (title, line) in [
        ("One packet's way (show trace)", "show trace max 1"),
        ("show interface", "show interface"),
        ("show errors", "show errors"),
        ("show runtime", "show runtime"),
    ] {
        report.section(title, daemon.cli(line)?);
    }
    report.drawing(folder, &daemon.cli("show vlib graph svg")?);
    report.section("Left out", "hosts, ping, traceroute and iperf3: they need network namespaces".into());
    Ok(())
}

/// Packets that have left on pg1.
fn sent(daemon: &Daemon) -> io::Result<u64> {
    let text = daemon.cli("show interface pg1")?;
    Ok(number_after(&text, "tx packets").unwrap_or(0.0) as u64)
}
