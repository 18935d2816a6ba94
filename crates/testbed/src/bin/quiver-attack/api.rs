//! Binary API messages of every kind, made from their declarations, with odd values and lengths, many in flight.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use quiver_api::defs::SockclntCreateReply;
use quiver_api::frame::{self, Front};
use quiver_api::{Array, Catalog, Entry, Field, Head, Kind, Message, Reader, Type};

use crate::Plan;
use crate::report::Outcome;
use crate::requests::play;
use crate::rng::Rng;
use crate::watch::Target;

/// Context of the ping that follows requests.
const PING: u32 = u32::MAX;
const HANG: Duration = Duration::from_secs(120);
/// Messages that end the client, that run for as long as they are told, or that write a file of any name where the router runs.
const LEFT_OUT: &[&str] = &["sockclnt_create", "sockclnt_delete", "want_ping_finished_events", "pg_capture"];

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    /// Requests by the router's numbers.
    kinds: Vec<(u16, Entry)>,
    ping: u16,
    ping_reply: u16,
}

impl Client {
    fn connect(target: &Target) -> Result<Self, String> {
        let stream = UnixStream::connect(target.router.folder().join("api.sock")).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(HANG)).map_err(|e| e.to_string())?;
        stream.set_write_timeout(Some(HANG)).map_err(|e| e.to_string())?;
        let mut client = Self { stream, input: Vec::new(), kinds: Vec::new(), ping: 0, ping_reply: 0 };
        let mut out = Vec::new();
        frame::push(&mut out, |out| {
            out.extend(frame::CREATE.to_be_bytes());
            out.extend([0; 4]);
            out.extend([0; 64]);
        });
        client.send(&out)?;
        let reply = client.receive()?;
        let body = reply.get(10..).ok_or("a short answer to the greeting")?;
        let reply = SockclntCreateReply::read(&mut Reader::new(body)).map_err(|e| e.to_string())?;
        let catalog = Catalog::default();
        for row in &reply.message_table {
            let Some(entry) = catalog.entries().iter().find(|e| e.table_name() == row.name.0) else { continue };
            match entry.info.name {
                "control_ping" => client.ping = row.index,
                "control_ping_reply" => client.ping_reply = row.index,
                name if entry.info.prefix == Head::Client && entry.info.reply.is_some() && !LEFT_OUT.contains(&name) => {
                    client.kinds.push((row.index, *entry));
                }
                _ => {}
            }
        }
        Ok(client)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|e| format!("writing: {e}"))
    }

    fn receive(&mut self) -> Result<Vec<u8>, String> {
        loop {
            match frame::front(&self.input) {
                Front::Message(message, used) => {
                    let message = message.to_vec();
                    self.input.drain(..used);
                    return Ok(message);
                }
                Front::TooLong(n) => return Err(format!("an answer of {n} bytes")),
                Front::Partial(_) => {}
            }
            let mut chunk = [0; 64 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err("the client was closed".into()),
                Ok(n) => self.input.extend_from_slice(&chunk[..n]),
                Err(error) => return Err(format!("no answer within {HANG:?}: {error}")),
            }
        }
    }
}

/// Numbers that fields count.
type Counts = Vec<(&'static str, usize)>;

fn scalar(rng: &mut Rng, name: &str, size: usize, out: &mut Vec<u8>) {
    let n = match name {
        // Interfaces and tables that there are, more often than others.
        _ if name.contains("sw_if_index") && !rng.one_in(4) => rng.next() % 12,
        _ if name.contains("table_id") && !rng.one_in(4) => rng.next() % 4,
        _ if name.contains("bd_id") && !rng.one_in(4) => rng.next() % 4,
        _ if name.contains("count") || name.starts_with("n_") => rng.next() % 64,
        _ => rng.odd(),
    };
    out.extend_from_slice(&n.to_be_bytes()[8 - size.min(8)..]);
}

fn one(rng: &mut Rng, name: &str, ty: &Type, size: usize, out: &mut Vec<u8>) {
    let Some(definition) = ty.definition else {
        let size = match ty.name {
            "u8" | "i8" | "bool" => 1,
            "u16" | "i16" => 2,
            "u64" | "i64" | "f64" => 8,
            "u32" | "i32" => 4,
            _ => size,
        };
        if ty.name == "bool" && !rng.one_in(8) {
            return out.push((rng.next() & 1) as u8);
        }
        return scalar(rng, name, size, out);
    };
    match definition.kind {
        Kind::Struct => fields(rng, definition.fields, out),
        Kind::Alias => definition
            .fields
            .iter()
            .for_each(|f| field(rng, if f.name.is_empty() { name } else { f.name }, f, &mut Vec::new(), out)),
        Kind::Union => {
            // As long as its longest field.
            let most = definition.fields.iter().map(|f| f.size).max().unwrap_or(0);
            let chosen = rng.below(definition.fields.len());
            let mut bytes = Vec::new();
            field(rng, name, &definition.fields[chosen], &mut Vec::new(), &mut bytes);
            bytes.resize(most, 0);
            out.extend(bytes);
        }
        Kind::Enum | Kind::Flags => {
            let width = definition.fields.first().map_or(4, |f| f.size);
            let known = definition.values.get(rng.below(definition.values.len())).map_or(0, |v| v.number as u64);
            let n = if rng.one_in(8) { rng.odd() } else { known };
            out.extend_from_slice(&n.to_be_bytes()[8 - width.min(8)..]);
        }
    }
}

fn field(rng: &mut Rng, name: &str, field: &Field, counts: &mut Counts, out: &mut Vec<u8>) {
    const TEXTS: &[&str] =
        &["", "x", "show version", "loop0", "é", "%s%n", "pg0", "tap0", "ip4-unicast", "show interface", "bogus words"];
    match field.ty.array {
        Array::None => one(rng, name, &field.ty, field.size, out),
        Array::Fixed(n) => {
            let size = field.size / n.max(1);
            (0..n).for_each(|_| one(rng, name, &field.ty, size, out));
        }
        Array::Counted(by) => {
            let n = counts.iter().find(|(name, _)| *name == by).map_or(0, |(_, n)| *n);
            (0..n).for_each(|_| one(rng, name, &field.ty, 1, out));
        }
        Array::Text(n) => {
            let mut text = rng.of(TEXTS).as_bytes().to_vec();
            text.resize(n, if rng.one_in(8) { 0xff } else { 0 });
            out.extend(text);
        }
        Array::OpenText => {
            let text = rng.of(TEXTS);
            let length = if rng.one_in(8) { rng.odd() as u32 } else { text.len() as u32 };
            out.extend(length.to_be_bytes());
            out.extend(text.as_bytes());
        }
    }
}

fn fields(rng: &mut Rng, all: &'static [Field], out: &mut Vec<u8>) {
    let mut counts = Counts::new();
    for this in all {
        let counts_another = all.iter().any(|f| f.ty.array == Array::Counted(this.name));
        if counts_another && this.ty.definition.is_none() {
            let n = rng.below(5);
            counts.push((this.name, n));
            // Sometimes more than there are.
            let told = if rng.one_in(12) { rng.odd() } else { n as u64 };
            out.extend_from_slice(&told.to_be_bytes()[8 - this.size.min(8)..]);
            continue;
        }
        field(rng, this.name, this, &mut counts, out);
    }
}

/// A message of any kind; its name.
fn message(rng: &mut Rng, kinds: &[(u16, Entry)], context: u32, out: &mut Vec<u8>) -> &'static str {
    let (id, entry) = kinds[rng.below(kinds.len())];
    let mut body = Vec::new();
    fields(rng, entry.info.fields, &mut body);
    if rng.one_in(16) {
        let length = rng.below(body.len() + 8);
        body.resize(length, rng.next() as u8);
    }
    if rng.one_in(16) && !body.is_empty() {
        let at = rng.below(body.len());
        body[at] = rng.next() as u8;
    }
    frame::push(out, |out| {
        out.extend(id.to_be_bytes());
        out.extend((rng.next() as u32).to_be_bytes());
        out.extend(context.to_be_bytes());
        out.extend(body);
    });
    entry.info.name
}

/// One client's share of a router's life.
fn round(outcome: &mut Outcome, target: &Target, seed: u64, count: u64, in_flight: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut client = Client::connect(target)?;
    if client.kinds.len() < 50 || client.ping == 0 {
        return Err(format!("only {} kinds of messages", client.kinds.len()));
    }
    let mut sent = 0;
    while sent < count {
        let n = in_flight.min(count - sent);
        let mut out = Vec::new();
        let names: Vec<&str> = (0..n as u32).map(|k| message(&mut rng, &client.kinds, k, &mut out)).collect();
        frame::push(&mut out, |out| {
            out.extend(client.ping.to_be_bytes());
            out.extend([0; 4]);
            out.extend(PING.to_be_bytes());
        });
        let mut cpu = target.cpu();
        client.send(&out)?;
        loop {
            let reply = client.receive().map_err(|e| format!("{e}; one of {names:?}"))?;
            let now = target.cpu();
            outcome.worked(now.saturating_sub(cpu), || format!("some of {names:?}"));
            cpu = now;
            let id = reply.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
            let word = |at: usize| reply.get(at..at + 4).and_then(|b| b.first_chunk()).map(|b| u32::from_be_bytes(*b));
            if id == client.ping_reply && word(2) == Some(PING) {
                break;
            }
            outcome.accepted += u64::from(word(6) == Some(0));
        }
        sent += n;
        outcome.count += n;
    }
    Ok(())
}

/// Plays the part.
pub fn run(plan: &Plan) -> Outcome {
    play("api", plan, round)
}
