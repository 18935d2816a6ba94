//! `lcp`: the messages of VPP's plugin.

use quiver_api::Text;
use quiver_api::defs::*;
use quiver_command::operation::{OpError, Operation as _, retval};
use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::api::{Call, Flow, Handlers, index_of, reference};
use quiver_net::ops::done;

use crate::control::{self, Pair, lcp};
use crate::ops::{CreatePair, DeletePair, EnableType, PairInfo};

/// No interface, the end of a list.
const NONE: u32 = u32::MAX;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<LcpDefaultNsSet, LcpDefaultNsSetReply>(|router, m| {
        control::set_namespace(router, Some(m.netns.0).filter(|name| !name.is_empty()))
    });
    handlers.reply::<LcpDefaultNsGet, LcpDefaultNsGetReply>(|router, _| {
        Ok(LcpDefaultNsGetReply { netns: Text(lcp(router)?.namespace().unwrap_or_default().to_owned()) })
    });
    handlers.reads::<LcpDefaultNsGet>();
    handlers.act::<LcpItfPairAddDel, LcpItfPairAddDelReply>(|router, m| {
        let LcpItfPairAddDel { is_add, sw_if_index, host_if_name, host_if_type, netns } = m;
        let v3 = LcpItfPairAddDelV3 { is_add, sw_if_index, host_if_name, host_if_type, netns };
        change(router, v3).map(drop)
    });
    handlers.reply::<LcpItfPairAddDelV2, LcpItfPairAddDelV2Reply>(|router, m| {
        let LcpItfPairAddDelV2 { is_add, sw_if_index, host_if_name, host_if_type, netns } = m;
        let v3 = LcpItfPairAddDelV3 { is_add, sw_if_index, host_if_name, host_if_type, netns };
        let made = change(router, v3)?;
        Ok(LcpItfPairAddDelV2Reply { retval: 0, host_sw_if_index: InterfaceIndex(made.map_or(NONE, |pair| pair.host_sw_if_index)) })
    });
    handlers.reply::<LcpItfPairAddDelV3, LcpItfPairAddDelV3Reply>(|router, m| {
        let made = change(router, m)?;
        let (vif_index, host) = made.map_or((NONE, NONE), |pair| (pair.host_ifindex, pair.host_sw_if_index));
        Ok(LcpItfPairAddDelV3Reply { retval: 0, vif_index, host_sw_if_index: InterfaceIndex(host) })
    });
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
            match lcp(call.router).ok().and_then(|known| known.pair(IfIndex(m.sw_if_index.0))).map(details) {
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
    handlers.reply::<LcpEthertypeGet, LcpEthertypeGetReply>(|router, _| {
        let ethertypes = lcp(router)?.types().to_vec();
        Ok(LcpEthertypeGetReply { retval: 0, count: ethertypes.len() as u16, ethertypes })
    });
    handlers.reads::<LcpEthertypeGet>();
}

/// Makes or removes a pair.
fn change(router: &mut Router, m: LcpItfPairAddDelV3) -> Result<Option<PairInfo>, OpError> {
    index_of(router, &m.sw_if_index)?;
    let interface = reference(router, &m.sw_if_index)?;
    if !m.is_add {
        done(DeletePair::run(router, DeletePair { interface })?)?;
        return Ok(None);
    }
    let netns = Some(m.netns.0).filter(|name| !name.is_empty());
    let tun = m.host_if_type == LcpItfHostType::LCP_API_ITF_HOST_TUN;
    done(CreatePair::run(router, CreatePair { interface, host_if: m.host_if_name.0, netns, tun })?).map(Some)
}

fn details(pair: &Pair) -> LcpItfPairDetails {
    LcpItfPairDetails {
        phy_sw_if_index: InterfaceIndex(pair.phy.0),
        host_sw_if_index: InterfaceIndex(pair.host.0),
        vif_index: pair.host_ifindex,
        host_if_name: Text(pair.host_name.clone()),
        host_if_type: LcpItfHostType::LCP_API_ITF_HOST_TAP,
        netns: Text(pair.namespace.clone().unwrap_or_default()),
    }
}

/// Sends the pairs from a number on.
fn send_all(call: &mut Call<'_>, cursor: u32) {
    let pairs = lcp(call.router).map(|known| known.pairs().filter(|pair| pair.id >= cursor).map(details).collect::<Vec<_>>());
    pairs.unwrap_or_default().iter().for_each(|pair| call.send(pair));
}
