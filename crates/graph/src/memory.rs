//! Whose memory a packet lies in, as a type: what a node may do with its bytes follows from it.
//!
//! | memory | a packet's bytes | who gets it |
//! |---|---|---|
//! | [`Private`] | are this thread's alone: slices of them are sound ([`Pkt::bytes`](crate::Pkt::bytes)) | every node and device, unless it says otherwise |
//! | [`Shared`] | may change at any moment, also between two reads of the same byte: a memif peer writes them | nodes and devices declared for it: `impl Node<Shared> for …` |
//!
//! A reference into memory that somebody else writes is undefined behaviour, and a length that was checked may be another one when it
//! is read again. So there is no slice of shared memory at all. A node for it reads a header once, by value ([`Pkt::head`](crate::Pkt::head)), and
//! decides by that copy and by the lanes, which are private. For all other nodes the framework copies such packets before it calls
//! them ([`crate::NodeSpec`] has the memory from the node's type). A packet that a node takes out of a frame keeps its memory's type
//! ([`Packet`](crate::Packet)).
//!
//! How bytes are read where a peer may write them:
//! * Runs of bytes, and headers of single packets ([`Pkt::head`](crate::Pkt::head)): by [`copy_shared`], whose loads and stores the compiler
//!   neither sees nor repeats, into private memory.
//! * Words of a batch ([`Batch::heads`](crate::Batch::heads)), and what a batch writes: by plain loads and stores, of values. By the letter of
//!   the language this is a data race with the peer, the one that is left. It stands because unaligned volatile loads are not to be had in
//!   stable Rust, and machine instructions of our own, one for each word, could neither be operands of vector instructions nor be
//!   left out. What it comes to: a compiler that loaded a word twice (ours keeps what it has loaded) could let a node decide by two values of
//!   it. No safety hangs on that. A batch only changes lanes, by values that are bounded where they are used: lengths only ever shrink, next
//!   nodes and table entries come from private memory. So a peer could have a packet of its own take a wrong path, which it can do
//!   anyway.
//!
//! The processor's part is simple: each load gives bytes that were there at some moment, in any mixture, which is all that the readers
//! count on.

use std::fmt::Debug;
use std::mem::{MaybeUninit, transmute_copy};

use quiver_buffer::{copy_shared, load_shared_u16, load_shared_u32, load_shared_u64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Whose memory packets lie in: [`Private`] or [`Shared`].
pub trait Memory: sealed::Sealed + Copy + Debug + Send + Sync + 'static {
    /// Whether somebody else may write it.
    const SHARED: bool;
}

/// Memory of the router alone.
#[derive(Clone, Copy, Debug)]
pub enum Private {}

/// Memory that a peer may write at any moment; or private memory, of which a node or device that bears the one need not know.
#[derive(Clone, Copy, Debug)]
pub enum Shared {}

impl Memory for Private {
    const SHARED: bool = false;
}

impl Memory for Shared {
    const SHARED: bool = true;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Private {}
    impl Sealed for super::Shared {}
}

/// Reads a header.
///
/// # Safety
/// Its bytes are mapped; nobody but a peer writes them, and only where `M` is [`Shared`].
#[inline(always)]
pub(crate) unsafe fn read<M: Memory, H: FromBytes>(from: *const u8) -> H {
    if !M::SHARED {
        // SAFETY: the caller's promise; any bytes are a valid H.
        return unsafe { from.cast::<H>().read_unaligned() };
    }
    // SAFETY: the caller's promise; all bytes of the header are loaded or written, and any bytes are a valid H.
    unsafe {
        match size_of::<H>() {
            // What is a word stays in a register.
            2 => transmute_copy(&load_shared_u16(from)),
            4 => transmute_copy(&load_shared_u32(from)),
            8 => transmute_copy(&load_shared_u64(from)),
            len => {
                let mut header = MaybeUninit::<H>::uninit();
                copy_shared(header.as_mut_ptr().cast(), from, len);
                header.assume_init()
            }
        }
    }
}

/// Writes a header.
///
/// # Safety
/// Its bytes are mapped and this thread's to write; somebody else reads or writes them only where `M` is [`Shared`].
#[inline(always)]
pub(crate) unsafe fn write<M: Memory, H: IntoBytes + Immutable>(to: *mut u8, header: &H) {
    // SAFETY: the caller's promise.
    unsafe { copy::<M>(to, header.as_bytes().as_ptr(), size_of::<H>()) }
}

/// Copies a run of bytes.
///
/// # Safety
/// As for [`copy_shared`]; where `M` is [`Private`], nobody accesses them meanwhile.
#[inline(always)]
pub(crate) unsafe fn copy<M: Memory>(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if M::SHARED {
            copy_shared(to, from, len);
        } else {
            std::ptr::copy_nonoverlapping(from, to, len);
        }
    }
}
