//! Command language and typed-operation machinery; knows no packets.
//!
//! Everything an operator can ask of the router is an [`Operation`](operation::Operation): a typed
//! request, a typed reply, a name. The faces only convert to requests and render replies:
//!
//! ```text
//!  bytes ── session ── line ──► grammar ──► Invocation ─┐
//!  JSON  ── session ── value ─► Registry ──► Invocation ─┼─► Operation::run(&mut C, Request)
//!  startup.conf ─ config ─ values ─► the daemon ─────────┘          │
//!                                                        text or JSON ◄── Reply
//! ```
//!
//! `C` is the state of the main thread that operations work on; it is defined by the layer above and
//! never looked into here. This crate does no input or output and has no clock of its own: bytes come
//! in, events go out, and whoever owns the sockets moves both. It may use serde and the standard
//! library; it must never learn about packets, interfaces or threads.
//!
//! - [`operation`][]: requests, replies, errors, long operations in slices, and the registry of all.
//! - [`request`][]: requests that are declared once: parser, help, JSON and checks follow.
//! - [`grammar`][]: the command tree, the argument cursor, help, completion.
//! - [`script`][]: files of commands.
//! - [`session`][]: the protocols of `cli.sock` and `json.sock`.
//! - [`config`][]: `startup.conf`.
//! - [`change_log`][]: where changes of configuration are recorded.
//! - [`configuration`][]: the running configuration, as requests that make it again.
//! - [`calendar`][]: points in time as people write them.
//! - [`secrets`][]: texts without their secrets.
//! - [`document`][]: the configuration as YAML or JSON by subject, and what leads to it.
//! - [`contain`][]: panics that end an operation, and not the router.
#![forbid(unsafe_code)]

extern crate self as quiver_command;

pub mod calendar;
pub mod change_log;
pub mod config;
pub mod configuration;
pub mod contain;
pub mod document;
pub mod grammar;
pub mod operation;
pub mod request;
pub mod script;
pub mod secrets;
pub mod session;
