//! Checkpoints and rollback, over the sockets and over crashes.

mod common;

use std::fs;

use common::{Router, STATE, configuration, crash};

fn ask(router: &Router, lines: &[&str]) {
    for line in lines {
        router.ask(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

const BASE: &[&str] = &[
    "create loopback interface instance 0",
    "set interface ip address loop0 10.0.0.1/24",
    "set interface state loop0 up",
    "ip route add 192.0.2.0/24 via 10.0.0.2 loop0",
];
const MORE: &[&str] = &[
    "create loopback interface instance 1",
    "set interface ip address del loop0 10.0.0.1/24",
    "set interface ip address loop0 10.0.1.1/24",
    "ip route add 198.51.100.0/24 via loop1",
    "set interface mtu 1400 loop0",
    "set logging size 700",
];

#[test]
fn a_rollback_brings_a_checkpoint_back_and_itself_can_be_taken_back() {
    for conf in ["", STATE] {
        let router = Router::start(conf);
        ask(&router, BASE);
        let base = configuration(&router);
        ask(&router, &["configuration checkpoint base comment \"before the change\""]);
        assert_eq!(router.ask("show configuration diff base").unwrap(), "");
        ask(&router, MORE);
        let more = configuration(&router);
        let expected = "- set interface ip address loop0 10.0.0.1/24\n\
                        + set logging size 700\n\
                        + create loopback interface instance 1\n\
                        + set interface mtu packet 1400 loop0\n\
                        + set interface ip address loop0 10.0.1.1/24\n\
                        + ip route add 198.51.100.0/24 via loop1\n";
        assert_eq!(router.ask("show configuration diff base").unwrap(), expected);

        assert_eq!(router.ask("rollback base").unwrap(), "6 changes\n");
        assert_eq!(configuration(&router), base);
        assert_eq!(router.ask("rollback base").unwrap(), "nothing differs\n");
        let shown = router.ask("show configuration checkpoints").unwrap();
        let words: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!((words.len(), words[0][0], words[0][2], words[1][0], words[1][2]), (2, "1", "8", "base", "4"), "{shown}");
        assert!(shown.contains("before rollback base") && shown.contains("before the change"), "{shown}");

        let router = if conf.is_empty() { router } else { crash(router, conf) };
        assert_eq!(configuration(&router), base, "{conf}");
        assert_eq!(router.ask("show configuration checkpoints").unwrap(), shown);
        // Back to what was before the rollback, and to what was before that.
        ask(&router, &["rollback 1"]);
        assert_eq!(configuration(&router), more);
        let router = if conf.is_empty() { router } else { crash(router, conf) };
        assert_eq!(configuration(&router), more, "{conf}");
        ask(&router, &["rollback 1"]);
        assert_eq!(configuration(&router), base);
        ask(&router, &["configuration checkpoint base del"]);
        assert!(router.ask("rollback base").unwrap_err().contains("no checkpoint `base'"));
        assert_eq!(router.data("show configuration checkpoints").as_array().map(Vec::len), Some(3));
    }
}

#[test]
fn what_cannot_be_undone_is_said_before_anything_changes() {
    let router = Router::start("");
    ask(&router, &["configuration checkpoint empty"]);
    ask(&router, BASE);
    ask(&router, &["lcp ethertype enable 0x88b5"]);
    let before = configuration(&router);
    let error = router.ask("rollback empty").unwrap_err();
    assert!(error.contains("cannot be undone: `lcp ethertype enable 0x88b5'; nothing has changed"), "{error}");
    assert_eq!(configuration(&router), before);
    assert_eq!(router.data("show configuration checkpoints").as_array().map(Vec::len), Some(1));
}

#[test]
fn names_are_checked_and_damaged_files_are_left_out() {
    let router = Router::start(STATE);
    for name in ["7", "../x", "a/b"] {
        let error = router.ask(&format!("configuration checkpoint {name}")).unwrap_err();
        assert!(error.contains("not a name for a checkpoint"), "{error}");
    }
    for which in ["1", "0", "nothing"] {
        assert!(router.ask(&format!("rollback {which}")).unwrap_err().contains("no checkpoint"), "{which}");
    }
    ask(&router, &["create loopback interface instance 0", "configuration checkpoint whole", "configuration checkpoint torn"]);
    let file = router.path("state/checkpoint.torn");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.lines().next().unwrap()).unwrap();
    let error = router.ask("rollback torn").unwrap_err();
    assert!(error.contains("is no checkpoint, or not whole"), "{error}");
    // What is no heading is no checkpoint.
    fs::write(&file, "{").unwrap();
    let router = crash(router, STATE);
    assert!(router.console().contains("a checkpoint is left out"), "{}", router.console());
    ask(&router, &["rollback whole"]);
}
