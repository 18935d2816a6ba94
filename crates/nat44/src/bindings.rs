//! Endpoint-independent mapping: which outside endpoint an inside one has, whatever it speaks to.
//!
//! A binding lives as long as a session uses it, so RFC 4787's mapping timer is that of the session heard last. Packets of
//! sessions do not come here: only those that begin or end one do.

use std::collections::HashMap;

use crate::session::{Endpoint, Session};

/// An inside endpoint, its protocol and its FIB.
pub type Inside = (Endpoint, u8, u16);

/// The bindings of one thread.
#[derive(Default)]
pub struct Bindings {
    by_inside: HashMap<Inside, (Endpoint, u32)>,
    by_outside: HashMap<(Endpoint, u8), Inside>,
}

impl Bindings {
    /// What an inside endpoint looks like from outside.
    pub fn outside(&self, inside: Inside) -> Option<Endpoint> {
        self.by_inside.get(&inside).map(|(outside, _)| *outside)
    }

    /// Whose an outside endpoint is.
    pub fn inside(&self, outside: Endpoint, proto: u8) -> Option<Inside> {
        self.by_outside.get(&(outside, proto)).copied()
    }

    /// Whether there is room for one more, or none is needed.
    pub fn reserve(&mut self) -> bool {
        self.by_inside.try_reserve(1).is_ok() && self.by_outside.try_reserve(1).is_ok()
    }

    fn ends(session: &Session) -> (Inside, Endpoint) {
        ((session.inside(), session.i2o.proto(), session.i2o.fib()), session.outside())
    }

    /// A session begins to use its endpoints' binding; `true`: it is the first one.
    pub fn hold(&mut self, session: &Session) -> bool {
        let (inside, outside) = Self::ends(session);
        let users = &mut self.by_inside.entry(inside).or_insert((outside, 0)).1;
        *users += 1;
        let is_first = *users == 1;
        self.by_outside.insert((outside, inside.1), inside);
        is_first
    }

    /// A session has ended; the last one ends the binding, and gives `true`.
    pub fn release(&mut self, session: &Session) -> bool {
        let (inside, outside) = Self::ends(session);
        let Some((_, users)) = self.by_inside.get_mut(&inside) else { return false };
        *users -= 1;
        let is_last = *users == 0;
        if is_last {
            self.by_inside.remove(&inside);
            self.by_outside.remove(&(outside, inside.1));
        }
        is_last
    }

    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> usize {
        let (inside, outside) = (size_of::<(Inside, (Endpoint, u32))>() + 1, size_of::<((Endpoint, u8), Inside)>() + 1);
        self.by_inside.capacity() * inside + self.by_outside.capacity() * outside
    }

    /// Bindings.
    pub fn len(&self) -> usize {
        self.by_inside.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Direction, Key, flag};

    #[test]
    fn a_binding_lives_as_long_as_a_session_of_it() {
        let (inside, outside) = (Endpoint::new(1, 2), Endpoint::new(3, 4));
        let session = |remote: u32| {
            let remote = Endpoint::new(remote, 9);
            let i2o = Key::new(inside, remote, 17, Direction::In2Out, 5);
            Session::new(i2o, Key::new(remote, outside, 17, Direction::Out2In, 0), flag::INDEPENDENT, 0)
        };
        let mut bindings = Bindings::default();
        assert!(bindings.hold(&session(10)) && !bindings.hold(&session(11)));
        assert!(!bindings.release(&session(10)));
        assert_eq!(bindings.outside((inside, 17, 5)), Some(outside));
        assert_eq!(bindings.inside(outside, 17), Some((inside, 17, 5)));
        assert_eq!((bindings.outside((inside, 6, 5)), bindings.inside(outside, 6)), (None, None));
        assert!(bindings.release(&session(11)) && !bindings.release(&session(11)));
        assert_eq!((bindings.outside((inside, 17, 5)), bindings.inside(outside, 17), bindings.len()), (None, None, 0));
    }
}
