//! quiver-snmp with Debian's snmpd as master agent: values by snmpget and snmpbulkwalk, notifications by snmptrapd.

use std::collections::{BTreeMap, BTreeSet};

use crate::common;

use common::{BOUND, counter, eventually};
use quiver_testbed::{Guard, Host, LinkOptions, Router, Scenario};

const NEEDS: [&str; 7] = ["ip", "ping", "snmpd", "snmpget", "snmpbulkwalk", "snmptrap", "snmptrapd"];
/// How long and how often a client asks.
const PATIENT: &str = "-t 2 -r 40";
const IF_TABLE: &str = "1.3.6.1.2.1.2.2.1";
const IF_X_TABLE: &str = "1.3.6.1.2.1.31.1.1.1";

struct Scene {
    left: Host,
    middle: Host,
}

impl Scene {
    fn new() -> Self {
        let [left, middle] = ["left", "router"].map(|name| Host::new(name).unwrap());
        left.veth("eth0", &middle, "left", &LinkOptions::default()).unwrap();
        left.disable_ipv6("eth0").unwrap();
        middle.disable_ipv6("left").unwrap();
        left.ip("addr add 10.0.1.2/24 dev eth0").unwrap();
        Self { left, middle }
    }

    fn router(&self) -> Router {
        let router = Router::start(&self.middle, "socksvr { default } statseg { default }").expect("router");
        router
            .script(
                "create host-interface name left\nset interface state host-left up\nset interface ip address host-left 10.0.1.1/24\n\
                 set interface tag host-left uplink to left\ncreate loopback interface\nset interface state loop0 up\n\
                 set interface mtu packet 1400 loop0\ncreate sub-interfaces host-left 10\n",
            )
            .expect("configuration");
        router
    }

    /// snmpd; it ends with its guard. Its files are in this folder. An agent that has not answered in time is dismissed with its tables; it
    /// may have had no processor.
    fn snmpd(&self, folder: &std::path::Path) -> Guard {
        let at = |name: &str| folder.join(name).display().to_string();
        let conf = format!(
            "agentAddress udp:127.0.0.1:1161\nrocommunity public 127.0.0.1\nrwcommunity private 127.0.0.1\nmaster agentx\n\
             agentXSocket unix:{}\nagentXTimeout 30\ntrap2sink 127.0.0.1:1162 public\n\
             com2sec -Cn router contextsec 127.0.0.1 incontext\ngroup contextgroup v2c contextsec\nview all included .1\n\
             access contextgroup router v2c noauth exact all none none\n",
            at("agentx")
        );
        std::fs::write(folder.join("snmpd.conf"), conf).unwrap();
        let line =
            format!("env SNMP_PERSISTENT_DIR={} snmpd -f -Lf {} -C -c {}", at("persistent"), at("snmpd.log"), at("snmpd.conf"));
        self.middle.background(&line).unwrap()
    }

    fn snmptrapd(&self, folder: &std::path::Path) -> Guard {
        let at = |name: &str| folder.join(name).display().to_string();
        std::fs::write(folder.join("snmptrapd.conf"), "disableAuthorization yes\n").unwrap();
        let line = format!(
            "env SNMP_PERSISTENT_DIR={} snmptrapd -f -n -On -m : -Lf {} -C -c {} udp:127.0.0.1:1162",
            at("trap-persistent"),
            at("traps"),
            at("snmptrapd.conf")
        );
        let guard = self.middle.background(&line).unwrap();
        // It listens when it acknowledges; a notification before that would be lost.
        let inform = "snmptrap -v2c -Ci -c public -m : -t 2 -r 0 127.0.0.1:1162 0 1.3.6.1.6.3.1.1.5.2";
        eventually("snmptrapd listens", BOUND, || self.middle.run(inform, BOUND).unwrap().success());
        guard
    }

    fn agent(&self, router: &Router, folder: &std::path::Path, options: &str) -> Guard {
        let program = Router::binary().unwrap().with_file_name("quiver-snmp");
        let at = |name: &str| router.folder().join(name).display().to_string();
        let line = format!(
            "{} --agentx {} --api {} --stats {} {options}",
            program.display(),
            folder.join("agentx").display(),
            at("api.sock"),
            at("stats.sock")
        );
        self.middle.background(&line).unwrap()
    }

    /// Values below a name, by what follows it.
    fn walk(&self, name: &str) -> BTreeMap<String, String> {
        self.walk_as("public", name)
    }

    fn walk_as(&self, community: &str, name: &str) -> BTreeMap<String, String> {
        let line = format!("snmpbulkwalk -v2c -c {community} -m : -Onqe {PATIENT} 127.0.0.1:1161 {name}");
        let said = self.middle.run(&line, BOUND).unwrap().stdout;
        let row = |line: &str| {
            let (key, value) = line.split_once(' ')?;
            let key = key.strip_prefix(&format!(".{name}"))?.trim_start_matches('.').to_owned();
            Some((key, value.trim().trim_matches('"').to_owned()))
        };
        said.lines().filter(|line| !line.contains("No Such") && !line.contains("No more")).filter_map(row).collect()
    }

    /// A column by the interfaces' names.
    fn column(&self, table: &str, number: u32) -> BTreeMap<String, String> {
        let names = self.walk(&format!("{IF_X_TABLE}.1"));
        let values = self.walk(&format!("{table}.{number}"));
        values.into_iter().filter_map(|(index, value)| Some((names.get(&index)?.clone(), value))).collect()
    }

    fn get(&self, name: &str) -> String {
        let line = format!("snmpget -v2c -c public -m : -Oqvet {PATIENT} 127.0.0.1:1161 {name}");
        self.middle.run(&line, BOUND).unwrap().stdout.trim().trim_matches('"').to_owned()
    }
}

fn row(values: &[(&str, &str)]) -> BTreeMap<String, String> {
    values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// What the router says of a counter of each interface.
fn counters(router: &Router, word: &str) -> BTreeMap<String, String> {
    ["host-left", "loop0", "host-left.10", "local0"]
        .iter()
        .map(|name| ((*name).to_owned(), counter(router, name, word).to_string()))
        .collect()
}

#[test]
fn snmpd_shows_the_routers_interfaces_with_the_values_that_the_router_shows() {
    let Some(_scenario) = Scenario::begin(&NEEDS) else { return };
    let scene = Scene::new();
    let router = scene.router();
    let folder = router.file("snmp");
    std::fs::create_dir_all(&folder).unwrap();
    // The agent is there first: it waits for the master.
    let _agent = scene.agent(&router, &folder, "");
    let _snmpd = scene.snmpd(&folder);
    eventually("four interfaces", BOUND, || scene.get("1.3.6.1.2.1.2.1.0") == "4");
    let names = scene.walk(&format!("{IF_TABLE}.2"));
    let expected = [("1", "local0"), ("2", "host-left"), ("3", "loop0"), ("4", "host-left.10")];
    assert_eq!(names, row(&expected));
    assert_eq!(scene.walk(&format!("{IF_X_TABLE}.1")), names);

    assert_eq!(scene.column(IF_TABLE, 3), row(&[("local0", "53"), ("host-left", "6"), ("loop0", "24"), ("host-left.10", "135")]));
    let mtu = scene.column(IF_TABLE, 4);
    assert_eq!(mtu["loop0"], "1400");
    assert_eq!(scene.column(IF_TABLE, 7), row(&[("local0", "2"), ("host-left", "1"), ("loop0", "1"), ("host-left.10", "2")]));
    assert_eq!(scene.column(IF_TABLE, 8), row(&[("local0", "2"), ("host-left", "1"), ("loop0", "1"), ("host-left.10", "2")]));
    assert_eq!(scene.column(IF_X_TABLE, 18)["host-left"], "uplink to left");
    let shown = router.cli("show hardware-interfaces host-left").unwrap().to_lowercase();
    let mac = scene.column(IF_TABLE, 6)["host-left"].trim().to_lowercase().replace(' ', ":");
    assert!(shown.contains(&mac) && mac.len() == 17, "{mac} is not in\n{shown}");
    // A sub-interface runs on top of its parent.
    let stack = scene.walk("1.3.6.1.2.1.31.1.2.1.3");
    assert_eq!(stack, row(&["0.1", "0.3", "0.4", "1.0", "2.0", "3.0", "4.2"].map(|pair| (pair, "1"))));

    assert!(scene.left.reaches("10.0.1.1", 20).unwrap());
    // Values are a second old at most; nothing is sent any more.
    for (word, table, number) in [
        ("rx bytes", IF_X_TABLE, 6),
        ("tx bytes", IF_X_TABLE, 10),
        ("rx bytes", IF_TABLE, 10),
        ("tx bytes", IF_TABLE, 16),
        ("drops", IF_TABLE, 13),
    ] {
        eventually(&format!("{word} in column {number}"), BOUND, || scene.column(table, number) == counters(&router, word));
    }
    let packets = |number| scene.column(IF_X_TABLE, number)["host-left"].parse::<u64>().unwrap();
    eventually("packets by kind", BOUND, || packets(7) + packets(8) + packets(9) == counter(&router, "host-left", "rx packets"));
    assert!(packets(7) >= 1, "{}", packets(7));

    // A new interface is there without a restart, and the table says that it has changed.
    router.cli("create loopback interface").unwrap();
    eventually("five interfaces", BOUND, || scene.get("1.3.6.1.2.1.2.1.0") == "5");
    eventually("ifTableLastChange", BOUND, || scene.get("1.3.6.1.2.1.31.1.5.0").parse::<u64>().is_ok_and(|ticks| ticks > 0));
    // Nothing can be written.
    let line = format!("snmpset -v2c -c private -m : {PATIENT} 127.0.0.1:1161 {IF_TABLE}.7.2 i 2");
    let refused = scene.middle.run(&line, BOUND).unwrap();
    assert!(!refused.success() && refused.stderr.contains("notWritable"), "{refused}");
    assert_eq!(scene.get(&format!("{IF_TABLE}.7.2")), "1");
    // Bulk requests of a manager's making: many columns at a time.
    let columns = "1.3.6.1.2.1.2.1 1.3.6.1.2.1.2.2.1.1 1.3.6.1.2.1.2.2.1.8";
    let line = format!("snmpbulkget -v2c -c public -m : -Onqe -Cn1 -Cr50 {PATIENT} 127.0.0.1:1161 {columns}");
    let said = scene.middle.run(&line, BOUND).unwrap().expect("snmpbulkget");
    // The first column goes on into those behind it, so rows may be there twice.
    let rows: BTreeSet<&str> = said.lines().filter(|line| line.starts_with(".1.3.6.1.2.1.2.2.1.8.")).collect();
    assert_eq!(rows.len(), 5, "{said}");
}

#[test]
fn links_that_go_down_and_up_are_notified_and_both_sides_may_be_restarted() {
    let Some(_scenario) = Scenario::begin(&NEEDS) else { return };
    let scene = Scene::new();
    let mut router = scene.router();
    let folder = router.file("snmp");
    std::fs::create_dir_all(&folder).unwrap();
    let _traps = scene.snmptrapd(&folder);
    let snmpd = scene.snmpd(&folder);
    let _agent = scene.agent(&router, &folder, "");
    let up = |scene: &Scene| scene.get(&format!("{IF_TABLE}.8.2"));
    // Until the agent has registered, snmpd answers with the host's own interfaces.
    let is_served = |scene: &Scene| scene.get(&format!("{IF_TABLE}.2.2")) == "host-left";
    eventually("it is served", BOUND, || is_served(&scene));
    assert_eq!(up(&scene), "1");

    // linkDown is snmpTraps.3, linkUp snmpTraps.4 (RFC 3418), for the interface 2.
    let traps = |trap: u32, oper: u32| {
        let text = std::fs::read_to_string(folder.join("traps")).unwrap_or_default();
        let is = |line: &&str| {
            line.contains(&format!("OID: .1.3.6.1.6.3.1.1.5.{trap}\t"))
                && line.contains(".1.3.6.1.2.1.2.2.1.1.2 = INTEGER: 2\t")
                && line.contains(&format!(".1.3.6.1.2.1.2.2.1.8.2 = INTEGER: {oper}"))
        };
        text.lines().filter(is).count()
    };
    scene.left.ip("link set eth0 down").unwrap();
    eventually("it is down", BOUND, || up(&scene) == "2");
    eventually("linkDown", BOUND, || traps(3, 2) == 1);
    scene.left.ip("link set eth0 up").unwrap();
    eventually("linkUp", BOUND, || traps(4, 1) == 1);
    router.cli("set interface state host-left down").unwrap();
    eventually("linkDown by hand", BOUND, || traps(3, 2) == 2);
    router.cli("set interface state host-left up").unwrap();
    eventually("linkUp by hand", BOUND, || traps(4, 1) == 2);

    // Another master.
    drop(snmpd);
    let _snmpd = scene.snmpd(&folder);
    eventually("it is served anew", BOUND, || is_served(&scene));
    assert_eq!(up(&scene), "1");
    // No router has no interfaces; the next one has its own.
    router.kill9().unwrap();
    eventually("no interfaces", BOUND, || scene.get("1.3.6.1.2.1.2.1.0") == "0");
    assert_eq!(scene.walk(IF_TABLE), BTreeMap::new());
}

#[test]
fn in_a_context_they_are_beside_the_hosts_interfaces() {
    let Some(_scenario) = Scenario::begin(&NEEDS) else { return };
    let scene = Scene::new();
    let router = scene.router();
    let folder = router.file("snmp");
    std::fs::create_dir_all(&folder).unwrap();
    let _snmpd = scene.snmpd(&folder);
    let _agent = scene.agent(&router, &folder, "--context router");
    let names = |community| scene.walk_as(community, &format!("{IF_TABLE}.2"));
    eventually("ours", BOUND, || names("incontext").values().any(|name| name == "loop0"));
    // The default context has the links of the host.
    let ofhost = names("public");
    assert!(ofhost.values().any(|name| name == "lo") && !ofhost.values().any(|name| name == "loop0"), "{ofhost:?}");
}
