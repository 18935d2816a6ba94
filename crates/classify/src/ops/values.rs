//! Values of arguments: numbers with a sign, next nodes, actions.

use quiver_command::grammar::Args;
use quiver_command::operation::OpError;
use quiver_command::request::{Argument, Value};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::view;
use crate::view::{DENY, NONE};

/// A number with a sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Signed(pub i32);

impl Value for Signed {
    const KIND: &'static str = "number with sign";

    fn take(args: &mut Args<'_>, argument: &Argument, _: usize) -> Result<Self, OpError> {
        args.take::<i32>(argument.what()).map(Self)
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// Where packets go: 0 drops them, all other numbers let them go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next(pub u32);

impl Value for Next {
    const KIND: &'static str = "next";

    fn take(args: &mut Args<'_>, _: &Argument, _: usize) -> Result<Self, OpError> {
        Self::read(args)
    }

    fn text(&self) -> String {
        match self.0 {
            DENY => "deny".into(),
            NONE => "permit".into(),
            number => number.to_string(),
        }
    }
}

impl Next {
    fn read(args: &mut Args<'_>) -> Result<Self, OpError> {
        if let Some(next) = args.take_one_of(&[("deny", DENY), ("drop", DENY), ("permit", NONE)]) {
            return Ok(Self(next));
        }
        args.number::<u32>("next").map(Self)
    }
}

/// Values that JSON has as the words of a command.
macro_rules! as_text {
    ($($type:ident)*) => { $(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.text())
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let mut args = Args::new(&text);
                Self::read(&mut args).and_then(|value| args.finish().map(|()| value)).map_err(serde::de::Error::custom)
            }
        }
    )* };
}
as_text!(Next Action);

/// What a session does besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Packets are looked up in this table of IPv4.
    SetIp4FibId(u32),
    /// Packets are looked up in this table of IPv6.
    SetIp6FibId(u32),
    /// A number goes with packets.
    SetMetadata(u32),
}

impl Value for Action {
    const KIND: &'static str = "action";

    fn take(args: &mut Args<'_>, _: &Argument, _: usize) -> Result<Self, OpError> {
        Self::read(args)
    }

    fn text(&self) -> String {
        match self {
            Self::SetIp4FibId(id) => format!("set-ip4-fib-id {id}"),
            Self::SetIp6FibId(id) => format!("set-ip6-fib-id {id}"),
            Self::SetMetadata(number) => format!("set-metadata {number}"),
        }
    }
}

impl Action {
    fn read(args: &mut Args<'_>) -> Result<Self, OpError> {
        type Kind = fn(u32) -> Action;
        let kinds: [(&str, Kind); 4] = [
            ("set-ip4-fib-id", Self::SetIp4FibId),
            ("set-ip6-fib-id", Self::SetIp6FibId),
            ("set-metadata", Self::SetMetadata),
            ("set-sr-policy-index", Self::SetMetadata),
        ];
        let kind = args.expect_one_of(&kinds)?;
        args.number::<u32>("number").map(kind)
    }

    /// The action of a session; none where it has none.
    pub fn of(action: view::Action) -> Option<Self> {
        Some(match action {
            view::Action::None => return None,
            view::Action::Fib4(id) => Self::SetIp4FibId(id),
            view::Action::Fib6(id) => Self::SetIp6FibId(id),
            view::Action::Metadata(number) => Self::SetMetadata(number),
        })
    }
}

impl From<Option<Action>> for view::Action {
    fn from(action: Option<Action>) -> Self {
        match action {
            None => Self::None,
            Some(Action::SetIp4FibId(id)) => Self::Fib4(id),
            Some(Action::SetIp6FibId(id)) => Self::Fib6(id),
            Some(Action::SetMetadata(number)) => Self::Metadata(number),
        }
    }
}
