//! Frames that the kernel makes itself (BPF_PROG_TEST_RUN with live frames): several times what a packet socket can offer, and without a
//! socket buffer around them, as a card's driver gives them.

use std::io;
use std::os::fd::OwnedFd;

use crate::bpf::{self, Instruction};
use crate::sys;

/// Frames that the kernel makes at a time.
const BATCH: u32 = 64;

/// IPv4 frames to 64 addresses in random order, which leave by a device.
#[derive(Debug)]
pub struct LiveFrames {
    program: OwnedFd,
    device: u32,
    frame: Vec<u8>,
}

impl LiveFrames {
    /// How many destinations there are: the last byte of the frame's, from 0 on.
    pub const FLOWS: u8 = 64;

    /// Of a frame of 60 bytes and more: Ethernet and IPv4 with identification 0, its destination's last byte 0. They leave by a device of
    /// the calling thread's namespace.
    ///
    /// # Errors
    /// There is no such device, or the kernel refuses the program: it takes root.
    pub fn new(mut frame: Vec<u8>, device: &str) -> io::Result<Self> {
        // The identification makes up for the destination, and is in the checksum: see `program`.
        let check = u16::from_be_bytes([frame[24], frame[25]]) - u16::from(Self::FLOWS - 1);
        frame[24..26].copy_from_slice(&check.to_be_bytes());
        frame[19] = Self::FLOWS - 1;
        let program = bpf::load(bpf::BPF_PROG_TYPE_XDP, &program(&frame))?;
        Ok(Self { program, device: sys::interface_index(device)?, frame })
    }

    /// Sends so many, as fast as it goes; by a thread in the device's namespace.
    ///
    /// # Errors
    /// The kernel's: it is older than 5.18, or the device is gone.
    pub fn send(&self, count: u32) -> io::Result<()> {
        bpf::run_live(&self.program, &self.frame, self.device, count, BATCH)
    }
}

/// Writes a random number below [`LiveFrames::FLOWS`] into the last byte of the destination, and 63 less that number into the last byte of
/// the identification, so that the checksum of the header stays. The kernel uses the memory of a frame again without clearing it, so the
/// program first writes what a router has changed in it. Then the frame leaves by the device that it seems to have come from.
fn program(frame: &[u8]) -> [Instruction; 20] {
    let word = |at: usize| i32::from_ne_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let half = |at: usize| i32::from(u16::from_ne_bytes([frame[at], frame[at + 1]]));
    let last = i32::from(LiveFrames::FLOWS) - 1;
    [
        Instruction::new(0x61, 7, 1, 0, 0),         // r7 = data
        Instruction::new(0x61, 8, 1, 4, 0),         // r8 = data_end
        Instruction::new(0xbf, 2, 7, 0, 0),         // r2 = r7
        Instruction::new(0x07, 2, 0, 0, 60),        // r2 += 60
        Instruction::new(0x2d, 2, 8, 13, 0),        // if r2 > r8: drop
        Instruction::new(0x62, 7, 0, 0, word(0)),   // MAC addresses
        Instruction::new(0x62, 7, 0, 4, word(4)),   //
        Instruction::new(0x62, 7, 0, 8, word(8)),   //
        Instruction::new(0x6a, 7, 0, 22, half(22)), // time to live, protocol
        Instruction::new(0x6a, 7, 0, 24, half(24)), // checksum
        Instruction::new(0x85, 0, 0, 0, 7),         // r0 = bpf_get_prandom_u32()
        Instruction::new(0x57, 0, 0, 0, last),      // r0 &= 63
        Instruction::new(0x73, 7, 0, 33, 0),        // destination's last byte = r0
        Instruction::new(0xb7, 1, 0, 0, last),      // r1 = 63
        Instruction::new(0x1f, 1, 0, 0, 0),         // r1 -= r0
        Instruction::new(0x73, 7, 1, 19, 0),        // identification's last byte = r1
        Instruction::new(0xb7, 0, 0, 0, 3),         // XDP_TX
        Instruction::new(0x95, 0, 0, 0, 0),         //
        Instruction::new(0xb7, 0, 0, 0, 1),         // XDP_DROP
        Instruction::new(0x95, 0, 0, 0, 0),         //
    ]
}
