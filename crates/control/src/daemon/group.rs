//! Groups by name or number.

use quiver_command::config::{ConfigError, Value};
use quiver_privilege::account::find_group;

/// The number of the group that a value names.
///
/// # Errors
/// A group that the system does not know.
pub fn group_id(value: &Value) -> Result<u32, ConfigError> {
    let remedy = |text| format!("{text}; `groupadd --system {}' makes it, or name another", value.text());
    find_group(value.text()).map_err(|text| value.error(remedy(text)))
}
