//! Panics that end an operation, and not the router.
//!
//! A panic is a bug. Where it happens while nothing is being changed (an operation that only reads, a parser, a renderer, a
//! session's own work) the state behind it is as it was, so the router may go on: [`contain`] catches it. While something is
//! being changed nobody knows what is half done: such code is [`exposed`], also within what is contained, and the program's panic
//! hook ends the process there, before anything is unwound. The hook asks [`contained`].
//!
//! Borrows of the control state are guards, which unwinding gives back.

use crate::operation::OpError;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::OnceLock;

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
    static NOTED: RefCell<Option<String>> = const { RefCell::new(None) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// A panic that was caught: where it was and what it said, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Panicked(pub String);

/// Gives the state back that was, when a scope ends, also by a panic.
struct Scope(bool);

impl Scope {
    fn enter(contained: bool) -> Self {
        Self(CONTAINED.replace(contained))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        CONTAINED.set(self.0);
    }
}

/// Who hears of contained panics, for the log and the counters. Only the first one that is set is.
static OBSERVER: OnceLock<fn(&Panicked)> = OnceLock::new();

/// Sets who hears of contained panics.
pub fn observe(observer: fn(&Panicked)) {
    let _ = OBSERVER.set(observer);
}

/// Runs what changes nothing that outlives it.
///
/// # Errors
/// It panicked.
pub fn contain<R>(f: impl FnOnce() -> R) -> Result<R, Panicked> {
    let (mut f, mut result) = (Some(f), None);
    run_contained(&mut || result = f.take().map(|f| f()))?;
    result.ok_or_else(|| Panicked("it did not run".to_owned()))
}

/// One text for all closures: there are hundreds, and what catches a panic is longer than most of them.
fn run_contained(f: &mut dyn FnMut()) -> Result<(), Panicked> {
    let caught = {
        let _scope = Scope::enter(true);
        // What the closure can reach and has changed is dropped or was not to be changed: the caller's promise.
        catch_unwind(AssertUnwindSafe(f))
    };
    caught.map_err(|payload| {
        COUNT.set(COUNT.get() + 1);
        let said = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = said.or_else(|| payload.downcast_ref::<String>().cloned());
        let panicked = Panicked(NOTED.take().or(said).unwrap_or_else(|| "panic without a text".to_owned()));
        if let Some(observer) = OBSERVER.get() {
            observer(&panicked);
        }
        panicked
    })
}

/// Runs what changes state that others see: a panic in it is never contained, wherever it is called.
pub fn exposed<R>(f: impl FnOnce() -> R) -> R {
    let _scope = Scope::enter(false);
    f()
}

/// Whether a panic on this thread would be caught now.
pub fn contained() -> bool {
    CONTAINED.get()
}

/// Panics that this thread has contained.
pub fn count() -> u64 {
    COUNT.get()
}

/// Keeps where a contained panic was, for whoever catches it. For the program's panic hook.
pub fn note(panic: &PanicHookInfo<'_>) {
    NOTED.set(Some(line(panic)));
}

/// A panic in one line: `src/file.rs:12:5: what it said`.
pub fn line(panic: &PanicHookInfo<'_>) -> String {
    let text = panic.payload_as_str().unwrap_or("no text").lines().collect::<Vec<_>>().join(" ");
    match panic.location() {
        Some(at) => format!("{}:{}:{}: {text}", at.file(), at.line(), at.column()),
        None => text,
    }
}

impl From<Panicked> for OpError {
    fn from(panicked: Panicked) -> Self {
        Self::unspecified(format!("internal error at {panicked}"))
            .remedy("nothing has changed and the router goes on; report this line")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_and_the_scope_is_as_before() {
        assert!(!contained());
        let before = count();
        assert_eq!(contain(contained), Ok(true));
        let state = RefCell::new(1);
        let error = contain(|| {
            let _borrow = state.borrow_mut();
            panic!("a bug in {}", "a renderer");
        });
        assert!(error.unwrap_err().to_string().contains("a bug in a renderer"));
        assert_eq!((contained(), count()), (false, before + 1));
        assert!(state.try_borrow_mut().is_ok(), "unwinding has given it back");
    }

    #[test]
    fn what_changes_state_is_never_contained() {
        let seen = contain(|| {
            let inner = exposed(contained);
            let nested = exposed(|| contain(contained));
            (contained(), inner, nested)
        });
        assert_eq!(seen, Ok((true, false, Ok(true))));
    }
}
