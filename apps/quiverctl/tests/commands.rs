//! The program against a small made-up router on a real socket.

use quiver_command::{
    grammar::Command as Grammar,
    operation::{Invocation, Job, OpError, Operation, Outcome, Registry, Step, Text, View, retval},
    session::{Event, Request, Session},
};
use serde::{Deserialize, Serialize};
use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    process::{Command, Output, Stdio},
    rc::Rc,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

/// What the made-up router knows: nothing.
struct Fake;

#[derive(Serialize, Deserialize)]
struct Words {
    words: Vec<String>,
}

impl Text for Words {
    fn text(&self, out: &mut String, _view: &View) {
        self.words.iter().for_each(|word| out.push_str(&format!("<{word}>\n")));
    }

    fn is_negative(&self) -> bool {
        self.words == ["nothing"]
    }
}

struct Say;
impl Operation<Fake> for Say {
    const NAME: &'static str = "say";
    type Request = Words;
    type Reply = Words;
    fn run(_: &mut Fake, request: Words) -> Result<Outcome<Fake, Words>, OpError> {
        if request.words.iter().any(|word| word == "wrong") {
            return Err(OpError::new(retval::BUSY, "cannot say that").remedy("say something else"));
        }
        Ok(Outcome::Done(request))
    }
}

/// Prints a line and then waits until it is cancelled.
struct Wait;
struct Waiting {
    said: bool,
    cancelled: bool,
}
impl Operation<Fake> for Wait {
    const NAME: &'static str = "wait";
    type Request = ();
    type Reply = String;
    fn run(_: &mut Fake, (): ()) -> Result<Outcome<Fake, String>, OpError> {
        Ok(Outcome::job(Waiting { said: false, cancelled: false }))
    }
}
impl Job<Fake, String> for Waiting {
    fn step(&mut self, _: &mut Fake, _: Duration) -> Step<String> {
        match (std::mem::replace(&mut self.said, true), self.cancelled) {
            (false, _) => Step::Print("waiting\n".to_owned()),
            (true, false) => Step::Sleep(Duration::from_millis(5)),
            (true, true) => Step::Done(Ok("stopped".to_owned())),
        }
    }
    fn exclusive(&self) -> bool {
        false
    }
    fn cancel(&mut self, _: &mut Fake) {
        self.cancelled = true;
    }
}

fn registry() -> Registry<Fake> {
    let mut registry = Registry::new();
    registry.operation::<Say>().operation::<Wait>();
    registry.command(Grammar {
        path: "say",
        syntax: "<word> ...",
        help: "Says words",
        parse: |args, _| {
            let mut words = Vec::new();
            while !args.is_empty() {
                words.push(args.word("word")?.into_owned());
            }
            Ok(Invocation::new::<Say>(Words { words }))
        },
    });
    registry.command(Grammar { path: "wait", syntax: "", help: "Waits", parse: |_, _| Ok(Invocation::new::<Wait>(())) });
    registry
}

/// Serves one client until it goes.
fn serve(mut stream: UnixStream, mut session: Session) {
    let registry = registry();
    stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut job: Option<Box<dyn Job<Fake, _>>> = None;
    let mut bytes = [0; 4096];
    loop {
        while let Some(event) = session.next_event() {
            match event {
                Event::Request(Request::Command { line, view }) => match registry.execute(&mut Fake, &line, &view) {
                    Ok(Outcome::Done(answer)) => session.answer(Ok(answer)),
                    Ok(Outcome::Job(started)) => job = Some(started),
                    Err(error) => session.answer(Err(error)),
                },
                Event::Request(Request::Complete { line, cursor }) => session.completed(registry.complete(&line, cursor, &Fake)),
                Event::Request(_) => session.answer(Err(OpError::unspecified("not here"))),
                Event::Interrupt => job.iter_mut().for_each(|job| job.cancel(&mut Fake)),
                Event::KeyPress => {}
            }
        }
        if let Some(running) = &mut job {
            match running.step(&mut Fake, Duration::from_micros(50)) {
                Step::Again | Step::Wait | Step::Sleep(_) => {}
                Step::Print(text) => session.print(&text),
                Step::Done(result) => {
                    job = None;
                    session.answer(result);
                    continue;
                }
            }
        }
        if stream.write_all(session.output()).is_err() || session.finished() {
            return;
        }
        session.wrote(session.output().len());
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(read) => session.receive(&bytes[..read]),
            Err(_) => {}
        }
    }
}

/// A router's socket in a folder of its own, for as long as the value lives.
struct Router {
    folder: PathBuf,
    socket: PathBuf,
}

impl Router {
    fn start(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("quiverctl-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join(name);
        let listener = UnixListener::bind(&socket).unwrap();
        let json = name == "json.sock";
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || serve(stream, if json { Session::json() } else { Session::cli(Rc::default()) }));
            }
        });
        Self { folder, socket }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quiverctl"));
        command.arg("-s").arg(&self.socket).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> (bool, String, String) {
        texts(&self.command().args(words).output().unwrap())
    }

    fn pipe(&self, input: &str) -> (bool, String, String) {
        let mut command = self.command();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A program that has stopped at an error does not read the rest.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        texts(&child.wait_with_output().unwrap())
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn texts(output: &Output) -> (bool, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

fn good(stdout: &str) -> (bool, String, String) {
    (true, stdout.to_owned(), String::new())
}

fn bad(stdout: &str, stderr: &str) -> (bool, String, String) {
    (false, stdout.to_owned(), stderr.to_owned())
}

#[test]
fn one_command_is_run_and_its_answer_printed() {
    let router = Router::start("cli.sock");
    assert_eq!(router.run(&["say", "a", "b c"]), good("<a>\n<b c>\n"));
    assert_eq!(router.run(&["say a b"]), good("<a>\n<b>\n"));
    assert_eq!(router.run(&["--json", "say", "é"]), good("{\"words\":[\"é\"]}\n"));
    assert_eq!(router.run(&["say", "--json"]), good("{\"words\":[]}\n"));
    assert_eq!(router.run(&["?"]).1, "  say <word> ...  Says words\n  wait            Waits\n");
}

#[test]
fn a_failure_is_one_line_and_exit_1() {
    let router = Router::start("cli.sock");
    assert_eq!(router.run(&["say", "wrong"]), bad("", "say: cannot say that; say something else\n"));
    assert_eq!(router.run(&["sya", "x"]), bad("", "unknown input `sya x'; did you mean `say'?\n"));
}

#[test]
fn what_did_not_succeed_is_shown_and_exit_1() {
    let router = Router::start("cli.sock");
    assert_eq!(router.run(&["say", "nothing"]), bad("<nothing>\n", ""));
    assert_eq!(router.run(&["--json", "say", "nothing"]), bad("{\"words\":[\"nothing\"]}\n", ""));
    // It is no error: what follows is run, and the last one's status is that of all.
    assert_eq!(router.pipe("say nothing\nsay a\n"), good("<nothing>\n<a>\n"));
    assert_eq!(router.pipe("say a\nsay nothing\n"), bad("<a>\n<nothing>\n", ""));
}

#[test]
fn json_sock_needs_no_handshake() {
    let router = Router::start("json.sock");
    assert_eq!(router.run(&["say", "a"]), good("<a>\n"));
}

#[test]
fn a_pipe_stops_at_the_first_error_and_names_the_line() {
    let router = Router::start("cli.sock");
    assert_eq!(router.pipe("say a # comment\n\nsay b \\\n  c\n"), good("<a>\n<b>\n<c>\n"));
    let expected = bad("<a>\n", "line 3: say: cannot say that; say something else; what stands before it took effect\n");
    assert_eq!(router.pipe("say a\n# x\nsay wrong\nsay never\n"), expected);
    assert_eq!(router.pipe("say a\nquit\nsay never\n"), good("<a>\n"));
    let many = "say x\n".repeat(2000);
    assert_eq!(router.pipe(&many).1.len(), 4 * 2000);
}

#[test]
fn ctrl_c_cancels_and_the_summary_still_comes() {
    let router = Router::start("cli.sock");
    let mut child = router.command().arg("wait").stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 8];
    stdout.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"waiting\n");
    let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "stopped\n");
    assert!(child.wait().unwrap().success());
}

#[test]
fn without_a_router_the_message_says_what_to_do() {
    let router = Router::start("other.sock");
    let nowhere = router.folder.join("nowhere.sock");
    let output = Command::new(env!("CARGO_BIN_EXE_quiverctl")).arg("-s").arg(&nowhere).arg("x").output().unwrap();
    let (success, stdout, stderr) = texts(&output);
    assert!(!success && stdout.is_empty());
    let expected = format!(
        "quiverctl: no router listens on {}: no such socket; is the router running, and is this its `cli-listen'?\n",
        nowhere.display()
    );
    assert_eq!(stderr, expected);
}

#[test]
fn the_usual_sockets_are_tried_in_order() {
    let router = Router::start("cli.sock");
    let here = |program: &mut Command| texts(&program.args(["say", "a"]).current_dir(&router.folder).output().unwrap());
    // The system's own router, if one runs, comes first; then this folder's is not asked.
    if UnixStream::connect("/run/quiver/cli.sock").is_err() {
        let mut program = Command::new(env!("CARGO_BIN_EXE_quiverctl"));
        assert_eq!(here(program.env("XDG_RUNTIME_DIR", "/nonexistent")), good("<a>\n"));
    }
}

/// What bash offers for the last of these words, by the completion that the program writes.
fn offered(router: &Router, words: &[&str]) -> Vec<String> {
    let folder = router.folder.join("pages");
    let program = PathBuf::from(env!("CARGO_BIN_EXE_quiverctl"));
    let (ok, _, error) = texts(&Command::new(&program).arg("--generate").arg(&folder).output().unwrap());
    assert!(ok, "{error}");
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let script = format!(
        "set -u; . {}; COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)); _quiverctl; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        folder.join("quiverctl.bash").display()
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", &script, "bash", "quiverctl", "-s"]).arg(&router.socket).args(words).env("PATH", path);
    let (ok, words, error) = texts(&bash.output().unwrap());
    assert!(ok && error.is_empty(), "{error}");
    words.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_the_commands_of_the_router_and_the_options() {
    let router = Router::start("json.sock");
    assert_eq!(offered(&router, &["sa"]), ["say"]);
    assert_eq!(offered(&router, &[""]), ["say", "wait", "apply", "doctor", "exec", "export", "schema"]);
    assert_eq!(offered(&router, &["--j"]), ["--json"]);
    assert_eq!(offered(&router, &["--json", "wa"]), ["wait"]);
    // Behind a command only its own arguments.
    assert_eq!(offered(&router, &["wait", ""]), [""]);
}

#[test]
fn bash_runs_nothing_that_stands_in_a_name() {
    let router = Router::start("json.sock");
    let file = router.folder.join("made");
    let word = format!("say $(touch {})", file.display());
    assert_eq!(offered(&router, &[&word, ""]), [""]);
    assert!(!file.exists());
}

#[test]
fn the_manual_page_has_the_options_and_what_is_no_command_of_the_router() {
    let router = Router::start("json.sock");
    offered(&router, &[""]);
    let page = std::fs::read_to_string(router.folder.join("pages/quiverctl.1")).unwrap();
    for text in ["\\-\\-socket", "\\-\\-json", "doctor", "exec FILE"] {
        assert!(page.contains(text), "{text}\n{page}");
    }
    assert!(!page.contains("complete"), "hidden: {page}");
}
