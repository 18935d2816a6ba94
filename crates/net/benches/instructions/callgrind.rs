//! What valgrind's callgrind writes: instructions by function, and who called whom ("Callgrind Format Specification" of its
//! manual), without compression of names and positions.

use std::collections::BTreeMap;
use std::process::Command;

/// A function of the program that ran.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Events of its own: instructions, or what else was asked for.
    pub own: u64,
    /// How often it called others, and the events of those calls.
    pub calls: BTreeMap<String, (u64, u64)>,
}

impl Function {
    /// Events of its own and of all that it called.
    pub fn inclusive(&self) -> u64 {
        self.own + self.calls.values().map(|(_, cost)| cost).sum::<u64>()
    }

    /// How often it called anything.
    pub fn called(&self) -> u64 {
        self.calls.values().map(|(count, _)| count).sum()
    }
}

/// What a command writes to its standard output.
///
/// # Errors
/// It cannot be started, or fails: its name and what it said.
pub fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs this program with `options` under callgrind, which collects within the functions that `toggle` names: functions by name, with what
/// they cost in `event`.
///
/// # Errors
/// What kept it from running, or what is odd about its profile.
pub fn profile(toggle: &str, more: &[&str], options: &[&str], event: &str) -> Result<BTreeMap<String, Function>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let file = std::env::temp_dir().join(format!("quiver-instructions-{}", std::process::id()));
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no", toggle]).args(more);
    valgrind.arg(format!("--callgrind-out-file={}", file.display()));
    let run = output(valgrind.arg(program).args(options));
    let profile = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);
    run?;
    parse(&profile.map_err(|error| format!("{}: {error}", file.display()))?, event)
}

/// Reads a profile: functions by name, with what they cost in `event` (`Ir`: instructions; `I1mr`: misses of the first
/// instruction cache).
///
/// # Errors
/// The first line that is not as it should be.
fn parse(profile: &str, event: &str) -> Result<BTreeMap<String, Function>, String> {
    let mut functions: BTreeMap<String, Function> = BTreeMap::new();
    let mut current = String::new();
    let mut callee = String::new();
    let mut calls = None;
    let events = profile.lines().find_map(|line| line.strip_prefix("events: ")).ok_or("no events in the profile")?;
    let column = events.split(' ').position(|name| name == event).ok_or_else(|| format!("no {event} among {events}"))?;
    for (number, line) in profile.lines().enumerate() {
        let bad = || format!("line {}: {line}", number + 1);
        if let Some(name) = line.strip_prefix("fn=") {
            name.clone_into(&mut current);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            name.clone_into(&mut callee);
        } else if let Some(counts) = line.strip_prefix("calls=") {
            let count: u64 = counts.split(' ').next().and_then(|n| n.parse().ok()).ok_or_else(bad)?;
            calls = Some(count);
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            // Position and costs, without zeros at the end; the line after `calls=` holds what the calls cost.
            let cost: u64 = line.split(' ').nth(1 + column).map_or(Ok(0), |n| n.parse().map_err(|_| bad()))?;
            let function = functions.entry(current.clone()).or_default();
            match calls.take() {
                Some(count) => {
                    let sum = function.calls.entry(callee.clone()).or_default();
                    *sum = (sum.0 + count, sum.1 + cost);
                }
                None => function.own += cost,
            }
        }
    }
    if functions.is_empty() { Err("no function in the profile".into()) } else { Ok(functions) }
}
