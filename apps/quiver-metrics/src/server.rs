//! The HTTP of a scrape: `GET /metrics`, one answer a connection.
//!
//! Whoever connects gets a thread, [`CONNECTIONS`] at most. One more takes the place of the oldest: so whoever connects and is slow, or says
//! nothing, keeps nobody else out. All of an exchange must be done in [`PATIENCE`]. What comes in is parsed by `httparse`, in a process that
//! has no rights over the router.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections at a time.
const CONNECTIONS: usize = 64;
/// Seconds for an exchange.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest request with its headers, bytes.
const REQUEST: usize = 16 << 10;
/// Most headers of a request.
const HEADERS: usize = 64;
/// Content type of OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Connections that are served, oldest first.
#[derive(Default)]
struct Open(Mutex<VecDeque<(u64, TcpStream)>>);

impl Open {
    fn all(&self) -> MutexGuard<'_, VecDeque<(u64, TcpStream)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection; the oldest ends where there are too many.
    fn add(&self, number: u64, stream: TcpStream) {
        let mut all = self.all();
        if all.len() >= CONNECTIONS
            && let Some((_, oldest)) = all.pop_front()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        all.push_back((number, stream));
    }

    fn remove(&self, number: u64) {
        self.all().retain(|(known, _)| *known != number);
    }
}

/// Serves what `page` makes, for ever.
///
/// # Errors
/// The listener cannot be used.
pub fn serve(listener: &TcpListener, page: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> io::Error {
    let (page, open) = (Arc::new(page), Arc::new(Open::default()));
    for number in 0.. {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => continue,
            Err(error) => return error,
        };
        let Ok(handle) = stream.try_clone() else { continue };
        open.add(number, handle);
        let (page, served) = (Arc::clone(&page), Arc::clone(&open));
        let thread = std::thread::Builder::new().name("scrape".to_owned()).spawn(move || {
            // Whom we serve has gone, or was too slow: that is its own affair.
            let _ = exchange(stream, page.as_ref());
            served.remove(number);
        });
        if thread.is_err() {
            open.remove(number);
        }
    }
    io::Error::other("so many connections there are not")
}

/// Reads a request and answers it.
fn exchange(mut stream: TcpStream, page: &dyn Fn() -> Result<String, String>) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let left = || Some(end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero()).ok_or(io::ErrorKind::TimedOut);
    let (mut request, mut chunk) = (Vec::new(), [0; 2048]);
    let (status, kind, body) = loop {
        stream.set_read_timeout(Some(left()?))?;
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        request.extend_from_slice(&chunk[..count]);
        if let Some(answer) = answer(&request, page) {
            break answer;
        }
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let is_head = request.starts_with(b"HEAD ");
    for mut rest in [head.as_bytes(), if is_head { b"" } else { body.as_bytes() }] {
        while !rest.is_empty() {
            stream.set_write_timeout(Some(left()?))?;
            match stream.write(rest)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => rest = &rest[count..],
            }
        }
    }
    stream.shutdown(Shutdown::Write)
}

/// Status, content type and body; nothing while the request is not whole.
fn answer(request: &[u8], page: &dyn Fn() -> Result<String, String>) -> Option<(&'static str, &'static str, String)> {
    const PLAIN: &str = "text/plain; charset=utf-8";
    let text = |status, text: &str| Some((status, PLAIN, text.to_owned()));
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if request.len() < REQUEST => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return text("431 Request Header Fields Too Large", "the request is too long\n");
        }
        Err(_) => return text("400 Bad Request", "this is no HTTP\n"),
    }
    if !matches!(parsed.method, Some("GET" | "HEAD")) {
        return text("405 Method Not Allowed", "GET /metrics\n");
    }
    let path = parsed.path.unwrap_or_default();
    if path.split('?').next() != Some("/metrics") {
        return text("404 Not Found", "GET /metrics\n");
    }
    match page() {
        Ok(page) => Some(("200 OK", OPENMETRICS, page)),
        Err(error) => Some(("503 Service Unavailable", PLAIN, error + "\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    const SCRAPE: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    fn server(page: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, page));
        address
    }

    fn exchange_of(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn requests_are_answered_by_what_they_ask_for() {
        let address = server(|| Ok("# EOF\n".to_owned()));
        for (request, expected) in [
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405"),
            ("\u{1}\u{2}\r\n\r\n", "HTTP/1.1 400"),
        ] {
            let answer = exchange_of(address, request.as_bytes());
            assert!(answer.starts_with(expected), "{request}: {answer}");
            assert_eq!(answer.ends_with("# EOF\n"), request.starts_with("GET /metrics"), "{answer}");
        }
        let long = [b"GET /metrics HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; REQUEST]].concat();
        assert!(exchange_of(address, &long).starts_with("HTTP/1.1 431"));
        let many = [b"GET /metrics HTTP/1.1\r\n".to_vec(), b"A: b\r\n".repeat(HEADERS + 1), b"\r\n".to_vec()].concat();
        assert!(exchange_of(address, &many).starts_with("HTTP/1.1 431"));
    }

    #[test]
    fn without_statistics_the_answer_is_an_error_and_says_why() {
        let answer = exchange_of(server(|| Err("cannot reach the router".to_owned())), SCRAPE);
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("cannot reach the router\n"), "{answer}");
    }

    #[test]
    fn those_who_say_nothing_or_take_nothing_keep_nobody_out() {
        let address = server(|| Ok("x".repeat(8 << 20)));
        let mut idle = Vec::new();
        for place in 0..CONNECTIONS * 2 {
            let mut stream = TcpStream::connect(address).unwrap();
            // Half of them have a page made for them and do not read it.
            stream.write_all(if place % 2 == 0 { SCRAPE } else { b"GET /met" }).unwrap();
            idle.push(stream);
        }
        assert!(exchange_of(address, SCRAPE).len() > 8 << 20);
        // The oldest was ended for the sake of others.
        let mut rest = Vec::new();
        let ended = idle.swap_remove(1).read_to_end(&mut rest);
        assert!(matches!(ended, Ok(0) | Err(_)) && rest.is_empty());
    }
}
