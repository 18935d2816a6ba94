//! A small HTTP server for programs beside the router: one answer a connection, and nobody who connects can keep others out.
//!
//! A connection gets a thread, [`CONNECTIONS`] at most. One more takes the place of the oldest, so slow or silent clients lock nobody
//! out. An exchange must be done within [`PATIENCE`]. What comes in is parsed by `httparse`. It may use the standard library; it must
//! never know what is served.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections at a time.
pub const CONNECTIONS: usize = 64;
/// Time for an exchange.
pub const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 120 } else { 10 });
/// Longest request with its headers, bytes.
pub const REQUEST: usize = 16 << 10;
/// Longest body, bytes.
pub const BODY: usize = 16 << 10;
/// Most headers of a request.
pub const HEADERS: usize = 64;

/// Content type of a text for people.
pub const PLAIN: &str = "text/plain; charset=utf-8";

/// A request.
#[derive(Debug)]
pub struct Request<'a> {
    /// `GET`, …
    pub method: &'a str,
    /// The path, without what stands behind `?`.
    pub path: &'a str,
    /// What stands behind `?`; empty where there is none.
    pub query: &'a str,
    /// What stands behind the headers.
    pub body: &'a [u8],
    headers: &'a [httparse::Header<'a>],
}

impl Request<'_> {
    /// The value of a header. One that is there twice, or is not text, has none: whoever sends such a thing wants two readers to differ.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        let value = values.next()?.value;
        values.next().is_none().then(|| std::str::from_utf8(value).ok()).flatten().map(str::trim)
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Number and words: `200 OK`.
    pub status: &'static str,
    /// Content type.
    pub kind: &'static str,
    /// Further headers.
    pub headers: &'static [(&'static str, &'static str)],
    /// What is sent.
    pub body: Cow<'static, [u8]>,
}

impl Response {
    /// An answer of this type.
    pub fn new(status: &'static str, kind: &'static str, body: impl Into<Cow<'static, [u8]>>) -> Self {
        Self { status, kind, headers: &[], body: body.into() }
    }

    /// A text for people.
    pub fn text(status: &'static str, text: impl Into<String>) -> Self {
        Self::new(status, PLAIN, text.into().into_bytes())
    }
}

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

/// Listens at an address; one that other machines reach must be `allowed`.
///
/// # Errors
/// In a line: the address is taken or not of this machine, or may not be used; `remedy` says what allows it.
pub fn listen(address: SocketAddr, allowed: bool, remedy: &str) -> Result<TcpListener, String> {
    if !address.ip().is_loopback() && !allowed {
        return Err(format!("{address} is not of this machine alone: {remedy}"));
    }
    TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))
}

/// Serves what `handler` answers, for ever.
///
/// # Errors
/// The listener cannot be used.
pub fn serve(listener: &TcpListener, handler: impl Fn(&Request<'_>) -> Response + Send + Sync + 'static) -> io::Error {
    let (handler, open) = (Arc::new(handler), Arc::new(Open::default()));
    for number in 0.. {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => continue,
            Err(error) => return error,
        };
        let Ok(handle) = stream.try_clone() else { continue };
        open.add(number, handle);
        let (handler, served) = (Arc::clone(&handler), Arc::clone(&open));
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || {
            // A client that has gone or was too slow is no error of ours.
            let _ = exchange(stream, handler.as_ref());
            served.remove(number);
        });
        if thread.is_err() {
            open.remove(number);
        }
    }
    io::Error::other("the connections cannot be counted any more")
}

/// Reads a request and answers it.
fn exchange(mut stream: TcpStream, handler: &dyn Fn(&Request<'_>) -> Response) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let left = || Some(end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero()).ok_or(io::ErrorKind::TimedOut);
    let (mut request, mut chunk) = (Vec::new(), [0; 2048]);
    let response = loop {
        stream.set_read_timeout(Some(left()?))?;
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        request.extend_from_slice(&chunk[..count]);
        if let Some(response) = answer(&request, handler) {
            break response;
        }
    };
    let mut head =
        format!("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n", response.status, response.kind, response.body.len());
    response.headers.iter().for_each(|(name, value)| head.extend([*name, ": ", *value, "\r\n"]));
    head.push_str("Connection: close\r\n\r\n");
    let is_head = request.starts_with(b"HEAD ");
    for mut rest in [head.as_bytes(), if is_head { b"" } else { &response.body[..] }] {
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

/// The answer to these bytes; nothing while the request is not whole. A fuzz target hands arbitrary bytes to it.
pub fn answer(bytes: &[u8], handler: &dyn Fn(&Request<'_>) -> Response) -> Option<Response> {
    let text = |status, text: &str| Some(Response::text(status, text));
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let head = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(head)) if head <= REQUEST => head,
        Ok(httparse::Status::Partial) if bytes.len() < REQUEST => return None,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return text("431 Request Header Fields Too Large", "the request is too long\n");
        }
        Err(_) => return text("400 Bad Request", "this is no HTTP\n"),
    };
    let target = parsed.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let method = parsed.method.unwrap_or_default();
    let mut request = Request { method, path, query, body: &[], headers: parsed.headers };
    let lengths = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("content-length")).count();
    let length = match (lengths, request.header("content-length").map(str::parse::<usize>)) {
        (0, _) => 0,
        (_, Some(Ok(length))) => length,
        _ => return text("400 Bad Request", "the length is no number\n"),
    };
    if request.headers.iter().any(|header| header.name.eq_ignore_ascii_case("transfer-encoding")) {
        return text("411 Length Required", "send a body with its length\n");
    }
    if length > BODY {
        return text("413 Content Too Large", "the body is too long\n");
    }
    request.body = bytes.get(head..head + length)?;
    Some(handler(&request))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: &[u8] = b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n";

    fn server(handler: impl Fn(&Request<'_>) -> Response + Send + Sync + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, handler));
        address
    }

    fn exchange_of(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Says what it was asked.
    fn echo(request: &Request<'_>) -> Response {
        let body = String::from_utf8_lossy(request.body);
        let text = format!("{} {} [{}] {:?} {body}", request.method, request.path, request.query, request.header("x-word"));
        Response { headers: &[("X-More", "yes")], ..Response::text("200 OK", text) }
    }

    #[test]
    fn requests_reach_the_handler_taken_apart() {
        let address = server(echo);
        let answer = exchange_of(address, b"POST /a/b?c=d HTTP/1.1\r\nx-Word:  w \r\nContent-Length: 4\r\n\r\nbody and more");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\r\nX-More: yes\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nPOST /a/b [c=d] Some(\"w\") body"), "{answer}");
        let answer = exchange_of(address, b"HEAD /a HTTP/1.0\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("\r\n\r\n"), "{answer}");
        // Which of two is meant?
        let answer = exchange_of(address, b"GET /a HTTP/1.1\r\nX-Word: a\r\nX-Word: b\r\n\r\n");
        assert!(answer.ends_with("GET /a [] None "), "{answer}");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let address = server(echo);
        for (request, expected) in [
            ("\u{1}\u{2}\r\n\r\n", "HTTP/1.1 400"),
            ("GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 400"),
            ("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "HTTP/1.1 400"),
            ("GET / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", "HTTP/1.1 413"),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 411"),
        ] {
            let answer = exchange_of(address, request.as_bytes());
            assert!(answer.starts_with(expected), "{request}: {answer}");
        }
        let long = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; REQUEST]].concat();
        assert!(exchange_of(address, &long).starts_with("HTTP/1.1 431"));
        let many = [b"GET / HTTP/1.1\r\n".to_vec(), b"A: b\r\n".repeat(HEADERS + 1), b"\r\n".to_vec()].concat();
        assert!(exchange_of(address, &many).starts_with("HTTP/1.1 431"));
        // It is not whole before its body is.
        assert_eq!(answer(b"GET / HTTP/1.1\r\nContent-Length: 2\r\n\r\na", &echo), None);
    }

    #[test]
    fn those_who_say_nothing_or_take_nothing_keep_nobody_out() {
        let address = server(|_| Response::text("200 OK", "x".repeat(8 << 20)));
        let mut idle = Vec::new();
        for place in 0..CONNECTIONS * 2 {
            let mut stream = TcpStream::connect(address).unwrap();
            // Half of them have a page made for them and do not read it.
            stream.write_all(if place % 2 == 0 { ASKED } else { b"GET /pa" }).unwrap();
            idle.push(stream);
        }
        assert!(exchange_of(address, ASKED).len() > 8 << 20);
        // The oldest was ended for the sake of others.
        let mut rest = Vec::new();
        let ended = idle.swap_remove(1).read_to_end(&mut rest);
        assert!(matches!(ended, Ok(0) | Err(_)) && rest.is_empty());
    }

    #[test]
    fn addresses_that_others_reach_must_be_allowed() {
        let any = "0.0.0.0:0".parse().unwrap();
        assert!(listen(any, false, "say so").unwrap_err().ends_with("alone: say so"));
        assert!(listen(any, true, "").is_ok() && listen("127.0.0.1:0".parse().unwrap(), false, "").is_ok());
    }
}
