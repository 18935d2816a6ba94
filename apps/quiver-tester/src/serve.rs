//! Control over a Unix socket: JSON lines, one request and one reply each; `apps/quiver-tester/README.md` documents them.
//!
//! ```text
//!   connection ── thread that reads lines ──┐
//!   connection ── thread that reads lines ──┴─► requests, one after the other ─► main thread: ports, profile, trial
//! ```
//!
//! While a trial runs, `stats`, `rate` and `abort` are answered at once and everything else is refused. A trial whose client has gone
//! is ended.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quiver_tester_core::bench::Bench;
use quiver_tester_core::port::PortSpec;
use quiver_tester_core::profile::Profile;
use quiver_tester_core::report::SelfTest;
use quiver_tester_core::request::{Request, TrialRequest};
use quiver_tester_core::stateful::StatefulRequest;
use quiver_tester_core::tcp::{self, TcpRequest};
use quiver_tester_core::trial::{self, Progress, Watch};
use quiver_tester_core::units::Rate;
use serde_json::{Value, json};

use crate::Failure;
use crate::options::ServeOptions;

/// Longest request, bytes.
const LINE: u64 = 1 << 20;
/// Why nothing can be sent.
const NO_PORTS: &str = "no ports: request `ports' first";
/// How often the main thread looks whether it is to end.
const TURN: Duration = Duration::from_millis(200);

/// A client's writing end.
type Client = Arc<Mutex<UnixStream>>;

/// What a connection sends on.
enum Message {
    Request(Value, Client),
    /// The connection has ended.
    Gone(Client),
}

/// The socket's file, removed with this.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub fn run(options: &ServeOptions, stop: &AtomicBool) -> Result<(), Failure> {
    let (listener, _file) = listen(&options.socket)?;
    let (requests, queue) = channel();
    std::thread::spawn(move || accept(&listener, &requests));
    let clear = options.clear.clone();
    let mut server = Server { bench: None, ports: Vec::new(), max_frame: 0, profile: None, clear, self_test: None, queue };
    while !stop.load(Ordering::Relaxed) {
        match server.queue.recv_timeout(TURN) {
            Ok(Message::Request(request, client)) => {
                let result = server.handle(&request, &client, stop);
                reply(&client, &request, result);
            }
            Ok(Message::Gone(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(())
}

fn listen(path: &Path) -> Result<(UnixListener, SocketFile), Failure> {
    let failed = |error: io::Error| Failure::Serve(format!("{}: {error}", path.display()));
    // A file that nobody listens on is left over.
    if path.exists() && UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
        fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    Ok((listener, SocketFile(path.to_owned())))
}

fn accept(listener: &UnixListener, requests: &Sender<Message>) {
    for stream in listener.incoming().flatten() {
        let requests = requests.clone();
        let Ok(writer) = stream.try_clone() else { continue };
        std::thread::spawn(move || read(stream, &Arc::new(Mutex::new(writer)), &requests));
    }
}

/// Reads requests until the connection ends.
fn read(stream: UnixStream, client: &Client, requests: &Sender<Message>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let n = (&mut reader).take(LINE).read_line(&mut line).unwrap_or(0);
        if n == 0 || !line.ends_with('\n') {
            break;
        }
        match serde_json::from_str(&line) {
            Ok(request) => {
                if requests.send(Message::Request(request, client.clone())).is_err() {
                    return;
                }
            }
            Err(error) => reply(client, &Value::Null, Err(format!("not JSON: {error}"))),
        }
    }
    let _ = requests.send(Message::Gone(client.clone()));
}

fn write(client: &Client, value: &Value) {
    let mut stream = client.lock().unwrap_or_else(PoisonError::into_inner);
    // Who has gone needs no answer.
    let _ = stream.write_all(format!("{value}\n").as_bytes());
}

fn reply(client: &Client, request: &Value, result: Result<Value, String>) {
    let id = request.get("id").cloned().unwrap_or(Value::Null);
    write(
        client,
        &match result {
            Ok(data) => json!({ "id": id, "ok": true, "data": data }),
            Err(error) => json!({ "id": id, "ok": false, "error": error }),
        },
    );
}

struct Server {
    bench: Option<Bench>,
    ports: Vec<PortSpec>,
    max_frame: usize,
    profile: Option<Profile>,
    /// Command that empties the table of the device under test.
    clear: Option<String>,
    /// What the tester itself could do, once that was measured; results carry it.
    self_test: Option<SelfTest>,
    queue: Receiver<Message>,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Server {
    fn handle(&mut self, request: &Value, client: &Client, stop: &AtomicBool) -> Result<Value, String> {
        match Request::of(request)? {
            Request::Ports(ports) => self.set_ports(ports),
            Request::Profile(profile) => Ok(self.set_profile(*profile)),
            Request::ProfileFile(file) => Profile::load(&file).map(|profile| self.set_profile(profile)).map_err(text),
            Request::Trial(trial) => self.trial(trial, request, client, stop),
            Request::Stateful(stateful) => self.stateful(&stateful, request, client, stop),
            Request::Tcp(tcp) => self.tcp(&tcp, request, client, stop),
            Request::SelfTest(request) => {
                let outcome = crate::self_test::measure_own(request.duration(), request.hold, stop).map_err(text)?;
                self.self_test = Some(outcome.summary());
                Ok(outcome.json())
            }
            Request::Stats => Ok(json!({ "running": false })),
            Request::Rate(_) | Request::Abort => Err("no trial runs".to_owned()),
        }
    }

    fn set_ports(&mut self, ports: Vec<PortSpec>) -> Result<Value, String> {
        self.ports = ports;
        self.open(1514)?;
        let ports = self.bench.iter_mut().flat_map(|b| b.ports().iter());
        let ports = ports.map(|p| json!({ "name": p.spec.to_string(), "mac": p.mac.to_string(), "max_frame": p.max_frame() + 4 }));
        Ok(json!({ "ports": ports.collect::<Vec<_>>() }))
    }

    /// Opens the ports anew: the old ones must be gone first.
    fn open(&mut self, max_frame: usize) -> Result<(), String> {
        self.bench = None;
        self.bench = Some(Bench::open(&self.ports, max_frame).map_err(text)?);
        self.max_frame = max_frame;
        Ok(())
    }

    fn set_profile(&mut self, profile: Profile) -> Value {
        let data = json!({ "name": profile.name, "streams": profile.streams.len() });
        self.profile = Some(profile);
        data
    }

    fn trial(&mut self, trial: TrialRequest, request: &Value, client: &Client, stop: &AtomicBool) -> Result<Value, String> {
        let plan = trial.plan(self.profile.clone().ok_or("no profile: request `profile' first")?);
        self.reopen(plan.max_frame())?;
        let (Some(bench), queue) = (&mut self.bench, &self.queue) else { return Err(NO_PORTS.to_owned()) };
        let mut watch = Watcher::new(queue, request, client, stop);
        let mut report = trial::run_watched(bench, &plan, &mut watch).map_err(text)?;
        report.self_test.clone_from(&self.self_test);
        serde_json::to_value(report).map_err(text)
    }

    fn stateful(
        &mut self,
        stateful: &StatefulRequest,
        request: &Value,
        client: &Client,
        stop: &AtomicBool,
    ) -> Result<Value, String> {
        let clear = self.clear.clone();
        stateful.plan(clear.clone()).map_err(text)?;
        self.reopen(stateful.max_frame())?;
        let Self { bench: Some(bench), queue, .. } = self else { return Err(NO_PORTS.to_owned()) };
        let mut watch = Watcher::new(queue, request, client, stop);
        let mut told = |progress: &Progress| {
            let go_on = watch.progress(progress);
            if watch.rate().is_some() {
                watch.changed(Err("a stateful measurement finds its rates itself".to_owned()));
            }
            go_on
        };
        let outcome = crate::stateful::measured(bench, stateful, clear, &mut told).map_err(text)?;
        serde_json::to_value(outcome).map_err(text)
    }

    fn tcp(&mut self, tcp: &TcpRequest, request: &Value, client: &Client, stop: &AtomicBool) -> Result<Value, String> {
        let plan = tcp.plan()?;
        self.reopen(plan.max_frame())?;
        let Self { bench: Some(bench), queue, .. } = self else { return Err(NO_PORTS.to_owned()) };
        let mut watch = Watcher::new(queue, request, client, stop);
        let mut told = |progress: &Progress| {
            let go_on = watch.progress(progress);
            if watch.rate().is_some() {
                watch.changed(Err("connections keep their rate".to_owned()));
            }
            go_on
        };
        serde_json::to_value(tcp::run(bench, &plan, &mut told).map_err(text)?).map_err(text)
    }

    /// Opens the ports anew where they are not, or not for frames so long.
    fn reopen(&mut self, max_frame: usize) -> Result<(), String> {
        if self.bench.is_some() && max_frame <= self.max_frame {
            return Ok(());
        }
        if self.ports.is_empty() {
            return Err(NO_PORTS.to_owned());
        }
        self.open(max_frame.max(1514))
    }
}

/// Tells a client how far its trial is, and serves the others meanwhile.
struct Watcher<'a> {
    queue: &'a Receiver<Message>,
    /// Of the request that began it.
    id: Value,
    client: &'a Client,
    stop: &'a AtomicBool,
    ended: bool,
    /// A rate that somebody asked for, by which request.
    wanted: Option<(Rate, Value, Client)>,
    /// The same, on its way to the streams.
    asked: Option<(Value, Client)>,
}

impl<'a> Watcher<'a> {
    fn new(queue: &'a Receiver<Message>, request: &Value, client: &'a Client, stop: &'a AtomicBool) -> Self {
        let id = request.get("id").cloned().unwrap_or(Value::Null);
        Self { queue, id, client, stop, ended: false, wanted: None, asked: None }
    }

    fn serve(&mut self, request: Value, from: Client, progress: &Progress) {
        match Request::of(&request) {
            Ok(Request::Abort) => {
                self.ended = true;
                reply(&from, &request, Ok(Value::Null));
            }
            Ok(Request::Stats) => reply(&from, &request, Ok(json!({ "running": true, "progress": progress }))),
            Ok(Request::Rate(rate)) => {
                // Of two that come within a tenth of a second the later one counts.
                if let Some((_, before, client)) = self.wanted.replace((rate, request, from)) {
                    reply(&client, &before, Err("another rate was asked for after it".to_owned()));
                }
            }
            Ok(_) => reply(&from, &request, Err("a trial runs: wait for its reply, or request `abort'".to_owned())),
            Err(error) => reply(&from, &request, Err(error)),
        }
    }
}

/// Whoever asked for a rate that the trial no longer took is told so.
impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        let waiting = self.wanted.take().map(|(_, request, client)| (request, client));
        for (request, client) in waiting.into_iter().chain(self.asked.take()) {
            reply(&client, &request, Err("the trial has ended".to_owned()));
        }
    }
}

impl Watch for Watcher<'_> {
    fn progress(&mut self, progress: &Progress) -> bool {
        if progress.of_s > 0.0 {
            let Progress { t_s, of_s, sent, received } = progress;
            let event = json!({ "event": "progress", "id": self.id, "t_s": t_s, "of_s": of_s, "sent": sent, "received": received });
            write(self.client, &event);
        }
        while let Ok(message) = self.queue.try_recv() {
            match message {
                Message::Gone(other) => self.ended |= Arc::ptr_eq(&other, self.client),
                Message::Request(other, from) => self.serve(other, from, progress),
            }
        }
        !self.ended && !self.stop.load(Ordering::Relaxed)
    }

    fn rate(&mut self) -> Option<Rate> {
        let (rate, request, client) = self.wanted.take()?;
        self.asked = Some((request, client));
        Some(rate)
    }

    fn changed(&mut self, outcome: Result<(), String>) {
        if let Some((request, client)) = self.asked.take() {
            reply(&client, &request, outcome.map(|()| Value::Null));
        }
    }
}
