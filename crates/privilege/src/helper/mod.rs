//! The helper: a process that keeps the rights that a router does without.
//!
//! It is the program itself, started once more before the router gives its rights up ([`start`]), so that it shares neither
//! memory nor descriptors with it but one end of a socket pair. It answers two kinds of request with descriptors: what a TAP
//! device in another namespace is made of, and the program that sends frames to AF_XDP sockets. It takes no code, no
//! configuration and no data from the router; a router that somebody has taken over can reach other namespaces through it,
//! and load one program of six instructions.
//!
//! It ends with the router, whose end of the socket closes with the process. When the helper is gone the router goes on, and
//! what needs it fails with one line.

mod client;
mod message;
mod server;

pub use client::{Helper, start};
pub use message::{Malformed, Reply, Request};
pub use server::serve;

/// The word by which the program knows that it is to be the helper.
pub const MARK: &str = "--helper";
