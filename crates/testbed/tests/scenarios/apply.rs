//! A document is applied, and taken back, while packets flow: none is lost. Ansible does the same through its module.

use std::path::{Path, PathBuf};

use crate::common;

use common::{BOUND, eventually, lost_pings};
use quiver_testbed::{Offloads, Router, Scenario, TwoHosts, TwoHostsOptions};

/// The program beside the router.
fn quiverctl() -> PathBuf {
    Router::binary().expect("quiver").with_file_name("quiverctl")
}

/// Interfaces and routes that the documents of this scenario own; the router forwards by others.
fn document(routes: u32, mtu: u32) -> String {
    let mut text = format!(
        "own: [interfaces/loop0, routes/7, tables]\ninterfaces:\n  loop0: {{loopback: {{}}, mtu: {mtu}, up: true}}\ntables: {{ip4: {{7: {{}}}}}}\nroutes:\n  7:\n"
    );
    for n in 0..routes {
        text += &format!("    172.{}.{}.0/24: [{{kind: drop}}]\n", 16 + n / 256, n % 256);
    }
    text
}

/// Runs `quiverctl`, and gives its exit status and what it prints.
fn ctl(scene: &TwoHosts, router: &Router, words: &str) -> (bool, String) {
    let line = format!("{} --socket {} {words}", quiverctl().display(), router.socket().display());
    let out = scene.middle.run(&line, BOUND).expect("quiverctl");
    (out.success(), out.stdout.clone() + &out.stderr)
}

#[test]
fn a_document_is_applied_and_taken_back_without_losing_a_packet() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions { offloads: Offloads::Off, ..Default::default() }).expect("two hosts");
    let router = scene.start_router(1).expect("router");
    eventually("an answer", BOUND, || scene.a.pings(TwoHosts::B4, 1).expect("ping"));
    std::fs::write(router.file("small.yaml"), document(200, 1400)).expect("a document");
    std::fs::write(router.file("large.yaml"), document(2000, 1300)).expect("a document");
    let small = router.file("small.yaml");
    let large = router.file("large.yaml");
    // One packet in two milliseconds, as long as the changes take at least.
    let answers = 2000;
    let apply = |file: &Path, expected: &str| {
        let (done, said) = ctl(&scene, &router, &format!("apply {}", file.display()));
        assert!(done && said.contains(expected), "{said}");
    };
    apply(&small, "done: ");
    std::thread::scope(|scope| {
        let a = &scene.a;
        let sender = scope.spawn(move || lost_pings(a, answers, &format!("-i 0.002 {}", TwoHosts::B4)));
        let mut changes = 0;
        while !sender.is_finished() {
            apply(&large, "done: ");
            apply(&large, "no changes\n");
            router.cli("rollback 1").expect("rollback");
            apply(&small, "no changes\n");
            changes += 2;
        }
        assert_eq!(sender.join().expect("ping"), Vec::<u64>::new(), "{changes} changes");
        assert!(changes > 0);
    });
    // What the documents do not own is there.
    assert!(router.cli("show configuration").expect("configuration").contains("set interface ip address host-r0 10.0.1.1/24"));
    router.stop().expect("it ends");
}

#[test]
fn ansible_changes_a_router_once() {
    let Some(_scenario) = Scenario::begin(&["ansible-playbook"]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions { offloads: Offloads::Off, ..Default::default() }).expect("two hosts");
    let router = scene.start_router(1).expect("router");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ansible");
    let play = |more: &str| {
        let words = format!("quiverctl={} quiver_socket={}", quiverctl().display(), router.socket().display());
        let home = router.folder().display();
        let script = format!(
            "cd {} && HOME={home} ANSIBLE_LOCAL_TEMP={home}/ansible ANSIBLE_REMOTE_TEMP={home}/ansible LC_ALL=C.UTF-8 \
             ansible-playbook -i inventory.ini router.yml -e '{words}' {more}",
            folder.display()
        );
        scene.middle.sh(&script, BOUND).expect("ansible").expect("the playbook runs")
    };
    let before = router.cli("show configuration").expect("configuration");
    let planned = play("--check --diff");
    assert!(planned.contains("changed=1") && planned.contains("+interfaces/loop0/addresses: 10.255.0.1/32"), "{planned}");
    assert_eq!(router.cli("show configuration").expect("configuration"), before, "a check changes nothing");
    assert!(play("").contains("changed=1"));
    let after = router.cli("show configuration").expect("configuration");
    assert!(after.contains("set interface ip address loop0 10.255.0.1/32") && after.contains("192.0.2.0/24 via drop"), "{after}");
    assert!(play("").contains("ok=1    changed=0"), "the second run changes nothing");
    assert!(play("-e loopback_address=10.255.0.2/32").contains("changed=1"));
    assert!(!router.cli("show configuration").expect("configuration").contains("10.255.0.1"));
    router.stop().expect("it ends");
}
