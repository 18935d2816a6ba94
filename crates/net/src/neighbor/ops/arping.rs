//! `arping`: asks a link who has an address, and shows who answers; or announces an own one. Forwarding goes on meanwhile.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use crossbeam_channel::Receiver;
use quiver_command::commands;
use quiver_command::grammar::{Args, IfRef};
use quiver_command::operation::{Job, OpError, Outcome, Registry, Step, Text, View, retval};
use quiver_command::request::Execute;
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};

use crate::interface::ops::resolve;
use crate::neighbor::is_running;
use crate::{IfIndex, Router};

/// Adds this theme's operations and commands.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<Arping>().examples(&["arping 192.0.2.2 host-eth0 repeat 1", "arping gratuitous 192.0.2.1 host-eth0"]);
    registry.messages(&[("arping", &["arping", "arping_acd"])]);
}

/// Asks who has an address.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arping {
    /// The address.
    pub address: IpAddr,
    /// Interface whose link is asked.
    pub interface: IfRef,
    /// Announces the address, which is an own one, and asks nobody.
    #[serde(default)]
    pub gratuitous: bool,
    /// How often.
    #[serde(default = "default_repeat")]
    pub repeat: u32,
    /// Seconds in between.
    #[serde(default = "default_interval")]
    pub interval: f64,
}

const fn default_repeat() -> u32 {
    1
}

const fn default_interval() -> f64 {
    1.0
}

commands! {
    change Arping "arping" {
        /// Asks the link of an interface who has an address, by ARP or neighbor discovery, and shows who answers; or announces an own address.
        ["arping"] "[gratuitous] <addr> <if> [repeat <1>] [interval <1.0>]" by parse,
    }
}

fn parse(args: &mut Args<'_>) -> Result<Arping, OpError> {
    let gratuitous = args.take_keyword("gratuitous");
    let (address, interface) = (args.ip("address")?, args.interface()?);
    let mut request = Arping { address, interface, gratuitous, repeat: default_repeat(), interval: default_interval() };
    while !args.is_empty() {
        if args.take_keyword("repeat") {
            request.repeat = args.number_in("repeat", 1..=u32::MAX)?;
        } else if args.take_keyword("interval") {
            request.interval = args.take("interval in seconds")?;
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(request)
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArpingSummary {
    /// The address.
    pub address: IpAddr,
    /// It was announced.
    pub gratuitous: bool,
    /// Requests or announcements sent.
    pub sent: u32,
    /// Answers received.
    pub received: u32,
    /// Who has answered, each once: more than one have the same address.
    pub macs: Vec<[u8; 6]>,
    /// Ended early by whoever asked.
    pub aborted: bool,
}

/// MAC addresses kept.
const MACS_MAX: usize = 16;

impl Text for ArpingSummary {
    fn text(&self, out: &mut String, _view: &View) {
        if self.aborted {
            out.push_str("Aborted due to a keypress.\n");
        }
        if self.gratuitous {
            return;
        }
        if self.received == 0 {
            out.push_str("Received 0 Reply\n");
            return;
        }
        let what = if self.address.is_ipv4() { "ARP Replies" } else { "ICMP6 neighbor advertisements" };
        let macs: Vec<String> = self.macs.iter().map(|mac| MacAddr(*mac).to_string()).collect();
        let _ = writeln!(out, "Received {} {what} from {} ({})", self.received, macs.join(" and "), self.address);
        if self.macs.len() > 1 {
            let _ = writeln!(out, "{} stations have the address {}", self.macs.len(), self.address);
        }
    }

    fn is_negative(&self) -> bool {
        !self.gratuitous && self.received == 0
    }
}

impl Execute<Router> for Arping {
    type Reply = ArpingSummary;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ArpingSummary>, OpError> {
        let index = resolve(router, &self.interface)?;
        let name = router.interfaces.name(index);
        if !(0.0..=86_400.0).contains(&self.interval) {
            return Err(OpError::invalid("interval", self.interval, "expected 0 to 86400 seconds"));
        }
        if self.repeat == 0 {
            return Err(OpError::invalid("repeat", 0, "expected 1 or more"));
        }
        let bad = |text: String| Err(OpError::new(retval::INVALID_VALUE, text).key("address").value(self.address));
        if self.address.is_multicast() || self.address.is_unspecified() {
            return bad(format!("{} is no station's address", self.address));
        }
        if !router.interfaces.get(index).is_some_and(crate::Interface::has_link_layer) {
            return bad(format!("the link of {name} has no MAC addresses"));
        }
        if !is_running(router, index) {
            return Err(OpError::new(retval::INVALID_INTERFACE, format!("{name} is down")).key("interface").value(name));
        }
        if self.gratuitous && !router.can_announce(index, self.address) {
            return bad(format!("{} is no address of {name}", self.address));
        }
        let heard = router.arping_open(index, self.address).ok_or_else(|| {
            let error = OpError::new(retval::INVALID_VALUE, format!("{} is being asked for on {name}", self.address));
            error.remedy("try again when the other `arping' has ended")
        })?;
        let (address, gratuitous) = (self.address, self.gratuitous);
        let summary = ArpingSummary { address, gratuitous, sent: 0, received: 0, macs: Vec::new(), aborted: false };
        Ok(Outcome::job(Asking { request: self, interface: index, heard, next: 0, round: 0, summary, cancelled: false }))
    }
}

/// How often answers are looked for.
const LOOK: Duration = Duration::from_millis(2);
/// How long the last answer may take, ns.
const PATIENCE: u64 = 1_000_000_000;

/// One under way.
struct Asking {
    request: Arping,
    interface: IfIndex,
    heard: Receiver<MacAddr>,
    /// When the next round begins, or the last answer is given up; ns of the router's clock.
    next: u64,
    /// Rounds begun.
    round: u32,
    summary: ArpingSummary,
    cancelled: bool,
}

impl Asking {
    fn hear(&mut self) {
        for mac in self.heard.try_iter() {
            self.summary.received += 1;
            if !self.summary.macs.contains(&mac.0) && self.summary.macs.len() < MACS_MAX {
                self.summary.macs.push(mac.0);
            }
        }
    }

    /// Sends a round; gives the line about it.
    fn send(&mut self, router: &mut Router) -> String {
        self.round += 1;
        let (address, round) = (self.request.address, self.round);
        let (what, done) = match (self.request.gratuitous, address.is_ipv4()) {
            (false, four) => {
                let what = if four { "ARP Request" } else { "Neighbor Solicitation" };
                (what, router.arping_ask(self.interface, address))
            }
            (true, four) => {
                let can = router.can_announce(self.interface, address);
                if can {
                    router.send_announcement(self.interface, address);
                }
                (if four { "GARP" } else { "Neighbor Advertisement" }, can)
            }
        };
        if !done {
            return format!("Failed: {} has no address to send from\n", router.interfaces.name(self.interface));
        }
        self.summary.sent += 1;
        format!("Sending {round} {what} to {address}\n")
    }
}

impl Job<Router, ArpingSummary> for Asking {
    fn step(&mut self, router: &mut Router, _budget: Duration) -> Step<ArpingSummary> {
        self.hear();
        let now = router.graph.clock().now();
        let (all, over) = (self.round == self.request.repeat, now >= self.next);
        let answered = self.summary.gratuitous || self.summary.received >= self.summary.sent;
        if self.cancelled || all && (over || answered) {
            router.arping_close(self.interface, self.request.address);
            self.summary.aborted = self.cancelled;
            return Step::Done(Ok(self.summary.clone()));
        }
        if over {
            let text = self.send(router);
            let last = self.round == self.request.repeat;
            self.next = now + if last { PATIENCE } else { (self.request.interval * 1e9) as u64 };
            return Step::Print(text);
        }
        Step::Sleep(Duration::from_nanos(self.next - now).min(LOOK))
    }

    fn exclusive(&self) -> bool {
        false
    }

    fn cancel(&mut self, _router: &mut Router) {
        self.cancelled = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{error, run};
    use crate::testing::{Harness, host_mac};

    fn bed() -> (Harness, IfIndex) {
        let mut h = Harness::new();
        let x0 = h.interface(0);
        run(&mut h.router, "set ip6 dad disable");
        h.router.add_address(x0, "10.0.0.1".parse().unwrap(), 24).unwrap();
        h.router.add_address(x0, "2001:db8::1".parse().unwrap(), 64).unwrap();
        h.run();
        (h, x0)
    }

    /// Steps a job to its end; `between` is called with what it has printed.
    fn finish(h: &mut Harness, line: &str, mut between: impl FnMut(&mut Harness, &str)) -> ArpingSummary {
        let request = parse(&mut Args::new(line)).unwrap();
        let Ok(Outcome::Job(mut job)) = request.execute(&mut h.router) else { panic!("a job") };
        loop {
            match job.step(&mut h.router, LOOK) {
                Step::Print(text) => between(h, &text),
                Step::Done(summary) => return summary.unwrap(),
                _ => {}
            }
        }
    }

    #[test]
    fn each_answer_is_counted_and_two_stations_with_one_address_are_told() {
        let (mut h, x0) = bed();
        let host: IpAddr = "10.0.0.9".parse().unwrap();
        let mut asked = Vec::new();
        let summary = finish(&mut h, "10.0.0.9 x0 repeat 2 interval 0", |h, text| {
            asked.push(text.to_owned());
            assert_eq!(h.run().len(), 1, "a request");
            for n in [4, 5] {
                h.router.neighbors.ears().heard(x0, host, host_mac(n));
            }
        });
        assert_eq!(asked, ["Sending 1 ARP Request to 10.0.0.9\n", "Sending 2 ARP Request to 10.0.0.9\n"]);
        assert_eq!((summary.sent, summary.received, summary.macs.len()), (2, 4, 2));
        let mut text = String::new();
        summary.text(&mut text, &View::TEXT);
        assert!(text.ends_with("2 stations have the address 10.0.0.9\n") && text.starts_with("Received 4 ARP Replies"), "{text}");
        assert!(h.router.arping_open(x0, host).is_some(), "nobody listens any more");
    }

    #[test]
    fn own_addresses_are_announced_and_others_are_not() {
        let (mut h, _) = bed();
        for (line, said) in [
            ("gratuitous 10.0.0.1 x0 repeat 2 interval 0", "Sending 2 GARP to 10.0.0.1\n"),
            ("gratuitous 2001:db8::1 x0", "Sending 1 Neighbor Advertisement to 2001:db8::1\n"),
        ] {
            let mut last = String::new();
            let summary = finish(&mut h, line, |h, text| {
                text.clone_into(&mut last);
                assert_eq!(h.run().len(), 1);
            });
            assert_eq!((last.as_str(), summary.received, summary.is_negative()), (said, 0, false));
        }
        for (line, expected) in [
            ("arping", "address"),
            ("arping 10.0.0.9", "interface"),
            ("arping 10.0.0.9 nowhere", "unknown interface `nowhere'"),
            ("arping gratuitous 10.0.0.9 x0", "10.0.0.9 is no address of x0"),
            ("arping 224.0.0.1 x0", "no station's address"),
            ("arping 10.0.0.9 x0 repeat 0", "repeat"),
            ("arping 10.0.0.9 x0 interval -1", "interval"),
            ("arping 10.0.0.9 local0", "local0"),
        ] {
            let error = error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
    }
}
