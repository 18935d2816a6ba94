//! `--check`: reads `startup.conf` and the files of commands that it names, and says what is wrong with them. No device, socket or
//! memory of the router is touched; a router that runs goes on.
//!
//! Commands are read as the router would read them, and not run: whether an interface or a table is there that they name is not known.

use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use quiver_buffer::{PageSize, RegionConfig};
use quiver_command::operation::Registry;
use quiver_command::script::{Macros, Script};
use quiver_net::{Plugin, Router, RouterConfig};

use super::StartError;
use super::assemble::registry;
use crate::plugin::select;
use crate::startup::StartupConfig;

/// Files that run other files, at most so deep.
const DEPTH: usize = 10;
/// Buffers of the router that reads commands: it gets no packet.
const BUFFERS: u32 = 1024;

/// What is found.
#[derive(Default)]
struct Found {
    files: usize,
    commands: usize,
    wrong: Vec<String>,
}

/// Checks a configuration; fails where anything is wrong.
pub(super) fn run(startup: &StartupConfig, plugins: &[Plugin]) -> Result<ExitCode, StartError> {
    let objects = quiver_plugin_host::find(&startup.plugins.folders);
    let (chosen, missing) = select(plugins, &startup.plugins, &objects);
    let buffers = RegionConfig { buffers_per_numa: BUFFERS, page_size: PageSize::Kb4, ..RegionConfig::default() };
    let router = Router::new(&RouterConfig { buffers, ..Default::default() })?;
    let registry = registry(&chosen)?;
    let mut found = Found::default();
    let mut macros = Macros::default();
    for file in &startup.unix.exec {
        check(file, DEPTH, (&registry, &router), &mut macros, &mut found);
    }
    let mut out = io::stdout().lock();
    // A closed pipe is no failure of ours.
    let mut say = |line: &str| drop(writeln!(out, "{line}"));
    startup.notices.iter().chain(&missing).for_each(|notice| say(notice));
    found.wrong.iter().for_each(|line| say(line));
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let wrong = found.wrong.len();
    say(&format!(
        "startup.conf can be read, {} in {}, {}",
        plural(found.commands, "command"),
        plural(found.files, "file"),
        if wrong == 0 { "nothing wrong".to_owned() } else { format!("{wrong} wrong") }
    ));
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(file: &Path, depth: usize, with: (&Registry<Router>, &Router), macros: &mut Macros, found: &mut Found) {
    let name = file.display();
    let reader = match File::open(file) {
        Ok(reader) => BufReader::new(reader),
        Err(error) => return found.wrong.push(format!("{name}: cannot be read: {error}")),
    };
    found.files += 1;
    for line in Script::new(reader) {
        let line = match line {
            Ok(line) => line,
            Err(error) => return found.wrong.push(format!("{name}: {error}")),
        };
        found.commands += 1;
        let command = match macros.expand(&line.command) {
            Ok(command) => command.into_owned(),
            Err(error) => {
                found.wrong.push(format!("{name}:{}: {error}", line.number));
                continue;
            }
        };
        if let Err(error) = with.0.parse(&command, with.1) {
            found.wrong.push(format!("{name}:{}: {error}", line.number));
            continue;
        }
        let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((&command, ""));
        let (first, text) = rest.trim().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
        let defined = match word {
            "define" => macros.define(first, text.trim()),
            "undefine" => macros.undefine(first),
            "exec" if depth > 0 => {
                check(&beside(first), depth - 1, with, macros, found);
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(error) = defined {
            found.wrong.push(format!("{name}:{}: {error}", line.number));
        }
    }
}

/// A file that another one runs.
fn beside(word: &str) -> PathBuf {
    word.trim_matches('"').into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_command::config::Source;

    fn checked(name: &str, text: &str) -> (ExitCode, Found) {
        let file = std::env::temp_dir().join(format!("quiver-check-{}-{name}.cli", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let words = ["unix", "{", "exec", &file.to_string_lossy(), "}"].map(str::to_owned).to_vec();
        let startup = StartupConfig::read(&super::super::full_schema(&crate::BUILT_IN), Source::words(words)).unwrap();
        let code = run(&startup, &crate::BUILT_IN).unwrap();
        let (mut found, mut macros) = (Found::default(), Macros::default());
        let (chosen, _) = select(&crate::BUILT_IN, &startup.plugins, &[]);
        let buffers = RegionConfig { buffers_per_numa: BUFFERS, page_size: PageSize::Kb4, ..RegionConfig::default() };
        let router = Router::new(&RouterConfig { buffers, ..Default::default() }).unwrap();
        check(&file, DEPTH, (&registry(&chosen).unwrap(), &router), &mut macros, &mut found);
        std::fs::remove_file(file).unwrap();
        (code, found)
    }

    #[test]
    fn each_wrong_line_is_named_and_nothing_is_run() {
        let good = "# uplink\ndefine UP eth0\nset interface state $(UP) up\nip route add 10.0.0.0/8 via 10.1.0.1\n";
        let (code, found) = checked("good", good);
        assert_eq!((code, found.commands, found.wrong), (ExitCode::SUCCESS, 3, Vec::new()));
        let bad = "set interface state eth0 sideways\nip route add 10.0.0.0/33 via 10.1.0.1\nset interface state eth0 up\nset $(NO)\nexec /nowhere/x\n";
        let (code, found) = checked("bad", bad);
        assert_eq!((code, found.commands, found.wrong.len()), (ExitCode::FAILURE, 5, 4), "{:?}", found.wrong);
        for (line, expected) in
            found.wrong.iter().zip([":1: set interface state: ", ":2: ip route", ":4: ", "/nowhere/x: cannot be read"])
        {
            assert!(line.contains(expected) && !line.contains('\n'), "{line}");
        }
    }
}
