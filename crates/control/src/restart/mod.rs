//! Restart without an outage: a new process takes over from the one that forwards.
//!
//! ```text
//!   old   forwards ───────────────────────────────────────► stops receiving ──► ends
//!            │ sockets, devices, configuration    │ state ahead      │ state, last
//!            ▼                                    ▼                  ▼
//!   new   starts, makes the configuration ── takes state up ── takes up what differs ──► forwards
//!         (touches no packet)
//! ```
//!
//! The outage is from the old process's last poll to the new one's first. What takes seconds, such as a full table, happens before, beside
//! the old process. Nothing is given up before the new one says that it has everything: until then its end, whatever the reason,
//! leaves the old one as it was.
//!
//! [`message`] is the conversation, [`old`] and [`new`] its sides. What each subject says of its state is in `quiver_net::restart`.

pub mod message;
pub mod new;
pub mod old;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use blocking::unblock;
use quiver_graph::reactor::Reactor;
use quiver_net::Router;
use quiver_net::restart::{Restored, Round};

use crate::calendar::Civil;
use new::Predecessor;

/// How long what comes from elsewhere, such as the kernel's routes, is waited for.
const ELSEWHERE: Duration = Duration::from_secs(90);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// How this process began, for `show restart`. A part of the router.
#[derive(Debug, Clone, Default)]
pub struct Began {
    /// Taken over from another process.
    pub warm: Option<Warm>,
    /// Why it was not, where that was asked for.
    pub cold_because: Option<String>,
    /// Another process may take over.
    pub offered: bool,
}

/// What was taken over.
#[derive(Debug, Clone, Default)]
pub struct Warm {
    /// Version of the process before.
    pub version: String,
    /// When, for people.
    pub at: String,
    /// Time in which nobody received, ns.
    pub outage: u64,
    /// State, by subject.
    pub restored: Vec<Restored>,
    /// Sockets and devices that were passed on as they were.
    pub descriptors: Vec<String>,
    /// What could not be passed on, and why.
    pub anew: Vec<String>,
    /// Operations that could be made only when the process before had ended, or not at all.
    pub retried: usize,
    /// Of these, those that failed.
    pub failed: usize,
}

/// Takes state up and begins to forward; the configuration is made.
///
/// # Errors
/// The other process goes on, and this one must end.
pub async fn take_over(
    router: &std::cell::RefCell<Router>,
    reactor: &Rc<Reactor>,
    predecessor: &Arc<Predecessor>,
) -> io::Result<Warm> {
    wait_for_others(router, reactor).await;
    let next = || {
        let predecessor = Arc::clone(predecessor);
        unblock(move || predecessor.next())
    };
    let ahead = next().await?;
    let unusable = |error: quiver_net::restart::Unusable| io::Error::other(format!("the state cannot be taken up: {error}"));
    router.borrow_mut().restore(&ahead.bytes, Round::Ahead).map_err(unusable)?;
    // Of FPM's routes there may be a million: they are in the tables before the other process stops.
    wait_for_others(router, reactor).await;
    // What has come until now was the other process's: room for what comes between its last look and the first one here.
    router.borrow_mut().graph.discard_held();
    let last = next().await?;
    let restored = router.borrow_mut().restore(&last.bytes, Round::Last).map_err(unusable)?;
    predecessor.take()?;
    let mut router = router.borrow_mut();
    router.begin(last.since);
    let outage = router.graph.clock().now().saturating_sub(last.stopped);
    let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(Warm { version: predecessor.version.clone(), at: Civil::of_unix(at).iso(), outage, restored, ..Warm::default() })
}

/// Waits until what comes from elsewhere is here, for a while.
async fn wait_for_others(router: &std::cell::RefCell<Router>, reactor: &Rc<Reactor>) {
    let until = reactor.clock().now() + ELSEWHERE.as_nanos() as u64;
    loop {
        let Some(what) = router.borrow_mut().waits_for() else { return };
        if reactor.clock().now() >= until {
            tracing::warn!(target: "startup", "{what} not complete after {} s: the router takes over without", ELSEWHERE.as_secs());
            return;
        }
        reactor.sleep(LOOK).await;
    }
}
