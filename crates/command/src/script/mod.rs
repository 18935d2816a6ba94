//! Files of commands, as `exec` and `startup-config` run them.
//!
//! - `#` at the start of a word begins a comment up to the end of the line.
//! - A `\` at the end of a line joins it with the next; white space around the joint becomes one blank.
//! - A `{` that is not closed on its line joins the lines up to its `}`.
//! - `$(NAME)` is replaced by what `define NAME …` gave.
//!
//! [`Script`] streams the commands of a file, [`Macros`] replaces names, [`ScriptJob`] runs one file as
//! a [`Job`](crate::operation::Job) in slices, and [`register`] adds `exec`, `define`, `undefine` and
//! `show macro` for any control state that has a [`ScriptHost`].

mod macros;
mod operations;
mod reader;
mod run;

pub use macros::Macros;
pub use operations::{
    Define, DefineRequest, Exec, ExecLines, ExecLinesRequest, ExecRequest, MacroEntry, ShowMacros, ShowMacrosRequest, Undefine,
    UndefineRequest, register,
};
pub use reader::{Line, Script, ScriptError};
pub use run::{Opening, ScriptHost, ScriptJob, ScriptReply, ScriptState};
