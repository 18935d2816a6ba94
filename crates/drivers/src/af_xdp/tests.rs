use super::*;
use quiver_buffer::{PageSize, RegionConfig};

fn pools(data_size: u32) -> Vec<Arc<Pool>> {
    let config = RegionConfig { buffers_per_numa: 4096, page_size: PageSize::Kb4, data_size, ..Default::default() };
    vec![Arc::new(Pool::new(Arc::new(Region::new(&config).unwrap()), 0))]
}

#[test]
fn settings_out_of_range_are_named() {
    let base = AfXdpConfig::new("x", pools(2048));
    let with = |change: fn(&mut AfXdpConfig)| {
        let mut config = base.clone();
        change(&mut config);
        config.check(4).map_err(|e| e.to_string())
    };
    assert_eq!(with(|_| ()), Ok(4));
    assert_eq!(with(|c| c.rx_queues = Some(2)), Ok(2));
    let rings = "expected a power of two from 64 to 32768";
    assert_eq!(with(|c| c.rx_size = 1000), Err(format!("invalid rx-queue-size 1000 for x: {rings}")));
    assert_eq!(with(|c| c.tx_size = 32), Err(format!("invalid tx-queue-size 32 for x: {rings}")));
    assert_eq!(with(|c| c.tx_size = 1 << 16), Err(format!("invalid tx-queue-size 65536 for x: {rings}")));
    for n in [0, 5] {
        let expected = format!("invalid num-rx-queues {n} for x: expected 1 to 4 (what the device has)");
        let mut config = base.clone();
        config.rx_queues = Some(n);
        assert_eq!(config.check(4).unwrap_err().to_string(), expected);
    }
    let refused = with(|c| c.zero_copy = ZeroCopy::Demanded).unwrap_err();
    assert!(refused.contains("2 MB pages"), "{refused}");
}

#[test]
fn addresses_lead_back_to_their_buffer_in_both_of_the_kernels_forms() {
    for data_size in [2048, 4096, 9000] {
        let pools = pools(data_size);
        let region = pools[0].region();
        let addresses = Addresses::of(region).unwrap();
        assert!(addresses.chunk <= 4096 && addresses.chunk <= region.geometry().data_end());
        for buffer in [0, 1, 2, 885, 886, region.capacity() - 1, 16_000_000] {
            for offset in [0, 1, 63, 64, 256, 1000, region.geometry().stride() - 1] {
                let address = addresses.address(buffer, offset);
                assert_eq!(addresses.place(address), (buffer, offset));
                assert_eq!(addresses.place(addresses.address(buffer, 0) | u64::from(offset) << 48), (buffer, offset));
            }
        }
    }
    assert!(Addresses::of(pools(1024)[0].region()).is_none(), "smaller than the kernel's smallest chunk");
}

#[test]
fn a_missing_device_is_named_with_what_helps() {
    for name in ["no-such-dev", "", "a-name-that-is-too-long-for-linux", "nul\0"] {
        let Err(error) = AfXdp::open(AfXdpConfig::new(name, pools(2048))) else { panic!("{name:?} was opened") };
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains(name) && error.to_string().contains("`ip link`"), "{error}");
    }
}

#[test]
fn what_the_system_says_becomes_what_to_do() {
    let of = |code| AfXdpError::of("opening an AF_XDP socket", "eth0", io::Error::from_raw_os_error(code)).to_string();
    for (code, word) in [
        (libc::EPERM, "CAP_BPF"),
        (libc::EBUSY, "ip link show dev eth0"),
        (libc::EOPNOTSUPP, "zero-copy"),
        (libc::ERANGE, "MTU"),
        (libc::ENOBUFS, "ulimit"),
    ] {
        let text = of(code);
        assert!(text.contains("eth0") && text.contains(word), "{text}");
    }
}

#[test]
fn a_device_with_many_queues_leaves_buffers_to_others() {
    let config = AfXdpConfig::new("x", pools(2048));
    let total = config.pools[0].usage().total;
    assert_eq!(config.fill_target(1), 1024, "a quarter of 4096");
    for queues in [2, 16, 64] {
        assert!(config.fill_target(queues) * queues <= total.max(64 * queues));
    }
    assert_eq!(config.fill_target(64), 64);
    let few = AfXdpConfig { rx_size: 128, ..config };
    assert_eq!(few.fill_target(1), 128);
}
