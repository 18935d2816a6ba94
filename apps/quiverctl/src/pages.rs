//! The manual page, and completion for shells: options are known from their definitions, commands are asked of the router.

use std::{fs, io, path::Path};

use clap::CommandFactory;
use clap_complete::Shell;
use quiver_command::{
    grammar::Completion,
    session::frames::{Call, Status},
};

use crate::connection::{CallError, Connection};

/// What bash runs. It asks the router, as the prompt of quiverctl does; without a router there is nothing to offer.
const BASH: &str = include_str!("quiverctl.bash");

/// Writes them to a folder: `quiverctl.1`, `quiverctl.bash`, `_quiverctl`, `quiverctl.fish`.
pub fn generate(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut command = crate::Options::command();
    for shell in [Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "quiverctl", folder)?;
    }
    let options = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let options: Vec<_> = options.filter_map(|argument| Some(format!("--{}", argument.get_long()?))).collect();
    fs::write(folder.join("quiverctl.bash"), BASH.replace("@OPTIONS@", &options.join(" ")))?;
    clap_mangen::generate_to(command, folder)
}

/// The words that may stand at the end of a command line, one a line.
pub fn candidates(connection: &mut Connection, line: &str) -> Result<String, CallError> {
    let call = Call { complete: Some(line.to_owned()), cursor: Some(line.len()), ..Call::default() };
    let reply = connection.call(call, |_| true)?;
    let data = reply.data.filter(|_| reply.status == Status::Ok);
    let completion: Completion = data.and_then(|data| serde_json::from_str(data.get()).ok()).unwrap_or_default();
    Ok(completion.candidates.into_iter().map(|candidate| candidate.text + "\n").collect())
}
