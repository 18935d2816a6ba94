//! Lines that were written for a peer, moved to the cache that all cores share.
//!
//! What a core has written lies modified in its own caches, and another core that reads it waits for this one. `cldemote` moves a
//! line on while its writer goes on working. The reader then finds it where it finds everything else (decision 0083).
//!
//! It is a hint: it changes no byte, and processors that lack it take it for a no-op. Bytes that the peer may read or write meanwhile
//! are as safe as without it. So CPUID is not asked: hypervisors hide the instruction on processors that follow it.
//! On other architectures nothing is done: aarch64 has no such hint. `dc cvac`
//! comes nearest, but it writes lines back to memory, waits for that at the next barrier, and leaves open which cache keeps them.

/// Bytes of a cache line.
const LINE: usize = 64;
/// Most lines of one packet. A reader waits for its first lines; then its core sees the direction and fetches ahead. Packets of 512 and 1,024
/// bytes gained by eight over four; all 24 lines of 1,500 bytes cost the sender more than the reader gained (decision 0083).
const LINES_MAX: usize = 8;

/// Whether lines that were written for a peer leave the writer's caches; `None` where the processor does not say that it follows the hint.
#[cfg(target_arch = "x86_64")]
pub fn demotes() -> Option<bool> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const FEATURES: u32 = 7;
    const CLDEMOTE: u32 = 1 << 25;
    (__cpuid(0).eax >= FEATURES && __cpuid_count(FEATURES, 0).ecx & CLDEMOTE != 0).then_some(true)
}

/// Whether lines that were written for a peer leave the writer's caches: there is no such hint here.
#[cfg(not(target_arch = "x86_64"))]
pub fn demotes() -> Option<bool> {
    Some(false)
}

/// Starts of the lines that `len` bytes from `first` on touch: the first [`LINES_MAX`] of them.
#[inline(always)]
fn lines(first: *const u8, len: usize) -> impl Iterator<Item = *const u8> {
    let past = first.addr() % LINE;
    let count = if len == 0 { 0 } else { (past + len).div_ceil(LINE).min(LINES_MAX) };
    (0..count).map(move |k| first.wrapping_sub(past).wrapping_add(k * LINE))
}

/// Demotes the first lines of `len` bytes that were just written.
///
/// This core should not touch them again soon: they would have to come back.
#[inline(always)]
pub(super) fn demote(first: *const u8, len: usize) {
    lines(first, len).for_each(demote_line);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn demote_line(line: *const u8) {
    // SAFETY: a hint that changes no byte and, by the manual, faults on no address; processors without the instruction take it for a no-op.
    unsafe {
        std::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn demote_line(_: *const u8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_those_that_the_bytes_lie_in() {
        for start in (0..=192).map(|past| 0x7000 + past) {
            for len in 0..=600 {
                let mut slow: Vec<usize> = (start..start + len).map(|byte| byte / LINE * LINE).collect();
                slow.dedup();
                slow.truncate(LINES_MAX);
                let found: Vec<usize> = lines(std::ptr::without_provenance(start), len).map(<*const u8>::addr).collect();
                assert_eq!(found, slow, "{len} bytes from {start:#x} on");
            }
        }
    }

    #[test]
    fn the_shortest_frame_at_the_start_of_a_line_is_one_line() {
        let count = |start, len| lines(std::ptr::without_provenance(start), len).count();
        assert_eq!((count(0x1000, 60), count(0x1000, 64), count(0x1000, 65), count(0x103f, 2)), (1, 1, 2, 2));
        assert_eq!((count(0x1000, 0), count(0x1000, 9216), count(0x103f, 9216)), (0, LINES_MAX, LINES_MAX));
    }

    #[test]
    fn demoting_changes_nothing_on_any_processor() {
        // Where the instruction is not there as well: a no-op.
        let bytes: Vec<u8> = (0..4096).map(|n| (n * 7) as u8).collect();
        for len in [0, 1, 60, 64, 65, 1500, 4096] {
            demote(bytes.as_ptr(), len);
        }
        assert!(bytes.iter().enumerate().all(|(n, byte)| *byte == (n * 7) as u8));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn what_is_known_is_what_linux_says() {
        let Ok(text) = std::fs::read_to_string("/proc/cpuinfo") else { return };
        let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        let said = flags.split_whitespace().any(|flag| flag == "cldemote");
        assert_eq!(demotes(), said.then_some(true));
    }
}
