//! Any text as a document: no panic, errors are one line, and what was read is the same when it is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_command::configuration::{Entry, Stage};
use quiver_command::document::{Book, Shape};
use quiver_command::operation::{OpError, Operation, Outcome, Registry};
use serde_json::Value;
use std::sync::{Arc, LazyLock};

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
    Shape::new("interfaces/{interface}/mtu", r#""{bytes#}""#, "set", r#"{"interface":"{interface}","mtu":"{bytes#}"}"#),
    Shape::new("interfaces/{interface}/mac", r#""{mac@}""#, "set", r#"{"interface":"{interface}","mac":"{mac@}"}"#),
    Shape::new("interfaces/{interface}/up", "true", "set", r#"{"interface":"{interface}","up":true}"#),
    Shape::new("interfaces/loop{n#}/loopback", r#"{"*":"*"}"#, "set", r#"{"loop":"{n#}","*":"*"}"#),
    Shape::new("interfaces/{interface}/addresses", r#""{address}/{len#}""#, "set", r#"{"interface":"{interface}","address":"{address}","len":"{len#}"}"#)
        .list(),
    Shape::new("routes/{table#}/{prefix}", r#""{paths}""#, "set", r#"{"table":"{table#}","prefix":"{prefix}","paths":"{paths}"}"#),
];

static BOOK: LazyLock<Arc<Book>> = LazyLock::new(|| {
    let mut registry: Registry<()> = Registry::new();
    registry.operation::<Set>().shapes(Stage::Links, SHAPES);
    registry.book()
});

fuzz_target!(|text: &str| {
    let wish = match BOOK.read("text", text) {
        Ok(wish) => wish,
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains(char::is_control), "{line:?}");
            return;
        }
    };
    let entries: Vec<Entry> = wish.wanted.iter().map(|wanted| wanted.entry.clone()).collect();
    let written = BOOK.write(&entries);
    BOOK.read("again", &written).unwrap_or_else(|error| panic!("{error}\n{written}"));
    let own = wish.own.clone();
    if let Ok(plan) = BOOK.plan("text", &[], wish, &own) {
        assert!(plan.target.len() <= entries.len());
    }
});
