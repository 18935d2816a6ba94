//! Definitions as VPP's own tool writes them (`*.api.json`), for clients that load them.

use serde_json::{Map, Value, json};

use crate::crc::crc;
use crate::schema::{Array, Definition, Field, Kind, MessageInfo, Module};

/// The definitions of all modules, an array.
pub fn all<'a>(modules: impl IntoIterator<Item = &'a Module>) -> Value {
    Value::Array(modules.into_iter().map(module).collect())
}

/// The definitions of a module, with all types that its messages use.
pub fn module(module: &Module) -> Value {
    let mut used: Vec<&'static Definition> = Vec::new();
    module.definitions.iter().for_each(|definition| note(&mut used, definition));
    for message in module.messages {
        message.fields.iter().filter_map(|field| field.ty.definition).for_each(|definition| note(&mut used, definition));
    }
    let of = |kind| Value::Array(used.iter().filter(|d| d.kind == kind).map(|d| definition(d)).collect());
    let aliases: Map<String, Value> =
        used.iter().filter(|d| d.kind == Kind::Alias).map(|d| (d.name.to_owned(), definition(d))).collect();
    let services = module.messages.iter().filter_map(|m| Some((m.name.to_owned(), service(m)?)));
    json!({
        "module": module.name,
        "types": of(Kind::Struct),
        "messages": module.messages.iter().map(|m| message(m)).collect::<Vec<_>>(),
        "unions": of(Kind::Union),
        "enums": of(Kind::Enum),
        "enumflags": of(Kind::Flags),
        "services": services.collect::<Map<_, _>>(),
        "options": { "version": module.version },
        "aliases": aliases,
        "vl_api_version": version(module),
        "imports": [],
        "counters": [],
        "paths": [],
    })
}

/// A type after those that it uses.
fn note(used: &mut Vec<&'static Definition>, definition: &'static Definition) {
    if used.iter().any(|known| known.name == definition.name) {
        return;
    }
    definition.fields.iter().filter_map(|field| field.ty.definition).for_each(|inner| note(used, inner));
    used.push(definition);
}

/// A number for the whole module that changes with any of its messages.
fn version(module: &Module) -> String {
    let all = module.messages.iter().fold(0_u32, |all, message| all.rotate_left(1) ^ crc(message));
    format!("{all:#x}")
}

fn definition(definition: &Definition) -> Value {
    let base = definition.fields.first().map_or("", |field| field.ty.name);
    match definition.kind {
        Kind::Alias => {
            let mut alias = json!({ "type": base });
            if let (Some(Array::Fixed(n)), Some(alias)) = (definition.fields.first().map(|f| f.ty.array), alias.as_object_mut()) {
                alias.insert("length".to_owned(), json!(n));
            }
            alias
        }
        Kind::Struct | Kind::Union => {
            let fields = definition.fields.iter().map(field);
            Value::Array(std::iter::once(json!(definition.name)).chain(fields).collect())
        }
        Kind::Enum | Kind::Flags => {
            let values = definition.values.iter().map(|value| json!([value.name, value.number]));
            let end = json!({ "enumtype": base });
            Value::Array(std::iter::once(json!(definition.name)).chain(values).chain([end]).collect())
        }
    }
}

fn field(field: &Field) -> Value {
    let mut all = vec![json!(field.ty.name), json!(field.name)];
    match field.ty.array {
        Array::None => {}
        Array::Fixed(n) | Array::Text(n) => all.push(json!(n)),
        Array::Counted(by) => all.extend([json!(0), json!(by)]),
        Array::OpenText => all.push(json!(0)),
    }
    if let Some(default) = field.default {
        // Numbers are numbers there, words are text.
        let whole = default.parse::<u64>().map(|number| json!(number));
        let default = whole.or_else(|_| default.parse::<f64>().map(|number| json!(number))).unwrap_or_else(|_| json!(default));
        all.push(json!({ "default": default }));
    }
    Value::Array(all)
}

fn message(message: &MessageInfo) -> Value {
    let id = json!(["u16", "_vl_msg_id"]);
    let fields = message.prefix.fields().iter().chain(message.fields).map(field);
    let end = json!({ "crc": format!("0x{:08x}", crc(message)), "options": {} });
    Value::Array([json!(message.name), id].into_iter().chain(fields).chain([end]).collect())
}

fn service(message: &MessageInfo) -> Option<Value> {
    let mut service = match (message.reply, message.stream) {
        (None, None) => return None,
        (Some(reply), None) => json!({ "reply": reply }),
        (None, Some(details)) => json!({ "reply": details, "stream": true }),
        (Some(reply), Some(details)) => json!({ "reply": reply, "stream": true, "stream_msg": details }),
    };
    if let (false, Some(service)) = (message.events.is_empty(), service.as_object_mut()) {
        service.insert("events".to_owned(), json!(message.events));
    }
    Some(service)
}
