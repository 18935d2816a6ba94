//! The rules of the command language, on a small made-up router.

use crate::grammar::{Args, Command, IfRef, Parsed};
use crate::operation::{Answer, Invocation, OpError, Operation, Outcome, Registry, Text, View, retval};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What the made-up router remembers: each request that ran.
#[derive(Default)]
struct Fake {
    ran: Vec<String>,
    names: Vec<&'static str>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    what: String,
}

#[derive(Serialize)]
struct Reply {
    ran: String,
}

impl Text for Reply {
    fn text(&self, out: &mut String, _view: &View) {
        out.push_str(&self.ran);
        out.push('\n');
    }
}

struct Note;
impl Operation<Fake> for Note {
    const NAME: &'static str = "note";
    type Request = Request;
    type Reply = Reply;
    fn run(fake: &mut Fake, request: Request) -> Result<Outcome<Fake, Reply>, OpError> {
        if request.what.contains("fail") {
            return Err(OpError::new(retval::BUSY, "already enabled"));
        }
        fake.ran.push(request.what.clone());
        Ok(Outcome::Done(Reply { ran: request.what }))
    }
}

struct Quiet;
impl Operation<Fake> for Quiet {
    const NAME: &'static str = "quiet";
    type Request = ();
    type Reply = ();
    fn run(_: &mut Fake, (): ()) -> Result<Outcome<Fake, ()>, OpError> {
        Ok(Outcome::Done(()))
    }
}

fn note(what: impl Into<String>) -> Invocation<Fake> {
    Invocation::new::<Note>(Request { what: what.into() })
}

fn registry() -> Registry<Fake> {
    let mut registry = Registry::new();
    let commands: [Command<Fake>; 9] = [
        Command {
            path: "show interface",
            syntax: "[<if> ...] [verbose]",
            help: "Shows interfaces",
            parse: |args, _| Ok(note(format!("interfaces {}", args.rest()))),
        },
        Command { path: "show interface address", syntax: "", help: "Shows addresses", parse: |_, _| Ok(note("addresses")) },
        Command { path: "show ip", syntax: "", help: "Shows IP", parse: |_, _| Ok(note("ip")) },
        Command { path: "show ip6", syntax: "", help: "Shows IPv6", parse: |_, _| Ok(note("ip6")) },
        Command { path: "show version", syntax: "[verbose]", help: "Shows it", parse: |_, _| Ok(note("version")) },
        Command {
            path: "set interface state",
            syntax: "<if> up|down",
            help: "Sets the administrative state",
            parse: |args, _| {
                let IfRef(name) = args.interface()?;
                let up = args.expect_one_of(&[("up", true), ("down", false)])?;
                Ok(note(format!("{name} {up}")))
            },
        },
        Command {
            path: "ip route",
            syntax: "[add|del] [count <n>] <prefix> [table <id>] via <nh> [<if>] ...",
            help: "Adds a route",
            parse: |args, _| {
                args.take_one_of(&[("add", ()), ("del", ())]);
                let (address, length) = args.prefix("prefix")?;
                let mut table = 0_u32;
                while !args.is_empty() {
                    if args.take_keyword("table") {
                        table = args.number("table id")?;
                    } else if args.take_keyword("via") {
                        args.ip("next hop")?;
                    } else {
                        return Err(args.unexpected());
                    }
                }
                Ok(note(format!("{address}/{length} table {table}")))
            },
        },
        Command {
            path: "packet-generator new",
            syntax: "{ [name <s>] [limit <n>] }",
            help: "Makes a stream",
            parse: |args, _| {
                let mut inside = args.expect_group()?;
                inside.expect_keyword("name")?;
                let name = inside.word("name")?.into_owned();
                inside.finish()?;
                Ok(note(name))
            },
        },
        Command { path: "nat44 plugin", syntax: "", help: "Fails", parse: |_, _| Ok(note("fail")) },
    ];
    for command in commands {
        registry.command(command);
    }
    registry.operation::<Note>().operation::<Quiet>();
    registry.values("if", |fake| fake.names.iter().map(|name| (*name).to_owned()).collect());
    assert!(registry.problems().is_empty(), "{:?}", registry.problems());
    registry
}

fn run(line: &str) -> Result<Answer, String> {
    match registry().execute(&mut Fake::default(), line, &View::BOTH) {
        Ok(Outcome::Done(answer)) => Ok(answer),
        Ok(Outcome::Job(_)) => Err("a job".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn text(line: &str) -> String {
    run(line).map_or_else(|error| error, |answer| answer.text)
}

#[test]
fn words_may_be_shortened_and_exact_words_win() {
    assert_eq!(text("sh int addr"), "addresses\n");
    assert_eq!(text("show ip"), "ip\n");
    assert_eq!(text("show ip6"), "ip6\n");
    assert_eq!(text("se in st pg0 up"), "pg0 true\n");
    assert_eq!(text("  show\tver  "), "version\n");
}

#[test]
fn children_come_first_then_the_node_itself() {
    assert_eq!(text("show interface"), "interfaces \n");
    assert_eq!(text("show interface pg1 verbose"), "interfaces pg1 verbose\n");
    assert_eq!(text("show interface pg0/1"), "interfaces pg0/1\n");
    assert_eq!(text("show interface address"), "addresses\n");
}

#[test]
fn errors_name_path_word_and_remedy() {
    assert_eq!(text("foo bar"), "unknown input `foo bar'; `?' lists the commands");
    assert_eq!(text("show foo"), "show: unknown input `foo'; expected `interface', `ip', `ip6', `version'");
    assert_eq!(text("shwo version"), "unknown input `shwo version'; did you mean `show'?");
    assert_eq!(text("show verison"), "show: unknown input `verison'; did you mean `version'?");
    assert_eq!(text("show i"), "show: ambiguous input `i'; it begins `interface', `ip', `ip6'");
    assert_eq!(text("set"), "set: incomplete command; expected `interface'");
    assert_eq!(text("nat44 plugin"), "nat44 plugin: already enabled");
    assert_eq!(
        text("set int state pg0 upp"),
        "set interface state: unknown input `upp'; did you mean `up'? expected `up' or `down'"
    );
    assert_eq!(text("set int state"), "set interface state: missing interface; expected <if> up|down");
    assert_eq!(text("set int state pg0"), "set interface state: incomplete command; expected `up' or `down'");
    assert_eq!(text("set int state pg0 up now"), "set interface state: unknown input `now'");
    assert_eq!(text("show version x"), "show version: unknown input `x'");
    assert_eq!(text("ip route add 10.0.0.0/33 via 1.1.1.1"), "ip route: Invalid prefix len: 33 (10.0.0.0/33); use 0 to 32");
    assert_eq!(
        text("ip route add 10.0.0.0/24 tabel 7"),
        "ip route: unknown input `tabel'; did you mean `table'? expected `table' or `via'"
    );
    assert_eq!(
        text("ip route add 10.0.0.0/24 table 5000000000"),
        "ip route: invalid table id `5000000000'; expected 0 to 4294967295"
    );
    assert_eq!(text("ip route add 10.0.0.0/24 via x"), "ip route: invalid next hop `x'; expected an IPv4 or IPv6 address");
}

#[test]
fn groups_are_read_inside_out() {
    assert_eq!(text("packet-generator new { name x }"), "x\n");
    assert_eq!(text("packet-generator new {name x}"), "x\n");
    assert_eq!(text("packet-gen new { name x"), "packet-generator new: `{' without `}'; close the group with `}'");
    assert_eq!(text("packet-generator new { name x } y"), "packet-generator new: unknown input `y'");
}

#[test]
fn comments_are_skipped_and_uncomments_run() {
    assert_eq!(text(""), "");
    assert_eq!(text("comment { show foo }"), "");
    assert_eq!(text("uncomment { show version }"), "version\n");
    assert_eq!(text("show uncomment { uncomment { ip } }"), "ip\n");
    assert_eq!(text("comment show"), "`comment' needs a group; write `comment { ... }'");
    assert_eq!(text("comment { a } b"), "unknown input `b'");
}

#[test]
fn help_works_at_any_level() {
    let all = "  ip                   1 commands\n";
    assert!(!text("?").contains(all));
    for line in ["show ?", "show help", "help show", "sh?", "help sh ?"] {
        assert!(
            text(line).contains("  version [verbose]") || text(line).contains("  show version [verbose]"),
            "{line}: {}",
            text(line)
        );
        assert!(!text(line).contains("address"), "{line}");
    }
    assert!(text("show choices").contains("show interface address"));
    assert!(text("show interface ?").starts_with("show interface [<if> ...] [verbose]\n    Shows interfaces\n"));
    assert!(text("help set interface state pg0 up").contains("administrative"));
    assert_eq!(text("help foo"), "unknown input `foo'; `?' lists the commands");
    let json = run("choices").unwrap().json.unwrap();
    assert!(json.contains(r#"{"path":"set interface state","syntax":"<if> up|down","help":"#), "{json}");
}

#[test]
fn json_requests_reach_the_same_operations() {
    let (registry, mut fake) = (registry(), Fake::default());
    let invocation = registry.request("note", json!({"what": "x"})).unwrap();
    let Ok(Outcome::Done(answer)) = invocation.run(&mut fake, &View::JSON) else { panic!() };
    assert_eq!((answer.text.as_str(), answer.json.as_deref()), ("", Some(r#"{"ran":"x"}"#)));
    assert_eq!(fake.ran, ["x"]);
    assert!(registry.request("quiet", json!(null)).is_ok());
    assert!(registry.request("quiet", json!({})).is_ok());
    let error = registry.request("note", json!({})).unwrap_err();
    assert_eq!(error.to_string(), "request of note: missing field `what`");
    assert_eq!(registry.request("notr", json!({})).unwrap_err().to_string(), "no such operation (notr); did you mean `note'?");
}

#[test]
fn a_command_gives_the_request_a_json_client_would_send() {
    let Ok(Parsed::Run(invocation, path)) = registry().parse("sh ver", &Fake::default()) else { panic!() };
    assert_eq!((invocation.operation(), path), ("note", "show version"));
    assert_eq!(invocation.request_json().unwrap(), json!({"what": "version"}));
}

#[test]
fn bad_declarations_are_reported() {
    let mut registry = registry();
    let parse = |_: &mut Args<'_>, _: &Fake| Ok(note(""));
    for path in ["show version", "", "show pg0/1", "show help", "show  twice"] {
        registry.command(Command { path, syntax: "", help: "", parse });
    }
    registry.operation::<Note>();
    assert_eq!(registry.problems().len(), 6);
}

fn completions(line: &str) -> Vec<String> {
    let fake = Fake { names: vec!["pg0", "pg1", "loop0"], ..Fake::default() };
    registry().complete(line, line.len(), &fake).candidates.into_iter().map(|candidate| candidate.text).collect()
}

#[test]
fn completion_knows_words_keywords_and_names() {
    assert_eq!(completions(""), ["ip", "nat44", "packet-generator", "set", "show"]);
    assert_eq!(completions("s"), ["set", "show"]);
    assert_eq!(completions("sh i"), ["interface", "ip", "ip6"]);
    assert_eq!(completions("help sh v"), ["version"]);
    assert_eq!(completions("show interface "), ["address", "loop0", "pg0", "pg1", "verbose"]);
    assert_eq!(completions("show interface pg1 v"), ["verbose"]);
    assert_eq!(completions("set int state p"), ["pg0", "pg1"]);
    assert_eq!(completions("set int state pg0 d"), ["down"]);
    assert_eq!(completions("ip route add 10.0.0.0/8 ta"), ["table"]);
    assert_eq!(completions("ip route add 10.0.0.0/8 table "), Vec::<String>::new());
    assert_eq!(registry().complete("show int", 2, &Fake::default()).start, 0);
    assert_eq!(registry().complete("show int", 99, &Fake::default()).start, 5);
}

#[test]
fn the_reference_lists_every_command() {
    let markdown = registry().markdown(&Fake::default());
    assert!(markdown.contains("\n## show\n"));
    assert!(markdown.contains("| `set interface state <if> up\\|down` | Sets the administrative state |"));
    assert!(registry().reference_problems(&["x"]).iter().any(|problem| problem.contains("name its command")));
}

proptest! {
    #[test]
    fn no_line_panics_and_every_error_is_one_line(
        line in "(show|sh|set|ip route|interface|packet-generator new|comment|uncomment|help|\\?|\\{|\\}|\"|add|0x|10\\.0\\.0\\.0/|é| |\\PC){0,12}",
        cursor in 0..80_usize,
    ) {
        let registry = registry();
        if let Err(error) = registry.execute(&mut Fake::default(), &line, &View::BOTH) {
            prop_assert!(!error.to_string().contains('\n'));
        }
        let completion = registry.complete(&line, cursor, &Fake::default());
        prop_assert!(line.is_char_boundary(completion.start));
    }

    /// Shortening any word of a command to a prefix either still means the command or is ambiguous.
    #[test]
    fn a_prefix_means_the_same_or_is_ambiguous(cut in prop::collection::vec(1..20_usize, 3)) {
        let words = ["set", "interface", "state"];
        let short: Vec<_> = words.iter().zip(&cut).map(|(word, cut)| &word[..(*cut).min(word.len())]).collect();
        let line = format!("{} pg0 up", short.join(" "));
        let answer = text(&line);
        prop_assert!(answer == "pg0 true\n" || answer.contains("ambiguous"), "{}: {}", line, answer);
    }
}

#[test]
fn a_command_known_elsewhere_says_that_it_is_not_there() {
    use crate::operation::Absent;
    let mut registry = registry();
    registry.absent(&[
        Absent { words: "create bond", subject: "bonds", instead: None },
        Absent { words: "show version", subject: "versions", instead: None },
    ]);
    let error = |line| registry.parse(line, &Fake::default()).err().map(|error| error.to_string());
    assert_eq!(error("create bond mode lacp").unwrap(), "bonds are not built yet; see docs/coming-from-vpp.md");
    assert_eq!(error("cre bon").unwrap(), "bonds are not built yet; see docs/coming-from-vpp.md");
    assert!(error("create bo").unwrap().contains("unknown input"));
    assert!(error("create").unwrap().contains("unknown input"));
    // What is there goes on being there.
    assert_eq!(error("show version"), None);
}
