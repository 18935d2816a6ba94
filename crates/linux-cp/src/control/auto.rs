//! Host interfaces of sub-interfaces (`lcp lcp-auto-subint`): another thread opens their TAP devices, one after the other, while the
//! router goes on.
//!
//! ```text
//!   sub-interface made ──► waiting ──► process: prepare ──► thread: open ──► process: finish ──► next one
//! ```
//!
//! What happens meanwhile decides: a sub-interface that has gone, has a pair, or whose parent has none any more is passed over.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, TryRecvError};

use quiver_command::operation::OpError;
use quiver_drivers::tap::Tap;
use quiver_graph::IfIndex;
use quiver_net::Router;

use super::Lcp;
use super::create::{NewPair, Opening, finish, prepare};

/// Name of the process.
pub(super) const PROCESS: &str = "linux-cp";

/// A pair whose TAP device another thread opens, and where that says how it went.
type Pending = (Opening, Receiver<Result<Tap, OpError>>);

/// Sub-interfaces that are to get a host interface.
#[derive(Default)]
pub(super) struct Auto {
    waiting: VecDeque<IfIndex>,
    opening: Option<Pending>,
}

impl Lcp {
    /// Sub-interfaces whose host interface is still being made.
    pub fn in_the_making(&self) -> usize {
        self.auto.waiting.len() + usize::from(self.auto.opening.is_some())
    }
}

/// Has a sub-interface get a host interface.
pub(super) fn want(router: &mut Router, sub: IfIndex) {
    let Ok(known) = router.state_mut::<Lcp>() else { return };
    if known.pair(sub).is_none() && !known.auto.waiting.contains(&sub) {
        known.auto.waiting.push_back(sub);
        router.wake_process(PROCESS, 0);
    }
}

/// Makes no more than the one that is being opened.
pub(super) fn stop(router: &mut Router) {
    if let Ok(known) = router.state_mut::<Lcp>() {
        known.auto.waiting.clear();
    }
}

/// One call of the process. A device that was opened wakes it.
pub(super) fn process(router: &mut Router, now: u64) -> u64 {
    let Ok(known) = router.state_mut::<Lcp>() else { return u64::MAX };
    if let Some((opening, opened)) = known.auto.opening.take() {
        match opened.try_recv() {
            Ok(tap) => {
                let phy = opening.phy();
                if router.state::<Lcp>().is_ok_and(|known| known.auto_sub && known.pair(phy).is_none())
                    && router.interfaces.get(phy).is_some()
                    && let Err(error) = tap.and_then(|tap| finish(router, opening, tap))
                {
                    warn(router, phy, &error);
                }
                return now;
            }
            Err(TryRecvError::Empty) => {
                known.auto.opening = Some((opening, opened));
                return u64::MAX;
            }
            // The thread has ended without a word.
            Err(TryRecvError::Disconnected) => return now,
        }
    }
    let Some(sub) = known.auto.waiting.pop_front() else { return u64::MAX };
    match open(router, sub) {
        Ok(Some(opening)) => {
            if let Ok(known) = router.state_mut::<Lcp>() {
                known.auto.opening = Some(opening);
            }
            u64::MAX
        }
        Ok(None) => now,
        Err(error) => {
            warn(router, sub, &error);
            now
        }
    }
}

fn warn(router: &Router, sub: IfIndex, error: &OpError) {
    tracing::warn!(target: "linux-cp", "no host interface for {}: {error}", router.interfaces.name(sub));
}

/// Begins to open the TAP device of a sub-interface, named after its parent's; `None` where there is nothing to do any more.
fn open(router: &Router, sub: IfIndex) -> Result<Option<Pending>, OpError> {
    let known = router.state::<Lcp>()?;
    let Some(interface) = router.interfaces.get(sub).filter(|_| known.pair(sub).is_none()) else { return Ok(None) };
    let Some(parent) = known.pair(interface.parent) else { return Ok(None) };
    let id = interface.name.rsplit('.').next().unwrap_or_default();
    let host_name = format!("{}.{id}", parent.host_name);
    let new = NewPair { phy: sub, host_name, namespace: parent.namespace.clone(), tun: false };
    let (opening, open) = prepare(router, new)?;
    let (to_main, opened) = mpsc::channel();
    let signal = router.process_signal(PROCESS);
    let work = move || {
        // Where main does not wait any more the device goes.
        let _ = to_main.send(open());
        signal.raise();
    };
    let thread = std::thread::Builder::new().name("lcp-open".to_owned()).spawn(work);
    thread.map_err(|error| OpError::unspecified(format!("no thread to open a TAP device: {error}")))?;
    Ok(Some((opening, opened)))
}
