//! The XDP program: frames of a queue that has a socket go to that socket, all others to the kernel.
//!
//! A dozen lines of C would need a C compiler for another machine wherever the router is built. The program is six
//! instructions, so they are written here as such. It is attached by a BPF link, which nothing but its descriptor keeps: when
//! the process ends, however it ends, the kernel detaches the program.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::Attach;
use crate::bpf::{self, bpf, bpf_new};
use crate::rights::{RedirectFds, Rights};

/// `struct bpf_insn`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}
const _: () = assert!(size_of::<Instruction>() == 8);

const fn instruction(code: u8, target: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    // The nibbles of the register byte are bit fields in C, so their order follows the byte order.
    let registers = if cfg!(target_endian = "little") { target | source << 4 } else { target << 4 | source };
    Instruction { code, registers, offset, immediate }
}

/// Number of the helper `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// Verdict: the kernel goes on with the frame.
const XDP_PASS: i32 = 2;
/// Where `struct xdp_md` has `rx_queue_index`.
const RX_QUEUE_INDEX: i16 = 16;
/// Source register of a 64-bit load whose value is a map, given as descriptor (`BPF_PSEUDO_MAP_FD`).
const PSEUDO_MAP: u8 = 1;

/// `return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);`
const fn code(map: i32) -> [Instruction; 6] {
    [
        instruction(0x61, 2, 1, RX_QUEUE_INDEX, 0), // r2 = *(u32 *)(r1 + 16)
        instruction(0x18, 1, PSEUDO_MAP, 0, map),   // r1 = map, low half
        instruction(0x00, 0, 0, 0, 0),              //     high half
        instruction(0xb7, 3, 0, 0, XDP_PASS),       // r3 = what to do where there is no socket
        instruction(0x85, 0, 0, 0, REDIRECT_MAP),   // r0 = bpf_redirect_map(r1, r2, r3)
        instruction(0x95, 0, 0, 0, 0),              // return r0
    ]
}

const BPF_MAP_CREATE: c_int = 0;
const BPF_MAP_UPDATE_ELEM: c_int = 2;
const BPF_PROG_LOAD: c_int = 5;
const BPF_LINK_UPDATE: c_int = 29;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
/// The program copes with frames in several pieces.
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// The parts of `union bpf_attr` that the commands here use.
#[repr(C)]
#[derive(Default)]
struct MapAttributes {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct UpdateAttributes {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}
const _: () = assert!(size_of::<UpdateAttributes>() == 32);

#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
}
const _: () = assert!(size_of::<LoadAttributes>() == 72);

#[repr(C)]
#[derive(Default)]
struct LinkUpdateAttributes {
    link: u32,
    program: u32,
    flags: u32,
    old_program: u32,
}

/// Has a link run another program: every frame meets one of the two.
pub(super) fn exchange(link: &OwnedFd, program: RawFd) -> io::Result<()> {
    let mut attributes = LinkUpdateAttributes { link: link.as_raw_fd() as u32, program: program as u32, ..Default::default() };
    bpf(BPF_LINK_UPDATE, &mut attributes).map(drop)
}

/// Loads map and program for a device of so many queues. This, and nothing else here, needs CAP_BPF.
pub(crate) fn load(queues: u32) -> io::Result<RedirectFds> {
    let mut attributes =
        MapAttributes { kind: BPF_MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, entries: queues, ..Default::default() };
    let map = bpf_new(BPF_MAP_CREATE, &mut attributes)?;
    let code = code(map.as_raw_fd());
    let load = |flags| {
        let mut attributes = LoadAttributes {
            kind: BPF_PROG_TYPE_XDP,
            count: code.len() as u32,
            instructions: code.as_ptr() as u64,
            license: c"Apache-2.0".as_ptr() as u64,
            flags,
            name: *b"quiver_redirect\0",
            expected_attach_type: BPF_XDP,
            ..Default::default()
        };
        bpf_new(BPF_PROG_LOAD, &mut attributes)
    };
    match load(BPF_F_XDP_HAS_FRAGS) {
        Ok(program) => Ok(RedirectFds { map, program, frags: true }),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(RedirectFds { program: load(0)?, map, frags: false }),
        Err(error) => Err(error),
    }
}

/// The map of sockets, and the program that asks it.
#[derive(Debug)]
pub(super) struct Program {
    map: OwnedFd,
    program: OwnedFd,
    /// Whether it takes frames in several pieces.
    pub frags: bool,
}

impl Program {
    /// For a device of so many queues, loaded by whoever may.
    pub(super) fn load(queues: u32, rights: &dyn Rights) -> io::Result<Self> {
        let RedirectFds { map, program, frags } = rights.redirect(queues)?;
        Ok(Self { map, program, frags })
    }

    /// Its map and its code, for the next process.
    pub(super) fn descriptors(&self) -> io::Result<[OwnedFd; 2]> {
        Ok([self.map.try_clone()?, self.program.try_clone()?])
    }

    /// What [`Program::descriptors`] gave in another process.
    pub(super) fn of([map, program]: [OwnedFd; 2], frags: bool) -> Self {
        Self { map, program, frags }
    }

    pub(super) fn raw(&self) -> RawFd {
        self.program.as_raw_fd()
    }

    /// Sends the frames of a queue to this socket.
    pub(super) fn direct(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let mut attributes = UpdateAttributes {
            map: self.map.as_raw_fd() as u32,
            key: (&raw const queue) as u64,
            value: (&raw const value) as u64,
            ..Default::default()
        };
        bpf(BPF_MAP_UPDATE_ELEM, &mut attributes).map(drop)
    }

    /// Attaches the program; gives what keeps it there, and whether the device's own driver runs it.
    pub(super) fn attach(&self, interface: u32, how: Attach) -> io::Result<(OwnedFd, bool)> {
        let attach = |flags| bpf::link(&self.program, interface, BPF_XDP, flags);
        let native = || attach(XDP_FLAGS_DRV_MODE).map(|link| (link, true));
        let generic = || attach(XDP_FLAGS_SKB_MODE).map(|link| (link, false));
        match how {
            Attach::Native => native(),
            Attach::Generic => generic(),
            // EBUSY: another program is there, in this mode or the other.
            Attach::Auto => native().or_else(|e| if e.raw_os_error() == Some(libc::EBUSY) { Err(e) } else { generic() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_what_the_comments_say() {
        let words: Vec<u64> = code(7)
            .iter()
            .map(|i| {
                u64::from(i.code)
                    | u64::from(i.registers) << 8
                    | u64::from(i.offset as u16) << 16
                    | u64::from(i.immediate as u32) << 32
            })
            .collect();
        if cfg!(target_endian = "little") {
            let expected = [0x0010_1261, 0x0000_0007_0000_1118, 0, 0x0000_0002_0000_03b7, 0x0000_0033_0000_0085, 0x95];
            assert_eq!(words, expected);
        }
    }
}
