//! Commands that need no ports: imports, and the frames of a profile as a capture.

use std::path::PathBuf;
use std::process::{Command, Output};

use quiver_wire::pcapfile::Reader;

/// A folder of a test's own, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quiver-tester-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tester(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quiver-tester")).args(words).output().expect("it runs")
}

/// What is said when it cannot be done: one line.
fn refused(words: &[&str]) -> String {
    let output = tester(words);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.code() == Some(1) && output.stdout.is_empty() && said.lines().count() == 1, "{said}");
    said
}

#[test]
fn a_configuration_of_siitperfs_becomes_frames() {
    let folder = Folder::new("siitperf");
    let conf = folder.write(
        "siitperf.conf",
        "IP-L-Vers 4\nIP-R-Vers 4\nIPv4-L-Real 198.18.0.2\nIPv4-R-Real 198.19.0.2\nForward 1\nReverse 0\nFwd-var-sport 1\nFwd-sport-min 7\n",
    );
    let printed = tester(&["import", &conf]);
    assert!(printed.status.success(), "{printed:?}");
    let profile = folder.write("p.yaml", std::str::from_utf8(&printed.stdout).expect("text"));
    let capture = folder.0.join("out.pcap").display().to_string();
    let written = tester(&["frames", "--profile", &profile, "--out", &capture, "--size", "64", "--count", "3", "--rate", "10pps"]);
    assert!(written.status.success(), "{written:?}");
    let bytes = std::fs::read(&capture).expect("a capture");
    let packets: Vec<_> = Reader::new(&bytes[..]).expect("a capture").map(|p| p.expect("a packet")).collect();
    let facts: Vec<_> = packets.iter().map(|p| (p.time_ns, p.bytes.len(), p.bytes[35])).collect();
    assert_eq!(facts, [(0, 60, 7), (100_000_000, 60, 8), (200_000_000, 60, 9)]);
    let beside = tester(&["import", &conf, "--background", "2:1"]);
    let said = String::from_utf8_lossy(&beside.stderr);
    assert!(beside.status.code() == Some(1) && said.contains("`IPv6-L-Real' is missing") && said.lines().count() == 1, "{said}");
    assert!(refused(&["import", &capture, "--background", "2:1"]).contains("a capture has what it has"));
    // And the capture is a profile again.
    let again = String::from_utf8(tester(&["import", &capture, "--packets", "2"]).stdout).expect("text");
    assert!(again.contains("share: 2\n") && again.contains("src_port: 8"), "{again}");
}

#[test]
fn what_cannot_be_read_is_one_clear_line() {
    let folder = Folder::new("refused");
    let (conf, trex) = (folder.write("c.conf", "Speed 5\n"), folder.write("t.py", "from trex_stl_lib.api import *\n"));
    let profile = folder.write("p.yaml", "name: p\nstreams: [ { name: s, ipv4: {}, udp: {} } ]\n");
    assert!(refused(&["import", &conf]).contains("c.conf, line 1: `Speed' is no key of siitperf's"));
    assert!(refused(&["import", &trex]).contains("quiver-lab import-trex"));
    assert!(refused(&["import", "/nonexistent/x"]).contains("No such file"));
    let nowhere = ["frames", "--profile", &profile, "--size", "64", "--out", "/nonexistent/x"];
    assert!(refused(&nowhere).contains("/nonexistent/x: No such file"));
    assert!(refused(&["frames", "--profile", &profile, "--out", &conf]).contains("stream s has no size"));
}

#[test]
fn a_stateful_test_that_cannot_be_is_refused_before_ports_are_opened() {
    let folder = Folder::new("stateful");
    let stateless = folder.write("a.conf", "IP-L-Vers 4\nIP-R-Vers 4\nStateful 0\n");
    let conf = "IP-L-Vers 6\nIP-R-Vers 4\nIPv6-L-Real 2001:2::2\nIPv6-R-Virt 64:ff9b::198.19.0.2\nStateful 1\nEnumerate-ports 3\n\
                Fwd-sport-min 1\nFwd-sport-max 10\nFwd-dport-min 1\nFwd-dport-max 2\n";
    let conf = folder.write("b.conf", conf);
    let words = |file: &str, connections: &str| {
        let all = ["stateful", "connections", "--port", "af-packet:none", "--open-rate", "10pps", "--connections", connections];
        refused(&[&all[..], &["--siitperf", file]].concat())
    };
    assert!(words(&stateless, "9").contains("a.conf: `Stateful' is 0"));
    // Addresses and ports are the file's: ten by two.
    let mut said = words(&conf, "21");
    assert!(said.contains("21 connections: 1 to 20 are possible"), "{said}");
    said = words(&conf, "20");
    assert!(said.contains("port af-packet:none: "), "{said}");
}

#[test]
fn every_command_has_a_manual_page_and_bash_completes_them() {
    let folder = Folder::new("pages");
    let program = env!("CARGO_BIN_EXE_quiver-tester");
    assert!(Command::new(program).arg("generate").arg(&folder.0).status().expect("it runs").success());
    for command in ["trial", "self-test", "stateful", "tcp", "serve", "import", "frames"] {
        let page = std::fs::read_to_string(folder.0.join(format!("quiver-tester-{command}.1"))).expect(command);
        assert!(page.contains(".SH OPTIONS"), "{command}: {page}");
    }
    let script = ". ./quiver-tester.bash; COMP_WORDS=(quiver-tester tr) COMP_CWORD=1 COMP_LINE='quiver-tester tr'; \
                  function=$(complete -p quiver-tester | sed 's/.*-F \\([^ ]*\\).*/\\1/'); \
                  \"$function\" quiver-tester tr quiver-tester; echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").args(["-c", script]).current_dir(&folder.0).output().expect("bash");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "trial\n", "{output:?}");
}
