#![doc = include_str!("../README.md")]

mod declared;
mod elf;
mod folder;
mod host;
mod library;
mod loaded;
mod node;

pub use folder::{Found, find, names};
pub use library::{Library, Refused};
pub use loaded::{Info, Loaded, Plugins, configuration};
