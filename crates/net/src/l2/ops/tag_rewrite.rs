//! VLAN tag rewrite of layer-2 interfaces.

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry};
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::interface::VLAN_MAX;
use crate::interface::ops::resolve;
use crate::l2::ops::bridge::l2_error;
use crate::l2::{Tag, TagRewrite};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.operation::<SetTagRewrite>().command(Command {
        path: "set interface l2 tag-rewrite",
        syntax: "<if> disable | pop 1|2 | push dot1q|dot1ad <tag> [<tag>] | translate 1-1|2-1 dot1q|dot1ad <tag> | translate 1-2|2-2 dot1q|dot1ad <tag> <tag>",
        help: "Sets what happens to the tags of frames that come in; undone when frames leave",
        parse,
    });
}

fn parse(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
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
    Ok(Invocation::new::<SetTagRewrite>(SetTagRewriteRequest { interface, pop, push }))
}

/// One tag or two: of two the kind given is the outer one's.
fn tags(args: &mut Args<'_>, count: Option<usize>) -> Result<Vec<Tag>, OpError> {
    let kind = args.expect_one_of(&[("dot1q", 0x8100_u16), ("dot1ad", 0x88a8)])?;
    let mut tags = vec![(kind, args.number_in("vlan", 0..=VLAN_MAX)?)];
    if count == Some(2) || (count.is_none() && !args.is_empty()) {
        tags.push((0x8100, args.number_in("vlan", 0..=VLAN_MAX)?));
    }
    Ok(tags)
}

/// Sets the tag rewrite of an interface.
pub struct SetTagRewrite;

/// What [`SetTagRewrite`] sets; nothing to take off and nothing to put on: none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetTagRewriteRequest {
    /// Interface.
    pub interface: IfRef,
    /// Tags taken off frames that come in, 0 to 2.
    #[serde(default)]
    pub pop: u8,
    /// Tags put on then, outermost first: TPID and VLAN id.
    #[serde(default)]
    pub push: Vec<Tag>,
}

impl Operation<Router> for SetTagRewrite {
    const NAME: &'static str = "interface_tag_rewrite";
    const ACCESS: Access = Access::Change;
    type Request = SetTagRewriteRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetTagRewriteRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        let none = request.pop == 0 && request.push.is_empty();
        let rewrite = (!none).then_some(TagRewrite { pop: request.pop, push: request.push });
        router.set_tag_rewrite(index, rewrite).map_err(|e| l2_error(&e))?;
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
