//! What a router costs: main's CPU time, memory, descriptors, buffers.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use quiver_testbed::{Host, Router, Usage};
use serde_json::Value;

/// A router under attack.
pub struct Target {
    pub router: Router,
    _host: Host,
    schedstat: PathBuf,
    before: Usage,
}

impl Target {
    /// Starts one in a namespace of its own.
    pub fn start(workers: u32) -> Result<Self, String> {
        let host = Host::new("attacked").map_err(|e| e.to_string())?;
        let conf = format!("socksvr {{ socket-name @dir@/api.sock }}\ncpu {{ workers {workers} }}");
        let conf = if workers == 0 { "socksvr { socket-name @dir@/api.sock }".to_owned() } else { conf };
        let builder = Router::builder(&host, &conf).ready_within(Duration::from_secs(120));
        let router = builder.start().map_err(|e| e.to_string())?;
        let schedstat = PathBuf::from(format!("/proc/{0}/task/{0}/schedstat", router.pid()));
        let before = router.usage().map_err(|e| e.to_string())?;
        Ok(Self { router, _host: host, schedstat, before })
    }

    /// CPU time of the main thread so far.
    pub fn cpu(&self) -> Duration {
        let text = fs::read_to_string(&self.schedstat).unwrap_or_default();
        Duration::from_nanos(text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0))
    }

    /// Whether its process has ended.
    pub fn is_gone(&mut self) -> bool {
        !self.router.is_running()
    }

    /// Memory and descriptors at start and now.
    pub fn usage(&self) -> Option<(Usage, Usage)> {
        Some((self.before, self.router.usage().ok()?))
    }

    /// Buffers in use.
    pub fn buffers(&self) -> Result<u64, String> {
        let text = self.router.cli("show buffers")?;
        Ok(text.lines().skip(1).filter_map(|l| l.split_whitespace().next_back()?.parse::<u64>().ok()).sum())
    }

    /// Waits until all buffers are back; how many are not.
    pub fn buffers_left(&self, bound: Duration) -> Result<u64, String> {
        let deadline = Instant::now() + bound;
        loop {
            let left = self.buffers()?;
            if left == 0 || Instant::now() > deadline {
                return Ok(left);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A command's answer as JSON.
    pub fn json(&self, line: &str) -> Result<Value, String> {
        serde_json::from_str(&self.router.cli_json(line)?).map_err(|e| format!("{line}: {e}"))
    }

    /// A counter of an interface; 0 where it has counted nothing.
    pub fn counter(&self, interface: &str, name: &str) -> Result<u64, String> {
        let answer = self.json(&format!("show interface {interface}"))?;
        let counters = answer["interfaces"][0]["counters"].as_array().ok_or("no counters")?;
        Ok(counters.iter().find(|c| c[0] == name).and_then(|c| c[1].as_u64()).unwrap_or(0))
    }

    /// Ends traces and captures, and waits until all buffers are back.
    pub fn whole(&self, bound: Duration) -> Result<(), String> {
        let _ = self.router.cli("pcap trace off");
        self.router.cli("clear trace")?;
        match self.buffers_left(bound)? {
            0 => Ok(()),
            left => Err(format!("{left} buffers are not back after {bound:?}")),
        }
    }

    /// The end of the log, for a report of a crash.
    pub fn last_words(&self) -> String {
        let log = self.router.log();
        let lines: Vec<&str> = log.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}
