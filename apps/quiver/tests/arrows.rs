//! The drawings in ARCHITECTURE.md against Cargo.toml: what each crate uses, and that a crate uses only those above it.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What each crate uses in the program, without what only its tests use; programs are one, `apps`.
fn used() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(format!("{ROOT}/Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let short = |name: &str| name.trim_start_matches("quiver-").trim_end_matches("-core").to_owned();
    let mut used: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let place = package["manifest_path"].as_str().unwrap();
        let own = if place.contains("/apps/") { "apps".to_owned() } else { short(package["name"].as_str().unwrap()) };
        let dependencies = package["dependencies"].as_array().unwrap();
        let ours = |d: &&Value| d["kind"].is_null() && d["path"].is_string();
        let names = dependencies.iter().filter(ours).map(|d| short(d["name"].as_str().unwrap()));
        let all = used.entry(own).or_default();
        all.extend(names);
        all.sort();
        all.dedup();
    }
    used
}

/// The drawings of the section on layers: crates from the top, and the arrows.
fn drawn() -> (Vec<String>, BTreeMap<String, Vec<String>>) {
    let page = std::fs::read_to_string(format!("{ROOT}/ARCHITECTURE.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("Layers\n")).expect("a section on layers");
    let blocks: Vec<&str> = section.split("```").skip(1).step_by(2).collect();
    let [layers, arrows] = blocks[..] else { panic!("{} drawings of layers", blocks.len()) };
    let named = |line: &str| line.strip_prefix(' ').filter(|rest| !rest.starts_with(' ')).and_then(first);
    let order = layers.lines().filter_map(named).collect();
    let arrow = |line: &str| {
        let (from, to) = line.split_once('►')?;
        Some((first(from)?, to.split_whitespace().map(str::to_owned).collect()))
    };
    (order, arrows.lines().filter_map(arrow).collect())
}

fn first(line: &str) -> Option<String> {
    line.split_whitespace().next().map(str::to_owned)
}

#[test]
fn the_arrows_drawn_are_those_of_cargo() {
    let (_, arrows) = drawn();
    let used: BTreeMap<_, _> = used().into_iter().filter(|(_, uses)| !uses.is_empty()).collect();
    assert_eq!(arrows, used, "left: drawn in ARCHITECTURE.md, right: Cargo.toml");
}

#[test]
fn a_crate_uses_only_those_drawn_above_it() {
    let (order, _) = drawn();
    let place =
        |name: &str| order.iter().position(|other| other == name).unwrap_or_else(|| panic!("`{name}' is not drawn: {order:?}"));
    for (name, uses) in used() {
        for other in uses.iter().filter(|other| **other != name) {
            assert!(place(other) < place(&name), "`{name}' uses `{other}', which is drawn below it");
        }
    }
}
