//! From `tracing` into the log.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::{Level, Log};

/// A `tracing` layer that writes into a [`Log`].
pub struct LogLayer(Log);

impl LogLayer {
    /// Writes into `log`.
    pub fn new(log: Log) -> Self {
        Self(log)
    }
}

/// The log of the process.
static INSTALLED: OnceLock<Log> = OnceLock::new();

/// Waits until the lines of the process's log are written, for `patience` at most: before it ends.
pub fn flush(patience: Duration) {
    if let Some(log) = INSTALLED.get() {
        log.flush(patience);
    }
}

/// Makes `log` the one that all `tracing` events of the process go to. Only the first call has an effect.
pub fn install(log: &Log) {
    let subscriber = tracing_subscriber::registry().with(LogLayer::new(log.clone()));
    // A second router of the same process, as tests have them, keeps the first one's.
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        let _ = INSTALLED.set(log.clone());
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut text = Text::default();
        event.record(&mut text);
        let (text, fields) = (text.text(), text.fields);
        self.0.push_with(SystemTime::now(), Level::from(metadata.level()), &class(metadata.target()), &text, &fields);
    }
}

/// The class of a target: crate names are left out, modules are joined by slashes.
fn class(target: &str) -> String {
    let path = match target.split_once("::") {
        Some((krate, path)) if krate.starts_with("quiver") => path,
        _ => target.strip_prefix("quiver_").unwrap_or(target),
    };
    path.replace("::", "/")
}

/// Message first, then the other fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: Vec<(&'static str, String)>,
}

/// Whether a text has a value as words of its own: `2` is not in `10.0.1.2`.
fn says(text: &str, value: &str) -> bool {
    let belongs = |c: char| c.is_alphanumeric() || matches!(c, '.' | ':' | '-' | '_' | '/');
    text.match_indices(value).any(|(at, _)| {
        // A full stop or a colon behind it ends a sentence, unless more of the word follows.
        let after = text[at + value.len()..].trim_start_matches(['.', ':']);
        !text[..at].ends_with(belongs) && !after.starts_with(belongs)
    })
}

impl Text {
    /// The message, and behind it the fields whose values it does not say.
    fn text(&self) -> String {
        let mut text = self.message.clone();
        for (name, value) in &self.fields {
            if !says(&self.message, value) {
                // Writing to a string does not fail.
                let _ = write!(text, " {name}={value}");
            }
        }
        text
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            // Writing to a string fails only if the value's own Debug does; the text is then cut there.
            "message" => drop(write!(self.message, "{value:?}")),
            name => self.fields.push((name, format!("{value:?}"))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message.push_str(value),
            name => self.fields.push((name, value.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_arrive_with_class_level_and_fields() {
        let log = Log::default();
        let subscriber = tracing_subscriber::registry().with(LogLayer::new(log.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: "ip/neighbor", interface = "pg1", count = 2, "add: {}", "10.0.1.2");
            tracing::warn!(target: "interface", interface = "pg1", state = %"down", "link of pg1 is down");
            tracing::error!("no target");
            tracing::debug!(target: "x", "too quiet");
        });
        let lines: Vec<_> = log.lines().into_iter().map(|line| (line.level, line.class, line.text)).collect();
        let expected = [
            (Level::Notice, "ip/neighbor".to_owned(), "add: 10.0.1.2 interface=pg1 count=2".to_owned()),
            // What the text says already is not said twice.
            (Level::Warn, "interface".to_owned(), "link of pg1 is down".to_owned()),
            (Level::Error, "log/layer/tests".to_owned(), "no target".to_owned()),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn module_paths_become_classes() {
        assert_eq!(class("quiver_net::ip::neighbor"), "ip/neighbor");
        assert_eq!(class("quiver_net"), "net");
        assert_eq!(class("memif"), "memif");
        assert_eq!(class("other::thing"), "other/thing");
    }
}
