//! The guide runs as it is printed.

use quiver_testbed::Scenario;

use crate::common::page;

/// Runs a page with these programs, where they are there.
fn run(page: &str, needs: &[&str]) {
    if let Some(_scenario) = Scenario::begin(needs) {
        page::run(page);
    }
}

#[test]
fn the_tutorial_runs_as_printed() {
    run("docs/tutorial.md", &["ping"]);
}

#[test]
fn how_tos_about_hosts_run_as_printed() {
    for page in ["bridge", "router-advertisements", "vrf", "ecmp"] {
        run(&format!("docs/how-to/{page}.md"), &["ping"]);
    }
}

#[test]
fn how_tos_about_several_programs_run_as_printed() {
    run("docs/how-to/nat.md", &["ping", "python3", "curl", "ss"]);
    for page in ["memif", "vlan", "measure"] {
        run(&format!("docs/how-to/{page}.md"), &["ping"]);
    }
}

#[test]
fn how_tos_about_what_one_sees_run_as_printed() {
    for page in ["lost-packets", "capture", "workers"] {
        run(&format!("docs/how-to/{page}.md"), &["ping", "tcpdump"]);
    }
}

#[test]
fn every_how_to_is_run_and_listed() {
    let folder = page::root().join("docs/how-to");
    let index = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let here = include_str!("documents.rs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let stem = name.strip_suffix(".md").unwrap();
        assert!(stem == "README" || index.contains(&format!("({name})")), "docs/how-to/README.md does not list {name}");
        assert!(
            stem == "README" || here.contains(&format!("\"{stem}\"")) || here.contains(&format!("/{name}\"")),
            "no test runs {name}"
        );
    }
}
