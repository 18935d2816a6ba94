//! Replies of operations that are declared while the program runs: JSON whose fields keep their order.

use super::super::{Text, View};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::fmt::{self, Write as _};

/// What such an operation answers, read from JSON. For people it is put into words by its shape: an object as a line for each of its
/// fields, a list of objects as a table whose columns are the fields of the first.
#[derive(Debug, Clone, PartialEq)]
pub enum DynamicReply {
    /// A text, a number, yes or no, nothing.
    Value(Value),
    /// A list.
    List(Vec<Self>),
    /// Fields, in the order in which they were given.
    Fields(Vec<(String, Self)>),
}

impl Default for DynamicReply {
    fn default() -> Self {
        Self::Value(Value::Null)
    }
}

impl Serialize for DynamicReply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(serializer),
            Self::List(list) => list.serialize(serializer),
            Self::Fields(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                fields.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for DynamicReply {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = DynamicReply;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<DynamicReply, E> {
        Ok(DynamicReply::Value(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<DynamicReply, E> {
        Ok(DynamicReply::Value(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<DynamicReply, E> {
        Ok(DynamicReply::Value(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<DynamicReply, E> {
        Ok(DynamicReply::Value(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<DynamicReply, E> {
        Ok(DynamicReply::Value(value.into()))
    }

    fn visit_unit<E>(self) -> Result<DynamicReply, E> {
        Ok(DynamicReply::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<DynamicReply, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = from.next_element()? {
            list.push(value);
        }
        Ok(DynamicReply::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<DynamicReply, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = from.next_entry()? {
            fields.push(field);
        }
        Ok(DynamicReply::Fields(fields))
    }
}

impl DynamicReply {
    /// In a line or a cell.
    fn word(&self) -> String {
        match self {
            Self::Value(Value::Null) => "-".to_owned(),
            Self::Value(Value::String(text)) => text.clone(),
            other => serde_json::to_string(other).unwrap_or_default(),
        }
    }

    fn cell(&self, column: &str) -> String {
        match self {
            Self::Fields(fields) => {
                fields.iter().find(|(name, _)| name == column).map_or_else(|| "-".to_owned(), |(_, value)| value.word())
            }
            _ => "-".to_owned(),
        }
    }
}

fn table(rows: &[DynamicReply], out: &mut String) {
    let Some(DynamicReply::Fields(first)) = rows.first() else {
        return rows.iter().for_each(|row| out.extend([row.word().as_str(), "\n"]));
    };
    let mut lines = vec![first.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()];
    lines.extend(rows.iter().map(|row| first.iter().map(|(name, _)| row.cell(name)).collect()));
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..first.len()).map(width).collect();
    for line in &lines {
        let mut text = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            // Writing to a String cannot fail.
            let _ = write!(text, "{cell:width$}  ");
        }
        out.extend([text.trim_end(), "\n"]);
    }
}

impl Text for DynamicReply {
    fn text(&self, out: &mut String, _: &View) {
        match self {
            Self::Value(Value::Null) => {}
            Self::List(rows) => table(rows, out),
            Self::Fields(fields) => {
                for (name, value) in fields {
                    match value {
                        Self::List(rows) if !rows.is_empty() => {
                            out.extend([name.as_str(), ":\n"]);
                            table(rows, out);
                        }
                        other => out.extend([name.as_str(), ": ", other.word().as_str(), "\n"]),
                    }
                }
            }
            other => out.extend([other.word().as_str(), "\n"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_lines_and_tables_whose_columns_keep_their_order() {
        let text = |json: &str| {
            let reply: DynamicReply = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&reply).unwrap(), json);
            let mut out = String::new();
            reply.text(&mut out, &View::TEXT);
            out
        };
        assert_eq!(text("null"), "");
        assert_eq!(text(r#""done""#), "done\n");
        assert_eq!(text(r#"{"name":null,"limit":7}"#), "name: -\nlimit: 7\n");
        assert_eq!(text(r#"[{"name":"eth0","drops":12},{"name":"e","drops":3}]"#), "name  drops\neth0  12\ne     3\n");
        assert_eq!(text(r#"{"none":[],"on":[{"a":1},{"b":2}]}"#), "none: []\non:\na\n1\n-\n");
        assert_eq!(text("[1,true,-2.5]"), "1\ntrue\n-2.5\n");
    }
}
