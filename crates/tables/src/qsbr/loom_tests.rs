//! Every interleaving of a writer and its readers, by loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p quiver-tables --release --lib loom`.

use super::*;
use loom::sync::atomic::{AtomicBool, AtomicUsize};
use loom::thread;

/// Two slots, one of them current. Freeing a slot marks it; a reader must never find the slot it uses marked.
struct Shared {
    current: AtomicUsize,
    freed: [AtomicBool; 2],
}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared { current: AtomicUsize::new(0), freed: [AtomicBool::new(false), AtomicBool::new(false)] })
    }

    fn read(&self) {
        let slot = self.current.load(Ordering::Acquire);
        assert!(!self.freed[slot].load(Ordering::Relaxed), "a freed slot is in use");
    }

    fn replace(shared: &Arc<Shared>, domain: &Domain) {
        shared.current.store(1, Ordering::Release);
        let shared = shared.clone();
        domain.defer(Box::new(move || shared.freed[0].store(true, Ordering::Relaxed)));
    }
}

#[test]
fn loom_a_reader_between_quiescent_states_keeps_what_it_reads() {
    loom::model(|| {
        let (domain, shared) = (Domain::new(), Shared::new());
        let reader = domain.register();
        let theirs = shared.clone();
        let worker = thread::spawn(move || {
            theirs.read();
            reader.quiescent();
            theirs.read();
            reader
        });
        Shared::replace(&shared, &domain);
        domain.reclaim();
        let reader = worker.join().unwrap();
        reader.quiescent();
        domain.reclaim();
        assert!(shared.freed[0].load(Ordering::Relaxed) && domain.pending() == 0);
    });
}

#[test]
fn loom_waking_up_is_seen_or_sees() {
    loom::model(|| {
        let (domain, shared) = (Domain::new(), Shared::new());
        let reader = domain.register();
        reader.offline();
        let theirs = shared.clone();
        let worker = thread::spawn(move || {
            reader.online();
            theirs.read();
            reader.offline();
        });
        Shared::replace(&shared, &domain);
        domain.reclaim();
        worker.join().unwrap();
    });
}

#[test]
fn loom_registering_at_any_moment_is_safe() {
    loom::model(|| {
        let (domain, shared) = (Domain::new(), Shared::new());
        let (theirs, own) = (shared.clone(), domain.clone());
        let worker = thread::spawn(move || {
            let reader = own.register();
            theirs.read();
            drop(reader);
        });
        Shared::replace(&shared, &domain);
        domain.reclaim();
        worker.join().unwrap();
    });
}
