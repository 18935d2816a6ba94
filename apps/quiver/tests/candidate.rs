//! Candidates and commits, over the sockets and over crashes.

mod common;

use common::{Cli, Json, Router, STATE, configuration, crash};
use serde_json::json;

/// A session, in which commands are asked one after the other.
struct Session(Json);

impl Session {
    fn of(router: &Router) -> Self {
        Self(Json::connect(&router.path("json.sock")).unwrap())
    }

    fn ask(&mut self, line: &str) -> Result<String, String> {
        let answer = self.0.ask(line, false);
        let text = answer["text"].as_str().unwrap_or_default().to_owned();
        if answer["status"] == "ok" { Ok(text) } else { Err(text) }
    }

    fn all(&mut self, lines: &[&str]) {
        for line in lines {
            self.ask(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}

fn base(conf: &str) -> (Router, String) {
    let router = Router::start(conf);
    for line in
        ["create loopback interface instance 0", "set interface ip address loop0 10.0.0.1/24", "set interface mtu 1400 loop0"]
    {
        router.ask(line).unwrap();
    }
    let before = configuration(&router);
    (router, before)
}

const CHANGES: &[&str] = &[
    "create loopback interface instance 1",
    "set interface ip address loop1 10.0.1.1/24",
    "set interface ip address del loop0 10.0.0.1/24",
    "ip route add 198.51.100.0/24 via 10.0.1.2 loop1",
];

#[test]
fn changes_are_collected_shown_and_made_at_once() {
    for conf in ["", STATE] {
        let (router, before) = base(conf);
        let mut session = Session::of(&router);
        assert!(session.ask("commit").unwrap_err().contains("no candidate"));
        session.all(&["configure"]);
        assert!(session.ask("configure").unwrap_err().contains("this session has a candidate"));
        session.all(CHANGES);
        // What is wrong is said at once; what only looks runs at once.
        assert!(session.ask("set intreface mtu").unwrap_err().contains("unknown input"));
        assert_eq!(session.ask("show configuration").unwrap(), before);
        assert_eq!(session.ask("show configuration candidate").unwrap(), format!("{}\n", CHANGES.join("\n")));
        let expected =
            format!("- {}\n+ {}\n+ {}\n+ {}\n", "set interface ip address loop0 10.0.0.1/24", CHANGES[0], CHANGES[1], CHANGES[3]);
        assert_eq!(session.ask("show configuration diff").unwrap(), expected);
        assert_eq!(session.ask("compare").unwrap(), expected);
        assert_eq!(configuration(&router), before);

        assert_eq!(session.ask("commit comment \"second loop\"").unwrap(), "4 changes\n");
        let after = configuration(&router);
        assert!(after.contains("10.0.1.1/24") && !after.contains("10.0.0.1/24"), "{after}");
        assert!(session.ask("show configuration candidate").unwrap_err().contains("no candidate"));
        assert!(router.ask("show configuration checkpoints").unwrap().contains("before commit: second loop"));
        let router = if conf.is_empty() { router } else { crash(router, conf) };
        assert_eq!(configuration(&router), after, "{conf}");
        router.ask("rollback 1").unwrap();
        assert_eq!(configuration(&router), before);
    }
}

#[test]
fn a_commit_that_fails_changes_nothing_and_leaves_the_candidate() {
    let (router, before) = base(STATE);
    let mut session = Session::of(&router);
    session.all(&["configure"]);
    session.all(CHANGES);
    session.all(&["set interface state loop9 up"]);
    let error = session.ask("commit").unwrap_err();
    assert!(error.contains("change 5: set interface state loop9 up: ") && error.contains("; all is as before"), "{error}");
    assert_eq!(configuration(&router), before);
    assert_eq!(session.ask("show configuration candidate").unwrap().lines().count(), 5);
    // Somebody else makes what was missing.
    router.ask("create loopback interface instance 9").unwrap();
    assert_eq!(session.ask("commit").unwrap(), "5 changes\n");
    session.all(&["configure", "set interface tag loop0 x", "discard"]);
    assert!(session.ask("discard").is_err() && !configuration(&router).contains("tag"));
}

#[test]
fn a_second_session_is_told_who_has_a_candidate_and_one_that_is_gone_has_none() {
    let (router, before) = base("");
    let mut first = Session::of(&router);
    let mut second = Session::of(&router);
    first.all(&["configure", "set interface tag loop0 first"]);
    let error = second.ask("configure").unwrap_err();
    assert!(error.contains("has a candidate with 1 changes") && error.contains("clear session"), "{error}");
    // Without one its commands run as ever.
    second.all(&["set interface mtu 1300 loop0", "set interface mtu 1400 loop0"]);
    drop(first);
    let mut router = router;
    router.wait_for("the place is free", |_| second.ask("configure").is_ok());
    assert_eq!(second.ask("show configuration candidate").unwrap(), "");
    assert_eq!(configuration(&router), before);
}

#[test]
fn programs_have_candidates_and_prompts_say_so() {
    let (router, before) = base("");
    let mut client = Json::connect(&router.path("json.sock")).unwrap();
    let mut op = |name: &str, request: serde_json::Value| {
        client.send(&json!({"op": name, "request": request}));
        client.answer()
    };
    assert_eq!(op("candidate_begin", json!({}))["candidate"], true);
    let answer = op("loopback_create", json!({"instance": 3}));
    assert_eq!((&answer["status"], &answer["candidate"]), (&json!("ok"), &json!(true)), "{answer}");
    assert_eq!(configuration(&router), before);
    assert_eq!(op("candidate_show", json!({}))["data"][0]["operation"], "loopback_create");
    let answer = op("candidate_commit", json!({"confirmed": "1h"}));
    assert_eq!(answer["data"], json!({"changes": 1, "confirm_within": "1h"}));
    assert!(answer["candidate"].is_null() && configuration(&router) != before);
    assert_eq!(op("commit_revert", json!({}))["status"], "ok");
    assert_eq!(configuration(&router), before);

    let mut cli = Cli::terminal(&router.path("cli.sock"), "dumb");
    cli.until(b"quiver# ");
    cli.line("configure");
    cli.until(b"quiver(candidate)# ");
    cli.line("discard");
    cli.until(b"quiver# ");
}

#[test]
fn a_commit_that_nobody_confirms_goes_back() {
    for conf in ["", STATE] {
        let (mut router, before) = base(conf);
        let mut session = Session::of(&router);
        session.all(&["configure"]);
        session.all(CHANGES);
        let said = session.ask("commit confirmed 1s").unwrap();
        assert_eq!(said, "4 changes; back in 1s unless `confirm' comes before\n");
        router.wait_for("it goes back", |router| configuration(router) == before);
        assert!(session.ask("confirm").unwrap_err().contains("no commit waits"));
        assert!(router.ask("show logging").unwrap().contains("not confirmed in time"));
        // In time.
        session.all(&["configure"]);
        session.all(CHANGES);
        session.all(&["commit confirmed 1h", "confirm"]);
        let after = configuration(&router);
        // By another commit.
        session.all(&["configure", "set interface tag loop1 x", "commit confirmed 1h"]);
        session.all(&["configure", "set interface tag loop1 y", "commit"]);
        assert!(session.ask("revert").unwrap_err().contains("no commit waits"));
        let last = configuration(&router);
        assert!(last.contains("tag loop1 y") && last != after, "{last}");
        if !conf.is_empty() {
            assert_eq!(configuration(&crash(router, conf)), last);
        }
    }
}

#[test]
fn a_router_that_is_killed_before_the_commit_is_confirmed_comes_up_as_before_it() {
    let (router, before) = base(STATE);
    let mut session = Session::of(&router);
    session.all(&["configure"]);
    session.all(CHANGES);
    session.all(&["commit confirmed 1h"]);
    // Provisional as well, whoever asks.
    router.ask("set interface tag loop0 x").unwrap();
    for line in ["write", "rollback 1"] {
        assert!(router.ask(line).unwrap_err().contains("not now"), "{line}");
    }
    let router = crash(router, STATE);
    assert_eq!(configuration(&router), before);
    let mut session = Session::of(&router);
    session.all(&["configure"]);
    session.all(CHANGES);
    session.all(&["commit confirmed 1h", "configure", "set interface tag loop0 x", "commit confirmed 2h", "revert"]);
    assert_eq!(configuration(&router), before, "before the first one");
    let router = crash(router, STATE);
    assert_eq!(configuration(&router), before);
}
