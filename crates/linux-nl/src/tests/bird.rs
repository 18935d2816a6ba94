//! Routes of the real BIRD: learned by BGP and by OSPF from another BIRD, and withdrawn when that one is killed.

use std::path::{Path, PathBuf};

use quiver_testbed::{Guard, Host, LinkOptions, Scenario};

use super::kernel::{BOUND, Scene, paths};

/// Networks that the peer announces by BGP: 30.0.0.0/24 and so on.
const NETWORKS: usize = 1000;

/// A folder for the daemons' files, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("quiver-bird-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bird(host: &Host, folder: &Path, name: &str, text: &str) -> Guard {
    let at = |ending: &str| folder.join(format!("{name}.{ending}")).display().to_string();
    std::fs::write(at("conf"), text).unwrap();
    let line = format!("bird -c {} -p", at("conf"));
    let check = host.run(&line, BOUND).unwrap();
    assert!(check.success(), "{check}");
    host.background(&format!("bird -f -c {} -s {} -P {}", at("conf"), at("ctl"), at("pid"))).unwrap()
}

#[test]
fn routes_of_bird_come_by_bgp_and_ospf_and_go_when_its_peer_is_killed() {
    let Some(_scenario) = Scenario::begin(&["ip", "bird"]) else { return };
    let folder = Folder::new();
    let [host, peer] = ["linux", "peer"].map(|name| Host::new(name).unwrap());
    for (ours, theirs) in [("e0", "eth0"), ("e1", "eth1")] {
        host.veth(ours, &peer, theirs, &LinkOptions::default()).unwrap();
    }
    host.ip("addr add 10.0.0.1/24 dev e0\naddr add 10.0.1.1/24 dev e1").unwrap();
    peer.ip("addr add 10.0.0.2/24 dev eth0\naddr add 10.0.1.2/24 dev eth1").unwrap();
    let mut scene = Scene::with(host, "");

    let bgp = |own: u32, other: &str, filter: &str| {
        format!(
            "protocol bgp {{ local as {own}; neighbor {other} as {}; connect delay time 1; connect retry time 2; ipv4 {{ {filter} }}; }}\n",
            if own == 64_513 { 64_512 } else { 64_513 }
        )
    };
    let ospf = |interface: &str, filter: &str| {
        format!(
            "protocol ospf v2 {{ ipv4 {{ {filter} }}; area 0 {{ interface \"{interface}\" {{ type ptp; hello 1; dead count 4; }}; }}; }}\n"
        )
    };
    let networks: String = (0..NETWORKS).map(|n| format!("route 30.{}.{}.0/24 blackhole;\n", n / 256, n % 256)).collect();
    let begin = |id: &str| format!("router id {id};\nprotocol device {{ scan time 1; }}\n");
    let ours = begin("10.0.0.1")
        + "protocol kernel { ipv4 { import none; export all; }; merge paths on; }\n"
        + &bgp(64_513, "10.0.0.2", "import all; export none;")
        + &ospf("e1", "import all; export none;");
    let theirs = begin("10.0.0.2")
        + &format!("protocol static bulk {{ ipv4; {networks} }}\n")
        + "protocol static one { ipv4; route 40.0.0.0/24 blackhole; }\n"
        + &bgp(64_512, "10.0.0.1", "import none; export where proto = \"bulk\";")
        + &ospf("eth1", "import none; export where proto = \"one\";");
    let _bird = bird(&scene.host, &folder.0, "ours", &ours);
    let mut other = bird(&peer, &folder.0, "theirs", &theirs);
    scene.until("BGP", |r| (0..NETWORKS).all(|n| paths(r, &format!("30.{}.{}.0/24", n / 256, n % 256)) == 1));
    scene.until("OSPF", |r| paths(r, "40.0.0.0/24") == 1);
    let shown = scene.command("show ip fib 30.1.2.3");
    assert!(shown.contains("lcp-rt") && shown.contains("10.0.0.2"), "{shown}");
    assert!(scene.command("show lcp netlink").contains("bird 100"), "{}", scene.command("show lcp netlink"));
    assert!(scene.drift().contains("no difference"));
    other.kill().unwrap();
    scene.until("BGP's routes go", |r| (0..NETWORKS).all(|n| paths(r, &format!("30.{}.{}.0/24", n / 256, n % 256)) == 0));
    scene.until("OSPF's route goes", |r| paths(r, "40.0.0.0/24") == 0);
    assert!(scene.drift().contains("no difference"));
}
