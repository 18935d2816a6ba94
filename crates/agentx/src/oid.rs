//! Object identifiers (RFC 2741, 5.1).

use std::fmt;

/// Most parts of an object identifier (RFC 2578, 3.5).
pub const LONGEST: usize = 128;

/// An object identifier; in the order of SNMP, which is that of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(Vec<u32>);

impl Oid {
    /// Of these parts; those beyond [`LONGEST`] are left out.
    pub fn new(parts: &[u32]) -> Self {
        Self(parts[..parts.len().min(LONGEST)].to_vec())
    }

    /// Of this prefix, with parts behind it.
    pub fn with(prefix: &[u32], parts: &[u32]) -> Self {
        Self(prefix.iter().chain(parts).copied().take(LONGEST).collect())
    }

    /// Its parts.
    pub fn parts(&self) -> &[u32] {
        &self.0
    }

    /// Whether it is the null object identifier, which stands for no limit (RFC 2741, 5.2).
    pub fn is_null(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, part) in self.0.iter().enumerate() {
            write!(f, "{}{part}", if place == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_in_the_order_of_their_parts() {
        let sorted = [&[1, 3][..], &[1, 3, 0], &[1, 3, 6], &[1, 3, 6, 1], &[1, 3, 10], &[2]].map(Oid::new);
        assert!(sorted.is_sorted());
        assert_eq!(Oid::with(&[1, 3], &[6, 1]).to_string(), "1.3.6.1");
        assert_eq!(Oid::new(&[1; 200]).parts().len(), LONGEST);
    }
}
