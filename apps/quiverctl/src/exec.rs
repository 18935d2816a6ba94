//! `quiverctl exec FILE`: the file is read here, with the rights of whoever runs this, and its commands are run by the router.
//!
//! The router itself reads files of its own folders only, whoever asks: a client could otherwise have it read what the client may
//! not.
//!
//! `quiverctl exec FILE atomic` sends it as one request, of which all is done or nothing.

use crate::{Failure, Shown, connection::Connection, filter, perform};
use quiver_command::{
    grammar::Args,
    script::{ExecLinesRequest, Script},
    session::{LONGEST_LINE, frames::Call},
};
use std::{
    fs::File,
    io::{self, BufReader},
    path::Path,
};

/// Bytes of commands sent at once, well below the longest line that a router takes.
const CHUNK: usize = 256 << 10;
/// How deep files may run other files.
const DEEPEST: usize = 16;

/// A file that is to be run.
#[derive(Debug, PartialEq, Eq)]
pub struct Exec {
    file: String,
    /// All of it or nothing.
    atomic: bool,
}

/// The file that a line wants to be run.
pub fn file_of(line: &str) -> Option<Exec> {
    let mut args = Args::new(line);
    let is_exec = args.word("command").is_ok_and(|word| word == "exec");
    let file = args.word("file").ok().filter(|file| is_exec && file != "?")?.into_owned();
    let atomic = args.take_keyword("atomic");
    args.finish().is_ok().then_some(Exec { file, atomic })
}

/// Runs a file; stops at the first command that fails. `depth`: how many files run this one.
pub fn run(connection: &mut Connection, exec: &Exec, shown: Shown, depth: usize) -> Result<(), Failure> {
    let file = exec.file.as_str();
    let failed = |error: &dyn std::fmt::Display| Failure::Command(format!("exec: cannot read {file}: {error}"));
    if depth >= DEEPEST {
        return Err(Failure::Command(format!("exec: {file}: files run files more than {DEEPEST} deep")));
    }
    if exec.atomic {
        return run_atomic(connection, file, shown, &failed);
    }
    let input = open(Path::new(file)).map_err(|error| failed(&error))?;
    let (mut lines, mut bytes) = (Vec::new(), 0);
    for line in Script::new(input) {
        let line = line.map_err(|error| failed(&error))?;
        if let Some(other) = file_of(&line.command) {
            send(connection, request(file, std::mem::take(&mut lines)), shown)?;
            bytes = 0;
            run(connection, &other, shown, depth + 1).map_err(|failure| within(failure, file, line.number))?;
            continue;
        }
        let command = filter::compiled(&line.command).map_err(|failure| within(failure, file, line.number))?.into_owned();
        bytes += command.len() + 32;
        lines.push((line.number, command));
        if bytes >= CHUNK {
            send(connection, request(file, std::mem::take(&mut lines)), shown)?;
            bytes = 0;
        }
    }
    send(connection, request(file, lines), shown)
}

/// Runs a file as a whole.
fn run_atomic(
    connection: &mut Connection,
    file: &str,
    shown: Shown,
    failed: &dyn Fn(&dyn std::fmt::Display) -> Failure,
) -> Result<(), Failure> {
    let here = "have the router read it: put it into a folder of files { }, and give the command there (vppctl, json.sock)";
    let mut lines = Vec::new();
    for line in Script::new(open(Path::new(file)).map_err(|error| failed(&error))?) {
        let line = line.map_err(|error| failed(&error))?;
        if file_of(&line.command).is_some() {
            let text = format!("exec: {file}:{}: a file that is run as a whole runs no other ones; {here}", line.number);
            return Err(Failure::Command(text));
        }
        lines.push((line.number, line.command));
    }
    let bytes: usize = lines.iter().map(|(_, command)| command.len() + 32).sum();
    if bytes > LONGEST_LINE / 2 {
        return Err(Failure::Command(format!("exec: {file}: too long to be sent as a whole; {here}")));
    }
    send(connection, ExecLinesRequest { atomic: true, ..request(file, lines) }, shown)
}

fn request(file: &str, lines: Vec<(u64, String)>) -> ExecLinesRequest {
    ExecLinesRequest { name: file.to_owned(), lines, atomic: false }
}

fn open(path: &Path) -> io::Result<BufReader<File>> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    Ok(BufReader::new(file))
}

fn send(connection: &mut Connection, request: ExecLinesRequest, shown: Shown) -> Result<(), Failure> {
    if request.lines.is_empty() {
        return Ok(());
    }
    let request = serde_json::to_value(request).map_err(io::Error::other)?;
    let call = Call { op: Some("exec_lines".to_owned()), request, text: !shown.json, ..Call::default() };
    perform(connection, call, shown).map(drop)
}

fn within(failure: Failure, file: &str, number: u64) -> Failure {
    match failure {
        Failure::Command(text) => Failure::Command(format!("exec: {file}:{number}: {text}")),
        failure => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exec_with_a_file_is_taken() {
        let exec = |file: &str, atomic| Some(Exec { file: file.to_owned(), atomic });
        assert_eq!(file_of("exec a.cli"), exec("a.cli", false));
        assert_eq!(file_of("  exec   \"/tmp/my file\" "), exec("/tmp/my file", false));
        assert_eq!(file_of("exec atomic atomic"), exec("atomic", true));
        for line in ["exec", "exec ?", "exec a b", "execute x", "show version", ""] {
            assert_eq!(file_of(line), None, "{line}");
        }
    }
}
