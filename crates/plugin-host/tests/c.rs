//! The plugin in C of `examples/plugins/c`, and plugins that do not fit, in a router.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use quiver_command::operation::{OpError, Registry, View};
use quiver_net::testing::{Harness, host_mac, router_mac};
use quiver_net::{IfIndex, Router};
use quiver_plugin_host::{Library, Plugins, Refused};
use quiver_wire::build::Packet;
use serde_json::{Map, Value, json};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const GUARD: &str = include_str!("../../../examples/plugins/c/ttl_guard.c");

/// A folder of this test alone, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quiver-plugin-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Builds a plugin of this text.
    fn build(&self, name: &str, text: &str, more: &[&str]) -> PathBuf {
        let (source, object) = (self.0.join(format!("{name}.c")), self.0.join(format!("{name}.so")));
        std::fs::write(&source, text).unwrap();
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let done = Command::new(compiler)
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-I"])
            .arg(Path::new(ROOT).join("crates/plugin/include"))
            .args(more)
            .arg("-o")
            .args([&object, &source])
            .output()
            .expect("a C compiler");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        object
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A router whose x0 leads to 10.0.0.0/24 and x1 to 10.0.1.0/24, each with a host.
fn router(workers: usize) -> (Harness, IfIndex) {
    let mut h = Harness::with_workers(workers);
    let x = [h.interface(0), h.interface(1)];
    for (n, index) in (0..).zip(x) {
        h.router.add_address(index, IpAddr::from([10, 0, n, 1]), 24).unwrap();
        h.router.neighbor_update(index, IpAddr::from([10, 0, n, 2]), Some(host_mac(n))).unwrap();
    }
    Plugins::prepare(&mut h.router);
    (h, x[0])
}

fn frame(ttl: u8) -> Vec<u8> {
    let packet = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 0, 1, 2]).ttl(ttl);
    packet.udp(1000, 80).payload(&[7; 20]).build()
}

fn start(router: &mut Router, path: &Path) -> Result<String, Refused> {
    let library = Library::open(path)?;
    Plugins::start(router, library, &Map::new()).map(|loaded| loaded.name().to_owned())
}

fn registry(router: &Router) -> Registry<Router> {
    let mut registry = Registry::new();
    for loaded in Plugins::of(router) {
        for operation in loaded.operations() {
            registry.dynamic(operation);
        }
    }
    assert!(registry.problems().is_empty(), "{:?}", registry.problems());
    registry
}

fn run(registry: &Registry<Router>, router: &mut Router, line: &str) -> Result<String, OpError> {
    match registry.execute(router, line, &View::TEXT)? {
        quiver_command::operation::Outcome::Done(answer) => Ok(answer.text),
        quiver_command::operation::Outcome::Job(_) => panic!("{line} takes time"),
    }
}

#[test]
fn a_plugin_in_c_forwards_counts_and_goes_again_under_traffic() {
    let folder = Folder::new("guard");
    let object = folder.build("ttl_guard", GUARD, &[]);
    for workers in [0, 2] {
        let (mut h, x0) = router(workers);
        let thread = usize::from(workers > 0);
        for round in 0..3 {
            assert_eq!(start(&mut h.router, &object).unwrap(), "ttl-guard");
            let again = start(&mut h.router, &object).unwrap_err();
            assert_eq!(again.to_string(), "plugin `ttl_guard.so': a plugin `ttl-guard' is loaded already");
            let registry = registry(&h.router);
            assert_eq!(run(&registry, &mut h.router, "show ttl-guard").unwrap(), "");
            run(&registry, &mut h.router, "set ttl-guard x0 min 10").unwrap();
            let frames: Vec<Vec<u8>> = (0..30).map(|n| frame(if n % 3 == 0 { 9 } else { 64 })).collect();
            h.inject_many(x0, &frames, thread);
            assert_eq!(h.run().len(), 20, "round {round}");
            assert_eq!(h.count("ttl-guard", "ttl below the least"), 10, "counts begin anew with each load");
            let shown = run(&registry, &mut h.router, "show ttl-guard").unwrap();
            assert_eq!(shown, "interface  min  drops  bytes\nx0         10   10     480\n");

            let mut out = quiver_command::configuration::Configuration::default();
            while !quiver_plugin_host::configuration(&h.router)(&h.router, &mut out) {}
            let [entry] = out.entries() else { panic!("one entry") };
            assert_eq!(entry.command, "set ttl-guard x0 min 10");
            assert_eq!(entry.request.get(), r#"{"disable":false,"interface":"x0","min":10}"#);

            // Packets are on their way while it goes; none is lost, and none meets a node that is gone.
            h.inject_many(x0, &frames, thread);
            assert!(Plugins::stop(&mut h.router, "ttl_guard").unwrap());
            // A worker stops between two nodes, not between two vectors: of those with a low TTL some can pass after it went.
            let (kept, low): (Vec<_>, Vec<_>) = h.run().into_iter().partition(|(_, frame)| frame[22] == 63);
            assert_eq!(kept.len(), 20, "none that the plugin lets through is lost");
            assert!(low.len() <= 10 && low.iter().all(|(_, frame)| frame[22] == 8), "{low:?}");
            h.inject_many(x0, &frames, thread);
            assert_eq!(h.run().len(), 30);
            assert!(h.router.graph.node("ttl-guard").is_none());
            let error = run(&registry, &mut h.router, "show ttl-guard").unwrap_err();
            assert_eq!(error.to_string(), "show ttl-guard: the plugin of this operation is unloaded");
            h.assert_buffers_held(0);
        }
    }
}

#[test]
fn commands_json_and_errors_are_those_of_a_declared_request() {
    let folder = Folder::new("errors");
    let (mut h, _) = router(0);
    start(&mut h.router, &folder.build("ttl_guard", GUARD, &[])).unwrap();
    let registry = registry(&h.router);
    let error = |h: &mut Harness, line: &str| run(&registry, &mut h.router, line).unwrap_err().to_string();
    assert_eq!(error(&mut h, "set ttl-guard x0 min 256"), "set ttl-guard: invalid min `256'; expected 1 to 255");
    assert_eq!(error(&mut h, "set ttl-guard nothing"), "set ttl-guard: unknown interface; `show interface' lists all");
    let completion = registry.complete("set ttl-guard x0 m", 18, &h.router);
    assert_eq!(completion.candidates.iter().map(|c| c.text.as_str()).collect::<Vec<_>>(), ["min"]);
    let json = registry.request("ttl_guard_set", json!({"interface": "x0", "min": 3})).unwrap();
    assert_eq!(json.request_json().unwrap(), json!({"interface": "x0", "min": 3, "disable": false}));
    json.run(&mut h.router, &View::JSON).unwrap();
    let shown = registry.request("ttl_guard_show", Value::Null).unwrap().run(&mut h.router, &View::JSON).unwrap();
    let quiver_command::operation::Outcome::Done(answer) = shown else { panic!("at once") };
    assert_eq!(answer.json.unwrap(), r#"[{"interface":"x0","min":3,"drops":0,"bytes":0}]"#);
    // An interface that goes takes its setting with it.
    let index = h.router.interfaces.find("x0").unwrap();
    h.router.delete_interface(index).unwrap();
    assert_eq!(run(&registry, &mut h.router, "show ttl-guard").unwrap(), "");
}

#[test]
fn what_does_not_fit_is_one_line_and_leaves_nothing() {
    let folder = Folder::new("refused");
    let (mut h, x0) = router(0);
    let nodes = h.router.graph.nodes().len();
    let changed = |from: &str, to: &str| {
        assert!(GUARD.contains(from), "{from}");
        GUARD.replace(from, to)
    };
    let cases = [
        (
            "abi",
            changed(".abi = QUIVER_ABI", ".abi = 9"),
            "it is made for version 9 of the plugin interface, and this router has version 1",
        ),
        ("size", changed("    QUIVER_SIZES,", "    QUIVER_SIZES, .batch_size = 8,"), "its structure `quiver_batch' has 8 bytes"),
        (
            "symbol",
            changed("struct quiver_plugin quiver_plugin =", "struct quiver_plugin other ="),
            "it has no symbol `quiver_plugin'",
        ),
        ("missing", changed("    host = router;", "    extern void nowhere(void); nowhere();"), "cannot load it: "),
        (
            "start",
            changed("    host = router;", "    router->write(error, \"no\\nluck\", 7); return 3;"),
            "it does not start: no luck",
        ),
        ("none", changed("    .start = start,", ""), "it has no function `start'"),
        (
            "node",
            changed(".name = \"ttl-guard\", .next = next", ".name = \"ip4-lookup\", .next = next"),
            "the feature `ttl-guard' is no node of the plugin",
        ),
        ("twice", changed("\"ttl-guard\"", "\"ip4-lookup\""), "node `ip4-lookup' exists already"),
        ("next", changed("{\"ip4-lookup\"}", "{\"ip5-lookup\"}"), "ip5-lookup"),
        ("arc", changed(".arc = \"ip4-unicast\"", ".arc = \"ip5-unicast\""), "ip5-unicast"),
        ("counter", changed("\"/ttl-guard/drops\"", "\"/if/rx\""), "there are counters `/if/rx' already"),
        ("kind", changed("\\\"kind\\\":\\\"flag\\\"", "\\\"kind\\\":\\\"flak\\\""), "unknown variant `flak`"),
    ];
    for (name, text, why) in cases {
        // Parts of it are not used then.
        let object = folder.build(name, &text, &["-Wno-error"]);
        let error = start(&mut h.router, &object).expect_err(name).to_string();
        let what = format!("plugin `{name}.so': ");
        assert!(error.starts_with(&what) && !error.contains('\n'), "{error}");
        assert!(error.contains(why), "{name}: {error}");
        assert_eq!(h.router.graph.nodes().len(), nodes, "{name}");
        assert!(Plugins::of(&h.router).is_empty(), "{name}");
        h.inject(x0, &frame(64));
        assert_eq!(h.run().len(), 1, "{name}: the router goes on");
    }
    // After all of them the right one still starts.
    start(&mut h.router, &folder.build("ttl_guard", GUARD, &[])).unwrap();
}

#[test]
fn a_plugin_that_still_runs_is_switched_off_and_stays_in_memory() {
    let folder = Folder::new("busy");
    let stop = "static int32_t busy(void *plugin) { (void)plugin; return 1; }\nQUIVER_EXPORT const struct quiver_plugin quiver_plugin = {\n    .stop = busy,";
    let text = GUARD.replace("QUIVER_EXPORT const struct quiver_plugin quiver_plugin = {", stop);
    let (mut h, x0) = router(0);
    start(&mut h.router, &folder.build("busy", &text, &[])).unwrap();
    let registry = registry(&h.router);
    run(&registry, &mut h.router, "set ttl-guard x0 min 255").unwrap();
    assert!(!Plugins::stop(&mut h.router, "busy.so").unwrap());
    assert_eq!(Plugins::stuck(&h.router).iter().map(|info| info.file.as_str()).collect::<Vec<_>>(), ["busy.so"]);
    h.inject(x0, &frame(64));
    assert_eq!(h.run().len(), 1);
    let error = Plugins::stop(&mut h.router, "busy").unwrap_err().to_string();
    assert!(error.starts_with("no plugin `busy' is loaded"), "{error}");
}

/// A node that names slots, reasons, packets and counters that are not there.
#[test]
fn numbers_of_a_plugin_are_looked_at() {
    let folder = Folder::new("wild");
    let wild = "static void run(void *node, quiver_batch *batch) {
    (void)node;
    if (batch->shift(batch, 5000, 1) != -1 || batch->shift(batch, 0, 60000) != -1 || batch->shift(batch, 0, -60000) != -1) abort();
    batch->count_events(batch, 77, 1);
    batch->add(batch, 77, 1, 1, 1);
    batch->add(batch, 0, 4000000000u, 1, 1);
    uint8_t *first = batch->head[0];
    if (batch->shift(batch, 0, -4) != 0 || batch->head[0] != first - 4 || batch->shift(batch, 0, 4) != 0 || batch->head[0] != first) abort();
    batch->next[0] = 999;
    if (batch->count > 1) quiver_drop(batch, 1, 999);
}

static inline void old(void *node, quiver_batch *batch) {";
    let text = GUARD.replace("static void run(void *node, quiver_batch *batch) {", wild);
    let (mut h, x0) = router(0);
    start(&mut h.router, &folder.build("wild", &text, &["-Wno-error"])).unwrap();
    let registry = registry(&h.router);
    run(&registry, &mut h.router, "set ttl-guard x0").unwrap();
    let frames: Vec<Vec<u8>> = (0..3).map(|_| frame(64)).collect();
    h.inject_many(x0, &frames, 0);
    assert_eq!(h.run().len(), 1);
    assert_eq!(h.count("ttl-guard", "dropped by the plugin"), 1);
    h.assert_buffers_held(0);
}

#[test]
fn all_plugins_end_with_the_router() {
    let folder = Folder::new("end");
    let (mut h, _) = router(0);
    start(&mut h.router, &folder.build("ttl_guard", GUARD, &[])).unwrap();
    let loaded = Rc::downgrade(&Plugins::of(&h.router)[0]);
    Plugins::stop_all(&mut h.router);
    assert!(Plugins::of(&h.router).is_empty() && loaded.upgrade().is_none());
}

/// The page builds as it is printed, and its plugin counts.
#[test]
fn the_plugin_of_the_page_runs() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/plugins.md")).unwrap();
    let text = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a plugin in C");
    let folder = Folder::new("page");
    let (mut h, x0) = router(0);
    start(&mut h.router, &folder.build("seen", text, &[])).unwrap();
    let registry = registry(&h.router);
    run(&registry, &mut h.router, "set seen x0").unwrap();
    let frames: Vec<Vec<u8>> = (0..7).map(|_| frame(64)).collect();
    h.inject_many(x0, &frames, 0);
    assert_eq!(h.run().len(), 7);
    let counters = h.router.graph.stats().simple("/seen/packets", 1);
    assert_eq!(counters.sum(x0.0), 7);
    run(&registry, &mut h.router, "set seen x0 disable").unwrap();
    h.inject_many(x0, &frames, 0);
    assert_eq!((h.run().len(), counters.sum(x0.0)), (7, 7));
}

/// The header and the structures of Rust have the same sizes and places.
#[test]
fn the_header_has_the_structures_of_the_rust_side() {
    use quiver_plugin::abi::{Batch, Counter, Feature, Host, Node, Operation, Plugin, Reason};
    use std::mem::offset_of;
    let mut places = String::new();
    macro_rules! places {
        ($($type:ident = $name:literal { $($field:ident $c:literal),* };)*) => { $(
            places += &format!("_Static_assert(sizeof({}) == {}, \"{}\");\n", $name, size_of::<$type>(), $name);
            $( places += &format!("_Static_assert(offsetof({}, {}) == {}, \"{}.{}\");\n", $name, $c, offset_of!($type, $field), $name, $c); )*
        )* };
    }
    places! {
        Batch = "quiver_batch" { size "size", count "count", head "head", length "length", context "context", note "note", next "next",
            reason "reason", now "now", thread "thread", router "router", shift "shift", count_events "count_events", add "add" };
        Host = "quiver_host" { abi "abi", size "size", router "router", write "write", log "log", feature "feature", interface "interface",
            interface_name "interface_name", sum "sum" };
        Reason = "quiver_reason" { text "text", about "about", is_info "is_info" };
        Node = "quiver_node" { name "name", next "next", reasons "reasons", next_count "next_count", reason_count "reason_count",
            open "open", close "close", run "run" };
        Feature = "quiver_feature" { arc "arc", node "node", before "before", after "after", before_count "before_count",
            after_count "after_count" };
        Counter = "quiver_counter" { name "name", is_combined "is_combined", capacity "capacity" };
        Operation = "quiver_operation" { declaration "declaration", run "run" };
        Plugin = "quiver_plugin_t" { abi "abi", size "size", sizes "host_size", name "name", version "version", about "about",
            nodes "nodes", features "features", counters "counters", operations "operations", node_count "node_count",
            feature_count "feature_count", counter_count "counter_count", operation_count "operation_count", start "start", stop "stop",
            configuration "configuration", interface_gone "interface_gone" };
    }
    let text = format!("#include <quiver_plugin.h>\n{places}");
    Folder::new("header").build("places", &text, &[]);
}
