//! `punt`, and of `ip` the redirects.

use quiver_api::defs::{self, *};
use quiver_api::{Reader, Text, Wire as _};
use quiver_command::operation::{OpError, retval};
use quiver_command::request::Value as _;
use quiver_wire::ipv4::IpProtocol;

use super::clients::{Reason, Wanted};
use super::ops::socket::SetClient;
use super::ops::{PuntProtocol, SetPunt};
use super::{L4, path_to};
use crate::api::{ALL, Details, Handlers, address, family, from_address, index_of, is_six, perform};
use crate::fib::Path;
use crate::fib::api::{decode, encode_path};
use crate::fib::ops::Family;
use crate::ip::FamilyId;
use crate::{IfIndex, Router};

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<IpPuntRedirect, IpPuntRedirectReply>(|router, m| {
        let (rx, six) = (rx(router, &m.punt.rx_sw_if_index)?, is_six(&m.punt.nh.af));
        if !m.is_add {
            return router.remove_punt_redirect(family(six), rx).map_err(OpError::from);
        }
        let next_hop = Some(from_address(&m.punt.nh)).filter(|address| !address.is_unspecified());
        let path = path_to(index_of(router, &m.punt.tx_sw_if_index)?, next_hop);
        router.set_punt_redirect(family(six), rx, vec![path]).map_err(OpError::from)
    });
    handlers.act::<AddDelIpPuntRedirectV2, AddDelIpPuntRedirectV2Reply>(|router, m| {
        let (rx, six) = (rx(router, &m.punt.rx_sw_if_index)?, is_six(&m.punt.af));
        if !m.is_add {
            return router.remove_punt_redirect(family(six), rx).map_err(OpError::from);
        }
        let paths = m.punt.paths.iter().map(|path| decode(router, six, path)).collect::<Result<Vec<Path>, OpError>>()?;
        router.set_punt_redirect(family(six), rx, paths).map_err(OpError::from)
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
    sockets(handlers);
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

/// Version of the header before packets, as in VPP.
const HEADER_VERSION: u32 = 1;

fn sockets(handlers: &mut Handlers) {
    handlers.reply::<PuntSocketRegister, PuntSocketRegisterReply>(|router, m| {
        if m.header_version != HEADER_VERSION {
            let text = format!("the packet descriptor has version {HEADER_VERSION}");
            return Err(OpError::new(retval::INVALID_VALUE, text).key("header_version"));
        }
        let request = SetClient::of(wanted(&m.punt)?, Some(m.pathname.as_str().into()));
        perform::<SetClient>(router, request)?;
        let own = router.punt_socket().map(|path| path.display().to_string()).unwrap_or_default();
        Ok(PuntSocketRegisterReply { retval: 0, pathname: Text(own) })
    });
    handlers.act::<PuntSocketDeregister, PuntSocketDeregisterReply>(|router, m| {
        let request = SetClient::of(wanted(&m.punt)?, None);
        perform::<SetClient>(router, request).map(drop)
    });
    handlers.dump::<PuntSocketDump>(|router, m, send| {
        for (wanted, path) in router.punt_clients() {
            let punt = described(wanted);
            if punt.r#type == m.r#type {
                send(&PuntSocketDetails { punt, pathname: Text(path.display().to_string()) });
            }
        }
    });
    handlers.dump::<PuntReasonDump>(|_, m, send| {
        for reason in Reason::ALL {
            let name = reason.text();
            if m.reason.name.is_empty() || m.reason.name == name {
                send(&PuntReasonDetails { reason: PuntReason { id: reason.number(), name } });
            }
        }
    });
}

/// Which packets a message means.
fn wanted(punt: &Punt) -> Result<Wanted, OpError> {
    let refuse = |key: &'static str, what: &str| Err(OpError::new(retval::INVALID_VALUE, what.to_owned()).key(key));
    let [af, protocol, high, low] = punt.punt.0;
    let family = if af == 1 { FamilyId::V6 } else { FamilyId::V4 };
    match punt.r#type {
        PuntType::PUNT_API_TYPE_L4 => {
            let port = u16::from_be_bytes([high, low]);
            match IpProtocol(protocol) {
                _ if port == u16::MAX => refuse("port", "a client gets the packets of one port"),
                IpProtocol::UDP => Ok(Wanted::Port(family, L4::Udp, port)),
                IpProtocol::TCP => Ok(Wanted::Port(family, L4::Tcp, port)),
                _ => refuse("protocol", "only UDP and TCP have ports here"),
            }
        }
        PuntType::PUNT_API_TYPE_IP_PROTO => Ok(Wanted::Protocol(family, IpProtocol(protocol))),
        PuntType::PUNT_API_TYPE_EXCEPTION => {
            let id = u32::from_be_bytes(punt.punt.0);
            let found = Reason::ALL.into_iter().find(|reason| reason.number() == id);
            found.map_or_else(|| refuse("id", "no such reason"), |reason| Ok(Wanted::Reason(reason)))
        }
        _ => refuse("type", "no such type"),
    }
}

/// The same as a message has it.
fn described(wanted: Wanted) -> Punt {
    let af = |family| u8::from(family == FamilyId::V6);
    let (r#type, bytes) = match wanted {
        Wanted::Port(family, l4, port) => {
            let IpProtocol(protocol) = if l4 == L4::Udp { IpProtocol::UDP } else { IpProtocol::TCP };
            let [high, low] = port.to_be_bytes();
            (PuntType::PUNT_API_TYPE_L4, [af(family), protocol, high, low])
        }
        Wanted::Protocol(family, IpProtocol(protocol)) => (PuntType::PUNT_API_TYPE_IP_PROTO, [af(family), protocol, 0, 0]),
        Wanted::Reason(reason) => (PuntType::PUNT_API_TYPE_EXCEPTION, reason.number().to_be_bytes()),
    };
    Punt { r#type, punt: PuntUnion(bytes) }
}
