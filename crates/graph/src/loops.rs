//! The loops over a frame, made once for all nodes.
//!
//! ```text
//!   Node       prefetch ──► packet                                      one packet a step
//!   FastPath   prefetch ──► batch::<W> ──► None: batch::<1> each ──► None: packet
//!   VectorNode run: the node has the loop
//! ```

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::batch::Batch;
use crate::context::NodeCx;
use crate::frame::Frame;
use crate::level::Kernel;
use crate::memory::Memory;
use crate::node::{FastPath, Node, VectorNode};
use crate::packet::{Env, Pkt};

/// An array from a function of the position; certain to be inlined, unlike [`std::array::from_fn`] (measured: a call left
/// inside costs a node half its speed).
#[inline(always)]
pub(crate) fn each<T: Copy, const N: usize>(mut f: impl FnMut(usize) -> T) -> [T; N] {
    let mut a = [const { MaybeUninit::<T>::uninit() }; N];
    let mut k = 0;
    while k < N {
        a[k].write(f(k));
        k += 1;
    }
    // SAFETY: all N elements were written, and T is Copy, so the array of MaybeUninit may be read as one of T.
    unsafe { std::mem::transmute_copy(&a) }
}

/// Handles one packet of a frame by the function that has the whole rule.
///
/// # Safety
/// `i` is a packet of the frame, which nobody else uses meanwhile.
#[inline(always)]
pub(crate) unsafe fn single<M: Memory, N: Node<M>>(node: &mut N, cx: &mut NodeCx<'_>, frame: *mut Frame<M>, i: usize, env: &Env) {
    // SAFETY: the caller's promise; the view ends before another one is made (F1).
    let verdict = node.packet(cx, unsafe { Pkt::of_lane(frame, i, env) });
    // SAFETY: the lane of verdicts has a place for every packet of a frame.
    unsafe { *cx.next.get_unchecked_mut(i) = verdict.0 };
}

/// Packets of a batch of which one is not for the fast path: each by itself, by the fast path where it is for it. Kept out of
/// the loop of batches.
///
/// # Safety
/// As for [`single`], for each position of the range.
#[inline(never)]
unsafe fn apart<M: Memory, N: FastPath<M>>(
    node: &mut N,
    cx: &mut NodeCx<'_>,
    frame: *mut Frame<M>,
    range: Range<usize>,
    env: &Env,
) {
    for i in range {
        // SAFETY: the caller's promise.
        unsafe {
            if node.batch(&mut Batch::<1>::new(frame, i, cx.next.as_mut_ptr(), env)).is_none() {
                single(node, cx, frame, i, env);
            }
        }
    }
}

/// Prefetches for `W` packets.
///
/// # Safety
/// `i + W` is within the lanes and their padding, and the frame nobody else's meanwhile.
#[inline(always)]
pub(crate) unsafe fn ahead<M: Memory, N: Node<M>, const W: usize>(node: &N, frame: *mut Frame<M>, i: usize, env: &Env) {
    let mut k = 0;
    while k < W {
        // SAFETY: the caller's promise; a stale lane is only prefetched.
        node.prefetch(&unsafe { Pkt::of_lane(frame, i + k, env) });
        k += 1;
    }
}

/// Each packet by [`Node::packet`].
pub(crate) struct Packets<M, N>(PhantomData<(M, N)>);

impl<M: Memory, N: Node<M>> Kernel for Packets<M, N> {
    type Node = N;
    type Memory = M;

    #[inline(always)]
    fn run(node: &mut N, cx: &mut NodeCx<'_>, frame: &mut Frame<M>) {
        if N::CONSUMES {
            cx.trace_here(frame);
        }
        node.begin(cx);
        let (n, distance) = (frame.len, cx.prefetch as usize);
        // A copy: behind the reference it could change with every store.
        let env = &Env { ..cx.env };
        let frame: *mut Frame<M> = frame;
        for i in 0..n {
            // SAFETY: i < n ≤ VECTOR_MAX, the frame is exclusively borrowed, and views end with their step (F1).
            unsafe {
                if distance != 0 && i + distance < n {
                    ahead::<M, N, 1>(node, frame, i + distance, env);
                }
                single(node, cx, frame, i, env);
            }
        }
        node.end(cx);
    }
}

/// `W` packets a step by [`FastPath::batch`]; those that are not for it by [`Node::packet`].
pub(crate) struct Batches<M, N, const W: usize>(PhantomData<(M, N)>);

impl<M: Memory, N: FastPath<M>, const W: usize> Kernel for Batches<M, N, W> {
    type Node = N;
    type Memory = M;

    #[inline(always)]
    fn run(node: &mut N, cx: &mut NodeCx<'_>, frame: &mut Frame<M>) {
        if N::CONSUMES {
            cx.trace_here(frame);
        }
        node.begin(cx);
        let (n, distance) = (frame.len, cx.prefetch as usize);
        // A copy: behind the reference it could change with every store.
        let env = &Env { ..cx.env };
        let frame: *mut Frame<M> = frame;
        let mut next: *mut u16 = cx.next.as_mut_ptr();
        let mut i = 0;
        // For both loops: the frame and the lane of verdicts, which has a place for every position of a frame, are exclusively
        // borrowed; i + W ≤ n ≤ VECTOR_MAX where a batch is taken, i < n for one packet, and views and batches end with their
        // step (F1). A prefetch distance stays within the padding.
        while i + W <= n {
            // SAFETY: as above.
            unsafe {
                if distance != 0 {
                    ahead::<M, N, W>(node, frame, i + distance, env);
                }
                if node.batch(&mut Batch::<W>::new(frame, i, next, env)).is_none() {
                    apart(node, cx, frame, i..i + W, env);
                    next = cx.next.as_mut_ptr();
                }
            }
            i += W;
        }
        // What is left, and at low load all of it.
        while i < n {
            // SAFETY: as above.
            unsafe {
                if distance != 0 && i + distance < n {
                    ahead::<M, N, 1>(node, frame, i + distance, env);
                }
                if node.batch(&mut Batch::<1>::new(frame, i, next, env)).is_none() {
                    apart(node, cx, frame, i..i + 1, env);
                    next = cx.next.as_mut_ptr();
                }
            }
            i += 1;
        }
        node.end(cx);
    }
}

/// The node's own loop.
pub(crate) struct Vectors<M, V>(PhantomData<(M, V)>);

impl<M: Memory, V: VectorNode<M>> Kernel for Vectors<M, V> {
    type Node = V;
    type Memory = M;

    #[inline(always)]
    fn run(node: &mut V, cx: &mut NodeCx<'_>, frame: &mut Frame<M>) {
        node.run(cx, frame);
    }
}
