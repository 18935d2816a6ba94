//! `punt`, and of `ip` the redirects.

use quiver_api::defs::{self, *};
use quiver_api::{Reader, Wire as _};
use quiver_command::operation::{OpError, retval};

use super::ops::{PuntProtocol, SetPunt, punt_error};
use super::path_to;
use crate::api::{ALL, Details, Handlers, address, family, from_address, index_of, is_six, perform};
use crate::fib::Path;
use crate::fib::api::{decode, encode_path};
use crate::fib::ops::Family;
use crate::{IfIndex, Router};

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<IpPuntRedirect, IpPuntRedirectReply>(|router, m| {
        let (rx, six) = (rx(router, &m.punt.rx_sw_if_index)?, is_six(&m.punt.nh.af));
        if !m.is_add {
            return router.remove_punt_redirect(family(six), rx).map_err(|e| punt_error(&e));
        }
        let next_hop = Some(from_address(&m.punt.nh)).filter(|address| !address.is_unspecified());
        let path = path_to(index_of(router, &m.punt.tx_sw_if_index)?, next_hop);
        router.set_punt_redirect(family(six), rx, vec![path]).map_err(|e| punt_error(&e))
    });
    handlers.act::<AddDelIpPuntRedirectV2, AddDelIpPuntRedirectV2Reply>(|router, m| {
        let (rx, six) = (rx(router, &m.punt.rx_sw_if_index)?, is_six(&m.punt.af));
        if !m.is_add {
            return router.remove_punt_redirect(family(six), rx).map_err(|e| punt_error(&e));
        }
        let paths = m.punt.paths.iter().map(|path| decode(router, six, path)).collect::<Result<Vec<Path>, OpError>>()?;
        router.set_punt_redirect(family(six), rx, paths).map_err(|e| punt_error(&e))
    });
    handlers.dump::<IpPuntRedirectDump>(|router, m, send| {
        each(router, &m.sw_if_index, m.is_ipv6, send, |rx_sw_if_index, paths| {
            // This message has room for one path.
            let path = paths.first()?;
            let none = if m.is_ipv6 { std::net::Ipv6Addr::UNSPECIFIED.into() } else { std::net::Ipv4Addr::UNSPECIFIED.into() };
            let tx_sw_if_index = InterfaceIndex(path.interface().map_or(ALL, |index| index.0));
            let nh = address(path.next_hop().unwrap_or(none));
            Some(IpPuntRedirectDetails { punt: PuntRedirect { rx_sw_if_index, tx_sw_if_index, nh } })
        });
    });
    handlers.dump::<IpPuntRedirectV2Dump>(|router, m, send| {
        let six = is_six(&m.af);
        each(router, &m.sw_if_index, six, send, |rx_sw_if_index, paths| {
            let paths = paths.iter().map(|path| encode_path(six, path)).collect();
            Some(IpPuntRedirectV2Details { punt: PuntRedirectV2 { rx_sw_if_index, af: m.af.clone(), paths, ..Default::default() } })
        });
    });
    handlers.act::<defs::SetPunt, SetPuntReply>(|router, m| {
        let (family, protocol, port) = port_of(&m.punt)?;
        perform::<SetPunt>(router, SetPunt { family, protocol, port, remove: !m.is_add }).map(drop)
    });
}

/// The interface that packets came in on; all bits set, or 0 from VPP's own command: any.
fn rx(router: &Router, index: &InterfaceIndex) -> Result<Option<IfIndex>, OpError> {
    if index.0 == ALL { Ok(None) } else { index_of(router, index).map(Some) }
}

fn each<D: Details>(
    router: &Router,
    rx: &InterfaceIndex,
    six: bool,
    send: &mut dyn FnMut(&dyn Details),
    detail: impl Fn(InterfaceIndex, &[Path]) -> Option<D>,
) {
    for (from, paths) in router.punt_redirects(family(six)) {
        let number = from.map_or(ALL, |index| index.0);
        if [ALL, number].contains(&rx.0)
            && let Some(detail) = detail(InterfaceIndex(number), &paths)
        {
            send(&detail);
        }
    }
}

/// The ports that a message means.
pub(super) fn port_of(punt: &Punt) -> Result<(Family, PuntProtocol, Option<u16>), OpError> {
    let refuse = |key: &'static str, what: &str| OpError::new(retval::INVALID_VALUE_2, what.to_owned()).key(key);
    if punt.r#type != PuntType::PUNT_API_TYPE_L4 {
        return Err(refuse("type", "only ports are punted by this message"));
    }
    let wrong = |_| refuse("punt", "not a port");
    let l4 = PuntL4::get(&mut Reader::new(&punt.punt.0)).map_err(wrong)?;
    let protocol = match l4.protocol {
        IpProto::IP_API_PROTO_UDP => PuntProtocol::Udp,
        IpProto::IP_API_PROTO_TCP => PuntProtocol::Tcp,
        _ => return Err(refuse("protocol", "only UDP and TCP have ports here")),
    };
    let family = if is_six(&l4.af) { Family::Ip6 } else { Family::Ip4 };
    // All ports are said by the last of them, which no service has.
    Ok((family, protocol, Some(l4.port).filter(|port| *port != u16::MAX)))
}
