//! Plugins in shared objects, the ones of `examples/plugins`: found at start, loaded and unloaded while hosts talk.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use quiver_testbed::{Host, Router, Scenario, TwoHosts, TwoHostsOptions, is_short_pass, make_fifo};

use crate::common::{BOUND, assert_buffers_are_back, errors, eventually, iperf3};
use crate::workers::Stop;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A folder of plugins of one test; the shared objects are built into it.
struct Plugins(PathBuf);

impl Plugins {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quiver-plugins-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// The plugin in C.
    fn build_c(&self) {
        self.compile(&Path::new(ROOT).join("examples/plugins/c/ttl_guard.c"), "ttl_guard.so", &[]);
    }

    fn compile(&self, source: &Path, object: &str, options: &[String]) {
        let done = Command::new("cc")
            .args(["-O2", "-Wall", "-Werror", "-fPIC", "-shared", "-I"])
            .arg(Path::new(ROOT).join("crates/plugin/include"))
            .args(options)
            .arg("-o")
            .args([&self.path(object), source])
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// The plugin in Rust.
    fn build_rust(&self) {
        let done = Command::new(env!("CARGO"))
            .args(["build", "--locked", "--release", "--manifest-path"])
            .arg(Path::new(ROOT).join("examples/plugins/rust/Cargo.toml"))
            .arg("--target-dir")
            .arg(self.path("target"))
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::copy(self.path("target/release/libproto_count.so"), self.path("proto_count.so")).unwrap();
    }
}

impl Drop for Plugins {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(host: &Host, plugins: &Plugins, more: &str) -> Router {
    let conf = format!("cpu {{ workers 1 }} plugins {{ path {} {more} }}", plugins.0.display());
    Router::builder(host, &conf).start().unwrap()
}

const INTERFACES: &str = "create host-interface name r0
    create host-interface name r1
    set interface state host-r0 up
    set interface state host-r1 up
    set interface ip address host-r0 10.0.1.1/24
    set interface ip address host-r1 10.0.2.1/24";

/// A machine that is busy may answer late once.
fn assert_answers(host: &Host, options: &str) {
    eventually("the far host answers", BOUND, || answers(host, options));
}

fn answers(host: &Host, options: &str) -> bool {
    host.run(&format!("ping -c 2 -i 0.1 -W 1 {options} {}", TwoHosts::B4), BOUND).unwrap().success()
}

#[test]
fn a_plugin_in_c_is_found_at_start_and_its_configuration_lasts() {
    let Some(_scenario) = Scenario::begin(&["ping", "cc"]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions::default()).unwrap();
    let plugins = Plugins::new("lasting");
    plugins.build_c();
    std::fs::write(plugins.path("broken.so"), "no shared object").unwrap();
    std::fs::write(plugins.path("off.so"), "is not looked at").unwrap();
    let state = plugins.path("state");
    let conf = format!("plugin off {{ disable }} }} unix {{ state-dir {}", state.display());
    let router = start(&scene.middle, &plugins, &conf);
    router.script(INTERFACES).unwrap();
    assert_answers(&scene.a, "");
    assert!(router.log().contains("plugin `broken.so': it is no shared object"), "{}", router.log());
    assert!(!router.log().contains("off.so"), "{}", router.log());

    router.cli("set ttl-guard host-r0 min 10").unwrap();
    assert_answers(&scene.a, "");
    assert!(!answers(&scene.a, "-t 5"));
    // ping has given up both; a worker without a processor may not have had them yet.
    eventually("both are counted", BOUND, || errors(&router, "ttl-guard", "ttl below the least") == 2);
    let shown = router.cli("show ttl-guard").unwrap();
    assert!(shown.starts_with("interface  min  drops  bytes\nhost-r0    10   2      168"), "{shown}");
    assert_eq!(router.cli("set ttl-guard host-r0 min 0").unwrap_err().trim(), "set ttl-guard: invalid min `0'; expected 1 to 255");
    assert!(router.cli("show configuration").unwrap().contains("set ttl-guard host-r0 min 10"));
    assert!(router.cli("show interface features host-r0").unwrap().contains("ttl-guard"));
    let plugins_shown = router.cli("show plugins").unwrap();
    assert!(plugins_shown.contains("ttl_guard.so") && plugins_shown.contains("(shared object)"), "{plugins_shown}");
    router.stop().unwrap();

    // The next start has it again.
    let router = start(&scene.middle, &plugins, &conf);
    eventually("the configuration is there again", BOUND, || router.cli("show ttl-guard").unwrap().contains("host-r0    10"));
    assert_answers(&scene.a, "");
    assert!(!answers(&scene.a, "-t 5"));
    // Unloaded, it takes its configuration with it.
    router.cli("plugin unload ttl_guard").unwrap();
    assert_answers(&scene.a, "-t 5");
    assert!(!router.cli("show configuration").unwrap().contains("ttl-guard"));
    let error = router.cli("set ttl-guard host-r0").unwrap_err();
    assert!(error.contains("unknown input"), "{error}");
    for (line, says) in [
        ("plugin load nothing", "no plugin `nothing' in "),
        ("plugin load broken", "plugin `broken.so': it is no shared object"),
        ("plugin unload nothing", "no plugin `nothing' is loaded"),
        ("plugin unload memif", "plugin `memif' is part of the program"),
    ] {
        let error = router.cli(line).unwrap_err();
        assert!(error.contains(says) && error.trim().lines().count() == 1, "{line}: {error}");
    }
    assert_buffers_are_back(&router);
    router.stop().unwrap();
}

#[test]
fn plugins_come_and_go_while_hosts_talk() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", "cc"]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions::default()).unwrap();
    let plugins = Plugins::new("traffic");
    let router = start(&scene.middle, &plugins, "");
    router.script(INTERFACES).unwrap();
    assert_answers(&scene.a, "");
    // They are put there after the start.
    plugins.build_c();
    plugins.build_rust();
    let rounds = if is_short_pass() { 5 } else { 40 };
    let (a, b, done) = (&scene.a, &scene.b, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let stopping = Stop(&done);
        let traffic = scope.spawn(|| -> u32 {
            let mut runs = 0;
            loop {
                let out = iperf3(a, b, &format!("--client {} --bytes 64M --json", TwoHosts::B4));
                assert!(out.contains("\"sum_received\""), "{out}");
                runs += 1;
                if done.load(Relaxed) {
                    return runs;
                }
            }
        });
        for _ in 0..rounds {
            for (name, set) in [("ttl_guard", "set ttl-guard host-r0 min 2"), ("proto_count", "set proto-count host-r0")] {
                router.cli(&format!("plugin load {name}")).unwrap();
                router.cli(set).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
            // TCP was counted while both were on.
            eventually("TCP is counted", BOUND, || router.cli("show proto-count").unwrap().contains("\n6 "));
            for name in ["ttl_guard", "proto_count"] {
                router.cli(&format!("plugin unload {name}")).unwrap();
            }
        }
        drop(stopping);
        assert!(traffic.join().unwrap() > 0);
    });
    let mapped = || std::fs::read_to_string(format!("/proc/{}/maps", router.pid())).unwrap();
    eventually("its memory is given back", BOUND, || !mapped().contains("ttl_guard.so"));
    assert_eq!(errors(&router, "ttl-guard", "ttl below the least"), 0);
    assert_buffers_are_back(&router);
    router.stop().unwrap();
}

/// Its memory image waits, before the router runs anything of it, for a byte from a pipe.
const SLOW: &str = r#"
#include <fcntl.h>
#include <quiver_plugin.h>
#include <unistd.h>

__attribute__((constructor)) static void wait_for_a_byte(void) {
    char byte;
    int pipe = open(PIPE, O_RDONLY);
    if (read(pipe, &byte, 1) < 1)
        _exit(1);
    close(pipe);
}

static int32_t start(const quiver_host *host, const char *options, void **plugin, quiver_text *error) {
    (void)host, (void)options, (void)plugin, (void)error;
    return 0;
}

QUIVER_EXPORT const struct quiver_plugin quiver_plugin = {
    .abi = QUIVER_ABI, QUIVER_SIZES, .name = "slow", .version = "1.0", .about = "Waits", .start = start,
};
"#;

#[test]
fn a_plugin_that_takes_long_to_load_stops_nobody() {
    let Some(_scenario) = Scenario::begin(&["ping", "cc"]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions::default()).unwrap();
    let plugins = Plugins::new("slow");
    // The main thread forwards.
    let conf = format!("plugins {{ path {} }}", plugins.0.display());
    let router = Router::builder(&scene.middle, &conf).start().unwrap();
    router.script(INTERFACES).unwrap();
    assert_answers(&scene.a, "");
    let (source, pipe) = (plugins.path("slow.c"), plugins.path("pipe"));
    std::fs::write(&source, SLOW).unwrap();
    plugins.compile(&source, "slow.so", &[format!("-DPIPE=\"{}\"", pipe.display())]);
    make_fifo(&pipe).unwrap();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| router.cli("plugin load slow"));
        // Opens when the plugin waits at the other end.
        let mut end = std::fs::File::options().write(true).open(&pipe).unwrap();
        assert_answers(&scene.a, "");
        assert!(!load.is_finished());
        end.write_all(b"!").unwrap();
        load.join().unwrap().unwrap();
    });
    assert!(router.cli("show plugins").unwrap().contains("slow.so"));
    router.cli("plugin unload slow").unwrap();
    router.stop().unwrap();
}
