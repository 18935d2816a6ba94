//! The plugin's process: what virtual routers have told main is noted, logged, and told to clients; interfaces that get a usable
//! address are noticed.

use std::sync::atomic::Ordering;

use quiver_net::Router;

use crate::api;
use crate::control::{self, Vrrp};
use crate::machine::State;
use crate::thread::{Key, Notice};

/// Name of the process.
pub(crate) const NAME: &str = "vrrp-notices";
/// Notices handled in one call: some 50 µs.
const STEP: usize = 8;
/// How often interfaces without a usable address are looked at, ns. An IPv6 address becomes usable when nobody else has it.
const LOOK: u64 = 100_000_000;

/// One call; says when to call next.
pub(crate) fn run(router: &mut Router, now: u64) -> u64 {
    for _ in 0..STEP {
        let Some(vrrp) = router.part::<Vrrp>() else { return u64::MAX };
        match vrrp.notices.try_recv() {
            Ok(notice) => take(router, &notice),
            Err(_) if vrrp.lost.swap(false, Ordering::Acquire) => resume(router),
            Err(_) => return if control::look(router) { now + LOOK } else { u64::MAX },
        }
    }
    now
}

/// Handles all notices that wait.
pub(crate) fn drain(router: &mut Router) {
    let now = router.graph.clock().timer_now();
    while run(router, now) == now {}
}

/// Notices were lost: all virtual routers are looked at.
fn resume(router: &mut Router) {
    let figures = control::figures(router).unwrap_or_default();
    for (serial, figures) in figures {
        take(router, &Notice { serial, status: figures.status });
    }
}

fn take(router: &mut Router, notice: &Notice) {
    let Some(vrrp) = router.part_mut::<Vrrp>() else { return };
    let Some((key, configured)) = vrrp.routers.iter_mut().find(|(_, configured)| configured.serial == notice.serial) else {
        return;
    };
    let (key, was, is) = (*key, configured.state, notice.status.state);
    configured.state = is;
    control::follow(router, &key);
    if was == is {
        return;
    }
    log(router, &key, was, is);
    api::tell(router, &key, was, is);
}

fn log(router: &Router, key: &Key, was: State, is: State) {
    let interface = router.interfaces.name(key.interface);
    let (vr_id, was, is) = (key.vr_id, was.name(), is.name());
    tracing::info!(
        target: "vrrp", %interface, vr_id, state = is, "virtual router {vr_id} ({:?}) on {interface}: {was} to {is}", key.family
    );
}
