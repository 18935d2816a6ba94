//! Copies of bytes that another process may write or read at the same time.
//!
//! A plain copy of such bytes would be a data race, of which the language says nothing. These are races of single loads and
//! stores that the compiler does not see: machine instructions of our own on x86-64, volatile accesses elsewhere. Each byte is
//! loaded once and stored once, by itself as good as a relaxed atomic; what comes out is any mixture of what was there meanwhile.
//!
//! In pieces of 16 bytes, since what the compiler makes of a `memcpy` of unknown length is a call. Measured against that and
//! plain pieces of the same size: 64 bytes 2.2 ns and 1.7, 512 bytes 8.6 and 8.5, 1,500 bytes 21 and 19 (pairs of the same
//! minute, in the first cache).

/// What is longer is copied by the string instruction, whose start then pays, bytes.
#[cfg(target_arch = "x86_64")]
const LONG: usize = 1024;

/// Loads of words.
macro_rules! loads {
    ($($name:ident $word:ty, $size:literal, $x86:literal, $arm:literal;)*) => {$(
        #[doc = concat!("Loads ", $size, " bytes, at any address, which another process may write meanwhile.")]
        ///
        /// # Safety
        /// They are mapped.
        #[inline(always)]
        pub unsafe fn $name(from: *const u8) -> $word {
            #[cfg(target_arch = "x86_64")]
            {
                let word;
                // SAFETY: one load that the caller vouches for.
                unsafe {
                    std::arch::asm!($x86, from = in(reg) from, word = out(reg) word, options(nostack, preserves_flags, readonly));
                }
                word
            }
            #[cfg(target_arch = "aarch64")]
            {
                let word;
                // SAFETY: as above.
                unsafe {
                    std::arch::asm!($arm, from = in(reg) from, word = out(reg) word, options(nostack, preserves_flags, readonly));
                }
                word
            }
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            {
                let mut word: $word = 0;
                // SAFETY: as above.
                unsafe { copy_shared(std::ptr::from_mut(&mut word).cast(), from, size_of::<$word>()) };
                word
            }
        }
    )*};
}

loads! {
    load_shared_u16 u16, "two", "movzx {word:e}, word ptr [{from}]", "ldrh {word:w}, [{from}]";
    load_shared_u32 u32, "four", "mov {word:e}, [{from}]", "ldr {word:w}, [{from}]";
    load_shared_u64 u64, "eight", "mov {word:r}, [{from}]", "ldr {word:x}, [{from}]";
}

/// Copies `len` bytes exactly, which another process may write or read meanwhile. Nothing past `len` is written, so that a peer never
/// sees bytes of other packets, and nothing past it is read.
///
/// # Safety
/// Both ranges are mapped for `len` bytes and do not overlap. One of them may be accessed by another process meanwhile.
#[inline(always)]
pub unsafe fn copy_shared(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: every piece lies below `len` in both ranges.
    unsafe {
        if len > 64 {
            return copy_long(to, from, len);
        }
        if len >= 32 {
            for at in [0, 16, len - 32, len - 16] {
                piece(to.add(at), from.add(at));
            }
        } else if len >= 16 {
            piece(to, from);
            piece(to.add(len - 16), from.add(len - 16));
        } else if len >= 8 {
            word(to, from);
            word(to.add(len - 8), from.add(len - 8));
        } else {
            for at in 0..len {
                to.add(at).write_volatile(from.add(at).read_volatile());
            }
        }
    }
}

/// [`copy_shared`] for more than 64 bytes.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn copy_long(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: every piece lies below `len` in both ranges.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if len > LONG {
            return string(to, from, len);
        }
        let mut at = 0;
        while at + 64 <= len {
            line(to.add(at), from.add(at));
            at += 64;
        }
        if at < len {
            line(to.add(len - 64), from.add(len - 64));
        }
    }
}

/// Copies 8 bytes.
///
/// # Safety
/// As for [`copy_shared`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn word(to: *mut u8, from: *const u8) {
    // SAFETY: one load and one store of 8 bytes that the caller vouches for.
    unsafe {
        std::arch::asm!(
            "mov {a}, [{from}]", "mov [{to}], {a}",
            from = in(reg) from, to = in(reg) to, a = out(reg) _, options(nostack, preserves_flags)
        );
    }
}

/// Copies 16 bytes.
///
/// # Safety
/// As for [`copy_shared`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn piece(to: *mut u8, from: *const u8) {
    // SAFETY: one load and one store of 16 bytes that the caller vouches for; every x86-64 processor has them.
    unsafe {
        std::arch::asm!(
            "movups {a}, [{from}]", "movups [{to}], {a}",
            from = in(reg) from, to = in(reg) to, a = out(xmm_reg) _, options(nostack, preserves_flags)
        );
    }
}

/// Copies 64 bytes.
///
/// # Safety
/// As for [`copy_shared`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn line(to: *mut u8, from: *const u8) {
    // SAFETY: as in `piece`, four times.
    unsafe {
        std::arch::asm!(
            "movups {a}, [{from}]", "movups {b}, [{from} + 16]", "movups {c}, [{from} + 32]", "movups {d}, [{from} + 48]",
            "movups [{to}], {a}", "movups [{to} + 16], {b}", "movups [{to} + 32], {c}", "movups [{to} + 48], {d}",
            from = in(reg) from, to = in(reg) to,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies any number of bytes.
///
/// # Safety
/// As for [`copy_shared`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn string(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller vouches for `len` bytes; the direction flag is clear, as the calling convention has it.
    unsafe {
        std::arch::asm!(
            "rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags)
        );
    }
}

/// Eight bytes at any address.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Word(u64);

/// Copies 8 bytes.
///
/// # Safety
/// As for [`copy_shared`].
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn word(to: *mut u8, from: *const u8) {
    // SAFETY: the caller vouches for 8 bytes; a word may lie at any address.
    unsafe { to.cast::<Word>().write_volatile(from.cast::<Word>().read_volatile()) }
}

/// Copies 16 bytes.
///
/// # Safety
/// As for [`copy_shared`].
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn piece(to: *mut u8, from: *const u8) {
    for at in [0, 8] {
        // SAFETY: the caller vouches for 16 bytes.
        unsafe { word(to.add(at), from.add(at)) }
    }
}

/// Copies 64 bytes.
///
/// # Safety
/// As for [`copy_shared`].
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn line(to: *mut u8, from: *const u8) {
    for at in [0, 16, 32, 48] {
        // SAFETY: the caller vouches for 64 bytes.
        unsafe { piece(to.add(at), from.add(at)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_exact_at_every_length() {
        for len in (0..300).chain([1023, 1024, 1025, 1500, 2047, 2048]) {
            let from: Vec<u8> = (0..len + 64).map(|i| (i * 7 + 1) as u8).collect();
            let mut to = vec![0xa5; len + 64];
            // SAFETY: both vectors are longer than `len`.
            unsafe { copy_shared(to.as_mut_ptr(), from.as_ptr(), len) };
            assert_eq!(to[..len], from[..len], "{len}");
            assert!(to[len..].iter().all(|b| *b == 0xa5), "{len}: bytes past the end were written");
        }
    }
}
