//! Values that code works out, for what the text of a profile cannot say: connections counted off, what a state table has learnt.

use std::fmt;
use std::sync::Arc;

/// Values by number.
pub trait Values: fmt::Debug + Send + Sync {
    /// The value of a number below the supply's count.
    fn value(&self, n: u64) -> u128;
}

/// Values of a field. Fields with supplies of one count and one seed have values of the same number in each frame.
#[derive(Clone, Debug)]
pub struct Supply {
    /// The values.
    pub values: Arc<dyn Values>,
    /// How many there are, at least one.
    pub count: u64,
    /// Seed of the draw; by turns for `None`.
    pub seed: Option<u64>,
}

impl PartialEq for Supply {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.values, &other.values) && (self.count, self.seed) == (other.count, other.seed)
    }
}
