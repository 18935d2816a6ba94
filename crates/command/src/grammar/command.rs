//! A command and what parsing a line gives.

use super::{Args, help::HelpReply};
use crate::operation::{Invocation, OpError};

/// Turns a command's arguments into a request. It may look at the control state (to know whether a word
/// names an interface), never change it.
pub type Parse<C> = fn(&mut Args<'_>, &C) -> Result<Invocation<C>, OpError>;

/// A command of the tree.
pub struct Command<C> {
    /// Its words with one blank between, `set interface state`; letters, digits, `-` and `_`.
    pub path: &'static str,
    /// What follows the words, `<if> up|down`; see the [module](super) for the notation.
    pub syntax: &'static str,
    /// One line on what it does.
    pub help: &'static str,
    /// Reads the arguments. Text that it leaves is an error.
    pub parse: Parse<C>,
}

impl<C> Clone for Command<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Command<C> {}

/// What a line asks for.
#[derive(Debug)]
pub enum Parsed<C> {
    /// Nothing: an empty line or a comment.
    Nothing,
    /// A description of commands.
    Help(HelpReply),
    /// An operation with its request, and the path of the command that named it.
    Run(Invocation<C>, &'static str),
}
