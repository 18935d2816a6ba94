//! The multi-loop, made once for all nodes: `W` packets a step, compiled for each instruction set.
//!
//! Everything under [`drive`] is `#[inline(always)]` and free of target features; only the thin wrappers carry them. A callee
//! that were not inlined would be compiled at base level without any warning.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::context::NodeCx;
use crate::frame::Frame;
use crate::group::Group;
use crate::node::{LoopConfig, Node};
use crate::packet::{Env, Pkt};

/// Instruction set of a node's compiled loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The architecture's base: what other architectures than x86-64 run.
    Base,
    /// x86-64-v2.
    V2,
    /// x86-64-v3 (AVX2, BMI).
    V3,
    /// x86-64-v4 (AVX-512), by opt-in only: it was not better than v3 for node bodies.
    V4,
}

impl Level {
    /// All levels, for help texts.
    pub const ALL: [Self; 4] = [Self::Base, Self::V2, Self::V3, Self::V4];

    /// Name as typed and shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::V2 => "v2",
            Self::V3 => "v3",
            Self::V4 => "v4",
        }
    }

    /// Whether this processor can run it.
    pub fn available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let v2 = has!("sse3") && has!("ssse3") && has!("sse4.1") && has!("sse4.2") && has!("popcnt");
            let v3 = v2 && has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("movbe") && has!("fma");
            match self {
                // Never the one to use here: processors below v2 are refused, and a level costs code for every node.
                Self::Base => false,
                Self::V2 => v2,
                Self::V3 => v3,
                Self::V4 => v3 && has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl"),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Base
        }
    }

    /// The level used unless told otherwise: the best one up to v3.
    pub fn best() -> Self {
        [Self::V3, Self::V2].into_iter().find(|l| l.available()).unwrap_or(Self::Base)
    }
}

impl std::str::FromStr for Level {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|l| l.name() == s).ok_or_else(|| format!("unknown variant `{s}', expected base, v2, v3 or v4"))
    }
}

/// A compiled loop of node `N`.
///
/// # Safety
/// Calling it needs the processor features of the level it was compiled for.
pub(crate) type RunFn<N> = unsafe fn(&mut N, &mut NodeCx<'_>, &mut Frame);

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

/// Handles one packet of a frame by the three functions that hold all rules.
///
/// # Safety
/// `i` is a packet of the frame, and neither the frame nor `next`, which has room for its slot, are anybody else's meanwhile.
#[inline(always)]
pub(crate) unsafe fn single<N: Node>(node: &mut N, frame: *mut Frame, i: usize, next: *mut u16, env: &Env) {
    // SAFETY: the caller's promise; each view ends before the next one is made (F1).
    unsafe {
        let input = node.load(&Pkt::of_lane(frame, i, env));
        let output = node.compute(input);
        let verdict = node.store(Pkt::of_lane(frame, i, env), input, output);
        *next.add(i) = verdict.0;
    }
}

/// The packets of a group of which one is not plain, or that came in on several interfaces: each by itself, by the shorter way
/// where it is plain. Kept out of the loop of groups.
///
/// # Safety
/// As for [`single`], for each position of the range.
#[inline(never)]
unsafe fn apart<N: Node>(node: &mut N, frame: *mut Frame, range: Range<usize>, next: *mut u16, env: &Env) {
    for i in range {
        // SAFETY: the caller's promise.
        unsafe {
            if node.group(&mut Group::<1>::new(frame, i, next, env)).is_none() {
                single(node, frame, i, next, env);
            }
        }
    }
}

/// Asks for the lines of `W` packets.
///
/// # Safety
/// `i + W` is within the lanes and their padding, and the frame nobody else's meanwhile.
#[inline(always)]
pub(crate) unsafe fn ahead<N: Node, const W: usize>(node: &N, frame: *mut Frame, i: usize, env: &Env) {
    let mut k = 0;
    while k < W {
        // SAFETY: the caller's promise; a stale lane is only prefetched.
        node.prefetch(&unsafe { Pkt::of_lane(frame, i + k, env) });
        k += 1;
    }
}

#[inline(always)]
fn drive<N: Node, const W: usize>(node: &mut N, cx: &mut NodeCx<'_>, frame: &mut Frame) {
    node.begin(cx);
    let n = frame.len;
    let distance = cx.prefetch as usize;
    // A copy: behind the reference it could change with every store.
    let env = &Env { ..cx.env };
    let frame: *mut Frame = frame;
    let next: *mut u16 = cx.next.as_mut_ptr();
    let mut i = 0;
    // For all of the loops: the frame and the next lane, which has room for every position of a frame, are exclusively
    // borrowed; i + W ≤ n ≤ VECTOR_MAX where a group is taken, i < n for one packet, and views and groups end with their
    // step (F1). A prefetch distance stays within the padding.
    if W > 1 && N::GROUPS {
        while i + W <= n {
            // SAFETY: as above.
            unsafe {
                if distance != 0 {
                    ahead::<N, W>(node, frame, i + distance, env);
                }
                if node.group(&mut Group::<W>::new(frame, i, next, env)).is_none() {
                    apart(node, frame, i..i + W, next, env);
                }
            }
            i += W;
        }
        // What is left, and at low load all of it: one by one, but by the way of groups, which is the shorter one.
        while i < n {
            // SAFETY: as above.
            unsafe {
                if distance != 0 && i + distance < n {
                    ahead::<N, 1>(node, frame, i + distance, env);
                }
                if node.group(&mut Group::<1>::new(frame, i, next, env)).is_none() {
                    apart(node, frame, i..i + 1, next, env);
                }
            }
            i += 1;
        }
    } else if W > 1 {
        while i + W <= n {
            // SAFETY: as above.
            unsafe {
                if distance != 0 {
                    ahead::<N, W>(node, frame, i + distance, env);
                }
                let input: [N::In; W] = each(|k| node.load(&Pkt::of_lane(frame, i + k, env)));
                let output: [N::Out; W] = each(|k| node.compute(input[k]));
                let mut k = 0;
                while k < W {
                    let verdict = node.store(Pkt::of_lane(frame, i + k, env), input[k], output[k]);
                    *next.add(i + k) = verdict.0;
                    k += 1;
                }
            }
            i += W;
        }
    }
    while i < n {
        // SAFETY: as above.
        unsafe {
            if distance != 0 && i + distance < n {
                ahead::<N, 1>(node, frame, i + distance, env);
            }
            single(node, frame, i, next, env);
        }
        i += 1;
    }
    node.end(cx);
}

fn base<N: Node, const W: usize>(node: &mut N, cx: &mut NodeCx<'_>, frame: &mut Frame) {
    drive::<N, W>(node, cx, frame);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Frame, Node, NodeCx, drive};

    #[target_feature(enable = "sse3,ssse3,sse4.1,sse4.2,popcnt")]
    pub(super) fn v2<N: Node, const W: usize>(node: &mut N, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        drive::<N, W>(node, cx, frame);
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe,fma,popcnt")]
    pub(super) fn v3<N: Node, const W: usize>(node: &mut N, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        drive::<N, W>(node, cx, frame);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,movbe,fma,popcnt")]
    pub(super) fn v4<N: Node, const W: usize>(node: &mut N, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        drive::<N, W>(node, cx, frame);
    }
}

fn at_level<N: Node, const W: usize>(level: Level) -> RunFn<N> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::V2 if level.available() => x86::v2::<N, W>,
        #[cfg(target_arch = "x86_64")]
        Level::V3 if level.available() => x86::v3::<N, W>,
        #[cfg(target_arch = "x86_64")]
        Level::V4 if level.available() => x86::v4::<N, W>,
        #[cfg(target_arch = "x86_64")]
        _ => base::<N, 1>,
        #[cfg(not(target_arch = "x86_64"))]
        _ => base::<N, W>,
    }
}

/// The compiled loop for a width and a level; a level that this processor lacks gives the base loop, so that the result is
/// always safe to call.
pub(crate) fn select<N: Node>(config: LoopConfig, level: Level) -> RunFn<N> {
    match config.width {
        8 => at_level::<N, 8>(level),
        4 => at_level::<N, 4>(level),
        2 => at_level::<N, 2>(level),
        _ => at_level::<N, 1>(level),
    }
}
