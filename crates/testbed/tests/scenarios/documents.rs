//! The guide runs as it is printed, and links in documents lead somewhere.

use std::path::{Path, PathBuf};

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
    for page in ["bridge", "router-advertisements", "vrf", "ecmp", "source-addresses"] {
        run(&format!("docs/how-to/{page}.md"), &["ping"]);
    }
}

#[test]
fn how_tos_about_several_programs_run_as_printed() {
    run("docs/how-to/routing.md", &["ping", "bird", "birdc"]);
    run("docs/how-to/nat.md", &["ping", "python3", "curl", "ss"]);
    for page in ["memif", "vlan", "measure", "af_xdp"] {
        run(&format!("docs/how-to/{page}.md"), &["ping"]);
    }
}

#[test]
fn how_tos_about_what_one_sees_run_as_printed() {
    for page in ["lost-packets", "capture", "workers"] {
        run(&format!("docs/how-to/{page}.md"), &["ping", "tcpdump"]);
    }
    run("docs/how-to/statistics.md", &["ping", "python3"]);
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

#[test]
fn every_link_leads_somewhere() {
    let mut pages = Vec::new();
    pages_below(&page::root(), &mut pages);
    assert!(pages.len() > 50, "{}", pages.len());
    let wrong: Vec<String> = pages.iter().flat_map(|page| wrong_links(page)).collect();
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

/// All Markdown files that belong to the repository.
fn pages_below(folder: &Path, pages: &mut Vec<PathBuf>) {
    const NOT_OURS: [&str; 4] = ["target", "node_modules", ".git", ".venv"];
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            if !NOT_OURS.iter().any(|ours| name == *ours) {
                pages_below(&path, pages);
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// Links of a page to files or headings that are not there.
fn wrong_links(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let is_wrong = |target: &&str| {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let path = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
        let has_heading = || std::fs::read_to_string(&path).is_ok_and(|text| headings(&text).any(|known| known == heading));
        !path.exists() || !(heading.is_empty() || has_heading())
    };
    prose(&text)
        .flat_map(|line| line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()))
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:") && !target.is_empty())
        .filter(is_wrong)
        .map(|target| format!("{}: {target}", page.display()))
        .collect()
}

/// Lines of a page that are not in a fenced block.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// What a page's headings are called in links.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|line| line.starts_with('#')).map(|line| {
        let kept = line.trim_start_matches('#').trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    })
}
