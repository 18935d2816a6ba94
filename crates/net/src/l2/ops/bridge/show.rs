//! `show bridge-domain`.

use std::fmt::Write as _;

use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View};
use quiver_command::request::Execute;
use quiver_command::{request, words};
use serde::Serialize;

use crate::Router;
use crate::l2::{BridgeDomain, PortKind};

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowBridgeDomains>();
}

words! {
    /// What to show beyond the table.
    pub enum Part {
        /// Everything.
        Detail = "detail",
        /// Ports.
        Int = "int",
        /// ARP table.
        Arp = "arp",
        /// Tag.
        #[serde(alias = "tag")]
        Tag = "bd-tag",
    }
}

request! {
    /// Shows bridge domains, or one with its ports, its ARP table or its tag.
    pub read ShowBridgeDomains "bridge_domain_show" ["show bridge-domain"] {
        /// Which; all where none is given.
        pub id: Option<u32> = "<bd-id>" name("bridge domain"),
        /// What of it, in text.
        pub part: Option<Part> = "detail|int|arp|bd-tag",
    }
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortInfo {
    /// Interface.
    pub interface: String,
    /// Its number.
    pub sw_if_index: u32,
    /// Times its addresses were flushed.
    pub sequence: u8,
    /// Split-horizon group.
    pub group: u8,
    /// Whether it is the BVI.
    pub bvi: bool,
    /// Whether frames are flooded to it.
    pub floods: bool,
    /// Addresses learned behind it.
    pub learned: u32,
    /// Most addresses that may be learned behind it.
    pub learn_limit: u32,
    /// Tag rewrite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag_rewrite: Option<String>,
}

/// A bridge domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BridgeDomainInfo {
    /// Number.
    pub id: u32,
    /// Index in the data path.
    pub index: u16,
    /// Times its addresses were flushed.
    pub sequence: u8,
    /// Minutes until a silent address is forgotten; 0: never.
    pub mac_age: u8,
    /// Learn addresses.
    pub learn: bool,
    /// Forward to known destinations.
    pub forward: bool,
    /// Flood frames to unknown destinations.
    pub uu_flood: bool,
    /// Port for all frames to unknown destinations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uu_forward: Option<String>,
    /// Flood frames to groups.
    pub flood: bool,
    /// Answer ARP and ND from the table.
    pub arp_term: bool,
    /// Send ARP requests to the one asked for.
    pub arp_ufwd: bool,
    /// Learned addresses.
    pub learned: u32,
    /// Most learned addresses.
    pub learn_limit: u32,
    /// The BVI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bvi: Option<String>,
    /// User's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Ports.
    pub ports: Vec<PortInfo>,
    /// ARP table: IP address and MAC address.
    pub neighbors: Vec<(String, String)>,
}

impl BridgeDomainInfo {
    fn of(router: &Router, domain: &BridgeDomain) -> Self {
        let name = |index| router.interfaces.name(index);
        let port = |port: &crate::l2::BridgePort| PortInfo {
            interface: name(port.interface),
            sw_if_index: port.interface.0,
            sequence: port.sequence,
            group: port.group,
            bvi: port.kind == PortKind::Bvi,
            floods: port.kind != PortKind::UnknownForward,
            learned: port.learned,
            learn_limit: port.learn_limit,
            tag_rewrite: router.tag_rewrite(port.interface).map(ToString::to_string),
        };
        Self {
            id: domain.id,
            index: domain.index,
            sequence: domain.sequence,
            mac_age: domain.mac_age,
            learn: domain.learn,
            forward: domain.forward,
            uu_flood: domain.unknown_flood,
            uu_forward: domain.unknown_forward().map(name),
            flood: domain.flood,
            arp_term: domain.arp_term,
            arp_ufwd: domain.arp_forward,
            learned: domain.learned,
            learn_limit: domain.learn_limit,
            bvi: domain.bvi().map(name),
            tag: domain.tag.clone(),
            ports: domain.ports.iter().map(port).collect(),
            neighbors: domain.neighbors.iter().map(|(ip, mac)| (ip.to_string(), mac.to_string())).collect(),
        }
    }

    fn row(&self, table: &TextTable, out: &mut String) {
        let on = |on| if on { "on" } else { "off" };
        let age = if self.mac_age == 0 { "off".to_owned() } else { self.mac_age.to_string() };
        let unknown = self.uu_forward.as_deref().unwrap_or(if self.uu_flood { "flood" } else { "drop" });
        let bvi = self.bvi.as_deref().unwrap_or("N/A");
        table.row(
            out,
            &[
                &self.id,
                &self.index,
                &self.sequence,
                &age,
                &on(self.learn),
                &on(self.forward),
                &unknown,
                &on(self.flood),
                &on(self.arp_term),
                &on(self.arp_ufwd),
                &self.learned,
                &self.learn_limit,
                &bvi,
            ],
        );
    }

    /// What is done with frames that come in, by the names of what is switched on.
    fn feature_line(&self, out: &mut String) {
        let all = [
            ("learn", self.learn),
            ("l2-fwd", self.forward),
            ("uu-flood", self.uu_flood && self.uu_forward.is_none()),
            ("uu-fwd", self.uu_forward.is_some()),
            ("flood", self.flood),
            ("arp-term", self.arp_term),
            ("arp-ufwd", self.arp_ufwd),
        ];
        let names: Vec<&str> = all.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
        let _ = writeln!(out, "{}", if names.is_empty() { "none".to_owned() } else { names.join(" ") });
    }

    fn port_table(&self, out: &mut String) {
        let centre = |table: TextTable, heading, width| table.column(heading, width, Align::Centre);
        let columns = [
            ("Interface", 30),
            ("If-idx", 7),
            ("ISN", 5),
            ("SHG", 5),
            ("BVI", 5),
            ("TxFlood", 9),
            ("VLAN-Tag-Rewrite", 30),
            ("Learn-co", 10),
            ("Learn-li", 10),
        ];
        let table = columns.into_iter().fold(TextTable::new(), |table, (heading, width)| centre(table, heading, width));
        out.push('\n');
        table.heading(out);
        let star = |on| if on { "*" } else { "-" };
        for port in &self.ports {
            let rewrite = port.tag_rewrite.as_deref().unwrap_or("none");
            let (bvi, floods) = (star(port.bvi), star(port.floods));
            table.row(
                out,
                &[
                    &port.interface,
                    &port.sw_if_index,
                    &port.sequence,
                    &port.group,
                    &bvi,
                    &floods,
                    &rewrite,
                    &port.learned,
                    &port.learn_limit,
                ],
            );
        }
    }

    fn neighbor_table(&self, out: &mut String) {
        out.push_str("\n  IP4/IP6 to MAC table for ARP Termination\n");
        let table = TextTable::new().column("", 40, Align::Centre).column("", 4, Align::Left).column("", 20, Align::Centre);
        for (ip, mac) in &self.neighbors {
            table.row(out, &[ip, &" => ", mac]);
        }
    }
}

/// The answer of [`ShowBridgeDomains`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BridgeDomainList {
    /// Domains by number.
    pub domains: Vec<BridgeDomainInfo>,
    #[serde(skip)]
    part: Option<Part>,
}

impl Text for BridgeDomainList {
    fn text(&self, out: &mut String, _: &View) {
        if self.domains.is_empty() {
            out.push_str("no bridge-domains in use\n");
            return;
        }
        let columns = [
            ("BD-ID", 8),
            ("Index", 7),
            ("BSN", 4),
            ("Age(min)", 9),
            ("Learning", 9),
            ("U-Forwrd", 9),
            ("UU-Flood", 11),
            ("Flooding", 9),
            ("ARP-Term", 9),
            ("arp-ufwd", 9),
            ("Learn-co", 8),
            ("Learn-li", 8),
            ("BVI-Intf", 11),
        ];
        let centre = |table: TextTable, heading, width| table.column(heading, width, Align::Centre);
        let table = columns.into_iter().fold(TextTable::new().gap(1), |table, (heading, width)| centre(table, heading, width));
        table.heading(out);
        for domain in &self.domains {
            domain.row(&table, out);
            let wants = |part| self.part == Some(part) || self.part == Some(Part::Detail);
            if wants(Part::Detail) {
                domain.feature_line(out);
            }
            if wants(Part::Int) && !domain.ports.is_empty() {
                domain.port_table(out);
            }
            if wants(Part::Arp) && (domain.arp_term || !domain.neighbors.is_empty()) {
                domain.neighbor_table(out);
            }
            if wants(Part::Tag)
                && let Some(tag) = &domain.tag
            {
                let _ = writeln!(out, "BD-Tag: {tag}");
            }
        }
    }
}

impl Execute<Router> for ShowBridgeDomains {
    type Reply = BridgeDomainList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, BridgeDomainList>, OpError> {
        let domains = match self.id {
            Some(id) => vec![BridgeDomainInfo::of(router, router.bridge_domain(id)?)],
            None => router.bridge_domains().map(|d| BridgeDomainInfo::of(router, d)).collect(),
        };
        Ok(Outcome::Done(BridgeDomainList { domains, part: self.part }))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    use crate::ops::testing::{error, run};

    #[test]
    fn bridge_domains_are_shown_as_usual() {
        let mut h = Harness::new();
        h.interface(0);
        assert_eq!(run(&mut h.router, "show bridge-domain"), "no bridge-domains in use\n");
        assert_eq!(run(&mut h.router, "create bridge-domain 10"), "bridge-domain 10\n");
        run(&mut h.router, "create loopback interface");
        run(&mut h.router, "set interface l2 bridge loop0 10 bvi");
        let heading = "  BD-ID   Index   BSN  Age(min)  Learning  U-Forwrd   UU-Flood   Flooding  ARP-Term  arp-ufwd Learn-co Learn-li   BVI-Intf \n";
        let row = "   10       1      0      5         on        on       flood        on       off       off        0     1048576    loop0   \n";
        assert_eq!(run(&mut h.router, "show bridge-domain"), format!("{heading}{row}"));
        run(&mut h.router, "create sub-interfaces x0 100");
        run(&mut h.router, "set int l2 bridge x0.100 10 7");
        run(&mut h.router, "set int l2 tag-rewrite x0.100 pop 1");
        assert_eq!(run(&mut h.router, "show mode x0.100 x0"), "l2 bridge x0.100 bd_id 10 shg 7\nl3 x0\n");
        assert_eq!(run(&mut h.router, "show int addr x0.100"), "x0.100 (dn):\n  L2 bridge bd-id 10 idx 1 shg 7\n");
        run(&mut h.router, "set bridge-domain arp entry 10 10.0.0.9 00:11:22:33:44:55");
        let ports = "           Interface           If-idx ISN  SHG  BVI  TxFlood        VLAN-Tag-Rewrite        Learn-co  Learn-li \n\
                     \x20            loop0               2     0    0    *      *                 none                  0      524288  \n\
                     \x20           x0.100               3     0    7    -      *                 pop-1                 0      524288  \n";
        let arp = "\n  IP4/IP6 to MAC table for ARP Termination\n";
        let entry = "                10.0.0.9                 =>   00:11:22:33:44:55 \n";
        let features = "learn l2-fwd uu-flood flood\n";
        assert_eq!(run(&mut h.router, "show bridge-domain 10 detail"), format!("{heading}{row}{features}\n{ports}{arp}{entry}"));
        assert_eq!(run(&mut h.router, "show bridge-domain 10 int"), format!("{heading}{row}\n{ports}"));
    }

    #[test]
    fn what_is_made_with_options_shows_them_and_goes_again() {
        let mut h = Harness::new();
        h.interface(0);
        assert_eq!(
            run(
                &mut h.router,
                "create bridge-domain learn 0 forward 0 uu-flood 0 flood 0 arp-term 1 arp-ufwd 1 mac-age 5 bd-tag red"
            ),
            "bridge-domain 1\n"
        );
        let shown = run(&mut h.router, "show bridge-domain 1 bd-tag");
        let row: Vec<&str> = shown.lines().nth(1).unwrap_or_default().split_whitespace().collect();
        assert_eq!(row, ["1", "1", "0", "5", "off", "off", "drop", "off", "on", "on", "0", "1048576", "N/A"]);
        assert!(shown.ends_with("BD-Tag: red\n"));
        for line in ["learn", "forward", "flood", "uu-flood", "arp term"] {
            run(&mut h.router, &format!("set bridge-domain {line} 1"));
        }
        run(&mut h.router, "set bridge-domain arp-ufwd 1 disable");
        run(&mut h.router, "set bridge-domain mac-age 1 0");
        run(&mut h.router, "set bridge-domain learn-limit 1 99");
        let shown = run(&mut h.router, "show bridge-domain 1");
        let row: Vec<&str> = shown.lines().nth(1).unwrap_or_default().split_whitespace().collect();
        assert_eq!(row, ["1", "1", "0", "off", "on", "on", "flood", "on", "on", "off", "0", "99", "N/A"]);
        run(&mut h.router, "set interface l2 bridge x0 1 uu-fwd");
        assert_eq!(
            run(&mut h.router, "show bridge-domain 1").lines().nth(1).map(|l| l.split_whitespace().nth(6)),
            Some(Some("x0"))
        );
        assert!(error(&mut h.router, "create bridge-domain 1 del").contains("in use, by x0"));
        run(&mut h.router, "set interface l3 x0");
        run(&mut h.router, "create bridge-domain 1 del");
        assert_eq!(run(&mut h.router, "show bridge-domain"), "no bridge-domains in use\n");
    }

    #[test]
    fn a_wrong_command_is_one_line_that_names_what_is_wrong() {
        let mut h = Harness::new();
        h.interface(0);
        for (line, expected) in [
            ("create bridge-domain 0", "out of range"),
            ("create bridge-domain 99999999", "out of range"),
            ("create bridge-domain learn 2", "learn"),
            ("create bridge-domain del", "bridge domain"),
            ("show bridge-domain 5", "no bridge domain 5"),
            ("set bridge-domain learn 5", "no bridge domain 5"),
            ("set interface l2 bridge x0", "bridge domain"),
            ("set interface l2 bridge x9 1", "unknown interface `x9'"),
            ("set interface l2 bridge x0 1 bvi", "no loopback"),
            ("set interface l2 learn x0", "not a port"),
            ("set interface l2 tag-rewrite x0 pop 1", "known by 0 tags"),
        ] {
            let error = error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
    }
}
