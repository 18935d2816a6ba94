//! At start: the operations of the journal, in order.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Instant;

use quiver_command::change_log::Record;
use quiver_command::operation::{Invocation, Live, OpError, Outcome, Step, View};
use quiver_graph::reactor::{Reactor, yield_now};
use quiver_net::Router;

use crate::engine::SLICE;

/// Runs them, whatever becomes of each, and gives back those that failed. Whoever calls it has the turn.
pub async fn replay(
    router: &Rc<RefCell<Router>>,
    registry: &Live<Router>,
    reactor: &Rc<Reactor>,
    records: Vec<Record>,
) -> Vec<Record> {
    let mut failed = Vec::new();
    let mut started = Instant::now();
    for record in records {
        let request = serde_json::from_str(record.request.get()).unwrap_or_default();
        let done = match registry.get().request(&record.operation, request) {
            Ok(invocation) => run(router, reactor, invocation).await,
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            tracing::error!(target: "startup", "{} {} could not be made again: {error}", record.operation, record.request.get());
            failed.push(record);
        }
        if started.elapsed() >= SLICE {
            yield_now().await;
            started = Instant::now();
        }
    }
    failed
}

async fn run(router: &Rc<RefCell<Router>>, reactor: &Rc<Reactor>, invocation: Invocation<Router>) -> Result<(), OpError> {
    let outcome = invocation.run(&mut router.borrow_mut(), &View::TEXT)?;
    let Outcome::Job(mut job) = outcome else { return Ok(()) };
    loop {
        let step = job.step(&mut router.borrow_mut(), SLICE);
        match step {
            Step::Again | Step::Print(_) => yield_now().await,
            Step::Sleep(pause) => reactor.sleep(pause).await,
            Step::Wait => poll_fn(|context| job.poll_ready(context)).await,
            Step::Done(result) => return result.map(drop),
        }
    }
}
