//! Values of arguments, and fields that hold them.

use super::{Argument, Need};
use crate::grammar::{Args, IfRef, quote};
use crate::operation::OpError;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// A type that an argument's value can have.
pub trait Value: Sized {
    /// What it is, in a word.
    const KIND: &'static str;

    /// The words that it is one of, for types that are.
    const WORDS: &'static [&'static str] = &[];

    /// Takes it from a command, behind the `lead`th of the words that the argument may begin with.
    ///
    /// # Errors
    /// There is none, or it is none; the error says what was expected.
    fn take(args: &mut Args<'_>, argument: &Argument, lead: usize) -> Result<Self, OpError>;

    /// The words that [`take`](Self::take) reads it from.
    fn text(&self) -> String;

    /// Which of the words that its argument may begin with it stands behind.
    fn lead(&self) -> usize {
        0
    }

    /// Whether it is one that the argument may have; commands, JSON and messages alike.
    ///
    /// # Errors
    /// It is not.
    fn check(&self, _: &Argument) -> Result<(), OpError> {
        Ok(())
    }
}

macro_rules! numbers {
    ($($type:ty)*) => { $(
        impl Value for $type {
            const KIND: &'static str = "number";

            fn take(args: &mut Args<'_>, argument: &Argument, _: usize) -> Result<Self, OpError> {
                let what = argument.what();
                if argument.placeholder() == Some("size") {
                    let size = args.size(what)?;
                    return size.try_into().map_err(|_| argument.out_of_range(size));
                }
                let number: u64 = match argument.range {
                    Some((least, most)) => args.number_in(what, least..=most)?,
                    None => args.number_in(what, 0..=Self::MAX as u64)?,
                };
                number.try_into().map_err(|_| argument.out_of_range(number))
            }

            fn text(&self) -> String {
                self.to_string()
            }

            fn check(&self, argument: &Argument) -> Result<(), OpError> {
                match argument.range {
                    Some((least, most)) if !(least..=most).contains(&(*self as u64)) => Err(argument.out_of_range(self)),
                    _ => Ok(()),
                }
            }
        }
    )* };
}
numbers!(u8 u16 u32 u64 usize);

macro_rules! values {
    ($($type:ty, $kind:literal, |$args:ident, $what:ident| $take:expr, |$value:ident| $text:expr;)*) => { $(
        impl Value for $type {
            const KIND: &'static str = $kind;

            fn take($args: &mut Args<'_>, argument: &Argument, lead: usize) -> Result<Self, OpError> {
                let $what = argument.what_behind(lead);
                $take
            }

            fn text(&self) -> String {
                let $value = self;
                $text
            }
        }
    )* };
}
values! {
    String, "text", |args, what| Ok(args.word(what)?.into_owned()), |value| quote(value).into_owned();
    PathBuf, "path", |args, what| Ok(PathBuf::from(&*args.word(what)?)), |value| quote(&value.to_string_lossy()).into_owned();
    IfRef, "interface", |args, what| Ok(IfRef(args.word(what)?.into_owned())), |value| quote(value.as_str()).into_owned();
    IpAddr, "IP address", |args, what| args.ip(what), |value| value.to_string();
    Ipv4Addr, "IPv4 address", |args, what| args.ip4(what), |value| value.to_string();
    Ipv6Addr, "IPv6 address", |args, what| args.ip6(what), |value| value.to_string();
    f64, "number", |args, what| args.take(what), |value| value.to_string();
}

impl Value for [u8; 6] {
    const KIND: &'static str = "MAC address";

    fn take(args: &mut Args<'_>, argument: &Argument, _: usize) -> Result<Self, OpError> {
        args.mac(argument.what())
    }

    fn text(&self) -> String {
        self.map(|byte| format!("{byte:02x}")).join(":")
    }

    fn check(&self, argument: &Argument) -> Result<(), OpError> {
        if argument.unicast && (self[0] & 1 == 1 || *self == [0; 6]) {
            return Err(OpError::invalid(argument.what(), self.text(), "not a unicast MAC address"));
        }
        Ok(())
    }
}

/// A field of a request.
pub trait Field: Sized {
    /// Whether it must be given.
    const NEED: Need;
    /// What its value is, in a word.
    const KIND: &'static str;
    /// The words that its value is one of, for types that are.
    const WORDS: &'static [&'static str] = &[];

    /// Takes what follows the argument's first word, the `lead`th of those that it may begin with.
    ///
    /// # Errors
    /// It is not what may follow.
    fn take(slot: &mut Option<Self>, args: &mut Args<'_>, argument: &Argument, lead: usize) -> Result<(), OpError>;

    /// Its value where it is not given; none where it must be.
    fn absent() -> Option<Self> {
        None
    }

    /// The words of a command that say it, the contrary of [`take`](Self::take), for a value that is not the default.
    fn write(&self, argument: &Argument, out: &mut Vec<String>);

    /// Whether it is one that the argument may have.
    ///
    /// # Errors
    /// It is not.
    fn check(&self, argument: &Argument) -> Result<(), OpError>;
}

impl<T: Value> Field for T {
    const NEED: Need = Need::Required;
    const KIND: &'static str = T::KIND;
    const WORDS: &'static [&'static str] = T::WORDS;

    fn take(slot: &mut Option<Self>, args: &mut Args<'_>, argument: &Argument, lead: usize) -> Result<(), OpError> {
        *slot = Some(<T as Value>::take(args, argument, lead)?);
        Ok(())
    }

    fn write(&self, argument: &Argument, out: &mut Vec<String>) {
        if argument.is_choice() {
            return out.push(self.text());
        }
        out.extend(argument.leads().nth(self.lead()).map(str::to_owned));
        out.push(self.text());
    }

    fn check(&self, argument: &Argument) -> Result<(), OpError> {
        Value::check(self, argument)
    }
}

/// A word in the place of the value says that there is none.
impl<T: Value> Field for Option<T> {
    const NEED: Need = Need::Optional;
    const KIND: &'static str = T::KIND;
    const WORDS: &'static [&'static str] = T::WORDS;

    fn take(slot: &mut Option<Self>, args: &mut Args<'_>, argument: &Argument, lead: usize) -> Result<(), OpError> {
        let none = T::WORDS.is_empty() && argument.words().any(|word| args.take_keyword(word));
        *slot = Some(if none { None } else { Some(T::take(args, argument, lead)?) });
        Ok(())
    }

    fn absent() -> Option<Self> {
        Some(None)
    }

    fn write(&self, argument: &Argument, out: &mut Vec<String>) {
        match self {
            Some(value) => Field::write(value, argument, out),
            None => {
                out.extend(argument.leads().next().map(str::to_owned));
                out.extend(argument.words().next().map(str::to_owned));
            }
        }
    }

    fn check(&self, argument: &Argument) -> Result<(), OpError> {
        self.as_ref().map_or(Ok(()), |value| value.check(argument))
    }
}

impl<T: Value> Field for Vec<T> {
    const NEED: Need = Need::Repeated;
    const KIND: &'static str = T::KIND;

    fn take(slot: &mut Option<Self>, args: &mut Args<'_>, argument: &Argument, lead: usize) -> Result<(), OpError> {
        let value = T::take(args, argument, lead)?;
        slot.get_or_insert_default().push(value);
        Ok(())
    }

    fn absent() -> Option<Self> {
        Some(Vec::new())
    }

    fn write(&self, argument: &Argument, out: &mut Vec<String>) {
        self.iter().for_each(|value| Field::write(value, argument, out));
    }

    fn check(&self, argument: &Argument) -> Result<(), OpError> {
        self.iter().try_for_each(|value| value.check(argument))
    }
}

/// One word alone says the contrary of the default; of two the first says yes; `<word> 0|1` is a switch.
impl Field for bool {
    const NEED: Need = Need::Optional;
    const KIND: &'static str = "flag";

    fn take(slot: &mut Option<Self>, args: &mut Args<'_>, argument: &Argument, lead: usize) -> Result<(), OpError> {
        *slot = Some(flag(args, argument, lead)?);
        Ok(())
    }

    fn absent() -> Option<Self> {
        Some(false)
    }

    fn write(&self, argument: &Argument, out: &mut Vec<String>) {
        write_flag(*self, argument, out);
    }

    fn check(&self, _: &Argument) -> Result<(), OpError> {
        Ok(())
    }
}

impl Field for Option<bool> {
    const NEED: Need = Need::Optional;
    const KIND: &'static str = "flag";

    fn take(slot: &mut Option<Self>, args: &mut Args<'_>, argument: &Argument, lead: usize) -> Result<(), OpError> {
        *slot = Some(Some(flag(args, argument, lead)?));
        Ok(())
    }

    fn absent() -> Option<Self> {
        Some(None)
    }

    fn write(&self, argument: &Argument, out: &mut Vec<String>) {
        if let Some(value) = self {
            write_flag(*value, argument, out);
        }
    }

    fn check(&self, _: &Argument) -> Result<(), OpError> {
        Ok(())
    }
}

fn flag(args: &mut Args<'_>, argument: &Argument, lead: usize) -> Result<bool, OpError> {
    let several = argument.leads().nth(1).is_some();
    let said = !argument.negates && argument.default != Some("true");
    match argument.rest() {
        "" if several => Ok(lead == 0),
        "" => Ok(said),
        rest if rest.contains('|') => args.switch(argument.what()),
        word => args.expect_keyword(word).map(|()| said),
    }
}

/// The contrary of [`flag`]. What one word alone cannot say is what holds without it.
fn write_flag(value: bool, argument: &Argument, out: &mut Vec<String>) {
    let several = argument.leads().nth(1).is_some();
    let said = !argument.negates && argument.default != Some("true");
    let lead = |at: usize| argument.leads().nth(at).map(str::to_owned);
    match argument.rest() {
        "" if several => out.extend(lead(usize::from(!value))),
        "" if value == said => out.extend(lead(0)),
        rest if rest.contains('|') => {
            let words = if value { ["1", "on", "enable"] } else { ["0", "off", "disable"] };
            let word = rest.split('|').find(|word| words.contains(word)).unwrap_or(words[1]);
            out.extend(lead(0).into_iter().chain([word.to_owned()]));
        }
        rest if !rest.is_empty() && value == said => out.extend(lead(0).into_iter().chain([rest.to_owned()])),
        _ => {}
    }
}

/// Declares an enumeration of words: a [`Value`], and in JSON the same words.
///
/// ```
/// quiver_command::words! {
///     /// Protocol that an MTU is for.
///     pub enum MtuKind {
///         /// All.
///         Packet = "packet",
///         /// IPv4.
///         Ip4 = "ip4",
///     }
/// }
/// assert_eq!(serde_json::to_string(&MtuKind::Ip4).unwrap(), "\"ip4\"");
/// assert_eq!(MtuKind::Ip4.word(), "ip4");
/// ```
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $( $(#[$note:meta])* $variant:ident = $word:literal ),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, $crate::request::serde::Serialize, $crate::request::serde::Deserialize)]
        #[serde(crate = "quiver_command::request::serde")]
        $vis enum $name { $( $(#[$note])* #[serde(rename = $word)] $variant ),+ }

        impl $name {
            /// The word for it.
            pub const fn word(self) -> &'static str {
                match self {
                    $( Self::$variant => $word ),+
                }
            }
        }

        impl $crate::request::Value for $name {
            const KIND: &'static str = "word";
            const WORDS: &'static [&'static str] = &[$( $word ),+];

            fn take(
                args: &mut $crate::grammar::Args<'_>,
                argument: &$crate::request::Argument,
                lead: usize,
            ) -> Result<Self, $crate::operation::OpError> {
                // Without a word in front it is the word itself that was taken.
                match argument.is_choice() {
                    true => Ok([$( Self::$variant ),+][lead]),
                    false => args.expect_one_of(&[$( ($word, Self::$variant) ),+]),
                }
            }

            fn text(&self) -> String {
                self.word().to_owned()
            }
        }
    };
}
