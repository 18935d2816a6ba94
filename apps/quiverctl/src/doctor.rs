//! `quiverctl doctor`: what of this machine keeps a router from running well, and how to fix it. No router need run.
//!
//! Reads `/proc` and `/sys` only and changes nothing. [`Machine`] takes another root, so that tests, and whoever has copied a
//! machine's files, can have them looked at.
//!
//! | file | checks |
//! |---|---|
//! | `memory` | huge pages, lockable memory |
//! | `rights` | capabilities, kernel facilities |
//! | `processors` | cores, isolation, frequency governor, clock |
//! | `devices` | network cards and their drivers, IOMMU, the default route |

mod devices;
mod machine;
mod memory;
mod processors;
mod rights;

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

pub use machine::Machine;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// The router runs, but not as well as it could.
    Warning,
    /// Something does not work.
    Problem,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub topic: &'static str,
    /// How much it matters.
    pub level: Level,
    /// What was found, one line.
    pub text: String,
    /// What to do, one line; nothing where nothing need be done.
    pub fix: Option<String>,
}

impl Finding {
    fn new(topic: &'static str, level: Level, text: impl Into<String>) -> Self {
        Self { topic, level, text: text.into(), fix: None }
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// Looks at everything.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    let mut findings = memory::check(machine);
    findings.extend(rights::check(machine));
    findings.extend(processors::check(machine));
    findings.extend(devices::check(machine));
    findings
}

/// The findings as a table, with what to do under each.
pub fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings {
        let _ = writeln!(out, "{:<9}{:<17}{}", finding.level.name(), finding.topic, finding.text);
        if let Some(fix) = &finding.fix {
            let _ = writeln!(out, "{:<26}fix: {fix}", "");
        }
    }
    out
}

/// The findings for programs.
pub fn json(findings: &[Finding]) -> Value {
    let one = |f: &Finding| json!({ "topic": f.topic, "level": f.level.name(), "text": f.text, "fix": f.fix });
    findings.iter().map(one).collect()
}

/// What follows the word `doctor`.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the machine's files are.
    pub root: PathBuf,
}

impl Request {
    /// Reads the words.
    ///
    /// # Errors
    /// One that is not known, in a line.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        match words {
            [] => Ok(Self { root: "/".into() }),
            [option, root] if option == "--root" => Ok(Self { root: root.into() }),
            [option] if option == "--root" => Err("doctor: --root needs a folder".to_owned()),
            [word, ..] => Err(format!("doctor: unknown input `{word}', expected --root FOLDER or --json")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_a_line_each_with_the_fix_below() {
        let findings = [
            Finding::new("huge pages", Level::Good, "64 of 2 MB, 60 free"),
            Finding::new("governor", Level::Warning, "cpu 0-3: powersave").fix("cpupower frequency-set -g performance"),
        ];
        assert_eq!(
            text(&findings),
            "ok       huge pages       64 of 2 MB, 60 free\n\
             warning  governor         cpu 0-3: powersave\n                          \
             fix: cpupower frequency-set -g performance\n"
        );
        assert_eq!(json(&findings)[1]["level"], "warning");
        assert_eq!(json(&findings)[0]["fix"], Value::Null);
    }

    #[test]
    fn an_empty_machine_is_examined_without_a_fault() {
        let tree = machine::testing::Tree::new("empty");
        let findings = examine(&tree.machine());
        assert!(findings.len() >= 8, "{findings:?}");
        assert!(findings.iter().all(|f| !f.text.contains('\n') && f.fix.as_ref().is_none_or(|m| !m.contains('\n'))));
    }

    #[test]
    fn this_machine_is_examined() {
        assert!(!examine(&Machine::new("/".into())).is_empty());
    }

    #[test]
    fn other_words_are_refused() {
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert_eq!(Request::parse(&words(&["--root", "/x"])).unwrap().root, PathBuf::from("/x"));
        assert!(Request::parse(&words(&["--root"])).is_err());
        assert!(Request::parse(&words(&["now"])).unwrap_err().contains("now"));
    }
}
