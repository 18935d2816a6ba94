//! `classify`: the messages of VPP.

use quiver_api::defs::InterfaceIndex;
use quiver_api::module;
use quiver_api::module::*;
use quiver_command::operation::{OpError, Outcome, retval};
use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::api::{Handlers, index_of, perform};
use quiver_net::ops::done;

use crate::ops::{Action, ChangeSession, ChangeTable, Mask, Match, Next, Signed, set};
use crate::view::{FilterOf, NONE, Place, VECTOR};
use crate::{control, filter};

module! {
    classify "3.1.0"
    enums {
        ClassifyAction "classify_action": u8 { CLASSIFY_API_ACTION_NONE = 0, CLASSIFY_API_ACTION_SET_IP4_FIB_INDEX = 1, CLASSIFY_API_ACTION_SET_IP6_FIB_INDEX = 2, CLASSIFY_API_ACTION_SET_METADATA = 3 }
    }
    messages {
        client ClassifyAddDelTable "classify_add_del_table" -> classify_add_del_table_reply { is_add: bool, del_chain: bool, table_index: u32 => "4294967295", nbuckets: u32 => "2", memory_size: u32 => "2097152", skip_n_vectors: u32 => "0", match_n_vectors: u32 => "1", next_table_index: u32 => "4294967295", miss_next_index: u32 => "4294967295", current_data_flag: u8 => "0", current_data_offset: i16 => "0", mask_len: u32, mask: Vec<u8> = mask_len }
        context ClassifyAddDelTableReply "classify_add_del_table_reply" { retval: i32, new_table_index: u32, skip_n_vectors: u32, match_n_vectors: u32 }
        client ClassifyAddDelSession "classify_add_del_session" -> classify_add_del_session_reply { is_add: bool, table_index: u32, hit_next_index: u32 => "4294967295", opaque_index: u32 => "4294967295", advance: i32 => "0", action: ClassifyAction => "0", metadata: u32 => "0", match_len: u32, r#match: Vec<u8> = match_len }
        context ClassifyAddDelSessionReply "classify_add_del_session_reply" { retval: i32 }
        client ClassifyTableIds "classify_table_ids" -> classify_table_ids_reply {  }
        context ClassifyTableIdsReply "classify_table_ids_reply" { retval: i32, count: u32, ids: Vec<u32> = count }
        client ClassifyTableByInterface "classify_table_by_interface" -> classify_table_by_interface_reply { sw_if_index: InterfaceIndex }
        context ClassifyTableByInterfaceReply "classify_table_by_interface_reply" { retval: i32, sw_if_index: InterfaceIndex, l2_table_id: u32, ip4_table_id: u32, ip6_table_id: u32 }
        client ClassifyTableInfo "classify_table_info" -> classify_table_info_reply { table_id: u32 }
        context ClassifyTableInfoReply "classify_table_info_reply" { retval: i32, table_id: u32, nbuckets: u32, match_n_vectors: u32, skip_n_vectors: u32, active_sessions: u32, next_table_index: u32, miss_next_index: u32, mask_length: u32, mask: Vec<u8> = mask_length }
        client ClassifySessionDump "classify_session_dump" => classify_session_details { table_id: u32 }
        context ClassifySessionDetails "classify_session_details" { retval: i32, table_id: u32, hit_next_index: u32, advance: i32, opaque_index: u32, match_length: u32, r#match: Vec<u8> = match_length }
        client InputAclSetInterface "input_acl_set_interface" -> input_acl_set_interface_reply { sw_if_index: InterfaceIndex, ip4_table_index: u32, ip6_table_index: u32, l2_table_index: u32, is_add: bool }
        context InputAclSetInterfaceReply "input_acl_set_interface_reply" { retval: i32 }
        client OutputAclSetInterface "output_acl_set_interface" -> output_acl_set_interface_reply { sw_if_index: InterfaceIndex, ip4_table_index: u32, ip6_table_index: u32, l2_table_index: u32, is_add: bool }
        context OutputAclSetInterfaceReply "output_acl_set_interface_reply" { retval: i32 }
        client PuntAclAddDel "punt_acl_add_del" -> punt_acl_add_del_reply { ip4_table_index: u32 => "4294967295", ip6_table_index: u32 => "4294967295", is_add: bool => "true" }
        context PuntAclAddDelReply "punt_acl_add_del_reply" { retval: i32 }
        client PuntAclGet "punt_acl_get" -> punt_acl_get_reply {  }
        context PuntAclGetReply "punt_acl_get_reply" { retval: i32, ip4_table_index: u32, ip6_table_index: u32 }
        client ClassifyPcapLookupTable "classify_pcap_lookup_table" -> classify_pcap_lookup_table_reply { sw_if_index: InterfaceIndex => "4294967295", skip_n_vectors: u32 => "0", match_n_vectors: u32 => "1", mask_len: u32, mask: Vec<u8> = mask_len }
        context ClassifyPcapLookupTableReply "classify_pcap_lookup_table_reply" { retval: i32, table_index: u32 }
        client ClassifyPcapSetTable "classify_pcap_set_table" -> classify_pcap_set_table_reply { sw_if_index: InterfaceIndex, table_index: u32 => "4294967295", sort_masks: bool => "0" }
        context ClassifyPcapSetTableReply "classify_pcap_set_table_reply" { retval: i32, table_index: u32 }
        client ClassifyPcapGetTables "classify_pcap_get_tables" -> classify_pcap_get_tables_reply { sw_if_index: InterfaceIndex }
        context ClassifyPcapGetTablesReply "classify_pcap_get_tables_reply" { retval: i32, count: u32, indices: Vec<u32> = count }
        client ClassifyTraceLookupTable "classify_trace_lookup_table" -> classify_trace_lookup_table_reply { skip_n_vectors: u32 => "0", match_n_vectors: u32 => "1", mask_len: u32, mask: Vec<u8> = mask_len }
        context ClassifyTraceLookupTableReply "classify_trace_lookup_table_reply" { retval: i32, table_index: u32 }
        client ClassifyTraceSetTable "classify_trace_set_table" -> classify_trace_set_table_reply { table_index: u32 => "4294967295", sort_masks: bool => "0" }
        context ClassifyTraceSetTableReply "classify_trace_set_table_reply" { retval: i32, table_index: u32 }
        client ClassifyTraceGetTables "classify_trace_get_tables" -> classify_trace_get_tables_reply {  }
        context ClassifyTraceGetTablesReply "classify_trace_get_tables_reply" { retval: i32, count: u32, indices: Vec<u32> = count }
    }
}

fn given(number: u32) -> Option<u32> {
    Some(number).filter(|number| *number != NONE)
}

fn wrong(key: &'static str, text: &str) -> OpError {
    OpError::new(retval::INVALID_VALUE, text.to_owned()).key(key)
}

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.module(classify());
    handlers.reply::<ClassifyAddDelTable, ClassifyAddDelTableReply>(change_table);
    handlers.act::<ClassifyAddDelSession, ClassifyAddDelSessionReply>(change_session);
    handlers.get::<ClassifyTableIds, ClassifyTableIdsReply>(|router, _| {
        let ids = router.state::<control::Classify>()?.tables().map(|(number, _)| number).collect();
        Ok(ClassifyTableIdsReply { ids, ..Default::default() })
    });
    handlers.get::<ClassifyTableByInterface, ClassifyTableByInterfaceReply>(|router, m| {
        let index = index_of(router, &m.sw_if_index)?;
        let state = router.state::<control::Classify>()?;
        let of = |place| state.acl(place, index.0).unwrap_or(NONE);
        Ok(ClassifyTableByInterfaceReply {
            retval: 0,
            sw_if_index: m.sw_if_index,
            l2_table_id: of(Place::L2In),
            ip4_table_id: of(Place::Ip4In),
            ip6_table_id: of(Place::Ip6In),
        })
    });
    handlers.get::<ClassifyTableInfo, ClassifyTableInfoReply>(|router, m| {
        let table = router.state::<control::Classify>()?.table(m.table_id)?;
        Ok(ClassifyTableInfoReply {
            retval: 0,
            table_id: m.table_id,
            nbuckets: table.shape.buckets,
            match_n_vectors: table.vectors(),
            skip_n_vectors: table.shape.skip,
            active_sessions: table.sessions().len() as u32,
            next_table_index: table.next.unwrap_or(NONE),
            miss_next_index: table.shape.miss_next,
            mask_length: 0,
            mask: table.shape.mask.clone(),
        })
    });
    handlers.dump::<ClassifySessionDump>(|router, m, send| {
        let Some(table) = router.state::<control::Classify>().ok().and_then(|state| state.table(m.table_id).ok()) else { return };
        let len = table.shape.mask.len();
        for (key, session) in table.sessions() {
            send(&ClassifySessionDetails {
                retval: 0,
                table_id: m.table_id,
                hit_next_index: session.hit_next,
                advance: session.advance,
                opaque_index: session.opaque,
                match_length: 0,
                r#match: key.get(..len).unwrap_or_default().to_vec(),
            });
        }
    });
    acls(handlers);
    filters(handlers);
}

fn filters(handlers: &mut Handlers) {
    handlers.reply::<ClassifyTraceSetTable, ClassifyTraceSetTableReply>(|router, m| {
        let table_index = set_filter(router, FilterOf::Trace, m.table_index, m.sort_masks)?;
        Ok(ClassifyTraceSetTableReply { retval: 0, table_index })
    });
    handlers.get::<ClassifyTraceLookupTable, ClassifyTraceLookupTableReply>(|router, m| {
        let table_index = find_in_filter(router, FilterOf::Trace, m.skip_n_vectors, &m.mask)?;
        Ok(ClassifyTraceLookupTableReply { retval: 0, table_index })
    });
    handlers.get::<ClassifyTraceGetTables, ClassifyTraceGetTablesReply>(|router, _| {
        Ok(ClassifyTraceGetTablesReply { retval: 0, count: 0, indices: tables_of(router, FilterOf::Trace)? })
    });
    handlers.reply::<ClassifyPcapSetTable, ClassifyPcapSetTableReply>(|router, m| {
        let of = capture(router, &m.sw_if_index)?;
        let table_index = set_filter(router, of, m.table_index, m.sort_masks)?;
        Ok(ClassifyPcapSetTableReply { retval: 0, table_index })
    });
    handlers.get::<ClassifyPcapLookupTable, ClassifyPcapLookupTableReply>(|router, m| {
        let of = capture(router, &m.sw_if_index)?;
        let table_index = find_in_filter(router, of, m.skip_n_vectors, &m.mask)?;
        Ok(ClassifyPcapLookupTableReply { retval: 0, table_index })
    });
    handlers.get::<ClassifyPcapGetTables, ClassifyPcapGetTablesReply>(|router, m| {
        let of = capture(router, &m.sw_if_index)?;
        Ok(ClassifyPcapGetTablesReply { retval: 0, count: 0, indices: tables_of(router, of)? })
    });
}

/// Of captures: 0 stands for those that name no interface.
fn capture(router: &Router, index: &InterfaceIndex) -> Result<FilterOf, OpError> {
    if index.0 == 0 {
        return Ok(FilterOf::Capture);
    }
    index_of(router, index).map(|index| FilterOf::Interface(index.0))
}

fn set_filter(router: &mut Router, of: FilterOf, table: u32, sort: bool) -> Result<u32, OpError> {
    let mut first = given(table);
    if let (Some(table), true) = (first, sort) {
        let state = router.state::<control::Classify>()?;
        state.table(table)?;
        let chain = state.chain(table);
        first = filter::sort(router, chain)?;
    }
    filter::set(router, of, first)?;
    Ok(first.unwrap_or(NONE))
}

fn find_in_filter(router: &Router, of: FilterOf, skip: u32, mask: &[u8]) -> Result<u32, OpError> {
    let first = router.state::<control::Classify>()?.filters().get(of);
    Ok(filter::compatible(router, first, skip, mask)?.unwrap_or(NONE))
}

fn tables_of(router: &Router, of: FilterOf) -> Result<Vec<u32>, OpError> {
    let state = router.state::<control::Classify>()?;
    Ok(state.filters().get(of).map(|first| state.chain(first)).unwrap_or_default())
}

fn acls(handlers: &mut Handlers) {
    handlers.act::<InputAclSetInterface, InputAclSetInterfaceReply>(|router, m| {
        let tables = [m.ip4_table_index, m.ip6_table_index, m.l2_table_index];
        set_places(router, &m.sw_if_index, [Place::Ip4In, Place::Ip6In, Place::L2In], tables, m.is_add)
    });
    handlers.act::<OutputAclSetInterface, OutputAclSetInterfaceReply>(|router, m| {
        let tables = [m.ip4_table_index, m.ip6_table_index, m.l2_table_index];
        set_places(router, &m.sw_if_index, [Place::Ip4Out, Place::Ip6Out, Place::L2Out], tables, m.is_add)
    });
    handlers.act::<PuntAclAddDel, PuntAclAddDelReply>(|router, m| {
        let tables = [m.ip4_table_index, m.ip6_table_index];
        set_places(router, &InterfaceIndex(0), [Place::Ip4Punt, Place::Ip6Punt], tables, m.is_add)
    });
    handlers.get::<PuntAclGet, PuntAclGetReply>(|router, _| {
        let state = router.state::<control::Classify>()?;
        let of = |place| state.acl(place, 0).unwrap_or(NONE);
        Ok(PuntAclGetReply { retval: 0, ip4_table_index: of(Place::Ip4Punt), ip6_table_index: of(Place::Ip6Punt) })
    });
}

fn set_places<const N: usize>(
    router: &mut Router,
    index: &InterfaceIndex,
    places: [Place; N],
    tables: [u32; N],
    on: bool,
) -> Result<(), OpError> {
    let interface = if index.0 == 0 { IfIndex::LOCAL0 } else { index_of(router, index)? };
    let places: Vec<(Place, u32)> =
        places.into_iter().zip(tables).filter_map(|(place, table)| Some((place, given(table)?))).collect();
    set(router, interface, &places, on)
}

fn change_table(router: &mut Router, m: ClassifyAddDelTable) -> Result<ClassifyAddDelTableReply, OpError> {
    let vectors = m.match_n_vectors;
    if m.mask.len() as u64 != u64::from(vectors) * VECTOR as u64 {
        return Err(wrong("mask_len", "the mask has 16 bytes for each of match_n_vectors"));
    }
    if m.is_add && (vectors == 0 || m.skip_n_vectors > crate::view::SKIP_MAX) {
        return Err(wrong("match_n_vectors", "1 to 5 vectors are compared, at most 5 skipped"));
    }
    // As VPP: one that is not there is a new one.
    let known = given(m.table_index)
        .filter(|table| !m.is_add || router.state::<control::Classify>().is_ok_and(|state| state.table(*table).is_ok()));
    let request = ChangeTable {
        table: known,
        mask: m.is_add.then(|| Mask::joined(m.skip_n_vectors, &m.mask)),
        skip: m.is_add.then_some(m.skip_n_vectors),
        vectors: m.is_add.then_some(vectors),
        buckets: m.nbuckets,
        memory_size: m.memory_size.into(),
        next_table: given(m.next_table_index),
        miss_next: Next(m.miss_next_index),
        current_data_flag: u32::from(m.current_data_flag == 1),
        current_data_offset: Signed(m.current_data_offset.into()),
        del: !m.is_add && !m.del_chain,
        del_chain: !m.is_add && m.del_chain,
    };
    let none = ClassifyAddDelTableReply { retval: 0, new_table_index: NONE, skip_n_vectors: NONE, match_n_vectors: NONE };
    let Outcome::Done(made) = perform::<ChangeTable>(router, request)? else { return Ok(none) };
    let Some(number) = made.table else { return Ok(none) };
    let table = router.state::<control::Classify>()?.table(number)?;
    Ok(ClassifyAddDelTableReply {
        retval: 0,
        new_table_index: number,
        skip_n_vectors: table.shape.skip,
        match_n_vectors: table.vectors(),
    })
}

fn change_session(router: &mut Router, m: ClassifyAddDelSession) -> Result<(), OpError> {
    let table = router.state::<control::Classify>()?.table(m.table_index)?;
    if m.r#match.len() != (table.shape.skip + table.vectors()) as usize * VECTOR {
        return Err(wrong("match_len", "the match has 16 bytes for each vector skipped or compared"));
    }
    let action = match m.action {
        ClassifyAction::CLASSIFY_API_ACTION_NONE => None,
        ClassifyAction::CLASSIFY_API_ACTION_SET_IP4_FIB_INDEX => Some(Action::SetIp4FibId(m.metadata)),
        ClassifyAction::CLASSIFY_API_ACTION_SET_IP6_FIB_INDEX => Some(Action::SetIp6FibId(m.metadata)),
        ClassifyAction::CLASSIFY_API_ACTION_SET_METADATA => Some(Action::SetMetadata(m.metadata)),
        _ => return Err(wrong("action", "no such action")),
    };
    let request = ChangeSession {
        table: m.table_index,
        values: Match(m.r#match),
        hit_next: Next(m.hit_next_index),
        opaque_index: m.opaque_index,
        advance: Signed(m.advance),
        action,
        del: !m.is_add,
    };
    done(perform::<ChangeSession>(router, request)?)
}
