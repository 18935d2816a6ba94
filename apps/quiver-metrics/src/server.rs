//! What a scrape asks for: `GET /metrics`.

use std::io;
use std::net::TcpListener;

use quiver_http::{Request, Response};

/// Content type of OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves what `page` makes, for ever.
///
/// # Errors
/// The listener cannot be used.
pub fn serve(listener: &TcpListener, page: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> io::Error {
    quiver_http::serve(listener, move |request| answer(request, &page))
}

fn answer(request: &Request<'_>, page: &dyn Fn() -> Result<String, String>) -> Response {
    if !matches!(request.method, "GET" | "HEAD") {
        return Response::text("405 Method Not Allowed", "GET /metrics\n");
    }
    if request.path != "/metrics" {
        return Response::text("404 Not Found", "GET /metrics\n");
    }
    match page() {
        Ok(page) => Response::new("200 OK", OPENMETRICS, page.into_bytes()),
        Err(error) => Response::text("503 Service Unavailable", error + "\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str, page: &dyn Fn() -> Result<String, String>) -> (&'static str, String) {
        let response = quiver_http::answer(request.as_bytes(), &|request| answer(request, page)).unwrap();
        (response.status, String::from_utf8(response.body.into_owned()).unwrap())
    }

    #[test]
    fn requests_are_answered_by_what_they_ask_for() {
        let page = || Ok("# EOF\n".to_owned());
        for (request, expected) in [
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        ] {
            let (status, body) = status(request, &page);
            assert_eq!((status, body == "# EOF\n"), (expected, expected == "200 OK"), "{request}");
        }
    }

    #[test]
    fn without_statistics_the_answer_is_an_error_and_says_why() {
        let page = || Err("cannot reach the router".to_owned());
        assert_eq!(
            status("GET /metrics HTTP/1.1\r\n\r\n", &page),
            ("503 Service Unavailable", "cannot reach the router\n".to_owned())
        );
    }
}
