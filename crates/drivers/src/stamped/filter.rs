//! Which frames a socket takes: by words near a frame's end, since only they are the same whatever stands before them.

/// Frames that end with something known; distances are bytes from the frame's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Where two bytes lie that must have this value.
    pub word: (u32, u16),
    /// Where two bytes lie, nearer to the end, that must have a value from the first to the last of these.
    pub range: (u32, u16, u16),
}

impl Tail {
    /// Whether a frame ends so.
    pub fn takes(&self, frame: &[u8]) -> bool {
        let half = |from_end: u32| frame.len().checked_sub(from_end as usize).and_then(|at| frame.get(at..at + 2));
        let number = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
        let ((far, word), (near, first, last)) = (self.word, self.range);
        half(far).is_some_and(|bytes| number(bytes) == word)
            && half(near).is_some_and(|bytes| (first..=last).contains(&number(bytes)))
    }

    /// The filter as the kernel's classic BPF.
    pub(super) fn program(&self) -> [libc::sock_filter; 11] {
        const LENGTH: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_LEN;
        const HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
        const JUMP: u32 = libc::BPF_JMP | libc::BPF_K;
        let ((far, word), (near, first, last)) = (self.word, self.range);
        let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
        [
            op(LENGTH, 0, 0, 0),
            // The last instruction drops: the second number is how far it is from the next one.
            op(JUMP | libc::BPF_JGE, 0, 8, far),
            op(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K, 0, 0, far),
            op(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0),
            op(HALF, 0, 0, 0),
            op(JUMP | libc::BPF_JEQ, 0, 4, word.into()),
            op(HALF, 0, 0, far.saturating_sub(near)),
            op(JUMP | libc::BPF_JGE, 0, 2, first.into()),
            op(JUMP | libc::BPF_JGT, 1, 0, last.into()),
            op(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
            op(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would do with a frame, for the instructions that are used.
    fn takes(program: &[libc::sock_filter], frame: &[u8]) -> bool {
        let (mut a, mut x, mut at) = (0_u32, 0_u32, 0);
        loop {
            let op = program[at];
            at += 1;
            let jump = |yes: bool| usize::from(if yes { op.jt } else { op.jf });
            match u32::from(op.code) {
                0x80 => a = frame.len() as u32,
                0x14 => a -= op.k,
                0x07 => x = a,
                0x48 => match frame.get((x + op.k) as usize..(x + op.k + 2) as usize) {
                    Some(bytes) => a = u16::from_be_bytes([bytes[0], bytes[1]]).into(),
                    // The kernel drops what a filter reads beyond.
                    None => return false,
                },
                0x35 => at += jump(a >= op.k),
                0x25 => at += jump(a > op.k),
                0x15 => at += jump(a == op.k),
                0x06 => return op.k > 0,
                code => panic!("{code:x}"),
            }
        }
    }

    #[test]
    fn frames_are_taken_by_what_they_end_with() {
        let tail = Tail { word: (18, 0xa907), range: (14, 3, 5) };
        let program = tail.program();
        let takes = |frame: &[u8]| {
            assert_eq!(tail.takes(frame), takes(&program, frame), "{frame:?}");
            tail.takes(frame)
        };
        let frame = |word: u16, stream: u16, before: usize| {
            let mut frame = vec![0xff; before];
            frame.extend(word.to_be_bytes());
            frame.extend([0; 2]);
            frame.extend(stream.to_be_bytes());
            frame.extend([0; 12]);
            frame
        };
        for before in [0, 1, 42, 1500] {
            for stream in 3..=5 {
                assert!(takes(&frame(0xa907, stream, before)), "{before} {stream}");
            }
            for (word, stream) in [(0xa907, 2), (0xa907, 6), (0xa906, 3), (0xaa07, 4)] {
                assert!(!takes(&frame(word, stream, before)), "{before} {word:x} {stream}");
            }
        }
        assert!(!takes(&frame(0xa907, 3, 0)[1..]) && !takes(&[]));
    }
}
