use super::*;

#[test]
fn settings_out_of_range_are_named() {
    let base = AfPacketConfig::new("lo");
    let cases = [
        (AfPacketConfig { rx_queues: 0, ..base.clone() }, "invalid num-rx-queues 0 for lo: expected 1 to 64"),
        (AfPacketConfig { rx_size: 7, ..base.clone() }, "invalid rx-size 7 for lo: expected 8 to 65536"),
        (AfPacketConfig { tx_size: 65_537, ..base.clone() }, "invalid tx-size 65537 for lo: expected 8 to 65536"),
        (AfPacketConfig { tx_per_block: 0, ..base.clone() }, "invalid tx-per-block 0 for lo: expected 1 to 65536"),
        (AfPacketConfig { rx_frame: Some(1), ..base }, "invalid rx-frame 1 for lo: expected 64 to 65536"),
    ];
    for (config, message) in cases {
        assert_eq!(AfPacket::open(config).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_missing_device_is_named_with_what_helps() {
    for name in ["no-such-dev", "", "a-name-that-is-too-long-for-linux", "nul\0"] {
        let error = AfPacket::open(AfPacketConfig::new(name)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains(name) && error.to_string().contains("`ip link`"), "{error}");
    }
}

#[test]
fn what_is_not_permitted_says_which_capability_helps() {
    let error = AfPacketError::of("opening a packet socket", "eth0", io::Error::from_raw_os_error(libc::EPERM));
    assert!(error.to_string().contains("eth0") && error.to_string().contains("CAP_NET_RAW"), "{error}");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn an_ethernet_device_is_not_opened_as_an_ip_device() {
    let error = AfPacket::open(AfPacketConfig { mode: Mode::Ip, ..AfPacketConfig::new("lo") }).unwrap_err();
    assert_eq!(error.to_string(), "lo cannot be used in mode ip: it has an Ethernet header; leave `mode ip` out");
}
