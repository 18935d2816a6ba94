//! Instruction sets: which of them a loop over packets was compiled for, and how it is compiled for all of them.
//!
//! Everything under [`Kernel::run`] is `#[inline(always)]` or at least inlined, and free of target features; only the thin wrappers
//! carry them. What is not inlined there is compiled at base level.

use crate::context::NodeCx;
use crate::frame::Frame;
use crate::memory::{Memory, Shared};

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

    /// The level used unless set otherwise: the best one up to v3.
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

/// What runs a frame through a node: the part that is compiled for each instruction set.
pub(crate) trait Kernel {
    /// The node, or the nodes of a fused chain.
    type Node;
    /// The memory that its packets may lie in.
    type Memory: Memory;
    /// Handles a frame; `#[inline(always)]`.
    fn run(node: &mut Self::Node, cx: &mut NodeCx<'_>, frame: &mut Frame<Self::Memory>);
}

/// A compiled loop for a node `N`.
///
/// # Safety
/// Calling it needs the processor features of the level it was compiled for, and that packets lie in memory that the node takes
/// ([`Kernel::Memory`], F3).
pub(crate) type RunFn<N> = unsafe fn(&mut N, &mut NodeCx<'_>, &mut Frame<Shared>);

/// # Safety
/// As for [`RunFn`], at base level.
unsafe fn base<K: Kernel>(node: &mut K::Node, cx: &mut NodeCx<'_>, frame: &mut Frame<Shared>) {
    // SAFETY: the caller's promise.
    K::run(node, cx, unsafe { frame.of_memory() });
}

#[cfg(all(target_arch = "x86_64", not(fuzzing)))]
mod x86 {
    use super::{Frame, Kernel, NodeCx, Shared};

    /// # Safety
    /// As for [`RunFn`](super::RunFn), at this level.
    #[target_feature(enable = "sse3,ssse3,sse4.1,sse4.2,popcnt")]
    pub(super) unsafe fn v2<K: Kernel>(node: &mut K::Node, cx: &mut NodeCx<'_>, frame: &mut Frame<Shared>) {
        // SAFETY: the caller's promise.
        K::run(node, cx, unsafe { frame.of_memory() });
    }

    /// # Safety
    /// As for [`RunFn`](super::RunFn), at this level.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe,fma,popcnt")]
    pub(super) unsafe fn v3<K: Kernel>(node: &mut K::Node, cx: &mut NodeCx<'_>, frame: &mut Frame<Shared>) {
        // SAFETY: the caller's promise.
        K::run(node, cx, unsafe { frame.of_memory() });
    }

    /// # Safety
    /// As for [`RunFn`](super::RunFn), at this level.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,movbe,fma,popcnt")]
    pub(super) unsafe fn v4<K: Kernel>(node: &mut K::Node, cx: &mut NodeCx<'_>, frame: &mut Frame<Shared>) {
        // SAFETY: the caller's promise.
        K::run(node, cx, unsafe { frame.of_memory() });
    }
}

/// The loop compiled for a level; a level that this processor lacks gives that of the base level, so that the result is always safe to
/// call. Fuzz targets have that of the base level only: the others are the same text, and would be most of what they are made of.
pub(crate) fn compiled<K: Kernel>(level: Level) -> RunFn<K::Node> {
    match level {
        #[cfg(all(target_arch = "x86_64", not(fuzzing)))]
        Level::V2 if level.available() => x86::v2::<K>,
        #[cfg(all(target_arch = "x86_64", not(fuzzing)))]
        Level::V3 if level.available() => x86::v3::<K>,
        #[cfg(all(target_arch = "x86_64", not(fuzzing)))]
        Level::V4 if level.available() => x86::v4::<K>,
        _ => base::<K>,
    }
}
