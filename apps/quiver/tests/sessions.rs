//! Clients of a running router: the bytes of `vppctl`, terminals, JSON, several at once, and bad ones.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use common::{Cli, Folder, Json, Router};
use serde_json::json;

#[test]
fn vppctl_gets_lines_and_a_nul_after_each_command() {
    let router = Router::start("");
    let mut cli = Cli::terminal(&router.path("cli.sock"), "vppctl");
    cli.line("show vector-size");
    assert_eq!(cli.until(b"\0"), b"vector size 256\r\n\0");
    cli.line("set vector-size 128");
    assert_eq!(cli.until(b"\0"), b"\0", "silence, and the NUL");
    cli.line("sh vec");
    assert_eq!(cli.until(b"\0"), b"vector size 128\r\n\0");
    cli.line("foo bar");
    assert!(cli.until(b"\0").starts_with(b"unknown input `foo bar'"));
    cli.line("quit");
    assert_eq!(cli.stream.read(&mut [0; 8]).unwrap(), 0, "quit ends the session");
}

#[test]
fn several_lines_at_once_are_answered_in_order() {
    let router = Router::start("");
    let mut cli = Cli::terminal(&router.path("cli.sock"), "vppctl");
    cli.stream.write_all(b"set vector-size 4\nshow vector-size\nset vector-size 5\nshow vector-size\nquit\n").unwrap();
    let mut all = Vec::new();
    cli.stream.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"\0vector size 4\r\n\0\0vector size 5\r\n\0");
}

#[test]
fn a_terminal_gets_banner_prompt_and_echo() {
    let router = Router::start("");
    let mut cli = Cli::terminal(&router.path("cli.sock"), "dumb");
    assert!(String::from_utf8(cli.until(b"quiver# ")).unwrap().contains("quiver v"));
    cli.stream.write_all(b"show vector-size\r").unwrap();
    let answer = cli.until(b"quiver# ");
    assert_eq!(String::from_utf8(answer).unwrap(), "show vector-size\r\nvector size 256\r\nquiver# ");
}

#[test]
fn who_does_not_say_what_it_is_gets_a_prompt_after_a_second() {
    let router = Router::start("unix { cli-no-banner }");
    let start = Instant::now();
    let mut cli = Cli::connect(&router.path("cli.sock"));
    cli.until(b"quiver# ");
    assert!(start.elapsed() >= Duration::from_millis(900));
}

#[test]
fn json_clients_are_answered_in_order_with_data_and_errors() {
    let router = Router::start("");
    let mut client = Json::connect(&router.path("json.sock")).unwrap();
    client.send(&json!({"id": 1, "command": "show vector-size", "json": true}));
    client.send(&json!({"id": "two", "op": "vector_size_set", "request": {"packets": 16}}));
    client.send(&json!({"id": 3, "op": "vector_size_show"}));
    client.send(&json!({"id": 4, "op": "vector_size_set", "request": {"packets": 3}}));
    client.send(&json!({"id": 5, "op": "no_such_operation"}));
    assert_eq!(client.receive(), json!({"id": 1, "status": "ok", "data": {"packets": 256}}));
    assert_eq!(client.receive(), json!({"id": "two", "status": "ok", "data": null}));
    assert_eq!(client.receive()["data"]["packets"], 16);
    let error = client.receive();
    assert_eq!(
        (error["id"].as_u64(), error["status"].as_str(), error["error"]["code"].as_i64()),
        (Some(4), Some("error"), Some(-7))
    );
    assert_eq!(client.receive()["status"], "error");
    client.send(&json!({"id": 6, "complete": "show vec"}));
    assert_eq!(client.receive()["data"]["candidates"][0]["text"], "vector-size");
}

/// A file of commands that takes a while, and says so at its end.
fn long_script(folder: &Folder, line: &str, lines: usize) {
    let mut text = format!("{line}\n").repeat(lines);
    text.push_str("define END reached\n");
    fs::write(folder.join("long"), text).unwrap();
}

#[test]
fn who_goes_away_does_not_leave_its_work_behind() {
    let folder = Folder::new();
    long_script(&folder, "show version", 200_000);
    let router = Router::start_in(folder, "");
    let mut first = Json::connect(&router.path("json.sock")).unwrap();
    first.send(&json!({"command": format!("exec {}", router.path("long").display())}));
    assert_eq!(first.receive()["status"], "more");
    drop(first);
    assert_eq!(router.ask("show macro").unwrap(), "", "the file did not run to its end");
}

#[test]
fn who_does_not_read_stops_itself_alone_and_goes_on_when_it_reads() {
    const LINES: usize = 20_000;
    let folder = Folder::new();
    long_script(&folder, "show version", LINES);
    let mut router = Router::start_in(folder, "");
    let version = router.ask("show version").unwrap();
    let mut first = Json::connect(&router.path("json.sock")).unwrap();
    first.send(&json!({"command": format!("exec {}", router.path("long").display())}));
    // It stays connected and reads nothing: its script stops when this much waits for it.
    let waiting = |router: &Router| {
        let list = router.data("show sessions");
        list["sessions"].as_array().unwrap().iter().map(|session| session["queue"].as_u64().unwrap()).max().unwrap()
    };
    router.wait_for("the script stops", |router| waiting(router) >= 256 << 10);
    let stopped = waiting(&router);
    assert!(stopped < 1 << 20, "{stopped}");
    // Others have their turns, also for changes, and it gets no further.
    for number in 0..50 {
        assert_eq!(router.ask(&format!("define OTHER {number}")), Ok(String::new()));
        assert_eq!(router.ask("show macro"), Ok(format!("OTHER {number}\n")));
    }
    assert_eq!(waiting(&router), stopped);
    // Nothing of its answer is lost.
    let answer = first.answer();
    assert_eq!(answer["status"], "ok", "{:?}", answer["error"]);
    assert_eq!(answer["text"].as_str().unwrap().matches(version.trim_end()).count(), LINES);
    assert!(router.ask("show macro").unwrap().contains("END reached"));
}

#[test]
fn exec_hands_its_output_to_who_asked_and_names_the_line_that_failed() {
    let folder = Folder::new();
    let file = folder.file("commands", "show vector-size\n# why\nset vector-size 2\nshow vector-size\n");
    let router = Router::start_in(folder, "");
    let mut client = Json::connect(&router.path("json.sock")).unwrap();
    let answer = client.ask(&format!("exec {}", file.display()), false);
    let text = answer["text"].as_str().unwrap();
    assert_eq!(answer["status"], "error");
    assert!(text.starts_with("vector size 256\n") && text.contains(":3: set vector-size: "), "{text}");
    let missing = router.path("nonexistent").display().to_string();
    assert!(router.ask(&format!("exec {missing}")).unwrap_err().starts_with(&format!("exec: cannot read {missing}: ")));
    // Not even the router may read it for somebody else.
    let refused = router.ask("exec /etc/shadow").unwrap_err();
    assert!(refused.starts_with("exec: /etc/shadow is outside of the folders for files"), "{refused}");
}

#[test]
fn garbage_does_no_harm() {
    let router = Router::start("");
    for name in ["cli.sock", "json.sock"] {
        let mut stream = std::os::unix::net::UnixStream::connect(router.path(name)).unwrap();
        let mut random = 7_u32;
        let garbage: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        })
        .take(100_000)
        .collect();
        // It may be cut off in the middle.
        let _ = stream.write_all(&garbage);
    }
    assert!(router.ask("show version").is_ok());
}

#[test]
fn many_clients_are_served_at_once() {
    let router = Router::start("");
    let mut clients: Vec<Json> = (0..100).map(|_| Json::connect(&router.path("json.sock")).unwrap()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&json!({"id": number, "command": "show vector-size"}));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let answer = client.answer();
        assert_eq!((answer["id"].as_u64(), answer["text"].as_str()), (Some(number as u64), Some("vector size 256\n")));
    }
}
