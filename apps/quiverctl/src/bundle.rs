//! `quiverctl support-bundle`: one file with what somebody else needs to find a fault.
//!
//! ```text
//!  /proc, /sys, journal ─┐
//!  doctor ───────────────┤
//!  startup.conf, log ────┼─► secrets masked ─► quiver-support-HOST-TIME.tar.gz, for its owner alone
//!  every `show' ─────────┤
//!  statistics ───────────┘
//! ```
//!
//! The router is asked as any client asks it: by reading commands, one at a time. One that does not answer, or does not run, is a line
//! in the bundle; the rest is collected all the same. Size and time are bounded.
//!
//! | file | does |
//! |---|---|
//! | `archive` | the file |
//! | `host` | what the kernel says of the machine and the router's process, and what other programs say |
//! | `router` | what the router says |

mod archive;
mod host;
mod router;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use quiver_command::calendar::Civil;
use quiver_command::secrets::Masked;
use serde_json::{Value, json};

use crate::doctor;
use archive::{Archive, Entry};

/// Longest time for all of it.
const PATIENCE: Duration = Duration::from_secs(90);

/// What follows the words `support-bundle`.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// The file to write; in the current folder, by host and time, where not given.
    file: Option<PathBuf>,
}

impl Request {
    /// Reads the words.
    ///
    /// # Errors
    /// One that is not known, in a line.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        match words {
            [] => Ok(Self { file: None }),
            [file] if !file.starts_with('-') => Ok(Self { file: Some(file.into()) }),
            [file, word, ..] if !file.starts_with('-') => {
                Err(format!("support-bundle: unknown input `{word}' behind the file's name; write `support-bundle [FILE]'"))
            }
            [word, ..] => Err(format!("support-bundle: unknown option `{word}'; write `support-bundle [FILE]'")),
        }
    }
}

/// A bundle that is made.
pub struct Collected {
    file: PathBuf,
    bytes: u64,
    entries: Vec<Entry>,
    masked: Masked,
    problems: Vec<String>,
}

impl Collected {
    /// What is in it, for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for entry in &self.entries {
            let cut = if entry.cut > 0 { format!("  ({} more left out)", entry.cut) } else { String::new() };
            let _ = writeln!(out, "{:>10}  {}{cut}", entry.bytes, entry.name);
        }
        out.push_str(&self.masked_text());
        for problem in &self.problems {
            let _ = writeln!(out, "missing: {problem}");
        }
        let _ = writeln!(
            out,
            "{}: {} files, {} bytes, readable by its owner only; look through it before you send it",
            self.file.display(),
            self.entries.len(),
            self.bytes
        );
        out
    }

    fn masked_text(&self) -> String {
        if self.masked.0.is_empty() {
            return "masked: nothing, no secrets were found\n".to_owned();
        }
        let line = |((file, word), count): (&(String, &str), &usize)| format!("masked: {count} after `{word}' in {file}\n");
        self.masked.0.iter().map(line).collect()
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        let entry = |e: &Entry| json!({ "name": e.name, "bytes": e.bytes, "left_out": e.cut });
        let masked = |((file, word), count): (&(String, &str), &usize)| json!({ "file": file, "after": word, "count": count });
        json!({
            "file": self.file,
            "bytes": self.bytes,
            "entries": self.entries.iter().map(entry).collect::<Value>(),
            "masked": self.masked.0.iter().map(masked).collect::<Value>(),
            "missing": self.problems,
        })
    }
}

/// What is collected meanwhile.
struct Collector {
    archive: Archive,
    masked: Masked,
    problems: Vec<String>,
    end: Instant,
    error: Option<std::io::Error>,
}

impl Collector {
    /// Adds a file without its secrets; nothing where it says nothing.
    fn add(&mut self, name: &str, text: &str) {
        if text.trim().is_empty() || self.error.is_some() {
            return;
        }
        // What will be left out is not looked through.
        let most = text.floor_char_boundary(archive::ENTRY + 1);
        let masked = self.masked.text(name, &text[..most]);
        let rest = if most < text.len() { "\n... more left out\n" } else { "" };
        if let Err(error) = self.archive.add(name, &(masked + rest)) {
            self.error = Some(error);
        }
    }

    fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    /// Time that is left, at most `most`; nothing where it is over.
    fn left(&self, most: Duration) -> Option<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left.min(most))
    }
}

/// Makes a bundle.
///
/// # Errors
/// It cannot be written, in a line.
pub fn collect(request: &Request, socket: Option<&str>) -> Result<Collected, String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).collect();
    let time = Civil::of(SystemTime::now()).iso().replace([':', '-'], "");
    let name = format!("quiver-support-{}-{time}", if host.is_empty() { "host" } else { &host });
    let file = request.file.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
    let failed = |error: &std::io::Error| format!("support-bundle: cannot write {}: {error}; name another file", file.display());
    let archive = Archive::create(&file, &name).map_err(|error| failed(&error))?;
    let end = Instant::now() + PATIENCE;
    let mut to = Collector { archive, masked: Masked::default(), problems: Vec::new(), end, error: None };
    fill(&mut to, socket);
    if let Some(error) = to.error {
        to.archive.abandon();
        return Err(failed(&error));
    }
    let (entries, bytes) = to.archive.finish(&file).map_err(|error| failed(&error))?;
    Ok(Collected { file, bytes, entries, masked: to.masked, problems: to.problems })
}

fn fill(to: &mut Collector, socket: Option<&str>) {
    to.add("bundle.txt", &format!("quiverctl {}\nmade {} UTC\n", env!("CARGO_PKG_VERSION"), Civil::of(SystemTime::now()).iso()));
    to.add("host/doctor.txt", &doctor::text(&doctor::examine(&doctor::Machine::new("/".into()))));
    host::machine(to, Path::new("/"));
    let known = router::ask(to, socket);
    match known.pid {
        Some(pid) => host::process(to, Path::new("/"), pid),
        None => to.problem("the router's process, as no router could be reached"),
    }
    host::programs(to, known.statistics.as_deref());
    host::configuration(to, &known.startup);
    let mut notes: String = to.problems.iter().map(|problem| format!("missing: {problem}\n")).collect();
    for ((file, word), count) in &to.masked.0 {
        let _ = writeln!(notes, "masked: {count} after `{word}' in {file}");
    }
    to.add("notes.txt", &notes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_behind_the_command_are_a_file() {
        let words = |words: &[&str]| Request::parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&[]).unwrap().file, None);
        assert_eq!(words(&["x.tar.gz"]).unwrap().file, Some("x.tar.gz".into()));
        for (wrong, named) in [(&["x", "y"][..], "`y'"), (&["--all"], "`--all'")] {
            let error = words(wrong).unwrap_err();
            assert!(error.contains(named) && error.contains("[FILE]") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_bundle_that_cannot_be_written_is_one_line() {
        let request = Request { file: Some("/nonexistent/x.tar.gz".into()) };
        let error = collect(&request, None).err().unwrap();
        assert!(error.starts_with("support-bundle: cannot write /nonexistent/x.tar.gz: ") && !error.contains('\n'), "{error}");
    }
}
