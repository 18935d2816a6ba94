//! Messages as bytes, and the whole plugin on a made-up router with a real kernel.

mod apply;
mod bird;
mod bytes;
mod fpm;
mod kernel;
