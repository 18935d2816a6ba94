//! The C shim's functions and structures, as `shim/shim.h` declares them.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

use quiver_graph::Segment;

/// Packets that one call handles at most.
pub const BURST: usize = 64;
/// Segments that one received burst may have.
pub const SEGMENTS: usize = 512;
/// Length of names.
pub const NAME: usize = 64;

pub const EVENT_LINK: c_int = 0;
pub const EVENT_GONE: c_int = 1;
pub const EVENT_RESET: c_int = 2;

#[repr(C)]
pub struct PoolOps {
    pub take: extern "C" fn(*mut u32, c_uint) -> c_uint,
    pub give: extern "C" fn(*const u32, c_uint),
    pub available: extern "C" fn() -> c_uint,
}

#[repr(C)]
pub struct RegionInfo {
    pub base: *mut u8,
    pub len: u64,
    pub page: u64,
    pub stride: u32,
    pub capacity: u32,
    pub data_end: u32,
    pub headroom: u32,
}

#[repr(C)]
pub struct Received {
    pub segment: [Segment; SEGMENTS],
    pub count: [u16; BURST],
    pub packets: u32,
    pub single: u32,
    pub lost: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Offload {
    pub l2: u8,
    pub l3: u8,
    pub ip6: u8,
    pub l4: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Part {
    pub bytes: *const u8,
    pub len: u64,
}

#[repr(C)]
#[derive(Clone)]
pub struct PortInfo {
    pub driver: [u8; NAME],
    pub device: [u8; NAME],
    pub bus: [u8; NAME],
    pub rx_offloads: u64,
    pub tx_offloads: u64,
    pub rss: u64,
    pub max_frame: u32,
    pub min_mtu: u32,
    pub max_mtu: u32,
    pub speeds: u32,
    pub flags: u32,
    pub numa: i32,
    pub rx_queues: u16,
    pub tx_queues: u16,
    pub rx_min: u16,
    pub rx_max: u16,
    pub rx_align: u16,
    pub tx_min: u16,
    pub tx_max: u16,
    pub tx_align: u16,
    pub default_rx: u16,
    pub default_tx: u16,
}

#[repr(C)]
#[derive(Clone, Debug)]
pub struct PortConfig {
    pub rx_offloads: u64,
    pub tx_offloads: u64,
    pub rss: u64,
    pub mtu: u32,
    pub rx_queues: u16,
    pub tx_queues: u16,
    pub rx_descriptors: u16,
    pub tx_descriptors: u16,
    pub link_events: u8,
    pub removal_events: u8,
    pub rx_interrupts: u8,
    pub copying: u8,
    pub numa: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct LinkInfo {
    pub bits_per_second: u64,
    pub up: u8,
    pub full_duplex: u8,
    pub autonegotiated: u8,
    pub pad: [u8; 5],
}

const _: () = {
    assert!(size_of::<Segment>() == 12);
    assert!(offset_of!(Segment, buffer) == 0 && offset_of!(Segment, offset) == 4 && offset_of!(Segment, len) == 8);
    assert!(size_of::<Received>() == SEGMENTS * 12 + BURST * 2 + 12);
    assert!(size_of::<Offload>() == 4);
    assert!(size_of::<PortInfo>() == 3 * NAME + 3 * 8 + 6 * 4 + 10 * 2 + 4);
    assert!(size_of::<PortConfig>() == 3 * 8 + 4 + 4 * 2 + 4 + 4 + 4);
    assert!(size_of::<LinkInfo>() == 16);
};

unsafe extern "C" {
    pub fn qd_init(argc: c_int, argv: *mut *mut c_char, log: extern "C" fn(c_int, *const c_char, usize)) -> c_int;
    pub safe fn qd_version() -> *const c_char;
    pub safe fn qd_thread_register() -> c_int;
    pub safe fn qd_thread_unregister();
    pub fn qd_attach(devargs: *const c_char) -> c_int;

    pub fn qd_pool_create(region: *const RegionInfo, ops: *const PoolOps) -> c_int;
    pub fn qd_pool_map(port: u16) -> c_int;
    pub fn qd_pool_create_copying(count: c_uint) -> c_int;

    pub fn qd_rx(port: u16, queue: u16, wanted: c_uint, out: *mut Received) -> c_uint;
    pub fn qd_rx_copying(port: u16, queue: u16, wanted: c_uint, mbufs: *mut *mut c_void) -> c_uint;
    pub fn qd_parts(mbuf: *const c_void, parts: *mut Part, max: c_uint) -> c_uint;
    pub fn qd_free(mbuf: *mut c_void);
    pub fn qd_tx(
        port: u16,
        queue: u16,
        segments: *const Segment,
        counts: *const u16,
        offloads: *const Offload,
        packets: c_uint,
    ) -> c_uint;

    pub fn qd_port_by_name(name: *const c_char) -> c_int;
    pub fn qd_port_info(port: u16, info: *mut PortInfo) -> c_int;
    pub fn qd_port_open(port: u16, config: *mut PortConfig, step: *mut *const c_char) -> c_int;
    pub fn qd_port_start(port: u16) -> c_int;
    pub fn qd_port_stop(port: u16) -> c_int;
    pub fn qd_port_close(port: u16, detach: c_int) -> c_int;
    pub fn qd_port_watch(port: u16, event: extern "C" fn(u16, c_int)) -> c_int;
    pub fn qd_port_link(port: u16, link: *mut LinkInfo) -> c_int;
    pub fn qd_port_set_link(port: u16, up: c_int) -> c_int;
    pub fn qd_port_mac(port: u16, mac: *mut u8) -> c_int;
    pub fn qd_port_set_mac(port: u16, mac: *const u8) -> c_int;
    pub fn qd_port_set_promiscuous(port: u16, on: c_int) -> c_int;
    pub fn qd_port_promiscuous(port: u16) -> c_int;
    pub fn qd_port_mtu(port: u16) -> c_int;
    pub fn qd_port_set_mtu(port: u16, mtu: u16) -> c_int;
    pub fn qd_port_counters(port: u16, counter: extern "C" fn(*mut c_void, *const c_char, u64), to: *mut c_void) -> c_int;
    pub fn qd_port_clear_counters(port: u16) -> c_int;
    pub fn qd_port_mode(port: u16, tx: c_int, text: *mut c_char, len: c_uint) -> c_int;
    pub safe fn qd_offload_name(tx: c_int, flag: u64) -> *const c_char;
    pub fn qd_queue_watch(port: u16, queue: u16, epoll: c_int) -> c_int;
    pub fn qd_queue_arm(port: u16, queue: u16, on: c_int) -> c_int;
    pub fn qd_queue_drain(epoll: c_int) -> c_int;
    pub fn qd_queue_waits(port: u16, queue: u16) -> c_int;

    pub safe fn qd_times_find() -> c_int;
    pub fn qd_times_on(port: u16) -> c_int;
    pub fn qd_times_now(port: u16, ns: *mut u64) -> c_int;
    pub fn qd_times_tx(port: u16, queue: u16, frame: *const u8, len: u32) -> c_int;
    pub fn qd_times_left(port: u16, ns: *mut u64) -> c_int;
    pub fn qd_times_came(mbuf: *const c_void) -> u64;
    pub fn qd_mbuf_of(buffer: u32) -> *const c_void;
}
