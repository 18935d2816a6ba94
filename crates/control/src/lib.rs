//! Typed operations, command language, JSON, startup.conf and sessions
#![forbid(unsafe_code)]
