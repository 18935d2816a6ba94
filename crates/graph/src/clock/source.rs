//! Where ticks and the kernel's time come from, and whether the cycle counter can be trusted.

use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

/// The kernel's own choice, among other things after it found the counter unreliable.
const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// What a clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The processor's cycle counter: TSC, or CNTVCT_EL0 on Arm.
    Counter,
    /// CLOCK_MONOTONIC itself, read from the kernel each time.
    Kernel,
}

impl Source {
    /// The count now.
    #[inline(always)]
    pub fn ticks(self) -> u64 {
        match self {
            Self::Counter => read_counter(),
            Self::Kernel => kernel_ns(),
        }
    }
}

/// What the decision about the counter rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The counter runs at a constant rate in all power states (CPUID 0x80000007, EDX bit 8; always so on Arm).
    pub invariant: bool,
    /// The kernel's current clock source, where it could be read.
    pub clocksource: Option<String>,
}

impl Facts {
    /// The facts of the machine that this runs on.
    pub fn of_this_machine() -> Self {
        Self::read(counter_is_invariant(), Path::new(CLOCKSOURCE))
    }

    /// Facts with the kernel's clock source read from `file`.
    pub fn read(invariant: bool, file: &Path) -> Self {
        let clocksource = std::fs::read_to_string(file).ok();
        Self { invariant, clocksource: clocksource.map(|name| name.trim().to_owned()) }
    }

    /// The kernel uses the counter as its clock: then so do we. It uses a paravirtual clock, which is built on the
    /// counter: then the processor's word counts. It uses anything else: then it has its reasons.
    pub fn source(&self) -> Source {
        let trusted = match self.clocksource.as_deref() {
            Some("tsc" | "arch_sys_counter") => true,
            Some("kvm-clock" | "xen" | "hyperv_clocksource_tsc_page") | None => self.invariant,
            Some(_) => false,
        };
        if trusted { Source::Counter } else { Source::Kernel }
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, from the kernel.
pub(super) fn kernel_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The cycle counter, unordered: the processor may read it some instructions early or late.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub fn read_counter() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC, and Linux leaves it enabled for user space.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The generic timer's virtual count.
#[inline(always)]
#[cfg(target_arch = "aarch64")]
pub fn read_counter() -> u64 {
    let count: u64;
    // SAFETY: reads a register that Linux enables for user space; no memory, no flags.
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags)) };
    count
}

/// The cycle counter, read after everything before it in the program is done. Some ten nanoseconds dearer.
#[inline(always)]
pub(super) fn read_counter_in_order() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: LFENCE is part of SSE2, which every x86-64 processor has.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier; no register, no flags.
    unsafe {
        std::arch::asm!("isb", options(nostack, preserves_flags));
    }
    read_counter()
}

/// No counter known on this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn read_counter() -> u64 {
    kernel_ns()
}

#[cfg(target_arch = "x86_64")]
fn counter_is_invariant() -> bool {
    use std::arch::x86_64::__cpuid;
    const POWER: u32 = 0x8000_0007;
    __cpuid(0x8000_0000).eax >= POWER && __cpuid(POWER).edx & (1 << 8) != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn counter_is_invariant() -> bool {
    cfg!(target_arch = "aarch64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_used_only_where_processor_and_kernel_trust_it() {
        let source = |invariant, name: Option<&str>| {
            let clocksource = name.map(String::from);
            Facts { invariant, clocksource }.source()
        };
        assert_eq!(source(false, Some("tsc")), Source::Counter);
        assert_eq!(source(true, Some("kvm-clock")), Source::Counter);
        assert_eq!(source(false, Some("kvm-clock")), Source::Kernel);
        assert_eq!(source(true, Some("hpet")), Source::Kernel);
        assert_eq!(source(true, Some("acpi_pm")), Source::Kernel);
        assert_eq!(source(true, None), Source::Counter);
        assert_eq!(source(false, None), Source::Kernel);
    }

    #[test]
    fn a_missing_clocksource_file_is_no_error() {
        let facts = Facts::read(true, Path::new("/nonexistent/clocksource"));
        assert_eq!(facts.clocksource, None);
        assert_eq!(facts.source(), Source::Counter);
    }

    #[test]
    fn the_kernels_clock_and_the_counter_advance() {
        let (ns, ticks) = (kernel_ns(), read_counter());
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(kernel_ns() >= ns + 1_000_000 && read_counter() > ticks);
    }
}
