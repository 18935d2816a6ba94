//! Sessions that go on in the place of those of another process.

use quiver_command::operation::OpError;
use quiver_net::Router;

use super::{Bfd, follow, key_of_nodes};
use crate::datagram::Key;
use crate::thread::Entry;
use crate::{auth, session};

/// A session of another process.
pub(crate) struct Adopted {
    pub ups: u64,
    pub since: u64,
    pub session: session::Kept,
    pub authentication: auth::Kept,
}

/// All sessions as they are on their threads, with how often they came up and when their state last changed.
pub(crate) fn entries(router: &mut Router) -> Result<Vec<(Entry, u64, u64)>, OpError> {
    router.with_state::<Bfd, _>(|router, bfd| {
        let owners: std::collections::BTreeSet<usize> = bfd.sessions.values().map(|session| session.owner).collect();
        let mut all = Vec::new();
        for owner in owners {
            all.extend(bfd.on(router, owner, |sessions| sessions.iter().cloned().collect::<Vec<_>>()).unwrap_or_default());
        }
        let of = |entry: Entry| bfd.sessions.get(&entry.key).map(|session| (entry, session.ups, session.since));
        Ok(all.into_iter().filter_map(of).collect())
    })
}

/// Has a session go on as that of another process; whether there is one that does.
pub(crate) fn adopt(router: &mut Router, key: &Key, adopted: Adopted) -> bool {
    let done = router.with_state::<Bfd, _>(|router, bfd| Ok(adopt_here(router, bfd, key, adopted))).ok().flatten().is_some();
    if done {
        follow(router, key);
    }
    done
}

fn adopt_here(router: &mut Router, bfd: &mut Bfd, key: &Key, adopted: Adopted) -> Option<()> {
    let before = *bfd.sessions.get(key)?;
    let discriminator = adopted.session.discriminator();
    if bfd.by_discriminator.get(&discriminator).is_some_and(|other| other != key) {
        return None;
    }
    let (now, timer_now) = (router.graph.clock().now(), router.graph.clock().timer_now());
    let Adopted { ups, since, session, authentication } = adopted;
    let adopt = move |sessions: &mut crate::thread::Sessions| sessions.adopt(before.discriminator, &session, &authentication, now);
    let status = bfd.on(router, before.owner, adopt)??;
    bfd.by_discriminator.remove(&before.discriminator);
    bfd.by_discriminator.insert(discriminator, *key);
    bfd.parts.index.remove(&key_of_nodes(key, before.path), before.discriminator);
    let configured = bfd.sessions.get_mut(key)?;
    (configured.discriminator, configured.status) = (discriminator, Some(status));
    (configured.ups, configured.since) = (ups, since.min(timer_now));
    let session = *configured;
    if let Err(error) = bfd.publish(key, &session) {
        tracing::warn!(target: "bfd", "{error}");
    }
    Some(())
}
