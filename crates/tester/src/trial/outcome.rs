//! What a trial that is over has given: counts, rates, times, and whether all that can be believed.

use std::sync::atomic::Ordering;

use hdrhistogram::Histogram;

use super::{Direction, Plan, Stamped, kernel};
use crate::bench::Bench;
use crate::latency::{Latencies, histogram};
use crate::port::PortSpec;
use crate::profile::Signing;
use crate::report::{Counters, Cpu, DepartureError, DirectionReport, Rates, Signed, StreamReport, Times};
use crate::sink::lock;
use crate::source::Sent;
use crate::stamped::Found;
use crate::units::Rate;

/// What a port had counted before the trial.
pub(crate) struct Before {
    losses: Vec<u64>,
    ring_full: Vec<u64>,
    clocks: Vec<(usize, u64)>,
    ticks: u64,
}

impl Before {
    pub(crate) fn now(bench: &mut Bench) -> Self {
        let ports = bench.ports().len();
        Self {
            losses: (0..ports).map(|p| bench.own_losses(p)).collect(),
            ring_full: (0..ports).map(|p| lock(&bench.inboxes()[p]).ring_full).collect(),
            clocks: bench.clocks(),
            ticks: bench.graph().clock().ticks(),
        }
    }

    /// Frames that a port has lost from then to `after`, and how often its ring may have run over.
    pub(crate) fn own_losses(&self, after: &Self, port: usize) -> (u64, u64) {
        (after.losses[port] - self.losses[port], after.ring_full[port] - self.ring_full[port])
    }
}

/// Part of the time that each thread had frames in hand.
pub(crate) fn busy(bench: &mut Bench, before: &Before, after: &Before) -> Vec<Cpu> {
    let all = after.ticks.wrapping_sub(before.ticks).max(1) as f64;
    let cores: Vec<_> = bench.graph().thread_info().into_iter().map(|t| (t.thread, t.cpu)).collect();
    let roles = |thread: usize, bench: &mut Bench| {
        let mut roles = Vec::new();
        for (at, port) in bench.ports().iter().enumerate() {
            roles.extend(port.tx_threads.contains(&thread).then(|| format!("tx{at}")));
            roles.extend(port.rx_threads.contains(&thread).then(|| format!("rx{at}")));
        }
        roles.join("+")
    };
    let pairs = before.clocks.iter().zip(&after.clocks);
    pairs
        .map(|((thread, was), (_, is))| Cpu {
            thread: roles(*thread, bench),
            core: cores.iter().find(|(t, _)| t == thread).and_then(|(_, core)| *core),
            busy: (is.wrapping_sub(*was) as f64 / all).min(1.0),
        })
        .collect()
}

/// What to look at where frames left and none came back: most often the device never took them.
fn nothing_back(c: &Counters, from: &PortSpec) -> Option<String> {
    if c.sent == 0 || c.received > 0 {
        return None;
    }
    let look = match from.dst_mac {
        Some(mac) => format!("is {mac} the Ethernet address of the device's port? (dst-mac; gateway=… asks for it)"),
        None => "does the device forward them to this port?".to_owned(),
    };
    Some(format!("nothing came back of {} frames: {look}", c.sent))
}

/// The report of a direction that is over; what makes the trial not valid goes to `reasons`.
pub(super) fn finish(
    bench: &mut Bench,
    mut direction: Direction,
    seconds: f64,
    plan: &Plan,
    (before, after): (&Before, &Before),
    reasons: &mut Vec<String>,
) -> DirectionReport {
    let (tx, rx) = (direction.tx, direction.rx);
    let mut receiver = lock(&bench.inboxes()[rx]).receiver.take();
    let with_core = !bench.ports()[rx].spec.rx_cores.is_empty();
    if let (Some(engine), Some(receiver)) = (&mut bench.ports()[rx].kernel, &mut receiver) {
        reasons.extend(kernel::absorb(engine, receiver, with_core).map(|why| format!("{}: {why}", direction.name)));
    }
    let mut found = direction.stamped.take().map_or_else(Found::default, Stamped::finish);
    reasons.extend(found.failed.map(|why| format!("{}: {why}", direction.name)));
    let mut all = Latencies::default();
    let mut streams = Vec::new();
    let mut counters = Counters::default();
    let mut rates = Rates::default();
    for (at, stream) in direction.streams.iter().enumerate() {
        let sum = |of: fn(&Sent) -> &Vec<std::sync::atomic::AtomicU64>| -> u64 {
            direction.sent.iter().map(|s| of(s)[at].load(Ordering::Relaxed)).sum()
        };
        let (sent, bytes) = (sum(|s| &s.frames), sum(|s| &s.bytes));
        let ids = at * direction.threads..(at + 1) * direction.threads;
        // Without an end the intention is what was sent.
        let intended = direction.planned[ids.clone()].iter().map(|n| n.unwrap_or(0)).sum::<u64>().max(sent);
        let mut c = Counters { intended, sent, unsent: intended - sent, ..Counters::default() };
        let mut latencies = Latencies::default();
        let signature = stream.signing();
        let mut signed = None;
        if let Some(receiver) = &receiver {
            for flow in receiver.flows().get(ids).unwrap_or_default() {
                let a = flow.arrivals();
                (c.received, c.duplicated) = (c.received + a.received, c.duplicated + a.duplicated);
                (c.reordered, c.late) = (c.reordered + a.reordered, c.late + a.late);
                latencies.merge(flow.latencies());
            }
            if signature != Signing::Full {
                let with = direction.sent.iter().map(|s| direction.signed[at].among(s.frames[at].load(Ordering::Relaxed))).sum();
                let part = Signed { sent: with, received: c.received, lost: with.saturating_sub(c.received) };
                signed = (signature == Signing::Part).then_some(part);
                let (n, bare) = (receiver.counted().unwrap_or(0), sent - with.min(sent));
                // Without numbers, more than were sent are copies.
                (c.received, c.duplicated) = (c.received + n.min(bare), c.duplicated + n.saturating_sub(bare));
            }
        }
        c.lost = sent.saturating_sub(c.received);
        let mean_bits = 8.0 * bytes as f64 / sent.max(1) as f64;
        let [tx_pps, rx_pps] = [sent, c.received].map(|n| n as f64 / seconds);
        let r = Rates { tx_pps, rx_pps, tx_l2_bps: tx_pps * mean_bits, rx_l2_bps: rx_pps * mean_bits };
        rates = Rates {
            tx_pps: rates.tx_pps + r.tx_pps,
            rx_pps: rates.rx_pps + r.rx_pps,
            tx_l2_bps: rates.tx_l2_bps + r.tx_l2_bps,
            rx_l2_bps: rates.rx_l2_bps + r.rx_l2_bps,
        };
        counters.add(&c);
        all.merge(&latencies);
        let (name, times) = (stream.name.clone(), Times::of(&latencies));
        let place = found.streams.iter().position(|(of, _)| *of == at);
        let timestamps = place.map(|place| found.streams.swap_remove(place).1);
        let doubt = timestamps.as_ref().and_then(|timed| timed.doubt(c.received));
        reasons.extend(doubt.map(|why| format!("{}: stream {name}: {why}", direction.name)));
        let counted_only = signature == Signing::None;
        streams.push(StreamReport { id: at, name, counted_only, signature, signed, counters: c, rates: r, times, timestamps });
    }
    if let Some(receiver) = &receiver {
        (counters.foreign, counters.corrupted) = (receiver.foreign(), receiver.corrupted());
    }
    let errors = departure_errors(&direction);
    let hint = nothing_back(&counters, &bench.ports()[tx].spec);
    let name = direction.name;
    let mut say = |text: String| reasons.push(format!("{name}: {text}"));
    if counters.unsent > 0 {
        let part = 100.0 * counters.sent as f64 / counters.intended.max(1) as f64;
        say(format!("the rate was not reached: {} of {} frames sent ({part:.2} %)", counters.sent, counters.intended));
    }
    let refused: u64 = direction.sent.iter().map(|s| s.refused.load(Ordering::Relaxed)).sum();
    if refused > 0 {
        say(format!("the sending device refused {refused} frames"));
    }
    let is_paced = plan.rate != Some(Rate::Max);
    let departure_error_ns = match errors {
        Some(e) if is_paced => {
            let p99 = e.value_at_quantile(0.99);
            if p99 > plan.departure_limit.as_nanos() as u64 {
                say(format!("pacing failed: 1 % of the frames left {:.3} ms late or more", p99 as f64 / 1e6));
            }
            DepartureError { mean: e.mean(), p99: p99 as f64, max: e.max() as f64 }
        }
        _ => DepartureError::default(),
    };
    let (own, full) = before.own_losses(after, rx);
    if own > 0 {
        say(format!("the tester's own receive path lost {own} frames"));
    }
    if full > 0 && counters.lost > 0 {
        say(format!(
            "frames are lost, and the tester's own receive ring may have run over {full} times: it was not emptied in time"
        ));
    }
    DirectionReport {
        name: name.to_owned(),
        tx: bench.ports()[tx].spec.to_string(),
        rx: bench.ports()[rx].spec.to_string(),
        counters,
        rates,
        departure_error_ns,
        times: Times::of(&all),
        streams,
        series: direction.series,
        hint,
    }
}

fn departure_errors(direction: &Direction) -> Option<Histogram<u64>> {
    let mut all = histogram();
    for sent in &direction.sent {
        let errors = sent.errors.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Both have the same bounds.
        let _ = all.add(&*errors);
    }
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_nobody_took_have_a_hint_at_what_may_be_wrong() {
        let of = |sent, received, port: &str| {
            nothing_back(&Counters { sent, received, ..Counters::default() }, &port.parse().expect("a port"))
        };
        let wrong = of(5, 0, "af-packet:left,dst-mac=02:00:00:00:00:01").expect("a hint");
        assert!(wrong.starts_with("nothing came back of 5 frames: is 02:00:00:00:00:01 "), "{wrong}");
        let asked = of(5, 0, "af-packet:left,ip4=192.0.2.1/24,gateway=192.0.2.9").expect("a hint");
        assert!(asked.contains("does the device forward them"), "{asked}");
        assert_eq!((of(5, 1, "af-packet:left"), of(0, 0, "af-packet:left")), (None, None));
    }
}
