//! `arp`: answers in the place of others.

use quiver_api::defs::*;
use quiver_command::operation::{OpError, retval};

use crate::api::{Handlers, index_of};
use crate::ip::api::exists;
use crate::neighbor::ProxyRange;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<ProxyArpAddDel, ProxyArpAddDelReply>(|router, m| {
        let ProxyArp { table_id, low, hi } = &m.proxy;
        if !exists(router, false, *table_id) {
            return Err(OpError::new(retval::NO_SUCH_FIB, format!("no table {table_id}")).key("table_id"));
        }
        let range = ProxyRange { table: *table_id, first: low.0.into(), last: hi.0.into() };
        router.set_proxy_range(range, m.is_add).map_err(OpError::from)
    });
    handlers.dump::<ProxyArpDump>(|router, _, send| {
        for ProxyRange { table, first, last } in router.proxy_ranges() {
            let (low, hi) = (Ip4Address(first.octets()), Ip4Address(last.octets()));
            send(&ProxyArpDetails { proxy: ProxyArp { table_id: table, low, hi } });
        }
    });
    handlers.act::<ProxyArpIntfcEnableDisable, ProxyArpIntfcEnableDisableReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        router.set_proxy_arp(index, m.enable).map_err(OpError::from)
    });
    handlers.dump::<ProxyArpIntfcDump>(|router, _, send| {
        let on: Vec<u32> = router.interfaces.iter().map(|i| i.index).filter(|i| router.proxy_arp(*i)).map(|i| i.0).collect();
        on.into_iter().for_each(|sw_if_index| send(&ProxyArpIntfcDetails { sw_if_index }));
    });
}
