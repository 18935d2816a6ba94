//! Device drivers behind the port contract of `quiver-graph`.
//!
//! | module | what it is |
//! |---|---|
//! | [`af_packet`] | a Linux network device through a packet socket with rings in shared memory |
//! | [`af_xdp`] | a Linux network device through AF_XDP sockets over the buffer region |
//! | [`fast_path`] | the fast path of kernel devices, in the driver hook and at the ingress hook: what is decided leaves without coming to the router |
//! | [`link_watch`] | changes of the kernel's network devices, as they happen |
//! | [`memif`] | packets through memory shared with another process, in either role |
//! | [`netdev`] | what the kernel says about a device |
//! | [`pcap_port`] | capture files, replayed and recorded |
//! | [`rights`] | what drivers need more rights for than a router keeps |
//! | [`stamped`] | single frames with the times at which they left a device and came to one: a card's, or the kernel's |
//! | [`tap`] | a network device of the host's kernel whose other end is ours |
//! | [`virtio_net`] | the offload header that AF_PACKET, TAP and vhost put before a frame, and what it asks for |
//! | [`xdp_engine`] | the tester's engine in the kernel: programs that make frames and account for them at a Linux device |
//!
//! May use: the operating system, `wire`, `buffer`, `graph`. Must never know: interfaces' addresses, routes, features; what
//! becomes of a packet is the graph's affair.

#![cfg(target_os = "linux")]

pub mod af_packet;
pub mod af_xdp;
mod bpf;
mod closer;
pub mod ethernet;
pub mod fast_path;
mod joined;
pub mod link_watch;
mod mailbox;
pub mod memif;
pub mod netdev;
mod passed;
pub mod pcap_port;
pub mod rights;
pub mod stamped;
mod sys;
pub mod tap;
pub mod virtio_net;
pub mod xdp_engine;
