//! What sends frames with times on a port, and what takes the times: packet sockets on devices of the kernel's, DPDK on its own.

use std::io;

use quiver_drivers::stamped::{CardClock, StampedRx, StampedTx, Tail};

use super::{TimesError, Timestamps};
use crate::bench::Bench;
use crate::port::Engine;

/// A frame was written to the buffer: its bytes, and its time, ns of the clock, where it has one.
pub(crate) type Told = io::Result<Option<(usize, Option<u64>)>>;

/// Sends single frames, and tells when they left.
pub(crate) trait TimedSender: Send {
    /// Sends a frame; `false` where there is no room for it now.
    fn send(&mut self, frame: &[u8]) -> io::Result<bool>;
    /// Takes a frame that has left; `None` where none waits.
    fn departed(&mut self, buffer: &mut [u8]) -> Told;
}

/// Tells when frames came.
pub(crate) trait TimedReceiver: Send {
    /// Takes a frame that has come; `None` where none waits.
    fn arrived(&mut self, buffer: &mut [u8]) -> Told;
}

impl TimedSender for StampedTx {
    fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        Self::send(self, frame)
    }

    fn departed(&mut self, buffer: &mut [u8]) -> Told {
        Self::departed(self, buffer)
    }
}

impl TimedReceiver for StampedRx {
    fn arrived(&mut self, buffer: &mut [u8]) -> Told {
        Self::arrived(self, buffer)
    }
}

/// Both ends of a direction.
pub(super) struct Ends {
    pub tx: Box<dyn TimedSender>,
    pub rx: Box<dyn TimedReceiver>,
    /// They give times for as long as these live.
    pub _cards: Vec<CardClock>,
}

/// The devices that send and receive a direction's frames.
enum Devices {
    Kernel(String, String),
    Dpdk(Engine, Engine),
}

fn devices(bench: &mut Bench, (tx, rx): (usize, usize), clock: Timestamps) -> Result<Devices, TimesError> {
    let [from, to] = [tx, rx].map(|at| bench.ports()[at].spec.clone());
    let able = |engine: &Engine| matches!(engine, Engine::AfPacket(_) | Engine::Dpdk(_));
    match (from.engine.clone(), to.engine.clone()) {
        (Engine::AfPacket(from), Engine::AfPacket(to)) => Ok(Devices::Kernel(from, to)),
        (Engine::Dpdk(_), Engine::Dpdk(_)) if clock == Timestamps::Kernel => Err(TimesError::Unseen(from.to_string())),
        (from, to @ Engine::Dpdk(_)) if matches!(from, Engine::Dpdk(_)) => Ok(Devices::Dpdk(from, to)),
        (engine, _) if !able(&engine) => Err(TimesError::Port(from.to_string())),
        (_, engine) if !able(&engine) => Err(TimesError::Port(to.to_string())),
        _ => Err(TimesError::Kinds(from.to_string(), to.to_string())),
    }
}

/// Has the ports of a direction give times, where that takes a new start of a device: before anybody waits for its link.
///
/// # Errors
/// They give no such times.
pub(crate) fn switch_on(bench: &mut Bench, ports: (usize, usize), clock: Timestamps) -> Result<(), TimesError> {
    match devices(bench, ports, clock)? {
        Devices::Kernel(..) => Ok(()),
        Devices::Dpdk(from, to) => bench.switch_times_on([&from, &to]).map_err(TimesError::Dpdk),
    }
}

/// Opens both ends of a direction, for frames that end as `tail` says.
pub(super) fn open(bench: &mut Bench, ports: (usize, usize), clock: Timestamps, tail: Tail) -> Result<Ends, TimesError> {
    let (from, to) = match devices(bench, ports, clock)? {
        Devices::Kernel(from, to) => (from, to),
        Devices::Dpdk(from, to) => {
            let (tx, rx) = bench.timed([&from, &to], tail).map_err(TimesError::Dpdk)?;
            return Ok(Ends { tx, rx, _cards: Vec::new() });
        }
    };
    let mut cards = Vec::new();
    if clock == Timestamps::Card {
        let sends = CardClock::switch_on(&from)?;
        // A device that sends and receives is one card.
        let receives = if from == to { None } else { Some(CardClock::switch_on(&to)?) };
        if let Some(other) = receives.as_ref().filter(|other| other.number() != sends.number()) {
            let [tx, rx] = [ports.0, ports.1].map(|at| bench.ports()[at].spec.to_string());
            return Err(TimesError::Clocks { tx, rx, clocks: (sends.number(), other.number()) });
        }
        cards = [Some(sends), receives].into_iter().flatten().collect();
    }
    let (tx, rx) = (StampedTx::open(&from, clock.clock())?, StampedRx::open(&to, clock.clock(), tail)?);
    Ok(Ends { tx: Box::new(tx), rx: Box::new(rx), _cards: cards })
}
