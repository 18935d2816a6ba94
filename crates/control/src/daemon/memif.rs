//! `memif-process`: control channels of memif interfaces.

use std::os::fd::AsFd;

use quiver_net::Router;

use crate::ops::memif;
use crate::process::{Processes, State};

/// Starts it.
pub fn start(processes: &Processes<Router>) {
    processes.spawn("memif-process", |cx| async move {
        let Some(opened) = cx.with(|router| memif::memif(router).and_then(|m| m.fd())) else { return };
        let fd = match opened {
            Ok(fd) => fd,
            Err(error) => {
                tracing::warn!(target: "memif", "memif interfaces will not connect: {error}");
                return;
            }
        };
        loop {
            if let Err(error) = cx.waiting(State::EventWait, cx.reactor().readable(fd.as_fd())).await {
                tracing::warn!(target: "memif", "memif interfaces will not connect any more: {error}");
                return;
            }
            cx.with(memif::run);
        }
    });
}
