//! Runs the commands of a file, in slices.

use super::{Macros, Script};
use crate::operation::{Answer, Job, OpError, Outcome, Registry, Step, Text, View, retval};
use serde::Serialize;
use std::{
    cell::Cell,
    io::BufRead,
    marker::PhantomData,
    rc::Rc,
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
    /// Opens a file of commands.
    fn open_script(control: &mut C, path: &str) -> std::io::Result<Box<dyn BufRead>>;
}

/// What scripts keep in the control state.
#[derive(Debug, Default)]
pub struct ScriptState {
    /// The names that commands may use.
    pub macros: Macros,
    running: Rc<Cell<u32>>,
    /// How deep in scripts the line is that runs at the moment.
    depth: u32,
}

impl ScriptState {
    /// How many scripts are running, one within the other or side by side for several clients.
    pub fn running_scripts(&self) -> u32 {
        self.running.get()
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

/// The commands of a file as one long operation. It stops at the first command that fails; what ran
/// before stays. The output of its commands goes to whoever asked.
///
/// Each of its lines is one operation, whole for everybody else; between two lines others may run.
pub struct ScriptJob<C, H> {
    name: String,
    script: Script<Box<dyn BufRead>>,
    nested: Option<(u64, Box<dyn Job<C, Answer>>)>,
    printed: String,
    finished: Option<Result<ScriptReply, OpError>>,
    commands: u64,
    cancelled: bool,
    /// How many files have run this one.
    depth: u32,
    _running: Running,
    host: PhantomData<fn() -> H>,
}

impl<C: 'static, H: ScriptHost<C>> ScriptJob<C, H> {
    /// Opens a file.
    pub fn open(control: &mut C, path: &str) -> Result<Self, OpError> {
        let state = H::script_state(control);
        let (running, depth) = (Rc::clone(&state.running), state.depth);
        if depth >= DEEPEST {
            return Err(OpError::new(retval::LIMIT_EXCEEDED, format!("scripts run scripts more than {DEEPEST} deep"))
                .key("file")
                .value(path));
        }
        let reader = H::open_script(control, path)
            .map_err(|error| OpError::system(format_args!("cannot read {path}"), &error).key("file").value(path))?;
        running.set(running.get() + 1);
        Ok(Self {
            name: path.to_owned(),
            script: Script::new(reader),
            nested: None,
            printed: String::new(),
            finished: None,
            commands: 0,
            cancelled: false,
            depth,
            _running: Running(running),
            host: PhantomData,
        })
    }

    fn fail(&self, number: u64, error: OpError) -> OpError {
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
        let line = match self.script.next() {
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
        let outcome = registry.execute(control, &command, &View::TEXT);
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
        let step = job.step(control, budget);
        match step {
            Step::Again => return Some(Step::Again),
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
