//! As much of bpf(2) as small programs need: an instruction assembler, loading, attaching to traffic control, running.
//!
//! A program is attached as a TCX link (Linux 6.6), which detaches by itself when its descriptor is closed. An older kernel
//! gets a `clsact` queueing discipline with a `cls_bpf` filter instead, which goes with its namespace.

use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::sys::{self, with_context};

/// Room for the verifier's words about a refused program.
const LOG_BYTES: usize = 16 << 10;

const BPF_PROG_LOAD: c_int = 5;
const BPF_PROG_TEST_RUN: c_int = 10;
const BPF_PROG_GET_NEXT_ID: c_int = 11;
const BPF_PROG_GET_FD_BY_ID: c_int = 13;
const BPF_OBJ_GET_INFO_BY_FD: c_int = 15;
const BPF_LINK_CREATE: c_int = 28;
/// A program of traffic control.
pub(crate) const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
/// A program of the driver hook.
pub(crate) const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;
const BPF_XDP: u32 = 37;

/// Which way a packet passes the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

/// A register of the virtual machine: R0 holds results, R1-R5 arguments, R6-R9 survive calls.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Reg {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R6 = 6,
}

/// `struct bpf_insn`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}
const _: () = assert!(size_of::<Instruction>() == 8);

impl Instruction {
    /// Operation, numbers of the target and source register, offset, immediate value.
    pub(crate) const fn new(code: u8, target: u8, source: u8, offset: i16, immediate: i32) -> Self {
        // The nibbles of the register byte are bit fields in C, so their order follows the byte order.
        let registers = if cfg!(target_endian = "little") { target | source << 4 } else { target << 4 | source };
        Self { code, registers, offset, immediate }
    }
}

/// Instructions in the making. Jumps go to one common place, the "otherwise" at the end.
#[derive(Default)]
pub(crate) struct Assembler {
    code: Vec<Instruction>,
    jumps: Vec<usize>,
}

impl Assembler {
    fn push(&mut self, code: u8, target: Reg, source: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction::new(code, target as u8, source, offset, immediate));
    }

    /// `target = source` (64 bits).
    pub(crate) fn copy(&mut self, target: Reg, source: Reg) {
        self.push(0xbf, target, source as u8, 0, 0);
    }

    /// `target = value`.
    pub(crate) fn set(&mut self, target: Reg, value: i32) {
        self.push(0xb7, target, 0, 0, value);
    }

    /// `target &= value`.
    pub(crate) fn and(&mut self, target: Reg, value: i32) {
        self.push(0x57, target, 0, 0, value);
    }

    /// `target = *(u32 *)(base + offset)`.
    pub(crate) fn load_word(&mut self, target: Reg, base: Reg, offset: i16) {
        self.push(0x61, target, base as u8, offset, 0);
    }

    /// Calls a kernel helper by number.
    pub(crate) fn call(&mut self, helper: i32) {
        self.push(0x85, Reg::R0, 0, 0, helper);
    }

    /// Goes to the "otherwise" unless `register == value`.
    pub(crate) fn require(&mut self, register: Reg, value: i32) {
        self.jumps.push(self.code.len());
        self.push(0x55, register, 0, 0, value);
    }

    /// Ends the program: returns `verdict` here, `otherwise` where a requirement failed.
    pub(crate) fn finish(mut self, verdict: i32, otherwise: i32) -> Vec<Instruction> {
        self.exit_with(verdict);
        // The verifier refuses what no jump leads to.
        if self.jumps.is_empty() {
            return self.code;
        }
        let place = self.code.len();
        for jump in std::mem::take(&mut self.jumps) {
            // A jump counts from the instruction after it. Programs here are some dozens of instructions long.
            self.code[jump].offset = (place - jump - 1) as i16;
        }
        self.exit_with(otherwise);
        self.code
    }

    fn exit_with(&mut self, value: i32) {
        self.set(Reg::R0, value);
        self.push(0x95, Reg::R0, 0, 0, 0);
    }
}

/// The part of `union bpf_attr` that loading uses.
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

/// The part of `union bpf_attr` that making a link uses.
#[repr(C)]
#[derive(Default)]
struct LinkAttributes {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    padding: u32,
    expected_revision: u64,
}
const _: () = assert!(size_of::<LinkAttributes>() == 32);

fn call<T>(command: c_int, attributes: &mut T) -> io::Result<c_int> {
    let size = size_of::<T>() as c_long;
    // SAFETY: pointer and size describe `attributes`, whose inner pointers the callers keep alive over the call.
    sys::check(unsafe { libc::syscall(libc::SYS_bpf, c_long::from(command), std::ptr::from_mut(attributes), size) } as c_int)
}

fn bpf<T>(command: c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = call(command, attributes)?;
    // SAFETY: the commands that this is used for return a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Identifiers of all XDP programs that the kernel has, attached or not, in any namespace.
pub fn xdp_programs() -> io::Result<Vec<u32>> {
    /// The `*_get_*_id` part of `union bpf_attr`.
    #[repr(C)]
    struct Walk {
        id: u32,
        next: u32,
        flags: u32,
    }
    /// The `info` part.
    #[repr(C)]
    struct Info {
        fd: u32,
        len: u32,
        info: u64,
    }
    let mut found = Vec::new();
    let mut walk = Walk { id: 0, next: 0, flags: 0 };
    loop {
        match call(BPF_PROG_GET_NEXT_ID, &mut walk) {
            Ok(_) => walk.id = walk.next,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(found),
            Err(error) => return Err(with_context("listing BPF programs", error)),
        }
        // One that has just gone is none.
        let Ok(program) = bpf(BPF_PROG_GET_FD_BY_ID, &mut Walk { id: walk.id, next: 0, flags: 0 }) else { continue };
        // `struct bpf_prog_info` begins with the kind.
        let mut kind = 0_u32;
        let mut info = Info { fd: program.as_raw_fd() as u32, len: 4, info: &raw mut kind as u64 };
        call(BPF_OBJ_GET_INFO_BY_FD, &mut info)?;
        if kind == BPF_PROG_TYPE_XDP {
            found.push(walk.id);
        }
    }
}

/// `struct xdp_md`.
#[repr(C)]
#[derive(Default)]
struct Context {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

/// The part of `union bpf_attr` that BPF_PROG_TEST_RUN uses.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}

/// Runs a program of the driver hook on `count` frames, `batch` at a time, as if they had come in on a device of the calling thread's
/// namespace; the kernel does with them what the program says (Linux 5.18).
pub(crate) fn run_live(program: &OwnedFd, frame: &[u8], interface: u32, count: u32, batch: u32) -> io::Result<()> {
    let context = Context { data_end: frame.len() as u32, ingress_ifindex: interface, ..Context::default() };
    let mut run = TestRun {
        program: program.as_raw_fd() as u32,
        data_size_in: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        repeat: count,
        ctx_size_in: size_of::<Context>() as u32,
        ctx_in: (&raw const context) as u64,
        flags: BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: batch,
        ..TestRun::default()
    };
    call(BPF_PROG_TEST_RUN, &mut run).map(drop)
}

/// Loads a program of a kind.
pub(crate) fn load(kind: u32, code: &[Instruction]) -> io::Result<OwnedFd> {
    let mut log = vec![0_u8; LOG_BYTES];
    let mut attributes = LoadAttributes {
        kind,
        count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        log_level: 1,
        log_size: LOG_BYTES as u32,
        log: log.as_mut_ptr() as u64,
        ..LoadAttributes::default()
    };
    bpf(BPF_PROG_LOAD, &mut attributes).map_err(|error| {
        let said = log.split(|&byte| byte == 0).next().unwrap_or_default();
        with_context(format!("loading a program ({})", String::from_utf8_lossy(said).trim()), error)
    })
}

/// What keeps a program at its interface.
#[derive(Debug)]
pub(crate) enum Attachment {
    /// Detached by closing.
    Link { _link: OwnedFd },
    /// The filter of an older kernel; it goes with the interface.
    Filter { _program: OwnedFd },
}

/// Attaches a program to an interface of the calling thread's namespace.
pub(crate) fn attach(program: OwnedFd, interface: &str, direction: Direction) -> io::Result<Attachment> {
    match attach_link(&program, interface, direction) {
        Ok(link) => Ok(Attachment::Link { _link: link }),
        // What a kernel without TCX answers to the unknown attach type.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            attach_filter(&program, interface, direction).map_err(|e| with_context("cls_bpf", e))?;
            Ok(Attachment::Filter { _program: program })
        }
        Err(error) => Err(with_context("attaching to traffic control", error)),
    }
}

fn attach_link(program: &OwnedFd, interface: &str, direction: Direction) -> io::Result<OwnedFd> {
    let attach_type = match direction {
        Direction::Ingress => BPF_TCX_INGRESS,
        Direction::Egress => BPF_TCX_EGRESS,
    };
    link(program, interface, attach_type)
}

/// Attaches a program of the driver hook to an interface of the calling thread's namespace, for as long as the descriptor is open.
pub(crate) fn attach_xdp(program: &OwnedFd, interface: &str) -> io::Result<OwnedFd> {
    link(program, interface, BPF_XDP).map_err(|error| with_context("attaching to the driver hook", error))
}

fn link(program: &OwnedFd, interface: &str, attach_type: u32) -> io::Result<OwnedFd> {
    let (program, interface) = (program.as_raw_fd() as u32, sys::interface_index(interface)?);
    bpf(BPF_LINK_CREATE, &mut LinkAttributes { program, interface, attach_type, ..LinkAttributes::default() })
}

// From linux/pkt_sched.h and linux/pkt_cls.h.
const TC_H_CLSACT: u32 = 0xffff_fff1;
const TC_H_MIN_INGRESS: u32 = 0xfff2;
const TC_H_MIN_EGRESS: u32 = 0xfff3;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;

/// The way of kernels before 6.6: `tc qdisc add … clsact`, `tc filter add … bpf direct-action`.
pub(crate) fn attach_filter(program: &OwnedFd, interface: &str, direction: Direction) -> io::Result<()> {
    let index = sys::interface_index(interface)?;
    let mut discipline = traffic_message(index, 0xffff_0000, TC_H_CLSACT, 0);
    attribute(&mut discipline, TCA_KIND, b"clsact\0");
    match netlink(libc::RTM_NEWQDISC, &discipline) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(with_context("clsact", error));
        }
        _ => {}
    }
    let parent = (TC_H_CLSACT & 0xffff_0000)
        | match direction {
            Direction::Ingress => TC_H_MIN_INGRESS,
            Direction::Egress => TC_H_MIN_EGRESS,
        };
    let all_protocols = u32::from((libc::ETH_P_ALL as u16).to_be());
    let mut filter = traffic_message(index, 0, parent, 1 << 16 | all_protocols);
    attribute(&mut filter, TCA_KIND, b"bpf\0");
    let mut options = Vec::new();
    attribute(&mut options, TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes());
    attribute(&mut options, TCA_BPF_NAME, b"tags\0");
    attribute(&mut options, TCA_BPF_FLAGS, &TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes());
    attribute(&mut filter, TCA_OPTIONS, &options);
    netlink(libc::RTM_NEWTFILTER, &filter)
}

/// `struct tcmsg`.
fn traffic_message(interface: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    let family = [libc::AF_UNSPEC as u8, 0, 0, 0];
    [family, interface.to_ne_bytes(), handle.to_ne_bytes(), parent.to_ne_bytes(), info.to_ne_bytes()].concat()
}

fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend(((value.len() + 4) as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// One route-netlink request that creates something, and the kernel's word on it.
fn netlink(kind: u16, body: &[u8]) -> io::Result<()> {
    const HEADER: usize = 16;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
    let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    // SAFETY: pointer and length describe `message`; an unconnected netlink socket sends to the kernel.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    if !sys::wait_readable(socket.as_fd(), std::time::Duration::from_secs(60))? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut answer = [0_u8; 4096];
    // SAFETY: pointer and length describe `answer`.
    let length = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    if length < (HEADER + 4) as isize {
        return Err(io::Error::other("a short answer from netlink"));
    }
    // NLMSG_ERROR: the negative error number follows the header, 0 for success.
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
