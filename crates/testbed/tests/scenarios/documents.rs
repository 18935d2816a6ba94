//! The guide runs as it is printed, and links in documents lead somewhere.

use std::path::{Path, PathBuf};

use quiver_testbed::{Scenario, skip};

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
    run("docs/how-to/firewall.md", &["ping", "python3", "curl", "ss", "traceroute"]);
    for page in ["memif", "vlan", "measure", "af_xdp", "containers", "from-vpp"] {
        run(&format!("docs/how-to/{page}.md"), &["ping"]);
    }
}

#[test]
fn the_how_to_about_dpdk_runs_as_printed() {
    if let Some(_scenario) = crate::pages::dpdk::begin(&["ping", "ethtool"]) {
        page::run("docs/how-to/dpdk.md");
    }
}

pub fn the_how_to_about_papers_runs_as_printed() {
    // Alone: it measures, and the page shows what comes of that.
    let Some(_scenario) = Scenario::alone(&["make", "python3"]) else { return };
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| page::root().join("target"), PathBuf::from);
    if page::root().join(target).join("lab-venv/stamp").exists() {
        page::run("docs/how-to/paper.md");
    } else {
        skip("needs the lab's Python packages (scripts/lab install)");
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

#[test]
fn every_question_is_answered_behind_its_link() {
    let docs = page::root().join("docs");
    let guide = std::fs::read_to_string(docs.join("README.md")).unwrap();
    let table = guide.split("## Questions").nth(1).expect("questions").split("\n## ").next().unwrap_or_default();
    let rows: Vec<Vec<&str>> = table.lines().filter(|line| line.contains("](")).map(|line| line.split(" | ").collect()).collect();
    assert!(rows.len() >= 15, "{} questions", rows.len());
    for row in rows {
        let [question, answer, with] = row[..] else { panic!("three columns: {row:?}") };
        let target = answer.split("](").nth(1).and_then(|rest| rest.split(')').next()).expect("a link");
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let text = std::fs::read_to_string(docs.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let answered = with.trim_matches(['|', ' ', '`']);
        assert!(section(&text, heading).contains(answered), "{question}: `{answered}' does not stand in {target}");
    }
}

/// What stands below a heading; the whole page where none is named.
fn section<'t>(text: &'t str, heading: &str) -> &'t str {
    let line = text.lines().find(|line| !heading.is_empty() && headings(line).any(|known| known == heading));
    let Some(line) = line else { return text };
    let begin = text.find(line).unwrap_or_default() + line.len();
    text[begin..].split("\n## ").next().unwrap_or_default()
}

#[test]
fn what_the_demo_names_to_go_on_with_is_there() {
    let root = page::root();
    let text = std::fs::read_to_string(root.join("docs/try/next.txt")).unwrap();
    let makefile = std::fs::read_to_string(root.join("Makefile")).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    for file in words.iter().filter(|word| word.starts_with("docs/")) {
        assert!(root.join(file).exists(), "{file}");
    }
    for target in words.windows(2).filter(|pair| pair[0] == "make").map(|pair| pair[1]) {
        assert!(makefile.contains(&format!("\n{target}:")), "make {target}");
    }
    assert!(words.contains(&"make") && words.contains(&"docs/tutorial.md"));
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
