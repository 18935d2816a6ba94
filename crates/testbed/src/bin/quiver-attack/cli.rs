//! Command lines made from the commands' own syntax, sent as JSON frames with many in flight.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Plan;
use crate::report::Outcome;
use crate::requests::play;
use crate::rng::Rng;
use crate::watch::Target;

/// An answer that has not come by then does not come. Long, because the machine may be busy.
const HANG: Duration = Duration::from_secs(120);

/// Commands that end the session or the router, that run for as long as they are told, or that open files by path: what such a
/// command does is what it was asked for.
const LEFT_OUT: &[&str] = &[
    "quit",
    "exit",
    "restart",
    "shutdown",
    "exec",
    "sleep",
    "wait",
    "ping",
    "show vlib graph",
    "pcap",
    "api trace",
    "event-logger",
    "create pcap-interface",
    "packet-generator",
    "perfmon",
    "loop",
    "define",
    "script",
    "history",
    "clear session",
    "clear screen",
    "dpdk",
    "memory-trace",
];

/// A command.
struct Template {
    path: String,
    syntax: Vec<Unit>,
}

/// A piece of a syntax.
enum Unit {
    Word(String),
    /// `<name>`.
    Value(String),
    /// `[...]`
    Optional(Vec<Unit>),
    /// `a|b`
    Either(Vec<Unit>),
}

/// Reads units up to the end, or to the bracket that closes.
fn units(text: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Vec<Unit> {
    let mut all: Vec<Unit> = Vec::new();
    let mut joined = false;
    while let Some(&c) = text.peek() {
        let unit = match c {
            ' ' => {
                text.next();
                continue;
            }
            ']' => {
                text.next();
                break;
            }
            '|' => {
                text.next();
                joined = true;
                continue;
            }
            '[' => {
                text.next();
                Unit::Optional(units(text))
            }
            '<' => {
                let name: String = text.by_ref().skip(1).take_while(|c| *c != '>').collect();
                Unit::Value(name)
            }
            _ => {
                let mut word = String::new();
                while let Some(c) = text.next_if(|c| !" []|<".contains(*c)) {
                    word.push(c);
                }
                Unit::Word(word)
            }
        };
        match (std::mem::take(&mut joined), all.pop()) {
            (true, Some(Unit::Either(mut either))) => {
                either.push(unit);
                all.push(Unit::Either(either));
            }
            (true, Some(first)) => all.push(Unit::Either(vec![first, unit])),
            (_, last) => {
                all.extend(last);
                all.push(unit);
            }
        }
    }
    all
}

fn value(rng: &mut Rng, name: &str) -> String {
    const INTERFACES: &[&str] =
        &["loop0", "loop1", "loop2", "loop0.10", "pg0", "pg1", "local0", "memif0/0", "tap0", "host-x", "loop9999"];
    const ADDRESSES: &[&str] = &[
        "10.0.0.1",
        "10.0.0.2",
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.5",
        "127.0.0.1",
        "192.168.1.1",
        "::",
        "::1",
        "fe80::1",
        "2001:db8::1",
        "2001:db8::2",
        "ff02::1",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "::ffff:1.2.3.4",
        "1.2.3",
    ];
    const MACS: &[&str] =
        &["02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "01:00:5e:00:00:01", "0200.0000.0002", "zz"];
    const WORDS: &[&str] =
        &["x", "", "\"", "{", "}", "\\", "é", "default", "-1", "a b", "0x10", "1e9", "ip4-lookup", "ip4-unicast", "%s%n"];
    let number = |rng: &mut Rng| {
        let n = rng.odd();
        // Large enough to be odd, small enough that what is asked for is not simply a lot of work.
        let n = if name.contains("count") || name == "n" { n % 300 } else { n };
        if rng.one_in(20) { format!("-{n}") } else { n.to_string() }
    };
    match name {
        "if" | "interface" | "pg" | "rx" | "tx" => rng.of(INTERFACES).to_owned(),
        "mac" => rng.of(MACS).to_owned(),
        _ if name.contains("ip") || name.contains("addr") || name.contains("host") => match rng.below(4) {
            0 => format!("{}/{}", rng.of(ADDRESSES), number(rng)),
            1 => format!("{}/24", rng.of(ADDRESSES)),
            _ => rng.of(ADDRESSES).to_owned(),
        },
        "s" | "name" | "file" | "tag" => rng.of(WORDS).replace('/', ""),
        _ => match rng.below(10) {
            0 => rng.of(WORDS).to_owned(),
            1 => rng.of(ADDRESSES).to_owned(),
            2 => rng.of(INTERFACES).to_owned(),
            _ => number(rng),
        },
    }
}

fn write(rng: &mut Rng, units: &[Unit], out: &mut Vec<String>) {
    for unit in units {
        match unit {
            Unit::Word(word) => out.push(word.clone()),
            Unit::Value(name) => out.push(value(rng, name)),
            Unit::Optional(inner) if rng.one_in(2) => write(rng, inner, out),
            Unit::Optional(_) => {}
            Unit::Either(all) => {
                let at = rng.below(all.len());
                write(rng, std::slice::from_ref(&all[at]), out);
            }
        }
    }
}

fn line(rng: &mut Rng, commands: &[Template]) -> String {
    let command = &commands[rng.below(commands.len())];
    let mut words = Vec::new();
    write(rng, &command.syntax, &mut words);
    if rng.one_in(6) && !words.is_empty() {
        let at = rng.below(words.len());
        match rng.below(3) {
            0 => drop(words.remove(at)),
            1 => words.insert(at, words[at].clone()),
            _ => words[at] = value(rng, "odd"),
        }
    }
    format!("{} {}", command.path, words.join(" "))
}

/// A client with requests in flight.
struct Client {
    writer: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Client {
    fn connect(target: &Target) -> Result<Self, String> {
        let stream = UnixStream::connect(target.router.folder().join("json.sock")).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(HANG)).map_err(|e| e.to_string())?;
        let writer = stream.try_clone().map_err(|e| e.to_string())?;
        writer.set_write_timeout(Some(HANG)).map_err(|e| e.to_string())?;
        Ok(Self { writer, reader: BufReader::new(stream) })
    }

    fn send(&mut self, calls: &[Value]) -> Result<(), String> {
        let text: String = calls.iter().map(|call| format!("{call}\n")).collect();
        self.writer.write_all(text.as_bytes()).map_err(|e| format!("writing: {e}"))
    }

    /// The next whole answer.
    fn answer(&mut self) -> Result<Value, String> {
        loop {
            let mut text = String::new();
            match self.reader.read_line(&mut text) {
                Ok(0) => return Err("the session was closed".into()),
                Ok(_) => {}
                Err(error) => return Err(format!("no answer within {HANG:?}: {error}")),
            }
            let answer: Value = serde_json::from_str(&text).map_err(|e| format!("an answer that is no JSON: {e}"))?;
            if answer["status"] != "more" {
                return Ok(answer);
            }
        }
    }
}

/// All commands with their syntax, as the router tells them.
fn commands(client: &mut Client) -> Result<Vec<Template>, String> {
    client.send(&[json!({ "command": "choices", "json": true })])?;
    let answer = client.answer()?;
    let all = answer["data"]["choices"].as_array().ok_or("`choices' without a list")?;
    let template = |choice: &Value| {
        let (path, syntax) = (choice["path"].as_str()?, choice["syntax"].as_str()?);
        let wanted = !LEFT_OUT.iter().any(|left| path.starts_with(left));
        wanted.then(|| Template { path: path.to_owned(), syntax: units(&mut syntax.chars().peekable()) })
    };
    Ok(all.iter().filter_map(template).collect())
}

/// One router's share; the lines sent.
fn round(outcome: &mut Outcome, target: &Target, seed: u64, count: u64, in_flight: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut client = Client::connect(target)?;
    let commands = commands(&mut client)?;
    if commands.len() < 100 {
        return Err(format!("only {} commands", commands.len()));
    }
    let mut sent = 0;
    while sent < count {
        let n = in_flight.min(count - sent);
        let lines: Vec<String> = (0..n).map(|_| line(&mut rng, &commands)).collect();
        let calls: Vec<Value> =
            lines.iter().enumerate().map(|(id, l)| json!({ "id": id, "command": l, "json": id % 2 == 0 })).collect();
        let mut cpu = target.cpu();
        client.send(&calls)?;
        for line in &lines {
            let answer = client.answer().map_err(|e| format!("{e}; at `{line}' of {lines:?}"))?;
            outcome.accepted += u64::from(answer["status"] == "ok");
            let now = target.cpu();
            // What main did since the answer before it: for this line, or at most for those behind it.
            outcome.worked(now.saturating_sub(cpu), || format!("{line}, or those after it of {lines:?}"));
            cpu = now;
        }
        sent += n;
        outcome.count += n;
    }
    Ok(())
}

/// Plays the part.
pub fn run(plan: &Plan) -> Outcome {
    play("cli", plan, round)
}
