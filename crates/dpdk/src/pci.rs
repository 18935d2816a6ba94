//! PCI network devices as the kernel tells of them in sysfs: which there are, who drives them, and giving one over.
//!
//! A device is DPDK's when the kernel driver that it is bound to is a door for user space (`vfio-pci`, `uio_pci_generic`,
//! `igb_uio`). Some (Mellanox) stay with their kernel driver and are shared with it: these are taken only by name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Kernel drivers that hand a device to user space.
pub const DOORS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

/// Whether a text is a full PCI address, `0000:01:00.0`.
pub fn is_address(text: &str) -> bool {
    parse(text).is_some()
}

/// Domain, bus, device, function.
fn parse(text: &str) -> Option<[u16; 4]> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let hex = |text: &str, digits: usize| {
        let good = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if good { u16::from_str_radix(text, 16).ok() } else { None }
    };
    Some([hex(domain, 4)?, hex(bus, 2)?, hex(device, 2)?, hex(function, 1)?])
}

/// Name of a PCI device's interface, as VPP forms it: speed, then bus, device and function. Domains other than 0 come first.
pub fn interface_name(address: &str, megabits: u64, decimal: bool) -> String {
    let speed = match megabits {
        0..=1_000 => "GigabitEthernet",
        1_001..=2_500 => "Two_FiveGigabitEthernet",
        2_501..=5_000 => "FiveGigabitEthernet",
        5_001..=10_000 => "TenGigabitEthernet",
        10_001..=20_000 => "TwentyGigabitEthernet",
        20_001..=25_000 => "TwentyFiveGigabitEthernet",
        25_001..=40_000 => "FortyGigabitEthernet",
        40_001..=50_000 => "FiftyGigabitEthernet",
        50_001..=56_000 => "FiftySixGigabitEthernet",
        56_001..=100_000 => "HundredGigabitEthernet",
        100_001..=200_000 => "TwoHundredGigabitEthernet",
        _ => "FourHundredGigabitEthernet",
    };
    let Some(parts) = parse(address) else { return format!("{speed}{address}") };
    let number = |part: &u16| if decimal { part.to_string() } else { format!("{part:x}") };
    let skipped = usize::from(parts[0] == 0);
    format!("{speed}{}", parts[skipped..].iter().map(number).collect::<Vec<_>>().join("/"))
}

/// A network device on the PCI bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciDevice {
    /// Its address.
    pub address: String,
    /// `vendor:device`, hexadecimal.
    pub id: String,
    /// The kernel driver that it is bound to.
    pub driver: Option<String>,
    /// Network interfaces that the kernel has on it.
    pub interfaces: Vec<String>,
}

impl PciDevice {
    /// Whether it has been handed to user space.
    pub fn is_given_over(&self) -> bool {
        self.driver.as_deref().is_some_and(|driver| DOORS.contains(&driver))
    }

    /// Whether a list of addresses and `vendor:device` names it.
    pub fn is_in(&self, list: &[String]) -> bool {
        list.iter().any(|entry| entry.eq_ignore_ascii_case(&self.address) || entry.eq_ignore_ascii_case(&self.id))
    }
}

/// The PCI devices that a `sysfs` tells of.
#[derive(Debug, Clone)]
pub struct Pci {
    sysfs: PathBuf,
}

impl Default for Pci {
    fn default() -> Self {
        Self::at("/sys")
    }
}

impl Pci {
    /// As described below a folder that looks like `/sys`.
    pub fn at(sysfs: impl Into<PathBuf>) -> Self {
        Self { sysfs: sysfs.into() }
    }

    fn bus(&self) -> PathBuf {
        self.sysfs.join("bus/pci")
    }

    fn folder(&self, address: &str) -> PathBuf {
        self.bus().join("devices").join(address)
    }

    /// One device; `None` where there is none at this address.
    pub fn device(&self, address: &str) -> Option<PciDevice> {
        let folder = self.folder(address);
        let hex =
            |file: &str| fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().trim_start_matches("0x").to_owned());
        let id = format!("{}:{}", hex("vendor")?, hex("device")?);
        let driver = fs::read_link(folder.join("driver")).ok();
        let driver = driver.and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()));
        let mut interfaces = names(&folder.join("net"));
        interfaces.sort();
        Some(PciDevice { address: address.to_owned(), id, driver, interfaces })
    }

    /// All network devices, by address.
    pub fn network_devices(&self) -> Vec<PciDevice> {
        let mut addresses = names(&self.bus().join("devices"));
        addresses.sort();
        let is_network = |address: &&String| {
            let class = fs::read_to_string(self.folder(address).join("class")).unwrap_or_default();
            class.trim().starts_with("0x02")
        };
        addresses.iter().filter(is_network).filter_map(|address| self.device(address)).collect()
    }

    /// Whether a network interface of the kernel is administratively up.
    fn is_up(&self, interface: &str) -> bool {
        let flags = fs::read_to_string(self.sysfs.join("class/net").join(interface).join("flags")).unwrap_or_default();
        u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).is_ok_and(|flags| flags & 1 != 0)
    }

    /// Binds a device to a kernel driver that hands it to user space.
    ///
    /// # Errors
    /// What is in the way, and how to mend it: no such device or driver, an interface of the kernel's that is up (unless
    /// `force`), no permission.
    pub fn bind(&self, address: &str, driver: &str, force: bool) -> Result<(), String> {
        let device = self.device(address).ok_or_else(|| format!("there is no PCI device {address}; `lspci -D' lists all"))?;
        if device.driver.as_deref() == Some(driver) {
            return Ok(());
        }
        let new = self.bus().join("drivers").join(driver);
        if !new.is_dir() {
            return Err(format!("the kernel has no driver {driver}: modprobe {driver}"));
        }
        if let Some(up) = device.interfaces.iter().find(|interface| self.is_up(interface)).filter(|_| !force) {
            return Err(format!("the kernel's interface {up} on {address} is up: ip link set {up} down, or uio-bind-force"));
        }
        let folder = self.folder(address);
        let said = |what: &str| {
            let what = what.to_owned();
            move |error: io::Error| format!("cannot {what}: {error}")
        };
        // From now on only this driver may take it, also after a new scan of the bus.
        fs::write(folder.join("driver_override"), driver).map_err(said(&format!("reserve {address} for {driver}")))?;
        if let Some(old) = &device.driver {
            fs::write(folder.join("driver/unbind"), address).map_err(said(&format!("take {address} from {old}")))?;
        }
        let bound = fs::write(new.join("bind"), address).map_err(said(&format!("bind {address} to {driver}")));
        if bound.is_err() {
            // It goes back to whom it belonged to; a failure of that says nothing new.
            let _ = fs::write(folder.join("driver_override"), "\n");
            if let Some(old) = &device.driver {
                let _ = fs::write(self.bus().join("drivers").join(old).join("bind"), address);
            }
        }
        bound
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A folder that looks like `/sys` with three devices.
    struct Machine(PathBuf);

    impl Machine {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let machine = Self(std::env::temp_dir().join(format!("quiver-pci-{}-{number}", std::process::id())));
            machine.driver("ixgbe");
            machine.driver("vfio-pci");
            machine.device("0000:01:00.0", "0x020000", "0x8086", "0x10fb", "ixgbe", Some(("eth1", "0x1002")));
            machine.device("0000:01:00.1", "0x020000", "0x8086", "0x10fb", "vfio-pci", None);
            machine.device("0000:00:1f.2", "0x010601", "0x8086", "0x2922", "ahci", None);
            machine
        }

        fn driver(&self, name: &str) {
            let folder = self.0.join("bus/pci/drivers").join(name);
            fs::create_dir_all(&folder).unwrap();
            for file in ["bind", "unbind"] {
                fs::write(folder.join(file), "").unwrap();
            }
        }

        fn device(&self, address: &str, class: &str, vendor: &str, id: &str, driver: &str, net: Option<(&str, &str)>) {
            let folder = self.0.join("bus/pci/devices").join(address);
            fs::create_dir_all(&folder).unwrap();
            for (file, text) in [("class", class), ("vendor", vendor), ("device", id), ("driver_override", "")] {
                fs::write(folder.join(file), format!("{text}\n")).unwrap();
            }
            symlink(self.0.join("bus/pci/drivers").join(driver), folder.join("driver")).unwrap();
            if let Some((name, flags)) = net {
                fs::create_dir_all(folder.join("net").join(name)).unwrap();
                let class = self.0.join("class/net").join(name);
                fs::create_dir_all(&class).unwrap();
                fs::write(class.join("flags"), format!("{flags}\n")).unwrap();
            }
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.0.join("bus/pci").join(path)).unwrap()
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn network_devices_are_listed_with_who_drives_them() {
        let machine = Machine::new();
        let devices = Pci::at(&machine.0).network_devices();
        let told: Vec<_> = devices.iter().map(|d| (d.address.as_str(), d.driver.as_deref(), d.is_given_over())).collect();
        assert_eq!(told, [("0000:01:00.0", Some("ixgbe"), false), ("0000:01:00.1", Some("vfio-pci"), true)]);
        assert_eq!(devices[0].interfaces, ["eth1"]);
        assert!(devices[0].is_in(&["8086:10FB".into()]) && devices[0].is_in(&["0000:01:00.0".into()]));
        assert!(!devices[0].is_in(&["0000:01:00.1".into()]));
    }

    #[test]
    fn a_device_is_taken_from_its_driver_reserved_and_bound() {
        let machine = Machine::new();
        Pci::at(&machine.0).bind("0000:01:00.0", "vfio-pci", false).unwrap();
        assert_eq!(machine.read("devices/0000:01:00.0/driver_override"), "vfio-pci");
        assert_eq!(machine.read("drivers/ixgbe/unbind"), "0000:01:00.0");
        assert_eq!(machine.read("drivers/vfio-pci/bind"), "0000:01:00.0");
    }

    #[test]
    fn a_device_that_is_bound_already_is_left_alone() {
        let machine = Machine::new();
        Pci::at(&machine.0).bind("0000:01:00.1", "vfio-pci", false).unwrap();
        assert_eq!(machine.read("drivers/vfio-pci/bind"), "");
    }

    #[test]
    fn what_is_in_the_way_is_named_with_its_remedy_and_nothing_changes() {
        let machine = Machine::new();
        fs::write(machine.0.join("class/net/eth1/flags"), "0x1003\n").unwrap();
        let pci = Pci::at(&machine.0);
        for (address, driver, expected) in [
            ("0000:09:00.0", "vfio-pci", "there is no PCI device 0000:09:00.0"),
            ("0000:01:00.0", "igb_uio", "modprobe igb_uio"),
            ("0000:01:00.0", "vfio-pci", "ip link set eth1 down, or uio-bind-force"),
        ] {
            let error = pci.bind(address, driver, false).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(machine.read("devices/0000:01:00.0/driver_override"), "\n");
        pci.bind("0000:01:00.0", "vfio-pci", true).unwrap();
    }

    #[test]
    fn names_are_those_of_vpp() {
        assert_eq!(interface_name("0000:0b:00.1", 10_000, false), "TenGigabitEthernetb/0/1");
        assert_eq!(interface_name("0000:0b:00.1", 10_000, true), "TenGigabitEthernet11/0/1");
        assert_eq!(interface_name("0001:81:1f.0", 100_000, false), "HundredGigabitEthernet1/81/1f/0");
        assert_eq!(interface_name("0000:00:08.0", 0, false), "GigabitEthernet0/8/0");
    }

    #[test]
    fn addresses_are_told_from_names() {
        for good in ["0000:01:00.0", "abcd:ff:1f.7"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["", "01:00.0", "0000:01:00", "0000:01:00.0 ", "0000:1:00.0", "eth0", "net_memif0", "0000:01:0g.0"] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}
