//! JSON with variables, read in both directions: values for the variables make a text of it, and a text gives their values.
//!
//! | in a template | stands for |
//! |---|---|
//! | `"{name}"` | any value |
//! | `"{name#}"` | a number; where a key or a part of a text says it, its digits |
//! | `"{name@}"` | a MAC address: six numbers in a request, a text in a document |
//! | `"{address}/{len#}"` | a text of several parts |
//! | `{"key": …, "*": "*"}` | an object that may have more fields |
//! | anything else | itself |

use serde_json::{Map, Number, Value};

/// What the variables of a template are.
pub(super) type Vars = Vec<(String, Value)>;

/// What a variable's value is in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Any,
    Number,
    Mac,
}

#[derive(Clone, Debug)]
struct Variable {
    name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Piece {
    Literal(String),
    Variable(Variable),
}

/// A text with variables, such as a key.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Vec<Piece>);

/// JSON with variables.
#[derive(Clone, Debug)]
pub(super) enum Template {
    Literal(Value),
    Variable(VariableOf),
    Text(Pattern),
    Object { fields: Vec<(String, Self)>, more: bool },
    Array(Vec<Self>),
}

/// A value that is one variable.
#[derive(Clone, Debug)]
pub(super) struct VariableOf(Variable);

/// Gives a variable its value; `false` where it has another one.
fn bind(vars: &mut Vars, name: &str, value: Value) -> bool {
    match vars.iter().find(|(known, _)| known == name) {
        Some((_, known)) => *known == value,
        None => {
            vars.push((name.to_owned(), value));
            true
        }
    }
}

fn lookup<'a>(vars: &'a Vars, name: &str) -> Option<&'a Value> {
    vars.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// The text of a value that is one word.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(on) => Some(on.to_string()),
        _ => None,
    }
}

/// A MAC address in six numbers.
pub(super) fn mac_of(text: &str) -> Option<Value> {
    let bytes: Option<Vec<Value>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok().map(Value::from)).collect();
    bytes.filter(|bytes| bytes.len() == 6).map(Value::Array)
}

/// A MAC address as it is written, in two digits each.
fn usual_mac(text: &str) -> Option<String> {
    mac_of(text).as_ref().and_then(mac_text)
}

/// The text of a MAC address in six numbers.
pub(super) fn mac_text(value: &Value) -> Option<String> {
    let bytes = value.as_array().filter(|bytes| bytes.len() == 6)?;
    let parts: Option<Vec<String>> =
        bytes.iter().map(|byte| byte.as_u64().filter(|byte| *byte < 256).map(|byte| format!("{byte:02x}"))).collect();
    parts.map(|parts| parts.join(":"))
}

impl Variable {
    /// `{name}`, `{name#}`, `{name@}`.
    fn parse(text: &str) -> Self {
        let kind = match text.as_bytes().last() {
            Some(b'#') => Kind::Number,
            Some(b'@') => Kind::Mac,
            _ => Kind::Any,
        };
        Self { name: text.trim_end_matches(['#', '@']).to_owned(), kind }
    }

    /// From a part of a text.
    fn read(&self, text: &str) -> Option<Value> {
        if text.is_empty() {
            return None;
        }
        match self.kind {
            Kind::Number => {
                let number: u64 = text.parse().ok()?;
                (number.to_string() == text).then(|| Value::Number(Number::from(number)))
            }
            Kind::Mac => usual_mac(text).map(Value::String),
            Kind::Any => Some(Value::String(text.to_owned())),
        }
    }
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Self {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((literal, after)) = rest.split_once('{') {
            let Some((name, more)) = after.split_once('}') else { break };
            if !literal.is_empty() {
                pieces.push(Piece::Literal(literal.to_owned()));
            }
            pieces.push(Piece::Variable(Variable::parse(name)));
            rest = more;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Literal(rest.to_owned()));
        }
        Self(pieces)
    }

    /// The text itself, where it has no variables.
    pub(super) fn literal(&self) -> Option<&str> {
        match &self.0[..] {
            [Piece::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether it is one number.
    pub(super) fn is_number(&self) -> bool {
        matches!(&self.0[..], [Piece::Variable(Variable { kind: Kind::Number, .. })])
    }

    /// What a reader may write: `loop<instance>`.
    pub(super) fn shown(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Literal(text) => text.clone(),
            Piece::Variable(variable) => format!("<{}>", variable.name),
        };
        self.0.iter().map(piece).collect()
    }

    /// A regular expression for the texts that it may be.
    pub(super) fn expression(&self) -> String {
        let escaped =
            |text: &str| text.chars().flat_map(|c| (!c.is_alphanumeric()).then_some('\\').into_iter().chain([c])).collect();
        let piece = |piece: &Piece| match piece {
            Piece::Literal(text) => escaped(text),
            Piece::Variable(Variable { kind: Kind::Number, .. }) => "[0-9]+".to_owned(),
            Piece::Variable(_) => ".+".to_owned(),
        };
        format!("^{}$", self.0.iter().map(piece).collect::<String>())
    }

    /// Finds the variables in a text.
    pub(super) fn read(&self, text: &str, vars: &mut Vars) -> bool {
        let mut rest = text;
        for (at, piece) in self.0.iter().enumerate() {
            match piece {
                Piece::Literal(literal) => match rest.strip_prefix(literal.as_str()) {
                    Some(after) => rest = after,
                    None => return false,
                },
                Piece::Variable(variable) => {
                    let end = match self.0.get(at + 1) {
                        Some(Piece::Literal(literal)) => rest.rfind(literal.as_str()),
                        _ => Some(rest.len()),
                    };
                    let Some(value) = end.and_then(|end| variable.read(&rest[..end])) else { return false };
                    rest = &rest[end.unwrap_or_default()..];
                    if !bind(vars, &variable.name, value) {
                        return false;
                    }
                }
            }
        }
        rest.is_empty()
    }

    /// The text of these variables.
    pub(super) fn write(&self, vars: &Vars) -> Option<String> {
        let piece = |piece: &Piece| match piece {
            Piece::Literal(text) => Some(text.clone()),
            Piece::Variable(variable) => lookup(vars, &variable.name).and_then(word),
        };
        self.0.iter().map(piece).collect()
    }
}

impl Template {
    /// # Panics
    /// Where it is no JSON: templates are constants, and tests compile all of them.
    pub(super) fn parse(text: &str) -> Self {
        match serde_json::from_str(text) {
            Ok(value) => Self::of(value),
            Err(error) => unreachable!("template {text}: {error}"),
        }
    }

    fn of(value: Value) -> Self {
        match value {
            Value::String(text) => {
                let pattern = Pattern::parse(&text);
                match &pattern.0[..] {
                    [Piece::Variable(variable)] => Self::Variable(VariableOf(variable.clone())),
                    pieces if pieces.iter().any(|piece| matches!(piece, Piece::Variable(_))) => Self::Text(pattern),
                    _ => Self::Literal(Value::String(text)),
                }
            }
            Value::Object(fields) => {
                let more = fields.contains_key("*");
                let fields = fields.into_iter().filter(|(key, _)| key != "*").map(|(key, value)| (key, Self::of(value)));
                Self::Object { fields: fields.collect(), more }
            }
            Value::Array(items) => Self::Array(items.into_iter().map(Self::of).collect()),
            other => Self::Literal(other),
        }
    }

    /// Finds the variables in JSON; fields of no variable come to `more`, where the template takes them.
    pub(super) fn read(&self, value: &Value, vars: &mut Vars, more: &mut Map<String, Value>) -> bool {
        match self {
            Self::Literal(literal) => literal == value,
            Self::Variable(VariableOf(variable)) => match variable.kind {
                Kind::Number if !value.is_number() => false,
                Kind::Mac => {
                    // Whichever of both it is, the variable is the text.
                    let text = mac_text(value).or_else(|| value.as_str().and_then(usual_mac));
                    text.is_some_and(|text| bind(vars, &variable.name, Value::String(text)))
                }
                _ => bind(vars, &variable.name, value.clone()),
            },
            Self::Text(pattern) => value.as_str().is_some_and(|text| pattern.read(text, vars)),
            Self::Array(items) => {
                let values = value.as_array().filter(|values| values.len() == items.len());
                values.is_some_and(|values| items.iter().zip(values).all(|(item, value)| item.read(value, vars, more)))
            }
            Self::Object { fields, more: takes } => {
                let Some(object) = value.as_object() else { return false };
                let known = fields.iter().all(|(key, template)| match (object.get(key), template) {
                    // It has its default.
                    (None | Some(Value::Null), Self::Variable(_)) => true,
                    (value, _) => template.read(value.unwrap_or(&Value::Null), vars, more),
                });
                let others = object.iter().filter(|(key, _)| !fields.iter().any(|(known, _)| known == *key));
                for (key, value) in others {
                    if !takes && !value.is_null() {
                        return false;
                    }
                    if *takes {
                        more.insert(key.clone(), value.clone());
                    }
                }
                known
            }
        }
    }

    /// The JSON of these variables; without fields whose variables are not there. `request`: MAC addresses are numbers.
    pub(super) fn write(&self, vars: &Vars, more: &Map<String, Value>, request: bool) -> Option<Value> {
        match self {
            Self::Literal(literal) => Some(literal.clone()),
            Self::Variable(VariableOf(variable)) => {
                let value = lookup(vars, &variable.name)?;
                let mac = || value.as_str().and_then(mac_of);
                Some(if request && variable.kind == Kind::Mac { mac().unwrap_or_else(|| value.clone()) } else { value.clone() })
            }
            Self::Text(pattern) => pattern.write(vars).map(Value::String),
            Self::Array(items) => items.iter().map(|item| item.write(vars, more, request)).collect::<Option<_>>().map(Value::Array),
            Self::Object { fields, more: takes } => {
                let mut object: Map<String, Value> = if *takes { more.clone() } else { Map::new() };
                object.extend(fields.iter().filter_map(|(key, field)| Some((key.clone(), field.write(vars, more, request)?))));
                Some(Value::Object(object))
            }
        }
    }

    /// The value that stands for absence, where it is one of two words.
    pub(super) fn contrary(&self) -> Option<Value> {
        match self {
            Self::Literal(Value::Bool(on)) => Some(Value::Bool(!on)),
            _ => None,
        }
    }

    /// The keys that an object has in any case; none where it is no object.
    pub(super) fn keys(&self) -> Option<(Vec<&str>, bool)> {
        match self {
            Self::Object { fields, more } => Some((fields.iter().map(|(key, _)| key.as_str()).collect(), *more)),
            _ => None,
        }
    }

    /// What a reader may write.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Literal(literal) => literal.to_string().trim_matches('"').to_owned(),
            Self::Variable(VariableOf(variable)) => match variable.kind {
                Kind::Any => format!("<{}>", variable.name),
                Kind::Number => format!("<{}>, a number", variable.name),
                Kind::Mac => format!("<{}>, a MAC address", variable.name),
            },
            Self::Text(pattern) => pattern.shown(),
            Self::Object { .. } => "keys with values".to_owned(),
            Self::Array(_) => "a list".to_owned(),
        }
    }

    /// The name of the variable that it is, or that a text of several parts begins with.
    pub(super) fn variable(&self) -> Option<&str> {
        match self {
            Self::Variable(VariableOf(variable)) => Some(&variable.name),
            _ => None,
        }
    }

    /// Whether it is a number in any case.
    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Variable(VariableOf(Variable { kind: Kind::Number, .. })))
    }

    /// Fields of an object.
    pub(super) fn fields(&self) -> &[(String, Self)] {
        match self {
            Self::Object { fields, .. } => fields,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(template: &str, value: &Value) -> Option<(Vars, Map<String, Value>)> {
        let (mut vars, mut more) = (Vars::new(), Map::new());
        Template::parse(template).read(value, &mut vars, &mut more).then_some((vars, more))
    }

    #[test]
    fn a_template_is_read_in_both_directions() {
        let cases = [
            (r#"{"interface":"{i}","len":"{len#}"}"#, json!({"interface": "loop0", "len": 24})),
            (
                r#"{"change":{"mtu":{"which":"packet","bytes":"{bytes#}"}}}"#,
                json!({"change": {"mtu": {"which": "packet", "bytes": 1400}}}),
            ),
            (r#"{"id":"{id#}","*":"*"}"#, json!({"id": 5, "ring_size": 8, "tag": null})),
            (r#"{"mac":"{mac@}"}"#, json!({"mac": [2, 0, 0, 0, 0, 255]})),
            (r#"["{a}"]"#, json!(["x"])),
        ];
        for (template, value) in cases {
            let (vars, more) = read(template, &value).unwrap_or_else(|| panic!("{template}"));
            assert_eq!(Template::parse(template).write(&vars, &more, true), Some(value), "{template}");
        }
        assert_eq!(read(r#"{"mac":"{mac@}"}"#, &json!({"mac": [2, 0, 0, 0, 0, 255]})).unwrap().0[0].1, json!("02:00:00:00:00:ff"));
    }

    #[test]
    fn what_does_not_fit_is_not_read() {
        assert!(read(r#"{"a":"{x}","b":"{x}"}"#, &json!({"a": 1, "b": 2})).is_none());
        assert!(read(r#"{"a":"{x#}"}"#, &json!({"a": "1"})).is_none());
        assert!(read(r#"{"a":1}"#, &json!({"a": 1, "b": 2})).is_none());
        assert!(read(r#"{"a":1}"#, &json!({"a": 1, "b": null})).is_some());
        assert!(read("true", &json!(false)).is_none());
    }

    #[test]
    fn keys_of_several_parts_are_taken_apart() {
        for (pattern, text, fits) in [
            ("loop{n#}", "loop12", true),
            ("loop{n#}", "loop012", false),
            ("loop{n#}", "loop", false),
            ("memif{s#}/{id#}", "memif1/2", true),
            ("{address}/{len#}", "2001:db8::/32", true),
            ("{address}/{len#}", "2001:db8::", false),
            ("host-{name}", "host-eth-1", true),
        ] {
            let mut vars = Vars::new();
            assert_eq!(Pattern::parse(pattern).read(text, &mut vars), fits, "{pattern} {text}");
            if fits {
                assert_eq!(Pattern::parse(pattern).write(&vars).as_deref(), Some(text));
            }
        }
    }
}
