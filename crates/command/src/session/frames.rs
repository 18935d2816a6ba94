//! JSON lines: one object a line, both ways. What `quiverctl` and other programs speak.
//!
//! | a client sends | it gets |
//! | --- | --- |
//! | `{"id":1,"command":"show version"}` | `{"id":1,"status":"ok","text":"…"}` |
//! | `{"id":2,"command":"show version","json":true}` | `{"id":2,"status":"ok","data":{…}}` |
//! | `{"id":3,"op":"version_show","request":{}}` | `{"id":3,"status":"ok","data":{…}}` |
//! | `{"id":4,"complete":"show ver"}` | `{"id":4,"status":"ok","data":{"start":5,"candidates":[…]}}` |
//! | `{"cancel":1}` or `{"cancel":true}` | nothing; the request named, or the running one, ends early |
//!
//! `id` is any JSON value and is given back; it may be missing. `"text":true` adds the text to the data
//! of an operation. While a request runs there may be `{"id":…,"status":"more","text":"…"}`; a failure
//! is `{"id":…,"status":"error","text":"<one line>","error":{"code":…,…}}`. `"negative":true` stands in the answer of a request
//! that was carried out and did not get what it tried, as a ping to which nothing came back. Requests may be sent without
//! waiting; they are run one after the other and answered in order. `"candidate":true` stands in each answer of a session that collects its
//! changes (`configure`).

use super::{Advance, Event, LONGEST_LINE, MUCH_OUTPUT, Request, lines::Splitter};
use crate::operation::{Answer, OpError, Render, View, retval};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use std::collections::VecDeque;

pub use super::telnet::{Filter, terminal_type_answer};

/// How many requests are read ahead of the running one, in search of a cancel frame.
const READ_AHEAD: usize = 64;

/// How a request ended, or that it has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It succeeded.
    Ok,
    /// It failed.
    Error,
    /// It goes on.
    More,
}

/// What a client receives.
#[derive(Debug, Deserialize)]
pub struct Reply {
    /// The request's id.
    #[serde(default)]
    pub id: Value,
    /// How it ended.
    pub status: Status,
    /// Text for a person.
    #[serde(default)]
    pub text: String,
    /// The reply as JSON, its keys in their order.
    #[serde(default)]
    pub data: Option<Box<RawValue>>,
    /// It was carried out, and what it tried did not succeed: a ping to which nothing came back.
    #[serde(default)]
    pub negative: bool,
    /// What went wrong.
    #[serde(default)]
    pub error: Option<OpError>,
    /// The session has a candidate: its changes are collected.
    #[serde(default)]
    pub candidate: bool,
}

/// What a client sends; exactly one of `command`, `op`, `complete` and `cancel`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Given back in the reply.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub id: Value,
    /// A command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Whether the command's reply is wanted as data and not as text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub json: bool,
    /// An operation's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// The operation's request.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub request: Value,
    /// Whether the operation's reply is wanted as text too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub text: bool,
    /// A line to complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<String>,
    /// Byte offset in the line to complete; its end where missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<usize>,
    /// The id of the request to cancel, or `true` for the running one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Value>,
    /// Columns of the client's terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u16>,
    /// Whether the client's terminal takes colours.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ansi: bool,
}

impl Call {
    /// A command line.
    pub fn command(line: impl Into<String>) -> Self {
        Self { command: Some(line.into()), ..Self::default() }
    }

    /// The call as a line.
    pub fn to_line(&self) -> String {
        // Strings, numbers and values with string keys: this cannot fail.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// A line that waits for its turn. It is kept as it came: taken apart it may be many times larger.
#[derive(Debug)]
struct Waiting {
    line: Result<String, OpError>,
    cancelled: bool,
}

/// The serving side.
#[derive(Debug, Default)]
pub(super) struct Server {
    splitter: Splitter,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    running: Option<Value>,
    /// Changes are collected.
    candidate: bool,
}

impl Server {
    pub(super) fn set_candidate(&mut self, candidate: bool) {
        self.candidate = candidate;
    }

    /// Reads complete lines ahead, so that a cancel frame is seen while another request runs.
    pub(super) fn look_ahead(&mut self, input: &mut VecDeque<u8>, busy: bool, events: &mut VecDeque<Event>) {
        while busy && self.waiting.len() < READ_AHEAD && self.waiting_bytes < LONGEST_LINE {
            let Some(line) = self.splitter.next(input, false) else { return };
            let cancel = line.as_deref().ok().and_then(cancel);
            match cancel {
                Some(id) => {
                    self.cancel_waiting(&id);
                    if id == Value::Bool(true) || self.running.as_ref() == Some(&id) {
                        events.push_back(Event::Interrupt);
                    }
                }
                None => {
                    self.waiting_bytes += line.as_ref().map_or(0, String::len);
                    self.waiting.push_back(Waiting { line, cancelled: false });
                }
            }
        }
    }

    fn cancel_waiting(&mut self, id: &Value) {
        for waiting in &mut self.waiting {
            let call = waiting.line.as_deref().ok().and_then(|line| serde_json::from_str::<Call>(line).ok());
            waiting.cancelled |= call.is_some_and(|call| call.id == *id && !id.is_null());
        }
    }

    fn next(&mut self, input: &mut VecDeque<u8>, ended: bool) -> Option<Waiting> {
        if let Some(waiting) = self.waiting.pop_front() {
            self.waiting_bytes -= waiting.line.as_ref().map_or(0, String::len);
            return Some(waiting);
        }
        let line = self.splitter.next(input, ended)?;
        Some(Waiting { line, cancelled: false })
    }

    pub(super) fn advance(&mut self, input: &mut VecDeque<u8>, ended: bool, output: &mut Vec<u8>) -> Advance {
        while output.len() < MUCH_OUTPUT {
            let Some(Waiting { line, cancelled }) = self.next(input, ended) else { return Advance::Wait };
            // A cancel frame for what has ended already is nothing; nor is an empty line.
            if line.as_deref().is_ok_and(|line| line.trim().is_empty() || cancel(line).is_some()) {
                continue;
            }
            let (id, request) = request(line);
            self.running = Some(id);
            match request {
                Ok(_) if cancelled => self.answer(Err(OpError::unspecified("cancelled")), output),
                Ok(request) => return Advance::Request(request),
                Err(error) => self.answer(Err(error), output),
            }
        }
        Advance::Congested
    }

    pub(super) fn print(&self, text: &str, output: &mut Vec<u8>) {
        let mut frame = Frame::new(self.running.as_ref(), Status::More);
        frame.field("text", text);
        frame.end(output);
    }

    pub(super) fn answer(&mut self, result: Result<Answer, OpError>, output: &mut Vec<u8>) {
        let running = self.running.take();
        let mut frame = match result {
            Ok(answer) => {
                let mut frame = Frame::new(running.as_ref(), Status::Ok);
                // Text is left out only where data stands for it.
                if !answer.text.is_empty() || answer.json.is_none() {
                    frame.field("text", &answer.text);
                }
                if let Some(json) = &answer.json {
                    frame.raw("data", json);
                }
                if answer.negative {
                    frame.field("negative", &true);
                }
                frame
            }
            Err(error) => {
                let mut frame = Frame::new(running.as_ref(), Status::Error);
                frame.field("text", &error.to_string());
                frame.field("error", &error);
                frame
            }
        };
        if self.candidate {
            frame.field("candidate", &true);
        }
        frame.end(output);
    }
}

/// An error that answers no request.
pub(super) fn farewell(text: &str, output: &mut Vec<u8>) {
    let mut frame = Frame::new(None, Status::Error);
    frame.field("text", text);
    frame.field("error", &OpError::new(retval::BUSY, text));
    frame.end(output);
}

/// What a line wants to cancel, where it is a cancel frame.
fn cancel(line: &str) -> Option<Value> {
    if !line.contains("\"cancel\"") {
        return None;
    }
    let call = serde_json::from_str::<Call>(line).ok()?;
    let other = call.command.is_some() || call.op.is_some() || call.complete.is_some();
    call.cancel.filter(|_| !other)
}

/// The id and the request of a line.
fn request(line: Result<String, OpError>) -> (Value, Result<Request, OpError>) {
    let call = line.and_then(|line| {
        serde_json::from_str::<Call>(&line).map_err(|error| {
            OpError::new(retval::INVALID_ARGUMENT, format!("not a request: {error}"))
                .remedy("send {\"command\":\"...\"} or {\"op\":\"...\",\"request\":{...}} on one line")
        })
    });
    let call = match call {
        Ok(call) => call,
        Err(error) => return (Value::Null, Err(error)),
    };
    let view = View { render: Render::Text, width: call.width, ansi: call.ansi };
    let request = match (call.command, call.op, call.complete, call.cancel) {
        (Some(line), None, None, None) => {
            let render = if call.json { Render::Json } else { Render::Text };
            Ok(Request::Command { line, view: View { render, ..view } })
        }
        (None, Some(name), None, None) => {
            let render = if call.text { Render::Both } else { Render::Json };
            Ok(Request::Operation { name, request: call.request, view: View { render, ..view } })
        }
        (None, None, Some(line), None) => {
            let cursor = call.cursor.unwrap_or(line.len());
            Ok(Request::Complete { line, cursor })
        }
        _ => Err(OpError::new(retval::INVALID_ARGUMENT, "a request has exactly one of `command', `op', `complete' and `cancel'")),
    };
    (call.id, request)
}

/// Writes one object field by field, so that a large reply that is JSON already is not parsed again.
struct Frame(String);

impl Frame {
    fn new(id: Option<&Value>, status: Status) -> Self {
        let mut frame = Self(String::from("{"));
        if let Some(id) = id.filter(|id| !id.is_null()) {
            frame.field("id", id);
        }
        frame.field("status", &status);
        frame
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        // Only strings, ids and errors come here; a value that cannot be JSON would be null.
        let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        self.raw(name, &json);
    }

    fn raw(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(json);
    }

    fn end(mut self, output: &mut Vec<u8>) {
        self.0.push_str("}\n");
        output.extend_from_slice(self.0.as_bytes());
    }
}
