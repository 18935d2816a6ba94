//! What several scenario files use.
#![allow(dead_code)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use quiver_testbed::{Host, Router};

pub mod left;
pub mod page;
pub mod testpmd;

/// After which a command in a host, or a wait, hangs: no measure of how fast anything is to be.
pub const BOUND: Duration = Duration::from_secs(120);

/// Worker counts that a scenario runs with: all of them, or the first in the short pass.
pub fn workers() -> &'static [u32] {
    if quiver_testbed::is_short_pass() { &[1] } else { &[0, 1, 2, 4] }
}

/// The count that `show errors` gives for a node's reason, all threads together.
pub fn errors(router: &Router, node: &str, reason: &str) -> u64 {
    let text = router.cli("show errors").expect("show errors");
    let lines = text.lines().filter(|l| l.contains(node) && l.contains(reason));
    lines.filter_map(|l| l.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

/// A counter of `show interface`.
pub fn counter(router: &Router, interface: &str, word: &str) -> u64 {
    let text = router.cli(&format!("show interface {interface} verbose")).expect("show interface");
    let line = text.lines().find(|l| l.contains(word)).unwrap_or_else(|| panic!("no `{word}' in:\n{text}"));
    line.split_whitespace().next_back().and_then(|n| n.parse().ok()).expect("a number")
}

/// Repeats `check` until it holds.
pub fn eventually(what: &str, bound: Duration, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + bound;
    while !check() {
        assert!(Instant::now() < deadline, "not within {bound:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The hops on the way to `to`, as traceroute finds them with these options.
///
/// Each hop has a process of its own. Linux first queues an ICMP error on a raw socket and then marks the socket; a reader that takes
/// the error in between leaves the mark. traceroute 2.1 then looks for errors only, until its time is over, and misses echo replies.
pub fn traceroute(from: &Host, options: &str, to: &str) -> Vec<String> {
    let mut hops = Vec::new();
    for ttl in 1..=4 {
        let line = format!("traceroute -n -q 1 -w 60 -f {ttl} -m {ttl} {options} {to}");
        let out = from.run(&line, BOUND).expect("traceroute");
        let answer = out.stdout.lines().nth(1).and_then(|line| line.split_whitespace().nth(1));
        hops.push(answer.unwrap_or_else(|| panic!("{line}: {out}")).to_owned());
        if answer == Some(to) {
            break;
        }
    }
    hops
}

/// Pings one after the other, each when the one before has been answered, however late: packets as many as asked for, and no more.
/// `ping -c` itself waits for its last answers as long as two of those before took, and then says that they are lost.
pub fn ping_in_turn(from: &Host, count: u32, arguments: &str) {
    let script = format!("for n in $(seq {count}); do ping -n -q -c 1 -W 60 {arguments} || exit 1; done");
    from.sh(&script, BOUND).expect("a shell").expect(arguments);
}

/// Pings until so many answers have come, however late, and gives the numbers of those that were lost: the gaps between the answers. What
/// is still on its way at the end is not lost.
pub fn lost_pings(from: &Host, answers: usize, arguments: &str) -> Vec<u64> {
    let line = format!("ping -n -w 100 -c {answers} {arguments}");
    let out = from.run(&line, BOUND).expect("ping");
    let answered: BTreeSet<u64> = out.stdout.lines().filter_map(answer_number).collect();
    assert!(answered.len() >= answers, "{line}: {out}");
    let last = answered.last().copied().unwrap_or_default();
    (1..=last).filter(|number| !answered.contains(number)).collect()
}

/// The number of the answer that `ping` tells of in a line.
pub fn answer_number(line: &str) -> Option<u64> {
    line.split_once("bytes from ")?.1.split_once("icmp_seq=")?.1.split_whitespace().next()?.parse().ok()
}

/// What iperf3 says, run from `client` with these arguments to a server of its own in `server`.
pub fn iperf3(client: &Host, server: &Host, arguments: &str) -> String {
    client.iperf3(server, arguments, BOUND).expect("iperf3").expect(&format!("iperf3 {arguments}"))
}

/// How often a scenario kills what it kills: `QUIVER_KILLS` (100 for the full count), else as given for the short pass and the
/// usual one.
pub fn kills(short: u32, usual: u32) -> u32 {
    let asked = std::env::var("QUIVER_KILLS").ok().map(|text| text.parse().expect("QUIVER_KILLS is a number"));
    asked.unwrap_or(if quiver_testbed::is_short_pass() { short } else { usual })
}

/// A number behind a key in `ping`'s or `iperf3`'s output.
pub fn number_after(text: &str, key: &str) -> Option<f64> {
    let rest = &text[text.find(key)? + key.len()..];
    let start = rest.find(|c: char| c.is_ascii_digit() || c == '-')?;
    let end = rest[start..].find(|c: char| !(c.is_ascii_digit() || ".-+eE".contains(c)));
    rest[start..end.map_or(rest.len(), |e| start + e)].parse().ok()
}

/// The router pings an address: three requests at once, whose answers it waits for as long as need be.
pub fn assert_router_pings(router: &Router, address: &str) {
    let said =
        router.cli(&format!("ping {address} repeat 1 burst 3 interval 60")).unwrap_or_else(|error| panic!("{address}: {error}"));
    assert!(said.ends_with("\nStatistics: 3 sent, 3 received, 0% packet loss\n"), "{address}: {said}");
}

/// Every packet buffer is back in the pool or in a cache.
pub fn assert_buffers_are_back(router: &Router) {
    let used = || {
        let text = router.cli("show buffers").expect("show buffers");
        text.lines().skip(1).filter_map(|l| l.split_whitespace().next_back()?.parse::<u64>().ok()).sum::<u64>()
    };
    eventually("buffers are back", BOUND, || used() == 0);
}

/// A folder that everybody can enter and write to, for programs that give up root; removed at its end.
pub struct Open(pub std::path::PathBuf);

impl Open {
    /// A new one below the folder for temporary files.
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("quiver-open-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a folder");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o1777)).expect("rights");
        Self(path)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
