//! The synchronisation types of [`qsbr`](crate::qsbr): std's, or loom's when built with `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, AtomicUsize, Ordering, fence},
};
