//! `show logging`, `set logging`, `clear logging`.

use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use quiver_command::grammar::{Args, Command, nearest};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
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
        .operation::<SetLoggingClass>()
        .operation::<SetLogging>()
        .values("level", |_| Level::NAMES.iter().map(|(name, _)| (*name).to_owned()).collect())
        .command(Command {
            path: "set logging class",
            syntax: "<class> [rate-limit <n>] [level <level>] [syslog-level <level>] [kmsg-level <level>]",
            help: "Sets what passes into the log for a class",
            parse: parse_class,
        })
        .command(Command {
            path: "set logging size",
            syntax: "<n>",
            help: "Sets how many lines of the log are remembered",
            parse: |args, _| {
                let size = Some(args.number_in("size", 1..=1_000_000)?);
                Ok(Invocation::new::<SetLogging>(SetLoggingRequest { size, unthrottle: None }))
            },
        })
        .command(Command {
            path: "set logging unthrottle-time",
            syntax: "<n>",
            help: "Sets for how many seconds a class that said too much is not heard",
            parse: |args, _| {
                let unthrottle = Some(args.number("seconds")?);
                Ok(Invocation::new::<SetLogging>(SetLoggingRequest { size: None, unthrottle }))
            },
        });
}

fn parse_class(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
    let mut request = SetClassRequest { class: args.word("class")?.into_owned(), ..SetClassRequest::default() };
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
    Ok(Invocation::new::<SetLoggingClass>(request))
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
    /// Forgets the lines of the log.
    pub change ClearLogging "log_clear" ["clear logging"] {}
}

impl Execute<Router> for ClearLogging {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        System::of(router)?.log.clear();
        Ok(Outcome::Done(()))
    }
}

/// Sets what passes into the log for a class.
pub struct SetLoggingClass;

/// What [`SetLoggingClass`] sets; what is missing stays.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SetClassRequest {
    /// The class, such as `ip/neighbor`.
    pub class: String,
    /// Threshold.
    pub level: Option<Level>,
    /// Lines a second.
    pub rate_limit: Option<u32>,
}

impl Operation<Router> for SetLoggingClass {
    const NAME: &'static str = "log_class_set";
    const ACCESS: Access = Access::Change;
    type Request = SetClassRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetClassRequest) -> Result<Outcome<Router, ()>, OpError> {
        let log = &System::of(router)?.log;
        if !log.knows(&request.class) {
            let error = OpError::invalid("class", &request.class, format!("unknown class `{}'", request.class));
            let classes = log.classes();
            return Err(match nearest(&request.class, classes.iter().map(|class| class.class.as_str())) {
                Some(meant) => error.remedy(format!("did you mean `{meant}'?")),
                None => error.remedy("`show logging configuration' lists them"),
            });
        }
        log.set_class(&request.class, request.level, request.rate_limit);
        let said = Said::of(router).log_classes.entry(request.class).or_default();
        *said = (request.level.or(said.0), request.rate_limit.or(said.1));
        Ok(Outcome::Done(()))
    }
}

/// Sets what holds for the whole log.
pub struct SetLogging;

/// What [`SetLogging`] sets; what is missing stays.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SetLoggingRequest {
    /// Lines that are remembered, 1 to 1,000,000.
    pub size: Option<usize>,
    /// Seconds for which a class that said too much is not heard.
    pub unthrottle: Option<u32>,
}

impl Operation<Router> for SetLogging {
    const NAME: &'static str = "log_set";
    const ACCESS: Access = Access::Change;
    type Request = SetLoggingRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetLoggingRequest) -> Result<Outcome<Router, ()>, OpError> {
        if let Some(size) = request.size.filter(|size| !(1..=1_000_000).contains(size)) {
            return Err(OpError::invalid("size", size, "out of range").remedy("use 1 to 1000000"));
        }
        let log = &System::of(router)?.log;
        request.size.into_iter().for_each(|size| log.set_size(size));
        request.unthrottle.into_iter().for_each(|seconds| log.set_unthrottle(seconds));
        let said = Said::of(router);
        said.log_size = request.size.or(said.log_size);
        said.log_unthrottle = request.unthrottle.or(said.log_unthrottle);
        Ok(Outcome::Done(()))
    }
}
