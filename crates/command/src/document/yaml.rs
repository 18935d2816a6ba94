//! A document that is written.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use std::collections::HashMap;

/// A document, or a part of one. Keys keep the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Tree {
    keys: Vec<(String, bool)>,
    fields: HashMap<String, Tree>,
    /// What stands here itself.
    value: Option<Value>,
}

impl Tree {
    /// Puts a value at a path, or behind those of the list there. `false`: there is one, and it stays. Each key: whether it is a number.
    pub(super) fn add(&mut self, path: &[(&str, bool)], list: bool, value: Value) -> bool {
        let Some(((key, number), rest)) = path.split_first() else {
            return match (&mut self.value, list) {
                (None, true) => {
                    self.value = Some(Value::Array(vec![value]));
                    true
                }
                (None, false) => {
                    self.value = Some(value);
                    true
                }
                (Some(Value::Array(items)), true) => {
                    items.push(value);
                    true
                }
                _ => false,
            };
        };
        if !self.fields.contains_key(*key) {
            self.keys.push(((*key).to_owned(), *number));
        }
        self.fields.entry((*key).to_owned()).or_default().add(rest, list, value)
    }

    /// As YAML.
    pub(super) fn text(&self) -> String {
        if self.keys.is_empty() {
            return "{}\n".to_owned();
        }
        let options = serde_saphyr::ser_options! { compact_list_indent: false, prefer_block_scalars: false };
        let mut text = String::new();
        if let Err(error) = serde_saphyr::to_fmt_writer_with_options(&mut text, self, options) {
            text = format!("# cannot be written: {error}\n");
        }
        text
    }
}

/// A key that is written without quotes.
struct NumberOr<'a>(&'a str, bool);

impl Serialize for NumberOr<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.parse::<u64>() {
            Ok(number) if self.1 => serializer.serialize_u64(number),
            _ => serializer.serialize_str(self.0),
        }
    }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.keys.is_empty() {
            return self.value.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        if let Some(Value::Object(own)) = &self.value {
            for (key, value) in own {
                map.serialize_entry(key, value)?;
            }
        }
        for (key, number) in &self.keys {
            if let Some(field) = self.fields.get(key) {
                map.serialize_entry(&NumberOr(key, *number), field)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;
    use serde_json::json;

    #[test]
    fn keys_keep_their_order_and_values_their_kind() {
        let mut tree = Tree::default();
        assert!(tree.add(&[("b", false), ("0", true), ("x/y", false)], false, json!("yes")));
        assert!(tree.add(&[("a", false)], true, json!("10.0.0.1/24")));
        assert!(tree.add(&[("a", false)], true, json!("5")));
        assert!(tree.add(&[("b", false), ("0", true)], false, json!({"own": true})));
        assert!(!tree.add(&[("b", false), ("0", true), ("x/y", false)], false, json!(1)));
        let text = tree.text();
        let again = super::super::tree::Node::parse("text", &text).unwrap().json();
        assert_eq!(again, json!({"b": {"0": {"own": true, "x/y": "yes"}}, "a": ["10.0.0.1/24", "5"]}), "{text}");
        assert!(text.starts_with("b:\n  0:\n"), "{text}");
    }
}
