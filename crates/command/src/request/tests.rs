//! The rules of declared requests, on made-up ones.

use super::{Argument, Execute, Request};
use crate::grammar::{Args, IfRef};
use crate::operation::{OpError, Operation, Outcome, Registry, View};
use crate::{from_message, request, words};
use serde_json::json;

words! {
    /// Family.
    pub enum Family {
        /// IPv4.
        Ip4 = "ip4",
        /// IPv6.
        Ip6 = "ip6",
    }
}

request! {
    /// Opens a device and prints its name.
    pub change Open "device_open" ["create device", "open"] {
        /// Name of the kernel's device.
        pub host_if: String = "host-if <linux-if>",
        /// MAC address.
        pub mac: Option<[u8; 6]> = "hw-addr <mac>" unicast(),
        /// Entries of a ring.
        pub size: Option<usize> = "size <n>" range(64..=4096),
        /// Queues; all where absent.
        pub queues: Option<u32> = "queues <n>|all",
        /// The device must, or must not, work on buffers itself.
        pub zero_copy: Option<bool> = "zero-copy|no-zero-copy",
        /// Addresses.
        pub addresses: Vec<std::net::IpAddr> = "addr <ip>",
        /// Largest packet.
        pub mtu: u32 = "mtu <n>" default(1500),
        /// Without Ethernet headers.
        pub ip: bool = "mode ip",
        /// Learn addresses.
        pub learn: bool = "learn 0|1" default(true),
    } ignores {
        /// A word of another router's.
        "v2",
        /// Each thread has one.
        "num-tx-queues <n>",
    }
}

request! {
    /// Sets the state of an interface.
    pub change State "state_set" ["set state"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Up.
        pub up: bool = "up|down" required(),
    }
}

fn read_pages(args: &mut Args<'_>, _: &Argument, _: usize) -> Result<Option<u8>, OpError> {
    args.number_in("pages", 0..=127_u8).map(|n| Some(n * 2))
}

fn write_pages(pages: &Option<u8>) -> String {
    (pages.unwrap_or_default() / 2).to_string()
}

request! {
    /// Sets a limit.
    pub change Limit "limit_set" ["set limit"] {
        /// Family.
        pub family: Option<Family> = "ip4|ip6",
        /// Limit.
        pub limit: u16 = "<limit>",
        /// Interface.
        pub interface: IfRef = "<if>",
        /// It is off.
        pub on: bool = "disable" default(true),
        /// Pages; how many are to be shown.
        pub pages: Option<u8> = "pages <n>" with(read_pages, write_pages),
    }
}

request! {
    /// Makes a table.
    pub change Table "table_set" ["ip table" { family: Family::Ip4 }, "ip6 table" { family: Family::Ip6 }] {
        /// Family.
        pub family: Family = "",
        /// Number.
        pub id: u32 = "<id>",
        /// In the place of what is there; only programs ask for it.
        pub replace: bool = "",
    }
}

request! {
    /// Has another family behind a word.
    pub read Wrong "wrong" ["wrong"] {
        /// Family.
        pub family: Option<Family> = "ip6|ip4",
    }
}

/// Requests that ran, as JSON.
type Ran = Vec<serde_json::Value>;

macro_rules! notes {
    ($($name:ident)*) => { $(
        impl Execute<Ran> for $name {
            type Reply = ();
            fn execute(self, ran: &mut Ran) -> Result<Outcome<Ran, ()>, OpError> {
                ran.push(serde_json::to_value(&self).unwrap());
                Ok(Outcome::Done(()))
            }
        }
    )* };
}
notes!(Open State Limit Table Wrong);

fn registry() -> Registry<Ran> {
    let mut registry = Registry::new();
    registry.declare::<Open>().declare::<State>().declare::<Limit>().declare::<Table>();
    registry.values("if", |_| vec!["pg0".to_owned(), "pg1".to_owned()]);
    assert!(registry.problems().is_empty(), "{:?}", registry.problems());
    registry
}

/// The request that a line makes, or its error.
fn run(line: &str) -> Result<serde_json::Value, String> {
    let mut ran = Ran::new();
    match registry().execute(&mut ran, line, &View::TEXT) {
        Ok(_) => Ok(ran.pop().unwrap_or_default()),
        Err(error) => Err(error.to_string()),
    }
}

fn error(line: &str) -> String {
    run(line).unwrap_err()
}

/// Runs a JSON request.
fn run_json(operation: &str, request: serde_json::Value) -> Result<serde_json::Value, String> {
    let mut ran = Ran::new();
    let done = registry().request(operation, request).and_then(|invocation| invocation.run(&mut ran, &View::JSON));
    done.map(|_| ran.pop().unwrap_or_default()).map_err(|error| error.to_string())
}

#[test]
fn the_syntax_line_follows_from_the_fields() {
    assert_eq!(
        Open::syntax(),
        "host-if <linux-if> [hw-addr <mac>] [size <n>] [queues <n>|all] [zero-copy|no-zero-copy] [addr <ip>] ... [mtu <n>] \
         [mode ip] [learn 0|1] [v2] [num-tx-queues <n>]"
    );
    assert_eq!(State::syntax(), "<if> up|down");
    assert_eq!(Limit::syntax(), "[ip4|ip6] <limit> <if> [disable] [pages <n>]");
}

#[test]
fn words_come_in_any_order_and_what_is_absent_has_its_default() {
    let absent = json!({
        "host_if": "eth0", "mac": null, "size": null, "queues": null, "zero_copy": null, "addresses": [], "mtu": 1500,
        "ip": false, "learn": true,
    });
    assert_eq!(run("open host-if eth0").unwrap(), absent);
    assert_eq!(run("create dev v2 num-tx-queues 7 host-if eth0 queues all").unwrap(), absent);
    assert_eq!(run_json("device_open", json!({"host_if": "eth0"})).unwrap(), absent);
    let all =
        run("open learn 0 mode ip mtu 9000 addr 10.0.0.1 no-zero-copy queues 2 size 64 hw-addr 2:0:0:0:0:1 addr ::1 host-if eth0");
    let expected = json!({
        "host_if": "eth0", "mac": [2, 0, 0, 0, 0, 1], "size": 64, "queues": 2, "zero_copy": false,
        "addresses": ["10.0.0.1", "::1"], "mtu": 9000, "ip": true, "learn": false,
    });
    assert_eq!(all.unwrap(), expected);
    assert_eq!(run_json("device_open", expected.clone()).unwrap(), expected, "a request reads back");
}

#[test]
fn values_in_front_have_their_place() {
    assert_eq!(run("set state up down").unwrap(), json!({"interface": "up", "up": false}));
    let limit = |family: &str, on| json!({"family": family, "limit": 7, "interface": "pg0", "on": on, "pages": null});
    assert_eq!(run("set limit ip6 7 pg0").unwrap(), limit("ip6", true));
    assert_eq!(run("set limit 7 pg0 dis ip4").unwrap(), limit("ip4", false));
    assert_eq!(run("set limit 7 pg0 pages 4").unwrap()["pages"], 8);
}

#[test]
fn a_path_says_fields_that_no_words_say() {
    assert_eq!(Table::syntax(), "<id>");
    assert_eq!(run("ip6 table 7").unwrap(), json!({"family": "ip6", "id": 7, "replace": false}));
    assert_eq!(run("ip table 7").unwrap()["family"], "ip4");
    assert_eq!(error("ip table"), "ip table: missing id; expected <id>");
    assert_eq!(error("ip table 7 8"), "ip table: unknown input `8'");
    let missing = run_json("table_set", json!({"id": 7})).unwrap_err();
    assert_eq!(missing, "request of table_set: missing field `family`");
    assert_eq!(complete("ip table "), (vec![], vec!["<id>".to_owned()]));
}

#[test]
fn errors_name_the_word_and_what_was_expected() {
    let syntax = Open::syntax();
    assert_eq!(error("open"), format!("open: missing host-if <linux-if>; expected {syntax}"));
    assert_eq!(error("open host-if"), format!("open: missing host-if; expected {syntax}"));
    assert_eq!(error("open host-if a size 63"), "open: invalid size `63'; expected 64 to 4096");
    assert_eq!(error("open host-if a size x"), "open: invalid size `x'; expected a number");
    assert_eq!(error("open host-if a mtu 4294967296"), "open: invalid mtu `4294967296'; expected 0 to 4294967295");
    assert_eq!(error("open host-if a hw-addr 1:0:0:0:0:1"), "open: not a unicast MAC address (hw-addr 01:00:00:00:00:01)");
    assert_eq!(error("open host-if a learn 2"), "open: invalid learn `2'; expected `on' or `off'");
    assert_eq!(error("set state"), "set state: missing interface; expected <if> up|down");
    assert_eq!(error("set state pg0"), "set state: incomplete command; expected `up' or `down'");
    assert_eq!(error("set state pg0 upp"), "set state: unknown input `upp'; did you mean `up'? expected `up' or `down'");
    assert_eq!(error("set state pg0 up now"), "set state: unknown input `now'; expected `up' or `down'");
    assert_eq!(error("set limit 7"), "set limit: missing interface; expected [ip4|ip6] <limit> <if> [disable] [pages <n>]");
}

#[test]
fn json_and_messages_have_the_same_checks() {
    assert_eq!(run_json("device_open", json!({})).unwrap_err(), "request of device_open: missing field `host_if`");
    let unknown = run_json("device_open", json!({"host_if": "a", "sise": 1})).unwrap_err();
    assert!(unknown.contains("unknown field `sise`"), "{unknown}");
    let small = "invalid size `63'; expected 64 to 4096";
    assert_eq!(run_json("device_open", json!({"host_if": "a", "size": 63})).unwrap_err(), small);

    struct Message {
        host_if: String,
        ring_size: usize,
    }
    fn given<T>(value: T) -> Option<T>
    where
        T: Clone,
    {
        Some(value)
    }
    let message = Message { host_if: "a".to_owned(), ring_size: 63 };
    let request = from_message!(given, message => Open { host_if, size: Some(message.ring_size), ip: true }).unwrap();
    assert_eq!((request.ip, request.mtu), (true, 1500));
    assert_eq!(Open::run(&mut Ran::new(), request).map(drop).unwrap_err().to_string(), small);
    let message = Message { host_if: "a".to_owned(), ring_size: 0 };
    let error = from_message!(given, message => State { interface: IfRef(message.host_if) }).unwrap_err();
    assert_eq!(error.to_string(), "missing up");
}

fn complete(line: &str) -> (Vec<String>, Vec<String>) {
    let completion = registry().complete(line, line.len(), &Ran::new());
    let texts = |all: Vec<crate::grammar::Candidate>| all.into_iter().map(|c| c.text).collect();
    (texts(completion.candidates), texts(completion.hints))
}

#[test]
fn completion_follows_after_every_argument() {
    let nothing: [&str; 0] = [];
    let (words, hints) = complete("open host-if eth0 size 64 ");
    assert_eq!(words, ["addr", "hw-addr", "learn", "mode", "mtu", "no-zero-copy", "num-tx-queues", "queues", "v2", "zero-copy"]);
    assert_eq!(hints, nothing);
    assert_eq!(complete("open host-if eth0 addr 10.0.0.1 a").0, ["addr"], "may come again");
    assert_eq!(complete("open queues "), (vec!["all".to_owned()], vec!["<n>".to_owned()]));
    assert_eq!(complete("open mode "), (vec!["ip".to_owned()], vec![]));
    assert_eq!(complete("set state p"), (vec!["pg0".to_owned(), "pg1".to_owned()], vec!["<if>".to_owned()]));
    assert_eq!(complete("set state pg0 "), (vec!["down".to_owned(), "up".to_owned()], vec![]));
    assert_eq!(
        complete("set limit "),
        (["disable", "ip4", "ip6", "pages"].iter().map(|w| (*w).to_owned()).collect(), vec!["<limit>".to_owned()])
    );
    let size = registry().complete("open size ", 10, &Ran::new());
    assert_eq!(size.hints[0].help, "Entries of a ring; 64 to 4096");
    let word = registry().complete("open si", 7, &Ran::new());
    assert_eq!(word.candidates[0].help, "Entries of a ring; 64 to 4096");
}

#[test]
fn help_and_data_describe_each_argument() {
    let registry = registry();
    let mut ran = Ran::new();
    let Ok(Outcome::Done(answer)) = registry.execute(&mut ran, "set limit ?", &View::BOTH) else { panic!() };
    let text =
        "set limit [ip4|ip6] <limit> <if> [disable] [pages <n>]\n    Sets a limit\n    ip4|ip6    Family\n    <limit>    Limit\n";
    assert!(answer.text.starts_with(text), "{}", answer.text);
    let json: serde_json::Value = serde_json::from_str(&answer.json.unwrap()).unwrap();
    let first = &json["command"]["arguments"][0];
    assert_eq!(*first, json!({"syntax": "ip4|ip6", "field": "family", "need": "optional", "kind": "word", "help": "Family."}));
}

#[test]
fn words_that_differ_from_their_types_are_a_problem() {
    let mut registry = Registry::<Ran>::new();
    registry.declare::<Wrong>();
    assert_eq!(registry.problems().len(), 1, "{:?}", registry.problems());
}

/// A request, the command that it says it is made by, and what that command makes.
fn read_back<R: Execute<Ran>>(request: &R) {
    let command = request.command();
    let made = run(&command).unwrap_or_else(|error| panic!("{command}: {error}"));
    assert_eq!(made, serde_json::to_value(request).unwrap(), "{command}");
}

proptest::proptest! {
    #[test]
    fn the_command_of_a_request_makes_that_request(
        host_if in "[a-z \"\\\\]{1,8}",
        mac: Option<[u8; 5]>,
        size in proptest::option::of(64..=4096_usize),
        queues: Option<u32>,
        zero_copy: Option<bool>,
        addresses: Vec<std::net::IpAddr>,
        mtu: u32,
        flags: [bool; 4],
        id: u32,
        pages in proptest::option::of(0..=127_u8),
    ) {
        let mac = mac.map(|[a, b, c, d, e]| [a & !1 | 2, b, c, d, e, 1]);
        let [ip, learn, up, v6] = flags;
        read_back(&Open { host_if: host_if.clone(), mac, size, queues, zero_copy, addresses, mtu, ip, learn });
        read_back(&State { interface: IfRef(host_if.clone()), up });
        let family = if v6 { Family::Ip6 } else { Family::Ip4 };
        let pages = pages.map(|n| n * 2);
        read_back(&Limit { family: Some(family), limit: id as u16, interface: IfRef("pg0".into()), on: up, pages });
        read_back(&Limit { family: None, limit: id as u16, interface: IfRef("pg0".into()), on: up, pages });
        read_back(&Table { family, id, replace: false });
    }
}
