//! The daemon's own process nodes.

use std::cell::Cell;
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use quiver_graph::reactor::AsyncFd;
use quiver_net::Router;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use super::{links, memif, statistics};
use crate::log;
use crate::process::{Processes, State};
use crate::startup::StartupConfig;

/// How often the clock is compared with the kernel's.
const CLOCK_INTERVAL: Duration = Duration::from_millis(100);
/// How soon memory that readers may still hold is looked at again.
const RECLAIM_INTERVAL: Duration = Duration::from_millis(10);

/// Starts those that always run.
pub fn start(processes: &Processes<Router>, startup: &StartupConfig) {
    statistics::start(processes, startup.stats_interval);
    links::start(processes);
    memif::start(processes);
    // What workers want to be done soon by the modules' own processes, which are rows of their own.
    processes.spawn("process-signals", |cx| async move {
        let Some(signal) = cx.with(|router| router.notify()) else { return };
        while cx.event(&signal).await.is_ok() {
            cx.with(|router| {
                let now = router.graph.clock().timer_now();
                router.run_processes(now)
            });
        }
    });
    processes.spawn("clock-process", |cx| async move {
        loop {
            cx.sleep(CLOCK_INTERVAL).await;
            cx.with(|router| router.graph.clock().discipline());
        }
    });
    processes.spawn("reclaim-process", |cx| async move {
        loop {
            let pending = cx.with(|router| {
                router.reclaim();
                router.graph.domain().pending()
            });
            cx.sleep(if pending.unwrap_or(0) > 0 { RECLAIM_INTERVAL } else { CLOCK_INTERVAL }).await;
        }
    });
}

/// SIGTERM and SIGINT end the main loop; a second one ends the program at once. SIGHUP has the log's file opened anew; nothing ends by it: a
/// daemon that lost its terminal goes on.
///
/// # Errors
/// The kernel's.
pub fn stop_on_signals(processes: &Processes<Router>, stop: &Rc<Cell<bool>>) -> io::Result<()> {
    let (receiver, sender) = UnixStream::pair()?;
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // In this order: the first signal finds the flag down.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stopping))?;
        signal_hook::flag::register(signal, Arc::clone(&stopping))?;
        pipe::register(signal, sender.try_clone()?)?;
    }
    // In this order: the line that tells of it goes to the new file.
    signal_hook::flag::register(SIGHUP, log::anew())?;
    let (hung_up, sender) = UnixStream::pair()?;
    pipe::register(SIGHUP, sender)?;
    processes.spawn("log-process", |cx| async move {
        let Ok(hung_up) = AsyncFd::new(cx.reactor(), hung_up) else { return };
        while cx.waiting(State::EventWait, hung_up.read(&mut [0; 8])).await.is_ok_and(|count| count > 0) {
            tracing::info!(target: "startup", "the log is opened anew");
        }
    });
    let stop = Rc::clone(stop);
    processes.spawn("signal-process", |cx| async move {
        let Ok(receiver) = AsyncFd::new(cx.reactor(), receiver) else { return };
        let read = cx.waiting(State::EventWait, receiver.read(&mut [0; 8])).await;
        if read.is_ok() {
            tracing::info!(target: "startup", "told to stop by a signal");
        }
        stop.set(true);
    });
    Ok(())
}
