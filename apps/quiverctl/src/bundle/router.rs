//! What the router says: the answer to every `show` that needs no argument, as text and as JSON.

use std::path::PathBuf;
use std::time::Duration;

use quiver_command::session::frames::{Call, Status};
use serde_json::Value;

use super::Collector;
use super::archive::ENTRY;
use crate::connection::{CallError, Connection, Limits};
use crate::sockets;

/// Longest time for one answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The packages' configuration.
const STARTUP: &str = "/etc/quiver/startup.conf";
/// Asked where the router does not say which commands it has, and those that are no `show'.
const ALSO: [&str; 2] = ["show version verbose cmdline", "explain drop"];
/// Answers that belong to the session that asks, or say the same as another's.
const WITHOUT: [&str; 5] = ["show terminal", "show history", "show node counters", "show cli", "show macro"];

/// What is known of the router then.
pub struct Known {
    /// Its process.
    pub pid: Option<u32>,
    /// Its `startup.conf`.
    pub startup: PathBuf,
    /// Its socket for readers of statistics.
    pub statistics: Option<PathBuf>,
}

/// Asks the router for all that it shows.
pub fn ask(to: &mut Collector, socket: Option<&str>) -> Known {
    let mut known = Known { pid: None, startup: STARTUP.into(), statistics: None };
    let mut router = Router { socket: socket.map(str::to_owned), connection: None, silent: 0 };
    if let Err(error) = router.connect() {
        to.problem(format!("router: {error}"));
        return known;
    }
    known.pid = router.connection.as_ref().and_then(Connection::router);
    known.startup = known.pid.and_then(startup).unwrap_or(known.startup);
    let place = socket.map_or_else(|| PathBuf::from("/run/quiver/cli.sock"), PathBuf::from);
    known.statistics = place.parent().map(|folder| folder.join("stats.sock")).filter(|socket| socket.exists());
    let mut commands: Vec<String> = ALSO.iter().map(|command| (*command).to_owned()).collect();
    match router.call(to, "choices show", true) {
        Ok(answer) => commands.extend(shows(&answer)),
        Err(error) => to.problem(format!("the list of commands: {error}")),
    }
    for command in commands {
        let name = command.replace(' ', "-");
        for (folder, json, ending) in [("show", false, "txt"), ("json", true, "json")] {
            if router.silent >= 2 {
                continue;
            }
            match router.call(to, &command, json) {
                Ok(text) => to.add(&format!("{folder}/{name}.{ending}"), &text),
                Err(error) => to.problem(format!("{command}{}: {error}", if json { ", as JSON" } else { "" })),
            }
        }
        if router.silent >= 2 {
            to.problem("all further commands, as the router does not answer");
            break;
        }
    }
    known
}

/// The commands that can stand alone, of an answer to `choices show`.
fn shows(answer: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    let choices = answer["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words = choices.iter().filter_map(|one| Some((one["path"].as_str()?, one["syntax"].as_str()?)));
    let alone = words.filter(|(path, syntax)| needs_nothing(syntax) && !WITHOUT.contains(path) && *path != "show version");
    alone.map(|(path, _)| path.to_owned()).collect()
}

/// Whether all that a syntax line has is in brackets.
fn needs_nothing(syntax: &str) -> bool {
    let mut depth = 0_u32;
    for letter in syntax.replace("...", "").chars() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ' ' => {}
            _ if depth == 0 => return false,
            _ => {}
        }
    }
    true
}

/// The file behind `-c` of the words that a process was started with.
fn startup(pid: u32) -> Option<PathBuf> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let file = configured(&words)?;
    // A name without a folder is one in the folder of the process.
    Some(PathBuf::from(format!("/proc/{pid}/cwd")).join(file))
}

/// What stands behind `-c` in words that end with a NUL each.
fn configured(words: &[u8]) -> Option<String> {
    let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let at = words.iter().position(|word| matches!(&**word, "-c" | "--config"))?;
    words.get(at + 1).filter(|file| !file.is_empty()).map(|file| file.clone().into_owned())
}

/// A router that may stop answering.
struct Router {
    socket: Option<String>,
    connection: Option<Connection>,
    /// Answers in a row that did not come.
    silent: u32,
}

impl Router {
    fn connect(&mut self) -> Result<&mut Connection, CallError> {
        if self.connection.is_none() {
            let mut connection = sockets::connect(self.socket.as_deref())?;
            connection.limit(Limits { patience: PATIENCE, bytes: ENTRY });
            self.connection = Some(connection);
        }
        self.connection.as_mut().ok_or_else(|| CallError::NoRouter("no connection".to_owned()))
    }

    /// What a command answers. Text that is too long is cut, JSON that is too long is left out.
    fn call(&mut self, to: &Collector, command: &str, json: bool) -> Result<String, String> {
        let patience = to.left(PATIENCE).ok_or("no time was left")?;
        let connection = self.connect().map_err(|error| error.to_string())?;
        connection.limit(Limits { patience, bytes: ENTRY });
        let mut text = String::new();
        let reply = connection.call(Call { json, ..Call::command(command) }, |part| {
            text.push_str(part);
            text.len() < ENTRY
        });
        match reply {
            Ok(reply) => {
                self.silent = 0;
                match (reply.status, reply.data) {
                    (Status::Error, _) if text.is_empty() => Err(reply.text),
                    (Status::Error, _) => Ok(text + "\n... " + &reply.text + "\n"),
                    (_, Some(data)) if json => Ok(data.get().to_owned() + "\n"),
                    _ => Ok(text + &reply.text),
                }
            }
            Err(error) => {
                // What comes yet would be taken for the next answer.
                self.connection = None;
                self.silent = if matches!(error, CallError::TooLong(_)) { 0 } else { self.silent + 1 };
                Err(error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_without_needed_arguments_are_asked() {
        for (syntax, alone) in [("", true), ("[<if>] ...", true), ("[a|b [c]]", true), ("<id>", false), ("[x] on|off", false)] {
            assert_eq!(needs_nothing(syntax), alone, "{syntax}");
        }
        let answer = r#"{"choices":[{"path":"show node","syntax":"<node>"},{"path":"show errors","syntax":"[verbose]"},{"path":"show terminal","syntax":""}]}"#;
        assert_eq!(shows(answer), ["show errors"]);
        assert!(shows("nonsense").is_empty());
    }

    #[test]
    fn the_configuration_file_is_among_the_words_of_the_start() {
        assert_eq!(configured(b"quiver\0-c\0/etc/x.conf\0").as_deref(), Some("/etc/x.conf"));
        assert_eq!(configured(b"quiver\0-c\0"), None);
        assert_eq!(configured(b"quiver\0"), None);
    }
}
