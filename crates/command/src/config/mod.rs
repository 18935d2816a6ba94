//! The start-up configuration: `section { key value nested { … } }`, in a file or as command-line words.
//!
//! A [`Schema`] says which sections and keys there are; [`Schema::read`] holds a [`Source`] against it. A
//! section or key that the schema does not know is an error with file, line and column, the offending
//! text, and the nearest word that would be known; one that has no meaning here gives a notice. Values
//! are read by typed accessors, whose errors point at the value in the same way.
//!
//! ```
//! use quiver_command::config::{Schema, Section, Source};
//!
//! let schema = Schema::new()
//!     .section(Section::new("unix").flag("nodaemon").value("cli-listen", "path or host:port"))
//!     .section(Section::new("cpu").value("main-core", "core").list("corelist-workers", "cores"))
//!     .section(Section::new("plugins").named("plugin", "name", Section::new("").flag("enable").flag("disable")));
//!
//! let source = Source::file("startup.conf", "unix { nodaemon }\ncpu {\n  main-core 1 # first\n corelist-workers 4, 6-7\n}");
//! let config = schema.read(source)?;
//! assert!(config.section("unix").flag("nodaemon"));
//! let cpu = config.section("cpu");
//! assert_eq!(cpu.get("main-core").map(|core| core.u32()).transpose()?, Some(1));
//! assert_eq!(cpu.get("corelist-workers").unwrap().cpu_list()?, [4, 6, 7]);
//!
//! let error = schema.read(Source::words(["cpu", "{", "main-cor", "0", "}"])).unwrap_err();
//! assert_eq!(error.to_string(),
//!     "command line:1:7: unknown key `main-cor' in section `cpu'; did you mean `main-core'?");
//! # Ok::<(), quiver_command::config::ConfigError>(())
//! ```

mod error;
mod read;
mod reference;
mod schema;
mod source;
#[cfg(test)]
mod tests;
mod value;

pub use error::{ConfigError, Notice};
pub use read::{Block, Config};
pub use reference::{KeyHelp, Reference, SectionHelp, roff_text};
pub use schema::{Schema, Section};
pub use source::Source;
pub use value::{Listen, Value};
