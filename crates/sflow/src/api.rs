//! `sflow`: the messages of VPP. Names of fields are VPP's, as a message's number depends on them.
#![allow(non_snake_case)]

use quiver_api::defs::InterfaceIndex;
use quiver_api::module;
use quiver_api::module::*;
use quiver_command::operation::{OpError, retval};
use quiver_net::Router;
use quiver_net::api::{Handlers, index_of, perform, reference};
use quiver_net::interface::ops::Direction;
use quiver_net::ops::done;

use crate::control::Sflow;
use crate::ops::{SetDirection, SetHeader, SetInterface, SetPolling, SetRate};

module! {
    sflow "0.1.0"
    messages {
        client SflowEnableDisable "sflow_enable_disable" -> sflow_enable_disable_reply { enable_disable: bool, hw_if_index: InterfaceIndex }
        context SflowEnableDisableReply "sflow_enable_disable_reply" { retval: i32 }
        client SflowSamplingRateGet "sflow_sampling_rate_get" -> sflow_sampling_rate_get_reply {  }
        context SflowSamplingRateGetReply "sflow_sampling_rate_get_reply" { sampling_N: u32 }
        client SflowSamplingRateSet "sflow_sampling_rate_set" -> sflow_sampling_rate_set_reply { sampling_N: u32 => "10000" }
        context SflowSamplingRateSetReply "sflow_sampling_rate_set_reply" { retval: i32 }
        client SflowPollingIntervalSet "sflow_polling_interval_set" -> sflow_polling_interval_set_reply { polling_S: u32 => "20" }
        context SflowPollingIntervalSetReply "sflow_polling_interval_set_reply" { retval: i32 }
        client SflowPollingIntervalGet "sflow_polling_interval_get" -> sflow_polling_interval_get_reply {  }
        context SflowPollingIntervalGetReply "sflow_polling_interval_get_reply" { polling_S: u32 }
        client SflowHeaderBytesSet "sflow_header_bytes_set" -> sflow_header_bytes_set_reply { header_B: u32 => "128" }
        context SflowHeaderBytesSetReply "sflow_header_bytes_set_reply" { retval: i32 }
        client SflowHeaderBytesGet "sflow_header_bytes_get" -> sflow_header_bytes_get_reply {  }
        context SflowHeaderBytesGetReply "sflow_header_bytes_get_reply" { header_B: u32 }
        client SflowDirectionSet "sflow_direction_set" -> sflow_direction_set_reply { sampling_D: u32 }
        context SflowDirectionSetReply "sflow_direction_set_reply" { retval: i32 }
        client SflowDirectionGet "sflow_direction_get" -> sflow_direction_get_reply {  }
        context SflowDirectionGetReply "sflow_direction_get_reply" { sampling_D: u32 }
        client SflowInterfaceDump "sflow_interface_dump" => sflow_interface_details { hw_if_index: InterfaceIndex => "4294967295" }
        context SflowInterfaceDetails "sflow_interface_details" { hw_if_index: InterfaceIndex }
    }
}

/// All interfaces.
const ALL: u32 = u32::MAX;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.module(sflow());
    handlers.act::<SflowEnableDisable, SflowEnableDisableReply>(|router, m| {
        index_of(router, &m.hw_if_index)?;
        let request = SetInterface { interface: reference(router, &m.hw_if_index)?, disable: !m.enable_disable };
        done(perform::<SetInterface>(router, request)?)
    });
    handlers.act::<SflowSamplingRateSet, SflowSamplingRateSetReply>(|router, m| {
        done(perform::<SetRate>(router, SetRate { n: m.sampling_N })?)
    });
    handlers.act::<SflowPollingIntervalSet, SflowPollingIntervalSetReply>(|router, m| {
        done(perform::<SetPolling>(router, SetPolling { seconds: m.polling_S })?)
    });
    handlers.act::<SflowHeaderBytesSet, SflowHeaderBytesSetReply>(|router, m| {
        done(perform::<SetHeader>(router, SetHeader { bytes: m.header_B })?)
    });
    handlers.act::<SflowDirectionSet, SflowDirectionSetReply>(|router, m| {
        let direction = match m.sampling_D {
            1 => Direction::Rx,
            2 => Direction::Tx,
            3 => Direction::Both,
            other => {
                let error = OpError::new(retval::INVALID_VALUE, "no such direction").key("sampling_D").value(other);
                return Err(error.remedy("use 1 for rx, 2 for tx, 3 for both"));
            }
        };
        done(perform::<SetDirection>(router, SetDirection { direction })?)
    });
    handlers.get::<SflowSamplingRateGet, SflowSamplingRateGetReply>(|router, _| {
        Ok(SflowSamplingRateGetReply { sampling_N: router.state::<Sflow>()?.params().rate })
    });
    handlers.get::<SflowPollingIntervalGet, SflowPollingIntervalGetReply>(|router, _| {
        Ok(SflowPollingIntervalGetReply { polling_S: router.state::<Sflow>()?.params().polling })
    });
    handlers.get::<SflowHeaderBytesGet, SflowHeaderBytesGetReply>(|router, _| {
        Ok(SflowHeaderBytesGetReply { header_B: router.state::<Sflow>()?.params().header })
    });
    handlers.get::<SflowDirectionGet, SflowDirectionGetReply>(|router, _| {
        let sampling_D = match router.state::<Sflow>()?.params().direction {
            Direction::Rx => 1,
            Direction::Tx => 2,
            Direction::Both => 3,
        };
        Ok(SflowDirectionGetReply { sampling_D })
    });
    handlers.dump::<SflowInterfaceDump>(|router: &mut Router, m, send| {
        let Ok(state) = router.state::<Sflow>() else { return };
        for index in state.interfaces().filter(|index| [ALL, index.0].contains(&m.hw_if_index.0)) {
            send(&SflowInterfaceDetails { hw_if_index: InterfaceIndex(index.0) });
        }
    });
}
