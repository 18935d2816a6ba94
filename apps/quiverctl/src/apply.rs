//! `quiverctl apply FILE`: the wanted configuration is read here, with the rights of whoever runs this, and the router changes what differs.
//!
//! ```text
//! quiverctl apply router.yaml --plan          what would change; exit 2 where something would, 0 where nothing
//! quiverctl apply router.yaml                 changes it, all of it or nothing
//! quiverctl apply - --own interfaces/loop0    of a part, from standard input
//! quiverctl apply big.yaml --router           the router reads the file, from one of its folders
//! ```

use crate::{Failure, Shown, connection::Connection, error_json};
use quiver_command::{
    document::Changes,
    session::{
        LONGEST_LINE,
        frames::{Call, Reply, Status},
    },
};
use serde_json::json;
use std::{
    fs,
    io::{self, Read as _, Write as _},
    process::ExitCode,
};

/// Exit status of a plan that has changes.
const CHANGES: u8 = 2;

/// What is to be applied.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Apply {
    file: String,
    plan: bool,
    own: Vec<String>,
    confirmed: Option<String>,
    comment: Option<String>,
    /// The router reads the file.
    router: bool,
    json: bool,
}

impl Apply {
    /// Of the words behind `apply`. The words of the router's command, without dashes, are taken as well.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut apply = Self::default();
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let (option, mut value) = match word.split_once('=') {
                Some((option, value)) if option.starts_with("--") => (option, Some(value)),
                _ => (word, None),
            };
            let mut value = |what: &str| {
                let value = value.take().or_else(|| words.next());
                value.map(str::to_owned).ok_or_else(|| format!("apply: {option} needs {what}"))
            };
            match option {
                "--plan" | "plan" if !apply.file.is_empty() || option.starts_with('-') => apply.plan = true,
                "--own" | "own" if !apply.file.is_empty() || option.starts_with('-') => {
                    apply.own.push(value("a part, such as interfaces/loop0")?);
                }
                "--confirmed" | "confirmed" if !apply.file.is_empty() || option.starts_with('-') => {
                    apply.confirmed = Some(value("a time, such as 5m")?);
                }
                "--comment" | "comment" if !apply.file.is_empty() || option.starts_with('-') => {
                    apply.comment = Some(value("a text")?);
                }
                "--router" => apply.router = true,
                "--json" => apply.json = true,
                file if apply.file.is_empty() && (file == "-" || !file.starts_with('-')) => file.clone_into(&mut apply.file),
                other => return Err(format!("apply: unknown option `{other}'; expected {USAGE}")),
            }
        }
        if apply.file.is_empty() { Err(format!("apply: missing file; expected {USAGE}")) } else { Ok(apply) }
    }
}

const USAGE: &str = "apply FILE [--plan] [--own PART]... [--confirmed TIME] [--comment TEXT] [--router] [--json]";

fn read(file: &str) -> io::Result<String> {
    if file == "-" {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(file)
}

/// Applies it, or shows what that would change.
pub fn run(connection: &mut Connection, apply: &Apply, shown: Shown) -> Result<ExitCode, Failure> {
    let Apply { file, plan, own, confirmed, comment, router, json } = apply;
    let json = *json || shown.json;
    let mut request = json!({"plan": plan, "own": own, "confirmed": confirmed, "comment": comment});
    if *router {
        request["file"] = json!(file);
    } else {
        let text = read(file).map_err(|error| Failure::Command(format!("apply: cannot read {file}: {error}")))?;
        if text.len() > LONGEST_LINE / 2 {
            let text = "too long to be sent as a whole; put it into a folder of files { }, and have the router read it: --router";
            return Err(Failure::Command(format!("apply: {file}: {text}")));
        }
        request["document"] = json!(text);
        request["name"] = json!(file);
    }
    let call = Call { op: Some("configuration_apply".to_owned()), request, text: true, ..Call::default() };
    let reply: Reply = connection.call(call, |_| true)?;
    let mut stdout = io::stdout().lock();
    if reply.status == Status::Error {
        if json {
            writeln!(stdout, "{}", error_json(reply.error.as_ref(), &reply.text))?;
        }
        return Err(Failure::Command(reply.text));
    }
    let data = reply.data.as_ref().map_or("{}", |data| data.get());
    if json {
        writeln!(stdout, "{data}")?;
    } else {
        stdout.write_all(reply.text.as_bytes())?;
    }
    stdout.flush()?;
    let changes: Changes = serde_json::from_str(data).map_err(io::Error::other)?;
    Ok(if *plan && changes.total() > 0 { ExitCode::from(CHANGES) } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Apply, String> {
        Apply::parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_stand_before_or_behind_the_file() {
        let expected = Apply {
            file: "r.yaml".to_owned(),
            plan: true,
            own: vec!["routes".to_owned(), "interfaces/loop0".to_owned()],
            confirmed: Some("5m".to_owned()),
            ..Apply::default()
        };
        assert_eq!(parsed("r.yaml --plan --own routes --own=interfaces/loop0 --confirmed 5m").as_ref(), Ok(&expected));
        assert_eq!(parsed("--plan --own routes r.yaml own interfaces/loop0 confirmed 5m").as_ref(), Ok(&expected));
        assert_eq!(parsed("plan").map(|apply| apply.file), Ok("plan".to_owned()));
        for (words, expected) in [
            ("", "missing file"),
            ("a b", "unknown option `b'"),
            ("a --own", "--own needs a part"),
            ("--plam a", "unknown option `--plam'"),
        ] {
            let error = parsed(words).unwrap_err();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
