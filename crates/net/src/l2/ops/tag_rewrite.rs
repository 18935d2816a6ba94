//! VLAN tag rewrite of layer-2 interfaces.

use quiver_command::commands;
use quiver_command::grammar::{Args, IfRef, quote};
use quiver_command::operation::{OpError, Outcome, Registry};
use quiver_command::request::Execute;
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::interface::VLAN_MAX;
use crate::interface::ops::resolve;
use crate::l2::{Tag, TagRewrite};

/// TPID of 802.1Q.
const DOT1Q: u16 = 0x8100;
/// TPID of 802.1ad.
const DOT1AD: u16 = 0x88a8;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetTagRewrite>();
}

fn parse(args: &mut Args<'_>) -> Result<SetTagRewrite, OpError> {
    let interface = args.interface()?;
    let (pop, push) = if args.take_keyword("disable") {
        (0, Vec::new())
    } else if args.take_keyword("pop") {
        (args.number_in("tags", 1..=2)?, Vec::new())
    } else if args.take_keyword("push") {
        (0, tags(args, None)?)
    } else {
        args.expect_keyword("translate")?;
        let (pop, push) = args.expect_one_of(&[("1-1", (1, 1)), ("1-2", (1, 2)), ("2-1", (2, 1)), ("2-2", (2, 2))])?;
        (pop, tags(args, Some(push))?)
    };
    Ok(SetTagRewrite { interface, pop, push })
}

/// What other tags there can be no command makes.
fn command(SetTagRewrite { interface, pop, push }: &SetTagRewrite) -> Option<String> {
    let kind = match push.first() {
        None | Some((DOT1Q, _)) => "dot1q",
        Some((DOT1AD, _)) => "dot1ad",
        Some(_) => return None,
    };
    let tags = push.iter().map(|(_, vlan)| vlan.to_string()).collect::<Vec<_>>().join(" ");
    let change = match (pop, push.len()) {
        (0, 0) => "disable".to_owned(),
        (pop, 0) => format!("pop {pop}"),
        (0, _) => format!("push {kind} {tags}"),
        (pop, count) => format!("translate {pop}-{count} {kind} {tags}"),
    };
    Some(format!("set interface l2 tag-rewrite {} {change}", quote(interface.as_str())))
}

/// One tag or two: of two the kind given is the outer one's.
fn tags(args: &mut Args<'_>, count: Option<usize>) -> Result<Vec<Tag>, OpError> {
    let kind = args.expect_one_of(&[("dot1q", DOT1Q), ("dot1ad", DOT1AD)])?;
    let mut tags = vec![(kind, args.number_in("vlan", 0..=VLAN_MAX)?)];
    if count == Some(2) || (count.is_none() && !args.is_empty()) {
        tags.push((DOT1Q, args.number_in("vlan", 0..=VLAN_MAX)?));
    }
    Ok(tags)
}

/// Sets the tag rewrite of an interface; nothing to take off and nothing to put on: none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetTagRewrite {
    /// Interface.
    pub interface: IfRef,
    /// Tags taken off frames that come in, 0 to 2.
    #[serde(default)]
    pub pop: u8,
    /// Tags put on then, outermost first: TPID and VLAN id.
    #[serde(default)]
    pub push: Vec<Tag>,
}

commands! {
    change SetTagRewrite "interface_tag_rewrite" {
        /// Rewrites the VLAN tags of received frames; the reverse happens to frames that leave.
        ["set interface l2 tag-rewrite"] "<if> disable | pop 1|2 | push dot1q|dot1ad <tag> [<tag>] | translate 1-1|2-1 dot1q|dot1ad <tag> | translate 1-2|2-2 dot1q|dot1ad <tag> <tag>" by parse => command,
    }
}

impl Execute<Router> for SetTagRewrite {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let none = self.pop == 0 && self.push.is_empty();
        let rewrite = (!none).then_some(TagRewrite { pop: self.pop, push: self.push });
        router.set_tag_rewrite(index, rewrite)?;
        Ok(Outcome::Done(()))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    use crate::ops::testing::{error, run};

    #[test]
    fn every_form_of_the_command_is_understood() {
        let mut h = Harness::new();
        h.interface(0);
        run(&mut h.router, "create sub-interfaces x0 1 dot1q 10 inner-dot1q 20 exact-match");
        run(&mut h.router, "set interface l2 bridge x0.1 5");
        for (words, shown) in [
            ("pop 1", "pop-1"),
            ("pop 2", "pop-2"),
            ("push dot1q 7", "push-1 dot1q 7"),
            ("push dot1ad 7 8", "push-2 dot1ad 7 8"),
            ("translate 1-1 dot1ad 7", "trans-1-1 dot1ad 7"),
            ("translate 1-2 dot1q 7 8", "trans-1-2 dot1q 7 8"),
            ("translate 2-1 dot1q 7", "trans-2-1 dot1q 7"),
            ("translate 2-2 dot1q 7 8", "trans-2-2 dot1q 7 8"),
            ("disable", "none"),
        ] {
            run(&mut h.router, &format!("set interface l2 tag-rewrite x0.1 {words}"));
            let text = run(&mut h.router, "show bridge-domain 5 int");
            assert!(text.lines().last().unwrap_or_default().contains(shown), "{words}: {text}");
        }
        for (words, expected) in [
            ("pop 3", "3"),
            ("push dot1q 4095", "invalid vlan `4095'; expected 0 to 4094"),
            ("push dot1q 100 4096", "4096"),
            ("translate 1-2 dot1q 7", "vlan"),
            ("translate 3-1 dot1q 7", "3-1"),
            ("sideways", "sideways"),
        ] {
            let error = error(&mut h.router, &format!("set interface l2 tag-rewrite x0.1 {words}"));
            assert!(error.contains(expected) && !error.contains('\n'), "{words}: {error}");
        }
    }
}
