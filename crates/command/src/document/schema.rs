//! The JSON schema of documents, which editors and other programs check documents with.

use super::book::{Book, OTHERS, OWN};
use super::shape::Compiled;
use super::template::{Pattern, Template};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Where the schema is published with the sources.
const ID: &str = "quiver-configuration.schema.json";

/// Keys below a path, and the shapes that end there.
#[derive(Default)]
struct Level<'a> {
    keys: BTreeMap<String, (&'a Pattern, Level<'a>)>,
    here: Vec<&'a Compiled>,
}

impl Book {
    /// The schema, by the draft of 2020-12.
    pub fn schema(&self) -> Value {
        let mut root = Level::default();
        for compiled in &self.shapes {
            let mut level = &mut root;
            for segment in &compiled.segments {
                level = &mut level.keys.entry(segment.expression()).or_insert_with(|| (segment, Level::default())).1;
            }
            level.here.push(compiled);
        }
        let mut schema = self.level(&root);
        let names: Vec<&str> = self.names().collect();
        if let Some(object) = schema.as_object_mut() {
            object.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
            object.insert("$id".to_owned(), json!(ID));
            object.insert("title".to_owned(), json!("Configuration of a Quiver router, as `quiverctl apply' takes it"));
            if let Some(Value::Object(properties)) = object.get_mut("properties") {
                properties.insert(
                    OWN.to_owned(),
                    json!({
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Parts that this document owns, such as interfaces/loop0 or routes; what it does not own is left alone. All where absent.",
                    }),
                );
                properties.insert(
                    OTHERS.to_owned(),
                    json!({
                        "type": "array",
                        "description": "Operations that stand nowhere else, with their requests, in order.",
                        "items": {
                            "type": "object",
                            "properties": {"operation": {"enum": names}, "request": {}},
                            "required": ["operation"],
                            "additionalProperties": false,
                        },
                    }),
                );
            }
        }
        schema
    }

    fn level(&self, level: &Level<'_>) -> Value {
        if level.keys.is_empty() {
            return self.values(&level.here);
        }
        let (mut properties, mut patterns) = (Map::new(), Map::new());
        for (expression, (segment, below)) in &level.keys {
            let schema = self.level(below);
            match segment.literal() {
                Some(key) => drop(properties.insert(key.to_owned(), schema)),
                None => drop(patterns.insert(expression.clone(), schema)),
            }
        }
        let mut more = false;
        for compiled in &level.here {
            more |= compiled.value.keys().is_some_and(|(_, more)| more);
            let own = self.object(compiled);
            for (key, schema) in own {
                properties.entry(key).or_insert(schema);
            }
        }
        let mut schema = json!({"type": ["object", "null"], "properties": properties, "additionalProperties": false});
        if !patterns.is_empty() {
            // A key that several patterns fit may have what any of them takes.
            schema["patternProperties"] = merged(patterns);
        }
        if more && level.here.iter().any(|compiled| self.is_open(compiled)) {
            schema["additionalProperties"] = json!(true);
        }
        if let Some(doc) = level.here.first().map(|compiled| compiled.shape.doc).filter(|doc| !doc.is_empty()) {
            schema["description"] = json!(doc);
        }
        schema
    }

    /// Whether fields of its requests are described nowhere.
    fn is_open(&self, compiled: &Compiled) -> bool {
        self.fields.get(compiled.shape.operation).is_none_or(BTreeMap::is_empty) && compiled.shape.types.is_empty()
    }

    /// What may stand at the end of a path.
    fn values(&self, here: &[&Compiled]) -> Value {
        let mut all: Vec<Value> = Vec::new();
        for compiled in here {
            let schema = self.value(compiled);
            if !all.contains(&schema) {
                all.push(schema);
            }
        }
        let doc: Vec<&str> = here.iter().map(|compiled| compiled.shape.doc).filter(|doc| !doc.is_empty()).collect();
        let is_list = here.iter().any(|compiled| compiled.shape.list);
        let mut one = if all.len() == 1 { all.remove(0) } else { json!({"anyOf": all}) };
        if is_list {
            one = json!({"type": ["array", "null"], "items": one});
        } else {
            one = json!({"anyOf": [one, {"type": "null"}]});
        }
        if !doc.is_empty() {
            one["description"] = json!(doc.join(" "));
        }
        one
    }

    fn value(&self, compiled: &Compiled) -> Value {
        match &compiled.value {
            Template::Literal(Value::Bool(_)) => json!({"type": "boolean"}),
            Template::Literal(literal) => json!({"const": literal}),
            Template::Object { more, .. } => {
                let open = *more && self.is_open(compiled);
                json!({"type": "object", "properties": self.object(compiled), "additionalProperties": open})
            }
            Template::Text(pattern) => json!({"type": "string", "pattern": pattern.expression()}),
            Template::Array(_) => json!({"type": "array"}),
            variable @ Template::Variable(_) => self.variable(compiled, variable),
        }
    }

    /// The schema of a variable: what the shape says, or the declared argument of the same field.
    fn variable(&self, compiled: &Compiled, template: &Template) -> Value {
        let name = template.variable().unwrap_or_default();
        if let Some((_, schema)) = compiled.shape.types.iter().find(|(known, _)| *known == name) {
            return serde_json::from_str(schema).unwrap_or_default();
        }
        if template.is_number() {
            let declared = self.fields.get(compiled.shape.operation).and_then(|fields| fields.get(name));
            return declared
                .filter(|schema| schema["type"] == "integer")
                .cloned()
                .unwrap_or_else(|| json!({"type": "integer", "minimum": 0}));
        }
        let declared = self.fields.get(compiled.shape.operation).and_then(|fields| fields.get(name));
        declared.cloned().unwrap_or_else(|| json!({}))
    }

    /// The fields of a value that is an object.
    fn object(&self, compiled: &Compiled) -> Map<String, Value> {
        let mut properties = Map::new();
        for (key, field) in compiled.value.fields() {
            properties.insert(key.clone(), self.variable(compiled, field));
        }
        let takes_more = compiled.value.keys().is_some_and(|(_, more)| more);
        if takes_more {
            let said: Vec<&str> = compiled.request.fields().iter().map(|(key, _)| key.as_str()).collect();
            let fields = self.fields.get(compiled.shape.operation).into_iter().flatten();
            for (field, schema) in fields.filter(|(field, _)| !said.contains(field)) {
                properties.entry((*field).to_owned()).or_insert_with(|| schema.clone());
            }
            for (field, schema) in compiled.shape.types {
                properties.entry((*field).to_owned()).or_insert_with(|| serde_json::from_str(schema).unwrap_or_default());
            }
        }
        properties
    }
}

/// Patterns, each of which allows what the others allow for a key that fits them, too.
fn merged(patterns: Map<String, Value>) -> Value {
    if patterns.len() == 1 {
        return Value::Object(patterns);
    }
    // All of them may fit one key, `loop0` is also `<interface>`; so one schema has the keys of all.
    let mut properties = Map::new();
    for schema in patterns.values() {
        for (key, value) in schema["properties"].as_object().into_iter().flatten() {
            properties.insert(key.clone(), value.clone());
        }
    }
    json!({"^.+$": {"type": ["object", "null"], "properties": properties, "additionalProperties": false}})
}
