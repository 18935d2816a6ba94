//! The commands that concern the session itself: `quit`, `history`, `set terminal`, `show terminal`.

use crate::{
    grammar::{Args, Command},
    operation::{Invocation, OpError, Registry, retval},
};

/// Whether a line ends the session.
pub(super) fn is_quit(line: &str) -> bool {
    matches!(line.trim(), "quit" | "q" | "exit")
}

/// A command that the session itself answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    History,
    ShowTerminal,
    Ansi(bool),
    Pager(bool),
    PagerLimit(usize),
    Keep(bool),
    KeepLimit(usize),
}

/// Reads a line as one of the session's own commands; none where it is another command.
pub(super) fn own_command(line: &str) -> Option<Result<Own, OpError>> {
    let mut args = Args::new(line);
    let is_terminal = |args: &mut Args<'_>| {
        let word = args.peek().unwrap_or_default();
        // Not shorter: other commands begin with `te`.
        word.len() >= 4 && args.take_keyword("terminal")
    };
    let own = match args.word("command").ok()?.as_ref() {
        "history" => Ok(Own::History),
        "show" | "sho" | "sh" if is_terminal(&mut args) => Ok(Own::ShowTerminal),
        "set" if is_terminal(&mut args) => setting(&mut args),
        _ => return None,
    };
    Some(own.and_then(|own| args.finish().map(|()| own)).map_err(|error| error.in_command("terminal")))
}

fn setting(args: &mut Args<'_>) -> Result<Own, OpError> {
    if args.take_keyword("ansi") {
        return Ok(Own::Ansi(args.switch("value")?));
    }
    let pager = args.take_keyword("pager");
    if !pager {
        args.expect_keyword("history")?;
    }
    let limit = args.take_keyword("limit");
    match (pager, limit) {
        (true, true) => Ok(Own::PagerLimit(args.number("limit")?)),
        (true, false) => Ok(Own::Pager(args.switch("value")?)),
        // A history takes memory: the limit has one.
        (false, true) => Ok(Own::KeepLimit(args.number_in("limit", 0..=100_000)?)),
        (false, false) => Ok(Own::Keep(args.switch("value")?)),
    }
}

/// Declares the commands that sessions answer themselves, so that help and completion know them. Where
/// there is no terminal they fail with an explanation.
pub fn declare_commands<C: 'static>(registry: &mut Registry<C>) {
    fn no_terminal<C>(args: &mut Args<'_>, _: &C) -> Result<Invocation<C>, OpError> {
        args.rest();
        Err(OpError::new(retval::UNSUPPORTED, "only an interactive session has this command"))
    }
    let commands = [
        ("quit", "", "Ends the session"),
        ("exit", "", "Ends the session"),
        ("history", "", "Shows the lines that were typed"),
        ("show terminal", "", "Shows what the session knows about its terminal"),
        ("set terminal", "ansi on|off | pager on|off|limit <n> | history on|off|limit <n>", "Changes how the session behaves"),
    ];
    for (path, syntax, help) in commands {
        registry.command(Command { path, syntax, help, parse: no_terminal });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sessions_own_commands_are_taken() {
        assert_eq!(own_command("history"), Some(Ok(Own::History)));
        assert_eq!(own_command("sh term"), Some(Ok(Own::ShowTerminal)));
        assert_eq!(own_command("set terminal pager off"), Some(Ok(Own::Pager(false))));
        assert_eq!(own_command("set term history limit 7"), Some(Ok(Own::KeepLimit(7))));
        assert_eq!(own_command("show te"), None);
        assert_eq!(own_command("set interface state x up"), None);
        assert_eq!(own_command(""), None);
        let error = own_command("set terminal colour on").unwrap().unwrap_err().to_string();
        assert!(error.starts_with("terminal: unknown input `colour'"), "{error}");
    }
}
