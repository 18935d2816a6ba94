//! The messages of the binary API.

use quiver_api::defs::*;
use quiver_api::{Catalog, Text};
use quiver_net::api::testing::{ask, assert_names, read};
use quiver_net::api::{Handlers, Table};
use quiver_net::testing::Harness;

use super::{Scene, scene};

fn table() -> Table {
    let mut handlers = Handlers::default();
    crate::api::add(&mut handlers);
    Table::new(handlers)
}

#[test]
fn numbers_of_messages_are_those_of_vpp() {
    let names = [
        "lcp_default_ns_set_69749409",
        "lcp_default_ns_get_51077d14",
        "lcp_default_ns_get_reply_5102feee",
        "lcp_itf_pair_add_del_40482b80",
        "lcp_itf_pair_add_del_v2_40482b80",
        "lcp_itf_pair_add_del_v2_reply_39452f52",
        "lcp_itf_pair_add_del_v3_40482b80",
        "lcp_itf_pair_add_del_v3_reply_c2502663",
        "lcp_itf_pair_get_f75ba505",
        "lcp_itf_pair_get_reply_53b48f5d",
        "lcp_itf_pair_get_v2_47250981",
        "lcp_itf_pair_get_v2_reply_53b48f5d",
        "lcp_itf_pair_details_8b5481af",
        "lcp_ethertype_enable_f893dae1",
        "lcp_ethertype_get_51077d14",
        "lcp_ethertype_get_reply_db48c31e",
    ];
    assert_names(&Catalog::default(), &names);
}

#[test]
fn pairs_are_told_one_by_one_and_removed() {
    let Scene { mut h, phy, host } = scene();
    let table = table();
    let pair = LcpItfPairDetails {
        phy_sw_if_index: InterfaceIndex(phy.0),
        host_sw_if_index: InterfaceIndex(host.0),
        vif_index: 7,
        host_if_name: Text("e0".into()),
        host_if_type: LcpItfHostType::LCP_API_ITF_HOST_TAP,
        netns: Text("dataplane".into()),
    };
    let all = ask(&mut h, &table, 1, &LcpItfPairGet { cursor: 0 });
    assert_eq!((all.len(), read::<LcpItfPairDetails>(&all[0])), (2, pair.clone()));
    assert_eq!(read::<LcpItfPairGetReply>(&all[1]), LcpItfPairGetReply { retval: 0, cursor: u32::MAX });
    let one = |interface| LcpItfPairGetV2 { cursor: 0, sw_if_index: InterfaceIndex(interface) };
    let found = ask(&mut h, &table, 1, &one(phy.0));
    assert_eq!((found.len(), read::<LcpItfPairDetails>(&found[0])), (2, pair));
    let none = ask(&mut h, &table, 1, &one(host.0));
    assert_eq!((none.len(), read::<LcpItfPairGetV2Reply>(&none[0]).retval), (1, -2));

    let remove = |sw_if_index| LcpItfPairAddDelV3 { is_add: false, sw_if_index: InterfaceIndex(sw_if_index), ..Default::default() };
    let code = |h: &mut Harness, index| read::<LcpItfPairAddDelV3Reply>(&ask(h, &table, 1, &remove(index))[0]).retval;
    assert_eq!([code(&mut h, phy.0), code(&mut h, phy.0), code(&mut h, 99)], [0, -2, -2]);
    assert_eq!(ask(&mut h, &table, 1, &one(u32::MAX)).len(), 1);
}

#[test]
fn namespace_and_types_are_set_and_told() {
    let Scene { mut h, .. } = scene();
    let table = table();
    let set = |netns: &str| LcpDefaultNsSet { netns: Text(netns.into()) };
    let namespace = |h: &mut Harness| read::<LcpDefaultNsGetReply>(&ask(h, &table, 1, &LcpDefaultNsGet {})[0]).netns.0;
    ask(&mut h, &table, 1, &set("dataplane"));
    assert_eq!(namespace(&mut h), "dataplane");
    ask(&mut h, &table, 1, &set(""));
    assert_eq!(namespace(&mut h), "");
    let enable = |ethertype| LcpEthertypeEnable { ethertype };
    let code = |h: &mut Harness, number| read::<LcpEthertypeEnableReply>(&ask(h, &table, 1, &enable(number))[0]).retval;
    assert_eq!((code(&mut h, 0x8809), code(&mut h, 0x8809)), (0, 0));
    assert!(code(&mut h, 0x0800) < 0);
    assert_eq!(read::<LcpEthertypeGetReply>(&ask(&mut h, &table, 1, &LcpEthertypeGet {})[0]).ethertypes, [0x88cc, 0x8809]);
}
