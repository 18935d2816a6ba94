//! Groups by name.

use quiver_command::config::{ConfigError, Value};

/// The number of the group that a value names, by name or number.
///
/// # Errors
/// A group that the system does not know.
pub fn group_id(value: &Value) -> Result<u32, ConfigError> {
    if let Ok(number) = value.u32() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    find(&groups, value.text()).ok_or_else(|| value.error(format!("there is no group `{}'", value.text())))
}

fn find(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let named = fields.next() == Some(name);
        fields.nth(1).filter(|_| named)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_name() {
        let groups = "root:x:0:\n# comment\nvpp:x:998:alice,bob\nbroken\nodd:x:\n";
        assert_eq!(find(groups, "vpp"), Some(998));
        assert_eq!(find(groups, "root"), Some(0));
        assert_eq!((find(groups, "vp"), find(groups, "broken"), find(groups, "odd")), (None, None, None));
    }
}
