//! A document as it was written: YAML, of which JSON is a part, with the place of each value.

use crate::operation::{OpError, retval};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;
use std::fmt;

/// Where something stands, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Line.
    pub line: u64,
    /// Column.
    pub column: u64,
}

/// A value of a document.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) what: What,
    pub(super) place: Place,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// One word, or nothing.
    One(Value),
    List(Vec<Node>),
    /// Keys in their order.
    Map(Vec<(Key, Node)>),
}

/// A key.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) place: Place,
}

/// Nesting at most.
const DEEPEST: usize = 32;

impl Node {
    /// Reads a document.
    ///
    /// # Errors
    /// It is no YAML; the error has its place.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, OpError> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_depth: DEEPEST,
                max_nodes: 20_000_000,
                max_events: 60_000_000,
                max_total_scalar_bytes: 1 << 30,
            },
        };
        let parsed = serde_saphyr::from_str_with_options::<Spanned<Content>>(text, options);
        let content = parsed.map_err(|error| {
            let place = error.location().map(|at| format!(":{}:{}", at.line(), at.column())).unwrap_or_default();
            // Its first line says what; those after it draw where.
            let whole = error.to_string();
            let what = whole.lines().find(|line| !line.trim().is_empty()).unwrap_or("not YAML");
            OpError::new(retval::INVALID_ARGUMENT, format!("{name}{place}: {what}"))
        })?;
        Ok(Self::of(content))
    }

    fn of(content: Spanned<Content>) -> Self {
        let place = place(&content);
        let what = match content.value {
            Content::One(value) => What::One(value),
            Content::List(items) => What::List(items.into_iter().map(Self::of).collect()),
            Content::Map(fields) => What::Map(
                fields
                    .into_iter()
                    .map(|(key, value)| (Key { place: self::place(&key), text: key.value.0 }, Self::of(value)))
                    .collect(),
            ),
        };
        Self { what, place }
    }

    /// As JSON.
    pub(super) fn json(&self) -> Value {
        match &self.what {
            What::One(value) => value.clone(),
            What::List(items) => Value::Array(items.iter().map(Self::json).collect()),
            What::Map(fields) => {
                Value::Object(fields.iter().map(|(key, value)| (key.text.clone(), value.json())).collect::<Map<_, _>>())
            }
        }
    }

    /// Where a field stands, else the value itself.
    pub(super) fn place_of(&self, field: &str) -> Place {
        match &self.what {
            What::Map(fields) => fields.iter().find(|(key, _)| key.text == field).map_or(self.place, |(key, _)| key.place),
            _ => self.place,
        }
    }

    /// What it is, for people.
    pub(super) fn shown(&self) -> String {
        match &self.what {
            What::One(Value::Null) => "nothing".to_owned(),
            What::One(value) => format!("`{}'", value.to_string().trim_matches('"')),
            What::List(_) => "a list".to_owned(),
            What::Map(_) => "keys with values".to_owned(),
        }
    }
}

fn place<T>(spanned: &Spanned<T>) -> Place {
    Place { line: spanned.referenced.line(), column: spanned.referenced.column() }
}

/// A value while it is read.
enum Content {
    One(Value),
    List(Vec<Spanned<Content>>),
    Map(Vec<(Spanned<Text>, Spanned<Content>)>),
}

/// A key while it is read: numbers are keys, too.
struct Text(String);

struct AnyContent;

impl<'de> Visitor<'de> for AnyContent {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::One(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::One(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::One(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        Ok(Content::One(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::One(Value::String(value.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::One(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::One(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Content, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Content::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Content, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = access.next_entry()? {
            fields.push(field);
        }
        Ok(Content::Map(fields))
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyContent)
    }
}

struct AnyText;

impl Visitor<'_> for AnyText {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Text, E> {
        Ok(Text(value.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(AnyText)
    }
}
