//! Who gets an answer: checks that stand before everything else.
//!
//! A page of another site that a browser shows must neither read from here nor have anything done. Such a page can send requests to this
//! machine, by a name of its own that leads here (DNS rebinding) among others. So the name in `Host` must be an address, `localhost` or one
//! that an option names; browsers say in `Sec-Fetch-Site` whose page asks; and what changes something needs a header that another
//! site's page cannot send.

use std::net::IpAddr;

use quiver_http::{Request, Response};

/// What every answer has: nothing comes from elsewhere, no page frames this one, nothing is stored.
pub const HEADERS: &[(&str, &str)] = &[
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
    ("Cache-Control", "no-store"),
];

/// Least letters of a token.
pub const TOKEN: usize = 16;

/// The checks.
#[derive(Default)]
pub struct Guard {
    /// Names under which the page is reached, beside addresses and `localhost`.
    pub names: Vec<String>,
    /// What readers must know; nothing where everybody who reaches the address may read.
    pub token: Option<String>,
}

impl Guard {
    /// The answer for a request that must not be served.
    pub fn refusal(&self, request: &Request<'_>) -> Option<Response> {
        let host = request.header("host").unwrap_or_default();
        if !self.knows(host) {
            let text = format!("this page is not at `{}'; name it with --host\n", host.escape_default());
            return Some(Response::text("421 Misdirected Request", text));
        }
        if !matches!(request.header("sec-fetch-site"), None | Some("same-origin" | "none")) {
            return Some(Response::text("403 Forbidden", "pages of other sites get no answer\n"));
        }
        match request.method {
            "GET" | "HEAD" => {}
            "POST" if request.header("x-quiver") == Some("1") => {}
            "POST" => return Some(Response::text("403 Forbidden", "the header X-Quiver is missing\n")),
            _ => return Some(Response::text("405 Method Not Allowed", "GET, or POST where it says so\n")),
        }
        // The page itself says nothing of the router.
        let needs_token = request.path.starts_with("/api/");
        let sent = request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        match &self.token {
            Some(token) if needs_token && !same(token, sent) => {
                Some(Response::text("401 Unauthorized", "the token is missing or wrong\n"))
            }
            _ => None,
        }
    }

    /// Whether `Host` says an address, this machine, or a name that was given.
    fn knows(&self, host: &str) -> bool {
        if let Some(rest) = host.strip_prefix('[') {
            return rest.split_once(']').is_some_and(|(address, _)| address.parse::<IpAddr>().is_ok());
        }
        let name = host.rsplit_once(':').map_or(host, |(name, port)| if port.parse::<u16>().is_ok() { name } else { host });
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Whether two texts are the same, in a time that does not depend on where they differ.
fn same(token: &str, sent: &str) -> bool {
    let differs = token.bytes().zip(sent.bytes()).fold(token.len() ^ sent.len(), |sum, (a, b)| sum | usize::from(a ^ b));
    std::hint::black_box(differs) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(guard: &Guard, request: &str) -> &'static str {
        let served = |request: &Request<'_>| guard.refusal(request).unwrap_or_else(|| Response::text("200 OK", ""));
        quiver_http::answer(request.as_bytes(), &served).unwrap().status
    }

    #[test]
    fn a_name_that_another_has_chosen_gets_no_answer() {
        let guard = Guard { names: vec!["router.example".to_owned()], token: None };
        for (host, ok) in [
            ("127.0.0.1:9483", true),
            ("[::1]:9483", true),
            ("localhost", true),
            ("Router.Example:9483", true),
            ("192.0.2.1", true),
            ("evil.example:9483", false),
            ("127.0.0.1.evil.example", false),
            ("localhost:9483.evil.example", false),
            ("[evil.example]", false),
            ("", false),
        ] {
            let got = status(&guard, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(got == "200 OK", ok, "{host}: {got}");
        }
        assert!(status(&guard, "GET / HTTP/1.1\r\n\r\n").starts_with("421"));
        assert!(status(&guard, "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n").starts_with("421"));
    }

    #[test]
    fn pages_of_other_sites_read_nothing_and_do_nothing() {
        let guard = Guard::default();
        let ask =
            |method: &str, more: &str| status(&guard, &format!("{method} /api/live HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"));
        assert!(ask("GET", "Sec-Fetch-Site: cross-site\r\n").starts_with("403"));
        assert!(ask("GET", "Sec-Fetch-Site: same-site\r\n").starts_with("403"));
        assert!(ask("GET", "Sec-Fetch-Site: same-origin\r\n").starts_with("200"));
        assert!(ask("POST", "").starts_with("403"));
        assert!(ask("POST", "X-Quiver: 1\r\n").starts_with("200"));
        assert!(ask("POST", "X-Quiver: 1\r\nSec-Fetch-Site: cross-site\r\n").starts_with("403"));
        assert!(ask("DELETE", "X-Quiver: 1\r\n").starts_with("405"));
    }

    #[test]
    fn with_a_token_only_those_who_know_it_read() {
        let guard = Guard { names: Vec::new(), token: Some("0123456789abcdef".to_owned()) };
        let ask = |path: &str, token: &str| {
            status(&guard, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"))
        };
        assert!(ask("/", "").starts_with("200"));
        for wrong in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"] {
            assert!(ask("/api/live", wrong).starts_with("401"), "{wrong}");
        }
        assert!(ask("/api/live", "0123456789abcdef").starts_with("200"));
    }
}
