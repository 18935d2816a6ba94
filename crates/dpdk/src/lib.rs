//! DPDK's devices behind the port contract: physical NICs, and its virtual devices (`net_memif`, `net_af_packet`, `net_ring`,
//! …). A plugin, `dpdk_plugin.so` as VPP's users call it; programs without the feature `dpdk` contain nothing of it.
//!
//! ```text
//!   dpdk { dev 0000:01:00.0 { … } vdev net_memif0,… }          startup.conf        config
//!      │
//!   environment ── started once, its log in ours               eal                 shim/eal.c
//!      │
//!   pool ── mbuf i has the bytes of buffer i; a free mbuf      memory              shim/pool.c
//!      │    is a free buffer of the router's
//!   port ── configured, started, asked, stopped, closed        device, port        shim/port.c
//!      │
//!   queues ── bursts of mbufs ◄─► indices of buffers           rx, tx              shim/burst.c
//! ```
//!
//! **Memory.** DPDK's drivers work on mbufs. Ours are an array beside the packet memory: mbuf *i* describes buffer *i* and
//! nothing else, for ever. So translating a packet is arithmetic on its address, nothing is copied in either direction, and the
//! pool that drivers allocate from and free to is the router's own: while a driver runs a burst, it is the cache of the worker
//! that called it ([`memory`]). The array is made when the first device is opened (192 bytes a buffer).
//!
//! **Threads.** Workers are ours; they register with DPDK when they first touch one of its devices. DPDK itself has one
//! thread, for interrupts, which tells of links that change and devices that go; the rest is done by `dpdk-process` on the
//! main thread.
//!
//! **Life of a device.** It is started when its interface is created, and receives only while that is up. It is stopped and
//! closed when the interface is deleted and every worker has let go of its queues. A device that is pulled out answers like
//! one whose link is down; when it comes back it is opened anew, under the same interface.
//!
//! Deliberately not used: checksum results on receive (the header's checksum is checked in the graph, for less than a test of
//! flags costs, and nothing else of a forwarded packet is), segmentation and reassembly by the device.
//!
//! **Without a router.** The tester has no network layer, but the same devices: [`standalone`] opens them for any graph, and
//! [`times`] has their cards give frames times.
//!
//! May use: buffer, graph; with the feature `plugin` (the default) net, control and command as well. Without the feature `linked`
//! this crate is the section's syntax and [`pci`].

#![cfg(target_os = "linux")]
#![cfg_attr(all(feature = "linked", not(feature = "plugin")), allow(dead_code, reason = "half of it serves commands"))]

#[cfg(feature = "plugin")]
pub mod config;
pub mod pci;
pub mod wish;

#[cfg(feature = "linked")]
mod device;
#[cfg(feature = "linked")]
mod eal;
#[cfg(feature = "linked")]
mod ffi;
#[cfg(feature = "linked")]
mod memory;
#[cfg(all(feature = "linked", feature = "plugin"))]
mod ops;
#[cfg(all(feature = "linked", feature = "plugin"))]
mod plugin;
#[cfg(feature = "linked")]
mod port;
#[cfg(feature = "linked")]
mod rx;
#[cfg(feature = "linked")]
pub mod standalone;
#[cfg(feature = "linked")]
pub mod times;
#[cfg(feature = "linked")]
mod tx;

#[cfg(all(feature = "linked", feature = "plugin"))]
pub use plugin::plugin;
