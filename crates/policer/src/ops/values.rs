//! Values of arguments: actions.

use quiver_command::grammar::Args;
use quiver_command::operation::OpError;
use quiver_command::request::{Argument, Value};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::policer::Action;

/// What happens to packets of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act(pub Action);

impl Act {
    /// They go on.
    pub const TRANSMIT: Self = Self(Action::Transmit);
    /// They are dropped.
    pub const DROP: Self = Self(Action::Drop);

    fn read(args: &mut Args<'_>) -> Result<Self, OpError> {
        const ACTIONS: [(&str, Action); 3] =
            [("drop", Action::Drop), ("transmit", Action::Transmit), ("mark-and-transmit", Action::Mark(0))];
        match args.expect_one_of(&ACTIONS)? {
            Action::Mark(_) => match args.take_one_of(&DSCPS) {
                Some(dscp) => Ok(Self(Action::Mark(dscp))),
                None => args.number_in("dscp", 0..=63).map(|dscp: u8| Self(Action::Mark(dscp))),
            },
            action => Ok(Self(action)),
        }
    }
}

/// Names of code points: RFC 2474, RFC 2597, RFC 3246. VPP has CS7 at 50; it is 56.
const DSCPS: [(&str, u8); 21] = [
    ("CS0", 0),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
];

impl Value for Act {
    const KIND: &'static str = "action";

    fn take(args: &mut Args<'_>, _: &Argument, _: usize) -> Result<Self, OpError> {
        Self::read(args)
    }

    fn text(&self) -> String {
        match self.0 {
            Action::Drop => "drop".to_owned(),
            Action::Transmit => "transmit".to_owned(),
            Action::Mark(dscp) => match DSCPS.iter().find(|(_, known)| *known == dscp) {
                Some((name, _)) => format!("mark-and-transmit {name}"),
                None => format!("mark-and-transmit {dscp}"),
            },
        }
    }
}

impl Serialize for Act {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Act {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut args = Args::new(&text);
        Self::read(&mut args).and_then(|value| args.finish().map(|()| value)).map_err(serde::de::Error::custom)
    }
}
