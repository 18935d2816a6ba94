//! A request bound to its operation, without its types.

use super::{Access, Dynamic, Job, OpError, Operation, Outcome, Render, Step, Text, View, retval};
use crate::change_log::{ChangeLog, Record};
use crate::contain::{Panicked, contain, exposed};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use std::{
    marker::PhantomData,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

/// A rendered reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The text of the command language: complete lines or nothing.
    pub text: String,
    /// The reply as one line of JSON, where it was asked for.
    pub json: Option<String>,
    /// What was tried did not succeed; see [`Text::is_negative`].
    pub negative: bool,
}

impl Answer {
    /// Renders a reply as `view` asks for.
    pub fn render<R: serde::Serialize + Text>(reply: &R, view: &View) -> Result<Self, OpError> {
        let mut answer = Self { negative: reply.is_negative(), ..Self::default() };
        if view.render != Render::Json {
            reply.text(&mut answer.text, view);
        }
        if view.render != Render::Text {
            let json = serde_json::to_string(reply)
                .map_err(|error| OpError::new(retval::UNSPECIFIED, format!("reply cannot be JSON: {error}")))?;
            answer.json = Some(json);
        }
        Ok(answer)
    }
}

/// An operation together with its request, ready to run.
pub struct Invocation<C>(Box<dyn Erased<C>>);

impl<C: 'static> Invocation<C> {
    /// Binds a request to operation `O`.
    pub fn new<O: Operation<C>>(request: O::Request) -> Self {
        Self(Box::new(Bound::<C, O> { request, types: PhantomData }))
    }

    /// Binds a request to an operation that was declared while the program runs.
    pub fn dynamic(operation: Rc<Dynamic<C>>, request: Map<String, Value>) -> Self {
        Self(Box::new(BoundDynamic { operation, request }))
    }

    /// The operation's name.
    pub fn operation(&self) -> &'static str {
        self.0.operation()
    }

    /// Whether it reads or changes.
    pub fn access(&self) -> Access {
        self.0.access()
    }

    /// The request as JSON, as a JSON client would send it.
    pub fn request_json(&self) -> Result<Value, OpError> {
        of_text(&self.0.request_raw()?)
    }

    /// The operation and its request, to be run again.
    pub fn record(&self) -> Result<Record, OpError> {
        Ok(Record { operation: self.operation().to_owned(), request: self.0.request_raw()? })
    }

    /// Runs it and renders the reply.
    pub fn run(self, control: &mut C, view: &View) -> Result<Outcome<C, Answer>, OpError> {
        self.0.run(control, view)
    }
}

impl<C> std::fmt::Debug for Invocation<C> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let request = self.0.request_raw().and_then(|text| of_text(&text)).unwrap_or_default();
        write!(formatter, "{} {request}", self.0.operation())
    }
}

fn not_json(error: serde_json::Error) -> OpError {
    OpError::unspecified(format!("request cannot be JSON: {error}"))
}

/// A request as JSON. By way of its text, which each type is written as anyway.
///
/// # Errors
/// It cannot be JSON.
pub fn json_of<R: serde::Serialize>(request: &R) -> Result<Value, OpError> {
    of_text(&to_raw_value(request).map_err(not_json)?)
}

fn of_text(text: &RawValue) -> Result<Value, OpError> {
    serde_json::from_str(text.get()).map_err(not_json)
}

trait Erased<C> {
    fn operation(&self) -> &'static str;
    fn access(&self) -> Access;
    fn request_raw(&self) -> Result<Box<RawValue>, OpError>;
    fn run(self: Box<Self>, control: &mut C, view: &View) -> Result<Outcome<C, Answer>, OpError>;
}

struct Bound<C, O: Operation<C>> {
    request: O::Request,
    types: PhantomData<fn(&mut C)>,
}

impl<C: 'static, O: Operation<C>> Erased<C> for Bound<C, O> {
    fn operation(&self) -> &'static str {
        O::NAME
    }

    fn access(&self) -> Access {
        O::access(&self.request)
    }

    fn request_raw(&self) -> Result<Box<RawValue>, OpError> {
        to_raw_value(&self.request).map_err(not_json)
    }

    fn run(self: Box<Self>, control: &mut C, view: &View) -> Result<Outcome<C, Answer>, OpError> {
        let reads = O::access(&self.request) == Access::Read;
        let outcome = guarded(reads, || O::run(control, self.request))??;
        Ok(match outcome {
            Outcome::Done(reply) => Outcome::Done(rendered(&reply, view)?),
            Outcome::Job(job) => Outcome::job(Rendered { job, view: *view, reads }),
        })
    }
}

struct BoundDynamic<C> {
    operation: Rc<Dynamic<C>>,
    request: Map<String, Value>,
}

impl<C: 'static> Erased<C> for BoundDynamic<C> {
    fn operation(&self) -> &'static str {
        self.operation.request.name
    }

    fn access(&self) -> Access {
        self.operation.request.access
    }

    fn request_raw(&self) -> Result<Box<RawValue>, OpError> {
        to_raw_value(&self.request).map_err(not_json)
    }

    fn run(self: Box<Self>, control: &mut C, view: &View) -> Result<Outcome<C, Answer>, OpError> {
        let reply = (self.operation.run)(control, &self.request)?;
        Ok(Outcome::Done(rendered(&reply, view)?))
    }
}

/// Runs a part of an operation: what only reads is contained, what may change state never is.
fn guarded<R>(reads: bool, f: impl FnOnce() -> R) -> Result<R, OpError> {
    let (mut f, mut result) = (Some(f), None);
    // One text for all parts.
    let run: &mut dyn FnMut() = &mut || result = f.take().map(|f| f());
    if reads {
        contain(run)?
    } else {
        exposed(run)
    }
    result.ok_or_else(|| OpError::unspecified("it did not run"))
}

/// Renders a reply: what the operation does is done by then.
fn rendered<R: serde::Serialize + Text>(reply: &R, view: &View) -> Result<Answer, OpError> {
    contain(|| Answer::render(reply, view)).map_err(not_shown)?
}

fn not_shown(panicked: Panicked) -> OpError {
    OpError::unspecified(format!("done, but the answer cannot be shown: internal error at {panicked}"))
}

/// A job whose reply is rendered when it ends.
struct Rendered<C, R> {
    job: Box<dyn Job<C, R>>,
    view: View,
    reads: bool,
}

impl<C, R: serde::Serialize + Text> Job<C, Answer> for Rendered<C, R> {
    fn step(&mut self, control: &mut C, budget: Duration) -> Step<Answer> {
        match guarded(self.reads, || self.job.step(control, budget)) {
            Ok(step) => step.and_then(|reply| Step::Done(rendered(&reply, &self.view))),
            Err(error) => Step::Done(Err(error)),
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.job.poll_ready(context)
    }

    fn exclusive(&self) -> bool {
        self.job.exclusive()
    }

    fn yields(&self) -> bool {
        self.job.yields()
    }

    fn cancel(&mut self, control: &mut C) {
        exposed(|| self.job.cancel(control));
    }
}

/// A job whose steps are followed: what `follow` makes of each is what it came to.
pub(crate) struct Followed<C, F> {
    pub(crate) job: Box<dyn Job<C, Answer>>,
    pub(crate) follow: F,
}

impl<C, F: FnMut(Step<Answer>) -> Step<Answer>> Job<C, Answer> for Followed<C, F> {
    fn step(&mut self, control: &mut C, budget: Duration) -> Step<Answer> {
        (self.follow)(self.job.step(control, budget))
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.job.poll_ready(context)
    }

    fn exclusive(&self) -> bool {
        self.job.exclusive()
    }

    fn yields(&self) -> bool {
        self.job.yields()
    }

    fn cancel(&mut self, control: &mut C) {
        self.job.cancel(control);
    }
}

/// Has errors of a job carry the path of the command that started it.
pub(crate) fn in_command(path: &'static str) -> impl FnMut(Step<Answer>) -> Step<Answer> {
    move |step| match step {
        Step::Done(Err(error)) => Step::Done(Err(error.in_command(path))),
        step => step,
    }
}

/// Records a job when it has succeeded.
pub(crate) fn recorded(log: Rc<dyn ChangeLog>, record: Record) -> impl FnMut(Step<Answer>) -> Step<Answer> {
    // None once it is recorded.
    let mut waiting = Some(record);
    move |step| {
        match (&step, waiting.take()) {
            (Step::Done(Ok(_)), Some(record)) => log.append(record),
            // A part of it may be done.
            (Step::Done(Err(_)), Some(_)) => log.unrecorded(),
            (_, record) => waiting = record,
        }
        step
    }
}
