//! Device drivers behind the port contract
