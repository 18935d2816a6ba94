//! The messages of the binary API.

use quiver_api::Catalog;
use quiver_api::defs::InterfaceIndex;
use quiver_net::api::address;
use quiver_net::api::testing::{ask, assert_names, read, table};

use super::*;
use crate::api::*;

#[test]
fn numbers_of_messages_are_those_of_vpp() {
    let names = [
        "flowprobe_tx_interface_add_del_b782c976",
        "flowprobe_tx_interface_add_del_reply_e8d4e804",
        "flowprobe_interface_add_del_3420739c",
        "flowprobe_interface_add_del_reply_e8d4e804",
        "flowprobe_interface_dump_f9e6675e",
        "flowprobe_interface_details_427d77e0",
        "flowprobe_params_baa46c09",
        "flowprobe_params_reply_e8d4e804",
        "flowprobe_set_params_baa46c09",
        "flowprobe_set_params_reply_e8d4e804",
        "flowprobe_get_params_51077d14",
        "flowprobe_get_params_reply_f350d621",
        "set_ipfix_exporter_5530c8a0",
        "set_ipfix_exporter_reply_e8d4e804",
        "ipfix_exporter_dump_51077d14",
        "ipfix_exporter_details_0dedbfe4",
        "ipfix_all_exporter_get_f75ba505",
        "ipfix_all_exporter_get_reply_53b48f5d",
        "ipfix_all_exporter_details_0dedbfe4",
        "ipfix_flush_51077d14",
        "ipfix_flush_reply_e8d4e804",
    ];
    assert_names(&Catalog::of([flowprobe(), ipfix_export()]), &names);
}

#[test]
fn messages_do_what_commands_do() {
    let mut h = bare(0);
    run(&mut h, "set interface ip address x2 10.0.2.1/24");
    let table = table(add);
    let x0 = index(&h, "x0").0;
    let exporter = SetIpfixExporter {
        collector_address: address("10.0.2.2".parse().unwrap()),
        collector_port: 2055,
        src_address: address("10.0.2.1".parse().unwrap()),
        vrf_id: u32::MAX,
        path_mtu: 1450,
        template_interval: 10,
        udp_checksum: true,
    };
    let reply: SetIpfixExporterReply = read(&ask(&mut h, &table, 1, &exporter)[0]);
    assert_eq!(reply.retval, 0);
    let details: IpfixExporterDetails = read(&ask(&mut h, &table, 1, &IpfixExporterDump {})[0]);
    assert_eq!(
        (details.collector_address, details.collector_port, details.path_mtu),
        (exporter.collector_address.clone(), 2055, 1450)
    );
    let got = ask(&mut h, &table, 1, &IpfixAllExporterGet { cursor: 0 });
    assert_eq!(read::<IpfixAllExporterDetails>(&got[0]).template_interval, 10);
    assert_eq!(read::<IpfixAllExporterGetReply>(&got[1]).cursor, u32::MAX);
    let too_long = SetIpfixExporter { path_mtu: 1500, ..exporter };
    assert!(read::<SetIpfixExporterReply>(&ask(&mut h, &table, 1, &too_long)[0]).retval < 0);

    let on = FlowprobeInterfaceAddDel {
        is_add: true,
        which: FlowprobeWhich::FLOWPROBE_WHICH_IP6,
        direction: FlowprobeDirection::FLOWPROBE_DIRECTION_BOTH,
        sw_if_index: InterfaceIndex(x0),
    };
    assert!(read::<FlowprobeInterfaceAddDelReply>(&ask(&mut h, &table, 1, &on)[0]).retval < 0, "nothing to record yet");
    let params = FlowprobeSetParams { record_flags: FlowprobeRecordFlags(6), active_timer: 5, passive_timer: u32::MAX };
    assert_eq!(read::<FlowprobeSetParamsReply>(&ask(&mut h, &table, 1, &params)[0]).retval, 0);
    let got: FlowprobeGetParamsReply = read(&ask(&mut h, &table, 1, &FlowprobeGetParams {})[0]);
    assert_eq!((got.record_flags.0, got.active_timer, got.passive_timer), (6, 5, 120));
    assert_eq!(read::<FlowprobeInterfaceAddDelReply>(&ask(&mut h, &table, 1, &on)[0]).retval, 0);
    let dump = FlowprobeInterfaceDump { sw_if_index: InterfaceIndex(u32::MAX) };
    let shown: FlowprobeInterfaceDetails = read(&ask(&mut h, &table, 1, &dump)[0]);
    assert_eq!((&shown.which, &shown.direction, &shown.sw_if_index), (&on.which, &on.direction, &on.sw_if_index));
    let off = FlowprobeInterfaceAddDel { is_add: false, ..on };
    assert_eq!(read::<FlowprobeInterfaceAddDelReply>(&ask(&mut h, &table, 1, &off)[0]).retval, 0);
    assert!(ask(&mut h, &table, 1, &dump).is_empty());
    let older = FlowprobeTxInterfaceAddDel {
        is_add: true,
        which: FlowprobeWhichFlags::FLOWPROBE_WHICH_FLAG_L2,
        sw_if_index: InterfaceIndex(x0),
    };
    assert_eq!(read::<FlowprobeTxInterfaceAddDelReply>(&ask(&mut h, &table, 1, &older)[0]).retval, 0);
    assert_eq!(run(&mut h, "show flowprobe feature"), " x0 l2 tx\n");
    // The older message has 0 for the usual timeouts, and all ones for none.
    let older = FlowprobeParams { record_flags: FlowprobeRecordFlags(1), active_timer: 0, passive_timer: u32::MAX };
    assert!(read::<FlowprobeParamsReply>(&ask(&mut h, &table, 1, &older)[0]).retval == 0);
    assert_eq!(run(&mut h, "show flowprobe params"), " l2 active: 15 passive: 0\n");
    assert_eq!(read::<IpfixFlushReply>(&ask(&mut h, &table, 1, &IpfixFlush {})[0]).retval, 0);
}
