//! `set interface rss`, `set interface handoff`, `show interface rss`: flows of an interface spread over workers by software.
//!
//! `set interface handoff` is VPP's command with VPP's defaults (no ports in the hash, each direction of a flow for itself);
//! `set interface rss` takes ports into the hash.

use std::fmt::Write as _;

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_graph::topology::parse_cpu_list;
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::interface::ops::{chosen, interface_error, resolve};
use crate::rss::{HashInput, RssConfig};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .operation::<SetRss>()
        .declare::<ShowRss>()
        .command(Command {
            path: "set interface rss",
            syntax: "<if> workers <list> [symmetric] | <if> disable",
            help: "Spreads the flows of an interface over workers, numbered from 0, by addresses, protocol and ports",
            parse: |args, _| parse(args, true),
        })
        .command(Command {
            path: "set interface handoff",
            syntax: "<if> workers <list> [symmetrical|asymmetrical] [l4] | <if> disable",
            help: "Spreads the flows of an interface over workers, numbered from 0, by addresses and protocol, with l4 by ports too",
            parse: |args, _| parse(args, false),
        });
}

fn parse(args: &mut Args<'_>, l4: bool) -> Result<Invocation<Router>, OpError> {
    let interface = args.interface()?;
    let mut request = SetRssRequest { interface, workers: Vec::new(), symmetric: false, l4 };
    if args.take_keyword("disable") {
        return Ok(Invocation::new::<SetRss>(request));
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
    Ok(Invocation::new::<SetRss>(request))
}

#[derive(Clone, Copy)]
enum Word {
    Symmetric(bool),
    L4,
    Disable,
}

/// Spreads the flows of an interface over workers.
pub struct SetRss;

/// What [`SetRss`] does.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRssRequest {
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

impl Operation<Router> for SetRss {
    const NAME: &'static str = "interface_rss_set";
    const ACCESS: Access = Access::Change;
    type Request = SetRssRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetRssRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        let config = (!request.workers.is_empty()).then(|| RssConfig {
            workers: request.workers.iter().map(|w| usize::from(*w)).collect(),
            input: HashInput { symmetric: request.symmetric, l4: request.l4 },
        });
        router.set_rss(index, config).map_err(|error| interface_error(&error))?;
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
