//! `link-watch-process`: tells interfaces what happens to their network devices.

use quiver_drivers::link_watch::LinkWatch;
use quiver_net::interface::Kind;
use quiver_net::{IfIndex, Router};
use std::os::fd::AsFd;

use crate::process::{Processes, State};

/// Starts it. Where the kernel gives no netlink socket, devices are only looked at when they are created.
pub fn start(processes: &Processes<Router>) {
    processes.spawn("link-watch-process", |cx| async move {
        let mut watch = match LinkWatch::open() {
            Ok(watch) => watch,
            Err(error) => {
                tracing::warn!(target: "interface", "changes of network devices will not be noticed: {error}");
                return;
            }
        };
        loop {
            let ready = cx.waiting(State::EventWait, cx.reactor().readable(watch.as_fd())).await;
            let changes = ready.and_then(|()| watch.changes());
            match changes {
                Ok(changes) if changes.is_empty() => {}
                Ok(_) => drop(cx.with(refresh)),
                Err(error) => {
                    tracing::warn!(target: "interface", "network devices are no longer watched: {error}");
                    return;
                }
            }
        }
    });
}

/// Has every interface on a network device look at it again: an ioctl each, and changes are rare.
fn refresh(router: &mut Router) {
    let on_devices = |i: &&quiver_net::Interface| matches!(i.kind, Kind::Device(_));
    let indices: Vec<IfIndex> = router.interfaces.iter().filter(on_devices).map(|i| i.index).collect();
    for index in indices {
        let before = router.interfaces.get(index).map(|i| i.link.up);
        if let Err(error) = router.refresh_device(index) {
            tracing::warn!(target: "interface", "{error}");
        }
        let Some(interface) = router.interfaces.get(index) else { continue };
        if before != Some(interface.link.up) {
            let state = if interface.link.up { "up" } else { "down" };
            tracing::info!(target: "interface", interface = %interface.name, state, "link of {} is {state}", interface.name);
        }
    }
}
