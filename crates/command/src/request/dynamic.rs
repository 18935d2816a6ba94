//! Requests that are declared while the program runs, in JSON: those of plugins in shared objects.
//!
//! ```
//! use quiver_command::grammar::Args;
//! use quiver_command::request::Dynamic;
//!
//! let declared = Dynamic::read(r#"{
//!     "name": "limit_set", "access": "change", "about": "Sets how many sessions a host may have", "commands": ["set session limit"],
//!     "arguments": [
//!         {"field": "limit", "kind": "number", "syntax": "<n>", "about": "Sessions", "range": [0, 1000000], "required": true},
//!         {"field": "trim", "kind": "flag", "syntax": "trim", "about": "Ends the sessions above it"}
//!     ]}"#)?;
//! let request = declared.parse(&mut Args::new("7 trim"))?;
//! assert_eq!(serde_json::to_string(&request)?, r#"{"limit":7,"trim":true}"#);
//! assert_eq!(declared.command(&request), "set session limit 7 trim");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::{Argument, Field, Need, Take, missing, read, syntax_line};
use crate::grammar::{Args, IfRef};
use crate::operation::{Access, OpError, retval};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

/// A request that was declared in JSON. Its texts stay for as long as the program runs.
#[derive(Debug)]
pub struct Dynamic {
    /// Name of its operation.
    pub name: &'static str,
    /// Whether it reads or changes.
    pub access: Access,
    /// What it does.
    pub help: &'static str,
    /// The words of its commands.
    pub commands: Vec<&'static str>,
    /// Its arguments.
    pub arguments: &'static [Argument],
    /// The syntax line of its commands.
    pub syntax: &'static str,
    /// Values of what is not given, by argument.
    defaults: Vec<Option<Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declaration {
    name: String,
    access: Declared,
    about: String,
    #[serde(default)]
    commands: Vec<String>,
    #[serde(default)]
    arguments: Vec<DeclaredArgument>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Declared {
    Read,
    Change,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredArgument {
    field: String,
    kind: Kind,
    syntax: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    required: bool,
    default: Option<Value>,
    range: Option<(u64, u64)>,
    #[serde(default)]
    words: Vec<String>,
}

/// Kinds of values, as declarations name them.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Number,
    Flag,
    Text,
    Word,
    Interface,
    Address,
    Ip4,
    Ip6,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Number => <u64 as super::Value>::KIND,
            Self::Flag => "flag",
            Self::Text => <String as super::Value>::KIND,
            Self::Word => "word",
            Self::Interface => <IfRef as super::Value>::KIND,
            Self::Address => <IpAddr as super::Value>::KIND,
            Self::Ip4 => <Ipv4Addr as super::Value>::KIND,
            Self::Ip6 => <Ipv6Addr as super::Value>::KIND,
        }
    }
}

/// Keeps a text for as long as the program runs. The same text is kept once, so that a plugin can be loaded again and again.
pub fn keep(text: &str) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(there) = kept.get(text) {
        return there;
    }
    let text: &'static str = Box::leak(text.into());
    kept.insert(text);
    text
}

/// Lists that are kept for as long as the program runs, each once.
pub struct Kept<T: 'static>(Mutex<Vec<&'static [T]>>);

impl<T: PartialEq> Default for Kept<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: PartialEq> Kept<T> {
    /// None yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Keeps a list, as [`keep`] does a text.
    pub fn keep(&self, list: Vec<T>) -> &'static [T] {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = kept.iter().find(|there| ***there == *list) {
            return there;
        }
        let list: &'static [T] = list.leak();
        kept.push(list);
        list
    }
}

static ARGUMENTS: Kept<Argument> = Kept::new();
static WORDS: Kept<&str> = Kept::new();

/// Whether a text is a name in lower case: `sample_enable`.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(fits)
}

impl Dynamic {
    /// Reads a declaration.
    ///
    /// # Errors
    /// What is wrong with it, in a line.
    pub fn read(text: &str) -> Result<Self, String> {
        let declaration: Declaration =
            serde_json::from_str(text).map_err(|error| format!("the declaration of an operation is wrong: {error}"))?;
        let wrong = |what: String| format!("operation `{}': {what}", declaration.name);
        if !is_name(&declaration.name) {
            return Err(wrong("a name has small letters, digits and `_'".to_owned()));
        }
        let mut fields = Vec::new();
        for argument in &declaration.arguments {
            if !is_name(&argument.field) || fields.contains(&&argument.field) {
                return Err(wrong(format!("`{}' is no field, or one that is there already", argument.field)));
            }
            fields.push(&argument.field);
        }
        let arguments: Vec<Argument> = declaration.arguments.iter().map(DeclaredArgument::argument).collect();
        let arguments = ARGUMENTS.keep(arguments);
        let mut defaults = Vec::new();
        for (argument, declared) in arguments.iter().zip(&declaration.arguments) {
            if let Some(problem) = argument.problem() {
                return Err(wrong(problem));
            }
            let absent = if argument.kind == "flag" { Some(Value::Bool(false)) } else { None };
            let default = declared.default.clone().or(absent).filter(|_| argument.need != Need::Required);
            if let Some(value) = &default {
                check(argument, value).map_err(|error| wrong(format!("default of `{}': {error}", argument.field)))?;
            }
            defaults.push(default);
        }
        Ok(Self {
            name: keep(&declaration.name),
            access: if matches!(declaration.access, Declared::Read) { Access::Read } else { Access::Change },
            help: keep(declaration.about.trim().trim_end_matches('.')),
            commands: declaration.commands.iter().map(|command| keep(command)).collect(),
            arguments,
            syntax: keep(&syntax_line(arguments)),
            defaults,
        })
    }

    /// Reads the arguments of a command.
    ///
    /// # Errors
    /// The word that is wrong, or what is missing.
    pub fn parse(&self, args: &mut Args<'_>) -> Result<Map<String, Value>, OpError> {
        let takes: Vec<Take<Map<String, Value>>> = vec![take; self.arguments.len()];
        let mut given = Map::new();
        read(args, self.arguments, &takes, &mut given)?;
        self.complete(given).map_err(|error| match error {
            Wrong::Missing(argument) => args.missing(argument.what()),
            Wrong::Other(error) => error,
        })
    }

    /// Completes what a JSON client gives: what is absent has its default, or is `null`.
    ///
    /// # Errors
    /// A field that is missing, that is unknown, or whose value it cannot have.
    pub fn of_json(&self, request: Value) -> Result<Map<String, Value>, OpError> {
        let given = match request {
            Value::Null => Map::new(),
            Value::Object(given) => given,
            _ => return Err(self.wrong("a request is an object".to_owned())),
        };
        if let Some(unknown) = given.keys().find(|field| !self.arguments.iter().any(|argument| argument.field == **field)) {
            let fields: Vec<&str> = self.arguments.iter().map(|argument| argument.field).collect();
            return Err(self.wrong(format!("unknown field `{unknown}', expected one of {}", fields.join(", "))));
        }
        self.complete(given).map_err(|error| match error {
            Wrong::Missing(argument) => missing(argument),
            Wrong::Other(error) => error,
        })
    }

    fn wrong(&self, what: String) -> OpError {
        OpError::new(retval::INVALID_ARGUMENT, format!("request of {}: {what}", self.name)).key("request")
    }

    fn complete(&self, mut given: Map<String, Value>) -> Result<Map<String, Value>, Wrong> {
        let mut request = Map::new();
        for (argument, default) in self.arguments.iter().zip(&self.defaults) {
            let value = match given.remove(argument.field).filter(|value| !value.is_null()) {
                Some(value) => {
                    check(argument, &value).map_err(Wrong::Other)?;
                    value
                }
                None if argument.need == Need::Required => return Err(Wrong::Missing(argument)),
                None => default.clone().unwrap_or_default(),
            };
            request.insert(argument.field.to_owned(), value);
        }
        Ok(request)
    }

    /// The command that makes a request; empty where none does.
    pub fn command(&self, request: &Map<String, Value>) -> String {
        let Some(path) = self.commands.first() else { return String::new() };
        let mut words = vec![(*path).to_owned()];
        for (argument, default) in self.arguments.iter().zip(&self.defaults) {
            let Some(value) = request.get(argument.field).filter(|value| !value.is_null()) else { continue };
            if argument.is_said(default.as_ref() == Some(value)) {
                write(argument, value, &mut words);
            }
        }
        words.join(" ")
    }
}

enum Wrong {
    Missing(&'static Argument),
    Other(OpError),
}

impl DeclaredArgument {
    fn argument(&self) -> Argument {
        let need = if self.required { Need::Required } else { Need::Optional };
        let mut argument = Argument::new(keep(&self.field), keep(&self.syntax), keep(&self.about), need, self.kind.name());
        if !self.words.is_empty() {
            let words: Vec<&'static str> = self.words.iter().map(|word| keep(word)).collect();
            argument.one_of = WORDS.keep(words);
        }
        argument.range = self.range;
        argument.default = self.default.as_ref().map(|default| match default {
            Value::String(text) => keep(text),
            other => keep(&other.to_string()),
        });
        argument
    }
}

/// Does for the type of an argument's value what `$do` does.
macro_rules! by_kind {
    ($argument:expr, $type:ident => $do:expr, word => $word:expr) => {
        match $argument.kind {
            "number" => {
                type $type = u64;
                $do
            }
            "flag" => {
                type $type = bool;
                $do
            }
            "interface" => {
                type $type = IfRef;
                $do
            }
            "IP address" => {
                type $type = IpAddr;
                $do
            }
            "IPv4 address" => {
                type $type = Ipv4Addr;
                $do
            }
            "IPv6 address" => {
                type $type = Ipv6Addr;
                $do
            }
            "word" => $word,
            _ => {
                type $type = String;
                $do
            }
        }
    };
}

/// Takes the value of an argument from a command.
fn take(given: &mut Map<String, Value>, args: &mut Args<'_>, argument: &Argument, lead: usize) -> Result<(), OpError> {
    let value = by_kind!(argument, T => {
        let mut slot: Option<T> = None;
        <T as Field>::take(&mut slot, args, argument, lead)?;
        serde_json::to_value(slot).unwrap_or_default()
    }, word => {
        let word = match argument.is_choice() {
            true => argument.leads().nth(lead).unwrap_or_default(),
            false => {
                let words: Vec<(&str, &str)> = argument.one_of.iter().map(|word| (*word, *word)).collect();
                args.expect_one_of(&words)?
            }
        };
        Value::from(word)
    });
    given.insert(argument.field.to_owned(), value);
    Ok(())
}

/// Whether a value is one that an argument may have.
fn check(argument: &Argument, value: &Value) -> Result<(), OpError> {
    let wrong = || OpError::invalid(argument.field, value, format!("invalid {} `{value}'", argument.what()));
    by_kind!(argument, T => {
        let value: T = serde_json::from_value(value.clone()).map_err(|_| wrong().remedy(format!("expected {}", argument.kind)))?;
        Field::check(&value, argument)
    }, word => match value.as_str() {
        Some(word) if argument.one_of.contains(&word) => Ok(()),
        _ => Err(wrong().remedy(format!("expected {}", argument.one_of.join(", ")))),
    })
}

/// The words of a command that say a value.
fn write(argument: &Argument, value: &Value, words: &mut Vec<String>) {
    by_kind!(argument, T => {
        if let Ok(value) = serde_json::from_value::<T>(value.clone()) {
            Field::write(&value, argument, words);
        }
    }, word => {
        if !argument.is_choice() {
            words.extend(argument.leads().next().map(str::to_owned));
        }
        words.extend(value.as_str().map(str::to_owned));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const DECLARATION: &str = r#"{"name": "guard_set", "access": "change", "about": "Guards.", "commands": ["set guard"], "arguments": [
        {"field": "interface", "kind": "interface", "syntax": "<if>", "required": true},
        {"field": "min", "kind": "number", "syntax": "min <n>", "range": [1, 255], "default": 2},
        {"field": "from", "kind": "address", "syntax": "from <address>"},
        {"field": "mode", "kind": "word", "syntax": "mode drop|count", "words": ["drop", "count"], "default": "drop"},
        {"field": "disable", "kind": "flag", "syntax": "disable"}]}"#;

    #[test]
    fn commands_and_json_make_the_same_request() {
        let declared = Dynamic::read(DECLARATION).unwrap();
        assert_eq!(declared.syntax, "<if> [min <n>] [from <address>] [mode drop|count] [disable]");
        let request = declared.parse(&mut Args::new("eth0 mode count min 0x10")).unwrap();
        let json = json!({"interface": "eth0", "min": 16, "from": null, "mode": "count", "disable": false});
        assert_eq!(Value::Object(request.clone()), json);
        assert_eq!(declared.of_json(json!({"interface": "eth0", "min": 16, "mode": "count"})).unwrap(), request);
        assert_eq!(declared.command(&request), "set guard eth0 min 16 mode count");
        let all = declared.parse(&mut Args::new("eth0 from 2001:db8::1 disable")).unwrap();
        assert_eq!(declared.command(&all), "set guard eth0 from 2001:db8::1 disable");
    }

    #[test]
    fn a_wrong_value_is_the_same_error_by_command_and_by_json() {
        let declared = Dynamic::read(DECLARATION).unwrap();
        let by_command = |line: &str| declared.parse(&mut Args::new(line)).unwrap_err().to_string();
        let by_json = |json: Value| declared.of_json(json).unwrap_err().to_string();
        assert_eq!(by_command("eth0 min 256"), "invalid min `256'; expected 1 to 255");
        assert_eq!(by_json(json!({"interface": "eth0", "min": 256})), "invalid min `256'; expected 1 to 255");
        assert_eq!(by_json(json!({"interface": "eth0", "min": "x"})), "invalid min `\"x\"'; expected number");
        assert_eq!(by_json(json!({"interface": "eth0", "mode": "no"})), "invalid mode `\"no\"'; expected drop, count");
        assert_eq!(by_json(json!({"min": 3})), "missing interface");
        let unknown = "request of guard_set: unknown field `x', expected one of interface, min, from, mode, disable";
        assert_eq!(by_json(json!({"interface": "eth0", "x": 1})), unknown);
        assert!(by_command("").starts_with("missing interface"), "{}", by_command(""));
    }

    #[test]
    fn a_wrong_declaration_says_what_is_wrong() {
        let error = |text: &str| Dynamic::read(text).unwrap_err();
        let operation =
            |arguments: &str| error(&format!(r#"{{"name": "a", "access": "read", "about": "", "arguments": [{arguments}]}}"#));
        assert!(error("{").starts_with("the declaration of an operation is wrong: "));
        assert!(error(r#"{"name": "A", "access": "read", "about": ""}"#).contains("a name has small letters"));
        assert!(operation(r#"{"field": "x", "kind": "nothing", "syntax": "x"}"#).contains("unknown variant `nothing`"));
        let twice = r#"{"field": "x", "kind": "flag", "syntax": "x"}, {"field": "x", "kind": "flag", "syntax": "y"}"#;
        assert!(operation(twice).contains("`x' is no field"));
        let range = r#"{"field": "x", "kind": "number", "syntax": "x <n>", "range": [1, 2], "default": 3}"#;
        assert_eq!(operation(range), "operation `a': default of `x': invalid x `3'; expected 1 to 2");
        let words = r#"{"field": "x", "kind": "word", "syntax": "a|b", "words": ["a", "c"]}"#;
        assert!(operation(words).contains("does not have the words"));
    }

    #[test]
    fn what_is_declared_again_is_not_kept_twice() {
        let [a, b] = [DECLARATION; 2].map(|text| Dynamic::read(text).unwrap());
        assert!(std::ptr::eq(a.arguments, b.arguments) && std::ptr::eq(a.name, b.name));
    }
}
