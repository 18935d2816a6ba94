//! `classify filter`: which packets `trace add ... filter` and `pcap trace ... filter` take.

use std::fmt::Write as _;

use quiver_command::grammar::{Args, IfRef};
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::{Argument, Execute, Value};
use quiver_net::interface::ops::resolve;
use quiver_net::{IfIndex, Router};
use serde::{Deserialize, Serialize};

use super::{Mask, Match};
use crate::control::Classify;
use crate::filter;
use crate::table::Shape;
use crate::view::{FilterOf, NONE};

/// Memory of a filter's table where no number is given: enough for a thousand sessions.
const MEMORY: u64 = 128 << 10;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<ChangeFilter>().declare::<ShowFilters>();
}

/// What a filter is for: `trace`, `pcap`, or captures on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Target(String);

impl Value for Target {
    const KIND: &'static str = "filter";

    fn take(args: &mut Args<'_>, argument: &Argument, _: usize) -> Result<Self, OpError> {
        args.word(argument.what()).map(|word| Self(word.into_owned()))
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

impl Target {
    fn find(&self, router: &Router) -> Result<FilterOf, OpError> {
        Ok(match self.0.as_str() {
            "trace" => FilterOf::Trace,
            "pcap" => FilterOf::Capture,
            name => FilterOf::Interface(resolve(router, &IfRef(name.to_owned()))?.0),
        })
    }
}

request! {
    /// Chooses the packets that `trace add ... filter' and `pcap trace ... filter' take: those with these values under the mask. Each line adds to what is chosen; `del' without a mask ends the filter.
    pub change ChangeFilter "classify_filter" ["classify filter"] {
        /// For what: `trace`, `pcap` for captures, or the name of an interface for captures on it alone.
        pub target: Target = "<trace|pcap|if>" name("trace, pcap or an interface"),
        /// What is compared: `hex` and bytes of the frame, or fields of `l2`, `l3 ip4`, `l3 ip6` and `l4`.
        pub mask: Option<Mask> = "mask <mask>",
        /// The values.
        pub values: Option<Match> = "match <match>",
        /// Buckets, as VPP's tables have them; the hash here makes as many as it needs.
        pub buckets: u32 = "buckets <n>" default(8),
        /// Memory for the values of a mask, 112 bytes for each.
        pub memory_size: u64 = "memory-size <size>" default(MEMORY),
        /// Takes them no longer.
        pub del: bool = "del",
    }
}

impl Execute<Router> for ChangeFilter {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let of = self.target.find(router)?;
        let missing = |what: &'static str| OpError::unspecified(format!("missing {what}")).key(what);
        let (mask, values) = match (self.mask, self.values) {
            (None, None) if self.del => return filter::set(router, of, None).map(Outcome::Done),
            (None, _) => return Err(missing("mask")),
            (_, None) => return Err(missing("match")),
            (Some(mask), Some(values)) => (mask, values),
        };
        let (skip, mask) = mask.split(None, None)?;
        if self.del {
            return filter::remove(router, of, skip, &mask, &values.0).map(Outcome::Done);
        }
        let shape =
            Shape { mask, skip, buckets: self.buckets, memory: self.memory_size, current_data: false, offset: 0, miss_next: NONE };
        filter::add(router, of, shape, &values.0).map(Outcome::Done)
    }
}

request! {
    /// Shows which classifier tables filter traces and captures.
    pub read ShowFilters "classify_filter_show" ["show classify filter"] {
        /// All tables of each, not only the first.
        pub verbose: bool = "verbose",
    }
}

/// A filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FilterInfo {
    /// `trace`, `pcap`, or the interface whose captures it filters.
    pub target: String,
    /// Its tables, in the order in which they are asked.
    pub tables: Vec<u32>,
}

/// The answer of [`ShowFilters`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FilterList {
    /// Traces, captures, interfaces.
    pub filters: Vec<FilterInfo>,
    #[serde(skip)]
    verbose: bool,
}

impl Execute<Router> for ShowFilters {
    type Reply = FilterList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, FilterList>, OpError> {
        let state = router.state::<Classify>()?;
        let chain = |of| state.filters().get(of).map(|first| state.chain(first)).unwrap_or_default();
        let mut filters = vec![
            FilterInfo { target: "trace".into(), tables: chain(FilterOf::Trace) },
            FilterInfo { target: "pcap".into(), tables: chain(FilterOf::Capture) },
        ];
        for interface in state.filters().interfaces.keys() {
            let target = router.interfaces.name(IfIndex(*interface));
            filters.push(FilterInfo { target, tables: chain(FilterOf::Interface(*interface)) });
        }
        Ok(Outcome::Done(FilterList { filters, verbose: self.verbose }))
    }
}

impl Text for FilterList {
    fn text(&self, out: &mut String, _: &View) {
        let _ = writeln!(out, "{:<30} Table(s)\n{:<30} --------", "Filter Used By", "--------------");
        for FilterInfo { target, tables } in &self.filters {
            let name = match target.as_str() {
                "trace" => "packet tracer:".to_owned(),
                "pcap" => "pcap rx/tx/drop:".to_owned(),
                interface => format!("{interface}:"),
            };
            let (what, shown) = if self.verbose { ("table(s)", tables.len()) } else { ("first table", 1) };
            let mut numbers: Vec<String> = tables.iter().take(shown).map(u32::to_string).collect();
            // VPP's chains end with this word in the long form.
            if self.verbose || numbers.is_empty() {
                numbers.push("none".into());
            }
            let _ = writeln!(out, "{name:<30} {what} {}", numbers.join(" "));
        }
    }
}
