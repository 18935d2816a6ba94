//! Virtual routers that go on in the place of those of another process.

use std::collections::BTreeSet;

use quiver_command::operation::OpError;
use quiver_net::Router;

use super::Vrrp;
use super::follow::{follow, refresh};
use crate::machine::Kept;
use crate::thread::{Key, Routers};

/// All virtual routers that are master or backup, with advertisements received and sent.
pub(crate) fn kept(router: &mut Router) -> Result<Vec<(Key, Kept, [u64; 2])>, OpError> {
    router.with_state::<Vrrp, _>(|router, vrrp| {
        let owners: BTreeSet<usize> = vrrp.routers.values().map(|configured| configured.owner).collect();
        let mut all = Vec::new();
        for owner in owners {
            let of = |routers: &mut Routers| {
                let stay = routers.iter().filter(|entry| !entry.leaving);
                stay.filter_map(|e| Some((e.key, e.machine.kept()?, [e.received, e.sent]))).collect::<Vec<_>>()
            };
            all.extend(vrrp.on(router, owner, of).unwrap_or_default());
        }
        Ok(all)
    })
}

/// Has a virtual router go on as that of another process; whether there is one that does.
pub(crate) fn adopt(router: &mut Router, key: &Key, kept: Kept, counts: [u64; 2]) -> bool {
    // Its addresses may have become usable a moment ago.
    refresh(router, key);
    let adopted = router.with_state::<Vrrp, _>(|router, vrrp| {
        let Some(configured) = vrrp.routers.get(key) else { return Ok(None) };
        let (serial, owner, now) = (configured.serial, configured.owner, router.graph.clock().now());
        let state = vrrp.on(router, owner, move |routers| routers.adopt(serial, &kept, counts, now)).flatten();
        if let Some((configured, state)) = vrrp.routers.get_mut(key).zip(state) {
            configured.state = state;
        }
        Ok(state)
    });
    let adopted = adopted.ok().flatten().is_some();
    if adopted {
        follow(router, key);
    }
    adopted
}
