//! `show policer`.

use std::fmt::Write as _;

use quiver_command::operation::{OpError, Outcome, Text, View};
use quiver_command::request;
use quiver_command::request::{Execute, Value as _};
use quiver_net::Router;
use serde::Serialize;

use super::{AddPolicer, which};
use crate::control::Policers;
use crate::meter;

request! {
    /// Shows policers: rates, buckets, and how many packets conform, exceed and violate.
    pub read ShowPolicers "policer_show" ["show policer"] {
        /// One, by its name; all where neither is said.
        pub name: Option<String> = "name <name>",
        /// One, by its number.
        pub index: Option<u32> = "index <n>",
    }
}

/// Packets and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A policer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicerInfo {
    /// Its number.
    pub index: u32,
    /// What it does.
    #[serde(flatten)]
    pub request: AddPolicer,
    /// Whether one rate fills both buckets.
    pub single_rate: bool,
    /// Its buckets.
    pub buckets: meter::Shown,
    /// Number of the worker that it is bound to.
    pub worker: Option<u32>,
    /// The thread that has it.
    pub thread: Option<usize>,
    /// Packets that conform.
    pub conform: Count,
    /// Packets that exceed.
    pub exceed: Count,
    /// Packets that violate.
    pub violate: Count,
}

/// The answer of [`ShowPolicers`].
#[derive(Debug, Clone, Serialize)]
pub struct Shown {
    /// By number.
    pub policers: Vec<PolicerInfo>,
}

impl Text for Shown {
    fn text(&self, out: &mut String, _: &View) {
        for one in &self.policers {
            let _ = policer(one, out);
        }
    }
}

fn policer(one: &PolicerInfo, out: &mut String) -> std::fmt::Result {
    let PolicerInfo { index, request, buckets, .. } = one;
    let AddPolicer { name, kind, cir, eir, cb, eb, rate, round, .. } = request;
    writeln!(out, "Name \"{name}\" type {} cir {cir} eir {eir} cb {cb} eb {eb}", kind.text())?;
    writeln!(out, "rate type {}, round type {}", rate.text(), round.text())?;
    let actions = [request.conform_action, request.exceed_action, request.violate_action].map(|action| action.text());
    writeln!(out, "conform action {}, exceed action {}, violate action {}", actions[0], actions[1], actions[2])?;
    let (rates, aware) = (if one.single_rate { "single" } else { "dual" }, if request.color_aware { "is" } else { "not" });
    writeln!(out, "Policer at index {index}: {rates} rate, {aware} color-aware")?;
    let [cir, pir] = buckets.per_period;
    writeln!(out, "cir {cir} tok/period, pir {pir} tok/period, scale {}", buckets.scale)?;
    let ([limit, extended], [bucket, extra]) = (buckets.limits, buckets.buckets);
    writeln!(out, "cur lim {limit}, cur bkt {bucket}, ext lim {extended}, ext bkt {extra}")?;
    writeln!(out, "last update {}", buckets.last)?;
    if let Some(worker) = one.worker {
        writeln!(out, "bound to worker {worker}")?;
    }
    for (word, Count { packets, bytes }) in [("conform", one.conform), ("exceed", one.exceed), ("violate", one.violate)] {
        writeln!(out, "{word} {packets} packets, {bytes} bytes")?;
    }
    writeln!(out, "-----------")
}

impl Execute<Router> for ShowPolicers {
    type Reply = Shown;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Shown>, OpError> {
        let one = match (&self.name, self.index) {
            (None, None) => None,
            (name, index) => Some(which(router, name.as_deref(), index)?),
        };
        Ok(Outcome::Done(shown(router, one)?))
    }
}

/// What is shown, of one policer or of all.
///
/// # Errors
/// The plugin is off.
pub fn shown(router: &Router, one: Option<u32>) -> Result<Shown, OpError> {
    let state = router.state::<Policers>()?;
    let chosen = state.entries().filter(|(index, _)| one.is_none_or(|one| one == *index));
    let info = |(index, entry): (u32, &crate::control::Entry)| {
        let [conform, exceed, violate] = state.counts(index).map(|(packets, bytes)| Count { packets, bytes });
        let policer = &entry.policer;
        PolicerInfo {
            index,
            request: AddPolicer::of(entry.name.clone(), &entry.config),
            single_rate: policer.limits.is_single(),
            buckets: policer.limits.shown(&policer.tokens()),
            worker: entry.worker,
            thread: policer.owner(),
            conform,
            exceed,
            violate,
        }
    };
    Ok(Shown { policers: chosen.map(info).collect() })
}
