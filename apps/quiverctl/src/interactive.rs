//! A person at a terminal.

use crate::{
    Failure, Shown,
    connection::{CallError, Connection},
    execute, interrupt, is_quit, sockets,
};
use quiver_command::{
    grammar::Completion,
    session::frames::{Call, Status},
};
use rustyline::{
    CompletionType, Config, Context, Editor,
    completion::{Completer, Pair},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::DefaultHistory,
    validate::Validator,
};
use std::{
    cell::RefCell,
    io::{self, Write},
    path::PathBuf,
    rc::Rc,
};

const PROMPT: &str = "quiver# ";
const HISTORY_LINES: usize = 10_000;

/// Reads commands and runs them until the end of input.
pub fn run(connection: Connection, socket: Option<&str>, shown: Shown) -> Result<(), Failure> {
    let connection = Rc::new(RefCell::new(connection));
    let mut editor = editor(Rc::clone(&connection)).map_err(io::Error::other)?;
    let history = history_file();
    if let Some(file) = &history {
        // There is none at the first start.
        let _ = editor.load_history(file);
    }
    loop {
        let line = match editor.readline(PROMPT) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(io::Error::other(error).into()),
        };
        if line.trim().is_empty() {
            continue;
        }
        if is_quit(&line) {
            break;
        }
        if line.trim() == "history" {
            // What was typed is known here, not to the router.
            let mut stdout = io::stdout().lock();
            stdout.write_all(numbered(editor.history().iter()).as_bytes())?;
            stdout.flush()?;
            continue;
        }
        let width = editor.dimensions().map(|(columns, _)| columns);
        match execute(&mut connection.borrow_mut(), &line, Shown { width, ..shown }) {
            Ok(()) => {}
            Err(Failure::Connection(lost)) => {
                eprintln!("quiverctl: {lost}");
                reconnect(&connection, socket);
            }
            Err(Failure::Output(error)) => return Err(error.into()),
            Err(failure) => eprintln!("{failure}"),
        }
    }
    if let Some(file) = &history {
        save_history(&mut editor, file);
    }
    Ok(())
}

/// Lines as `history` shows them, the oldest first.
fn numbered<'a>(lines: impl Iterator<Item = &'a String>) -> String {
    lines.enumerate().map(|(n, line)| format!("{:5}  {line}\n", n + 1)).collect()
}

/// Tries once for a router that was started again; the next command tries again.
fn reconnect(connection: &RefCell<Connection>, socket: Option<&str>) {
    match sockets::connect(socket) {
        Ok(new) => {
            if interrupt::watch(&new).is_ok() {
                eprintln!("quiverctl: connected again; the command was not repeated");
            }
            *connection.borrow_mut() = new;
        }
        Err(error) => eprintln!("quiverctl: {error}"),
    }
}

fn editor(connection: Rc<RefCell<Connection>>) -> rustyline::Result<Editor<Helper, DefaultHistory>> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY_LINES)?
        .history_ignore_space(true)
        .history_ignore_dups(true)?
        .auto_add_history(true)
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Helper { connection }));
    Ok(editor)
}

/// `$XDG_STATE_HOME/quiver/history`, by default below `~/.local/state`.
fn history_file() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("quiver/history"))
}

fn save_history(editor: &mut Editor<Helper, DefaultHistory>, file: &PathBuf) {
    let saved = file.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(ReadlineError::from);
    if let Err(error) = saved.and_then(|()| editor.save_history(file)) {
        let _ = writeln!(io::stderr(), "quiverctl: history not saved in {}: {error}", file.display());
    }
}

/// Completes over the socket.
struct Helper {
    connection: Rc<RefCell<Connection>>,
}

impl Helper {
    fn ask(&self, line: &str, cursor: usize) -> Result<Completion, CallError> {
        let nothing = Completion { start: cursor, candidates: Vec::new() };
        let Ok(mut connection) = self.connection.try_borrow_mut() else { return Ok(nothing) };
        let call = Call { complete: Some(line.to_owned()), cursor: Some(cursor), ..Call::default() };
        let reply = connection.call(call, |_| true)?;
        let data = reply.data.filter(|_| reply.status == Status::Ok);
        Ok(data.and_then(|data| serde_json::from_str(data.get()).ok()).unwrap_or(nothing))
    }
}

impl Completer for Helper {
    type Candidate = Pair;

    fn complete(&self, line: &str, cursor: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        // A lost connection is reported by the next command, not in the middle of a line.
        let Ok(completion) = self.ask(line, cursor) else { return Ok((cursor, Vec::new())) };
        let start = completion.start;
        if start > cursor || !line.is_char_boundary(start) {
            return Ok((cursor, Vec::new()));
        }
        let pair = |candidate: quiver_command::grammar::Candidate| Pair {
            replacement: format!("{} ", candidate.text),
            display: candidate.text,
        };
        Ok((start, completion.candidates.into_iter().map(pair).collect()))
    }
}

impl Hinter for Helper {
    type Hint = String;
}

impl Highlighter for Helper {}
impl Validator for Helper {}
impl rustyline::Helper for Helper {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_numbered_as_in_the_routers_own_sessions() {
        let lines = ["version".to_owned(), "history".to_owned()];
        assert_eq!(numbered(lines.iter()), "    1  version\n    2  history\n");
    }
}
