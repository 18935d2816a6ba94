//! The plugin's process: what sessions have told main is noted, logged, and told to clients.

use std::sync::atomic::Ordering;

use quiver_net::Router;

use crate::api;
use crate::control::{self, Bfd};
use crate::packet::{State, diagnostic};
use crate::session::Status;
use crate::thread::Notice;

/// Name of the process.
pub(crate) const NAME: &str = "bfd-notices";
/// Notices handled in one call: some 50 µs.
const STEP: usize = 16;

/// One call; says when to call next.
pub(crate) fn run(router: &mut Router, now: u64) -> u64 {
    for _ in 0..STEP {
        let Some(bfd) = router.part::<Bfd>() else { return u64::MAX };
        match bfd.notices.try_recv() {
            Ok(notice) => take(router, &notice, now),
            Err(_) if bfd.lost.swap(false, Ordering::Acquire) => resume(router, now),
            Err(_) => return u64::MAX,
        }
    }
    now
}

/// Handles all notices that wait.
pub(crate) fn drain(router: &mut Router) {
    let now = router.graph.clock().timer_now();
    while run(router, now) == now {}
}

/// Notices were lost: all sessions are looked at.
fn resume(router: &mut Router, now: u64) {
    let statuses = control::statuses(router).unwrap_or_default();
    let Some(bfd) = router.part::<Bfd>() else { return };
    let status_of = |id: u32| statuses.get(&id).copied();
    let notice =
        |session: &control::Configured| Some(Notice { discriminator: session.discriminator, status: status_of(session.id)? });
    let all: Vec<Notice> = bfd.sessions.values().filter_map(notice).collect();
    for notice in all {
        take(router, &notice, now);
    }
}

fn take(router: &mut Router, notice: &Notice, now: u64) {
    let Some(bfd) = router.part_mut::<Bfd>() else { return };
    let Some(key) = bfd.by_discriminator.get(&notice.discriminator).copied() else { return };
    let Some(session) = bfd.sessions.get_mut(&key) else { return };
    let before = session.status.replace(notice.status);
    control::follow(router, &key);
    let Some(session) = router.part_mut::<Bfd>().and_then(|bfd| bfd.sessions.get_mut(&key)) else { return };
    let state = |status: Option<&Status>| status.map_or(State::Down, |status| status.state);
    let (was, is) = (state(before.as_ref()), notice.status.state);
    if was == is {
        return;
    }
    session.since = now;
    session.ups += u64::from(is == State::Up);
    let session = *session;
    // A multihop session belongs to a table; its interface is empty in the log's fields.
    let interface = if key.is_multihop() { String::new() } else { router.interfaces.name(key.interface) };
    let place = if key.is_multihop() { format!("in table {}", key.table) } else { format!("on {interface}") };
    let (peer, why) = (key.peer, diagnostic::name(notice.status.diagnostic));
    match is {
        State::Down if was == State::Up => {
            tracing::warn!(target: "bfd", %interface, %peer, state = is.name(), "session {} with {peer} {place} is down: {why}", session.id)
        }
        _ => tracing::info!(
            target: "bfd", %interface, %peer, state = is.name(),
            "session {} with {peer} {place}: {} to {}", session.id, was.name(), is.name()
        ),
    }
    api::tell(router, &key, &session, is);
}
