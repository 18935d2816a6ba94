//! Where an operation of the configuration stands in a document.

use super::template::{Pattern, Template, Vars};
use crate::configuration::Stage;
use serde_json::{Map, Value};

/// Where requests of an operation stand in a document, and how they look there. It holds in both directions: a request that fits is written
/// there, and what is written there makes the request. Templates are described in the module's `template.rs`.
///
/// ```
/// # use quiver_command::document::Shape;
/// const MTU: Shape = Shape::new(
///     "interfaces/{interface}/mtu",
///     r#""{bytes#}""#,
///     "interface_set",
///     r#"{"interface": "{interface}", "change": {"mtu": {"which": "packet", "bytes": "{bytes#}"}}}"#,
/// )
/// .doc("Largest packet, bytes");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Keys with `/` between; variables stand in braces.
    pub path: &'static str,
    /// The value there, as a template.
    pub value: &'static str,
    /// The operation.
    pub operation: &'static str,
    /// Its request, as a template.
    pub request: &'static str,
    /// There is a list of such values.
    pub list: bool,
    /// Names that it brings, with variables; see [`Back::makes`](crate::configuration::Back::makes). Those of what is there already are known.
    pub makes: &'static [&'static str],
    /// Brings a request into the form that the running configuration has.
    pub canonical: Option<fn(Value) -> Value>,
    /// What it is.
    pub doc: &'static str,
    /// Schemas of variables that no declared argument describes, as JSON.
    pub types: &'static [(&'static str, &'static str)],
}

impl Shape {
    /// One value at a path.
    pub const fn new(path: &'static str, value: &'static str, operation: &'static str, request: &'static str) -> Self {
        Self { path, value, operation, request, list: false, makes: &[], canonical: None, doc: "", types: &[] }
    }

    /// A list of such values.
    #[must_use]
    pub const fn list(self) -> Self {
        Self { list: true, ..self }
    }

    /// Names that it brings.
    #[must_use]
    pub const fn makes(self, makes: &'static [&'static str]) -> Self {
        Self { makes, ..self }
    }

    /// Brings its requests into the form that the running configuration has.
    #[must_use]
    pub const fn canonical(self, canonical: fn(Value) -> Value) -> Self {
        Self { canonical: Some(canonical), ..self }
    }

    /// What it is.
    #[must_use]
    pub const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }

    /// Schemas of its variables.
    #[must_use]
    pub const fn types(self, types: &'static [(&'static str, &'static str)]) -> Self {
        Self { types, ..self }
    }
}

/// When what a shape says is made: its stage, then the order in which shapes were registered.
pub(crate) type Rank = (Stage, u32);

/// A shape whose templates are read.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub(super) shape: Shape,
    pub(super) rank: Rank,
    pub(super) segments: Vec<Pattern>,
    pub(super) value: Template,
    pub(super) request: Template,
}

impl Compiled {
    pub(super) fn new(shape: Shape, rank: Rank) -> Self {
        Self {
            shape,
            rank,
            segments: shape.path.split('/').map(segment).collect(),
            value: Template::parse(shape.value),
            request: Template::parse(shape.request),
        }
    }

    /// Where a request stands, and its value there.
    pub(super) fn write(&self, request: &Value) -> Option<(Vec<String>, Value)> {
        let (mut vars, mut more) = (Vars::new(), Map::new());
        if !self.request.read(request, &mut vars, &mut more) {
            return None;
        }
        for (key, value) in &mut more {
            if let Some(text) = super::template::mac_text(value).filter(|_| key.contains("mac")) {
                *value = Value::String(text);
            }
        }
        let keys: Option<Vec<String>> = self.segments.iter().map(|segment| segment.write(&vars)).collect();
        Some((keys?, self.value.write(&vars, &more, false)?))
    }

    /// The request of a value, with the variables of its path.
    pub(super) fn read(&self, mut vars: Vars, value: &Value) -> Option<(Value, Vars)> {
        let mut more = Map::new();
        if !self.value.read(value, &mut vars, &mut more) {
            return None;
        }
        for (key, value) in &mut more {
            if let Some(mac) = value.as_str().and_then(super::template::mac_of).filter(|_| key.contains("mac")) {
                *value = mac;
            }
        }
        let request = self.request.write(&vars, &more, true)?;
        Some((self.shape.canonical.map_or_else(|| request.clone(), |canonical| canonical(request.clone())), vars))
    }
}

/// A key of a path. A `%` in it stands for a slash.
fn segment(text: &str) -> Pattern {
    Pattern::parse(&text.replace('%', "/"))
}
