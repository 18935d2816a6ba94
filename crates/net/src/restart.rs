//! State that outlives the process: what is neither configuration nor told again by anybody.
//!
//! A *subject* says what it has ([`Subject::save`]) and takes it up again in the next process ([`Subject::load`]). Subjects register
//! themselves, those of plugins too ([`Router::add_restart_subject`]). The configuration is made before they load, so a subject finds
//! its interfaces, tables and settings in place.
//!
//! A subject loads twice in a hand-over: ahead, while the other process still forwards, and once more at the end, when nothing
//! changes any more. The second time it finds most of it there, and takes away what is not said any more.

mod snapshot;

use std::collections::HashMap;

use quiver_graph::{Hold, IfIndex};

pub use snapshot::{Damaged, Load, MAGIC, Save, Section, Unusable, VERSION, sections};

use crate::Router;
use crate::ip::FamilyId;

/// A part of the state that outlives the process.
#[derive(Clone, Copy)]
pub struct Subject {
    /// Its name, the only one of its kind.
    pub name: &'static str,
    /// Version of what it writes. Another one is not read.
    pub version: u16,
    /// Writes what there is.
    pub save: fn(&mut Router, &mut Save),
    /// Takes it up, and says how many things these were. `Names` leads to what numbers meant in the other process.
    pub load: fn(&mut Router, &mut Load<'_>, &Names, Round) -> Result<u64, Damaged>,
    /// Whether what comes from elsewhere is here: routes of the kernel, addresses that are being checked.
    pub ready: fn(&mut Router) -> bool,
}

impl Subject {
    /// A subject that has nothing yet; set what it has by struct update.
    pub const fn new(name: &'static str, version: u16) -> Self {
        Self { name, version, save: |_, _| {}, load: |_, _, _, _| Ok(0), ready: |_| true }
    }
}

/// Which time a subject loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// While the other process still forwards.
    Ahead,
    /// When nothing changes any more.
    Last,
}

/// What came of a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Its name.
    pub subject: String,
    /// How many things were taken up, or why none.
    pub result: Result<u64, String>,
}

/// What numbers of the other process mean here.
#[derive(Debug, Clone, Default)]
pub struct Names {
    interfaces: HashMap<u32, IfIndex>,
    tables: [HashMap<u32, u32>; 2],
}

/// The section with the names behind numbers.
const NAMES: &str = "names";
const NAMES_VERSION: u16 = 1;

fn family_at(family: FamilyId) -> usize {
    usize::from(family == FamilyId::V6)
}

impl Names {
    /// An interface by its number in the other process.
    pub fn interface(&self, number: u32) -> Option<IfIndex> {
        self.interfaces.get(&number).copied()
    }

    /// A FIB by its index in the other process.
    pub fn fib(&self, family: FamilyId, index: u32) -> Option<u32> {
        self.tables[family_at(family)].get(&index).copied()
    }

    fn save(router: &Router, save: &mut Save) {
        save.u64(router.interfaces.iter().count() as u64);
        for interface in router.interfaces.iter() {
            save.u32(interface.index.0).text(&interface.name);
        }
        for family in [FamilyId::V4, FamilyId::V6] {
            let tables = router.tables(family);
            save.u64(tables.len() as u64);
            for table in tables {
                save.u32(table.fib).u32(table.id);
            }
        }
    }

    fn load(router: &Router, load: &mut Load<'_>) -> Result<Self, Damaged> {
        let mut names = Self::default();
        for _ in 0..load.count(6)? {
            let (number, name) = (load.u32()?, load.text()?);
            if let Some(interface) = router.interfaces.by_name(name) {
                names.interfaces.insert(number, interface.index);
            }
        }
        for family in [FamilyId::V4, FamilyId::V6] {
            for _ in 0..load.count(8)? {
                let (index, table) = (load.u32()?, load.u32()?);
                if let Some(fib) = router.fib_of_table(family, table) {
                    names.tables[family_at(family)].insert(index, fib);
                }
            }
        }
        Ok(names)
    }
}

impl Router {
    /// Adds a part of the state that outlives the process.
    pub fn add_restart_subject(&mut self, subject: Subject) {
        self.subjects.push(subject);
    }

    /// Whether all that comes from elsewhere is here; else what is waited for.
    pub fn waits_for(&mut self) -> Option<&'static str> {
        let subjects = self.subjects.clone();
        subjects.into_iter().find(|subject| !(subject.ready)(self)).map(|subject| subject.name)
    }

    /// Adds a listener for what this router leaves to another process. It is called before more is left, and after nothing is left any more. A
    /// listener that comes later asks [`Graph::hold`](quiver_graph::Graph::hold).
    pub fn listen_to_hold(&mut self, listener: fn(&mut Router, Hold)) {
        self.hold_listeners.push(listener);
    }

    /// Sets what this router leaves to another process ([`Graph::set_hold`](quiver_graph::Graph::set_hold)).
    pub fn set_hold(&mut self, hold: Hold) {
        if hold != Hold::None {
            self.tell_hold(hold);
        }
        self.graph.set_hold(hold);
        if hold == Hold::None {
            self.tell_hold(hold);
        }
    }

    fn tell_hold(&mut self, hold: Hold) {
        for listener in self.hold_listeners.clone() {
            listener(self, hold);
        }
    }

    /// Begins to forward in place of another process, which stopped receiving at `since` (ns of the kernel's wall clock).
    pub fn begin(&mut self, since: u64) {
        // Packets first: what ports write to the kernel takes longer.
        self.graph.begin(since);
        self.begin_ports();
        self.tell_hold(Hold::None);
    }

    /// Has all ports act on their devices from now on. Those that do already go on.
    pub fn begin_ports(&mut self) {
        let all: Vec<IfIndex> = self.interfaces.iter().map(|interface| interface.index).collect();
        for interface in all {
            let Some(interface) = self.interfaces.get_mut(interface) else { continue };
            let Some(device) = interface.device.as_mut() else { continue };
            if let Err(error) = device.port.begin() {
                tracing::warn!(target: "interface", "{}: {error}", interface.name);
            }
        }
    }

    /// Writes the state that outlives the process.
    pub fn snapshot(&mut self, round: Round) -> Vec<u8> {
        let mut save = Save::new(round);
        save.section(NAMES, NAMES_VERSION, |save| Names::save(self, save));
        for subject in self.subjects.clone() {
            save.section(subject.name, subject.version, |save| (subject.save)(self, save));
            self.graph.progress();
        }
        save.finish()
    }

    /// Takes the state of another process up. What a subject cannot use costs it alone.
    ///
    /// # Errors
    /// Nothing of it can be used, and nothing has changed.
    pub fn restore(&mut self, bytes: &[u8], round: Round) -> Result<Vec<Restored>, Unusable> {
        let sections = sections(bytes)?;
        let names = sections.iter().find(|s| s.name == NAMES && s.version == NAMES_VERSION).ok_or(Unusable::Sections)?;
        let names = Names::load(self, &mut Load::new(names.bytes)).map_err(|Damaged| Unusable::Sections)?;
        let mut all = Vec::new();
        for section in sections.iter().filter(|s| s.name != NAMES) {
            let subject = self.subjects.iter().find(|s| s.name == section.name).copied();
            let result = match subject {
                None => Err("nobody here knows it".to_owned()),
                Some(s) if s.version != section.version => {
                    Err(format!("it is of version {}, this router knows {}", section.version, s.version))
                }
                Some(s) => (s.load)(self, &mut Load::new(section.bytes), &names, round).map_err(|error| error.to_string()),
            };
            all.push(Restored { subject: section.name.to_owned(), result });
            self.graph.progress();
        }
        Ok(all)
    }
}
