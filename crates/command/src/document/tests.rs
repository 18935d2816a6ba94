use super::{Book, Shape, Wish};
use crate::configuration::{Entry, Stage};
use crate::operation::{OpError, Operation, Outcome, Registry};
use serde_json::{Value, json};
use std::sync::Arc;

/// An operation that takes any request.
struct Set;

impl Operation<()> for Set {
    const NAME: &'static str = "set";
    type Request = Value;
    type Reply = ();

    fn run(_: &mut (), _: Value) -> Result<Outcome<(), ()>, OpError> {
        Ok(Outcome::Done(()))
    }
}

const SHAPES: &[Shape] = &[
    Shape::new("interfaces/{interface}/mtu", r#""{bytes#}""#, "set", r#"{"interface":"{interface}","mtu":"{bytes#}"}"#)
        .doc("Bytes"),
    Shape::new("interfaces/{interface}/up", "true", "set", r#"{"interface":"{interface}","up":true}"#),
    Shape::new("interfaces/loop{n#}/loopback", r#"{"*":"*"}"#, "set", r#"{"loop":"{n#}","*":"*"}"#),
    Shape::new(
        "interfaces/{interface}/addresses",
        r#""{address}/{len#}""#,
        "set",
        r#"{"interface":"{interface}","address":"{address}","len":"{len#}"}"#,
    )
    .list(),
    Shape::new("domains/{id#}", r#"{"tag":"{tag}"}"#, "set", r#"{"domain":"{id#}","tag":"{tag}"}"#),
    Shape::new("domains/{id#}/learn", "false", "set", r#"{"domain":"{id#}","learn":false}"#),
];

fn book() -> Arc<Book> {
    let mut registry: Registry<()> = Registry::new();
    registry.operation::<Set>().shapes(Stage::Links, SHAPES);
    registry.book()
}

fn entries(wish: &Wish) -> Vec<Entry> {
    wish.wanted.iter().map(|wanted| wanted.entry.clone()).collect()
}

#[test]
fn a_document_is_requests_and_the_contrary() {
    let text = "interfaces:\n  loop3:\n    loopback: {mac: '02:00:00:00:00:03'}\n    mtu: 1400\n    up: true\n    addresses: [10.0.0.1/24, 10.0.0.2/24]\n\
        domains:\n  7:\n    tag: red\n    learn: false\n  8:\n    learn: true\noperations:\n- operation: set\n  request: {strange: 1}\n";
    let wish = book().read("a", text).unwrap_or_else(|error| panic!("{error}"));
    let requests: Vec<Value> = entries(&wish).iter().map(|entry| serde_json::from_str(entry.request.get()).unwrap()).collect();
    let expected = [
        json!({"loop": 3, "mac": [2, 0, 0, 0, 0, 3]}),
        json!({"interface": "loop3", "mtu": 1400}),
        json!({"interface": "loop3", "up": true}),
        json!({"interface": "loop3", "address": "10.0.0.1", "len": 24}),
        json!({"interface": "loop3", "address": "10.0.0.2", "len": 24}),
        json!({"domain": 7, "tag": "red"}),
        json!({"domain": 7, "learn": false}),
        json!({"domain": 8}),
        json!({"strange": 1}),
    ];
    assert_eq!(requests, expected);
    let written = book().write(&entries(&wish));
    let again = book().read("b", &written).unwrap_or_else(|error| panic!("{error}\n{written}"));
    let sorted = |wish: &Wish| {
        let mut all: Vec<String> = entries(wish).iter().map(|entry| entry.request.get().to_owned()).collect();
        all.sort();
        all
    };
    assert_eq!(sorted(&again), sorted(&wish), "{written}");
}

#[test]
fn nothing_is_a_document_too() {
    for text in ["", "{}", "interfaces:", "interfaces: {loop0: , loop1: {mtu: }}", "# only a comment\n"] {
        let wish = book().read("a", text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert!(wish.wanted.is_empty(), "{text:?}");
    }
    assert_eq!(book().write(&[]), "{}\n");
}

#[test]
fn what_is_no_document_is_refused_in_one_line() {
    let deep = format!("a: {}1{}", "[".repeat(200), "]".repeat(200));
    for text in
        ["5", "[1]", "interfaces: 5", "a: &a [*a]", "{", "\t- x", "domains: {-1: {}}", "interfaces: {loop0: {mtu: [1]}}", &deep]
    {
        let error = book().read("a.yaml", text).err().unwrap_or_else(|| panic!("{text}")).to_string();
        assert!(error.starts_with("a.yaml") && !error.contains('\n') && error.len() < 400, "{text}: {error}");
    }
}

#[test]
fn a_schema_has_what_shapes_say() {
    let schema = book().schema();
    assert_eq!(
        schema["properties"]["domains"]["patternProperties"]["^[0-9]+$"]["properties"]["learn"]["anyOf"][0],
        json!({"type": "boolean"})
    );
    let interface = &schema["properties"]["interfaces"]["patternProperties"]["^.+$"]["properties"];
    assert_eq!(interface["mtu"]["description"], "Bytes");
    assert_eq!(interface["addresses"]["items"]["type"], "string");
    assert!(interface["loopback"].is_object());
}
