//! The end of a process that cannot go on: a last line, then SIGABRT, so that its supervisor starts it again.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long the last line may take: log and standard error may be what the router hangs on.
const PATIENCE: Duration = Duration::from_secs(1);

/// The log goes to standard error: then the line is written once.
static LOG_IS_STDERR: AtomicBool = AtomicBool::new(false);

/// Says where the log goes.
pub fn log_is_stderr(is: bool) {
    LOG_IS_STDERR.store(is, Relaxed);
}

/// Writes `line` to the log and to standard error, tells the supervisor, and ends the process by SIGABRT. Whatever these three
/// wait for, it ends.
pub fn end(class: &'static str, line: &str) -> ! {
    let (done, written) = crossbeam_channel::bounded(1);
    let text = line.to_owned();
    let write = move || {
        if !LOG_IS_STDERR.load(Relaxed) {
            let _ = writeln!(std::io::stderr(), "quiver: {text}");
        }
        match class {
            "panic" => tracing::error!(target: "panic", "{text}"),
            _ => tracing::error!(target: "watchdog", "{text}"),
        }
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Status(&text)]);
        crate::log::flush(PATIENCE);
        let _ = done.send(());
    };
    // A thread of its own: the one that calls may hold the log's lock.
    if std::thread::Builder::new().name("quiver_end".to_owned()).spawn(write).is_ok() {
        let _ = written.recv_timeout(PATIENCE);
    }
    std::process::abort()
}
