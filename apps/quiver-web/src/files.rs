//! The page: files that are part of the program.

use quiver_http::Response;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($($path:literal = $file:literal: $kind:ident),+ $(,)?) => {
        /// Files by path, with their content type.
        pub const FILES: &[(&str, &str, &str)] = &[$(($path, $kind, include_str!(concat!("../page/", $file)))),+];
    };
}

files! {
    "/" = "index.html": HTML,
    "/style.css" = "style.css": CSS,
    "/tables.css" = "tables.css": CSS,
    "/icon.svg" = "icon.svg": SVG,
    "/app.js" = "app.js": SCRIPT,
    "/api.js" = "api.js": SCRIPT,
    "/chart.js" = "chart.js": SCRIPT,
    "/config.js" = "config.js": SCRIPT,
    "/dom.js" = "dom.js": SCRIPT,
    "/drops.js" = "drops.js": SCRIPT,
    "/format.js" = "format.js": SCRIPT,
    "/graph.js" = "graph.js": SCRIPT,
    "/interfaces.js" = "interfaces.js": SCRIPT,
    "/layout.js" = "layout.js": SCRIPT,
    "/protocols.js" = "protocols.js": SCRIPT,
    "/rates.js" = "rates.js": SCRIPT,
    "/routes.js" = "routes.js": SCRIPT,
    "/sessions.js" = "sessions.js": SCRIPT,
    "/table.js" = "table.js": SCRIPT,
    "/theme.js" = "theme.js": SCRIPT,
    "/trace.js" = "trace.js": SCRIPT,
    "/workers.js" = "workers.js": SCRIPT,
}

/// The file at a path.
pub fn at(path: &str) -> Option<Response> {
    let path = if path == "/index.html" { "/" } else { path };
    let (_, kind, text) = FILES.iter().find(|(known, ..)| *known == path)?;
    Some(Response::new("200 OK", kind, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_served_and_every_import_is_one() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let on_disk = std::fs::read_dir(folder).unwrap().count();
        assert_eq!(on_disk, FILES.len(), "files.rs names each file of page/");
        for (path, kind, text) in FILES {
            for import in text.lines().filter_map(|line| line.strip_prefix("import ")?.split('"').nth(1)) {
                let name = import.strip_prefix('.').unwrap_or(import);
                assert!(*kind == SCRIPT && at(name).is_some(), "{path} imports {import}");
            }
        }
        assert!(at("/../Cargo.toml").is_none() && at("/index.html").is_some());
    }

    /// What a router names, its interfaces and tags, is text of others.
    #[test]
    fn nothing_is_made_of_text_but_text_and_nothing_comes_from_elsewhere() {
        for (path, kind, text) in FILES {
            for word in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "javascript:", ".on"]
            {
                let is_there = text.contains(word) && (word != ".on" || text.contains(".onclick") || text.contains(".onload"));
                assert!(!is_there, "{path}: {word}");
            }
            let foreign = text.match_indices("http").map(|(at, _)| &text[at..]).find(|rest| {
                (rest.starts_with("http://") || rest.starts_with("https://")) && !rest.starts_with("http://www.w3.org/2000/svg")
            });
            assert!(foreign.is_none(), "{path}: {foreign:?}");
            if *kind == HTML {
                assert!(
                    !text.contains("style=") && !text.contains("<style") && !text.contains(" on"),
                    "{path}: the policy forbids it"
                );
                assert!(
                    text.matches("<script").count()
                        == text.matches("<script src=").count() + text.matches("<script type=\"module\" src=").count()
                );
            }
        }
    }
}
