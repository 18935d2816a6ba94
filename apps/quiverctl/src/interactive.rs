//! A person at a terminal.

use crate::{
    Failure, Shown,
    connection::{CallError, Connection},
    execute, interrupt, is_quit, sockets,
};
use quiver_command::{
    grammar::Completion,
    session::{
        frames::{Call, Status},
        prompt_in,
    },
};
use rustyline::{
    Cmd, CompletionType, ConditionalEventHandler, Config, Context, Editor, Event, EventContext, EventHandler, KeyEvent,
    RepeatCount,
    completion::{Completer, Pair},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::DefaultHistory,
    validate::Validator,
};
use std::{
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

const PROMPT: &str = "quiver# ";
const HISTORY_LINES: usize = 10_000;

/// Reads commands and runs them until the end of input.
pub fn run(connection: Connection, socket: Option<&str>, shown: Shown) -> Result<(), Failure> {
    let connection = Shared(Arc::new(Mutex::new(connection)));
    let mut editor = editor(&connection).map_err(io::Error::other)?;
    let history = history_file();
    if let Some(file) = &history {
        // There is none at the first start.
        let _ = editor.load_history(file);
    }
    loop {
        let prompt = prompt_in(PROMPT, connection.lock().has_candidate());
        let line = match editor.readline(&prompt) {
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
        match execute(&mut connection.lock(), &line, Shown { width, ..shown }) {
            Ok(_) => {}
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
fn reconnect(connection: &Shared, socket: Option<&str>) {
    match sockets::connect(socket) {
        Ok(new) => {
            if interrupt::watch(&new).is_ok() {
                eprintln!("quiverctl: connected again; the command was not repeated");
            }
            *connection.lock() = new;
        }
        Err(error) => eprintln!("quiverctl: {error}"),
    }
}

fn editor(connection: &Shared) -> rustyline::Result<Editor<Helper, DefaultHistory>> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY_LINES)?
        .history_ignore_space(true)
        .history_ignore_dups(true)?
        .auto_add_history(true)
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Helper { connection: connection.clone() }));
    editor.bind_sequence(KeyEvent::from('?'), EventHandler::Conditional(Box::new(Describe { connection: connection.clone() })));
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

/// The connection: between two commands the line editor asks by it what may follow.
#[derive(Clone)]
struct Shared(Arc<Mutex<Connection>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What may stand at a place of a line.
    fn complete(&self, line: &str, cursor: usize) -> Result<Completion, CallError> {
        let call = Call { complete: Some(line.to_owned()), cursor: Some(cursor), ..Call::default() };
        let reply = self.lock().call(call, |_| true)?;
        let data = reply.data.filter(|_| reply.status == Status::Ok);
        let nothing = || Completion { start: cursor, ..Completion::default() };
        Ok(data.and_then(|data| serde_json::from_str(data.get()).ok()).unwrap_or_else(nothing))
    }
}

/// Shows what may follow as soon as `?` is pressed; the line stays as it is.
struct Describe {
    connection: Shared,
}

impl ConditionalEventHandler for Describe {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        // A lost connection is reported by the next command, not in the middle of a line.
        let completion = self.connection.complete(context.line(), context.pos()).ok()?;
        let mut stdout = io::stdout().lock();
        // The terminal is in raw mode.
        let text = format!("\r\n{}\r\n", completion.lines().join("\r\n"));
        let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        Some(Cmd::Repaint)
    }
}

/// Completes over the socket.
struct Helper {
    connection: Shared,
}

impl Completer for Helper {
    type Candidate = Pair;

    fn complete(&self, line: &str, cursor: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        // A lost connection is reported by the next command, not in the middle of a line.
        let Ok(completion) = self.connection.complete(line, cursor) else { return Ok((cursor, Vec::new())) };
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
