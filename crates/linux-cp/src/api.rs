//! `lcp`: the messages of VPP's plugin.

use quiver_api::defs::*;
use quiver_api::{Message, Text};
use quiver_command::operation::{Operation as _, retval};
use quiver_graph::IfIndex;
use quiver_net::api::{Call, Flow, Handlers, index_of, reference};
use quiver_net::ops::done;

use crate::control::{self, Lcp, Pair};
use crate::ops::{CreatePair, DeletePair, EnableType};

/// No interface, the end of a list.
const NONE: u32 = u32::MAX;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<LcpDefaultNsSet, LcpDefaultNsSetReply>(|router, m| {
        control::set_namespace(router, Some(m.netns.0).filter(|name| !name.is_empty()))
    });
    handlers.get::<LcpDefaultNsGet, LcpDefaultNsGetReply>(|router, _| {
        Ok(LcpDefaultNsGetReply { netns: Text(router.state::<Lcp>()?.namespace().unwrap_or_default().to_owned()) })
    });
    handlers.call::<LcpItfPairAddDel>(|call, m| {
        let LcpItfPairAddDel { is_add, sw_if_index, host_if_name, host_if_type, netns } = m;
        let v3 = LcpItfPairAddDelV3 { is_add, sw_if_index, host_if_name, host_if_type, netns };
        change(call, v3, |_| LcpItfPairAddDelReply::default())
    });
    handlers.changes::<LcpItfPairAddDel, LcpItfPairAddDelReply>();
    handlers.call::<LcpItfPairAddDelV2>(|call, m| {
        let LcpItfPairAddDelV2 { is_add, sw_if_index, host_if_name, host_if_type, netns } = m;
        let v3 = LcpItfPairAddDelV3 { is_add, sw_if_index, host_if_name, host_if_type, netns };
        change(call, v3, |made| LcpItfPairAddDelV2Reply { retval: 0, host_sw_if_index: InterfaceIndex(made.host) })
    });
    handlers.changes::<LcpItfPairAddDelV2, LcpItfPairAddDelV2Reply>();
    handlers.call::<LcpItfPairAddDelV3>(|call, m| {
        change(call, m, |Made { vif_index, host }| LcpItfPairAddDelV3Reply {
            retval: 0,
            vif_index,
            host_sw_if_index: InterfaceIndex(host),
        })
    });
    handlers.changes::<LcpItfPairAddDelV3, LcpItfPairAddDelV3Reply>();
    handlers.call::<LcpItfPairGet>(|call, m| {
        send_all(call, m.cursor);
        call.send(&LcpItfPairGetReply { retval: 0, cursor: NONE });
        Flow::Done
    });
    handlers.reads::<LcpItfPairGet>();
    handlers.call::<LcpItfPairGetV2>(|call, m| {
        let mut code = 0;
        if m.sw_if_index.0 == NONE {
            send_all(call, m.cursor);
        } else {
            match call.router.state::<Lcp>().ok().and_then(|known| known.pair(IfIndex(m.sw_if_index.0))).map(details) {
                Some(details) => call.send(&details),
                None => code = retval::INVALID_SW_IF_INDEX,
            }
        }
        call.send(&LcpItfPairGetV2Reply { retval: code, cursor: NONE });
        Flow::Done
    });
    handlers.reads::<LcpItfPairGetV2>();
    handlers.act::<LcpEthertypeEnable, LcpEthertypeEnableReply>(|router, m| {
        EnableType::run(router, EnableType { ethertype: m.ethertype }).map(drop)
    });
    handlers.get::<LcpEthertypeGet, LcpEthertypeGetReply>(|router, _| {
        let ethertypes = router.state::<Lcp>()?.types().to_vec();
        Ok(LcpEthertypeGetReply { retval: 0, count: ethertypes.len() as u16, ethertypes })
    });
}

/// What a message is told of a pair that was made, or [`NONE`] of one that was removed.
struct Made {
    vif_index: u32,
    host: u32,
}

/// Makes or removes a pair.
fn change<R: Message + 'static>(call: &mut Call<'_>, m: LcpItfPairAddDelV3, reply: fn(Made) -> R) -> Flow {
    let interface = index_of(call.router, &m.sw_if_index).and_then(|_| reference(call.router, &m.sw_if_index));
    if !m.is_add {
        let removed = interface.and_then(|interface| done(DeletePair::run(call.router, DeletePair { interface })?));
        call.answer(removed.map(|()| reply(Made { vif_index: NONE, host: NONE })));
        return Flow::Done;
    }
    let netns = Some(m.netns.0).filter(|name| !name.is_empty());
    let tun = m.host_if_type == LcpItfHostType::LCP_API_ITF_HOST_TUN;
    let request = interface.map(|interface| CreatePair { interface, host_if: m.host_if_name.0, netns, tun });
    call.begin::<CreatePair, R>(request, move |_, made| {
        let made = made?;
        let number = |key: &str| made[key].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(NONE);
        Ok(reply(Made { vif_index: number("host_ifindex"), host: number("host_sw_if_index") }))
    })
}

fn details(pair: &Pair) -> LcpItfPairDetails {
    LcpItfPairDetails {
        phy_sw_if_index: InterfaceIndex(pair.phy.0),
        host_sw_if_index: InterfaceIndex(pair.host.0),
        vif_index: pair.host_ifindex,
        host_if_name: Text(pair.host_name.clone()),
        host_if_type: if pair.tun { LcpItfHostType::LCP_API_ITF_HOST_TUN } else { LcpItfHostType::LCP_API_ITF_HOST_TAP },
        netns: Text(pair.namespace.clone().unwrap_or_default()),
    }
}

/// Sends the pairs from a number on.
fn send_all(call: &mut Call<'_>, cursor: u32) {
    let pairs =
        call.router.state::<Lcp>().map(|known| known.pairs().filter(|pair| pair.id >= cursor).map(details).collect::<Vec<_>>());
    pairs.unwrap_or_default().iter().for_each(|pair| call.send(pair));
}
