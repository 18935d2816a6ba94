//! VPP's messages.

use quiver_api::Message;
use quiver_api::defs::{InterfaceIndex, IpProto};
use quiver_api::module::Text;
use quiver_net::api::Table;
use quiver_net::api::testing::{ask, assert_names, read, table};

use super::*;
use crate::api::*;

fn retval<M: Message>(s: &mut Scene, table: &Table, m: &M) -> i32 {
    let answer = ask(&mut s.h, table, 1, m);
    i32::from_be_bytes(answer[0][..4].try_into().unwrap())
}

fn rule(action: AclAction, proto: u8) -> AclRule {
    AclRule {
        is_permit: action,
        src_prefix: quiver_net::api::prefix([10, 0, 0, 0].into(), 24),
        dst_prefix: quiver_net::api::prefix([0, 0, 0, 0].into(), 0),
        proto: IpProto(proto),
        srcport_or_icmptype_last: 65535,
        dstport_or_icmpcode_first: 53,
        dstport_or_icmpcode_last: 53,
        ..Default::default()
    }
}

#[test]
fn messages_are_those_of_vpp() {
    let table = table(add);
    assert_names(
        table.catalog(),
        &[
            "acl_plugin_get_version_51077d14",
            "acl_plugin_get_version_reply_9b32cf86",
            "acl_plugin_control_ping_51077d14",
            "acl_plugin_control_ping_reply_f6b0b8ca",
            "acl_plugin_get_conn_table_max_entries_51077d14",
            "acl_plugin_get_conn_table_max_entries_reply_7a096d3d",
            "acl_add_replace_ee5c2f18",
            "acl_add_replace_reply_ac407b0c",
            "acl_del_ef34fea4",
            "acl_del_reply_e8d4e804",
            "acl_interface_add_del_4b54bebd",
            "acl_interface_set_acl_list_473982bd",
            "acl_dump_ef34fea4",
            "acl_details_95babae0",
            "acl_interface_list_dump_f9e6675e",
            "acl_interface_list_details_e695d256",
            "acl_interface_set_etype_whitelist_3f5c2d2d",
            "acl_interface_etype_whitelist_dump_f9e6675e",
            "acl_interface_etype_whitelist_details_cc2bfded",
            "acl_stats_intf_counters_enable_b3e225d2",
            "acl_plugin_use_hash_lookup_set_b3e225d2",
            "acl_plugin_use_hash_lookup_get_51077d14",
            "acl_plugin_use_hash_lookup_get_reply_5392ad31",
        ],
    );
    let mut s = scene();
    let r = vec![rule(AclAction::ACL_ACTION_API_PERMIT_REFLECT, 17), rule(AclAction::ACL_ACTION_API_DENY, 0)];
    let new = |acl_index| AclAddReplace { acl_index, tag: Text("a".into()), count: 0, r: r.clone() };
    let made = |s: &mut Scene, index| read::<AclAddReplaceReply>(&ask(&mut s.h, &table, 1, &new(index))[0]);
    assert_eq!(made(&mut s, u32::MAX), AclAddReplaceReply { acl_index: 0, retval: 0 });
    assert_eq!(made(&mut s, u32::MAX).acl_index, 1);
    assert_eq!(made(&mut s, 1), AclAddReplaceReply { acl_index: 1, retval: 0 });
    assert_eq!(made(&mut s, 7).retval, -6);
    let details = ask(&mut s.h, &table, 1, &AclDump { acl_index: u32::MAX });
    let details: Vec<AclDetails> = details.iter().map(|answer| read(answer)).collect();
    assert_eq!(details.iter().map(|one| (one.acl_index, one.r.len())).collect::<Vec<_>>(), [(0, 2), (1, 2)]);
    assert_eq!(details[0].r[0], r[0]);
    assert_eq!(details[0].r[1].dstport_or_icmpcode_last, 65535, "ports of no protocol are ignored");
    let index = s.interface("x0").0;
    let x0 = || InterfaceIndex(index);
    let set = |acls: &[u32], n_input| AclInterfaceSetAclList { sw_if_index: x0(), count: 0, n_input, acls: acls.to_vec() };
    assert_eq!(retval(&mut s, &table, &set(&[0, 1, 1], 2)), 0);
    assert_eq!(retval(&mut s, &table, &set(&[0, 0], 2)), -116);
    assert_eq!(retval(&mut s, &table, &set(&[0, 1], 3)), -7);
    assert_eq!(retval(&mut s, &table, &set(&[9], 1)), -6);
    let dump = AclInterfaceListDump { sw_if_index: x0() };
    let shown = read::<AclInterfaceListDetails>(&ask(&mut s.h, &table, 1, &dump)[0]);
    assert_eq!((shown.n_input, shown.acls), (2, vec![0, 1, 1]));
    assert_eq!(retval(&mut s, &table, &AclDel { acl_index: 0 }), -142);
    assert_eq!(retval(&mut s, &table, &set(&[1], 0)), 0);
    assert_eq!(retval(&mut s, &table, &AclDel { acl_index: 1 }), -143);
    assert_eq!(retval(&mut s, &table, &AclDel { acl_index: 0 }), 0);
    assert_eq!(retval(&mut s, &table, &AclDel { acl_index: 0 }), -6);
    let one = AclInterfaceAddDel { is_add: false, is_input: false, sw_if_index: x0(), acl_index: 1 };
    assert_eq!(retval(&mut s, &table, &one), 0);
    assert_eq!(retval(&mut s, &table, &one), -6);
    let types = AclInterfaceSetEtypeWhitelist { sw_if_index: x0(), count: 0, n_input: 1, whitelist: vec![0x0bbb, 0x0806] };
    assert_eq!(retval(&mut s, &table, &types), 0);
    let shown = ask(&mut s.h, &table, 1, &AclInterfaceEtypeWhitelistDump { sw_if_index: x0() });
    let shown = read::<AclInterfaceEtypeWhitelistDetails>(&shown[0]);
    assert_eq!((shown.n_input, shown.whitelist), (1, vec![0x0bbb, 0x0806]));
    assert_eq!(retval(&mut s, &table, &AclStatsIntfCountersEnable { enable: false }), 0);
    assert!(s.run("show acl-plugin settings").contains("counters enabled for interface ACLs: 0"));
    let version = read::<AclPluginGetVersionReply>(&ask(&mut s.h, &table, 1, &AclPluginGetVersion {})[0]);
    assert_eq!((version.major, version.minor), (1, 4));
}
