//! Operations that are declared while the program runs.

mod reply;

use super::OpError;
use crate::request;
use serde_json::{Map, Value};

pub use reply::DynamicReply;

type Run<C> = Box<dyn Fn(&mut C, &Map<String, Value>) -> Result<DynamicReply, OpError>>;

/// An operation that was declared while the program runs: its request, and what it does.
pub struct Dynamic<C> {
    /// Its request and commands.
    pub request: request::Dynamic,
    /// Runs it.
    pub run: Run<C>,
}
