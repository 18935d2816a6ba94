//! Runs the commands of a file, in slices.

use super::{Line, Macros, Script, ScriptError};
use crate::configuration::Atomic;
use crate::operation::{Answer, Job, OpError, Outcome, Registry, Step, Text, View, retval};
use serde::Serialize;
use std::{
    cell::Cell,
    collections::BTreeSet,
    future::Future,
    io::{self, BufRead},
    marker::PhantomData,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// How deep files may run other files.
const DEEPEST: u32 = 16;
/// Output is handed on when it reaches this many bytes, even within a slice.
const PRINT_AT: usize = 64 << 10;

/// Where scripts find what they need in the control state `C`. The control state may belong to a crate that knows nothing of
/// commands, so it is another type, never made, that implements this.
pub trait ScriptHost<C>: 'static {
    /// The commands.
    fn registry(control: &C) -> Rc<Registry<C>>;
    /// The state kept here for scripts.
    fn script_state(control: &mut C) -> &mut ScriptState;
    /// Opens a file of commands. `operator`: it is the operator's own, named in the startup configuration or by such a file;
    /// all others lie in folders that commands may read.
    fn open_script(control: &mut C, path: &str, operator: bool) -> Result<Opening, OpError>;
}

/// A file that is being opened and read, by another thread where that may take time.
pub type Opening = Pin<Box<dyn Future<Output = io::Result<Box<dyn BufRead>>>>>;

/// What scripts keep in the control state.
#[derive(Debug, Default)]
pub struct ScriptState {
    /// The names that commands may use.
    pub macros: Macros,
    running: Rc<Cell<u32>>,
    /// How deep in scripts the line is that runs at the moment.
    depth: u32,
    /// Files of the startup configuration.
    operators: BTreeSet<String>,
    /// Whether the command that runs now stands in a file of the operator's.
    operator: Rc<Cell<bool>>,
}

impl ScriptState {
    /// How many scripts are running, one within the other or side by side for several clients.
    pub fn running_scripts(&self) -> u32 {
        self.running.get()
    }

    /// Takes a file as the operator's own: it may lie anywhere, and so may the files that its commands name.
    pub fn trust(&mut self, path: impl Into<String>) {
        self.operators.insert(path.into());
    }

    /// Whether the command that runs now stands in a file of the operator's.
    pub fn is_operator(&self) -> bool {
        self.operator.get()
    }
}

/// Commands run with the rights of the file that they stand in as long as this lives.
struct InFile(Rc<Cell<bool>>, bool);

impl InFile {
    fn enter(flag: &Rc<Cell<bool>>, operator: bool) -> Self {
        Self(Rc::clone(flag), flag.replace(operator))
    }
}

impl Drop for InFile {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Counts a running script as long as it lives, however it ends.
struct Running(Rc<Cell<u32>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// What running a script came to; silent as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScriptReply {
    /// How many commands ran.
    pub commands: u64,
}

impl Text for ScriptReply {
    fn text(&self, _out: &mut String, _view: &View) {}
}

/// Where the commands come from.
enum Source {
    /// A file that is not open yet.
    Opening(Opening),
    File(Script<Box<dyn BufRead>>),
    /// A client has read them.
    Lines(std::vec::IntoIter<Line>),
}

impl Source {
    fn next(&mut self) -> Option<Result<Line, ScriptError>> {
        match self {
            Self::Opening(_) => None,
            Self::File(script) => script.next(),
            Self::Lines(lines) => lines.next().map(Ok),
        }
    }
}

/// The commands of a file as one long operation. It stops at the first command that fails; what ran
/// before stays. The output of its commands goes to whoever asked.
///
/// Each of its lines is one operation, whole for everybody else; between two lines others may run.
pub struct ScriptJob<C, H> {
    name: String,
    source: Source,
    nested: Option<(u64, Box<dyn Job<C, Answer>>)>,
    printed: String,
    finished: Option<Result<ScriptReply, OpError>>,
    commands: u64,
    cancelled: bool,
    /// How many files have run this one.
    depth: u32,
    /// Whether the file is the operator's own.
    operator: bool,
    /// Whether its lines may be shown to whoever asked: it is theirs, or the operator's.
    shown: bool,
    /// Whether all goes back where a command fails.
    whole: bool,
    flag: Rc<Cell<bool>>,
    _running: Running,
    host: PhantomData<fn() -> H>,
}

impl<C: 'static, H: ScriptHost<C>> ScriptJob<C, H> {
    /// Opens a file.
    pub fn open(control: &mut C, path: &str) -> Result<Self, OpError> {
        let state = H::script_state(control);
        let operator = state.is_operator() || state.operators.contains(path);
        let (running, depth) = Self::begin(control, path)?;
        let opening = H::open_script(control, path, operator)?;
        let mut job = Self::with(control, path, Source::Opening(opening), running, depth);
        (job.operator, job.shown) = (operator, operator);
        // What is there at once, or cannot be there, is known now.
        let _ = job.poll_open(&mut Context::from_waker(Waker::noop()));
        match job.finished.take() {
            Some(Err(error)) => Err(error),
            _ => Ok(job),
        }
    }

    /// Takes commands that a client has read from a file of its own.
    pub fn lines(control: &mut C, name: &str, lines: Vec<Line>) -> Result<Self, OpError> {
        let (running, depth) = Self::begin(control, name)?;
        let mut job = Self::with(control, name, Source::Lines(lines.into_iter()), running, depth);
        job.shown = true;
        Ok(job)
    }

    fn begin(control: &mut C, path: &str) -> Result<(Running, u32), OpError> {
        let state = H::script_state(control);
        let (running, depth) = (Rc::clone(&state.running), state.depth);
        if depth >= DEEPEST {
            return Err(OpError::new(retval::LIMIT_EXCEEDED, format!("scripts run scripts more than {DEEPEST} deep"))
                .key("file")
                .value(path));
        }
        running.set(running.get() + 1);
        Ok((Running(running), depth))
    }

    fn with(control: &mut C, name: &str, source: Source, running: Running, depth: u32) -> Self {
        Self {
            name: name.to_owned(),
            source,
            nested: None,
            printed: String::new(),
            finished: None,
            commands: 0,
            cancelled: false,
            depth,
            operator: false,
            shown: false,
            whole: false,
            flag: Rc::clone(&H::script_state(control).operator),
            _running: running,
            host: PhantomData,
        }
    }

    /// Whoever runs it takes all back where a command fails.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.whole = true;
        self
    }

    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Source::Opening(opening) = &mut self.source else { return Poll::Ready(()) };
        match opening.as_mut().poll(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(reader)) => self.source = Source::File(Script::new(reader)),
            Poll::Ready(Err(error)) => {
                self.source = Source::Lines(Vec::new().into_iter());
                let doing = format!("cannot read {}", self.name);
                self.finished = Some(Err(OpError::system(doing, &error).key("file").value(&self.name)));
            }
        }
        Poll::Ready(())
    }

    /// What is said of a command that fails; the file that was asked for also says what became of those before it.
    fn fail(&self, number: u64, error: OpError) -> OpError {
        let mut error = self.fail_here(number, error);
        if self.depth == 0 && !self.whole && self.commands > 0 {
            error.message += "; what stands before it took effect";
        }
        error
    }

    fn fail_here(&self, number: u64, error: OpError) -> OpError {
        if error.command.is_none() && !self.shown {
            // It need not be a file of commands: what stands in it is not shown.
            let text = format!("CLI line error: {}:{number}: no such command", self.name);
            return OpError { message: text, value: None, remedy: None, ..error };
        }
        let text = match &error.command {
            Some(command) => format!("CLI line error: {}:{number}: {command}: {}", self.name, error.message),
            None => format!("CLI line error: {}:{number}: {}", self.name, error.message),
        };
        OpError { message: text, command: None, ..error }
    }

    /// Runs the next command; `Some` when the script is at its end or has failed.
    fn advance(&mut self, control: &mut C, registry: &Registry<C>) -> Option<Result<ScriptReply, OpError>> {
        if self.cancelled {
            return Some(Err(OpError::unspecified(format!("{}: stopped after {} commands", self.name, self.commands))));
        }
        let line = match self.source.next() {
            None => return Some(Ok(ScriptReply { commands: self.commands })),
            Some(Err(error)) => return Some(Err(OpError::unspecified(format!("{}: {error}", self.name)))),
            Some(Ok(line)) => line,
        };
        let command = match H::script_state(control).macros.expand(&line.command) {
            Ok(command) => command.into_owned(),
            Err(error) => return Some(Err(self.fail(line.number, error))),
        };
        // Files that run at the same time for others do not count.
        H::script_state(control).depth = self.depth + 1;
        let in_file = InFile::enter(&self.flag, self.operator);
        let outcome = registry.execute(control, &command, &View::TEXT);
        drop(in_file);
        H::script_state(control).depth = 0;
        match outcome {
            Ok(Outcome::Done(answer)) => self.printed.push_str(&answer.text),
            Ok(Outcome::Job(job)) => {
                self.nested = Some((line.number, job));
                return None;
            }
            Err(error) => return Some(Err(self.fail(line.number, error))),
        }
        self.commands += 1;
        None
    }

    fn step_nested(&mut self, control: &mut C, budget: Duration) -> Option<Step<ScriptReply>> {
        let (number, job) = self.nested.as_mut()?;
        let number = *number;
        let in_file = InFile::enter(&self.flag, self.operator);
        let step = job.step(control, budget);
        drop(in_file);
        match step {
            Step::Again => return Some(Step::Again),
            Step::Wait => return Some(Step::Wait),
            Step::Sleep(pause) => return Some(Step::Sleep(pause)),
            Step::Print(text) => return Some(Step::Print(text)),
            Step::Done(Ok(answer)) => {
                self.printed.push_str(&answer.text);
                self.commands += 1;
            }
            Step::Done(Err(error)) => self.finished = Some(Err(self.fail(number, error))),
        }
        self.nested = None;
        None
    }

    fn print(&mut self) -> Option<Step<ScriptReply>> {
        (!self.printed.is_empty()).then(|| Step::Print(std::mem::take(&mut self.printed)))
    }
}

impl<C: 'static, H: ScriptHost<C>> Job<C, ScriptReply> for ScriptJob<C, H> {
    fn step(&mut self, control: &mut C, budget: Duration) -> Step<ScriptReply> {
        let started = Instant::now();
        let registry = H::registry(control);
        loop {
            // What a command printed before it paused is shown before the pause.
            let pauses = self.nested.is_some() || self.finished.is_some();
            if (pauses || self.printed.len() >= PRINT_AT)
                && let Some(print) = self.print()
            {
                return print;
            }
            if let Some(result) = self.finished.take() {
                return Step::Done(result);
            }
            if matches!(self.source, Source::Opening(_)) && !self.cancelled {
                if self.poll_open(&mut Context::from_waker(Waker::noop())).is_pending() {
                    return Step::Wait;
                }
                continue;
            }
            if self.nested.is_some()
                && let Some(step) = self.step_nested(control, budget.saturating_sub(started.elapsed()))
            {
                return step;
            }
            if self.finished.is_none() {
                self.finished = self.advance(control, &registry);
            }
            if self.finished.is_none() && started.elapsed() >= budget {
                return self.print().unwrap_or(Step::Again);
            }
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.nested {
            Some((_, job)) => job.poll_ready(context),
            None => self.poll_open(context),
        }
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn yields(&self) -> bool {
        self.nested.as_ref().is_none_or(|(_, job)| job.yields())
    }

    fn cancel(&mut self, control: &mut C) {
        self.cancelled = true;
        if let Some((_, job)) = &mut self.nested {
            job.cancel(control);
        }
    }
}

/// A script that changes all that it changes, or nothing.
pub(super) struct AtomicScript<C>(Atomic<C, ScriptReply>);

impl<C: 'static> AtomicScript<C> {
    pub(super) fn outcome<H: ScriptHost<C>>(control: &C, script: ScriptJob<C, H>) -> Outcome<C, ScriptReply> {
        Outcome::job(Self(Atomic::new(H::registry(control), control, Box::new(script))))
    }
}

impl<C: 'static> Job<C, ScriptReply> for AtomicScript<C> {
    fn step(&mut self, control: &mut C, budget: Duration) -> Step<ScriptReply> {
        self.0.step(control, budget).map(|applied| {
            applied.hold.keep();
            applied.reply
        })
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ready(context)
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn yields(&self) -> bool {
        false
    }

    fn cancel(&mut self, control: &mut C) {
        self.0.cancel(control);
    }
}
