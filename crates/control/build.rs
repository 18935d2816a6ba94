//! Tells the program who built it, where, when and with what, for `show version`.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() {
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=build.rs");
    let epoch = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse::<u64>().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // A reproducible build tells neither who nor where.
    let who =
        |name: &str, other: String| if epoch.is_some() { "reproducible".to_owned() } else { std::env::var(name).unwrap_or(other) };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "unknown".to_owned());
    set("QUIVER_BUILD_USER", &who("USER", who("LOGNAME", "unknown".to_owned())));
    set("QUIVER_BUILD_HOST", &who("HOSTNAME", host));
    set("QUIVER_BUILD_TIME", &epoch.unwrap_or_else(now).to_string());
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().ok();
    let version = version.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_else(|| "rustc".to_owned());
    set("QUIVER_BUILD_RUSTC", &version);
    set("QUIVER_BUILD_PROFILE", &std::env::var("PROFILE").unwrap_or_default());
}

fn set(name: &str, value: &str) {
    println!("cargo:rustc-env={name}={}", value.trim().replace('\n', " "));
}
