//! The program under test: started with a configuration in a folder of its own, asked over its sockets, ended in any case.
#![allow(dead_code)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait for what should happen at once; the machine may be busy.
pub const SOON: Duration = Duration::from_secs(120);

/// Section of a configuration that lasts.
pub const STATE: &str = "unix { state-dir @/state }";

/// The running configuration, as commands.
pub fn configuration(router: &Router) -> String {
    router.ask("show configuration").unwrap()
}

/// Ends a router as a crash does, and starts it again in its folder.
pub fn crash(mut router: Router, conf: &str) -> Router {
    router.kill9();
    router.again(conf)
}

/// A folder that is removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("qd-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file and gives its path.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.join(name), text).unwrap();
        self.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The program, with `@` in the text standing for the folder. A small pool of buffers is added unless the text has one.
pub fn command(folder: &Folder, conf: &str) -> Command {
    let mut text = conf.replace('@', &folder.0.to_string_lossy());
    if !text.contains("buffers {") {
        text.push_str("\nbuffers { buffers-per-numa 1024 }");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_quiver"));
    command.arg("-c").arg(folder.file("startup.conf", &text)).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub fn output(folder: &Folder, conf: &str) -> Output {
    command(folder, conf).output().unwrap()
}

/// A router in the foreground.
pub struct Router {
    pub folder: Folder,
    pub child: Child,
}

impl Router {
    /// Starts one in its own runtime folder and waits until it answers.
    pub fn start(conf: &str) -> Self {
        Self::start_in(Folder::new(), conf)
    }

    pub fn start_in(folder: Folder, conf: &str) -> Self {
        // Tests put files for commands beside the sockets.
        let conf = format!("unix {{ nodaemon runtime-dir @ }} files {{ write @ }}\n{conf}");
        let command = command(&folder, &conf);
        Self::spawn(folder, command)
    }

    /// Starts one that has ended again in its folder.
    pub fn again(mut self, conf: &str) -> Self {
        let folder = std::mem::replace(&mut self.folder, Folder::new());
        Self::start_in(folder, conf)
    }

    pub fn spawn(folder: Folder, mut command: Command) -> Self {
        let log = fs::File::create(folder.join("console")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let mut router = Self { folder, child };
        router.wait_for("the router answers", |router| router.try_ask("show version").is_some());
        router
    }

    /// Waits until something is so.
    pub fn wait_for(&mut self, what: &str, mut so: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + SOON;
        while !so(self) {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{what}: the router ended: {status}\n{}", self.console());
            }
            assert!(Instant::now() < deadline, "{what}: not within {SOON:?}\n{}", self.console());
            sleep(Duration::from_millis(10));
        }
    }

    pub fn console(&self) -> String {
        fs::read_to_string(self.folder.join("console")).unwrap_or_default()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn try_ask(&self, line: &str) -> Option<Value> {
        Some(Json::connect(&self.path("json.sock"))?.ask(line, false))
    }

    /// The text that a command answers with, or its error.
    pub fn ask(&self, line: &str) -> Result<String, String> {
        let reply = self.try_ask(line).expect("json.sock takes clients");
        let text = reply["text"].as_str().unwrap_or_default().to_owned();
        if reply["status"] == "ok" { Ok(text) } else { Err(text) }
    }

    /// The answer to a command as JSON.
    pub fn data(&self, line: &str) -> Value {
        let reply = Json::connect(&self.path("json.sock")).expect("json.sock takes clients").ask(line, true);
        assert_eq!(reply["status"], "ok", "{line}: {reply}");
        reply["data"].clone()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it as a service manager would.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        wait(&mut self.child)
    }

    pub fn kill9(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Processor time so far.
    pub fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the router said:\n{}", self.console());
        }
    }
}

/// Waits for a process to end.
pub fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < deadline, "the process does not end");
        sleep(Duration::from_millis(5));
    }
}

/// A client of json.sock.
pub struct Json {
    reader: BufReader<UnixStream>,
}

impl Json {
    pub fn connect(path: &Path) -> Option<Self> {
        let stream = UnixStream::connect(path).ok()?;
        stream.set_read_timeout(Some(SOON)).unwrap();
        Some(Self { reader: BufReader::new(stream) })
    }

    pub fn send(&mut self, call: &Value) {
        self.reader.get_mut().write_all(format!("{call}\n").as_bytes()).unwrap();
    }

    /// The next frame.
    pub fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// The last frame of an answer, with the text of those before it.
    pub fn answer(&mut self) -> Value {
        let mut text = String::new();
        loop {
            let mut frame = self.receive();
            text.push_str(frame["text"].as_str().unwrap_or_default());
            if frame["status"] != "more" {
                frame["text"] = text.into();
                return frame;
            }
        }
    }

    /// The answer to a command; none where the router ends before it.
    pub fn try_ask(&mut self, line: &str) -> Option<Value> {
        self.try_call(&json!({ "command": line }))
    }

    /// The answer to a call; none where the router ends before it.
    pub fn try_call(&mut self, call: &Value) -> Option<Value> {
        self.reader.get_mut().write_all(format!("{call}\n").as_bytes()).ok()?;
        let mut text = String::new();
        // A frame that is cut off has no line end.
        while self.reader.read_line(&mut text).ok()? > 0 && text.ends_with('\n') {
            let frame: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
            if frame["status"] != "more" {
                return Some(frame);
            }
            text.clear();
        }
        None
    }

    pub fn ask(&mut self, line: &str, data: bool) -> Value {
        self.send(&json!({ "command": line, "json": data }));
        self.answer()
    }
}

/// A client of cli.sock, byte by byte.
pub struct Cli {
    pub stream: UnixStream,
}

/// What the server says first: WONT and DONT LINEMODE, WILL and DO SGA, WILL ECHO, DONT ECHO, DO TTYPE, SB TTYPE SEND, DO NAWS,
/// SB NAWS SEND.
#[rustfmt::skip]
pub const GREETING: [u8; 36] = [
    0xff, 0xfc, 0x22, 0xff, 0xfe, 0x22, 0xff, 0xfb, 0x03, 0xff, 0xfd, 0x03, 0xff, 0xfb, 0x01, 0xff, 0xfe, 0x01,
    0xff, 0xfd, 0x18, 0xff, 0xfa, 0x18, 0x01, 0xff, 0xf0, 0xff, 0xfd, 0x1f, 0xff, 0xfa, 0x1f, 0x01, 0xff, 0xf0,
];

impl Cli {
    pub fn connect(path: &Path) -> Self {
        Self::saying(path, &[])
    }

    /// Says what it is, at once: the server waits a second for that, and this process may be kept waiting for longer.
    pub fn terminal(path: &Path, name: &str) -> Self {
        Self::saying(path, &[&[0xff, 0xfa, 0x18, 0x00], name.as_bytes(), &[0xff, 0xf0]].concat())
    }

    fn saying(path: &Path, first: &[u8]) -> Self {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(first).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut cli = Self { stream };
        assert_eq!(cli.bytes(GREETING.len()), GREETING);
        cli
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Reads up to and with the given bytes.
    pub fn until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end) {
            let mut byte = [0];
            let read =
                self.stream.read(&mut byte).unwrap_or_else(|error| panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)));
            assert_eq!(read, 1, "the end came after {:?}", String::from_utf8_lossy(&bytes));
            bytes.push(byte[0]);
        }
        bytes
    }

    pub fn line(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

/// Whether this test may do what only root may.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes a command run as a plain user: `nobody` where we are root.
pub fn as_plain_user(command: &mut Command, folder: &Folder) {
    if is_root() {
        std::os::unix::fs::chown(&folder.0, Some(65_534), Some(65_534)).unwrap();
        command.uid(65_534).gid(65_534);
    }
}

/// The cores that this process may use.
pub fn allowed_cores() -> Vec<u32> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..1024).filter(|core| set.is_set(*core as usize)).collect()
}

/// A line of /proc/PID/task/TID/status.
pub fn task_status(pid: u32, tid: u64, key: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim_start_matches(':').trim().to_owned()
}
