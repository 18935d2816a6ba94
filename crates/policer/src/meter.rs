//! The algorithms: two buckets of tokens, and which colour a packet gets. Pure numbers.
//!
//! | type | committed bucket | excess bucket | a green packet takes from |
//! |---|---|---|---|
//! | 1r2c | CIR, CBS | none | committed |
//! | 1r3c, RFC 2697 | CIR, CBS | what the committed one cannot hold, EBS | committed |
//! | 2r3c, RFC 2698 | CIR, CBS | PIR, PBS | both |
//! | 2r3c, RFC 4115 | CIR, CBS | EIR, EBS | committed |
//! | 2r3c, MEF 10.1 7.11.1 with the coupling flag | CIR, CBS | EIR and what the committed one cannot hold, EBS | committed |
//!
//! `eir` of RFC 2698 and RFC 4115 is the peak rate, as in VPP: RFC 4115's excess rate is what it has above `cir`.

use quiver_command::operation::{OpError, retval};

/// What a packet is to a policer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// Green.
    Conform = 0,
    /// Yellow.
    Exceed = 1,
    /// Red.
    Violate = 2,
}

quiver_command::words! {
    /// Algorithm.
    pub enum Kind {
        /// One rate, two colours: no packet exceeds.
        OneRate = "1r2c",
        /// RFC 2697.
        Rfc2697 = "1r3c",
        /// RFC 2698.
        Rfc2698 = "2r3c-2698",
        /// RFC 4115.
        Rfc4115 = "2r3c-4115",
        /// MEF 10.1, 7.11.1, with the coupling flag.
        Mef5Cf1 = "2r3c-mef5cf1",
    }
}

quiver_command::words! {
    /// What is counted.
    pub enum Unit {
        /// Rates in kbit/s, bursts in bytes.
        Kbps = "kbps",
        /// Rates in packets/s, bursts in ms.
        Pps = "pps",
    }
}

/// Rates and bursts, as they are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Algorithm.
    pub kind: Kind,
    /// What is counted.
    pub unit: Unit,
    /// Committed rate.
    pub cir: u32,
    /// Peak rate; of MEF the excess rate.
    pub eir: u32,
    /// Committed burst.
    pub cb: u64,
    /// Excess burst.
    pub eb: u64,
}

/// Tokens of a byte: a kbit/s is one token a nanosecond.
const PER_BYTE: u64 = 8_000_000;
/// Tokens of a packet: a packet a second is one token a nanosecond.
const PER_PACKET: u64 = 1_000_000_000;
/// Tokens of a packet for each ms of a burst and packet a second.
const PER_MS: u64 = PER_PACKET / 1000;

/// What an algorithm works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tokens a nanosecond: committed, excess.
    rates: [u64; 2],
    /// Sizes of the buckets, tokens.
    sizes: [u64; 2],
    /// Whether what the committed bucket cannot hold goes into the other one.
    spills: bool,
    /// Whether a green packet takes from both.
    joint: bool,
    color_aware: bool,
    per_byte: u64,
    per_packet: u64,
}

/// How full the buckets are, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Committed bucket, tokens.
    pub committed: u64,
    /// Excess bucket, tokens.
    pub excess: u64,
    /// Time, ns.
    pub at: u64,
}

impl Rates {
    /// What the algorithm works with.
    ///
    /// # Errors
    /// Rates or bursts that do not belong to the type, or that are missing. All zero is a policer that every packet violates.
    pub fn limits(&self, color_aware: bool) -> Result<Limits, OpError> {
        let Self { kind, cir, eir, cb, eb, .. } = *self;
        if (cir, cb, eb) != (0, 0, 0) {
            self.check()?;
        }
        let size = |rate: u32, burst: u64| match self.unit {
            // VPP's buckets have 32 bits too.
            Unit::Kbps => burst.min(u32::MAX.into()) * PER_BYTE,
            Unit::Pps if rate == 0 || burst == 0 => 0,
            // At least one packet, or none would ever conform.
            Unit::Pps => u64::from(rate).saturating_mul(burst).saturating_mul(PER_MS).max(PER_PACKET),
        };
        let excess = match kind {
            Kind::OneRate | Kind::Rfc2697 => 0,
            Kind::Rfc4115 => eir.saturating_sub(cir),
            Kind::Rfc2698 | Kind::Mef5Cf1 => eir,
        };
        let excess_burst_rate = if kind == Kind::Rfc2697 { cir } else { eir };
        let (per_byte, per_packet) = if self.unit == Unit::Kbps { (PER_BYTE, 0) } else { (0, PER_PACKET) };
        Ok(Limits {
            rates: [cir.into(), excess.into()],
            sizes: [size(cir, cb), size(excess_burst_rate, eb)],
            spills: matches!(kind, Kind::Rfc2697 | Kind::Mef5Cf1),
            joint: kind == Kind::Rfc2698,
            color_aware,
            per_byte,
            per_packet,
        })
    }

    fn check(&self) -> Result<(), OpError> {
        let Self { kind, cir, eir, cb, eb, .. } = *self;
        let wrong = |key: &'static str, value: u64, text: &str| {
            Err(OpError::new(retval::INVALID_VALUE, format!("invalid {key} `{value}'; {text}")).key(key).value(value))
        };
        if cir == 0 {
            return wrong("cir", 0, "a committed rate is needed");
        }
        if matches!(kind, Kind::OneRate | Kind::Rfc2697) {
            return match () {
                () if eir != 0 => wrong("eir", eir.into(), "a policer of one rate has cir only"),
                () if kind == Kind::OneRate && eb != 0 => wrong("eb", eb, "a policer of type 1r2c has no excess burst"),
                () if cb == 0 && eb == 0 => wrong("cb", cb, "a burst is needed"),
                () => Ok(()),
            };
        }
        match () {
            () if eir == 0 => wrong("eir", 0, "a policer of two rates needs the second one"),
            () if kind != Kind::Mef5Cf1 && eir < cir => wrong("eir", eir.into(), "the peak rate is at least cir"),
            () if cb == 0 => wrong("cb", 0, "a burst is needed"),
            () if eb == 0 => wrong("eb", 0, "a policer of two rates needs an excess burst"),
            () => Ok(()),
        }
    }
}

impl Limits {
    /// Full buckets.
    pub const fn full(&self, at: u64) -> Tokens {
        Tokens { committed: self.sizes[0], excess: self.sizes[1], at }
    }

    /// Tokens that packets of so many bytes together cost.
    #[inline(always)]
    const fn cost(&self, packets: u64, bytes: u64) -> u64 {
        bytes.saturating_mul(self.per_byte).saturating_add(packets.saturating_mul(self.per_packet))
    }

    /// Adds what has come in since.
    #[inline(always)]
    pub fn refill(&self, tokens: &mut Tokens, now: u64) {
        // Clocks of threads are read one after the other: a policer that moves may see an earlier time.
        let passed = now.saturating_sub(tokens.at);
        if passed == 0 {
            return;
        }
        tokens.at = now;
        let committed = tokens.committed.saturating_add(passed.saturating_mul(self.rates[0]));
        tokens.committed = committed.min(self.sizes[0]);
        let spilled = if self.spills { committed - tokens.committed } else { 0 };
        let excess = tokens.excess.saturating_add(passed.saturating_mul(self.rates[1])).saturating_add(spilled);
        tokens.excess = excess.min(self.sizes[1]);
    }

    /// The colour of a packet, which takes its tokens. `input`: the colour that it has already, of use where the policer is aware of it.
    #[inline(always)]
    pub fn color(&self, tokens: &mut Tokens, bytes: u64, input: Color) -> Color {
        let cost = self.cost(1, bytes);
        let input = if self.color_aware { input } else { Color::Conform };
        let (green, yellow) = (tokens.committed >= cost, tokens.excess >= cost);
        if input == Color::Conform && green && (yellow || !self.joint) {
            tokens.committed -= cost;
            tokens.excess -= if self.joint { cost } else { 0 };
            return Color::Conform;
        }
        if input != Color::Violate && yellow {
            tokens.excess -= cost;
            return Color::Exceed;
        }
        Color::Violate
    }

    /// Whether packets of so many bytes together all conform, one after the other; they take their tokens then.
    #[inline(always)]
    pub fn all_conform(&self, tokens: &mut Tokens, packets: u64, bytes: u64) -> bool {
        let cost = self.cost(packets, bytes);
        let all = tokens.committed >= cost && (tokens.excess >= cost || !self.joint);
        if all {
            tokens.committed -= cost;
            tokens.excess -= if self.joint { cost } else { 0 };
        }
        all
    }

    /// Whether one rate fills both buckets.
    pub const fn is_single(&self) -> bool {
        self.rates[1] == 0 && !self.joint
    }

    /// Whether the colour that packets have already counts.
    pub const fn is_color_aware(&self) -> bool {
        self.color_aware
    }

    /// The buckets in bytes (packets, where the rate is in packets) shifted to the left by a scale, as VPP shows them.
    pub fn shown(&self, tokens: &Tokens) -> Shown {
        let unit = u128::from(self.per_byte.max(self.per_packet));
        // Of one rate, VPP's second bucket has what the first has too.
        let both = |committed: u64, excess: u64| if self.spills { committed.saturating_add(excess) } else { excess };
        let limits = [self.sizes[0], both(self.sizes[0], self.sizes[1])];
        let largest = (u128::from(limits[0].max(limits[1])) / unit).max(1);
        let scale = (u64::from(u32::MAX) as u128 / largest).checked_ilog2().unwrap_or(0).min(MAX_SCALE);
        let scaled = |number: u128| u32::try_from((number << scale) / unit).unwrap_or(u32::MAX);
        let period = |rate: u64| scaled(u128::from(rate) << PERIOD_SHIFT);
        Shown {
            scale,
            per_period: self.rates.map(period),
            limits: limits.map(|limit| scaled(limit.into())),
            buckets: [tokens.committed, both(tokens.committed, tokens.excess)].map(|bucket| scaled(bucket.into())),
            last: tokens.at >> PERIOD_SHIFT,
        }
    }
}

/// A period of VPP's at a clock of 1 GHz: 2^17 ns.
const PERIOD_SHIFT: u32 = 17;
/// The scale is at most so large: it is only to be seen.
const MAX_SCALE: u32 = 16;

/// Buckets as VPP shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Shown {
    /// By how many bits all others are shifted to the left.
    pub scale: u32,
    /// What is added in a period of 2^17 ns.
    pub per_period: [u32; 2],
    /// Sizes of the buckets.
    pub limits: [u32; 2],
    /// What is in them.
    pub buckets: [u32; 2],
    /// Number of the period in which a packet came last.
    pub last: u64,
}

#[cfg(test)]
mod tests;
