//! Checkpoints: configurations that are kept, to go back to them.
//!
//! One with a name is kept until it is deleted. One is kept without being asked for before each rollback, and has a number: 1 is what
//! was configured before the last one. Where there is a state folder each checkpoint is a file in it, and only its heading is in memory;
//! without one they end with the router.
//!
//! A file has a line of JSON that says what it is, and one for each operation with what undoes it. It is whole or absent.

mod job;

pub use job::{Keep, Load};

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use quiver_command::configuration::{Back, Entry};
use quiver_command::operation::{OpError, retval};
use quiver_net::Router;
use quiver_net::files::{Files, Place, Use};
use serde::{Deserialize, Serialize};

/// Checkpoints with names at most.
const NAMED: usize = 50;
/// Checkpoints that are kept without being asked for.
const NUMBERED: usize = 10;
/// Bytes of a file at most: some 2 million routes.
const MOST: u64 = 1 << 30;
/// How names of files begin.
const BY_NAME: &str = "checkpoint.";
const BY_NUMBER: &str = "rollback.";
/// Characters of a name at most.
const NAME: usize = 64;

/// What a checkpoint is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Heading {
    /// Its name; none of those that are kept without being asked for.
    pub name: Option<String>,
    /// What the user says of it; of one without a name, what came after it.
    pub comment: Option<String>,
    /// When it was made, milliseconds since 1970.
    pub unix_ms: u64,
    /// Operations of its configuration.
    pub operations: usize,
    /// Later ones have higher numbers.
    sequence: u64,
}

struct Checkpoint {
    heading: Heading,
    /// Not where they are in a file.
    entries: Option<Arc<Vec<Entry>>>,
}

/// The checkpoints of a router. A part of it.
#[derive(Default)]
pub struct Checkpoints {
    /// The state folder.
    files: Option<Files>,
    /// The latest last.
    all: Vec<Checkpoint>,
}

fn damaged(path: &Path) -> io::Error {
    io::Error::other(format!("{} is no checkpoint, or not whole", path.display()))
}

fn heading(place: &Place) -> io::Result<Heading> {
    let mut line = String::new();
    BufReader::new(place.open()?).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(|_| damaged(place.path()))
}

fn read(place: &Place) -> io::Result<Vec<Entry>> {
    let bytes = place.read(MOST)?;
    let mut lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let heading: Option<Heading> = lines.next().and_then(|line| serde_json::from_slice(line).ok());
    let entry = |line: &[u8]| serde_json::from_slice::<(Entry, Back)>(line).map(|(entry, back)| Entry { back, ..entry });
    let entries: Result<Vec<Entry>, _> = lines.map(entry).collect();
    match (heading, entries) {
        (Some(heading), Ok(entries)) if heading.operations == entries.len() => Ok(entries),
        _ => Err(damaged(place.path())),
    }
}

fn write(place: &Place, heading: &Heading, entries: &[Entry]) -> io::Result<()> {
    let mut file = place.create()?;
    let mut bytes = serde_json::to_vec(heading)?;
    bytes.push(b'\n');
    for entry in entries {
        serde_json::to_writer(&mut bytes, &(&entry, &entry.back))?;
        bytes.push(b'\n');
    }
    file.write_all(&bytes)?;
    file.finish_durably().map(drop)
}

impl Checkpoints {
    /// Those of a state folder. A file that is none is logged and left alone.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn open(folder: &Path, group: Option<u32>) -> io::Result<Self> {
        let files = Files::open(folder, &[], &[], group).map_err(|(_, error)| error)?;
        let mut all = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            if !name.to_str().is_some_and(|name| name.starts_with(BY_NAME) || name.starts_with(BY_NUMBER)) {
                continue;
            }
            let place = files.find(Path::new(&name), Use::Write, false).map_err(|error| io::Error::other(error.to_string()))?;
            match heading(&place) {
                Ok(heading) => all.push(Checkpoint { heading, entries: None }),
                Err(error) => tracing::warn!(target: "startup", "a checkpoint is left out: {error}"),
            }
        }
        all.sort_by_key(|checkpoint| checkpoint.heading.sequence);
        Ok(Self { files: Some(files), all })
    }

    /// Those of a router.
    pub fn of(router: &mut Router) -> &mut Self {
        router.part_or_default()
    }

    /// What there is: those without a name first, the last one first, then those with names.
    pub fn headings(&self) -> Vec<Heading> {
        let with = |named: bool| {
            let some = self.all.iter().rev().map(|checkpoint| &checkpoint.heading);
            some.filter(move |heading| heading.name.is_some() == named).cloned()
        };
        with(false).chain(with(true)).collect()
    }

    fn find(&self, which: &str) -> Result<&Checkpoint, OpError> {
        let none = || {
            let error = OpError::new(retval::NO_SUCH_ENTRY, format!("no checkpoint `{which}'")).key("checkpoint").value(which);
            error.remedy("`show configuration checkpoints' lists them")
        };
        match which.parse::<usize>() {
            Ok(number) => {
                let mut numbered = self.all.iter().rev().filter(|checkpoint| checkpoint.heading.name.is_none());
                number.checked_sub(1).and_then(|number| numbered.nth(number)).ok_or_else(none)
            }
            Err(_) => {
                let is = |checkpoint: &&Checkpoint| checkpoint.heading.name.as_deref() == Some(which);
                self.all.iter().find(is).ok_or_else(none)
            }
        }
    }

    fn place(files: &Files, heading: &Heading) -> Result<Place, OpError> {
        let name = match &heading.name {
            Some(name) => format!("{BY_NAME}{name}"),
            None => format!("{BY_NUMBER}{}", heading.sequence),
        };
        files.find(Path::new(&name), Use::Write, false)
    }

    /// The configuration of a checkpoint, by name or number.
    ///
    /// # Errors
    /// There is no such checkpoint.
    pub fn load(&self, which: &str) -> Result<Load, OpError> {
        let found = self.find(which)?;
        match (&found.entries, &self.files) {
            (Some(entries), _) => Ok(Load::ready(Arc::clone(entries))),
            (None, Some(files)) => {
                let place = Self::place(files, &found.heading)?;
                Ok(Load::reading(move || read(&place).map_err(|error| place.cannot("read", &error))))
            }
            (None, None) => Err(OpError::unspecified("the checkpoint is nowhere")),
        }
    }

    /// Refuses what cannot be the name of a checkpoint, and one more than may be kept.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, name: &str) -> Result<(), OpError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME || !name.chars().all(fits) || name.chars().all(|c| c.is_ascii_digit()) {
            let error = OpError::new(retval::ILLEGAL_NAME, "not a name for a checkpoint").key("name").value(name);
            return Err(error.remedy(format!("use up to {NAME} letters, digits, `-', `_' and `.', and not digits alone")));
        }
        let named = self.all.iter().filter(|checkpoint| checkpoint.heading.name.is_some()).count();
        if named >= NAMED && self.find(name).is_err() {
            let error = OpError::new(retval::LIMIT_EXCEEDED, format!("there are {NAMED} checkpoints with names"));
            return Err(error.remedy("delete one: `configuration checkpoint <name> del'"));
        }
        Ok(())
    }

    /// Keeps a configuration, in the place of the one with the same name.
    pub fn keep(&self, name: Option<String>, comment: Option<String>, entries: Arc<Vec<Entry>>) -> Result<Keep, OpError> {
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let sequence = self.all.last().map_or(1, |last| last.heading.sequence + 1);
        let unix_ms = u64::try_from(unix_ms).unwrap_or(u64::MAX);
        let heading = Heading { name, comment, unix_ms, operations: entries.len(), sequence };
        let Some(files) = &self.files else { return Ok(Keep::in_memory(heading, entries)) };
        let place = Self::place(files, &heading)?;
        let copy = heading.clone();
        let written = move || write(&place, &copy, &entries).map_err(|error| place.cannot("write", &error));
        Ok(Keep::in_file(heading, written))
    }

    /// One is kept.
    fn kept(&mut self, heading: Heading, entries: Option<Arc<Vec<Entry>>>) {
        if let Some(name) = &heading.name {
            self.all.retain(|other| other.heading.name.as_ref() != Some(name));
        }
        self.all.push(Checkpoint { heading, entries });
        let numbered = self.all.iter().filter(|checkpoint| checkpoint.heading.name.is_none()).count();
        if numbered > NUMBERED
            && let Some(oldest) = self.all.iter().position(|checkpoint| checkpoint.heading.name.is_none())
        {
            let _ = self.remove(oldest);
        }
    }

    fn remove(&mut self, at: usize) -> Result<(), OpError> {
        let Checkpoint { heading, .. } = self.all.remove(at);
        let Some(files) = &self.files else { return Ok(()) };
        let place = Self::place(files, &heading)?;
        fs::remove_file(place.path()).map_err(|error| place.cannot("remove", &error))
    }

    /// Deletes one with a name.
    ///
    /// # Errors
    /// There is none, or its file cannot be removed.
    pub fn delete(&mut self, name: &str) -> Result<(), OpError> {
        self.find(name)?;
        let at = self.all.iter().position(|checkpoint| checkpoint.heading.name.as_deref() == Some(name));
        at.map_or_else(|| Err(OpError::invalid("name", name, "a name, not a number")), |at| self.remove(at))
    }
}
