//! Pages of the guide, run as they are printed.
//!
//! A fenced block `console` is a dialogue: a line that begins with a prompt is a command, the lines up to the next prompt are
//! what it prints. The prompts: `$` is a shell beside the router, `quiver#` a command of the router, `left$` a shell in the
//! network namespace `left`. In what is printed, `...` stands for any text, and alone in its line for any lines; runs of blanks
//! count as one. A command whose page shows no output prints none and succeeds. Blocks of another kind are not run.
//!
//! The page runs in namespaces of its own, `/run` included, so its names meet no others.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use quiver_testbed::{Guard, Host, Router};

use super::BOUND;

/// Set to write what was printed into the page, in place of what the page shows and was not so.
const WRITE_VARIABLE: &str = "QUIVER_WRITE";

/// After which a step hangs: a page may run a campaign of measurements.
const STEP: Duration = Duration::from_secs(5 * BOUND.as_secs());

/// Goes before what is typed in a host. Its kernel gives up a neighbour after three seconds and its ping an answer after ten, which is
/// too soon where a router waits for a processor; options of the page itself come later, and so count.
const PATIENCE: &str =
    "for n in /proc/sys/net/ipv*/neigh/*/mcast_solicit; do echo 60 >$n; done 2>/dev/null; ping() { command ping -W 60 \"$@\"; };";

/// A command and what the page shows behind it.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    /// Line of the prompt, from 1.
    line: usize,
    prompt: String,
    command: String,
    shown: Vec<String>,
}

/// Runs a page, named from the repository's root, and panics at the first step that does otherwise than the page shows.
pub fn run(page: &str) {
    let root = root();
    let file = root.join(page);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{page}: {e}"));
    let steps = steps(&text);
    assert!(!steps.is_empty(), "{page} has no command that could be run");
    let mut reader = Reader::new(root);
    let mut edits = Vec::new();
    for step in steps {
        let printed = reader.follow(&step);
        let ok = matches(&step.shown, &printed.lines) && (printed.success || !step.shown.is_empty());
        if !ok && std::env::var_os(WRITE_VARIABLE).is_some() {
            edits.push((step, printed.lines));
            continue;
        }
        assert!(
            ok,
            "{page}:{}: {} {}\n--- shown\n{}\n--- printed\n{}",
            step.line,
            step.prompt,
            step.command,
            step.shown.join("\n"),
            printed.lines.join("\n")
        );
    }
    if !edits.is_empty() {
        std::fs::write(&file, edited(&text, &edits)).expect("the page can be written");
    }
}

/// The repository's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// The page with these outputs in place of those that it shows.
fn edited(text: &str, edits: &[(Step, Vec<String>)]) -> String {
    let (mut out, mut skip) = (String::new(), 0);
    for (index, line) in text.lines().enumerate() {
        if skip > 0 {
            skip -= 1;
            continue;
        }
        let _ = writeln!(out, "{line}");
        if let Some((step, printed)) = edits.iter().find(|(step, _)| step.line == index + 1) {
            for line in printed {
                let _ = writeln!(out, "{line}");
            }
            skip = step.shown.len();
        }
    }
    out
}

/// The dialogue of a page.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    // The first line of a block begins a step or belongs to none.
    let mut begun = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            (inside, begun) = (!inside && line == "```console", false);
        } else if let (true, Some((prompt, command))) = (inside, prompt(line)) {
            steps.push(Step { line: index + 1, prompt: prompt.to_owned(), command: command.to_owned(), shown: Vec::new() });
            begun = true;
        } else if inside {
            assert!(begun, "line {}: a block begins with a prompt", index + 1);
            let last = steps.last_mut().expect("a step has begun");
            last.shown.push(line.to_owned());
        }
    }
    steps
}

/// Splits a line with a prompt into prompt and command.
fn prompt(line: &str) -> Option<(&str, &str)> {
    let (prompt, command) = line.split_once(' ')?;
    let known = prompt == "quiver#" || prompt.strip_suffix('$').is_some_and(|host| host.chars().all(|c| c.is_ascii_alphanumeric()));
    known.then_some((prompt, command))
}

/// Whether what was printed is what is shown.
fn matches(shown: &[String], printed: &[String]) -> bool {
    match (shown.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first.trim() == "..." => {
            matches(rest, printed) || printed.split_first().is_some_and(|(_, later)| matches(shown, later))
        }
        (Some((shown, more_shown)), Some((line, more_lines))) => is_line(shown, line) && matches(more_shown, more_lines),
        _ => false,
    }
}

/// Whether one printed line is the shown one.
fn is_line(shown: &str, printed: &str) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, printed) = (plain(shown), plain(printed));
    let mut pieces = shown.split("...");
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// Who reads the page and does what it says.
struct Reader {
    host: Host,
    root: PathBuf,
    programs: PathBuf,
    running: Vec<Guard>,
}

struct Printed {
    lines: Vec<String>,
    success: bool,
}

impl Reader {
    fn new(root: PathBuf) -> Self {
        let host = Host::new("reader").expect("a host");
        host.sh("mount -t tmpfs tmpfs /run", BOUND).expect("mount").expect("a /run of its own");
        let binary = Router::binary().expect("a router").canonicalize().expect("a router");
        let programs = binary.parent().expect("a folder").to_owned();
        Self { host, root, programs, running: Vec::new() }
    }

    /// Does one step. Jobs of the background are as in a shell: `&` starts one, `kill %1` ends the first.
    fn follow(&mut self, step: &Step) -> Printed {
        if step.prompt == "$" && step.command.ends_with(" &") {
            self.start(&step.command);
            return Printed { lines: Vec::new(), success: true };
        }
        if let Some(job) = step.command.strip_prefix("kill %") {
            let job: usize = job.parse().expect("the number of a job");
            let guard = &mut self.running[job - 1];
            guard.signal(15).expect("a job that runs");
            let ended = guard.wait(BOUND).expect("wait");
            // A program without a handler is ended by the signal, the router by itself.
            let success = ended.is_some_and(|status| status.success() || guard.ended_by() == Some(15));
            return Printed { lines: Vec::new(), success };
        }
        let patient: String;
        let words: Vec<&str> = match step.prompt.strip_suffix('$') {
            None => ["quiverctl"].into_iter().chain(step.command.split_whitespace()).collect(),
            Some("") => vec!["sh", "-c", &step.command],
            Some(host) => {
                patient = format!("{PATIENCE} {}", step.command);
                vec!["ip", "netns", "exec", host, "sh", "-c", &patient]
            }
        };
        // As at a terminal: both outputs in one.
        let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        let out = self.shell(&format!("exec 2>&1; {}", quoted.join(" ")));
        let lines = out.stdout.lines().map(|line| line.trim_end().to_owned()).collect();
        Printed { lines, success: out.success() }
    }

    fn shell(&self, script: &str) -> quiver_testbed::Output {
        self.host.sh(&self.prefixed(script), STEP).expect("a shell")
    }

    /// The folder and the programs that the page takes for granted.
    fn prefixed(&self, script: &str) -> String {
        format!("cd '{}' && PATH='{}':$PATH && {script}", self.root.display(), self.programs.display())
    }

    /// Starts a program of the background, and waits until it answers a command where it is the router.
    fn start(&mut self, command: &str) {
        let mut shell = self.host.command("sh");
        shell.arg("-c").arg(self.prefixed(&format!("exec {}", command.trim_end_matches(" &"))));
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut guard = self.host.spawn(shell).expect("a background program");
        let mut said = guard.take_stderr().expect("standard error");
        let until = "until quiverctl show version >/dev/null 2>&1; do sleep 0.05; done";
        if command.starts_with("quiver ") {
            let ready = self.shell(&format!("timeout {} sh -c '{until}'", BOUND.as_secs()));
            if !ready.success() {
                let _ = guard.kill();
                let mut text = String::new();
                let _ = said.read_to_string(&mut text);
                panic!("{command}: no command is answered: {text}");
            }
        }
        // Nobody may have to wait for its words to be read.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        self.running.push(guard);
    }
}

#[test]
fn shown_lines_stand_for_printed_ones() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let agree = |shown: &str, printed: &str| matches(&lines(shown), &lines(printed));
    assert!(agree("a  b", "a b") && agree("", "") && agree("x ... z", "x 1 2 z") && agree("...ms", "0.1 ms"));
    assert!(agree("a\n...\nd", "a\nb\nc\nd") && agree("a\n...", "a") && agree("...", "b\nc"));
    assert!(
        !agree("a", "b")
            && !agree("", "b")
            && !agree("a\n...\nd", "a\nb")
            && !agree("x ... z", "x 1 y")
            && !agree("ab...bc", "abc")
    );
    let page = "```console\n$ true\nleft$ ping\nPING\nquiver# show version\n```\n```sh\n$ false\n```\n";
    let found = steps(page);
    assert_eq!(
        found.iter().map(|s| (s.line, s.prompt.as_str(), s.shown.len())).collect::<Vec<_>>(),
        [(2, "$", 0), (3, "left$", 1), (5, "quiver#", 0)]
    );
    let printed = vec!["1 packet".to_owned()];
    let new = edited(page, &[(steps(page).remove(1), printed)]);
    assert!(new.contains("left$ ping\n1 packet\nquiver#") && !new.contains("PING") && new.contains("$ false"), "{new}");
}
