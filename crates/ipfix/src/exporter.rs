//! Who collects records, for all plugins that export them.

use std::net::{IpAddr, Ipv4Addr};

use quiver_command::operation::{OpError, retval};
use quiver_net::Router;
use quiver_net::ip::FamilyId;
use quiver_net::local::datagram::UdpPath;

use crate::stream::Destination;

/// Who holds tables, in errors.
const HOLDER: &str = "the exporter of IPFIX";
/// Port of IPFIX (RFC 7011, 10.3.4), which datagrams come from.
pub const PORT: u16 = 4739;

/// Who collects records, and how they get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exporter {
    /// Collector.
    pub collector: IpAddr,
    /// Its port.
    pub port: u16,
    /// Source of datagrams.
    pub src: IpAddr,
    /// Table in which the collector is looked up.
    pub table: u32,
    /// Largest packet, bytes.
    pub path_mtu: u16,
    /// Between two announcements of templates, seconds.
    pub template_interval: u32,
    /// Datagrams over IPv4 have a checksum.
    pub udp_checksum: bool,
}

impl Exporter {
    /// None, as messages tell it.
    pub const NONE: Self = Self {
        collector: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        port: PORT,
        src: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        table: 0,
        path_mtu: 512,
        template_interval: 20,
        udp_checksum: false,
    };

    /// Where datagrams go from this port.
    pub fn destination(&self, router: &Router, src_port: u16) -> Destination {
        let family = FamilyId::of(&self.collector);
        let path = UdpPath {
            src: self.src,
            dst: self.collector,
            src_port,
            dst_port: self.port,
            // The table is held, so that it is there.
            fib: router.fib_of_table(family, self.table).unwrap_or_default(),
            checksum: self.udp_checksum,
        };
        let template_interval = u64::from(self.template_interval) * 1_000_000_000;
        Destination { path, path_mtu: self.path_mtu, template_interval }
    }
}

/// A plugin that exports records.
#[derive(Clone, Copy)]
pub struct User {
    /// There is another exporter, or none: [`current`] says which.
    pub changed: fn(&mut Router) -> Result<(), OpError>,
    /// Sends records that wait for others in the same message.
    pub flush: fn(&mut Router),
}

/// The exporter, and who uses it: a part of the router.
#[derive(Default)]
struct Exporters {
    current: Option<Exporter>,
    users: Vec<User>,
}

/// A plugin begins to export records: it is told of each change.
pub fn join(router: &mut Router, user: User) {
    router.part_or_default::<Exporters>().users.push(user);
}

/// Who collects records.
pub fn current(router: &Router) -> Option<Exporter> {
    router.part::<Exporters>().and_then(|exporters| exporters.current)
}

/// Sets who collects records; none: nobody.
///
/// # Errors
/// No such table, addresses that cannot be, or a plugin cannot follow.
pub fn set(router: &mut Router, new: Option<Exporter>) -> Result<(), OpError> {
    let old = current(router);
    if old == new {
        return Ok(());
    }
    if let Some(exporter) = &new {
        if exporter.src.is_ipv4() != exporter.collector.is_ipv4() {
            let text = "source and collector must both be IPv4 or both IPv6";
            return Err(OpError::new(retval::INVALID_VALUE, text).key("src").value(exporter.src));
        }
        let family = FamilyId::of(&exporter.collector);
        router.hold_table(family, exporter.table, HOLDER)?;
    }
    let exporters = router.part_or_default::<Exporters>();
    exporters.current = new;
    let users = exporters.users.clone();
    let told = users.iter().try_for_each(|user| (user.changed)(router));
    if let Some(exporter) = old {
        router.release_table(FamilyId::of(&exporter.collector), exporter.table, HOLDER);
    }
    told
}

/// Has all plugins send what waits for others in the same message.
pub fn flush(router: &mut Router) {
    let users = router.part_or_default::<Exporters>().users.clone();
    users.iter().for_each(|user| (user.flush)(router));
}
