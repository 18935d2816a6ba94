//! Clocks, memory and medians.

use std::fmt;

/// The time stamp counter.
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction; it only reads the counter.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let t: u64;
        // SAFETY: the virtual counter may be read at EL0 on Linux.
        unsafe { std::arch::asm!("mrs {0}, cntvct_el0", out(reg) t, options(nomem, nostack)) };
        t
    }
}

/// Zero (leaves are below 2^30), in a way that the compiler cannot know: it makes the next address depend on this leaf.
#[inline(always)]
pub fn opaque_zero(leaf: u32) -> u32 {
    let mut leaf = u64::from(leaf);
    // SAFETY: no instruction at all; the value is only declared to change.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) leaf, options(nomem, nostack, preserves_flags, pure)) };
    (leaf >> 31) as u32
}

/// Memory of this process: resident pages and huge pages (which are not in VmRSS).
pub fn memory_bytes() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| -> i64 {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|l| l.trim().strip_suffix(" kB")?.trim().parse::<i64>().ok()).unwrap_or(0)
    };
    (field("VmRSS:") + field("HugetlbPages:")) * 1024
}

/// Samples, and their median with the spread.
#[derive(Clone, Default)]
pub struct Median(Vec<f64>);

impl Median {
    pub fn add(&mut self, sample: f64) {
        self.0.push(sample);
        self.0.sort_by(f64::total_cmp);
    }
    pub fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(f64::NAN)
    }
    pub fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }
    pub fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Median {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:6.1} [{:.1}..{:.1}]", self.median(), self.min(), self.max()))
    }
}
