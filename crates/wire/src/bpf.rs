//! Classic BPF programs (McCanne and Jacobson, "The BSD Packet Filter", 1993): what `tcpdump -ddd` makes of a filter expression.
//!
//! A program is checked as a whole before it can run: known instructions, jumps forward and inside, memory inside, no division by zero by
//! a constant, a return at the end. So each run ends after at most as many steps as the program has instructions, whatever the packet
//! holds, and a program from anybody can do no harm. What only a kernel can answer (the packet's interface, a random number) is
//! refused.

use std::fmt;

/// Most instructions: that of the Linux kernel.
pub const LONGEST: usize = 4096;
/// Words of memory that a program has.
const MEMORY: usize = 16;

/// An instruction, as in `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// Instructions skipped where a comparison is true.
    pub jump_true: u8,
    /// Instructions skipped where it is not.
    pub jump_false: u8,
    /// Its operand.
    pub k: u32,
}

/// Why something is not a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BpfError {
    /// An instruction is not four numbers, or a number is too large: which one, from 1.
    NotNumbers(usize),
    /// There are more or fewer instructions than the first number says.
    Count {
        /// What it says.
        said: usize,
        /// How many there are.
        found: usize,
    },
    /// There is no instruction, or there are too many.
    Length(usize),
    /// An instruction that is not known, or that only a kernel can run: which one, from 1, and its code.
    Unknown(usize, u16),
    /// A jump leads out of the program.
    Jump(usize),
    /// Memory outside of the program's 16 words.
    Memory(usize),
    /// A division by zero, or a shift by more bits than there are.
    Operand(usize),
    /// The last instruction does not return.
    NoReturn,
}

impl fmt::Display for BpfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNumbers(0) => write!(f, "a program begins with the number of its instructions"),
            Self::NotNumbers(at) => write!(f, "instruction {at} is not four numbers: code, two jumps, operand"),
            Self::Count { said, found } => write!(f, "{said} instructions are announced, {found} follow"),
            Self::Length(len) => write!(f, "{len} instructions; a program has 1 to {LONGEST}"),
            Self::Unknown(at, code) => write!(f, "instruction {at} (code {code}) is not known, or only a kernel can run it"),
            Self::Jump(at) => write!(f, "instruction {at} jumps out of the program"),
            Self::Memory(at) => write!(f, "instruction {at} names memory that a program does not have"),
            Self::Operand(at) => write!(f, "instruction {at} divides by zero or shifts by more than 31 bits"),
            Self::NoReturn => write!(f, "the last instruction does not return"),
        }
    }
}

impl std::error::Error for BpfError {}

/// Classes of instructions: the low 3 bits. What is left, 7, moves A to X or X to A.
mod class {
    pub const LD: u16 = 0;
    pub const LDX: u16 = 1;
    pub const ST: u16 = 2;
    pub const STX: u16 = 3;
    pub const ALU: u16 = 4;
    pub const JMP: u16 = 5;
    pub const RET: u16 = 6;
}

/// Where a load reads: the high 3 bits.
mod mode {
    pub const IMM: u16 = 0x00;
    pub const ABS: u16 = 0x20;
    pub const IND: u16 = 0x40;
    pub const MEM: u16 = 0x60;
    pub const LEN: u16 = 0x80;
    pub const MSH: u16 = 0xa0;
}

/// Sizes of loads from the packet.
mod size {
    pub const W: u16 = 0x00;
    pub const H: u16 = 0x08;
    pub const B: u16 = 0x10;
}

/// Operations and comparisons.
mod op {
    pub const ADD: u16 = 0x00;
    pub const SUB: u16 = 0x10;
    pub const MUL: u16 = 0x20;
    pub const DIV: u16 = 0x30;
    pub const OR: u16 = 0x40;
    pub const AND: u16 = 0x50;
    pub const LSH: u16 = 0x60;
    pub const RSH: u16 = 0x70;
    pub const NEG: u16 = 0x80;
    pub const MOD: u16 = 0x90;
    pub const XOR: u16 = 0xa0;

    pub const JA: u16 = 0x00;
    pub const JEQ: u16 = 0x10;
    pub const JGT: u16 = 0x20;
    pub const JGE: u16 = 0x30;
    pub const JSET: u16 = 0x40;
}

/// The operand is X, not the constant.
const FROM_X: u16 = 0x08;
/// A return gives A, not the constant.
const RETURN_A: u16 = 0x10;
/// Moves A to X; with this bit, X to A.
const TO_A: u16 = 0x80;
/// Offsets from here on are questions to the kernel.
const ANCILLARY: u32 = 0xffe0_0000;

/// A program that has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Box<[Instruction]>);

impl Program {
    /// Checks a program.
    ///
    /// # Errors
    /// The first instruction that cannot be.
    pub fn new(instructions: Vec<Instruction>) -> Result<Self, BpfError> {
        let len = instructions.len();
        if !(1..=LONGEST).contains(&len) {
            return Err(BpfError::Length(len));
        }
        for (at, instruction) in instructions.iter().enumerate() {
            instruction.check(at, len)?;
        }
        match instructions.last() {
            Some(last) if last.code & 7 == class::RET => Ok(Self(instructions.into())),
            _ => Err(BpfError::NoReturn),
        }
    }

    /// Reads the output of `tcpdump -ddd`: the number of instructions, then four numbers for each. Commas may stand for ends of lines.
    ///
    /// # Errors
    /// What is not a program, or one that cannot be.
    pub fn parse(text: &str) -> Result<Self, BpfError> {
        let mut lines = text.split([',', '\n', ';']).map(str::trim).filter(|line| !line.is_empty());
        let said = lines.next().and_then(|line| line.parse::<usize>().ok()).ok_or(BpfError::NotNumbers(0))?;
        let mut instructions = Vec::new();
        for line in lines {
            let at = instructions.len() + 1;
            if at > LONGEST {
                return Err(BpfError::Length(at));
            }
            instructions.push(Instruction::parse(line).ok_or(BpfError::NotNumbers(at))?);
        }
        if instructions.len() != said {
            return Err(BpfError::Count { said, found: instructions.len() });
        }
        Self::new(instructions)
    }

    /// The text that [`parse`](Self::parse) reads, in one line.
    pub fn text(&self) -> String {
        let one = |i: &Instruction| format!(",{} {} {} {}", i.code, i.jump_true, i.jump_false, i.k);
        self.0.iter().fold(self.0.len().to_string(), |text, instruction| text + &one(instruction))
    }

    /// Runs it on the first bytes of a packet of `len` bytes: 0 where the packet is not wanted.
    pub fn run(&self, packet: &[u8], len: usize) -> u32 {
        let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; MEMORY]);
        let mut at = 0;
        // Jumps lead forward, so that this ends.
        while let Some(instruction) = self.0.get(at) {
            let Instruction { code, jump_true, jump_false, k } = *instruction;
            at += 1;
            let operand = if code & FROM_X != 0 { x } else { k };
            match code & 7 {
                class::LD | class::LDX => {
                    let Some(value) = load(code, k, x, packet, len, &memory) else { return 0 };
                    if code & 7 == class::LD { a = value } else { x = value }
                }
                class::ST => memory[k as usize % MEMORY] = a,
                class::STX => memory[k as usize % MEMORY] = x,
                class::ALU => match compute(code & 0xf0, a, operand) {
                    Some(value) => a = value,
                    None => return 0,
                },
                class::JMP => {
                    let holds = match code & 0xf0 {
                        op::JA => {
                            at += k as usize;
                            continue;
                        }
                        op::JEQ => a == operand,
                        op::JGT => a > operand,
                        op::JGE => a >= operand,
                        _ => a & operand != 0,
                    };
                    at += usize::from(if holds { jump_true } else { jump_false });
                }
                class::RET => return if code & 0x18 == RETURN_A { a } else { k },
                _ => {
                    if code & TO_A != 0 {
                        a = x;
                    } else {
                        x = a;
                    }
                }
            }
        }
        0
    }

    /// Whether a packet is wanted.
    pub fn wants(&self, packet: &[u8], len: usize) -> bool {
        self.run(packet, len) != 0
    }
}

/// A value from the packet, its length, memory or the instruction; none where the packet ends before.
fn load(code: u16, k: u32, x: u32, packet: &[u8], len: usize, memory: &[u32; MEMORY]) -> Option<u32> {
    let from = |offset: u32| {
        let rest = packet.get(offset as usize..)?;
        Some(match code & 0x18 {
            size::W => u32::from_be_bytes(*rest.first_chunk()?),
            size::H => u16::from_be_bytes(*rest.first_chunk()?).into(),
            _ => (*rest.first()?).into(),
        })
    };
    match code & 0xe0 {
        mode::IMM => Some(k),
        mode::ABS => from(k),
        mode::IND => from(x.checked_add(k)?),
        mode::MEM => Some(memory[k as usize % MEMORY]),
        mode::LEN => Some(u32::try_from(len).unwrap_or(u32::MAX)),
        // Length of an IPv4 header.
        _ => packet.get(k as usize).map(|byte| u32::from(byte & 15) * 4),
    }
}

fn compute(what: u16, a: u32, by: u32) -> Option<u32> {
    Some(match what {
        op::ADD => a.wrapping_add(by),
        op::SUB => a.wrapping_sub(by),
        op::MUL => a.wrapping_mul(by),
        op::DIV => a.checked_div(by)?,
        op::MOD => a.checked_rem(by)?,
        op::OR => a | by,
        op::AND => a & by,
        op::XOR => a ^ by,
        op::LSH => a.checked_shl(by).unwrap_or(0),
        op::RSH => a.checked_shr(by).unwrap_or(0),
        op::NEG => a.wrapping_neg(),
        _ => return None,
    })
}

impl Instruction {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let instruction = Self {
            code: words.next()?.parse().ok()?,
            jump_true: words.next()?.parse().ok()?,
            jump_false: words.next()?.parse().ok()?,
            k: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(instruction)
    }

    /// Whether it can be at place `at` of `len`.
    fn check(&self, at: usize, len: usize) -> Result<(), BpfError> {
        let Self { code, jump_true, jump_false, k } = *self;
        let (place, left) = (at + 1, len - at - 1);
        let unknown = Err(BpfError::Unknown(place, code));
        match code & 7 {
            class::LD | class::LDX => {
                let (mode, size, is_x) = (code & 0xe0, code & 0x18, code & 7 == class::LDX);
                let known = match mode {
                    mode::IMM | mode::MEM | mode::LEN => size == size::W,
                    mode::ABS | mode::IND => !is_x && matches!(size, size::W | size::H | size::B) && k < ANCILLARY,
                    mode::MSH => is_x && size == size::B,
                    _ => false,
                };
                if !known || code > 0xff {
                    return unknown;
                }
                if mode == mode::MEM && k as usize >= MEMORY {
                    return Err(BpfError::Memory(place));
                }
            }
            class::ST | class::STX => {
                if code & !7 != 0 {
                    return unknown;
                }
                if k as usize >= MEMORY {
                    return Err(BpfError::Memory(place));
                }
            }
            class::ALU => {
                let (what, by_x) = (code & 0xf0, code & FROM_X != 0);
                if code > 0xff || what > op::XOR {
                    return unknown;
                }
                let by_zero = matches!(what, op::DIV | op::MOD) && k == 0;
                let too_far = matches!(what, op::LSH | op::RSH) && k > 31;
                if !by_x && (by_zero || too_far) {
                    return Err(BpfError::Operand(place));
                }
            }
            class::JMP => {
                if code > 0xff || code & 0xf0 > op::JSET {
                    return unknown;
                }
                let farthest = if code & 0xf0 == op::JA { k as usize } else { jump_true.max(jump_false).into() };
                if farthest >= left {
                    return Err(BpfError::Jump(place));
                }
            }
            class::RET => {
                // The constant or A.
                if !matches!(code & !7, 0 | RETURN_A) {
                    return unknown;
                }
            }
            _ => {
                if !matches!(code & !7, 0 | TO_A) {
                    return unknown;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
