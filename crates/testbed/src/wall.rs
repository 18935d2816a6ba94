//! A host that takes nothing: a program in the driver hook of its interface drops every frame.

use std::io;
use std::os::fd::OwnedFd;

use crate::bpf::{self, Assembler};
use crate::host::Host;

/// Verdict (`XDP_DROP`).
const DROP: i32 = 1;

/// Such a program; dropping it takes it off.
#[derive(Debug)]
pub struct Wall {
    _link: OwnedFd,
}

impl Host {
    /// Drops everything that arrives at `interface` by its driver, before there is a socket buffer.
    ///
    /// # Errors
    /// No such interface, or no right to load programs.
    pub fn wall(&self, interface: &str) -> io::Result<Wall> {
        let program = bpf::load(bpf::BPF_PROG_TYPE_XDP, &Assembler::default().finish(DROP, DROP))?;
        self.enter(|| bpf::attach_xdp(&program, interface)).map(|link| Wall { _link: link })
    }
}
