//! What `show logging` shows, and what passes into it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::output::Output;
use super::{Level, journal};
use quiver_command::calendar::Civil;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub time: SystemTime,
    /// How much it matters.
    pub level: Level,
    /// Which part of the router says it.
    pub class: String,
    /// What it says.
    pub text: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:<10} {:<14} {}", Civil::of(self.time).log_stamp(), self.level.name(), self.class, self.text)
    }
}

/// What holds for all classes that say nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Lines that are remembered.
    pub size: usize,
    /// Threshold.
    pub level: Level,
    /// Lines of a class in a second.
    pub rate_limit: u32,
    /// Seconds until a class that exceeded its limit is heard again.
    pub unthrottle: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { size: 512, level: Level::Notice, rate_limit: 50, unthrottle: 3 }
    }
}

/// A class and what was set for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClassInfo {
    /// Its name.
    pub class: String,
    /// Its threshold, where it has one of its own.
    pub level: Option<Level>,
    /// Its limit of lines a second, where it has one of its own.
    pub rate_limit: Option<u32>,
}

#[derive(Debug, Default)]
struct Class {
    known: bool,
    level: Option<Level>,
    rate_limit: Option<u32>,
    second: u64,
    lines: u32,
    throttled_until: Option<SystemTime>,
}

struct Inner {
    settings: Settings,
    lines: VecDeque<Line>,
    classes: BTreeMap<String, Class>,
    output: Destination,
    form: Form,
}

impl Inner {
    fn knows(&self, name: &str) -> bool {
        let below = format!("{name}/");
        let known = |class: &str| self.classes.get(class).is_some_and(|class| class.known);
        known(name) || self.classes.range(below.clone()..).take_while(|(class, _)| class.starts_with(&below)).any(|(_, c)| c.known)
    }

    /// The level that was set for `ip`, where the class is `ip/…`.
    fn level_of_parent(&self, class: &str) -> Option<Level> {
        class.split_once('/').and_then(|(parent, _)| self.classes.get(parent)?.level)
    }
}

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As they are.
    Plain,
    /// With the level in front, as systemd's journal takes it from a stream: `<4>` for a warning (sd-daemon(3)).
    Journal,
    /// As fields, for a [`JournalSocket`](super::JournalSocket).
    Native,
}

/// What an event says beside its text: names and values.
pub type Fields = [(&'static str, String)];

impl Form {
    /// A line as it is written.
    fn text(self, line: &Line, fields: &Fields) -> String {
        match self {
            Self::Plain => format!("{line}\n"),
            Self::Journal => format!("<{}>{line}\n", priority(line.level)),
            Self::Native => journal::entry(priority(line.level), &line.class, &line.text, fields),
        }
    }

    /// What stands for lines that could not be written.
    pub(super) fn missed(self, count: u64) -> String {
        let text = format!("--- {count} line(s) were not written: nobody takes the output ---");
        match self {
            Self::Plain | Self::Journal => text + "\n",
            Self::Native => journal::entry(priority(Level::Warn), "log", &text, &[]),
        }
    }
}

/// Of syslog; both count from 0, the worst, to 7.
fn priority(level: Level) -> u8 {
    (level as u8).min(7)
}

/// Where lines go beside the ring.
enum Destination {
    Nowhere,
    /// Whoever logs writes: while there is one thread.
    Direct(Box<dyn Write + Send>),
    Thread(Output),
}

/// The log. Clones are handles of the same.
#[derive(Clone)]
pub struct Log(Arc<Mutex<Inner>>);

impl Default for Log {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Log {
    /// An empty log that writes nowhere.
    pub fn new(settings: Settings) -> Self {
        let inner =
            Inner { settings, lines: VecDeque::new(), classes: BTreeMap::new(), output: Destination::Nowhere, form: Form::Plain };
        Self(Arc::new(Mutex::new(inner)))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Also writes each line to `output` from now on, in this form.
    pub fn set_output(&self, output: Box<dyn Write + Send>, form: Form) {
        let mut inner = self.inner();
        (inner.output, inner.form) = (Destination::Direct(output), form);
    }

    /// Lets a thread write from now on: nobody who logs waits for the output any more.
    ///
    /// # Errors
    /// There can be no more threads; lines are written nowhere then.
    pub fn write_by_thread(&self) -> io::Result<()> {
        let mut inner = self.inner();
        match std::mem::replace(&mut inner.output, Destination::Nowhere) {
            Destination::Direct(output) => inner.output = Destination::Thread(Output::start(output, inner.form)?),
            other => inner.output = other,
        }
        Ok(())
    }

    /// Waits until all lines are written, for `patience` at most.
    pub fn flush(&self, patience: Duration) {
        // Without the lock: others log meanwhile.
        let output = match &self.inner().output {
            Destination::Thread(output) => output.clone(),
            Destination::Direct(_) | Destination::Nowhere => return,
        };
        output.flush(patience);
    }

    /// Takes an event, unless its class does not let it pass.
    pub fn push(&self, time: SystemTime, level: Level, class: &str, text: &str) {
        self.push_with(time, level, class, text, &[]);
    }

    /// As [`push`](Self::push), with what the text says as fields, for outputs that keep them.
    pub fn push_with(&self, time: SystemTime, level: Level, class: &str, text: &str, fields: &Fields) {
        let mut inner = self.inner();
        if !inner.classes.contains_key(class) {
            inner.classes.insert(class.to_owned(), Class::default());
        }
        let settings = inner.settings;
        let of_all = inner.level_of_parent(class).unwrap_or(settings.level);
        let Some(state) = inner.classes.get_mut(class) else { return };
        state.known = true;
        if !state.level.unwrap_or(of_all).passes(level) {
            return;
        }
        match state.throttle(time, &settings) {
            Throttle::Pass => inner.add(time, level, class, text, fields),
            Throttle::Begins => inner.add(time, level, class, "--- message(s) throttled ---", &[]),
            Throttle::Goes => {}
        }
    }

    /// All remembered lines, oldest first.
    pub fn lines(&self) -> Vec<Line> {
        self.inner().lines.iter().cloned().collect()
    }

    /// Forgets all lines.
    pub fn clear(&self) {
        self.inner().lines.clear();
    }

    /// What holds for classes without settings.
    pub fn settings(&self) -> Settings {
        self.inner().settings
    }

    /// Sets how many lines are remembered.
    pub fn set_size(&self, size: usize) {
        let mut inner = self.inner();
        inner.settings.size = size.max(1);
        inner.trim();
    }

    /// Sets the threshold of classes that have none of their own.
    pub fn set_level(&self, level: Level) {
        self.inner().settings.level = level;
    }

    /// Sets how long a class that exceeded its limit is not heard.
    pub fn set_unthrottle(&self, seconds: u32) {
        self.inner().settings.unthrottle = seconds;
    }

    /// Makes classes known before they say something.
    pub fn declare(&self, classes: &[&str]) {
        let mut inner = self.inner();
        classes.iter().for_each(|class| inner.classes.entry((*class).to_owned()).or_default().known = true);
    }

    /// Whether there is such a class: it is declared, or has said something, or stands for all `class/…`.
    pub fn knows(&self, class: &str) -> bool {
        self.inner().knows(class)
    }

    /// Classes for which something was set and which are not known.
    pub fn unknown(&self) -> Vec<String> {
        let inner = self.inner();
        inner.classes.keys().filter(|name| !inner.knows(name)).cloned().collect()
    }

    /// Sets what holds for a class; what is `None` stays.
    pub fn set_class(&self, class: &str, level: Option<Level>, rate_limit: Option<u32>) {
        let mut inner = self.inner();
        let state = inner.classes.entry(class.to_owned()).or_default();
        state.level = level.or(state.level);
        state.rate_limit = rate_limit.or(state.rate_limit);
    }

    /// All classes that are known, have said something, or for which something was set.
    pub fn classes(&self) -> Vec<ClassInfo> {
        let info =
            |(name, class): (&String, &Class)| ClassInfo { class: name.clone(), level: class.level, rate_limit: class.rate_limit };
        self.inner().classes.iter().map(info).collect()
    }
}

impl Inner {
    fn add(&mut self, time: SystemTime, level: Level, class: &str, text: &str, fields: &Fields) {
        let text = text.replace(|c: char| c.is_control(), " ");
        let line = Line { time, level, class: class.to_owned(), text };
        match &mut self.output {
            Destination::Nowhere => {}
            // A log that cannot be written has nobody to tell.
            Destination::Direct(output) => {
                drop(output.write_all(self.form.text(&line, fields).as_bytes()).and_then(|()| output.flush()));
            }
            Destination::Thread(output) => output.push(self.form.text(&line, fields)),
        }
        self.lines.push_back(line);
        self.trim();
    }

    fn trim(&mut self) {
        while self.lines.len() > self.settings.size {
            self.lines.pop_front();
        }
    }
}

enum Throttle {
    Pass,
    Begins,
    Goes,
}

impl Class {
    fn throttle(&mut self, time: SystemTime, settings: &Settings) -> Throttle {
        if let Some(until) = self.throttled_until {
            if time < until {
                return Throttle::Goes;
            }
            (self.throttled_until, self.lines) = (None, 0);
        }
        let second = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        if second != self.second {
            (self.second, self.lines) = (second, 0);
        }
        self.lines += 1;
        if self.lines <= self.rate_limit.unwrap_or(settings.rate_limit) {
            return Throttle::Pass;
        }
        self.throttled_until = Some(time + Duration::from_secs(settings.unthrottle.into()));
        Throttle::Begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_238_175_898 + seconds * 1000)
    }

    #[test]
    fn lines_have_the_usual_form() {
        let log = Log::default();
        log.push(at(0), Level::Notice, "ip/neighbor", "add: pg1, 10.0.1.2");
        assert_eq!(log.lines()[0].to_string(), "2026/11/21 05:16:15:898 notice     ip/neighbor    add: pg1, 10.0.1.2");
    }

    #[test]
    fn the_journal_is_told_each_lines_level() {
        let (levels, form) = ([Level::Emerg, Level::Error, Level::Warn, Level::Notice, Level::Debug], Form::Journal);
        assert_eq!(levels.map(priority), [0, 3, 4, 5, 7]);
        let (mut reader, writer) = io::pipe().unwrap();
        let log = Log::default();
        log.set_output(Box::new(writer), form);
        log.push(at(0), Level::Warn, "memif", "gone");
        drop(log);
        let mut text = String::new();
        io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert_eq!(text, "<4>2026/11/21 05:16:15:898 warn       memif          gone\n");
    }

    #[test]
    fn the_oldest_lines_go_first() {
        let log = Log::default();
        log.set_size(3);
        for n in 0..5 {
            log.push(at(n), Level::Notice, "a", &n.to_string());
        }
        let texts = || log.lines().into_iter().map(|line| line.text).collect::<Vec<_>>();
        assert_eq!(texts(), ["2", "3", "4"]);
        log.set_size(1);
        assert_eq!(texts(), ["4"]);
        log.clear();
        assert!(texts().is_empty());
    }

    #[test]
    fn a_class_stands_for_those_below_it_that_have_no_level_of_their_own() {
        let log = Log::default();
        log.declare(&["ip/neighbor", "ip/punt", "ipsec"]);
        assert!(log.knows("ip") && !log.knows("i") && !log.knows("l2"));
        log.set_class("ip", Some(Level::Debug), None);
        log.set_class("ip/punt", Some(Level::Error), None);
        for class in ["ip/neighbor", "ip/punt", "ipsec"] {
            log.push(at(0), Level::Debug, class, class);
        }
        let texts: Vec<_> = log.lines().into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["ip/neighbor"]);
        assert!(log.unknown().is_empty());
    }

    #[test]
    fn classes_decide_what_passes() {
        let log = Log::default();
        log.push(at(0), Level::Debug, "a", "no");
        log.set_class("a", Some(Level::Debug), None);
        log.push(at(0), Level::Debug, "a", "yes");
        log.set_class("b", Some(Level::Disabled), None);
        log.push(at(0), Level::Emerg, "b", "no");
        log.set_level(Level::Error);
        log.push(at(0), Level::Notice, "c", "no");
        let texts: Vec<_> = log.lines().into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["yes"]);
        assert_eq!(log.classes().len(), 3);
    }

    #[test]
    fn a_class_that_says_too_much_is_throttled_for_a_while() {
        let log = Log::default();
        log.set_class("a", None, Some(2));
        for n in 0..10 {
            log.push(at(0), Level::Notice, "a", &n.to_string());
        }
        log.push(at(2), Level::Notice, "a", "still not");
        log.push(at(3), Level::Notice, "a", "again");
        log.push(at(0), Level::Notice, "b", "another");
        let texts: Vec<_> = log.lines().into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["0", "1", "--- message(s) throttled ---", "again", "another"]);
    }

    #[test]
    fn what_comes_in_stays_on_one_line() {
        let log = Log::default();
        log.push(at(0), Level::Warn, "a", "one\ntwo\x1b[0m");
        assert!(!log.lines()[0].to_string().contains(char::is_control));
    }
}
