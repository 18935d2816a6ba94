//! Where operations that change configuration are recorded, so that they can be run again.
//!
//! The registry asks before such an operation runs, and records it when it has succeeded; the long ones when they end. Who makes the records
//! last is not this crate's business.

use crate::operation::OpError;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

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
}
