//! The tester asked over its socket, its ports back to back over memif.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A running server, ended with this.
struct Server {
    child: Child,
    folder: PathBuf,
}

impl Server {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("quiver-tester-serve-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let child = Command::new(env!("CARGO_BIN_EXE_quiver-tester")).arg("serve").arg("--socket").arg(folder.join("s")).spawn();
        Self { child: child.expect("the tester"), folder }
    }

    fn connect(&self) -> Client {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            if let Ok(stream) = UnixStream::connect(self.folder.join("s")) {
                stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a bound");
                return Client { reader: BufReader::new(stream.try_clone().expect("a clone")), stream };
            }
            assert!(Instant::now() < deadline, "no socket");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Client {
    fn send(&mut self, request: &Value) {
        writeln!(self.stream, "{request}").expect("written");
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line in time");
        serde_json::from_str(&line).expect("JSON")
    }

    /// The reply to a request, past events.
    fn ask(&mut self, request: &Value) -> Value {
        self.send(request);
        loop {
            let line = self.line();
            if line.get("event").is_none() {
                assert_eq!(line["id"], request["id"]);
                return line;
            }
        }
    }
}

#[test]
fn ports_profile_trial_and_abort_over_the_socket() {
    let server = Server::start();
    let mut client = server.connect();
    let refused = client.ask(&json!({ "id": 1, "op": "trial", "rate": "10pps" }));
    assert_eq!((&refused["ok"], &refused["error"]), (&json!(false), &json!("no profile: request `profile' first")));
    assert_eq!(client.ask(&json!({ "id": 2, "op": "fly" }))["ok"], false);
    assert_eq!(client.ask(&json!({ "id": 3, "op": "ports", "ports": ["veth0"] }))["ok"], false);
    let socket = server.folder.join("m");
    let port = |role: &str, to: u32| format!("memif:socket={},role={role},dst-mac=02:00:00:00:00:0{to}", socket.display());
    let ports = client.ask(&json!({ "id": 4, "op": "ports", "ports": [port("server", 1), port("client", 2)] }));
    assert_eq!((&ports["ok"], ports["data"]["ports"].as_array().map(Vec::len)), (&json!(true), Some(2)), "{ports}");
    let wrong =
        client.ask(&json!({ "id": 5, "op": "profile", "profile": { "name": "p", "streams": [{ "name": "s", "size": 1 }] } }));
    assert!(wrong["error"].as_str().is_some_and(|e| e.starts_with("request: streams[0].size: ")), "{wrong}");
    let profile = json!({ "name": "p", "bidirectional": true, "streams": [{ "name": "s", "ipv4": {}, "udp": {} }] });
    assert_eq!(client.ask(&json!({ "id": 6, "op": "profile", "profile": profile }))["ok"], true);
    let trial = client.ask(&json!({ "id": 7, "op": "trial", "rate": "1000pps", "size": 64, "duration": 0.5, "settle": 5 }));
    let totals = &trial["data"]["totals"];
    assert_eq!((&totals["intended"], &totals["lost"], &totals["received"]), (&json!(1000), &json!(0), &totals["sent"]), "{trial}");
    // A long one, ended from another connection.
    client.send(&json!({ "id": 8, "op": "trial", "rate": "1000pps", "size": 64, "duration": 600 }));
    assert_eq!(client.line()["event"], "progress");
    let mut other = server.connect();
    assert_eq!(other.ask(&json!({ "id": 1, "op": "stats" }))["data"]["running"], true);
    assert_eq!(other.ask(&json!({ "id": 2, "op": "ports", "ports": [] }))["ok"], false);
    assert_eq!(other.ask(&json!({ "id": 3, "op": "abort" }))["ok"], true);
    let report = loop {
        let line = client.line();
        if line.get("event").is_none() {
            break line;
        }
    };
    assert_eq!((&report["id"], &report["data"]["aborted"]), (&json!(8), &json!(true)), "{report}");
}
