//! VPP's messages.

use quiver_api::Message;
use quiver_api::defs::InterfaceIndex;
use quiver_api::module::Text;
use quiver_net::api::Table;
use quiver_net::api::testing::{ask, assert_names, read, table};

use super::*;
use crate::api::*;

fn infos(cir: u32, cb: u64) -> PolicerConfig {
    let action = |r#type| Sse2QosAction { r#type, dscp: 10 };
    PolicerConfig {
        cir,
        cb,
        conform_action: action(Sse2QosActionType::SSE2_QOS_ACTION_API_TRANSMIT),
        exceed_action: action(Sse2QosActionType::SSE2_QOS_ACTION_API_DROP),
        violate_action: action(Sse2QosActionType::SSE2_QOS_ACTION_API_MARK_AND_TRANSMIT),
        ..Default::default()
    }
}

fn retval<M: Message>(s: &mut Scene, table: &Table, m: &M) -> i32 {
    let answer = ask(&mut s.h, table, 1, m);
    i32::from_be_bytes(answer[0][..4].try_into().unwrap())
}

#[test]
fn messages_are_those_of_vpp() {
    let table = table(add);
    assert_names(
        table.catalog(),
        &[
            "policer_bind_dcf516f9",
            "policer_bind_v2_f87bd3c0",
            "policer_input_233f0ef5",
            "policer_input_v2_8388eb84",
            "policer_output_233f0ef5",
            "policer_output_v2_8388eb84",
            "policer_add_del_2b31dd38",
            "policer_add_del_reply_a177cef2",
            "policer_add_4d949e35",
            "policer_add_reply_a177cef2",
            "policer_del_7ff7912e",
            "policer_update_fd039ef0",
            "policer_reset_7ff7912e",
            "policer_dump_35f1ae0f",
            "policer_dump_v2_7ff7912e",
            "policer_details_72d0e248",
            "ip_punt_police_db867cea",
        ],
    );
    let mut s = scene();
    let all = PolicerDumpV2 { policer_index: u32::MAX };
    let added = ask(&mut s.h, &table, 1, &PolicerAdd { name: Text("a".into()), infos: infos(80, 1000) });
    assert_eq!(read::<PolicerAddReply>(&added[0]), PolicerAddReply { retval: 0, policer_index: 0 });
    assert_eq!(retval(&mut s, &table, &PolicerAdd { name: Text("a".into()), infos: infos(80, 1000) }), -81);
    assert_eq!(retval(&mut s, &table, &PolicerAdd { name: Text("b".into()), infos: infos(0, 1000) }), -7);
    let details = read::<PolicerDetails>(&ask(&mut s.h, &table, 1, &all)[0]);
    assert_eq!((details.name.as_str(), details.cir, details.cb, details.violate_action.dscp), ("a", 80, 1000, 10));
    assert_eq!((details.single_rate, details.current_limit), (true, details.current_bucket));

    let x0 = s.interface("x0").0;
    let sw_if_index = || InterfaceIndex(x0);
    let input = |apply| PolicerInputV2 { policer_index: 0, sw_if_index: sw_if_index(), apply };
    let output = |name: &str| PolicerOutput { name: Text(name.into()), sw_if_index: sw_if_index(), apply: true };
    assert_eq!(retval(&mut s, &table, &input(true)), 0);
    assert_eq!([output("a"), output("z")].map(|m| retval(&mut s, &table, &m)), [0, -6]);
    let nowhere = PolicerInputV2 { policer_index: 0, sw_if_index: InterfaceIndex(77), apply: true };
    assert_eq!(retval(&mut s, &table, &nowhere), -2);
    assert_eq!(retval(&mut s, &table, &PolicerUpdate { policer_index: 0, infos: infos(90, 2000) }), 0);
    assert_eq!(retval(&mut s, &table, &PolicerBindV2 { policer_index: 0, worker_index: 0, bind_enable: true }), 0);
    assert_eq!(retval(&mut s, &table, &PolicerBind { name: Text("a".into()), worker_index: 5, bind_enable: true }), -89);
    assert_eq!(retval(&mut s, &table, &PolicerReset { policer_index: 0 }), 0);
    assert_eq!(retval(&mut s, &table, &IpPuntPolice { policer_index: 0, is_add: true, is_ip6: true }), 0);
    assert_eq!(retval(&mut s, &table, &PolicerDel { policer_index: 0 }), -147, "it is in use");
    assert_eq!(retval(&mut s, &table, &IpPuntPolice { policer_index: 0, is_add: false, is_ip6: true }), 0);
    assert_eq!(retval(&mut s, &table, &input(false)), 0);
    let output = PolicerOutputV2 { policer_index: 0, sw_if_index: sw_if_index(), apply: false };
    assert_eq!(retval(&mut s, &table, &output), 0);
    assert_eq!(retval(&mut s, &table, &PolicerDel { policer_index: 0 }), 0);
    assert_eq!(retval(&mut s, &table, &PolicerDel { policer_index: 0 }), -6);
    assert!(ask(&mut s.h, &table, 1, &all).is_empty());
    let named = PolicerAddDel { is_add: true, name: Text("n".into()), cir: 1, cb: 1, ..Default::default() };
    assert_eq!(retval(&mut s, &table, &named), 0);
    let dump = |name: &str| PolicerDump { match_name_valid: true, match_name: Text(name.into()) };
    assert_eq!([dump("n"), dump("m")].map(|m| ask(&mut s.h, &table, 1, &m).len()), [1, 0]);
    assert_eq!(retval(&mut s, &table, &PolicerAddDel { is_add: false, ..named }), 0);
}
