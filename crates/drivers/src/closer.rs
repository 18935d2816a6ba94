//! A thread that closes what takes long to close.
//!
//! Closing a socket that receives from a device waits for a grace period of the kernel, and detaching a program stops the
//! device's queues for a moment. Workers and the main thread must not wait for that, so they hand over what they no longer
//! need. The thread is started from the control side, so that it does not run on a worker's core.

use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

type Closing = Box<dyn Send>;

static CLOSER: OnceLock<Option<Mutex<Sender<Closing>>>> = OnceLock::new();

fn closer() -> Option<&'static Mutex<Sender<Closing>>> {
    let start = || {
        let (to, from) = channel::<Closing>();
        let run = move || from.into_iter().for_each(drop);
        std::thread::Builder::new().name("closer".to_owned()).spawn(run).ok().map(|_| Mutex::new(to))
    };
    CLOSER.get_or_init(start).as_ref()
}

/// Starts the thread, unless it runs.
pub(crate) fn start() {
    closer();
}

/// Has `what` dropped there; here and now if there is no such thread.
fn close(what: Closing) {
    if let Some(closer) = closer() {
        // What cannot be sent is dropped with the error.
        let _ = closer.lock().unwrap_or_else(PoisonError::into_inner).send(what);
    }
}

/// Waits until all that has been handed over before is closed, or the time has run out.
pub(crate) fn settle(bound: Duration) {
    /// Tells when its turn has come.
    struct Mark(Sender<()>);
    impl Drop for Mark {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (to, from) = channel();
    close(Box::new(Mark(to)));
    let _ = from.recv_timeout(bound);
}

/// A value that is dropped by the closer.
#[derive(Debug)]
pub(crate) struct Later<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Later<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T: Send + 'static> Deref for Later<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            // Emptied by `drop` alone.
            None => unreachable!(),
        }
    }
}

impl<T: Send + 'static> DerefMut for Later<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.0 {
            Some(value) => value,
            None => unreachable!(),
        }
    }
}

impl<T: Send + 'static> Drop for Later<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            close(Box::new(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::Receiver;

    /// Closes when it is allowed to.
    struct Slow(Receiver<()>, Arc<AtomicU32>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.recv().unwrap();
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn dropping_does_not_wait_and_settling_does() {
        let closed = Arc::new(AtomicU32::new(0));
        let (allow, allowed): (Vec<_>, Vec<_>) = (0..2).map(|_| channel()).unzip();
        // Would never come back if it waited for the end.
        allowed.into_iter().for_each(|a| drop(Later::new(Slow(a, closed.clone()))));
        assert_eq!(closed.load(Ordering::SeqCst), 0);
        allow.iter().for_each(|a| a.send(()).unwrap());
        settle(Duration::from_secs(60));
        assert_eq!(closed.load(Ordering::SeqCst), 2);
    }
}
