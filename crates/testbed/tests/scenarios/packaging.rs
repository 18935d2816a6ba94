//! The files under `packaging/`, as the programs see them that read them.

use std::path::{Path, PathBuf};
use std::process::Command;

use quiver_testbed::skip;

/// Highest exposure that the unit may have, in tenths, as `systemd-analyze security` counts.
const EXPOSURE: &str = "30";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

#[test]
fn the_units_leave_little_to_an_intruder() {
    ["quiver", "quiver-metrics", "quiver-snmp", "quiver-web"].into_iter().for_each(leaves_little);
}

fn leaves_little(name: &str) {
    let unit = file(&format!("systemd/{name}.service"));
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--no-pager"]).arg(format!("--threshold={EXPOSURE}")).arg(&unit);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skip(&format!("needs the program systemd-analyze ({error})")),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    // Words that systemd does not know are warnings, and would protect nothing.
    let odd = text.lines().find(|line| line.contains("Unknown") || line.contains("Failed to parse") || line.contains("ignoring"));
    assert!(output.status.success() && odd.is_none(), "{odd:?}\n{text}");
    assert!(text.contains(&format!("Overall exposure level for {name}.service")), "{text}");
}

#[test]
fn unit_users_folders_and_configuration_agree() {
    let read = |name| std::fs::read_to_string(file(name)).unwrap();
    let (unit, users, folders, conf) = (
        read("systemd/quiver.service"),
        read("systemd/quiver.sysusers.conf"),
        read("systemd/quiver.tmpfiles.conf"),
        read("startup.conf"),
    );
    assert!(unit.contains("\nUser=quiver\n") && unit.contains("\nGroup=quiver\n") && unit.contains("\nRuntimeDirectory=quiver\n"));
    assert!(users.contains("\nu quiver "));
    assert!(folders.contains("\nd /run/quiver 0750 quiver quiver "));
    assert!(conf.contains("\n  user quiver\n") && conf.contains("\n  gid quiver\n") && conf.contains("\n  nodaemon\n"));
    assert!(unit.contains(" -c /etc/quiver/startup.conf\n"));
}
