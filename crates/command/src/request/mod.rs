//! Requests that are declared once.
//!
//! A declaration names the operation, its command, and for each field the words of the command and the values that it may have.
//! Everything else follows from it:
//!
//! ```text
//!                        ┌─► parser of the command, syntax line, help, completion and `?` after every argument
//!  request! { … fields } ┼─► JSON, with defaults; missing and unknown fields are errors
//!                        ├─► the command line of a request, for `show configuration`
//!                        ├─► checks of ranges, the same for commands, JSON and binary messages
//!                        ├─► `from_message!`: fields from the like-named ones of a message
//!                        └─► the reference of commands, as a page and as data
//! ```
//!
//! ```
//! use quiver_command::operation::{OpError, Outcome, Registry, View};
//! use quiver_command::request::Execute;
//!
//! struct Router { limit: u32 }
//!
//! quiver_command::request! {
//!     /// Sets how many sessions a host may have.
//!     pub change SetLimit "limit_set" ["set session limit"] {
//!         /// Sessions; 0: no limit.
//!         pub limit: u32 = "<n>" range(0..=1_000_000),
//!         /// Table of the hosts.
//!         pub table: u32 = "table <id>" default(0),
//!         /// Ends the sessions above it.
//!         pub trim: bool = "trim",
//!     }
//! }
//!
//! impl Execute<Router> for SetLimit {
//!     type Reply = ();
//!     fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
//!         router.limit = self.limit;
//!         Ok(Outcome::Done(()))
//!     }
//! }
//!
//! let mut registry = Registry::new();
//! registry.declare::<SetLimit>();
//! let mut router = Router { limit: 0 };
//! registry.execute(&mut router, "set session limit 7 trim", &View::TEXT)?;
//! assert_eq!(router.limit, 7);
//! let error = registry.execute(&mut router, "set session limit 2000000", &View::TEXT).err().unwrap();
//! assert_eq!(error.to_string(), "set session limit: invalid n `2000000'; expected 0 to 1000000");
//! let json = serde_json::json!({"limit": 2_000_000});
//! let error = registry.request("limit_set", json)?.run(&mut router, &View::JSON).err().unwrap();
//! assert_eq!(error.to_string(), "invalid n `2000000'; expected 0 to 1000000");
//! # Ok::<(), OpError>(())
//! ```
//!
//! The grammar of declared commands: values that must be given and stand before all words have their place; after them words come
//! in any order, and a word that begins no argument is the next value that is known by its place. Commands with another grammar
//! (routes, streams of the packet generator) have a parser of their own and a syntax line for people.
//!
//! Where the fields of a request are not the arguments of one command (`set interface state` and `set interface mtu` make the same
//! kind of request), [`commands!`](crate::commands!) declares each command with its arguments.

mod argument;
mod dynamic;
mod form;
mod macros;
mod read;
#[cfg(test)]
mod tests;
mod value;

pub use argument::{Argument, ArgumentHelp, Need};
pub use dynamic::{Dynamic, Kept, keep};
pub use form::{Arguments, Form};
pub use read::{Take, missing, read, syntax_line, take_ignored};
#[doc(hidden)]
pub use serde;
pub use value::{Field, Value};

use crate::grammar::Args;
use crate::operation::{Access, OpError, Operation, Outcome, Text, retval};
use serde::{Serialize, de::DeserializeOwned};

/// A request whose commands are declared; [`request!`](crate::request!) and [`commands!`](crate::commands!) implement it.
pub trait Declared: Serialize + DeserializeOwned + 'static {
    /// The name by which JSON clients call its operation.
    const NAME: &'static str;
    /// Whether the operation reads or changes.
    const ACCESS: Access;
    /// The commands that make it.
    const FORMS: &'static [Form<Self>];

    /// Whether all values are such as the arguments may have. Whoever runs the operation by [`Operation::run`] has this checked.
    ///
    /// # Errors
    /// The first one that is not.
    fn check(&self) -> Result<(), OpError> {
        Self::FORMS.iter().try_for_each(|form| (form.check)(self))
    }

    /// The command that makes it; empty where none does.
    fn command(&self) -> String {
        Self::FORMS.iter().find_map(|form| (form.command)(self)).unwrap_or_default()
    }
}

/// A request whose fields are the arguments of its commands; [`request!`](crate::request!) implements it.
pub trait Request: Serialize + DeserializeOwned + 'static {
    /// The commands that make it.
    const COMMANDS: &'static [Path<Self::Draft>];
    /// What it does.
    const HELP: &'static str;
    /// Its arguments, in the order of the syntax line.
    const ARGUMENTS: &'static [Argument];
    /// Its fields, each given or not.
    type Draft: Default + 'static;

    /// The syntax line of its commands.
    fn syntax() -> &'static str;

    /// The error for a request that does not say enough: `what` is missing.
    fn incomplete(what: &str) -> OpError {
        OpError::new(retval::INVALID_ARGUMENT, format!("missing {what}")).remedy(format!("expected {}", Self::syntax()))
    }

    /// Reads the arguments of its command.
    ///
    /// # Errors
    /// The word that is wrong, or what is missing.
    fn parse(args: &mut Args<'_>) -> Result<Self, OpError>;

    /// The command that makes it, the contrary of [`parse`](Self::parse); empty where none does. Fields that no words of a command
    /// can say are left out.
    fn command_of_fields(&self) -> String;

    /// Completes a draft: what is not given has its default.
    ///
    /// # Errors
    /// The argument that must be given and is not.
    fn complete(draft: Self::Draft) -> Result<Self, &'static Argument>;

    /// Whether all values are such as the arguments may have.
    ///
    /// # Errors
    /// The first one that is not.
    fn check_fields(&self) -> Result<(), OpError>;
}

/// A command of a request.
pub struct Path<D> {
    /// Its words, with one blank between.
    pub words: &'static str,
    /// The fields that these words say.
    pub preset: fn(&mut D),
}

/// What a declared request does: its [`Operation`] checks the request and calls this.
pub trait Execute<C>: Declared {
    /// What it answers.
    type Reply: Serialize + Text + 'static;

    /// What this request does, where that depends on more than the operation.
    fn access(&self) -> Access {
        Self::ACCESS
    }

    /// Changes or reads `control`, and answers. On `Err` nothing has changed.
    ///
    /// # Errors
    /// The operation's own.
    fn execute(self, control: &mut C) -> Result<Outcome<C, Self::Reply>, OpError>;
}

impl<C, R: Execute<C>> Operation<C> for R {
    const NAME: &'static str = <R as Declared>::NAME;
    const ACCESS: Access = <R as Declared>::ACCESS;
    type Request = R;
    type Reply = R::Reply;

    fn access(request: &R) -> Access {
        Execute::access(request)
    }

    fn run(control: &mut C, request: R) -> Result<Outcome<C, R::Reply>, OpError> {
        request.check()?;
        request.execute(control)
    }
}
