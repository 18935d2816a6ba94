//! Header views, checksums and endian types; knows bytes only.
//!
//! Every protocol header is a `#[repr(C)]` struct of byte-aligned, network-order fields. A node copies a header out of
//! packet memory ([`Header::read_at`]), works on the value, and copies it back ([`Header::write_at`]); nothing here
//! keeps a reference into memory that a peer could write at the same time. After the one length check of `read`, no
//! accessor can panic, whatever the bytes are.
//!
//! | theme | modules |
//! |---|---|
//! | addresses | [`mac`], [`prefix`] |
//! | link layer | [`ethernet`], [`vlan`], [`arp`] |
//! | network layer | [`ipv4`], [`ipv6`], [`icmp4`], [`icmp6`], [`ndp`], [`group`] |
//! | transport | [`tcp`], [`udp`] |
//! | choosing, making and showing packets | [`bpf`], [`build`], [`describe`], [`pcapfile`] |
//! | algorithms over packets | [`checksum`], [`gso`], [`coalesce`], [`flow`], [`fragment`] |
//!
//! This crate may use `zerocopy` and nothing of the layers below it in `DESIGN.md`'s list: it must never know about
//! buffers, nodes, interfaces or tables.
#![forbid(unsafe_code)]

pub mod arp;
pub mod bpf;
pub mod build;
pub mod checksum;
pub mod coalesce;
pub mod describe;
pub mod ethernet;
pub mod flow;
pub mod fragment;
pub mod group;
pub mod gso;
mod header;
pub mod icmp4;
pub mod icmp6;
pub mod ipv4;
pub mod ipv6;
pub mod mac;
pub mod ndp;
pub mod pcapfile;
pub mod prefix;
pub mod tcp;
pub mod udp;
pub mod vlan;

pub use header::Header;
pub use mac::MacAddr;
pub use prefix::{IpPrefix, Ipv4Prefix, Ipv6Prefix, PrefixError};
pub use zerocopy::byteorder::network_endian::{U16 as U16Be, U32 as U32Be, U64 as U64Be, U128 as U128Be};
