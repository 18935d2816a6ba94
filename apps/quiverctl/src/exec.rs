//! `quiverctl exec FILE`: the file is read here, with the rights of whoever runs this, and its commands are run by the router.
//!
//! The router itself reads files of its own folders only, whoever asks: a client could otherwise have it read what the client may
//! not.

use crate::{Failure, Shown, connection::Connection, perform};
use quiver_command::{
    grammar::Args,
    script::{ExecLinesRequest, Script},
    session::frames::Call,
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

/// The file that a line wants to be run.
pub fn file_of(line: &str) -> Option<String> {
    let mut args = Args::new(line);
    let is_exec = args.word("command").is_ok_and(|word| word == "exec");
    let file = args.word("file").ok().filter(|file| is_exec && file != "?")?.into_owned();
    args.finish().is_ok().then_some(file)
}

/// Runs a file; stops at the first command that fails. `depth`: how many files run this one.
pub fn run(connection: &mut Connection, file: &str, shown: Shown, depth: usize) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Command(format!("exec: cannot read {file}: {error}"));
    if depth >= DEEPEST {
        return Err(Failure::Command(format!("exec: {file}: files run files more than {DEEPEST} deep")));
    }
    let input = open(Path::new(file)).map_err(|error| failed(&error))?;
    let (mut lines, mut bytes) = (Vec::new(), 0);
    for line in Script::new(input) {
        let line = line.map_err(|error| failed(&error))?;
        if let Some(other) = file_of(&line.command) {
            send(connection, file, std::mem::take(&mut lines), shown)?;
            bytes = 0;
            run(connection, &other, shown, depth + 1).map_err(|failure| within(failure, file, line.number))?;
            continue;
        }
        bytes += line.command.len() + 32;
        lines.push((line.number, line.command));
        if bytes >= CHUNK {
            send(connection, file, std::mem::take(&mut lines), shown)?;
            bytes = 0;
        }
    }
    send(connection, file, lines, shown)
}

fn open(path: &Path) -> io::Result<BufReader<File>> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    Ok(BufReader::new(file))
}

fn send(connection: &mut Connection, file: &str, lines: Vec<(u64, String)>, shown: Shown) -> Result<(), Failure> {
    if lines.is_empty() {
        return Ok(());
    }
    let request = serde_json::to_value(ExecLinesRequest { name: file.to_owned(), lines }).map_err(io::Error::other)?;
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
        assert_eq!(file_of("exec a.cli").as_deref(), Some("a.cli"));
        assert_eq!(file_of("  exec   \"/tmp/my file\" ").as_deref(), Some("/tmp/my file"));
        for line in ["exec", "exec ?", "execute x", "show version", ""] {
            assert_eq!(file_of(line), None, "{line}");
        }
    }
}
