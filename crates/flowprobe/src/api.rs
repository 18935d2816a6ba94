//! `flowprobe` and `ipfix_export`: the messages of VPP.

use quiver_api::defs::{Address, InterfaceIndex};
use quiver_command::operation::{OpError, retval};
use quiver_graph::IfIndex;
use quiver_ipfix::exporter::{self as collector, Exporter};
use quiver_net::Router;
use quiver_net::api::{Flow, Handlers, address, from_address, index_of, perform, reference};
use quiver_net::interface::ops::Direction;
use quiver_net::ops::done;

use crate::control::Flowprobe;
use crate::flows::Params;
use crate::key::Record;
use crate::ops::{Flush, SetExporter, SetFeature, SetParams, Which};

pub mod probe {
    use quiver_api::defs::InterfaceIndex;
    use quiver_api::module;
    use quiver_api::module::*;

    module! {
        flowprobe "2.1.0"
        enums {
            FlowprobeWhichFlags "flowprobe_which_flags": u8 { FLOWPROBE_WHICH_FLAG_IP4 = 1, FLOWPROBE_WHICH_FLAG_L2 = 2, FLOWPROBE_WHICH_FLAG_IP6 = 4 }
            FlowprobeWhich "flowprobe_which": u8 { FLOWPROBE_WHICH_IP4 = 0, FLOWPROBE_WHICH_IP6 = 1, FLOWPROBE_WHICH_L2 = 2 }
            FlowprobeRecordFlags "flowprobe_record_flags": u8 { FLOWPROBE_RECORD_FLAG_L2 = 1, FLOWPROBE_RECORD_FLAG_L3 = 2, FLOWPROBE_RECORD_FLAG_L4 = 4 }
            FlowprobeDirection "flowprobe_direction": u8 { FLOWPROBE_DIRECTION_RX = 0, FLOWPROBE_DIRECTION_TX = 1, FLOWPROBE_DIRECTION_BOTH = 2 }
        }
        messages {
            client FlowprobeTxInterfaceAddDel "flowprobe_tx_interface_add_del" -> flowprobe_tx_interface_add_del_reply { is_add: bool, which: FlowprobeWhichFlags, sw_if_index: InterfaceIndex }
            context FlowprobeTxInterfaceAddDelReply "flowprobe_tx_interface_add_del_reply" { retval: i32 }
            client FlowprobeInterfaceAddDel "flowprobe_interface_add_del" -> flowprobe_interface_add_del_reply { is_add: bool, which: FlowprobeWhich, direction: FlowprobeDirection, sw_if_index: InterfaceIndex }
            context FlowprobeInterfaceAddDelReply "flowprobe_interface_add_del_reply" { retval: i32 }
            client FlowprobeInterfaceDump "flowprobe_interface_dump" => flowprobe_interface_details { sw_if_index: InterfaceIndex => "4294967295" }
            context FlowprobeInterfaceDetails "flowprobe_interface_details" { which: FlowprobeWhich, direction: FlowprobeDirection, sw_if_index: InterfaceIndex }
            client FlowprobeParams "flowprobe_params" -> flowprobe_params_reply { record_flags: FlowprobeRecordFlags, active_timer: u32, passive_timer: u32 }
            context FlowprobeParamsReply "flowprobe_params_reply" { retval: i32 }
            client FlowprobeSetParams "flowprobe_set_params" -> flowprobe_set_params_reply { record_flags: FlowprobeRecordFlags, active_timer: u32 => "4294967295", passive_timer: u32 => "4294967295" }
            context FlowprobeSetParamsReply "flowprobe_set_params_reply" { retval: i32 }
            client FlowprobeGetParams "flowprobe_get_params" -> flowprobe_get_params_reply {  }
            context FlowprobeGetParamsReply "flowprobe_get_params_reply" { retval: i32, record_flags: FlowprobeRecordFlags, active_timer: u32, passive_timer: u32 }
        }
    }
}

pub mod export {
    use quiver_api::defs::Address;
    use quiver_api::module;
    use quiver_api::module::*;

    module! {
        ipfix_export "2.0.3"
        messages {
            client SetIpfixExporter "set_ipfix_exporter" -> set_ipfix_exporter_reply { collector_address: Address, collector_port: u16, src_address: Address, vrf_id: u32, path_mtu: u32, template_interval: u32, udp_checksum: bool }
            context SetIpfixExporterReply "set_ipfix_exporter_reply" { retval: i32 }
            client IpfixExporterDump "ipfix_exporter_dump" => ipfix_exporter_details {  }
            context IpfixExporterDetails "ipfix_exporter_details" { collector_address: Address, collector_port: u16, src_address: Address, vrf_id: u32, path_mtu: u32, template_interval: u32, udp_checksum: bool }
            client IpfixAllExporterGet "ipfix_all_exporter_get" -> ipfix_all_exporter_get_reply => ipfix_all_exporter_details { cursor: u32 }
            context IpfixAllExporterGetReply "ipfix_all_exporter_get_reply" { retval: i32, cursor: u32 }
            context IpfixAllExporterDetails "ipfix_all_exporter_details" { collector_address: Address, collector_port: u16, src_address: Address, vrf_id: u32, path_mtu: u32, template_interval: u32, udp_checksum: bool }
            client IpfixFlush "ipfix_flush" -> ipfix_flush_reply {  }
            context IpfixFlushReply "ipfix_flush_reply" { retval: i32 }
        }
    }
}

pub use export::*;
pub use probe::*;

/// All interfaces, or a value that is not given.
const NONE: u32 = u32::MAX;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.module(flowprobe());
    handlers.module(ipfix_export());
    handlers.act::<FlowprobeTxInterfaceAddDel, FlowprobeTxInterfaceAddDelReply>(|router, m| {
        // The handler of VPP takes the flag for the number that the newer message has; either is understood here.
        let which = match m.which {
            FlowprobeWhichFlags::FLOWPROBE_WHICH_FLAG_IP6 => Which::Ip6,
            FlowprobeWhichFlags::FLOWPROBE_WHICH_FLAG_L2 => Which::L2,
            FlowprobeWhichFlags::FLOWPROBE_WHICH_FLAG_IP4 | FlowprobeWhichFlags(0) => Which::Ip4,
            _ => return Err(OpError::new(retval::INVALID_VALUE, "one kind of packets must be named").key("which")),
        };
        feature(router, &m.sw_if_index, which, Direction::Tx, m.is_add)
    });
    handlers.act::<FlowprobeInterfaceAddDel, FlowprobeInterfaceAddDelReply>(|router, m| {
        let which = match m.which {
            FlowprobeWhich::FLOWPROBE_WHICH_IP4 => Which::Ip4,
            FlowprobeWhich::FLOWPROBE_WHICH_IP6 => Which::Ip6,
            FlowprobeWhich::FLOWPROBE_WHICH_L2 => Which::L2,
            _ => return Err(OpError::new(retval::INVALID_VALUE, "no such kind of packets").key("which")),
        };
        let direction = match m.direction {
            FlowprobeDirection::FLOWPROBE_DIRECTION_RX => Direction::Rx,
            FlowprobeDirection::FLOWPROBE_DIRECTION_TX => Direction::Tx,
            FlowprobeDirection::FLOWPROBE_DIRECTION_BOTH => Direction::Both,
            _ => return Err(OpError::new(retval::INVALID_VALUE, "no such direction").key("direction")),
        };
        feature(router, &m.sw_if_index, which, direction, m.is_add)
    });
    handlers.dump::<FlowprobeInterfaceDump>(|router, m, send| {
        let Ok(state) = router.state::<Flowprobe>() else { return };
        for (index, which, direction) in state.features().filter(|(index, ..)| [NONE, index.0].contains(&m.sw_if_index.0)) {
            send(&details(index, which, direction));
        }
    });
    handlers.act::<FlowprobeParams, FlowprobeParamsReply>(|router, m| {
        let timer = |value: u32| match value {
            0 => None,
            NONE => Some(0),
            seconds => Some(seconds),
        };
        params(router, m.record_flags, timer(m.active_timer), timer(m.passive_timer))
    });
    handlers.act::<FlowprobeSetParams, FlowprobeSetParamsReply>(|router, m| {
        let timer = |value: u32| Some(value).filter(|value| *value != NONE);
        params(router, m.record_flags, timer(m.active_timer), timer(m.passive_timer))
    });
    handlers.get::<FlowprobeGetParams, FlowprobeGetParamsReply>(|router, _| {
        let Params { record, active, passive, .. } = *router.state::<Flowprobe>()?.params();
        let record_flags = FlowprobeRecordFlags(record.bits());
        Ok(FlowprobeGetParamsReply { retval: 0, record_flags, active_timer: active, passive_timer: passive })
    });
    exporters(handlers);
}

fn exporters(handlers: &mut Handlers) {
    handlers.act::<SetIpfixExporter, SetIpfixExporterReply>(|router, m| {
        let not = |key, value: u32, text| Err(OpError::new(retval::INVALID_VALUE, text).key(key).value(value));
        let Ok(path_mtu) = u16::try_from(m.path_mtu) else { return not("path_mtu", m.path_mtu, "more than a packet can have") };
        let src = from_address(&m.src_address);
        let request = SetExporter {
            collector: from_address(&m.collector_address),
            port: if m.collector_port == u16::MAX { Exporter::NONE.port } else { m.collector_port },
            src: Some(src).filter(|src| !src.is_unspecified()),
            fib_id: if m.vrf_id == NONE { 0 } else { m.vrf_id },
            path_mtu: if m.path_mtu == 0 { Exporter::NONE.path_mtu } else { path_mtu },
            template_interval: if m.template_interval == 0 { Exporter::NONE.template_interval } else { m.template_interval },
            udp_checksum: m.udp_checksum,
        };
        done(perform::<SetExporter>(router, request)?)
    });
    handlers.dump::<IpfixExporterDump>(|router, _, send| {
        // As in VPP: there is always one, of zeros where nobody collects.
        let IpfixAllExporterDetails {
            collector_address,
            collector_port,
            src_address,
            vrf_id,
            path_mtu,
            template_interval,
            udp_checksum,
        } = exporter(&collector::current(router).unwrap_or(Exporter::NONE));
        send(&IpfixExporterDetails {
            collector_address,
            collector_port,
            src_address,
            vrf_id,
            path_mtu,
            template_interval,
            udp_checksum,
        });
    });
    handlers.call::<IpfixAllExporterGet>(|call, m| {
        let known = collector::current(call.router).filter(|_| m.cursor == 0);
        if let Some(known) = known {
            call.send(&exporter(&known));
        }
        call.send(&IpfixAllExporterGetReply { retval: 0, cursor: NONE });
        Flow::Done
    });
    handlers.reads::<IpfixAllExporterGet>();
    handlers.act::<IpfixFlush, IpfixFlushReply>(|router, _| done(perform::<Flush>(router, Flush {})?));
}

fn exporter(known: &Exporter) -> IpfixAllExporterDetails {
    let to = |ip| -> Address { address(ip) };
    IpfixAllExporterDetails {
        collector_address: to(known.collector),
        collector_port: known.port,
        src_address: to(known.src),
        vrf_id: known.table,
        path_mtu: known.path_mtu.into(),
        template_interval: known.template_interval,
        udp_checksum: known.udp_checksum,
    }
}

fn feature(router: &mut Router, index: &InterfaceIndex, which: Which, direction: Direction, on: bool) -> Result<(), OpError> {
    index_of(router, index)?;
    let request = SetFeature { interface: reference(router, index)?, which, direction, disable: !on };
    done(perform::<SetFeature>(router, request)?)
}

/// Sets what is recorded; what a message does not give has its default. The rate of sampling stays, as no message says one.
fn params(router: &mut Router, flags: FlowprobeRecordFlags, active: Option<u32>, passive: Option<u32>) -> Result<(), OpError> {
    let Params { active: usual_active, passive: usual_passive, .. } = Params::default();
    let params = Params {
        record: Record::from_bits(flags.0),
        active: active.unwrap_or(usual_active),
        passive: passive.unwrap_or(usual_passive),
        sample: router.state::<Flowprobe>()?.params().sample,
    };
    done(perform::<SetParams>(router, SetParams::of(&params))?)
}

fn details(index: IfIndex, which: Which, direction: Direction) -> FlowprobeInterfaceDetails {
    FlowprobeInterfaceDetails {
        which: match which {
            Which::Ip4 => FlowprobeWhich::FLOWPROBE_WHICH_IP4,
            Which::Ip6 => FlowprobeWhich::FLOWPROBE_WHICH_IP6,
            Which::L2 => FlowprobeWhich::FLOWPROBE_WHICH_L2,
        },
        direction: match direction {
            Direction::Rx => FlowprobeDirection::FLOWPROBE_DIRECTION_RX,
            Direction::Tx => FlowprobeDirection::FLOWPROBE_DIRECTION_TX,
            Direction::Both => FlowprobeDirection::FLOWPROBE_DIRECTION_BOTH,
        },
        sw_if_index: InterfaceIndex(index.0),
    }
}
