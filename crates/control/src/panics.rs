//! What a panic does to the router.
//!
//! | where | then |
//! |---|---|
//! | an operation that only reads, reading of a command, rendering of a reply | it fails with one line; the router goes on |
//! | a session's own work | the session ends; the router goes on |
//! | an operation or process that changes state, a worker, anything else | a line with place, thread and node; the process ends by SIGABRT |
//!
//! The hook runs before anything is unwound, so a core dump shows the place of the bug. What is contained is declared where it is
//! called ([`quiver_command::contain`]); all else is not.

use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use quiver_command::contain::{self, Panicked};
use quiver_graph::{ErrorText, EventCounts, Graph, Pulses, Severity};

use crate::watchdog;

/// Who counts, in `show errors`.
pub const OWNER: &str = "main";
/// What it counts.
pub const TEXT: &str = "contained panics";
const ABOUT: &str = "A bug ended an operation, and not the router; the log has its place.";

static TEXTS: [ErrorText; 1] = [ErrorText::new(TEXT, ABOUT, Severity::Error)];

struct Known {
    pulses: Option<Arc<Pulses>>,
    counts: Option<EventCounts>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { pulses: None, counts: None });
static CONTAINED: AtomicU64 = AtomicU64::new(0);

/// Sets the program's panic hook. For programs, not for tests in one process.
pub fn install() {
    std::panic::set_hook(Box::new(hook));
    contain::observe(contained);
}

/// Tells the hook about the threads and nodes of a router, and gives it its counter.
pub fn know(graph: &mut Graph) {
    let counts = graph.add_events(OWNER, &TEXTS);
    let pulses = Arc::clone(graph.pulses());
    *KNOWN.lock().unwrap_or_else(PoisonError::into_inner) = Known { pulses: Some(pulses), counts: Some(counts) };
}

/// Panics that were contained since the start.
pub fn count() -> u64 {
    CONTAINED.load(Relaxed)
}

fn contained(panicked: &Panicked) {
    CONTAINED.fetch_add(1, Relaxed);
    // Panics are contained on main alone, which is the one that may count.
    if let Ok(known) = KNOWN.try_lock()
        && let Some(counts) = &known.counts
    {
        counts.count(0);
    }
    tracing::error!(target: "panic", "contained, the router goes on: {panicked}");
}

fn hook(panic: &PanicHookInfo<'_>) {
    if contain::contained() {
        contain::note(panic);
        return;
    }
    let (name, place) = thread_and_place();
    watchdog::end("panic", &format!("{name} panicked{place}: {}; the router ends", contain::line(panic)));
}

/// The calling thread, by the name that `show threads` and the watchdog have for it, and where it is. Nothing is waited for: this
/// thread may hold what is asked.
fn thread_and_place() -> (String, String) {
    let pulses = KNOWN.try_lock().ok().and_then(|known| known.pulses.clone());
    let Some((pulses, pulse)) = pulses.and_then(|pulses| pulses.own().map(|pulse| (pulses, pulse))) else {
        let name = std::thread::current().name().unwrap_or("a thread").to_owned();
        return (name, String::new());
    };
    let place = match (pulses.whereabouts(&pulse), pulse.task()) {
        (Some(at), _) => format!(" in node {} with a vector of {} packets", at.node, at.vector),
        (None, Some(task)) => format!(" in {task}"),
        (None, None) => String::new(),
    };
    (pulse.name(), place)
}
