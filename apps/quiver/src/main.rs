//! The data plane daemon: the router with the plugins that are built in.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use quiver_control::{BUILT_IN, Plugin};

/// Plugins that are crates of their own, each with one `pub fn plugin() -> Plugin`.
const PLUGINS: &[fn() -> Plugin] = &[
    quiver_nat44::plugin,
    #[cfg(feature = "dpdk")]
    quiver_dpdk::plugin,
];

fn main() -> ExitCode {
    let plugins: Vec<Plugin> = BUILT_IN.into_iter().chain(PLUGINS.iter().map(|plugin| plugin())).collect();
    quiver_control::run(&plugins)
}

#[cfg(test)]
mod tests {
    use quiver_control::{BUILT_IN, ops};

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");

    /// The page is written by `QUIVER_WRITE=1 cargo test -p quiver commands_page`.
    #[test]
    fn the_commands_page_is_what_the_commands_declare() {
        let plugins: Vec<_> = BUILT_IN.into_iter().chain([quiver_nat44::plugin()]).collect();
        let page = ops::reference(&plugins);
        if std::env::var_os("QUIVER_WRITE").is_some() {
            std::fs::write(PAGE, &page).unwrap();
        }
        let written = std::fs::read_to_string(PAGE).unwrap_or_default();
        let differs = page.lines().zip(written.lines()).find(|(now, then)| now != then);
        assert!(page == written, "docs/commands.md is not up to date (QUIVER_WRITE=1 writes it): {differs:?}");
    }
}
