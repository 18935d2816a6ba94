//! What one thread chooses and sends.

use quiver_net::local::datagram::{Outbox, Ready, Sends, UdpPath};
use quiver_net::{Due, Timed};

use crate::datagram::{COUNTERS_SAMPLE_LEN, Counters, Datagram, FlowSample, flow_sample_len};

/// Most bytes of a sampled frame.
pub const HEADER_MAX: usize = 256;
/// How long a sample waits for others in the same datagram, ns. The standard allows a second (section 4.2.5).
const WAIT: u64 = 500_000_000;

/// Where datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Addresses, ports and FIB; the source is the agent's address too.
    pub path: UdpPath,
    /// Largest IP packet, bytes.
    pub path_mtu: u16,
}

/// How samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// One frame in so many is sampled, by chance.
    pub rate: u32,
    /// Bytes of each that are sent.
    pub header: usize,
}

/// What became of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Samples of frames.
    pub flow_samples: u64,
    /// Samples of counters.
    pub counter_samples: u64,
    /// Samples that had no collector to go to.
    pub homeless: u64,
}

/// What is counted of an interface that is sampled.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    pool: u32,
    sequence: u32,
    counters: u32,
}

/// The sampler of a thread: a sub-agent.
#[derive(Debug)]
pub struct Sampler {
    sub_agent: u32,
    settings: Settings,
    to: Option<Destination>,
    sources: Vec<Source>,
    /// Frames until the next one is chosen.
    skip: u32,
    random: u64,
    datagram: Datagram,
    /// Finished datagrams.
    pub outbox: Outbox,
    sequence: u32,
    send_by: u64,
    /// When it began.
    since: u64,
    /// What became of samples.
    pub totals: Totals,
}

/// A thread's sampler, for its nodes and for what main sends it to do.
pub type Shared = Timed<Sampler>;

impl Sampler {
    /// One of a thread. `seed`: of what is chosen.
    pub fn new(thread: usize, settings: Settings, seed: u64) -> Self {
        Self {
            sub_agent: thread as u32,
            settings,
            to: None,
            sources: Vec::new(),
            skip: 0,
            random: seed ^ (thread as u64).rotate_left(32),
            datagram: Datagram::default(),
            outbox: Outbox::default(),
            sequence: 0,
            send_by: u64::MAX,
            since: 0,
            totals: Totals::default(),
        }
    }

    /// Sets how samples are taken from now on, and makes room for interfaces up to this number.
    pub fn set(&mut self, settings: Settings, interfaces: usize) {
        if settings.rate != self.settings.rate {
            self.settings = settings;
            self.skip = self.next_skip();
        }
        self.settings = settings;
        self.sources.resize(self.sources.len().max(interfaces), Source::default());
    }

    /// Where datagrams go.
    pub const fn destination(&self) -> Option<&Destination> {
        self.to.as_ref()
    }

    /// Begins anew, towards another collector or none. What was not sent is lost.
    pub fn set_destination(&mut self, to: Option<Destination>, now: u64) {
        if self.to == to {
            return;
        }
        self.outbox.clear();
        if !self.datagram.is_empty() {
            self.outbox.lost(1, self.datagram.samples());
        }
        self.datagram = Datagram::default();
        (self.to, self.sequence, self.send_by, self.since) = (to, 0, u64::MAX, now);
    }

    /// How many bytes of a frame are sent.
    pub const fn header(&self) -> usize {
        self.settings.header
    }

    /// Frames to be passed over: so many that one in the rate is chosen in the mean, no matter what pattern they have.
    fn next_skip(&mut self) -> u32 {
        // splitmix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // 0 to 2 (rate - 1), each as likely.
        let most = 2 * u64::from(self.settings.rate.saturating_sub(1)) + 1;
        ((u128::from(z) * u128::from(most)) >> 64) as u32
    }

    /// Counts a frame of an interface; whether it is chosen.
    #[inline(always)]
    pub fn choose(&mut self, source: u32) -> bool {
        if let Some(source) = self.sources.get_mut(source as usize) {
            source.pool = source.pool.wrapping_add(1);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.skip = self.next_skip();
        true
    }

    /// Takes a sample of a frame of `len` bytes.
    pub fn sample(&mut self, source: u32, input: u32, output: u32, len: u32, header: &[u8], now: u64) {
        let Some(of) = self.sources.get_mut(source as usize) else { return };
        of.sequence = of.sequence.wrapping_add(1);
        let Source { pool, sequence, .. } = *of;
        let (rate, drops) = (self.settings.rate, self.outbox.totals().lost_items as u32);
        let sample = FlowSample { sequence, source, rate, pool, drops, input, output, len, header };
        if self.push(flow_sample_len(header.len()), now, |out| sample.write(out)) {
            self.totals.flow_samples += 1;
        }
    }

    /// Takes a sample of an interface's counters.
    pub fn counters(&mut self, counters: &Counters, now: u64) {
        let Some(of) = self.sources.get_mut(counters.index as usize) else { return };
        of.counters = of.counters.wrapping_add(1);
        let sequence = of.counters;
        if self.push(COUNTERS_SAMPLE_LEN, now, |out| counters.write(sequence, out)) {
            self.totals.counter_samples += 1;
        }
    }

    fn push(&mut self, len: usize, now: u64, sample: impl FnOnce(&mut Vec<u8>)) -> bool {
        let Some(to) = self.to else {
            self.totals.homeless += 1;
            return false;
        };
        let most = usize::from(to.path_mtu).saturating_sub(to.path.headers());
        if !self.datagram.fits(&to.path.src, len, most) {
            self.finish(now);
        }
        if self.datagram.is_empty() {
            self.send_by = now.saturating_add(WAIT);
        }
        self.datagram.push(&to.path.src, sample);
        true
    }

    fn finish(&mut self, now: u64) {
        self.send_by = u64::MAX;
        let Some(to) = self.to.filter(|_| !self.datagram.is_empty()) else { return };
        self.sequence = self.sequence.wrapping_add(1);
        let (samples, uptime) = (self.datagram.samples(), (now.saturating_sub(self.since) / 1_000_000) as u32);
        let room = self.outbox.room();
        let data = self.datagram.finish(&to.path.src, self.sub_agent, self.sequence, uptime, room);
        self.outbox.push(Ready { data, items: samples });
    }

    /// Has all that was sampled sent now.
    pub fn flush(&mut self, now: u64) {
        self.finish(now);
    }
}

impl Due for Sampler {
    fn due(&self) -> u64 {
        if self.outbox.is_empty() { self.send_by } else { 0 }
    }
}

impl Sends for Sampler {
    fn tick(&mut self, now: u64) {
        if self.send_by <= now {
            self.finish(now);
        }
    }

    fn outbox(&mut self) -> (Option<UdpPath>, &mut Outbox) {
        (self.to.map(|to| to.path), &mut self.outbox)
    }
}
