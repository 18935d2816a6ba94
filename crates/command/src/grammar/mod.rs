//! The command language: a tree of words, an argument cursor, help and completion.
//!
//! A command is a path of words (`set interface state`) and a function that turns the rest of the line
//! into a request. Each typed word may be any prefix that is unique among the words at its level; an
//! exact word wins over longer ones. Where a node has both children and a function of its own, children
//! are tried first and the function gets the remaining text when none matches, so that `show interface
//! pg1` and `show interface address` live side by side.
//!
//! At any level: `help`, `?` and `choices` describe what may follow, `comment { … }` is skipped and
//! `uncomment { … }` is run.
//!
//! The *syntax string* of a command is for people, for completion and for abbreviations: `<x>` is a
//! value (`<if>` completes with the names that the callback for `if` gives), everything else between
//! brackets and bars is a keyword. See [`Registry`](crate::operation::Registry) for an example.

mod args;
mod command;
mod complete;
mod help;
mod lexer;
mod probe;
mod suggest;
mod syntax;
#[cfg(test)]
mod tests;
mod tree;
pub mod values;

pub use args::{Args, IfRef};
pub use command::{Command, Parse, Parsed};
pub use complete::{Candidate, Completion};
pub use help::{CommandHelp, HelpReply};
pub use lexer::quote;
pub use suggest::{distance, nearest};

pub(crate) use complete::complete;
pub(crate) use help::markdown;
pub(crate) use tree::{Resolved, Tree, join};
