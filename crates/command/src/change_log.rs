//! Where operations that change configuration are recorded, so that they can be run again.
//!
//! The registry asks before such an operation runs, and records it when it has succeeded; the long ones when they end. Who makes the records
//! last is not this crate's business.

use crate::operation::OpError;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::rc::Rc;

/// An operation that was asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub operation: String,
    /// Its request.
    pub request: Box<RawValue>,
}

impl Record {
    /// Whether it asks for the same as another.
    pub fn is(&self, other: &Self) -> bool {
        self.operation == other.operation && self.request.get() == other.request.get()
    }
}

/// Takes records.
pub trait ChangeLog {
    /// Whether changes are recorded at the moment.
    fn is_on(&self) -> bool;

    /// Whether the record of an operation that is about to run can be taken.
    ///
    /// # Errors
    /// It cannot: the operation must not run.
    fn check(&self, record: &Record) -> Result<(), OpError>;

    /// Takes the record of an operation that has succeeded.
    fn append(&self, record: Record);

    /// Something has changed, or may have, that is in no record.
    fn unrecorded(&self);

    /// From now on records are held back, until [`release`](Self::release). Within a hold there may be others, which end before it.
    fn hold(&self);

    /// Ends the last hold. `keep`: all its records are taken now, as one that is there as a whole or not at all; otherwise they are forgotten.
    fn release(&self, keep: bool);
}

/// Collects changes in place of having them run.
pub trait Collector {
    /// Takes a change, and the command that asks for it where it was one.
    ///
    /// # Errors
    /// There are too many.
    fn collect(&self, command: Option<&str>, record: Record) -> Result<(), OpError>;
}

/// A hold of a log. Dropping it forgets the records that were held back.
pub struct Hold(Option<Rc<dyn ChangeLog>>);

impl Hold {
    /// Begins to hold records back; without a log there is nothing to hold.
    pub fn begin(log: Option<Rc<dyn ChangeLog>>) -> Self {
        log.iter().for_each(|log| log.hold());
        Self(log)
    }

    /// Ends it: the records are taken.
    pub fn keep(mut self) {
        self.0.take().iter().for_each(|log| log.release(true));
    }

    /// Ends it without its records, although something may have changed.
    pub fn give_up(mut self) {
        if let Some(log) = self.0.take() {
            log.release(false);
            log.unrecorded();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.iter().for_each(|log| log.release(false));
    }
}
