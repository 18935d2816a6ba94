//! `ip`: messages about reassembly.

use quiver_api::defs::*;
use quiver_command::operation::OpError;

use crate::Router;
use crate::api::{Handlers, perform, reference};
use crate::fib::ops::Family;
use crate::icmp::ops::reassembly::{SetLocal, SetReassembly, SetThrough, Which};
use crate::ip::FamilyId;
use crate::local::reassembly::Through;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<IpReassemblySet, IpReassemblySetReply>(set);
    handlers.get::<IpReassemblyGet, IpReassemblyGetReply>(|router, m| {
        let family = FamilyId::from(family(m.is_ip6));
        let limits = router.reassembly_limits(family, Through::of(is_shallow(&m.r#type)));
        Ok(IpReassemblyGetReply {
            retval: 0,
            timeout_ms: limits.timeout.as_millis().try_into().unwrap_or(u32::MAX),
            max_reassemblies: limits.datagrams,
            max_reassembly_length: limits.fragments,
            // Nothing walks: what is out of time goes then.
            expire_walk_interval_ms: 0,
            is_ip6: m.is_ip6,
        })
    });
    handlers.act::<IpReassemblyEnableDisable, IpReassemblyEnableDisableReply>(|router, m| {
        let interface = reference(router, &m.sw_if_index)?;
        let which = match (m.enable_ip4, m.enable_ip6) {
            (true, true) => Which::On,
            (true, false) => Which::Ip4,
            (false, true) => Which::Ip6,
            (false, false) => Which::Off,
        };
        let shallow = is_shallow(&m.r#type);
        perform::<SetThrough>(router, SetThrough { interface, which, shallow }).map(drop)
    });
    handlers.act::<IpLocalReassEnableDisable, IpLocalReassEnableDisableReply>(|router, m| {
        perform::<SetLocal>(router, SetLocal { family: Family::Ip4, on: m.enable_ip4 })?;
        perform::<SetLocal>(router, SetLocal { family: Family::Ip6, on: m.enable_ip6 }).map(drop)
    });
    handlers.get::<IpLocalReassGet, IpLocalReassGetReply>(|router, _| {
        let (ip4_is_enabled, ip6_is_enabled) = (router.joins_local(FamilyId::V4), router.joins_local(FamilyId::V6));
        Ok(IpLocalReassGetReply { retval: 0, ip4_is_enabled, ip6_is_enabled })
    });
}

fn is_shallow(kind: &IpReassType) -> bool {
    *kind == IpReassType::IP_REASS_TYPE_SHALLOW_VIRTUAL
}

fn family(six: bool) -> Family {
    if six { Family::Ip6 } else { Family::Ip4 }
}

/// VPP takes any number; ours end where no sensible one is.
fn set(router: &mut Router, m: IpReassemblySet) -> Result<(), OpError> {
    let family = family(m.is_ip6);
    let timeout_ms = Some(m.timeout_ms.min(3_600_000));
    let max_reassemblies = Some(m.max_reassemblies.min(1_000_000));
    let max_reassembly_length = Some(m.max_reassembly_length.clamp(1, 8192));
    let (max_per_source, max_memory_kb) = (None, None);
    let shallow = is_shallow(&m.r#type);
    let request =
        SetReassembly { family, shallow, timeout_ms, max_reassemblies, max_per_source, max_reassembly_length, max_memory_kb };
    perform::<SetReassembly>(router, request).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Table;
    use crate::api::testing::{ask, assert_names, read};
    use crate::testing::Harness;

    #[test]
    fn limits_and_switches_are_set_and_read_back() {
        let mut h = Harness::new();
        let x0 = h.interface(0);
        let table = Table::new(crate::api::handlers());
        assert_names(
            table.catalog(),
            &[
                "ip_reassembly_set_16467d25",
                "ip_reassembly_get_ea13ff63",
                "ip_reassembly_enable_disable_eb77968d",
                "ip_local_reass_get_51077d14",
            ],
        );
        let shallow = || IpReassType::IP_REASS_TYPE_SHALLOW_VIRTUAL;
        let limits = |kind| IpReassemblySet {
            timeout_ms: 1_000_000,
            max_reassemblies: 7,
            max_reassembly_length: 3,
            expire_walk_interval_ms: 5,
            is_ip6: true,
            r#type: kind,
        };
        ask(&mut h, &table, 1, &limits(shallow()));
        let get = |h: &mut Harness, kind| {
            let answers = ask(h, &table, 1, &IpReassemblyGet { is_ip6: true, r#type: kind });
            let got: IpReassemblyGetReply = read(&answers[0]);
            (got.timeout_ms, got.max_reassemblies, got.max_reassembly_length)
        };
        assert_eq!(get(&mut h, shallow()), (1_000_000, 7, 3));
        assert_eq!(get(&mut h, IpReassType::IP_REASS_TYPE_FULL), (60_000, 1024, 256));
        let on = IpReassemblyEnableDisable { sw_if_index: InterfaceIndex(x0.0), enable_ip6: true, ..Default::default() };
        ask(&mut h, &table, 1, &on);
        assert_eq!(h.router.graph.features_of(x0), [("ip6-unicast", vec!["ip6-full-reassembly-feature".to_owned()])]);
        ask(&mut h, &table, 1, &IpLocalReassEnableDisable { enable_ip4: false, enable_ip6: true });
        let got: IpLocalReassGetReply = read(&ask(&mut h, &table, 1, &IpLocalReassGet {})[0]);
        assert_eq!((got.ip4_is_enabled, got.ip6_is_enabled), (false, true));
    }
}
