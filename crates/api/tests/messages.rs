//! Rules that hold for every message, whatever it is.

use proptest::prelude::*;
use quiver_api::defs::{FibPath, IpRoute, IpRouteAddDel, SwInterfaceDetails};
use quiver_api::{Array, Catalog, Entry, Field, Message, Reader, WireError};

fn entry(at: usize) -> Entry {
    let catalog = Catalog::default();
    catalog.entries()[at % catalog.entries().len()]
}

/// Least length of a message, without number and prefix.
fn least(fields: &[Field]) -> usize {
    fields.iter().map(|field| field.size).sum()
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_and_what_is_read_is_written_alike(
        at in any::<usize>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let entry = entry(at);
        let Ok(written) = (entry.info.recode)(&bytes) else { return Ok(()) };
        prop_assert!(written.len() >= least(entry.info.fields), "{}", entry.info.name);
        // Text loses what is behind its end; after that nothing changes any more.
        prop_assert_eq!((entry.info.recode)(&written), Ok(written.clone()), "{}", entry.info.name);
    }
}

#[test]
fn zeros_of_the_declared_length_are_a_message_and_one_byte_less_is_not() {
    for entry in Catalog::default().entries() {
        let length = least(entry.info.fields);
        let zeros = vec![0; length];
        assert_eq!((entry.info.recode)(&zeros).as_ref(), Ok(&zeros), "{}", entry.info.name);
        if let Some(shorter) = zeros.get(1..) {
            assert_eq!((entry.info.recode)(shorter), Err(WireError::Short), "{}", entry.info.name);
        }
    }
}

#[test]
fn fields_lie_where_clients_look_for_them() {
    let details = SwInterfaceDetails { sub_id: 0x0102_0304, tag: "here".into(), ..SwInterfaceDetails::default() };
    let mut bytes = Vec::new();
    details.write(&mut bytes);
    // Six bytes of number and context stand before.
    assert_eq!(bytes.len() + 6, 295);
    assert_eq!(&bytes[54 - 6..58 - 6], &[1, 2, 3, 4]);
    assert_eq!(&bytes[231 - 6..236 - 6], b"here\0");

    let paths = vec![FibPath { sw_if_index: 7, ..FibPath::default() }; 2];
    let route = IpRouteAddDel { is_add: true, route: IpRoute { table_id: 9, paths, ..IpRoute::default() }, ..Default::default() };
    let mut bytes = Vec::new();
    route.write(&mut bytes);
    assert_eq!(bytes.len() + 10, 39 + 2 * 167);
    assert_eq!((bytes[0], &bytes[2..6], bytes[38 - 10]), (1, &[0, 0, 0, 9][..], 2));
    assert_eq!(&bytes[39 - 10 + 167..39 - 10 + 171], &[0, 0, 0, 7]);
    let back = IpRouteAddDel::read(&mut Reader::new(&bytes)).unwrap();
    assert_eq!(back.route.paths.len(), 2);
}

#[test]
fn counts_tell_no_more_than_they_can() {
    let route = IpRoute { paths: vec![FibPath::default(); 300], ..IpRoute::default() };
    let mut bytes = Vec::new();
    IpRouteAddDel { route, ..IpRouteAddDel::default() }.write(&mut bytes);
    let back = IpRouteAddDel::read(&mut Reader::new(&bytes)).unwrap();
    assert_eq!((back.route.n_paths, back.route.paths.len()), (255, 255));
}

#[test]
fn counted_fields_are_last() {
    for entry in Catalog::default().entries() {
        let counted = |field: &Field| matches!(field.ty.array, Array::Counted(_));
        let before = entry.info.fields.split_last().map_or(&[][..], |(_, before)| before);
        assert!(!before.iter().any(counted), "{}", entry.info.name);
    }
}

#[test]
fn the_json_holds_every_message_with_its_crc() {
    let all = quiver_api::json_of_all(quiver_api::MODULES.iter().copied());
    let mut names = 0;
    for module in all.as_array().unwrap() {
        for message in module["messages"].as_array().unwrap() {
            let message = message.as_array().unwrap();
            let catalog = Catalog::default();
            let entry = catalog.named(message[0].as_str().unwrap()).unwrap();
            assert_eq!(message.last().unwrap()["crc"], format!("0x{:08x}", entry.crc));
            assert_eq!(message[1], serde_json::json!(["u16", "_vl_msg_id"]));
            names += 1;
        }
    }
    assert_eq!(names, Catalog::default().entries().len());
}

#[test]
fn default_values_that_are_numbers_are_numbers() {
    let all = quiver_api::json_of_all(quiver_api::MODULES.iter().copied());
    let mut messages = all.as_array().unwrap().iter().flat_map(|module| module["messages"].as_array().unwrap());
    let message = messages.find(|message| message[0] == "ip6_dad_enable_disable").unwrap();
    let defaults: Vec<_> = message.as_array().unwrap().iter().filter_map(|field| field[2].get("default")).collect();
    assert_eq!(defaults, [&serde_json::json!("true"), &serde_json::json!(1), &serde_json::json!(1.0)]);
}
