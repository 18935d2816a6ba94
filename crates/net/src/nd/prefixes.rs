//! Prefixes of router advertisements.

use quiver_wire::Ipv6Prefix;

use super::PrefixConfig;

/// Prefixes and what is said of each, in the order in which they were added: they are listed and sent so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes(Vec<(Ipv6Prefix, PrefixConfig)>);

impl Prefixes {
    /// Adds one behind the others, or changes what is said of it.
    pub fn insert(&mut self, prefix: Ipv6Prefix, config: PrefixConfig) {
        match self.0.iter_mut().find(|(known, _)| *known == prefix) {
            Some((_, known)) => *known = config,
            None => self.0.push((prefix, config)),
        }
    }

    /// Removes one; gives what was said of it.
    pub fn remove(&mut self, prefix: &Ipv6Prefix) -> Option<PrefixConfig> {
        let at = self.0.iter().position(|(known, _)| known == prefix)?;
        Some(self.0.remove(at).1)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, (Ipv6Prefix, PrefixConfig)> {
        self.0.iter()
    }
}
