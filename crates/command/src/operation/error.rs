//! The one error of the control path.

use super::retval;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Write as _};

/// Why an operation or a command failed: VPP's return code, the offending key and value, the remedy.
///
/// Its display form is one clear line, whatever text went in:
///
/// ```
/// use quiver_command::operation::{OpError, retval};
/// let error = OpError::new(retval::NO_SUCH_FIB, "no such table").key("table").value(9)
///     .remedy("create it with `ip table add 9'");
/// assert_eq!(error.to_string(), "no such table (9); create it with `ip table add 9'");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpError {
    /// VPP's return code, negative; see [`retval`].
    pub code: i32,
    /// The command path the error occurred under (`show interface`); none over JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Box<str>>,
    /// What is wrong, without a full stop.
    pub message: String,
    /// The parameter that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Box<str>>,
    /// Its offending value, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Box<str>>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Box<str>>,
}

impl OpError {
    /// An error with a code from [`retval`] and its message.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, command: None, message: message.into(), key: None, value: None, remedy: None }
    }

    /// An error without a code of its own ([`retval::UNSPECIFIED`]), as most command errors are.
    pub fn unspecified(message: impl Into<String>) -> Self {
        Self::new(retval::UNSPECIFIED, message)
    }

    /// An error whose message is the code's own description.
    pub fn from_code(code: i32) -> Self {
        Self::new(code, retval::describe(code))
    }

    /// ``unknown input `…'``: text that no command or parameter takes.
    pub fn unknown_input(input: &str) -> Self {
        Self::unspecified(format!("unknown input `{}'", excerpt(input))).raw_value(input)
    }

    /// A value that is well formed but not acceptable.
    pub fn invalid(key: impl Into<String>, value: impl Display, message: impl Into<String>) -> Self {
        Self::new(retval::INVALID_VALUE, message).key(key).value(value)
    }

    /// A system call that failed, with what it was to do: `cannot open /dev/net/tun: …`.
    pub fn system(doing: impl Display, error: &std::io::Error) -> Self {
        Self::new(retval::SYSCALL_ERROR_1, format!("{doing}: {error}"))
    }

    /// Names the offending parameter.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into().into());
        self
    }

    /// States its offending value.
    pub fn value(mut self, value: impl Display) -> Self {
        self.value = Some(value.to_string().into());
        self
    }

    /// Says what to do about it.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into().into());
        self
    }

    /// Puts the command path before the message, unless a more precise one is there already.
    pub fn in_command(mut self, path: &str) -> Self {
        if self.command.is_none() && !path.is_empty() {
            self.command = Some(path.into());
        }
        self
    }

    fn raw_value(mut self, value: &str) -> Self {
        self.value = Some(value.into());
        self
    }
}

/// At most 60 characters of `text`: an error line stays readable whatever was typed.
pub(crate) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut characters = text.chars();
    let mut short: String = characters.by_ref().take(LONGEST).collect();
    if characters.next().is_some() {
        short.push_str("...");
    }
    short
}

impl Display for OpError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = OneLine(formatter);
        if let Some(command) = &self.command {
            write!(line, "{command}: ")?;
        }
        let message = if self.message.is_empty() { retval::describe(self.code) } else { &self.message };
        line.write_str(message)?;
        // Key and value are repeated only where the message does not show them itself.
        let value = self.value.as_deref().map(excerpt).filter(|value| !message.contains(value.as_str()));
        let key = self.key.as_deref().filter(|key| !message.contains(key));
        match (key, value) {
            (Some(key), Some(value)) => write!(line, " ({key} {value})")?,
            (Some(key), None) => write!(line, " ({key})")?,
            (None, Some(value)) => write!(line, " ({value})")?,
            (None, None) => {}
        }
        if let Some(remedy) = &self.remedy {
            write!(line, "; {remedy}")?;
        }
        Ok(())
    }
}

impl std::error::Error for OpError {}

/// Writes text with control characters and line ends as blanks, so that the result is one line.
struct OneLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut pieces = text.split(|character: char| character.is_control()).filter(|piece| !piece.is_empty());
        let Some(first) = pieces.next() else {
            return Ok(());
        };
        self.0.write_str(first)?;
        for piece in pieces {
            self.0.write_char(' ')?;
            self.0.write_str(piece)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_is_one_line_whatever_went_in() {
        let error = OpError::unspecified("first\nsecond\r\n").value("a\tb").remedy("do\nthis").in_command("x");
        let line = error.to_string();
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(line.starts_with("x: first second"));
    }

    #[test]
    fn key_and_value_are_not_said_twice() {
        let error = OpError::invalid("prefix", 33, "Invalid prefix len: 33");
        assert_eq!(error.to_string(), "Invalid prefix len: 33");
        let error = OpError::invalid("table", 9, "no such thing");
        assert_eq!(error.to_string(), "no such thing (table 9)");
    }

    #[test]
    fn an_empty_message_becomes_the_words_of_the_code() {
        assert_eq!(OpError::new(retval::BD_IN_USE, "").to_string(), "bridge domain in use");
        assert_eq!(OpError::from_code(-12345).to_string(), "error");
    }

    #[test]
    fn the_inner_command_path_stays() {
        let error = OpError::unspecified("x").in_command("show interface").in_command("show");
        assert_eq!(error.to_string(), "show interface: x");
    }
}
