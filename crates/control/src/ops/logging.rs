//! `show logging`, `set logging`, `clear logging`.

use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use quiver_command::grammar::{Args, nearest, quote};
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use quiver_net::Router;
use serde::{Deserialize, Serialize};

use super::configuration::Said;
use crate::log::{ClassInfo, Level, Line, Settings};
use crate::system::System;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .declare::<ShowLogging>()
        .declare::<ShowLoggingSettings>()
        .declare::<ClearLogging>()
        .declare::<SetLoggingClass>()
        .declare::<SetLogging>()
        .values("level", |_| Level::NAMES.iter().map(|(name, _)| (*name).to_owned()).collect());
}

fn parse_class(args: &mut Args<'_>) -> Result<SetLoggingClass, OpError> {
    let mut request = SetLoggingClass { class: args.word("class")?.into_owned(), ..SetLoggingClass::default() };
    while !args.is_empty() {
        if args.take_keyword("rate-limit") {
            request.rate_limit = Some(args.number("rate-limit")?);
        } else if args.take_keyword("level") {
            request.level = Some(args.expect_one_of(&Level::NAMES)?);
        } else if args.take_keyword("syslog-level") || args.take_keyword("kmsg-level") {
            // There is one log; these levels belong to outputs that are not there.
            args.expect_one_of(&Level::NAMES)?;
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(request)
}

fn class_command(SetLoggingClass { class, level, rate_limit }: &SetLoggingClass) -> Option<String> {
    let mut command = format!("set logging class {}", quote(class));
    rate_limit.iter().for_each(|lines| command += &format!(" rate-limit {lines}"));
    level.iter().for_each(|level| command += &format!(" level {}", level.name()));
    Some(command)
}

request! {
    /// Shows the last lines of the log.
    pub read ShowLogging "log_dump" ["show logging"] {}
}

/// A line as a program reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// How much it matters.
    pub level: Level,
    /// Which part says it.
    pub class: String,
    /// What it says.
    pub text: String,
    #[serde(skip)]
    line: String,
}

impl From<Line> for LogLine {
    fn from(line: Line) -> Self {
        let since = line.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Self { unix_ms, level: line.level, class: line.class.clone(), text: line.text.clone(), line: line.to_string() }
    }
}

impl Text for LogLine {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "{}", self.line);
    }
}

impl Execute<Router> for ShowLogging {
    type Reply = Vec<LogLine>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Vec<LogLine>>, OpError> {
        Ok(Outcome::Done(System::of(router)?.log.lines().into_iter().map(LogLine::from).collect()))
    }
}

request! {
    /// Shows what passes into the log.
    pub read ShowLoggingSettings "log_settings_show" ["show logging configuration"] {}
}

/// The answer of [`ShowLoggingSettings`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoggingSettings {
    /// What holds for classes without settings.
    pub default: Settings,
    /// Classes.
    pub classes: Vec<ClassInfo>,
}

impl Execute<Router> for ShowLoggingSettings {
    type Reply = LoggingSettings;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, LoggingSettings>, OpError> {
        let log = &System::of(router)?.log;
        Ok(Outcome::Done(LoggingSettings { default: log.settings(), classes: log.classes() }))
    }
}

impl Text for LoggingSettings {
    fn text(&self, out: &mut String, _view: &View) {
        let Settings { size, level, rate_limit, unthrottle } = self.default;
        let _ = writeln!(out, "{:<30} {:<10} {:<10}", "Class", "Level", "Rate Limit");
        let _ = writeln!(out, "{:<30} {:<10} {rate_limit:<10}", "(default)", level.name());
        for class in &self.classes {
            let limit = class.rate_limit.map(|limit| limit.to_string());
            let (level, limit) = (class.level.map_or("default", Level::name), limit.as_deref().unwrap_or("default"));
            let _ = writeln!(out, "{:<30} {level:<10} {limit:<10}", class.class);
        }
        let _ = writeln!(out, "size {size} lines, unthrottle time {unthrottle} s");
    }
}

request! {
    /// Clears the log.
    pub change ClearLogging "log_clear" ["clear logging"] {}
}

impl Execute<Router> for ClearLogging {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        System::of(router)?.log.clear();
        Ok(Outcome::Done(()))
    }
}

/// Sets what passes into the log for a class; what is missing stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SetLoggingClass {
    /// The class, such as `ip/neighbor`.
    pub class: String,
    /// Threshold.
    pub level: Option<Level>,
    /// Lines a second.
    pub rate_limit: Option<u32>,
}

impl SetLoggingClass {
    /// The threshold of a class.
    pub fn level(class: &str, level: Level) -> Self {
        Self { class: class.to_owned(), level: Some(level), rate_limit: None }
    }

    /// The lines a second of a class.
    pub fn limit(class: &str, lines: u32) -> Self {
        Self { class: class.to_owned(), level: None, rate_limit: Some(lines) }
    }
}

commands! {
    change SetLoggingClass "log_class_set" {
        /// Sets from which level on a class is logged, and how many lines a second.
        ["set logging class"] "<class> [rate-limit <n>] [level <level>] [syslog-level <level>] [kmsg-level <level>]" by parse_class => class_command,
    }
}

impl Execute<Router> for SetLoggingClass {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let log = &System::of(router)?.log;
        if !log.knows(&self.class) {
            let error = OpError::invalid("class", &self.class, format!("unknown class `{}'", self.class));
            let classes = log.classes();
            return Err(match nearest(&self.class, classes.iter().map(|class| class.class.as_str())) {
                Some(meant) => error.remedy(format!("did you mean `{meant}'?")),
                None => error.remedy("`show logging configuration' lists them"),
            });
        }
        let usual = log.settings();
        let now = log.classes().into_iter().find(|class| class.class == self.class);
        let level = now.as_ref().and_then(|now| now.level).unwrap_or(usual.level);
        let rate_limit = now.as_ref().and_then(|now| now.rate_limit).unwrap_or(usual.rate_limit);
        log.set_class(&self.class, self.level, self.rate_limit);
        let said = Said::of(router).log_classes.entry(self.class).or_default();
        self.level.into_iter().for_each(|value| said.0.set(value, level));
        self.rate_limit.into_iter().for_each(|value| said.1.set(value, rate_limit));
        Ok(Outcome::Done(()))
    }
}

/// Sets what holds for the whole log; what is missing stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SetLogging {
    /// Lines that are remembered, 1 to 1,000,000.
    pub size: Option<usize>,
    /// Seconds for which a class that said too much is not heard.
    pub unthrottle: Option<u32>,
}

commands! {
    change SetLogging "log_set" {
        /// Sets how many lines of the log are remembered.
        ["set logging size"] { size: usize = "<n>" name("size") range(1..=1_000_000) } => { size: Some(size), unthrottle: None },
        /// Sets for how many seconds a class that said too much is not heard.
        ["set logging unthrottle-time"] { seconds: u32 = "<n>" name("seconds") } => { size: None, unthrottle: Some(seconds) },
    }
}

impl Execute<Router> for SetLogging {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        if let Some(size) = self.size.filter(|size| !(1..=1_000_000).contains(size)) {
            return Err(OpError::invalid("size", size, "out of range").remedy("use 1 to 1000000"));
        }
        let log = &System::of(router)?.log;
        let now = log.settings();
        self.size.into_iter().for_each(|size| log.set_size(size));
        self.unthrottle.into_iter().for_each(|seconds| log.set_unthrottle(seconds));
        let said = Said::of(router);
        self.size.into_iter().for_each(|size| said.log_size.set(size, now.size));
        self.unthrottle.into_iter().for_each(|seconds| said.log_unthrottle.set(seconds, now.unthrottle));
        Ok(Outcome::Done(()))
    }
}
