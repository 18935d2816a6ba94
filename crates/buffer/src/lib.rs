//! Packet memory: one region of equal buffers, named by 32-bit indices.
//!
//! ```text
//!   Region (memfd, huge pages where there are any)
//!   ┌──────────┬──────────┬──────────┬─ ─ ─
//!   │ buffer 0 │ buffer 1 │ buffer 2 │        address = base + index × stride
//!   └──────────┴──────────┴──────────┴─ ─ ─
//!     └ 256 B headroom │ data (2048 B) │ 64 B header window ┘
//!
//!   Meta array (private memory): index × 64 B, only for what is rare
//!
//!   Pool per NUMA node (lock-free stack)  ◄── bulks of 256 ──►  Cache per worker (LIFO)
//! ```
//!
//! A buffer index has exactly one owner: a pool, a cache, a frame lane, or a packet that a node holds. The layers above keep
//! that rule; this crate only hands out addresses. The region holds packet bytes and nothing else, so that it can serve as
//! AF_XDP UMEM and DPDK external memory without giving a peer anything but packets. What a memif peer may write to is never
//! part of it: such packets lie in a [`SharedPool`], memory of its own at indices behind those of the region, and change to
//! the region by copying.
//!
//! May use: the operating system, and of `tables` how memory is placed on a node. Must never know: packets, nodes, interfaces.

mod cache;
mod copy;
mod geometry;
mod meta;
mod pool;
mod region;
mod shared;

pub use cache::Cache;
pub use copy::{copy_shared, load_shared_u16, load_shared_u32, load_shared_u64};
pub use geometry::{DEFAULT_DATA_SIZE, Geometry, GeometryError, HEADER_WINDOW, HEADROOM, LINE};
pub use meta::{Meta, NO_BUFFER, NO_TRACE};
pub use pool::{Pool, PoolUse};
pub use region::{PageSize, Region, RegionConfig, RegionError};
pub use shared::SharedPool;
