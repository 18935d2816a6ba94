//! A page to look at a router: a program beside it, which serves the page and answers what it asks.
//!
//! ```text
//!  router ── statistics segment ──────► quiver-web ──► GET /api/live   once a second while somebody looks
//!         ◄─ typed operations, json.sock ──┘       ──► GET /api/…      what a reader opens or searches for
//!                                                  ──► GET /           the page: files that are part of this program
//! ```
//!
//! It reads. With `--allow-trace` it may also start a packet trace, and nothing else (docs/decisions/0066-page.md).
//!
//! | file | does |
//! |---|---|
//! | `guard` | who gets an answer |
//! | `api` | which questions there are, and which operation answers each |
//! | `live` | counters, from the statistics segment |
//! | `router` | operations, by json.sock |
//! | `files` | the page itself, from `page/` |
#![forbid(unsafe_code)]

mod api;
mod files;
mod guard;
mod live;
mod router;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;

use api::Site;
use guard::Guard;
use live::Live;
use router::Router;

/// A page to look at a running router, at http://ADDRESS:PORT/
///
/// It shows the graph with packets and clocks, rates, drops with explanations, sessions, routes, traces and configuration. The router
/// needs `statseg { default }' in its startup.conf, and the user a place in the group of the router's sockets.
#[derive(Parser)]
#[command(name = "quiver-web", version)]
struct Options {
    /// Where to listen. Addresses that other machines reach need --allow-remote and --token-file
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9483")]
    listen: SocketAddr,
    /// Listens on addresses that other machines reach: there is no encryption, so put a proxy with TLS in front
    #[arg(long)]
    allow_remote: bool,
    /// File with the token that readers must give, at least 16 letters
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Name under which the page is reached, beside addresses and `localhost'; may be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Readers may start a packet trace and clear it; without it nothing can be changed
    #[arg(long)]
    allow_trace: bool,
    /// The router's socket for typed operations
    #[arg(long, value_name = "PATH", default_value = "/run/quiver/json.sock")]
    socket: PathBuf,
    /// The router's socket for readers of statistics
    #[arg(long, value_name = "PATH", default_value = "/run/quiver/stats.sock")]
    stats: PathBuf,
    /// Writes the manual page and shell completion to this folder, and ends
    #[arg(long, value_name = "FOLDER", hide = true)]
    generate: Option<PathBuf>,
}

fn generate(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut command = Options::command();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "quiver-web", folder)?;
    }
    clap_mangen::generate_to(command, folder)
}

/// The token of a file: its text without blanks at the ends.
fn token(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let token = text.trim();
    if token.len() < guard::TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let least = guard::TOKEN;
        return Err(format!(
            "{}: a token is one word of at least {least} letters; make one with `openssl rand -hex 16'",
            file.display()
        ));
    }
    Ok(token.to_owned())
}

fn run(options: Options) -> Result<(), String> {
    if let Some(folder) = &options.generate {
        return generate(folder).map_err(|error| format!("{}: {error}", folder.display()));
    }
    let token = options.token_file.as_deref().map(token).transpose()?;
    let allowed = options.allow_remote && token.is_some();
    let listener = quiver_http::listen(options.listen, allowed, "--allow-remote together with --token-file listens there")?;
    let local = listener.local_addr().map_err(|error| error.to_string())?;
    let site = Site {
        guard: Guard { names: options.host, token },
        live: Live::new(options.stats),
        router: Router::new(options.socket),
        may_trace: options.allow_trace,
    };
    eprintln!("quiver-web: http://{local}/");
    Err(quiver_http::serve(&listener, move |request| site.answer(request)).to_string())
}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quiver-web: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_token_is_a_word_of_some_length() {
        let file = std::env::temp_dir().join(format!("quiver-web-token-{}", std::process::id()));
        for (text, ok) in [("0123456789abcdef\n", true), ("short\n", false), ("0123456789 abcdefgh", false), ("", false)] {
            std::fs::write(&file, text).unwrap();
            let got = token(&file);
            assert_eq!(got.is_ok(), ok, "{text}: {got:?}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(token(&file).is_err());
    }

    #[test]
    fn other_machines_need_two_options_and_a_token() {
        let options = |words: &[&str]| Options::parse_from(["quiver-web", "--listen", "0.0.0.0:0"].iter().chain(words));
        for words in [&[][..], &["--allow-remote"]] {
            assert!(run(options(words)).unwrap_err().contains("--allow-remote together with --token-file"));
        }
        assert!(run(options(&["--token-file", "/nonexistent"])).unwrap_err().starts_with("/nonexistent: "));
    }
}
