//! What can be said about a device.

/// What receive-side scaling hashes: VPP's name, and the bit of `RTE_ETH_RSS_…`.
pub const RSS: [(&str, u64); 21] = [
    ("ipv4", 1 << 2),
    ("ipv4-frag", 1 << 3),
    ("ipv4-tcp", 1 << 4),
    ("ipv4-udp", 1 << 5),
    ("ipv4-sctp", 1 << 6),
    ("ipv4-other", 1 << 7),
    ("ipv6", 1 << 8),
    ("ipv6-frag", 1 << 9),
    ("ipv6-tcp", 1 << 10),
    ("ipv6-udp", 1 << 11),
    ("ipv6-sctp", 1 << 12),
    ("ipv6-other", 1 << 13),
    ("l2-payload", 1 << 14),
    ("ipv6-ex", 1 << 15),
    ("ipv6-tcp-ex", 1 << 16),
    ("ipv6-udp-ex", 1 << 17),
    ("port", 1 << 18),
    ("vxlan", 1 << 19),
    ("geneve", 1 << 20),
    ("nvgre", 1 << 21),
    ("gtpu", 1 << 23),
];

/// Hashed unless something else is said: addresses, and ports of TCP and UDP.
pub const RSS_DEFAULT: u64 = 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13;

/// What is said about a device; what is absent comes from `dev default`, then from the driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Receive queues.
    pub rx_queues: Option<u16>,
    /// Transmit queues.
    pub tx_queues: Option<u16>,
    /// Descriptors of a receive queue.
    pub rx_descriptors: Option<u16>,
    /// Descriptors of a transmit queue.
    pub tx_descriptors: Option<u16>,
    /// Name of the interface.
    pub name: Option<String>,
    /// Text kept with the interface.
    pub tag: Option<String>,
    /// What is hashed to choose a receive queue, bits of [`RSS`].
    pub rss: Option<u64>,
    /// Arguments for the driver.
    pub devargs: Option<String>,
    /// Poll, also where the device has interrupts.
    pub no_rx_interrupts: bool,
}

impl DeviceConfig {
    /// The same, with `default` where nothing is said.
    pub fn or(&self, default: &Self) -> Self {
        Self {
            rx_queues: self.rx_queues.or(default.rx_queues),
            tx_queues: self.tx_queues.or(default.tx_queues),
            rx_descriptors: self.rx_descriptors.or(default.rx_descriptors),
            tx_descriptors: self.tx_descriptors.or(default.tx_descriptors),
            name: self.name.clone(),
            tag: self.tag.clone().or_else(|| default.tag.clone()),
            rss: self.rss.or(default.rss),
            devargs: self.devargs.clone().or_else(|| default.devargs.clone()),
            no_rx_interrupts: self.no_rx_interrupts || default.no_rx_interrupts,
        }
    }
}
