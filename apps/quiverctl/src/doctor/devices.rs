//! Network cards: who drives them, and which one this machine is reached by.
//!
//! The router takes no device by itself: every one is named in a command or in `dpdk { dev … }`. What carries the default route
//! is pointed out here so that nobody names it unawares.

use std::collections::BTreeMap;

use super::{Finding, Level, Machine};

const PCI: &str = "sys/bus/pci/devices";
/// PCI class of network controllers.
const NETWORK: &str = "0x02";
/// Drivers that hand a device to programs.
const USER_DRIVERS: [&str; 4] = ["vfio-pci", "uio_pci_generic", "igb_uio", "uio_hv_generic"];
/// Drivers that share a device with DPDK and stay bound.
const BIFURCATED: [&str; 4] = ["mlx4_core", "mlx5_core", "mana", "gve"];

pub fn check(machine: &Machine) -> Vec<Finding> {
    let routes = default_routes(machine);
    let cards = cards(machine);
    let mut findings = vec![iommu(machine, &cards)];
    findings.extend(cards.iter().map(|card| card.finding(&routes)));
    findings.push(route_finding(&routes, &cards));
    findings
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Card {
    address: String,
    id: String,
    driver: Option<String>,
    names: Vec<String>,
    group: Option<String>,
}

fn cards(machine: &Machine) -> Vec<Card> {
    let mut cards = Vec::new();
    for address in machine.list(PCI) {
        let file = |name: &str| format!("{PCI}/{address}/{name}");
        if !machine.read(&file("class")).is_some_and(|class| class.starts_with(NETWORK)) {
            continue;
        }
        let word = |name: &str| machine.read(&file(name)).map(|text| text.trim_start_matches("0x").to_owned()).unwrap_or_default();
        let mut names = machine.list(&file("net"));
        // A virtio card's network device hangs below a device of its own.
        for child in machine.list(&file("")).into_iter().filter(|name| name.starts_with("virtio")) {
            names.extend(machine.list(&file(&format!("{child}/net"))));
        }
        cards.push(Card {
            id: format!("{}:{}", word("vendor"), word("device")),
            driver: machine.link(&file("driver")),
            group: machine.link(&file("iommu_group")),
            names,
            address,
        });
    }
    cards
}

impl Card {
    fn name(&self) -> String {
        match self.names.as_slice() {
            [] => format!("{} [{}]", self.address, self.id),
            names => format!("{} ({}) [{}]", self.address, names.join(", "), self.id),
        }
    }

    fn finding(&self, routes: &BTreeMap<String, &'static str>) -> Finding {
        let (topic, name, address) = ("card", self.name(), &self.address);
        let bind =
            format!("modprobe vfio-pci; driverctl set-override {address} vfio-pci (or dpdk-devbind.py -b vfio-pci {address})");
        if self.names.iter().any(|name| routes.contains_key(name)) {
            return Finding::new(topic, Level::Note, format!("{name} carries the default route: leave it to the kernel"));
        }
        match self.driver.as_deref() {
            None => Finding::new(topic, Level::Problem, format!("{name} has no driver: nobody can use it")).fix(bind),
            Some("vfio-pci") if self.group.is_none() => {
                Finding::new(topic, Level::Warning, format!("{name} is with vfio-pci without an IOMMU")).fix(
                    "switch the IOMMU on (intel_iommu=on or amd_iommu=on), or: \
                     echo 1 > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode",
                )
            }
            Some(driver) if USER_DRIVERS.contains(&driver) => {
                Finding::new(topic, Level::Good, format!("{name} is with {driver}: ready for dpdk {{ dev {address} }}"))
            }
            Some(driver) if BIFURCATED.contains(&driver) => {
                let text =
                    format!("{name} is with {driver}, which shares it with DPDK: ready for dpdk {{ dev {address} }} as it is");
                Finding::new(topic, Level::Good, text)
            }
            Some(driver) => {
                let text =
                    format!("{name} is with the kernel's {driver}: ready for AF_XDP and host-interface; DPDK needs vfio-pci");
                Finding::new(topic, Level::Good, text).fix(format!("only for DPDK: {bind}"))
            }
        }
    }
}

fn iommu(machine: &Machine, cards: &[Card]) -> Finding {
    let topic = "IOMMU";
    let groups = machine.list("sys/kernel/iommu_groups").len();
    if groups > 0 {
        return Finding::new(topic, Level::Good, format!("on, {groups} groups"));
    }
    let text = "off: vfio-pci works only in its unsafe mode";
    let level = if cards.iter().any(|c| c.driver.as_deref() == Some("vfio-pci")) { Level::Warning } else { Level::Note };
    Finding::new(topic, level, text)
        .fix("for DPDK: boot with intel_iommu=on (or amd_iommu=on) iommu=pt, VT-d or AMD-Vi on in the firmware")
}

/// Network devices with a default route, with the families.
fn default_routes(machine: &Machine) -> BTreeMap<String, &'static str> {
    let mut found: BTreeMap<String, &'static str> = BTreeMap::new();
    // Iface Destination Gateway Flags RefCnt Use Metric Mask …
    for line in machine.read("proc/net/route").unwrap_or_default().lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [name, "00000000", _, _, _, _, _, "00000000", ..] = words.as_slice() {
            found.insert((*name).to_owned(), "IPv4");
        }
    }
    // destination length source length gateway metric refcnt use flags device; an unreachable default is on lo.
    for line in machine.read("proc/net/ipv6_route").unwrap_or_default().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [destination, "00", .., name] = words.as_slice()
            && destination.bytes().all(|b| b == b'0')
            && *name != "lo"
        {
            found.entry((*name).to_owned()).and_modify(|families| *families = "IPv4 and IPv6").or_insert("IPv6");
        }
    }
    found
}

fn route_finding(routes: &BTreeMap<String, &'static str>, cards: &[Card]) -> Finding {
    let topic = "default route";
    if routes.is_empty() {
        return Finding::new(topic, Level::Good, "none: no network device is this machine's way out");
    }
    let one = |(name, families): (&String, &&str)| {
        let card = cards.iter().find(|card| card.names.contains(name));
        let at = card.map_or_else(String::new, |card| format!(" at {}", card.address));
        format!("{name}{at} ({families})")
    };
    let all = routes.iter().map(one).collect::<Vec<_>>().join(", ");
    Finding::new(
        topic,
        Level::Note,
        format!("by {all}: a router that takes it cuts this machine off; it is never taken unless named"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::machine::testing::Tree;
    use super::*;

    fn card(tree: &Tree, address: &str, driver: Option<&str>, name: Option<&str>) {
        let at = format!("{PCI}/{address}");
        tree.write(&format!("{at}/class"), "0x020000\n");
        tree.write(&format!("{at}/vendor"), "0x8086\n").write(&format!("{at}/device"), "0x1572\n");
        if let Some(driver) = driver {
            tree.link(&format!("{at}/driver"), &format!("../../../bus/pci/drivers/{driver}"));
        }
        if let Some(name) = name {
            tree.write(&format!("{at}/net/{name}/mtu"), "1500\n");
        }
    }

    const ROUTES: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
        eth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n";

    fn findings(tree: &Tree) -> Vec<Finding> {
        check(&tree.machine())
    }

    #[test]
    fn the_card_of_the_default_route_is_left_to_the_kernel() {
        let tree = Tree::new("route");
        card(&tree, "0000:00:03.0", Some("i40e"), Some("eth0"));
        card(&tree, "0000:00:04.0", Some("i40e"), Some("eth1"));
        tree.write("proc/net/route", ROUTES);
        let zero = "0".repeat(32);
        tree.write(
            "proc/net/ipv6_route",
            &format!("{zero} 00 {zero} 00 fe80 00000400 1 0 00000003 eth0\n{zero} 00 {zero} 00 {zero} ffffffff 1 0 00200200 lo\n"),
        );
        let found = findings(&tree);
        assert_eq!(found[1].level, Level::Note);
        assert!(found[1].text.contains("carries the default route") && found[1].fix.is_none());
        assert!(found[2].fix.as_ref().unwrap().contains("0000:00:04.0"));
        let route = &found[3].text;
        assert!(route.starts_with("by eth0 at 0000:00:03.0 (IPv4 and IPv6): ") && route.contains("never taken"), "{route}");
    }

    #[test]
    fn each_kind_of_driver_gets_its_advice() {
        let tree = Tree::new("drivers");
        for (at, driver) in
            [(1, None), (2, Some("vfio-pci")), (3, Some("mlx5_core")), (4, Some("ixgbe")), (5, Some("uio_pci_generic"))]
        {
            card(&tree, &format!("0000:01:00.{at}"), driver, None);
        }
        tree.write(&format!("{PCI}/0000:02:00.0/class"), "0x030000\n");
        let levels: Vec<Level> = findings(&tree).iter().map(|f| f.level).collect();
        let expected = [Level::Warning, Level::Problem, Level::Warning, Level::Good, Level::Good, Level::Good, Level::Good];
        assert_eq!(levels, expected, "IOMMU, five cards, route");
        tree.link(&format!("{PCI}/0000:01:00.2/iommu_group"), "../../../../kernel/iommu_groups/7");
        tree.write("sys/kernel/iommu_groups/7/type", "DMA\n");
        assert_eq!((findings(&tree)[0].level, findings(&tree)[2].level), (Level::Good, Level::Good));
    }

    #[test]
    fn a_virtio_card_is_known_by_its_network_device() {
        let tree = Tree::new("virtio");
        card(&tree, "0000:00:05.0", Some("virtio-pci"), None);
        tree.write(&format!("{PCI}/0000:00:05.0/virtio2/net/ens5/mtu"), "1500\n");
        assert!(findings(&tree)[1].text.contains("(ens5)"));
    }
}
