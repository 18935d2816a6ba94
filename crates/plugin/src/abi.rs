//! The interface as memory has it: the structures of `include/quiver_plugin.h`, in the same order and of the same sizes.

use std::ffi::{c_char, c_void};

/// Version of the interface.
pub const ABI: u32 = 1;
/// The symbol that a plugin exports, a [`Plugin`].
pub const SYMBOL: &str = "quiver_plugin";
/// Packets of a batch at most.
pub const BATCH_MAX: usize = 1024;
/// Bytes that can be read from the start of each packet.
pub const WINDOW: usize = 64;
/// The slot of packets that are dropped.
pub const DROP: u16 = 0;
/// No such interface.
pub const NO_INTERFACE: u32 = u32::MAX;

/// Text that a plugin writes to.
#[repr(C)]
pub struct Text {
    _private: [u8; 0],
}

/// `quiver_batch`.
#[repr(C)]
pub struct Batch {
    /// Of this structure, bytes.
    pub size: u32,
    /// Packets.
    pub count: u32,
    /// First byte of each packet.
    pub head: *const *mut u8,
    /// Bytes from there in the first buffer.
    pub length: *const u32,
    /// Interface that it came in on, and flags.
    pub context: *const u32,
    /// What the nodes before have noted.
    pub note: *const u32,
    /// Slot that it goes to.
    pub next: *mut u16,
    /// Why it is dropped.
    pub reason: *mut u16,
    /// Time, ns.
    pub now: u64,
    /// Number of the thread.
    pub thread: u32,
    /// Zero.
    pub reserved: u32,
    /// The router's own.
    pub router: *mut c_void,
    /// Moves the start of a packet.
    pub shift: unsafe extern "C" fn(*mut Batch, u32, i32) -> i32,
    /// Counts events.
    pub count_events: unsafe extern "C" fn(*mut Batch, u32, u64),
    /// Adds to a counter.
    pub add: unsafe extern "C" fn(*mut Batch, u32, u32, u64, u64),
}

/// `quiver_host`.
#[repr(C)]
pub struct Host {
    /// [`ABI`].
    pub abi: u32,
    /// Of this structure, bytes.
    pub size: u32,
    /// The router's own.
    pub router: *mut c_void,
    /// Appends to a text.
    pub write: unsafe extern "C" fn(*mut Text, *const c_char, usize),
    /// Writes a line into the log.
    pub log: unsafe extern "C" fn(*const Host, u32, *const c_char),
    /// Switches a feature.
    pub feature: unsafe extern "C" fn(*const Host, *const c_char, *const c_char, u32, i32) -> i32,
    /// Index of an interface.
    pub interface: unsafe extern "C" fn(*const Host, *const c_char) -> u32,
    /// Name of an interface.
    pub interface_name: unsafe extern "C" fn(*const Host, u32, *mut c_char, usize) -> i32,
    /// Sums of a counter.
    pub sum: unsafe extern "C" fn(*const Host, u32, u32, *mut u64, *mut u64),
}

/// `quiver_reason`.
#[repr(C)]
pub struct Reason {
    /// As `show errors` prints it.
    pub text: *const c_char,
    /// What has happened.
    pub about: *const c_char,
    /// 1: nothing is wrong.
    pub is_info: u32,
    /// Zero.
    pub reserved: u32,
}

/// `quiver_node`.
#[repr(C)]
pub struct Node {
    /// Unique name.
    pub name: *const c_char,
    /// Names of next nodes.
    pub next: *const *const c_char,
    /// Reasons and events.
    pub reasons: *const Reason,
    /// How many next nodes.
    pub next_count: u32,
    /// How many reasons.
    pub reason_count: u32,
    /// Makes the state of a thread.
    pub open: Option<unsafe extern "C" fn(*mut c_void, u32) -> *mut c_void>,
    /// Gives it back.
    pub close: Option<unsafe extern "C" fn(*mut c_void)>,
    /// Handles a vector.
    pub run: Option<unsafe extern "C" fn(*mut c_void, *mut Batch)>,
}

/// `quiver_feature`.
#[repr(C)]
pub struct Feature {
    /// Name of the arc.
    pub arc: *const c_char,
    /// Name of the node.
    pub node: *const c_char,
    /// Features that come later.
    pub before: *const *const c_char,
    /// Features that come earlier.
    pub after: *const *const c_char,
    /// How many come later.
    pub before_count: u32,
    /// How many come earlier.
    pub after_count: u32,
}

/// `quiver_counter`.
#[repr(C)]
pub struct Counter {
    /// In the statistics segment.
    pub name: *const c_char,
    /// 1: packets and bytes.
    pub is_combined: u32,
    /// Numbers that it has.
    pub capacity: u32,
}

/// `quiver_operation`.
#[repr(C)]
pub struct Operation {
    /// JSON.
    pub declaration: *const c_char,
    /// Runs it.
    pub run: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *mut Text) -> i32>,
}

/// `struct quiver_plugin`.
#[repr(C)]
pub struct Plugin {
    /// [`ABI`].
    pub abi: u32,
    /// Of this structure, bytes.
    pub size: u32,
    /// Of the others.
    pub sizes: Sizes,
    /// Zero.
    pub reserved: u32,
    /// Name.
    pub name: *const c_char,
    /// Version.
    pub version: *const c_char,
    /// What it does, in a line.
    pub about: *const c_char,
    /// Nodes.
    pub nodes: *const Node,
    /// Features.
    pub features: *const Feature,
    /// Counters.
    pub counters: *const Counter,
    /// Operations.
    pub operations: *const Operation,
    /// How many nodes.
    pub node_count: u32,
    /// How many features.
    pub feature_count: u32,
    /// How many counters.
    pub counter_count: u32,
    /// How many operations.
    pub operation_count: u32,
    /// Starts.
    pub start: Option<unsafe extern "C" fn(*const Host, *const c_char, *mut *mut c_void, *mut Text) -> i32>,
    /// Ends.
    pub stop: Option<unsafe extern "C" fn(*mut c_void) -> i32>,
    /// Writes the configuration.
    pub configuration: Option<unsafe extern "C" fn(*mut c_void, *mut Text)>,
    /// An interface is deleted.
    pub interface_gone: Option<unsafe extern "C" fn(*mut c_void, u32)>,
}

// SAFETY: a plugin exports it as a constant: it and what it points to are never written.
unsafe impl Sync for Plugin {}
// SAFETY: as above.
unsafe impl Sync for Node {}
// SAFETY: as above.
unsafe impl Sync for Reason {}
// SAFETY: as above.
unsafe impl Sync for Feature {}
// SAFETY: as above.
unsafe impl Sync for Counter {}
// SAFETY: as above.
unsafe impl Sync for Operation {}

/// Sizes of the structures beside [`Plugin`], bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of [`Host`].
    pub host: u32,
    /// Of [`Batch`].
    pub batch: u32,
    /// Of [`Reason`].
    pub reason: u32,
    /// Of [`Node`].
    pub node: u32,
    /// Of [`Feature`].
    pub feature: u32,
    /// Of [`Counter`].
    pub counter: u32,
    /// Of [`Operation`].
    pub operation: u32,
}

impl Sizes {
    /// As this version has them.
    pub const OWN: Self = Self {
        host: size_of::<Host>() as u32,
        batch: size_of::<Batch>() as u32,
        reason: size_of::<Reason>() as u32,
        node: size_of::<Node>() as u32,
        feature: size_of::<Feature>() as u32,
        counter: size_of::<Counter>() as u32,
        operation: size_of::<Operation>() as u32,
    };

    /// Names and sizes.
    pub const fn named(&self) -> [(&'static str, u32); 7] {
        [
            ("quiver_host", self.host),
            ("quiver_batch", self.batch),
            ("quiver_reason", self.reason),
            ("quiver_node", self.node),
            ("quiver_feature", self.feature),
            ("quiver_counter", self.counter),
            ("quiver_operation", self.operation),
        ]
    }
}
