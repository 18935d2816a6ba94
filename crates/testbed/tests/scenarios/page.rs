//! The page of `quiver-web` in a browser, and the bundle that `quiverctl support-bundle` makes, of a router with traffic.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::common::eventually;
use quiver_testbed::{Browser, Host, Router, Scenario};

/// Traffic that is forwarded, dropped by a route, and for nobody; a tag that tries to be markup, and a secret.
const SETUP: &str = "create packet-generator interface pg0
create packet-generator interface pg1
set interface state pg0 up
set interface state pg1 up
set interface mac address pg0 02:00:00:00:00:01
set interface ip address pg0 10.0.0.1/24
set interface ip address pg1 192.0.2.1/24
set interface tag pg1 <img src=x onerror=document.title='taken'> & co
ip neighbor pg1 192.0.2.2 02:00:00:00:00:02 static
ip route add 198.51.100.0/24 via 192.0.2.2 pg1
ip route add 203.0.113.0/24 via drop
create interface memif id 0 secret sesame
packet-generator new { name a limit 0 rate 2000 size 100-100 interface pg0 node ethernet-input data { IP4: 02:00:00:00:00:09 -> 02:00:00:00:00:01 UDP: 10.0.0.2 -> 198.51.100.1 UDP: 1234 -> 80 incrementing 60 } }
packet-generator new { name b limit 0 rate 500 size 100-100 interface pg0 node ethernet-input data { IP4: 02:00:00:00:00:09 -> 02:00:00:00:00:01 UDP: 10.0.0.2 -> 203.0.113.1 UDP: 1234 -> 80 incrementing 60 } }
packet-generator enable-stream";

/// Longest wait for what happens at once; the machine may be busy.
const SOON: Duration = Duration::from_secs(120);

const CONF: &str = "statseg { default }";

/// A program beside the router, ended with the value.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts quiver-web; gives its address.
fn web(router: &Router, options: &[&str]) -> (Beside, String) {
    let program = Router::binary().unwrap().with_file_name("quiver-web");
    let mut command = Command::new(&program);
    command.args(["--listen", "127.0.0.1:0", "--socket"]).arg(router.folder().join("json.sock"));
    command.arg("--stats").arg(router.folder().join("stats.sock")).args(options).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}; build -p quiver-web", program.display()));
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("quiver-web: ").unwrap_or_else(|| panic!("{line}"));
    (Beside(child), address.trim_end_matches('/').to_owned())
}

#[test]
fn the_page_shows_a_router_and_what_a_reader_asks_for() {
    let Some(_scenario) = Scenario::begin(&["chromium", "mkfifo"]) else { return };
    let host = Host::new("page").unwrap();
    let router = Router::start(&host, CONF).expect("router");
    router.script(SETUP).expect("set-up");
    let (_web, address) = web(&router, &["--allow-trace"]);
    let mut page = Browser::start().expect("Chromium");
    page.open(&format!("{address}/"));

    // The graph: nodes with packets, a focus that keys move, figures of the node that is chosen.
    page.wait_for("document.querySelector('[data-node=\"ip4-lookup\"] .small')?.textContent.includes('p/s')");
    page.wait_for("document.querySelectorAll('.edge').length > 4 && document.querySelector('.edge.drop')");
    page.wait_for(
        "(document.querySelector('[data-node=\"ip4-drop\"]').focus(), document.activeElement.dataset.node === 'ip4-drop')",
    );
    page.press("Enter");
    page.wait_for("document.querySelector('.detail h2').textContent === 'ip4-drop' && document.querySelector('.detail a').textContent === 'dropped by a route'");
    page.wait_for("document.activeElement.dataset.node === 'ip4-drop'");

    // Views by keys; a filter; a tag stays a text.
    page.press("2");
    page.wait_for("location.hash === '#interfaces' && document.activeElement.tagName === 'H1'");
    page.wait_for(
        "[...document.querySelectorAll('tbody small')].some((one) => one.textContent.includes('onerror=document.title'))",
    );
    page.press("/");
    page.wait_for("document.activeElement.classList.contains('filter')");
    for letter in ["p", "g", "1"] {
        page.press(letter);
    }
    page.wait_for(
        "document.querySelectorAll('tbody tr').length === 1 && document.querySelector('.spark-tx').getAttribute('d').length > 10",
    );
    assert_eq!(page.value("document.querySelectorAll('main img').length"), 0);
    page.press("Escape");

    page.press("3");
    page.wait_for("document.querySelector('.detail h2')?.textContent.includes('dropped by a route')");
    page.wait_for("document.querySelector('.detail').textContent.includes('blackhole route')");

    page.press("4");
    page.wait_for("document.activeElement.id === 'search'");
    for letter in "198.51.100.77".split_inclusive(|_| true) {
        page.press(letter);
    }
    page.press("Enter");
    page.wait_for("document.querySelector('.answer h2')?.textContent.includes('198.51.100.0/24')");
    page.wait_for("document.querySelector('.answer tbody').textContent.includes('192.0.2.2 pg1')");

    // A trace is started and read.
    page.open(&format!("{address}/#trace"));
    page.wait_for("document.querySelector('select[aria-label=Node] option')?.value === 'pg-input'");
    page.value("document.querySelector('button.primary').click()");
    page.wait_for("document.querySelectorAll('.packets [role=option]').length > 1");
    page.wait_for("document.querySelector('.timeline').textContent.includes('ip4-lookup')");
    page.value("document.querySelector('.packets').focus()");
    page.press("ArrowDown");
    page.wait_for("document.querySelectorAll('.packets [role=option]')[1].getAttribute('aria-selected') === 'true'");

    page.open(&format!("{address}/#configuration"));
    page.wait_for("document.querySelector('.commands').textContent.includes('secret ***')");
    page.open(&format!("{address}/#workers"));
    page.wait_for("document.querySelector('.meter')");
    assert_ne!(page.value("document.title"), "taken");

    // Dark and light differ, by the button too.
    let ground = "getComputedStyle(document.body).backgroundColor";
    let before = page.value(ground);
    page.value("document.getElementById('theme').click()");
    page.wait_for(&format!("{ground} !== {before}"));
    assert!(page.complaints.is_empty(), "{:?}", page.complaints);
    router.stop().expect("clean end");
}

#[test]
fn a_thousand_interfaces_are_a_page_at_a_time() {
    let Some(_scenario) = Scenario::begin(&["chromium", "mkfifo"]) else { return };
    let host = Host::new("page").unwrap();
    let router = Router::start(&host, CONF).expect("router");
    let script: String = (0..1000).map(|number| format!("create loopback interface instance {number}\n")).collect();
    router.script(&script).expect("interfaces");
    let (_web, address) = web(&router, &[]);
    let mut page = Browser::start().expect("Chromium");
    page.open(&format!("{address}/#interfaces"));
    page.wait_for("document.querySelector('.count')?.textContent === '1,001 rows'");
    assert_eq!(page.value("document.querySelectorAll('tbody tr').length"), 50);
    page.value("document.querySelector('[aria-label=\"Next page\"]').click()");
    page.wait_for("document.querySelector('.where').textContent === '2 / 21'");
    assert!(page.complaints.is_empty(), "{:?}", page.complaints);
    // Without the option there is nothing to start.
    page.open(&format!("{address}/#trace"));
    page.wait_for("document.querySelector('main').textContent.includes('This page only reads')");
    assert_eq!(page.value("document.querySelectorAll('button.primary:not(dialog button)').length"), 0);
    router.stop().expect("clean end");
}

fn bundle(router: &Router, words: &[&str]) -> Output {
    let program = Router::binary().unwrap().with_file_name("quiverctl");
    Command::new(program).arg("-s").arg(router.socket()).args(words).output().unwrap()
}

/// What is in an archive: all of it as one text.
fn text_of(file: &Path) -> String {
    let mut child = Command::new("tar").args(["-xzOf"]).arg(file).stdout(Stdio::piped()).spawn().unwrap();
    let mut bytes = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    assert!(child.wait().unwrap().success());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_bundle_has_everything_but_secrets_and_is_made_of_a_router_that_hangs_too() {
    let Some(_scenario) = Scenario::begin(&["tar"]) else { return };
    let host = Host::new("bundle").unwrap();
    let mut router = Router::start(&host, CONF).expect("router");
    router.script(SETUP).expect("set-up");
    eventually("a packet is dropped by a route", SOON, || {
        router.cli("explain drop").is_ok_and(|text| text.contains("dropped by a route"))
    });
    let file = router.folder().join("bundle.tar.gz");
    let output = bundle(&router, &["support-bundle", &file.to_string_lossy()]);
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{listed}\n{}", String::from_utf8_lossy(&output.stderr));
    for name in [
        "host/memory.txt",
        "host/doctor.txt",
        "show/show-errors.txt",
        "show/explain-drop.txt",
        "json/show-interface.json",
        "router/startup.conf",
        "router/process.txt",
        "router/statistics.txt",
    ] {
        assert!(listed.contains(&format!("  {name}\n")), "{name}: {listed}");
    }
    assert!(listed.contains("masked: 1 after `secret' in show/show-configuration.txt"), "{listed}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = text_of(&file);
    assert!(
        !text.contains("sesame")
            && text.contains("secret ***")
            && text.contains("blackhole route")
            && text.contains("quiver_interface_receive_packets"),
        "a secret, or a part is missing"
    );

    // Stopped, it answers nothing; what the kernel knows of it is there.
    router.signal(libc::SIGSTOP).unwrap();
    let output = bundle(&router, &["--json", "support-bundle", &file.to_string_lossy()]);
    router.signal(libc::SIGCONT).unwrap();
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let missing = made["missing"].to_string();
    assert!(output.status.success() && missing.contains("does not answer"), "{made}");
    let text = text_of(&file);
    assert!(text.contains("== /proc/meminfo") && text.contains("statseg { default }") && text.contains("/task/"), "{made}");
    router.stop().expect("clean end");

    let file = std::env::temp_dir().join(format!("quiver-bundle-{}.tar.gz", std::process::id()));
    let nobody = Command::new(Router::binary().unwrap().with_file_name("quiverctl"))
        .args(["-s", "/nonexistent.sock", "support-bundle"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(nobody.status.success() && String::from_utf8_lossy(&nobody.stdout).contains("missing: router: no router listens"));
    fs::remove_file(&file).unwrap();
}
