//! Typed operations of a running router, by `json.sock`: one connection, one request at a time.
//!
//! Only the operations that [`api`](crate::api) names are asked, and what a reader typed reaches the router as a value of their
//! requests, never as a command. The same question within a second has one answer, however many readers look.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 120 } else { 10 });
/// Bytes of an answer.
const LONGEST: usize = 16 << 20;
/// How long an answer is given again.
const FRESH: Duration = Duration::from_millis(900);
/// Answers that are kept.
const KEPT: usize = 64;

/// An answer, as JSON; or what the router, or the way to it, says.
pub type Answer = Result<String, String>;

/// A router.
pub struct Router {
    socket: PathBuf,
    connection: Mutex<Option<BufReader<UnixStream>>>,
    known: Mutex<HashMap<String, (Instant, Answer)>>,
}

impl Router {
    /// The router behind a socket; it need not run yet.
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, connection: Mutex::default(), known: Mutex::default() }
    }

    /// What a reading operation answers.
    pub fn read(&self, operation: &str, request: &Value) -> Answer {
        let key = format!("{operation} {request}");
        let known = |key: &str| {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(key).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, answer)| answer.clone())
        };
        if let Some(answer) = known(&key) {
            return answer;
        }
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever was first has asked meanwhile.
        if let Some(answer) = known(&key) {
            return answer;
        }
        let answer = self.ask(&mut connection, operation, request);
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= KEPT {
            all.retain(|_, (at, _)| at.elapsed() < FRESH);
        }
        if all.len() < KEPT {
            all.insert(key, (Instant::now(), answer.clone()));
        }
        answer
    }

    /// Has the router do something. What was read before is not given again.
    pub fn act(&self, operation: &str, request: &Value) -> Answer {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = self.ask(&mut connection, operation, request);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
        answer
    }

    fn ask(&self, connection: &mut Option<BufReader<UnixStream>>, operation: &str, request: &Value) -> Answer {
        // A connection that was idle may have been ended by a router that was started anew.
        if let Some(open) = connection.take()
            && let Ok(answer) = exchange(open, connection, operation, request)
        {
            return answer;
        }
        let stream = UnixStream::connect(&self.socket).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => format!("no router listens on {}", self.socket.display()),
            _ => format!("{}: {error}", self.socket.display()),
        })?;
        let limited = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        limited.map_err(|error| error.to_string())?;
        exchange(BufReader::new(stream), connection, operation, request).unwrap_or_else(Err)
    }
}

/// Asks over a connection, which is kept where it can be used again. The outer error is one of the connection.
fn exchange(
    mut open: BufReader<UnixStream>,
    kept: &mut Option<BufReader<UnixStream>>,
    operation: &str,
    request: &Value,
) -> Result<Answer, String> {
    let mut line = json!({ "id": 1, "op": operation, "request": request }).to_string();
    line.push('\n');
    let lost = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("the router does not answer within {} s", PATIENCE.as_secs()),
        _ => format!("the connection to the router was lost: {error}"),
    };
    open.get_mut().write_all(line.as_bytes()).map_err(lost)?;
    let end = Instant::now() + PATIENCE;
    loop {
        let mut bytes = Vec::new();
        loop {
            let chunk = open.fill_buf().map_err(lost)?;
            let end_of_line = chunk.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let take = end_of_line.unwrap_or(chunk.len());
            bytes.extend_from_slice(&chunk[..take]);
            open.consume(take);
            if end_of_line.is_some() {
                break;
            }
            if take == 0 {
                return Err("the router closed the connection".to_owned());
            }
            if bytes.len() > LONGEST {
                return Ok(Err("the answer is too long for a page; narrow the search".to_owned()));
            }
            if Instant::now() > end {
                return Err(lost(ErrorKind::TimedOut.into()));
            }
        }
        let fields: HashMap<&str, &RawValue> =
            serde_json::from_slice(&bytes).map_err(|_| "this is not the socket of a router".to_owned())?;
        match fields.get("status").map_or("", |status| status.get()) {
            "\"more\"" => {}
            "\"ok\"" => {
                let data = fields.get("data").map_or_else(|| "null".to_owned(), |data| data.get().to_owned());
                *kept = Some(open);
                return Ok(Ok(data));
            }
            _ => {
                *kept = Some(open);
                let text = fields.get("text").and_then(|text| serde_json::from_str(text.get()).ok());
                return Ok(Err(text.unwrap_or_else(|| "the router refused".to_owned())));
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A made-up router: what it answers to operations, and how often it was asked.
    pub fn made_up(answers: impl Fn(&Value) -> Value + Send + 'static) -> (Router, Arc<AtomicU32>) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("quiver-web-{}-{number}.sock", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream);
                let mut line = String::new();
                while matches!(reader.read_line(&mut line), Ok(1..)) {
                    counted.fetch_add(1, Ordering::Relaxed);
                    let mut answer = answers(&serde_json::from_str(&line).unwrap()).to_string();
                    let ends = answer == "null";
                    answer.push('\n');
                    line.clear();
                    // Null: it ends the connection.
                    if ends || reader.get_mut().write_all(answer.as_bytes()).is_err() {
                        break;
                    }
                }
            }
        });
        (Router::new(socket), asked)
    }

    #[test]
    fn the_same_question_is_asked_once() {
        let (router, asked) = made_up(|call| json!({"id": 1, "status": "ok", "data": call["op"]}));
        for _ in 0..50 {
            assert_eq!(router.read("version_show", &json!({})).unwrap(), "\"version_show\"");
        }
        // A second may pass on a busy machine.
        assert!(asked.load(Ordering::Relaxed) < 50);
        let before = asked.load(Ordering::Relaxed);
        router.act("trace_add", &json!({})).unwrap();
        router.act("trace_add", &json!({})).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), before + 2);
    }

    #[test]
    fn errors_are_the_routers_own_words() {
        let (router, _) = made_up(|_| json!({"id": 1, "status": "error", "text": "no such operation"}));
        assert_eq!(router.read("x", &json!({})).unwrap_err(), "no such operation");
        let nobody = Router::new("/nonexistent/json.sock".into());
        assert!(nobody.read("x", &json!({})).unwrap_err().starts_with("no router listens"));
    }

    #[test]
    fn a_router_that_was_started_anew_is_asked_by_a_new_connection() {
        let count = AtomicU32::new(0);
        let (router, _) = made_up(move |_| match count.fetch_add(1, Ordering::Relaxed) {
            1 => Value::Null,
            _ => json!({"id": 1, "status": "ok"}),
        });
        for request in 0..3 {
            assert_eq!(router.read("x", &json!({ "n": request })).unwrap(), "null");
        }
    }
}
