//! The operator's command: talks to a running `quiver` over its command-line socket.
//!
//! ```text
//! quiverctl show interface            one command; exit 1 and one line on standard error if it fails
//! quiverctl ping 192.0.2.1            exit 1 if nothing comes back
//! quiverctl --json show interface     the same as JSON
//! quiverctl exec setup.txt            commands of a file, which is read here and need not be readable for the router
//! quiverctl apply router.yaml         brings the router to what a document wants; `--plan' only says what would change
//! quiverctl export, quiverctl schema  the running configuration as such a document, and the JSON schema of documents
//! quiverctl < setup.txt               commands from a pipe; stops at the first that fails, names its line
//! quiverctl                           interactive: history, completion, Ctrl-C cancels what runs
//! quiverctl capture -i host-r0      packets as they pass, as pcapng: `… | wireshark -k -i -`
//! quiverctl doctor                    what of this machine keeps a router from running well; needs no router
//! quiverctl support-bundle            what somebody else needs to find a fault, in one file; works in part without a router
//! ```
#![forbid(unsafe_code)]

mod apply;
mod bundle;
mod capture;
mod connection;
mod doctor;
mod exec;
mod extcap;
mod filter;
mod interactive;
mod interrupt;
mod pages;
mod sockets;

use clap::Parser;
use connection::{CallError, Connection};
use quiver_command::{
    grammar::quote,
    operation::OpError,
    script::Script,
    session::frames::{Call, Reply, Status},
};
use serde_json::{Value, json};
use std::{
    borrow::Cow,
    io::{self, BufRead, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Talks to a running quiver router.
///
/// COMMAND is a command of the router, of which `quiverctl help` lists all; `doctor`, which examines the host and needs no router;
/// `capture`, which writes packets as they pass (`capture --help`);
/// `support-bundle [FILE]`, which collects in one file what somebody else needs to find a fault; `exec FILE`, which runs the
/// commands of a file that is read here; or `apply FILE`, which brings the router to what a document in YAML
/// wants (`--plan`: only shows what would change; `--own PART`; `--confirmed TIME`). `export` writes the running configuration as such a
/// document, `schema` the JSON schema of documents. Without COMMAND it is a prompt on a terminal, and runs the lines of a pipe otherwise.
///
/// It ends with exit status 1 if a command fails, or if nothing came back to a `ping`, and with 2 if `apply FILE --plan` has changes.
#[derive(Debug, Parser)]
#[command(name = "quiverctl", version, disable_help_subcommand = true)]
struct Options {
    /// Socket of the router: a path, or host:port
    #[arg(short, long, value_name = "SOCKET")]
    socket: Option<String>,
    /// Print replies as JSON, one line each
    #[arg(long)]
    json: bool,
    /// Write the manual page and shell completion to a folder
    #[arg(long, value_name = "FOLDER", exclusive = true)]
    generate: Option<PathBuf>,
    /// Print what may stand at the end of a command line, for shells
    #[arg(long, value_name = "LINE", hide = true)]
    complete: Option<String>,
    /// Command to run; none: read commands from standard input
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| Path::new(&name).file_name().is_some_and(|name| name == extcap::NAME)) {
        return end(extcap::run(&extcap::Request::parse()).map(|()| ExitCode::SUCCESS), false);
    }
    let mut options = Options::parse();
    // Typed behind the command out of habit; no command has such a word.
    if options.command.last().is_some_and(|word| word == "--json") {
        options.command.pop();
        options.json = true;
    }
    if let Some(option) = options.command.first().filter(|word| word.starts_with('-')) {
        eprintln!("quiverctl: unknown option `{option}'; `quiverctl --help' lists them");
        return ExitCode::from(2);
    }
    end(run(&options), options.json)
}

/// Prints why the program failed, where it did, and gives its exit status.
fn end(result: Result<ExitCode, Failure>, json: bool) -> ExitCode {
    match result {
        Ok(exit) => exit,
        // Whoever read our output has seen enough, as with `quiverctl show ip fib | head`.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            // What the router says of a command has been printed with its parts.
            if json && !failure.is_of_command() {
                println!("{}", error_json(None, &failure.to_string()));
            }
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Why the program ends with an error; the display form is the one line that it prints.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No router, or the connection broke.
    #[error("quiverctl: {0}")]
    Connection(#[from] CallError),
    /// The router refused a command: its own words.
    #[error("{0}")]
    Command(String),
    /// A command from a pipe failed.
    #[error("line {0}: {1}{before}", before = if *.0 > 1 { "; what stands before it took effect" } else { "" })]
    Line(u64, Box<Failure>),
    /// Standard input cannot be read on.
    #[error("quiverctl: {0}")]
    Input(#[from] quiver_command::script::ScriptError),
    /// Standard output cannot be written.
    #[error("quiverctl: cannot write: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    fn is_of_command(&self) -> bool {
        match self {
            Self::Command(_) => true,
            Self::Line(_, failure) => failure.is_of_command(),
            _ => false,
        }
    }
}

/// An error as `--json` shows it on standard output: `{"error": {"code": -1, "message": "…", …}}`.
fn error_json(error: Option<&OpError>, text: &str) -> Value {
    match error {
        Some(error) => json!({ "error": error }),
        None => json!({ "error": { "message": text } }),
    }
}

fn run(options: &Options) -> Result<ExitCode, Failure> {
    if let Some(folder) = &options.generate {
        pages::generate(folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(line) = &options.complete {
        let mut connection = sockets::connect(options.socket.as_deref())?;
        print!("{}", pages::candidates(&mut connection, line)?);
        return Ok(ExitCode::SUCCESS);
    }
    if options.command.first().is_some_and(|word| word == "doctor") {
        return examine(options).map(|()| ExitCode::SUCCESS);
    }
    if options.command.first().is_some_and(|word| word == "support-bundle") {
        return collect(options).map(|()| ExitCode::SUCCESS);
    }
    let interactive = options.command.is_empty() && io::stdin().is_terminal();
    let mut connection = sockets::connect(options.socket.as_deref())?;
    interrupt::watch(&connection)?;
    if options.command.first().is_some_and(|word| word == "capture") {
        return match capture::Request::try_parse_from(&options.command[1..]) {
            Ok(request) => capture::run(&mut connection, &request).map(|()| ExitCode::SUCCESS),
            Err(error) => error.exit(),
        };
    }
    let shown = Shown { json: options.json, ansi: ansi_wanted(), width: None };
    if interactive {
        return interactive::run(connection, options.socket.as_deref(), shown).map(|()| ExitCode::SUCCESS);
    }
    if options.command.is_empty() {
        return run_lines(&mut connection, shown, io::stdin().lock());
    }
    match options.command.first().map(String::as_str) {
        Some("apply") if options.command.len() > 1 => {
            let apply = apply::Apply::parse(&options.command[1..]).map_err(Failure::Command)?;
            apply::run(&mut connection, &apply, shown)
        }
        Some("export") if options.command.len() == 1 => execute(&mut connection, "show configuration yaml", shown),
        Some("schema") if options.command.len() == 1 => execute(&mut connection, "show configuration schema", shown),
        _ => execute(&mut connection, &join(&options.command), shown),
    }
}

/// Looks at the machine; fails where something does not work.
fn examine(options: &Options) -> Result<(), Failure> {
    let request = doctor::Request::parse(&options.command[1..]).map_err(Failure::Command)?;
    let findings = doctor::examine(&doctor::Machine::new(request.root));
    let mut stdout = io::stdout().lock();
    if options.json {
        writeln!(stdout, "{}", doctor::json(&findings))?;
    } else {
        stdout.write_all(doctor::text(&findings).as_bytes())?;
    }
    stdout.flush()?;
    let problems = findings.iter().filter(|finding| finding.level == doctor::Level::Problem).count();
    if problems > 0 { Err(Failure::Command(format!("doctor: {problems} problem(s), see above"))) } else { Ok(()) }
}

/// Collects a bundle, and lists what is in it.
fn collect(options: &Options) -> Result<(), Failure> {
    let request = bundle::Request::parse(&options.command[1..]).map_err(Failure::Command)?;
    let collected = bundle::collect(&request, options.socket.as_deref()).map_err(Failure::Command)?;
    let mut stdout = io::stdout().lock();
    if options.json {
        writeln!(stdout, "{}", collected.json())?;
    } else {
        stdout.write_all(collected.text().as_bytes())?;
    }
    Ok(stdout.flush()?)
}

fn ansi_wanted() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// How replies are to look.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    json: bool,
    ansi: bool,
    width: Option<u16>,
}

/// Runs the commands that `input` holds. The exit status is the last one's, as with a shell.
fn run_lines(connection: &mut Connection, shown: Shown, input: impl BufRead) -> Result<ExitCode, Failure> {
    let mut exit = ExitCode::SUCCESS;
    for line in Script::new(input) {
        let line = line?;
        if is_quit(&line.command) {
            break;
        }
        exit = execute(connection, &line.command, shown).map_err(|failure| match failure {
            Failure::Output(error) => Failure::Output(error),
            failure => Failure::Line(line.number, Box::new(failure)),
        })?;
        if interrupt::cancelled() {
            return Err(Failure::Line(line.number, Box::new(Failure::Command("interrupted".to_owned()))));
        }
    }
    Ok(exit)
}

/// Whether a line ends the session.
pub fn is_quit(line: &str) -> bool {
    matches!(line.trim(), "quit" | "q" | "exit")
}

/// Runs one command and prints what it answers; gives its exit status.
pub fn execute(connection: &mut Connection, line: &str, shown: Shown) -> Result<ExitCode, Failure> {
    match exec::file_of(line) {
        Some(file) => exec::run(connection, &file, shown, 0).map(|()| ExitCode::SUCCESS),
        None => perform(connection, Call { json: shown.json, ..Call::command(filter::compiled(line)?.into_owned()) }, shown),
    }
}

/// Makes a call and prints what is answered; gives the exit status, 1 where what was tried did not succeed.
pub fn perform(connection: &mut Connection, call: Call, shown: Shown) -> Result<ExitCode, Failure> {
    let mut stdout = io::stdout().lock();
    let call = Call { ansi: shown.ansi, width: shown.width, ..call };
    let mut written = Ok(());
    let reply: Reply = connection.call(call, |progress| {
        if written.is_ok() && !shown.json {
            written = stdout.write_all(progress.as_bytes()).and_then(|()| stdout.flush());
        }
        written.is_ok()
    })?;
    written?;
    match (reply.status, reply.data) {
        (Status::Error, _) => {
            if shown.json {
                writeln!(stdout, "{}", error_json(reply.error.as_ref(), &reply.text))?;
                stdout.flush()?;
            }
            return Err(Failure::Command(reply.text));
        }
        (_, Some(data)) if shown.json => writeln!(stdout, "{data}")?,
        // Done, with nothing to tell.
        (_, None) if shown.json && reply.text.is_empty() => writeln!(stdout, "{{}}")?,
        _ => stdout.write_all(reply.text.as_bytes())?,
    }
    stdout.flush()?;
    Ok(if reply.negative { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The words of the shell as one line. A word that has blanks in it was quoted there and stays one word;
/// a single word is a whole line, and so is the text of a `{ … }` group.
fn join(words: &[String]) -> String {
    if let [line] = words {
        return line.clone();
    }
    let word = |(place, word): (usize, &String)| -> String {
        let is_text = place == 0 || word.contains(['{', '}']);
        if is_text { Cow::Borrowed(word.as_str()) } else { quote(word) }.into_owned()
    };
    words.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(words: &[&str]) -> String {
        join(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn errors_are_json_with_all_that_is_known_of_them() {
        let error = OpError::new(-2, "unknown interface").key("interface").value("x9");
        let shown = error_json(Some(&error), "not used");
        assert_eq!((&shown["error"]["code"], &shown["error"]["value"]), (&json!(-2), &json!("x9")));
        assert_eq!(error_json(None, "no router").to_string(), r#"{"error":{"message":"no router"}}"#);
        let line = |failure| Failure::Line(3, Box::new(failure));
        assert!(line(Failure::Command(String::new())).is_of_command());
        assert!(!line(Failure::Output(io::Error::other("full"))).is_of_command());
    }

    #[test]
    fn words_with_blanks_stay_together() {
        assert_eq!(joined(&["show", "version"]), "show version");
        assert_eq!(joined(&["show version"]), "show version");
        assert_eq!(joined(&["exec", "/tmp/my file"]), "exec \"/tmp/my file\"");
        assert_eq!(joined(&["set interface tag", "pg0", ""]), "set interface tag pg0 \"\"");
        assert_eq!(joined(&["packet-generator", "new", "{ name x }"]), "packet-generator new { name x }");
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory as _;
        Options::command().debug_assert();
        let options = Options::parse_from(["quiverctl", "-s", "x", "ping", "10.0.0.1", "-h", "--json"]);
        assert_eq!(options.command, ["ping", "10.0.0.1", "-h", "--json"]);
    }
}
