//! Any text as a command line, a completion and a script: no panic, errors are one line, reading ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_command::grammar::{Args, Command};
use quiver_command::operation::{Invocation, OpError, Operation, Outcome, Registry, View};
use quiver_command::script::{Macros, Script};
use std::sync::LazyLock;

struct Note;
impl Operation<()> for Note {
    const NAME: &'static str = "note";
    type Request = String;
    type Reply = String;
    fn run(_: &mut (), request: String) -> Result<Outcome<(), String>, OpError> {
        Ok(Outcome::Done(request))
    }
}

/// Takes arguments of every kind in any order, as commands do.
fn parse_all(args: &mut Args<'_>, depth: u32) -> Result<String, OpError> {
    let mut read = String::new();
    while !args.is_empty() {
        let before = args.peek_rest().len();
        if args.take_keyword("table") {
            read += &args.number::<u32>("table id")?.to_string();
        } else if args.take_keyword("ports") {
            read += &format!("{:?}", args.range::<u16>("ports")?);
        } else if args.take_keyword("vlan") {
            read += &args.number_in::<u16>("VLAN", 1..=4094)?.to_string();
        } else if args.take_keyword("via") {
            read += &args.ip("next hop")?.to_string();
        } else if args.take_keyword("gso") {
            read += &args.switch("value")?.to_string();
        } else if let Some((address, length)) = args.try_prefix()? {
            read += &format!("{address}/{length}");
        } else if let Some(mac) = args.try_mac() {
            read += &format!("{mac:?}");
        } else if let Some(mut inside) = args.group()? {
            if depth < 20 {
                read += &parse_all(&mut inside, depth + 1)?;
            }
        } else if args.take_keyword("text") {
            read += args.rest();
        } else {
            return Err(args.unexpected());
        }
        assert!(args.peek_rest().len() < before, "no progress");
    }
    Ok(read)
}

/// All commands, for the thread that fuzzes.
fn registry() -> Registry<()> {
    let mut registry = Registry::new();
    let syntax = "[<if>] [table <id>] [ports <a>-<b>] [vlan <n>] [via <nh>|<if>] [gso on|off] [text <s>] { ... }";
    for path in [
        "show interface",
        "show interface address",
        "show ip",
        "show ip6 fib",
        "set interface state",
        "ip route",
        "packet-generator new",
    ] {
        let parse = |args: &mut Args<'_>, _: &()| Ok(Invocation::new::<Note>(parse_all(args, 0)?));
        registry.command(Command { path, syntax, help: "Reads arguments", parse });
    }
    registry.values("if", |()| vec!["pg0".to_owned(), "loop0".to_owned()]);
    registry
}

thread_local!(static REGISTRY: Registry<()> = registry());

static MACROS: LazyLock<Macros> = LazyLock::new(|| {
    let mut macros = Macros::default();
    for (name, value) in [("A", "show"), ("B", "$(A) interface"), ("C", "$(C)$(C)")] {
        macros.define(name, value).expect("good names");
    }
    macros
});

fn one_line(error: &OpError) {
    assert!(!error.to_string().contains(char::is_control));
}

fuzz_target!(|bytes: &[u8]| REGISTRY.with(|registry| run(registry, bytes)));

fn run(registry: &Registry<()>, bytes: &[u8]) {
    for line in Script::new(bytes).flatten() {
        assert!(!line.command.contains('\n'));
        let command = match MACROS.expand(&line.command) {
            Ok(command) => command,
            Err(error) => return one_line(&error),
        };
        if let Err(error) = registry.execute(&mut (), &command, &View::BOTH) {
            one_line(&error);
        }
    }
    let Ok(line) = std::str::from_utf8(bytes) else { return };
    if let Err(error) = registry.execute(&mut (), line, &View::BOTH) {
        one_line(&error);
    }
    for cursor in [line.len() / 2, line.len()] {
        let completion = registry.complete(line, cursor, &());
        assert!(completion.start <= line.len() && line.is_char_boundary(completion.start));
    }
}
