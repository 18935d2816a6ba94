//! Runs operations for sessions: one total order, long ones in slices.
//!
//! A request waits for its turn, runs, and hands the turn on. A long operation that changes configuration keeps the turn over its
//! slices, unless it [yields](Job::yields) between two of them, as a script does between two lines: then it goes to the end of the queue
//! where others wait. So each operation is whole for all others, and nobody waits for more than one operation of each of the others.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quiver_command::contain::exposed;
use quiver_command::grammar::{Completion, Parsed};
use quiver_command::operation::{Access, Answer, Job, Live, OpError, Outcome, Step, View};
use quiver_command::session::Request;
use quiver_graph::Pulse;
use quiver_graph::reactor::Reactor;

use crate::audit;
use crate::journal::Journal;
use crate::order::{Entry, Order, Turn};
use crate::process::Task;
use crate::server::Asking;

/// How long a slice of a long operation may take: a main thread that also forwards must not stall.
pub const SLICE: Duration = Duration::from_micros(50);

/// The control state and the operations on it, as sessions share them. Clones are handles of the same.
pub struct Engine<C> {
    control: Rc<RefCell<C>>,
    registry: Live<C>,
    order: Order,
    reactor: Rc<Reactor>,
    /// What may be asked by this handle.
    access: Access,
    /// Where it is said what runs, for the watchdog.
    pulse: Option<Arc<Pulse>>,
    /// Where changes are recorded: answers wait until they are on the disk.
    journal: Option<Rc<Journal>>,
    /// Who asks by this handle.
    asking: Option<Asking>,
    /// What is asked and changes something is told to the log.
    audit: bool,
}

impl<C> Clone for Engine<C> {
    fn clone(&self) -> Self {
        Self {
            control: Rc::clone(&self.control),
            registry: self.registry.clone(),
            order: self.order.clone(),
            reactor: Rc::clone(&self.reactor),
            access: self.access,
            pulse: self.pulse.clone(),
            journal: self.journal.clone(),
            asking: self.asking.clone(),
            audit: self.audit,
        }
    }
}

/// What a call of [`Running::step`] came to.
#[derive(Debug)]
pub enum Progress {
    /// There is more to do at once.
    Again,
    /// Nothing can be done before [`Running::wait`] ends.
    Blocked,
    /// Text for whoever asked.
    Print(String),
    /// The end.
    Done(Result<Answer, OpError>),
}

/// A request that is being run.
pub struct Running<C> {
    engine: Engine<C>,
    phase: Phase<C>,
    cancelled: bool,
    /// What the watchdog calls it.
    name: Arc<str>,
    /// It keeps its turn to its end.
    whole: bool,
    /// The last record of its changes.
    recorded: Option<u64>,
}

enum Phase<C> {
    /// In the queue for its turn.
    Queued {
        request: Option<Request>,
        entry: Pin<Box<Entry>>,
    },
    /// It is its turn.
    Ready {
        request: Option<Request>,
        turn: Turn,
    },
    /// A long operation; the turn is kept where it is exclusive.
    Stepping {
        job: Box<dyn Job<C, Answer>>,
        turn: Option<Turn>,
        until: Option<u64>,
        /// Until another thread has done its part.
        elsewhere: bool,
    },
    /// A long operation that has given its turn away, and wants it again; without an entry, it does not stand in the queue.
    Between {
        job: Box<dyn Job<C, Answer>>,
        entry: Option<Pin<Box<Entry>>>,
        until: Option<u64>,
        elsewhere: bool,
    },
    /// It has ended; its answer waits until its changes are on the disk.
    Storing(Result<Answer, OpError>),
    Ended,
}

impl<C: 'static> Engine<C> {
    /// Puts the control state and its operations together.
    pub fn new(control: Rc<RefCell<C>>, registry: Live<C>, reactor: Rc<Reactor>) -> Self {
        Self {
            control,
            registry,
            order: Order::default(),
            reactor,
            access: Access::Change,
            pulse: None,
            journal: None,
            asking: None,
            audit: false,
        }
    }

    /// A handle for a client that may do no more than `access` says.
    pub fn with_access(&self, access: Access) -> Self {
        Self { access, ..self.clone() }
    }

    /// What may be asked by this handle.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Says on a pulse which request runs.
    #[must_use]
    pub fn on_pulse(self, pulse: Arc<Pulse>) -> Self {
        Self { pulse: Some(pulse), ..self }
    }

    /// Has answers wait until the changes that they confirm are on the disk.
    #[must_use]
    pub fn with_journal(self, journal: Rc<Journal>) -> Self {
        Self { journal: Some(journal), ..self }
    }

    /// Says who asks by this handle.
    #[must_use]
    pub fn asked_by(self, asking: Asking) -> Self {
        Self { asking: Some(asking), ..self }
    }

    /// Has sessions tell the log what they ask for that changes something.
    #[must_use]
    pub fn audited(self, audit: bool) -> Self {
        Self { audit, ..self }
    }

    /// What the log is to be told of a request; nothing where it only reads, or cannot be read.
    pub fn audit_of(&self, request: &Request) -> Option<String> {
        let registry = self.audit.then(|| self.registry.get())?;
        let invocation = match request {
            Request::Command { line, .. } => match registry.parse(line, &self.control.borrow()) {
                Ok(Parsed::Run(invocation, _)) => invocation,
                _ => return None,
            },
            Request::Operation { name, request, .. } => registry.request(name, request.clone()).ok()?,
            Request::Complete { .. } => return None,
        };
        (invocation.access() != Access::Read).then(|| audit::told(request))
    }

    /// Where changes are recorded.
    pub fn journal(&self) -> Option<&Rc<Journal>> {
        self.journal.as_ref()
    }

    /// Takes a place in the order now; when it comes, it is the right to run operations.
    pub fn enter(&self) -> Entry {
        self.order.enter()
    }

    /// The reactor of the main thread.
    pub fn reactor(&self) -> &Rc<Reactor> {
        &self.reactor
    }

    /// The control state. Borrowed only while the [turn](Self::turn) is held, and never across an `await`.
    pub fn control(&self) -> &Rc<RefCell<C>> {
        &self.control
    }

    /// Waits for the right to run operations.
    pub async fn turn(&self) -> Turn {
        self.order.enter().await
    }

    /// What may stand at a place of a line.
    pub fn complete(&self, line: &str, cursor: usize) -> Completion {
        self.registry.get().complete(line, cursor, &self.control.borrow())
    }

    /// Takes a request's place in the order; [`Running::step`] runs it.
    pub fn start(&self, request: Request) -> Running<C> {
        let entry = Box::pin(self.order.enter());
        let (name, phase) = (name_of(&request), Phase::Queued { request: Some(request), entry });
        Running { engine: self.clone(), phase, cancelled: false, name, whole: false, recorded: None }
    }

    /// Begins the operation that a request names.
    fn begin(&self, request: &Request) -> Result<Outcome<C, Answer>, OpError> {
        let (mut control, registry) = (self.control.borrow_mut(), self.registry.get());
        match request {
            Request::Command { line, view } => registry.execute_as(self.access, &mut control, line, view),
            Request::Operation { name, request, view } => {
                let invocation = registry.request(name, request.clone())?;
                self.access.check(invocation.access())?;
                registry.run(invocation, &mut control, view)
            }
            Request::Complete { line, cursor } => {
                let completion = registry.complete(line, *cursor, &control);
                let json = serde_json::to_string(&completion).map_err(|error| OpError::unspecified(error.to_string()))?;
                Ok(Outcome::Done(Answer { json: Some(json), ..Answer::default() }))
            }
        }
    }
}

impl<C: 'static> Running<C> {
    /// Asks it to end early. What has not begun does not begin; a long operation ends with its next slices.
    pub fn cancel(&mut self) {
        if std::mem::replace(&mut self.cancelled, true) {
            return;
        }
        match &mut self.phase {
            Phase::Queued { .. } | Phase::Ready { .. } => {
                self.phase = Phase::Ended;
            }
            Phase::Stepping { job, until, elsewhere, .. } | Phase::Between { job, until, elsewhere, .. } => {
                (*until, *elsewhere) = (None, false);
                exposed(|| job.cancel(&mut self.engine.control.borrow_mut()));
            }
            Phase::Storing(_) | Phase::Ended => {}
        }
    }

    /// Lets no other operation run before it has ended, not even where it would yield.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Gives the turn away, and the place in the queue, until [`step`](Self::step) is called again: whoever reads the output is slow.
    /// `false` where it cannot: the operation is to be run to its end, or to where it yields.
    pub fn release(&mut self) -> bool {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Stepping { job, turn: Some(_), until, elsewhere } if job.yields() && !self.whole => {
                self.phase = Phase::Between { job, entry: None, until, elsewhere };
                true
            }
            Phase::Between { job, until, elsewhere, .. } => {
                self.phase = Phase::Between { job, entry: None, until, elsewhere };
                true
            }
            phase => {
                self.phase = phase;
                self.only_watches()
            }
        }
    }

    /// Whether it is a long operation that only watches: any key may end it.
    pub fn only_watches(&self) -> bool {
        matches!(&self.phase, Phase::Stepping { turn: None, .. })
    }

    /// Gives the turn away after a slice, where the operation yields and others wait or it pauses itself.
    fn yield_turn(&mut self) {
        let waits = self.engine.order.waiting() > 0;
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Stepping { job, turn: Some(_), until, elsewhere }
                if job.yields() && !self.whole && (waits || until.is_some() || elsewhere) =>
            {
                // One that pauses, or waits for another thread, asks again when it goes on.
                let entry = (until.is_none() && !elsewhere).then(|| Box::pin(self.engine.order.enter()));
                self.phase = Phase::Between { job, entry, until, elsewhere };
            }
            phase => self.phase = phase,
        }
    }

    /// Takes the turn again where it has come.
    fn resume(&mut self) -> Progress {
        let Phase::Between { mut job, entry, until, elsewhere } = std::mem::replace(&mut self.phase, Phase::Ended) else {
            return Progress::Blocked;
        };
        let mut context = Context::from_waker(Waker::noop());
        if until.is_some_and(|time| self.engine.reactor.clock().timer_now() < time)
            || (elsewhere && job.poll_ready(&mut context).is_pending())
        {
            self.phase = Phase::Between { job, entry, until, elsewhere };
            return Progress::Blocked;
        }
        let mut entry = entry.unwrap_or_else(|| Box::pin(self.engine.order.enter()));
        match entry.as_mut().poll(&mut context) {
            Poll::Ready(turn) => {
                self.phase = Phase::Stepping { job, turn: Some(turn), until: None, elsewhere: false };
                Progress::Again
            }
            Poll::Pending => {
                self.phase = Phase::Between { job, entry: Some(entry), until: None, elsewhere: false };
                Progress::Blocked
            }
        }
    }

    /// Does what can be done now, for about [`SLICE`].
    pub fn step(&mut self) -> Progress {
        let Some(journal) = self.engine.journal.clone() else { return self.work() };
        let mut context = Context::from_waker(Waker::noop());
        let works = matches!(&self.phase, Phase::Ready { .. } | Phase::Stepping { turn: Some(_), .. });
        if let (Phase::Storing(_), Some(record)) = (&self.phase, self.recorded) {
            let Poll::Ready(stored) = journal.poll_durable(record, &mut context) else { return Progress::Blocked };
            let Phase::Storing(result) = std::mem::replace(&mut self.phase, Phase::Ended) else { return Progress::Blocked };
            return Progress::Done(result.and_then(|answer| stored.map(|()| answer)));
        }
        // What it may append must find room.
        if works && journal.poll_room(&mut context).is_pending() {
            return Progress::Blocked;
        }
        let before = journal.sequence();
        let progress = self.work();
        if journal.sequence() != before {
            self.recorded = Some(journal.sequence());
        }
        match progress {
            Progress::Done(result) if self.recorded.is_some() => {
                self.phase = Phase::Storing(result);
                Progress::Again
            }
            progress => progress,
        }
    }

    /// Does what can be done now, whatever becomes of the journal.
    fn work(&mut self) -> Progress {
        match &mut self.phase {
            Phase::Queued { request, entry } => {
                let mut context = Context::from_waker(Waker::noop());
                let Poll::Ready(turn) = entry.as_mut().poll(&mut context) else { return Progress::Blocked };
                self.phase = Phase::Ready { request: request.take(), turn };
                Progress::Again
            }
            Phase::Ready { .. } => {
                let _task = Task::enter(self.engine.pulse.as_ref(), &self.name);
                let _asked = self.engine.asking.as_ref().map(Asking::enter);
                self.begin()
            }
            Phase::Between { .. } => self.resume(),
            Phase::Stepping { until: Some(time), .. } if self.engine.reactor.clock().timer_now() < *time => Progress::Blocked,
            Phase::Stepping { job, until, elsewhere, .. } => {
                if *elsewhere && job.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending() {
                    return Progress::Blocked;
                }
                (*until, *elsewhere) = (None, false);
                let _task = Task::enter(self.engine.pulse.as_ref(), &self.name);
                let _asked = self.engine.asking.as_ref().map(Asking::enter);
                let step = job.step(&mut self.engine.control.borrow_mut(), SLICE);
                match step {
                    Step::Again => {
                        self.yield_turn();
                        Progress::Again
                    }
                    Step::Sleep(pause) => {
                        let ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
                        *until = Some(self.engine.reactor.clock().timer_now().saturating_add(ns));
                        self.yield_turn();
                        Progress::Again
                    }
                    Step::Wait => {
                        *elsewhere = true;
                        self.yield_turn();
                        Progress::Again
                    }
                    Step::Print(text) => {
                        self.yield_turn();
                        Progress::Print(text)
                    }
                    Step::Done(result) => {
                        self.phase = Phase::Ended;
                        Progress::Done(result)
                    }
                }
            }
            Phase::Storing(_) => Progress::Blocked,
            Phase::Ended => Progress::Done(Err(OpError::unspecified("cancelled"))),
        }
    }

    /// Runs it to its end, handing its text to `print`.
    ///
    /// # Errors
    /// Those of the operation.
    pub async fn finish(mut self, mut print: impl FnMut(&str)) -> Result<Answer, OpError> {
        loop {
            match self.step() {
                Progress::Again => quiver_graph::reactor::yield_now().await,
                Progress::Blocked => self.wait().await,
                Progress::Print(text) => print(&text),
                Progress::Done(result) => return result,
            }
        }
    }

    fn begin(&mut self) -> Progress {
        let Phase::Ready { request, turn } = std::mem::replace(&mut self.phase, Phase::Ended) else { return Progress::Blocked };
        let Some(request) = request else { return Progress::Blocked };
        match self.engine.begin(&request) {
            Ok(Outcome::Done(answer)) => Progress::Done(Ok(answer)),
            Ok(Outcome::Job(job)) => {
                let turn = job.exclusive().then_some(turn);
                self.phase = Phase::Stepping { job, turn, until: None, elsewhere: false };
                Progress::Again
            }
            Err(error) => Progress::Done(Err(error)),
        }
    }

    /// Waits until [`step`](Self::step) can do something. May be dropped and called again.
    pub async fn wait(&mut self) {
        if let Some(journal) = self.engine.journal.clone() {
            match (&self.phase, self.recorded) {
                (Phase::Storing(_), Some(record)) => {
                    let _ = poll_fn(|context| journal.poll_durable(record, context)).await;
                    return;
                }
                (Phase::Ready { .. } | Phase::Stepping { turn: Some(_), .. }, _) => {
                    poll_fn(|context| journal.poll_room(context)).await;
                }
                _ => {}
            }
        }
        match &mut self.phase {
            Phase::Queued { request, entry } => {
                let turn = entry.as_mut().await;
                self.phase = Phase::Ready { request: request.take(), turn };
            }
            Phase::Stepping { until: Some(time), .. } => self.engine.reactor.sleep_until(*time).await,
            Phase::Stepping { job, elsewhere: true, .. } => poll_fn(|context| job.poll_ready(context)).await,
            Phase::Between { until: Some(time), entry: None, .. } => self.engine.reactor.sleep_until(*time).await,
            Phase::Between { job, entry: None, elsewhere: true, .. } => poll_fn(|context| job.poll_ready(context)).await,
            Phase::Between { entry: Some(entry), .. } => {
                let turn = entry.as_mut().await;
                if let Phase::Between { job, elsewhere, .. } = std::mem::replace(&mut self.phase, Phase::Ended) {
                    self.phase = Phase::Stepping { job, turn: Some(turn), until: None, elsewhere };
                }
            }
            _ => {}
        }
    }
}

impl<C> Drop for Running<C> {
    fn drop(&mut self) {
        // Dropped in the middle (the daemon stops): the job gets its chance to clean up.
        if let Phase::Stepping { job, .. } | Phase::Between { job, .. } = &mut self.phase
            && let Ok(mut control) = self.engine.control.try_borrow_mut()
        {
            exposed(|| {
                job.cancel(&mut control);
                job.step(&mut control, SLICE)
            });
        }
    }
}

/// Characters of a command that name it.
const NAME_MAX: usize = 160;

/// What a request is called where it hangs.
fn name_of(request: &Request) -> Arc<str> {
    match request {
        Request::Command { line, .. } => format!("command `{}'", line.chars().take(NAME_MAX).collect::<String>()).into(),
        Request::Operation { name, .. } => format!("operation `{name}'").into(),
        Request::Complete { .. } => "a completion".into(),
    }
}

/// A command line that gives text, as a script or a test asks it.
pub fn command(line: impl Into<String>) -> Request {
    Request::Command { line: line.into(), view: View::TEXT }
}

#[cfg(test)]
mod tests;
