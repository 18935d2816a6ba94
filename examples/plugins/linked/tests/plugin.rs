//! The plugin in a router of the test, and in the program.

use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use quiver_command::operation::{Outcome, Registry, View};
use quiver_net::Router;
use quiver_net::testing::{Harness, host_mac, router_mac};
use quiver_wire::build::Packet;

/// A router whose x0 leads to 10.0.0.0/24 and x1 to 10.0.1.0/24, and the plugin's commands.
fn router() -> (Harness, Registry<Router>) {
    let mut h = Harness::new();
    for n in 0..2 {
        let index = h.interface(n);
        h.router.add_address(index, IpAddr::from([10, 0, n, 1]), 24).unwrap();
        h.router.neighbor_update(index, IpAddr::from([10, 0, n, 2]), Some(host_mac(n))).unwrap();
    }
    let plugin = ttl_limit::plugin();
    let mut registry = Registry::new();
    (plugin.register)(&mut registry);
    assert!(registry.problems().is_empty(), "{:?}", registry.problems());
    let config = quiver_command::config::Schema::new().defaults();
    (plugin.start)(&mut h.router, &config).unwrap();
    (h, registry)
}

fn run(registry: &Registry<Router>, h: &mut Harness, line: &str) -> String {
    match registry.execute(&mut h.router, line, &View::TEXT) {
        Ok(Outcome::Done(answer)) => answer.text,
        Ok(Outcome::Job(_)) => panic!("{line} takes time"),
        Err(error) => error.to_string(),
    }
}

/// Of packets with these TTLs, how many pass.
fn passed(h: &mut Harness, ttls: &[u8]) -> usize {
    let frame = |ttl: &u8| {
        let packet = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 0, 1, 2]).ttl(*ttl);
        packet.udp(1000, 80).payload(&[7; 20]).build()
    };
    let frames: Vec<Vec<u8>> = ttls.iter().map(frame).collect();
    let x0 = h.router.interfaces.find("x0").unwrap();
    h.inject_many(x0, &frames, 0);
    h.run().len()
}

#[test]
fn packets_below_the_limit_are_dropped_and_counted() {
    let (mut h, registry) = router();
    let ttls: Vec<u8> = (0..24).map(|n| if n % 3 == 0 { 9 } else { 64 }).collect();
    assert_eq!(passed(&mut h, &ttls), 24);
    assert_eq!(run(&registry, &mut h, "set ttl-limit x0 least 10"), "");
    assert_eq!(passed(&mut h, &ttls), 16);
    assert_eq!(passed(&mut h, &[64; 24]), 24);
    assert_eq!(h.count("ttl-limit", "ttl below the limit"), 8);
    assert_eq!(run(&registry, &mut h, "show ttl-limit"), "x0: 10\n");
    let configuration = registry.collect().all(&h.router);
    assert_eq!(configuration.entries()[0].command, "set ttl-limit x0 least 10");
    assert_eq!(run(&registry, &mut h, "set ttl-limit x0 least 300"), "set ttl-limit: invalid least `300'; expected 1 to 255");
    assert_eq!(run(&registry, &mut h, "set ttl-limit x0 disable"), "");
    assert_eq!(passed(&mut h, &ttls), 24);
    h.assert_buffers_held(0);
}

#[test]
fn a_reflector_is_an_interface_as_any_other() {
    let (mut h, registry) = router();
    assert_eq!(run(&registry, &mut h, "create reflector interface echo0"), "");
    let echo = h.router.interfaces.find("echo0").unwrap();
    h.router.set_interface_up(echo, true).unwrap();
    h.router.add_address(echo, IpAddr::from([10, 9, 0, 1]), 24).unwrap();
    h.router.neighbor_update(echo, IpAddr::from([10, 9, 0, 2]), Some(host_mac(9))).unwrap();
    let packet = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 9, 0, 2]).ttl(64);
    let x0 = h.router.interfaces.find("x0").unwrap();
    let sent = h.exchange(x0, &packet.udp(1000, 7).payload(&[7; 20]).build());
    let [(interface, frame)] = &sent[..] else { panic!("{} packets", sent.len()) };
    assert_eq!((*interface, &frame[26..34]), (x0, &[10, 9, 0, 2, 10, 0, 0, 2][..]));
    let configuration = registry.collect().all(&h.router);
    assert_eq!(configuration.entries()[0].command, "create reflector interface echo0");
    assert_eq!(
        run(&registry, &mut h, "delete reflector interface x0"),
        "delete reflector interface: x0 is not a reflector interface"
    );
    assert_eq!(run(&registry, &mut h, "delete reflector interface echo0"), "");
    assert!(h.router.interfaces.find("echo0").is_err());
    h.assert_buffers_held(0);
}

#[test]
fn the_program_has_the_plugin_with_its_section_and_its_messages() {
    let folder = std::env::temp_dir().join(format!("ttl-limit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let conf = folder.join("startup.conf");
    let runtime = folder.display();
    std::fs::write(
        &conf,
        format!(
            "unix {{ nodaemon interactive runtime-dir {runtime} }} buffers {{ buffers-per-numa 1024 }} ttl-limit {{ least 7 }}\n"
        ),
    )
    .unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_quiver-with-ttl-limit"))
        .arg("-c")
        .arg(&conf)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let commands = "create loopback interface\nset ttl-limit loop0\nshow ttl-limit\nshow plugins\nquit\n";
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("loop0: 7"), "{text}");
    assert!(text.contains("ttl_limit_plugin.so"), "{text}");
    assert!(
        Command::new(env!("CARGO_BIN_EXE_quiver-with-ttl-limit"))
            .arg("--api-json")
            .arg(folder.join("api"))
            .status()
            .unwrap()
            .success()
    );
    let definitions = std::fs::read_dir(folder.join("api")).unwrap().filter_map(Result::ok);
    assert!(definitions.into_iter().any(|file| file.file_name().to_string_lossy().contains("ttl_limit")));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Lines of a file of this crate that are neither blank nor comments.
fn lines_of_code(file: &str) -> usize {
    let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[test]
fn parts_cost_what_the_page_says() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/plugins.md")).unwrap();
    let mut rows = 0;
    for file in ["node.rs", "reflector.rs", "lib.rs"] {
        let row = format!("(../examples/plugins/linked/src/{file}) | {} |", lines_of_code(&format!("src/{file}")));
        assert!(page.contains(&row), "no {row:?} in docs/plugins.md");
        rows += 1;
    }
    // Two rows are of one file.
    let [commands, settings] = ["src/ops.rs) | ", "| the same | "].map(|before| {
        let (_, rest) = page.split_once(before).expect("a row");
        rest.split_whitespace().next().and_then(|number| number.parse::<usize>().ok()).expect("a number")
    });
    assert_eq!((rows, commands + settings), (3, lines_of_code("src/ops.rs")));
}
