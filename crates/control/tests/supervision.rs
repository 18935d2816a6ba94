//! Threads that hang and code that panics, in a router of its own process: this program starts itself again, as a router with a
//! plugin full of bugs, which no shipped program has.
//!
//! Nothing here measures time: what must end is waited for, what must not end is looked at after counted work.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quiver_command::grammar::{Args, Command as CliCommand};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Text, View};
use quiver_control::Plugin;
use quiver_graph::{Frame, GraphError, IfIndex, NoDrops, NoNext, NodeCx, NodeSpec, VectorNode, next_nodes};
use quiver_net::Router;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// In the environment of a router that this program starts.
const AS_ROUTER: &str = "QUIVER_TEST_AS_ROUTER";
/// Bound of every wait: a hang of the test itself. A router of the lowest weight has hardly any of a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

const TESTS: [(&str, fn()); 8] = [
    ("a_worker_that_spins_ends_the_router_with_a_line_that_says_where", a_worker_that_spins),
    ("a_worker_that_sleeps_in_a_call_ends_the_router", a_worker_that_sleeps),
    ("main_that_spins_in_an_operation_ends_the_router", main_that_spins),
    ("main_that_spins_in_a_node_ends_the_router", main_that_spins_in_a_node),
    ("threads_that_get_no_processor_are_left_alone", starved_threads),
    ("the_supervisor_hears_of_a_healthy_router_and_not_of_a_stuck_one", the_supervisor),
    ("a_panic_that_changes_nothing_is_contained", contained_panics),
    ("any_other_panic_ends_the_router_with_a_line_that_says_where", other_panics),
];

fn main() -> ExitCode {
    if std::env::var_os(AS_ROUTER).is_some() {
        return quiver_control::run(&[bugs()]);
    }
    if std::env::args().any(|arg| arg == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filters: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let chosen = TESTS.iter().filter(|(name, _)| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str())));
    let mut ran = 0;
    for (name, test) in chosen {
        println!("test {name} ...");
        test();
        ran += 1;
    }
    println!("test result: ok. {ran} passed; 0 failed");
    ExitCode::SUCCESS
}

// The plugin.

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Bug {
    Spin,
    Sleep,
    Panic,
}

impl Bug {
    fn happen(self) {
        match self {
            Self::Spin => loop {
                std::hint::spin_loop();
            },
            Self::Sleep => std::thread::sleep(Duration::from_secs(100_000)),
            Self::Panic => panic!("a bug\nof two lines"),
        }
    }
}

next_nodes! { enum BugNext { Null = "null-node" } }

struct BugNode(Bug);

impl VectorNode for BugNode {
    type Next = BugNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        self.0.happen();
        cx.decide_all(frame, BugNext::Null);
    }
}

/// Where packets are put in.
struct Emit;

impl VectorNode for Emit {
    type Next = NoNext;
    type Drop = NoDrops;

    fn run(&mut self, _: &mut NodeCx<'_>, _: &mut Frame) {}
}

/// Lets the first thread that forwards run a node with a bug.
fn in_node(router: &mut Router, bug: Bug) -> Result<(), GraphError> {
    let node = router.graph.add(vec![NodeSpec::vector("bug-node", move |_| BugNode(bug))])?[0];
    let emit = router.graph.add(vec![NodeSpec::vector("bug-emit", |_| Emit)])?[0];
    let way = router.graph.edge(emit, node)?;
    let thread = router.graph.fleet().threads()[0];
    router.graph.fleet().cast(thread, move |w| {
        w.at_node(emit, |cx| {
            for _ in 0..3 {
                let packet = cx.alloc(60, IfIndex(0)).expect("a buffer");
                cx.emit(way, packet);
            }
        });
    });
    Ok(())
}

/// An operation with a bug.
macro_rules! operation {
    ($type:ident, $name:literal, $access:ident, $reply:ty, $run:expr) => {
        struct $type;

        impl Operation<Router> for $type {
            const NAME: &'static str = $name;
            const ACCESS: Access = Access::$access;
            type Request = Bug;
            type Reply = $reply;

            fn run(router: &mut Router, bug: Bug) -> Result<Outcome<Router, $reply>, OpError> {
                let run: fn(&mut Router, Bug) -> $reply = $run;
                Ok(Outcome::Done(run(router, bug)))
            }
        }
    };
}

operation!(InNode, "bug_in_node", Change, (), |router, bug| in_node(router, bug).expect("nodes"));
operation!(Reading, "bug_show", Read, (), |_, bug| bug.happen());
operation!(Changing, "bug_set", Change, (), |_, bug| bug.happen());
operation!(Rendering, "bug_render", Change, Unshown, |_, _| Unshown);

/// A reply that cannot be shown.
#[derive(Serialize)]
struct Unshown;

impl Text for Unshown {
    fn text(&self, _: &mut String, _: &View) {
        Bug::Panic.happen();
    }
}

fn parse<O: Operation<Router, Request = Bug>>(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
    let bug = match args.rest().trim() {
        "spin" => Bug::Spin,
        "sleep" => Bug::Sleep,
        _ => Bug::Panic,
    };
    Ok(Invocation::new::<O>(bug))
}

fn bugs() -> Plugin {
    Plugin {
        register: |registry| {
            registry.operation::<InNode>().operation::<Reading>().operation::<Changing>().operation::<Rendering>();
            let mut command = |path, parse| {
                registry.command(CliCommand { path, syntax: "<bug>", help: "A bug", parse });
            };
            command("bug node", parse::<InNode>);
            command("bug show", parse::<Reading>);
            command("bug set", parse::<Changing>);
            command("bug render", parse::<Rendering>);
            command("bug parse", |_, _| panic!("a bug in a parser"));
        },
        ..Plugin::new(&["bugs_plugin.so"], "Bugs")
    }
}

// The router.

struct Bed {
    child: Child,
    folder: PathBuf,
    supervisor: UnixDatagram,
}

impl Bed {
    /// A router with this in its `unix` section, and so many workers; `before` stands before its command line.
    fn start(name: &str, unix: &str, workers: usize, before: &[&str], env: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("quiver-supervision-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).display().to_string();
        let supervisor = UnixDatagram::bind(folder.join("notify")).unwrap();
        supervisor.set_read_timeout(Some(PATIENCE)).unwrap();
        let conf = format!(
            "unix {{ nodaemon {unix} log {} runtime-dir {} }}\ncpu {{ workers {workers} }}\n\
             buffers {{ buffers-per-numa 4096 page-size 4k }}\n",
            path("log"),
            folder.display(),
        );
        fs::write(folder.join("startup.conf"), conf).unwrap();
        let own = std::env::current_exe().unwrap().display().to_string();
        let words: Vec<&str> = before.iter().copied().chain([own.as_str(), "-c"]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(path("startup.conf")).env(AS_ROUTER, "1").env("NOTIFY_SOCKET", path("notify"));
        command.envs(env.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(fs::File::create(folder.join("stderr")).unwrap()).spawn().unwrap();
        let bed = Self { child, folder, supervisor };
        bed.hears("READY=1");
        bed
    }

    fn plain(name: &str, unix: &str, workers: usize) -> Self {
        Self::start(name, unix, workers, &[], &[])
    }

    /// Waits for a message to the supervisor.
    fn hears(&self, wanted: &str) {
        let mut buffer = [0; 4096];
        let deadline = Instant::now() + PATIENCE;
        loop {
            let n = self.supervisor.recv(&mut buffer).unwrap_or_else(|error| panic!("{wanted}: {error}\n{}", self.log()));
            if String::from_utf8_lossy(&buffer[..n]).lines().any(|line| line == wanted) {
                return;
            }
            assert!(Instant::now() < deadline, "{wanted}");
        }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    fn log(&self) -> String {
        format!("log:\n{}\nstderr:\n{}", self.read("log"), self.read("stderr"))
    }

    /// Asks the router; nothing where it ends before it answers.
    fn ask(&self, request: &Value) -> Option<Value> {
        let mut stream = UnixStream::connect(self.folder.join("json.sock")).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        writeln!(stream, "{request}").ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }

    /// The text of a command's answer or of its error.
    fn cli(&self, line: &str) -> String {
        let reply = self.ask(&json!({ "command": line })).unwrap_or_else(|| panic!("{line}: no answer\n{}", self.log()));
        reply["text"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits for the end by SIGABRT, with a line that has all these words, in the log and on standard error.
    fn ends_with(mut self, words: &[&str]) {
        let status = self.ended();
        assert_eq!(status.signal(), Some(6), "{status}\n{}", self.log());
        for file in ["log", "stderr"] {
            let text = self.read(file);
            let found = text.lines().any(|line| words.iter().all(|word| line.contains(word)));
            assert!(found, "{words:?} in {file}\n{}", self.log());
        }
    }

    fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the router goes on\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

// The tests.

fn a_worker_that_spins() {
    let bed = Bed::plain("spin", "watchdog 1", 1);
    bed.ask(&json!({ "command": "bug node spin" }));
    bed.ends_with(&["quiver_wk_0", "stuck in node bug-node with a vector of 3 packets", "processor time"]);
}

fn a_worker_that_sleeps() {
    let bed = Bed::plain("sleep", "watchdog 1", 1);
    bed.ask(&json!({ "command": "bug node sleep" }));
    bed.ends_with(&["quiver_wk_0", "stuck in node bug-node with a vector of 3 packets", "blocked"]);
}

fn main_that_spins() {
    let bed = Bed::plain("main", "watchdog 1", 1);
    bed.ask(&json!({ "command": "bug set spin" }));
    bed.ends_with(&["quiver_main", "stuck in command `bug set spin'"]);
}

fn main_that_spins_in_a_node() {
    let bed = Bed::plain("node", "watchdog 1", 0);
    bed.ask(&json!({ "command": "bug node spin" }));
    bed.ends_with(&["quiver_main", "stuck in node bug-node with a vector of 3 packets"]);
}

/// All threads at the lowest weight, beside threads that never sleep at the usual one, four for each processor.
fn starved_threads() {
    let mut bed = Bed::start("starved", "watchdog 1", 2, &["nice", "-n", "19"], &[]);
    let stop = Arc::new(AtomicBool::new(false));
    let busy = 4 * std::thread::available_parallelism().map_or(2, usize::from);
    let spin = |stop: Arc<AtomicBool>| std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {});
    let threads: Vec<_> = (0..busy).map(|_| spin(stop.clone())).collect();
    let looks = || bed.ask(&json!({ "op": "watchdog_show" })).map(|reply| reply["data"]["looks"].as_u64().unwrap());
    // Three times the limit of looks at the least, with work for all threads.
    let begin = looks().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while looks().unwrap_or_else(|| panic!("{}", bed.log())) < begin + 24 {
        bed.cli("set workers 1");
        bed.cli("set workers 2");
        assert!(Instant::now() < deadline, "{}", bed.log());
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let text = bed.cli("show watchdog");
    assert!(text.contains("quiver_wk_1") && text.contains("ends the router"), "{text}");
    assert!(bed.is_running(), "{}", bed.log());
}

fn the_supervisor() {
    let mut bed = Bed::start("supervisor", "watchdog off", 1, &[], &[("WATCHDOG_USEC", "1000000")]);
    bed.hears("WATCHDOG=1");
    bed.hears("WATCHDOG=1");
    let text = bed.cli("show watchdog");
    assert!(text.contains("off") && text.contains("supervisor"), "{text}");
    bed.ask(&json!({ "command": "bug node spin" }));
    // Some are on their way; then there are none, and the watchdog is off: the end is the supervisor's to bring.
    let mut buffer = [0; 4096];
    bed.supervisor.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while bed.supervisor.recv(&mut buffer).is_ok() {
        assert!(Instant::now() < deadline, "a stuck router is called healthy");
    }
    assert!(bed.is_running());
    let healthy = Bed::plain("healthy", "", 1);
    let pid = rustix::process::Pid::from_raw(healthy.child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    healthy.hears("STOPPING=1");
}

fn contained_panics() {
    let mut bed = Bed::plain("contained", "", 1);
    for (line, says) in [
        ("bug show panic", "internal error at crates/control/tests/supervision.rs"),
        ("bug render x", "done, but the answer cannot be shown"),
        ("bug parse", "a bug in a parser"),
    ] {
        let text = bed.cli(line);
        assert!(text.contains(says), "{line}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "one line: {text}");
    }
    let reply = bed.ask(&json!({ "op": "bug_show", "request": "panic" })).unwrap();
    assert!(reply["text"].as_str().unwrap().contains("a bug of two lines"), "{reply}");
    // The state can be borrowed, and changed.
    assert!(bed.cli("create loopback interface").contains("loop0"));
    let text = bed.cli("show errors");
    let counted = text.lines().find(|line| line.contains("contained panics")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(counted.split_whitespace().next(), Some("4"), "{counted}");
    assert!(bed.cli("show watchdog").contains("contained panics: 4"));
    assert_eq!(bed.read("log").lines().filter(|line| line.contains("contained, the router goes on")).count(), 4, "{}", bed.log());
    assert!(bed.is_running());
}

fn other_panics() {
    let bed = Bed::plain("change", "", 1);
    bed.ask(&json!({ "command": "bug set panic" }));
    bed.ends_with(&["quiver_main panicked in command `bug set panic'", "supervision.rs", "a bug of two lines"]);
    let bed = Bed::plain("worker", "", 1);
    bed.ask(&json!({ "command": "bug node panic" }));
    bed.ends_with(&["quiver_wk_0 panicked in node bug-node with a vector of 3 packets", "supervision.rs"]);
}
