//! `set interface rss`, `set interface handoff`, `show interface rss`: flows of an interface spread over workers by software.
//!
//! `set interface handoff` is VPP's command with VPP's defaults (no ports in the hash, each direction of a flow for itself);
//! `set interface rss` takes ports into the hash.

use std::fmt::Write as _;

use quiver_command::configuration::{Configuration, Stage, each};
use quiver_command::document::Shape;
use quiver_command::grammar::{Args, IfRef, quote};
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use quiver_graph::topology::parse_cpu_list;
use serde::{Deserialize, Serialize};

use crate::interface::configuration::{named, numbers};
use crate::interface::ops::{chosen, resolve};
use crate::rss::{HashInput, RssConfig};
use crate::{IfIndex, Router};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetRss>().declare::<ShowRss>();
    registry
        .configuration(Stage::Links, |router| each(numbers(router), spread))
        .shapes(Stage::Links, SHAPES)
        .covers(&["interface_rss_set"]);
}

fn parse(args: &mut Args<'_>, l4: bool) -> Result<SetRss, OpError> {
    let interface = args.interface()?;
    let mut request = SetRss { interface, workers: Vec::new(), symmetric: false, l4 };
    if args.take_keyword("disable") {
        return Ok(request);
    }
    args.expect_keyword("workers")?;
    let list = args.word("workers")?;
    request.workers = parse_cpu_list(&list).map(|list| list.into_iter().map(|n| n as u16).collect()).map_err(|_| {
        let error = OpError::new(retval::INVALID_VALUE, format!("`{list}' is no list of workers"));
        error.key("workers").value(&list).remedy("such as 0-2,5")
    })?;
    while !args.is_empty() {
        match args.expect_one_of(&[
            ("symmetrical", Word::Symmetric(true)),
            ("symmetric", Word::Symmetric(true)),
            ("asymmetrical", Word::Symmetric(false)),
            ("l4", Word::L4),
            ("disable", Word::Disable),
        ])? {
            Word::Symmetric(on) => request.symmetric = on,
            Word::L4 => request.l4 = true,
            Word::Disable => request.workers.clear(),
        }
    }
    Ok(request)
}

fn command(SetRss { interface, workers, symmetric, l4 }: &SetRss) -> Option<String> {
    let interface = quote(interface.as_str());
    let list = workers.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    Some(match (workers.is_empty(), l4, symmetric) {
        (true, true, _) => format!("set interface rss {interface} disable"),
        (true, false, _) => format!("set interface handoff {interface} disable"),
        (false, true, true) => format!("set interface rss {interface} workers {list} symmetric"),
        (false, true, false) => format!("set interface rss {interface} workers {list}"),
        (false, false, true) => format!("set interface handoff {interface} workers {list} symmetrical"),
        (false, false, false) => format!("set interface handoff {interface} workers {list}"),
    })
}

/// What is said of an interface in the running configuration.
fn spread(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    let (Some(interface), Some(config)) = (router.interfaces.get(*index), router.rss(*index)) else { return };
    let workers = config.workers.iter().filter_map(|worker| u16::try_from(*worker).ok()).collect();
    let HashInput { symmetric, l4 } = config.input;
    // Whatever the hash, the same request ends it.
    let undo = SetRss { interface: named(interface), workers: Vec::new(), symmetric: false, l4: true };
    out.push(&SetRss { interface: named(interface), workers, symmetric, l4 }).undo(&undo).replaced();
}

#[derive(Clone, Copy)]
enum Word {
    Symmetric(bool),
    L4,
    Disable,
}

/// Spreads the flows of an interface over workers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRss {
    /// Interface.
    pub interface: IfRef,
    /// Workers, from 0; none: all packets stay with the worker that polls.
    #[serde(default)]
    pub workers: Vec<u16>,
    /// Both directions of a flow go to the same worker.
    #[serde(default)]
    pub symmetric: bool,
    /// Ports count.
    #[serde(default)]
    pub l4: bool,
}

commands! {
    change SetRss "interface_rss_set" {
        /// Spreads the flows of an interface over workers, numbered from 0, by addresses, protocol and ports.
        ["set interface rss"] "<if> workers <list> [symmetric] | <if> disable" by |args| parse(args, true) => command,
        /// Spreads the flows of an interface over workers, numbered from 0, by addresses and protocol, with l4 by ports too.
        ["set interface handoff"] "<if> workers <list> [symmetrical|asymmetrical] [l4] | <if> disable" by |args| parse(args, false),
    }
}

impl Execute<Router> for SetRss {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let config = (!self.workers.is_empty()).then(|| RssConfig {
            workers: self.workers.iter().map(|w| usize::from(*w)).collect(),
            input: HashInput { symmetric: self.symmetric, l4: self.l4 },
        });
        router.set_rss(index, config)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows whose flows are spread over which workers.
    pub read ShowRss "interface_rss_show" ["show interface rss"] {
        /// One interface; all where absent.
        pub interface: Option<IfRef> = "<if>",
    }
}

/// An interface whose flows are spread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RssInfo {
    /// Interface.
    pub interface: String,
    /// Workers, from 0.
    pub workers: Vec<usize>,
    /// Both directions of a flow go to the same worker.
    pub symmetric: bool,
    /// Ports count.
    pub l4: bool,
}

impl Text for RssInfo {
    fn text(&self, out: &mut String, _: &View) {
        let workers: Vec<String> = self.workers.iter().map(ToString::to_string).collect();
        let kind = if self.symmetric { "symmetrical" } else { "asymmetrical" };
        let ports = if self.l4 { " l4" } else { "" };
        let _ = writeln!(out, "{} workers {} {kind}{ports}", self.interface, workers.join(","));
    }
}

impl Execute<Router> for ShowRss {
    type Reply = Vec<RssInfo>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Vec<RssInfo>>, OpError> {
        let names: Vec<IfRef> = self.interface.into_iter().collect();
        let info = |i: &crate::Interface| {
            let config = router.rss(i.index)?;
            let HashInput { symmetric, l4 } = config.input;
            Some(RssInfo { interface: i.name.clone(), workers: config.workers.clone(), symmetric, l4 })
        };
        Ok(Outcome::Done(chosen(router, &names)?.into_iter().filter_map(info).collect()))
    }
}

/// Where it stands in a document.
const SHAPES: &[Shape] =
    &[Shape::new("interfaces/{interface}/rss", r#"{"*":"*"}"#, "interface_rss_set", r#"{"interface":"{interface}","*":"*"}"#)
        .doc("Workers over which its flows are spread by software.")
        .types(&[
            ("workers", r#"{"type":"array","items":{"type":"integer","minimum":0}}"#),
            ("symmetric", r#"{"type":"boolean"}"#),
            ("l4", r#"{"type":"boolean"}"#),
        ])];

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    use crate::ops::testing::{error, run};

    #[test]
    fn what_is_set_is_shown_and_taken_back() {
        let mut h = Harness::with_workers(4);
        run(&mut h.router, "create packet-generator interface pg0");
        run(&mut h.router, "create packet-generator interface pg1");
        assert_eq!(run(&mut h.router, "show interface rss"), "");
        run(&mut h.router, "set interface handoff pg0 workers 0,2-3 symmetrical l4");
        run(&mut h.router, "set interface rss pg1 workers 1-2 symmetric");
        assert_eq!(run(&mut h.router, "show interface rss"), "pg0 workers 0,2,3 symmetrical l4\npg1 workers 1,2 symmetrical l4\n");
        run(&mut h.router, "set interface handoff pg0 workers 1");
        assert_eq!(run(&mut h.router, "show interface rss pg0"), "pg0 workers 1 asymmetrical\n");
        assert!(run(&mut h.router, "show interface features pg0").contains("worker-handoff"));
        run(&mut h.router, "set interface handoff pg0 disable");
        run(&mut h.router, "set interface rss pg1 workers 0 disable");
        assert_eq!(run(&mut h.router, "show interface rss"), "");
        assert!(run(&mut h.router, "show interface features pg0").contains("none configured"));
    }

    #[test]
    fn mistakes_are_named() {
        let mut h = Harness::with_workers(2);
        run(&mut h.router, "create packet-generator interface pg0");
        for (line, expected) in [
            ("set interface rss pg0 workers 2", "0 to 1"),
            ("set interface rss pg0 workers a-b", "no list of workers"),
            ("set interface rss pg0", "workers"),
            ("set interface rss pg0 workers 0 sideways", "sideways"),
            ("set interface rss local0 workers 0", "local0"),
            ("set interface rss pg9 workers 0", "unknown interface"),
        ] {
            let text = error(&mut h.router, line);
            assert!(text.contains(expected) && !text.contains('\n'), "{line}: {text}");
        }
        assert_eq!(run(&mut h.router, "show interface rss"), "");
    }
}
