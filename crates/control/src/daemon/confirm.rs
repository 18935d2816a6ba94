//! Goes back when a commit is not confirmed in time.

use std::future::poll_fn;

use futures_lite::future::or;
use quiver_command::operation::View;
use quiver_command::session::Request;
use quiver_net::Router;

use crate::candidate::Window;
use crate::engine::Engine;
use crate::ops::candidate::REVERT;
use crate::process::Processes;

/// Watches the time of commits for as long as the router runs.
pub fn watch(engine: &Engine<Router>, processes: &Processes<Router>) {
    let window = Window::of(&mut engine.control().borrow_mut());
    let engine = engine.clone();
    processes.account("commit-process", async move {
        loop {
            let until = window.until();
            let changed = poll_fn(|context| window.poll_changed(until, context));
            match window.left() {
                None => changed.await,
                Some(left) if left.is_zero() => revert(&engine).await,
                Some(left) => or(changed, engine.reactor().sleep(left)).await,
            }
        }
    });
}

async fn revert(engine: &Engine<Router>) {
    tracing::warn!(target: "startup", "a commit was not confirmed in time: what was configured before it comes back");
    let request = Request::Operation { name: REVERT.to_owned(), request: serde_json::Value::Null, view: View::JSON };
    if let Err(error) = engine.start(request).finish(|_| ()).await {
        tracing::error!(target: "startup", "{REVERT}: {error}");
    }
}
