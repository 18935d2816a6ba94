//! The rules of reclamation, one by one.

use super::*;
use std::sync::atomic::AtomicU32;

fn counter() -> (Arc<AtomicU32>, Deferred) {
    let n = Arc::new(AtomicU32::new(0));
    let m = n.clone();
    (n, Box::new(move || _ = m.fetch_add(1, Ordering::Relaxed)))
}

#[test]
fn without_readers_everything_is_free_at_once() {
    let d = Domain::new();
    let (n, f) = counter();
    d.defer(f);
    assert_eq!((d.pending(), d.reclaim(), d.pending()), (1, 1, 0));
    assert_eq!(n.load(Ordering::Relaxed), 1);
}

#[test]
fn an_online_reader_holds_back_until_it_is_quiescent() {
    let d = Domain::new();
    let r = d.register();
    let (n, f) = counter();
    d.defer(f);
    assert_eq!(d.reclaim(), 0);
    r.quiescent();
    assert_eq!(d.reclaim(), 1);
    assert_eq!(n.load(Ordering::Relaxed), 1);
}

#[test]
fn quiescence_before_the_unlinking_does_not_count() {
    let d = Domain::new();
    let r = d.register();
    r.quiescent();
    d.defer(counter().1);
    assert_eq!(d.reclaim(), 0);
}

#[test]
fn an_offline_reader_is_not_waited_for_and_stays_offline() {
    let d = Domain::new();
    let r = d.register();
    r.offline();
    d.defer(counter().1);
    assert_eq!(d.reclaim(), 1);
    r.quiescent();
    assert!(!r.is_online());
    r.online();
    d.defer(counter().1);
    assert_eq!(d.reclaim(), 0);
    drop(r);
    assert_eq!((d.reclaim(), d.readers()), (1, 0));
}

#[test]
fn the_slowest_of_several_readers_decides() {
    let d = Domain::new();
    let (a, b) = (d.register(), d.register());
    let mut limbo = Limbo::new(&d);
    let mut freed = Vec::new();
    limbo.retire([1]);
    a.quiescent();
    limbo.retire([2, 3]);
    limbo.reclaim(|i| freed.push(i));
    assert_eq!(freed, []);
    b.quiescent();
    limbo.reclaim(|i| freed.push(i));
    assert_eq!((freed.as_slice(), d.pending()), ([1].as_slice(), 2));
    a.quiescent();
    limbo.reclaim(|i| freed.push(i));
    assert_eq!((freed.as_slice(), d.pending()), ([1, 2, 3].as_slice(), 0));
}

#[test]
fn a_deferred_call_may_defer() {
    let d = Domain::new();
    let (n, f) = counter();
    let e = d.clone();
    d.defer(Box::new(move || e.defer(f)));
    while d.reclaim() > 0 {}
    assert_eq!(n.load(Ordering::Relaxed), 1);
}
