//! Requests as their operations write them, and schemas of their arguments.

use super::OpError;
use crate::document::{Normalised, NotNormal};
use crate::request::{Argument, Declared, Need};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// A MAC address in a document.
const MAC: &str = "^([0-9A-Fa-f]{1,2}:){5}[0-9A-Fa-f]{1,2}$";

/// A request of JSON. The only place that reads one: each type's code for it is long.
///
/// # Errors
/// The field that is wrong, and how.
#[inline(never)]
pub(super) fn read<R: DeserializeOwned>(request: Value) -> Result<R, NotNormal> {
    serde_path_to_error::deserialize(request).map_err(not_normal)
}

fn not_normal(error: serde_path_to_error::Error<serde_json::Error>) -> NotNormal {
    NotNormal { field: error.path().to_string(), message: error.into_inner().to_string() }
}

fn written(request: serde_json::Result<Box<RawValue>>, command: String) -> Result<Normalised, NotNormal> {
    match request {
        Ok(request) => Ok(Normalised { request, command }),
        Err(error) => Err(NotNormal { field: String::new(), message: error.to_string() }),
    }
}

fn refused(error: &OpError) -> NotNormal {
    let field = error.key.as_deref().unwrap_or_default().to_owned();
    NotNormal { field, message: error.to_string() }
}

/// Of an operation with a parser of its own.
pub(super) fn of<R: Serialize + DeserializeOwned>(request: Value) -> Result<Normalised, NotNormal> {
    written(to_raw_value(&read::<R>(request)?), String::new())
}

/// Of a declared request, whose values are looked at.
pub(super) fn of_declared<R: Declared>(request: Value) -> Result<Normalised, NotNormal> {
    let request: R = read(request)?;
    request.check().map_err(|error| refused(&error))?;
    written(to_raw_value(&request), request.command())
}

/// The schema of a declared argument.
pub(super) fn schema(argument: &Argument) -> Value {
    let mut one = match argument.kind {
        "number" => json!({"type": "integer", "minimum": argument.range.map_or(0, |(least, _)| least)}),
        "number with sign" => json!({"type": "integer"}),
        "flag" => json!({"type": "boolean"}),
        "MAC address" => json!({"type": "string", "pattern": MAC}),
        "interface and priority" | "timing" | "IP address with prefix length" => json!({}),
        _ if !argument.one_of.is_empty() && !argument.nested => json!({"enum": argument.one_of}),
        "word" => json!({}),
        _ => json!({"type": "string"}),
    };
    if let Some((_, most)) = argument.range.filter(|_| argument.kind == "number") {
        one["maximum"] = json!(most);
    }
    if argument.need == Need::Repeated {
        one = json!({"type": "array", "items": one});
    } else if argument.need == Need::Optional && argument.kind != "flag" {
        one = json!({"anyOf": [one, {"type": "null"}]});
    }
    let doc = argument.doc.trim();
    if !doc.is_empty() {
        one["description"] = json!(doc);
    }
    one
}
