//! `explain drop`: what a drop reason means, where it often comes from, and what to do about it.
//!
//! The texts are those of the declarations of reasons (`quiver_graph::drop_reasons!`), so there is one text for the command, the
//! reference and the page.

use std::fmt::Write as _;

use quiver_command::commands;
use quiver_command::grammar::{Args, quote};
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request::Execute;
use quiver_graph::{ErrorInfo, Severity};
use quiver_net::Router;
use serde::{Deserialize, Serialize};

/// Columns of a line of text.
const WIDTH: usize = 100;
/// Nodes that a line names.
const NODES: usize = 6;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ExplainDrop>().values("reason", |router| {
        let mut words: Vec<_> = router.graph.error_sums().map(|(info, _)| word_of(info.text)).collect();
        words.sort_unstable();
        words.dedup();
        words
    });
}

fn parse(args: &mut Args<'_>) -> Result<ExplainDrop, OpError> {
    let reason = args.rest().trim_matches('"');
    Ok(ExplainDrop { reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()) })
}

/// A reason as one word: `no-route`. It is what completion inserts, and a reason's place on pages.
pub fn word_of(reason: &str) -> String {
    let letters: String = reason.to_lowercase().chars().filter(|c| c.is_alphanumeric() || c.is_whitespace() || *c == '-').collect();
    let words = letters.split(|c: char| c.is_whitespace() || c == '-').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

/// Explains drop reasons.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExplainDrop {
    /// Which: as printed, with dashes for blanks, or a part of it; `NODE.REASON` for that of a node. All drops that were counted where absent.
    pub reason: Option<String>,
}

commands! {
    read ExplainDrop "drop_explain" {
        /// Explains a drop reason: meaning, likely causes, what to check and do. Without a reason: all drops since the last clear.
        ["explain drop"] "[<reason>]" by parse,
    }
}

/// What a node counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// The node.
    pub node: String,
    /// How often.
    pub count: u64,
}

/// One reason with its explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The reason.
    pub reason: &'static str,
    /// The same as one word.
    pub word: String,
    /// `error` or `info`.
    pub severity: String,
    /// What has happened.
    pub meaning: &'static str,
    /// What it often comes from; empty where the meaning says enough.
    pub causes: &'static str,
    /// What to check and do; empty as above.
    pub check: &'static str,
    /// Commands and counters that belong to it.
    pub see: Vec<&'static str>,
    /// How often since the last clear.
    pub count: u64,
    /// By node, the most first.
    pub nodes: Vec<Counted>,
    /// The command that records such packets; nothing for events.
    pub capture: Option<String>,
}

impl Explanation {
    fn of(info: &ErrorInfo) -> Self {
        let declared = info.declared;
        Self {
            reason: info.text,
            word: word_of(info.text),
            severity: info.severity.to_string(),
            meaning: info.about,
            causes: declared.causes,
            check: declared.check,
            // What stands between backquotes.
            see: declared.see.split('`').skip(1).step_by(2).collect(),
            count: 0,
            nodes: Vec::new(),
            capture: None,
        }
    }
}

/// The answer of [`ExplainDrop`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Explanations(pub Vec<Explanation>);

/// Explanations of the reasons that `wanted` takes, the most counted first. Reasons of the same words and meaning are one.
fn explain(router: &Router, wanted: impl Fn(&ErrorInfo, u64) -> bool) -> Vec<Explanation> {
    let mut found: Vec<Explanation> = Vec::new();
    for (info, count) in router.graph.error_sums().filter(|(info, count)| wanted(info, *count)) {
        let place = found.iter().position(|one| one.reason == info.text && one.meaning == info.about);
        let place = place.unwrap_or_else(|| {
            found.push(Explanation::of(info));
            found.len() - 1
        });
        let one = &mut found[place];
        if one.causes.is_empty() {
            // Of several declarations one says more.
            let more = Explanation::of(info);
            (one.causes, one.check, one.see) = (more.causes, more.check, more.see);
        }
        one.count += count;
        one.nodes.push(Counted { node: info.node.clone(), count });
    }
    for one in &mut found {
        one.nodes.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.node.cmp(&b.node)));
        let node = one.nodes.first().filter(|_| one.severity == Severity::Error.to_string());
        one.capture =
            node.map(|first| format!("pcap trace drop error {} file drops.pcap", quote(&format!("{}.{}", first.node, one.reason))));
    }
    found.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.word.cmp(&b.word)));
    found
}

impl Execute<Router> for ExplainDrop {
    type Reply = Explanations;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Explanations>, OpError> {
        let Some(reason) = self.reason else {
            return Ok(Outcome::Done(Explanations(explain(router, |info, count| count > 0 && info.severity == Severity::Error))));
        };
        let (node, text) = match reason.split_once('.') {
            Some((node, text)) => (Some(node), text),
            None => (None, reason.as_str()),
        };
        let wanted = word_of(text);
        let of_node = |info: &ErrorInfo| node.is_none_or(|node| info.node == node);
        let mut found = explain(router, |info, _| of_node(info) && word_of(info.text) == wanted);
        if found.is_empty() && !wanted.is_empty() {
            found = explain(router, |info, _| of_node(info) && word_of(info.text).contains(&wanted));
        }
        if found.is_empty() {
            let error = OpError::new(retval::NO_SUCH_ENTRY, "no such drop reason").key("reason").value(&reason);
            return Err(error.remedy("Tab completes reasons; `show errors' shows those that were counted"));
        }
        Ok(Outcome::Done(Explanations(found)))
    }
}

/// Adds a paragraph behind its label, with lines of at most [`WIDTH`] columns.
fn paragraph(out: &mut String, label: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    let indent = if label.is_empty() { 2 } else { 11 };
    let mut line = if label.is_empty() { String::from("  ") } else { format!("  {label:<9}") };
    let mut is_first = true;
    for word in text.split_whitespace() {
        if !is_first && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = " ".repeat(indent);
            is_first = true;
        }
        if !is_first {
            line.push(' ');
        }
        line.push_str(word);
        is_first = false;
    }
    let _ = writeln!(out, "{line}");
}

impl Text for Explanations {
    fn text(&self, out: &mut String, _view: &View) {
        if self.0.is_empty() {
            out.push_str("no packet was dropped since the counters were last cleared\n");
        }
        for (place, one) in self.0.iter().enumerate() {
            if place > 0 {
                out.push('\n');
            }
            let _ = writeln!(out, "{} ({})", one.reason, one.severity);
            paragraph(out, "", one.meaning);
            let mut nodes: Vec<_> = one.nodes.iter().take(NODES).map(|n| format!("{} by {}", n.count, n.node)).collect();
            if one.nodes.len() > NODES {
                nodes.push(format!("{} more nodes", one.nodes.len() - NODES));
            }
            paragraph(out, "counted", &nodes.join(", "));
            paragraph(out, "causes", one.causes);
            paragraph(out, "check", one.check);
            paragraph(out, "see", &one.see.join(", "));
            if let Some(capture) = &one.capture {
                let _ = writeln!(out, "  {:<9}{capture}", "capture");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{registry, run};
    use quiver_command::operation::View;
    use quiver_net::testing::Harness;

    #[test]
    fn a_reason_is_found_as_printed_as_one_word_and_by_a_part() {
        let mut h = Harness::new();
        let whole = run(&mut h.router, "explain drop no route");
        assert_eq!(run(&mut h.router, "explain drop no-route"), whole);
        assert_eq!(run(&mut h.router, "explain drop \"No Route\""), whole);
        assert!(
            whole.starts_with("no route (error)\n  The table has no route for the destination.\n  counted  0 by ip4-drop, "),
            "{whole}"
        );
        for expected in
            ["\n  causes   ", "\n  check    ", "\n  see      ", "capture  pcap trace drop error \"ip4-drop.no route\" file"]
        {
            assert!(whole.contains(expected), "{expected}: {whole}");
        }
        assert!(whole.lines().all(|line| line.chars().count() <= WIDTH), "{whole}");
        let one = run(&mut h.router, "explain drop ip6-drop.no route");
        assert!(one.contains("0 by ip6-drop\n") && !one.contains("ip4-drop"), "{one}");
        assert!(run(&mut h.router, "explain drop checksum").contains("bad ip4 checksum (error)"));
        assert_eq!(run(&mut h.router, "explain drop"), "no packet was dropped since the counters were last cleared\n");
    }

    #[test]
    fn an_unknown_reason_is_one_line_that_says_what_to_do() {
        let mut h = Harness::new();
        let error = registry().execute(&mut h.router, "explain drop nonsense", &View::TEXT).err().unwrap().to_string();
        assert!(error.contains("no such drop reason (nonsense)") && error.contains("Tab") && !error.contains('\n'), "{error}");
        assert!(registry().execute(&mut h.router, "explain drop ---", &View::TEXT).is_err());
    }

    #[test]
    fn reasons_are_completed_as_one_word() {
        let h = Harness::new();
        let line = "explain drop no-r";
        let found: Vec<_> = registry().complete(line, line.len(), &h.router).candidates.into_iter().map(|one| one.text).collect();
        assert!(found.contains(&"no-route".to_owned()) && found.iter().all(|word| word.starts_with("no-r")), "{found:?}");
    }

    #[test]
    fn one_word_stands_for_one_reason() {
        let h = Harness::new();
        let mut words = std::collections::BTreeMap::new();
        for (info, _) in h.router.graph.error_sums() {
            let text = *words.entry(word_of(info.text)).or_insert(info.text);
            assert_eq!(text.to_lowercase(), info.text.to_lowercase(), "two reasons with the same word");
        }
    }
}
