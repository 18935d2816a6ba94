//! What is accepted, what is refused, and where the finger points.

use super::{Config, ConfigError, Listen, Schema, Section, Source};
use proptest::prelude::*;
use std::path::PathBuf;

fn schema() -> Schema {
    let plugin =
        Section::new("plugin").flag("enable").flag("disable").flag("skip-version-check").without_effect("plugins are built in");
    let device = Section::new("dev").value("num-rx-queues", "number").list("workers", "cores");
    Schema::new()
        .section(
            Section::new("unix")
                .flag("nodaemon")
                .flag("interactive")
                .value("log", "file")
                .value("cli-listen", "path or host:port")
                .value("cli-history-limit", "number")
                .flag("full-coredump")
                .without_effect("the system decides"),
        )
        .section(Section::new("cpu").value("main-core", "core").list("corelist-workers", "cores").value("coremask-workers", "mask"))
        .section(
            Section::new("buffers")
                .value("buffers-per-numa", "number")
                .value("default data-size", "size")
                .value("page-size", "size")
                .named("numa", "node", Section::new("numa").value("buffers", "number")),
        )
        .section(Section::new("plugins").value("path", "folder").group("default", plugin.clone()).named("plugin", "name", plugin))
        .section(Section::new("node").any("node", Section::new("node").value("variant", "name")))
        .section(Section::new("dpdk").named("dev", "address", device))
        .section_without_effect("api-segment", "the API has no shared memory here")
}

fn read(text: &str) -> Config {
    schema().read(Source::file("startup.conf", text)).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    schema().read(Source::file("f", text)).unwrap_err().to_string()
}

#[test]
fn a_file_of_the_usual_form_is_read() {
    let config = read(
        "# comment\nunix {\n  nodaemon   # stay\n  log /tmp/a.log\n  cli-listen /run/x/cli.sock\n}\n\
         cpu { main-core 0\n corelist-workers 4, 6 , 8-9 }\nbuffers { buffers-per-numa 16384 default data-size 2048\n\
         page-size 2M numa 0 { buffers 10 } numa 1 { buffers 0x20 } }\n\
         plugins { plugin default { disable } plugin nat_plugin.so{enable}path /usr/lib }\nnode { ip4-lookup { variant v3 } }\n",
    );
    let unix = config.section("unix");
    assert!(unix.flag("nodaemon") && !unix.flag("interactive"));
    assert_eq!(unix.get("log").unwrap().path(), PathBuf::from("/tmp/a.log"));
    assert_eq!(config.section("cpu").get("corelist-workers").unwrap().cpu_list().unwrap(), [4, 6, 8, 9]);
    let buffers = config.section("buffers");
    assert_eq!(buffers.get("default data-size").unwrap().size().unwrap(), 2048);
    assert_eq!(buffers.get("page-size").unwrap().size().unwrap(), 2 << 20);
    let numa: Vec<_> =
        buffers.named("numa").map(|(node, block)| (node.u32().unwrap(), block.get("buffers").unwrap().u32().unwrap())).collect();
    assert_eq!(numa, [(0, 10), (1, 32)]);
    let plugins: Vec<_> =
        config.section("plugins").named("plugin").map(|(name, block)| (name.text(), block.flag("enable"))).collect();
    assert_eq!(plugins, [("default", false), ("nat_plugin.so", true)]);
    let (node, block) = config.section("node").any().next().unwrap();
    assert_eq!((node.text(), block.get("variant").unwrap().text()), ("ip4-lookup", "v3"));
    assert!(!config.has("dpdk") && config.notices().is_empty());
}

#[test]
fn command_line_words_are_a_configuration_too() {
    let words = "unix { interactive cli-listen 127.0.0.1:5002 } cpu { main-core 0 }".split(' ');
    let config = schema().read(Source::words(words)).unwrap();
    let listen = config.section("unix").get("cli-listen").unwrap().listen().unwrap();
    assert_eq!(listen, Listen::Tcp { host: "127.0.0.1".to_owned(), port: 5002 });
    let config = schema().read(Source::words(["unix {nodaemon}", "cpu {", "main-core", "2}"])).unwrap();
    assert_eq!(config.section("cpu").get("main-core").unwrap().u32().unwrap(), 2);
    let error = schema().read(Source::words(["unix", "{", "nodeamon", "}"])).unwrap_err();
    assert_eq!(error.to_string(), "command line:1:8: unknown key `nodeamon' in section `unix'; did you mean `nodaemon'?");
}

#[test]
fn a_section_may_come_several_times_and_the_last_value_counts() {
    let config = read("unix { log a nodaemon } cpu { } unix { log b }");
    assert!(config.section("unix").flag("nodaemon") && config.has("cpu"));
    assert_eq!(config.section("unix").get("log").unwrap().text(), "b");
    assert_eq!(config.section("unix").values("log").count(), 2);
}

#[test]
fn errors_point_at_the_offending_text() {
    for (text, expected) in [
        ("unx { }", "f:1:1: unknown section `unx'; did you mean `unix'?"),
        ("\n\n  main-core 3", "f:3:3: unknown section `main-core'; write `cpu { main-core ... }'"),
        ("unix nodaemon", "f:1:1: section `unix' without its group; write `unix { ... }'"),
        ("{ unix }", "f:1:1: a group without a section name before it; write `unix { ... }'"),
        ("unix {\n\tlgo x }", "f:2:2: unknown key `lgo' in section `unix'; did you mean `log'?"),
        ("unix { log }", "f:1:8: `log' needs a file"),
        ("unix { nodaemon { } }", "f:1:17: a group that belongs to no key; section `unix' has no group here"),
        ("buffers { default size 1 }", "f:1:19: unknown key after `default' in section `buffers'; expected `default data-size'"),
        ("plugins { plugin x { enabel } }", "f:1:22: unknown key `enabel' in section `plugin'; did you mean `enable'?"),
        ("plugins { default x }", "f:1:11: `default' needs a group in braces"),
        ("unix {", "f:1:6: `{' without `}'; close the group with `}'"),
        ("é }", "f:1:3: `}' without `{'; remove it, or open the group before it"),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    assert!(error(&"unix { ".repeat(100)).contains("nested too deep"));
}

#[test]
fn what_has_no_meaning_here_gives_a_notice() {
    let config = read("unix { full-coredump }\napi-segment { gid { a } b }\nplugins { plugin x { skip-version-check } }");
    let notices: Vec<_> = config.notices().iter().map(ToString::to_string).collect();
    assert_eq!(
        notices,
        [
            "startup.conf:1:8: `full-coredump' has no effect: the system decides",
            "startup.conf:2:1: section `api-segment' has no effect: the API has no shared memory here",
            "startup.conf:3:22: `skip-version-check' has no effect: plugins are built in",
        ]
    );
}

#[test]
fn the_excerpt_shows_the_line() {
    let error = schema().read(Source::file("startup.conf", "unix {\n  nodeamon\n}\n")).unwrap_err();
    let excerpt = error.excerpt(false);
    assert!(excerpt.contains("--> startup.conf:2:3") && excerpt.contains("^^^^^^^^"), "{excerpt}");
    assert!(excerpt.contains("did you mean `nodaemon'?"), "{excerpt}");
    assert_eq!((error.text(), error.position()), ("nodeamon", (2, 3)));
}

fn value<T>(word: &str, read: impl Fn(&super::Value) -> Result<T, ConfigError>) -> Result<T, String> {
    let config = schema().read(Source::file("f", format!("unix {{ log \"{word}\" }}"))).unwrap();
    read(config.section("unix").get("log").unwrap()).map_err(|error| error.to_string())
}

#[test]
fn sizes_have_binary_units() {
    for (word, bytes) in
        [("0", 0), ("2048", 2048), ("64k", 65536), ("16M", 16 << 20), ("1g", 1 << 30), ("2MB", 2 << 20), ("0x10k", 16384)]
    {
        assert_eq!(value(word, |value| value.size()), Ok(bytes), "{word}");
    }
    for word in ["", "k", "x", "-1", "1.5G", "99999999999999999999", "99999999999T"] {
        assert!(value(word, |value| value.size()).is_err(), "{word}");
    }
}

#[test]
fn cores_are_lists_or_masks() {
    assert_eq!(value("2-4,6", |value| value.cpu_list()), Ok(vec![2, 3, 4, 6]));
    assert!(value("6, 4,4", |value| value.cpu_list()).is_err(), "a blank within quotes is none of ours");
    assert_eq!(value("0x3c", |value| value.cpu_mask()), Ok(vec![2, 3, 4, 5]));
    assert_eq!(value("100000000000000000", |value| value.cpu_mask()), Ok(vec![68]));
    assert_eq!(
        value("4-2", |value| value.cpu_list()).unwrap_err(),
        "f:1:12: invalid value `4-2' for `log'; `4-2' ends before it starts"
    );
    for word in ["", ",", "1,", "a", "0-4294967295", "1-2-3", "-1"] {
        assert!(value(word, |value| value.cpu_list()).is_err(), "{word}");
    }
    for word in ["", "0x", "xyz", &"f".repeat(10_000)] {
        assert!(value(word, |value| value.cpu_mask()).is_err(), "{word}");
    }
}

#[test]
fn sockets_are_paths_or_ports() {
    let tcp = |host: &str, port| Ok(Listen::Tcp { host: host.to_owned(), port });
    assert_eq!(value("/run/a:1.sock", |value| value.listen()), Ok(Listen::Unix("/run/a:1.sock".into())));
    assert_eq!(value("cli.sock", |value| value.listen()), Ok(Listen::Unix("cli.sock".into())));
    assert_eq!(value("localhost:5002", |value| value.listen()), tcp("localhost", 5002));
    assert_eq!(value("[::1]:80", |value| value.listen()), tcp("::1", 80));
    assert_eq!(value(":80", |value| value.listen()), tcp("", 80));
    assert!(value("host:x", |value| value.listen()).is_err());
    assert!(value("host:65536", |value| value.listen()).is_err());
}

#[test]
fn switches_and_choices_know_their_words() {
    assert_eq!(value("on", |value| value.switch()), Ok(true));
    assert_eq!(value("disable", |value| value.switch()), Ok(false));
    let choices = [("fifo", 1), ("other", 2)];
    assert_eq!(value("fifo", |value| value.one_of(&choices)), Ok(1));
    let error = value("fifp", |value| value.one_of(&choices)).unwrap_err();
    assert_eq!(error, "f:1:12: invalid value `fifp' for `log'; did you mean `fifo'? expected `fifo', `other'");
    assert_eq!(
        value("300", |value| value.number_in(0_u32..=99)).unwrap_err(),
        "f:1:12: invalid value `300' for `log'; expected a number from 0 to 99"
    );
}

proptest! {
    #[test]
    fn no_text_panics(text in "(unix|cpu|buffers|plugins|plugin|node|default|log|corelist-workers|[{}#\",\\n ]| |é|4|\\PC){0,40}") {
        match schema().read(Source::file("f", text)) {
            Ok(config) => {
                for section in ["unix", "cpu"] {
                    for value in config.section(section).values("log").chain(config.section(section).values("corelist-workers")) {
                        let _ = (value.size(), value.cpu_list(), value.cpu_mask(), value.listen(), value.switch(), value.u32());
                    }
                }
            }
            Err(error) => {
                prop_assert!(!error.to_string().contains('\n'));
                let _ = error.excerpt(true);
            }
        }
    }
}
