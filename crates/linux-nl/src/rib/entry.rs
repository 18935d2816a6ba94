//! The routes of one prefix, in the order in which the kernel would use them.

use super::target::Paths;

/// Rank of routes that a routing daemon has sent (FPM): before all of the kernel's.
pub const PUSHED: u8 = 0;

/// A route of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    pub metric: u32,
    /// Number of its target.
    pub target: u32,
    pub protocol: u8,
    /// Place of its source: [`PUSHED`], then the kernel's tables that are the router's table 0.
    pub rank: u8,
    /// The list in which it was seen last.
    pub generation: u8,
}

impl Stored {
    const fn order(&self) -> (u8, u32) {
        (self.rank, self.metric)
    }
}

/// Nearly all prefixes have one route.
#[derive(Default)]
enum Routes {
    #[default]
    None,
    One(Stored),
    Many(Vec<Stored>),
}

/// A prefix.
#[derive(Default)]
pub struct Entry {
    routes: Routes,
    /// What the router's table has of it.
    pub told: Option<Paths>,
    /// It waits to be looked at.
    pub dirty: bool,
}

impl Entry {
    /// Its routes, the best one first.
    pub fn routes(&self) -> &[Stored] {
        match &self.routes {
            Routes::None => &[],
            Routes::One(route) => std::slice::from_ref(route),
            Routes::Many(routes) => routes,
        }
    }

    fn change<R>(&mut self, change: impl FnOnce(&mut Vec<Stored>) -> R) -> R {
        let mut routes = match std::mem::take(&mut self.routes) {
            Routes::None => Vec::new(),
            Routes::One(route) => vec![route],
            Routes::Many(routes) => routes,
        };
        let result = change(&mut routes);
        self.routes = match routes[..] {
            [] => Routes::None,
            [route] => Routes::One(route),
            _ => Routes::Many(routes),
        };
        result
    }

    /// Target of the best route.
    pub fn best_target(&self) -> Option<u32> {
        self.routes().first().map(|route| route.target)
    }

    /// Nothing is known or told of it.
    pub fn is_empty(&self) -> bool {
        self.routes().is_empty() && self.told.is_none()
    }

    /// Notes that a route has been seen, where it is here already.
    pub fn confirm(&mut self, new: &Stored) -> bool {
        let is_it = |old: &Stored| Stored { generation: new.generation, ..*old } == *new;
        let found = match &mut self.routes {
            Routes::None => None,
            Routes::One(route) => Some(route).filter(|route| is_it(route)),
            Routes::Many(routes) => routes.iter_mut().find(|route| is_it(route)),
        };
        found.map(|route| route.generation = new.generation).is_some()
    }

    /// Puts a route among those of its metric: in place of the first that it replaces, or before or after them all.
    pub fn insert(&mut self, new: Stored, replaces: impl Fn(&Stored) -> bool, last: bool) -> Option<Stored> {
        if matches!(self.routes, Routes::None) {
            self.routes = Routes::One(new);
            return None;
        }
        self.change(|routes| {
            if let Some(old) = routes.iter_mut().find(|old| old.order() == new.order() && replaces(old)) {
                return Some(std::mem::replace(old, new));
            }
            let at = routes.partition_point(|old| old.order() < new.order() || last && old.order() == new.order());
            routes.insert(at, new);
            None
        })
    }

    /// Takes a route out.
    pub fn remove(&mut self, at: usize) -> Stored {
        self.change(|routes| routes.remove(at))
    }

    /// Takes those out for which `keep` does not hold.
    pub fn retain(&mut self, keep: impl Fn(&Stored) -> bool, gone: &mut Vec<Stored>) {
        if self.routes().iter().all(&keep) {
            return;
        }
        self.change(|routes| {
            gone.extend(routes.iter().filter(|route| !keep(route)));
            routes.retain(|route| keep(route));
        });
    }
}
