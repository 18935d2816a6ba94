//! Names that stand for text.

use crate::{
    grammar::nearest,
    operation::{OpError, retval},
};
use std::{borrow::Cow, collections::BTreeMap};

/// How deep a macro may refer to others, and how long an expanded line may get: a macro that refers to
/// itself, or doubles at each step, ends here.
const DEEPEST: usize = 16;
const LONGEST: usize = 1 << 20;

/// Named texts, `$(NAME)` in commands.
///
/// ```
/// let mut macros = quiver_command::script::Macros::default();
/// macros.define("IF", "host-veth0")?;
/// assert_eq!(macros.expand("set interface state $(IF) up")?, "set interface state host-veth0 up");
/// # Ok::<(), quiver_command::operation::OpError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Macros(BTreeMap<String, String>);

impl Macros {
    /// Gives a name its text; it may contain other names, which are replaced when it is used.
    ///
    /// # Errors
    /// Not a name, or no text.
    pub fn define(&mut self, name: &str, value: &str) -> Result<(), OpError> {
        let good = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !good {
            let error = OpError::new(retval::ILLEGAL_NAME, "not a macro name").key("name").value(name);
            return Err(error.remedy("use letters, digits, `_' and `-'"));
        }
        if value.is_empty() {
            return Err(OpError::new(retval::INVALID_ARGUMENT, "missing text").key("value").remedy("`undefine' forgets a name"));
        }
        self.0.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// Forgets a name.
    pub fn undefine(&mut self, name: &str) -> Result<(), OpError> {
        self.0.remove(name).map(|_| ()).ok_or_else(|| self.unknown(name))
    }

    /// All names and texts, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Replaces each `$(NAME)`; an unknown name is an error, an open `$(` is text.
    pub fn expand<'a>(&self, line: &'a str) -> Result<Cow<'a, str>, OpError> {
        let mut line = Cow::Borrowed(line);
        if !line.contains("$(") {
            return Ok(line);
        }
        for _ in 0..DEEPEST {
            match self.expand_once(&line)? {
                Some(expanded) => line = Cow::Owned(expanded),
                None => return Ok(line),
            }
        }
        Err(OpError::new(retval::LIMIT_EXCEEDED, format!("macros nest deeper than {DEEPEST}")).remedy("does one refer to itself?"))
    }

    fn expand_once(&self, line: &str) -> Result<Option<String>, OpError> {
        let mut expanded = String::new();
        let mut rest = line;
        let mut replaced = false;
        while let Some((before, after)) = rest.split_once("$(") {
            let Some((name, after)) = after.split_once(')') else { break };
            let value = self.0.get(name).ok_or_else(|| self.unknown(name))?;
            expanded.push_str(before);
            expanded.push_str(value);
            if expanded.len() > LONGEST {
                return Err(OpError::new(retval::LIMIT_EXCEEDED, "macros make the line too long"));
            }
            (rest, replaced) = (after, true);
        }
        expanded.push_str(rest);
        Ok(replaced.then_some(expanded))
    }

    fn unknown(&self, name: &str) -> OpError {
        let error = OpError::new(retval::NO_SUCH_ENTRY, "no such macro").key("name").value(name);
        match nearest(name, self.0.keys().map(String::as_str)) {
            Some(meant) => error.remedy(format!("did you mean `{meant}'?")),
            None => error.remedy("define it with `define NAME TEXT'"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_also_inside_others() {
        let mut macros = Macros::default();
        macros.define("A", "x $(B)").unwrap();
        macros.define("B", "y").unwrap();
        assert_eq!(macros.expand("$(A)$(B) z $(").unwrap(), "x yy z $(");
        assert!(matches!(macros.expand("plain").unwrap(), Cow::Borrowed(_)));
        macros.undefine("B").unwrap();
        assert_eq!(macros.expand("$(A)").unwrap_err().code, retval::NO_SUCH_ENTRY);
        assert!(macros.undefine("B").is_err());
        assert!(macros.define("a b", "x").is_err());
        assert!(macros.define("C", "").is_err(), "no text");
    }

    #[test]
    fn endless_macros_end_with_an_error() {
        let mut macros = Macros::default();
        macros.define("A", "$(A)").unwrap();
        assert_eq!(macros.expand("$(A)").unwrap_err().code, retval::LIMIT_EXCEEDED);
        macros.define("D", &"$(D)".repeat(64)).unwrap();
        assert_eq!(macros.expand("$(D)").unwrap_err().code, retval::LIMIT_EXCEEDED);
    }
}
