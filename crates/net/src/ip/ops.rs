//! Addresses of interfaces.

use std::net::IpAddr;

use quiver_command::commands;
use quiver_command::grammar::{Args, IfRef, quote};
use quiver_command::operation::{OpError, Outcome, Registry, retval};
use quiver_command::request::Execute;
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::interface::ops::resolve;
use crate::ip::AddressError;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    super::configuration::register(registry);
    registry.declare::<SetAddress>().declare::<EnableIp6>().declare::<SetUnnumbered>();
}

fn parse_address(args: &mut Args<'_>) -> Result<SetAddress, OpError> {
    let remove = args.take_keyword("del");
    let interface = args.interface()?;
    if remove && args.take_keyword("all") {
        return Ok(SetAddress { interface, address: None, len: None, remove, all: true });
    }
    let (address, len) = args.prefix("address")?;
    Ok(SetAddress { interface, address: Some(address), len: Some(len), remove, all: false })
}

fn address_command(request: &SetAddress) -> Option<String> {
    let del = if request.remove { "del " } else { "" };
    let what = match (request.all, request.address, request.len) {
        (true, ..) => "all".to_owned(),
        (false, Some(address), Some(len)) => format!("{address}/{len}"),
        _ => return None,
    };
    Some(format!("set interface ip address {del}{} {what}", quote(request.interface.as_str())))
}

fn parse_unnumbered(args: &mut Args<'_>) -> Result<SetUnnumbered, OpError> {
    let del = args.take_keyword("del");
    let interface = args.interface()?;
    let lender = if del {
        None
    } else {
        args.expect_keyword("use")?;
        Some(args.interface()?)
    };
    Ok(SetUnnumbered { interface, lender })
}

fn unnumbered_command(SetUnnumbered { interface, lender }: &SetUnnumbered) -> Option<String> {
    let interface = quote(interface.as_str());
    Some(match lender {
        Some(lender) => format!("set interface unnumbered {interface} use {}", quote(lender.as_str())),
        None => format!("set interface unnumbered del {interface}"),
    })
}

/// Adds or removes an interface's address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetAddress {
    /// Interface.
    pub interface: IfRef,
    /// Address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Length of the link's prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub len: Option<u8>,
    /// Remove instead of add.
    #[serde(default)]
    pub remove: bool,
    /// Remove all addresses.
    #[serde(default)]
    pub all: bool,
}

commands! {
    change SetAddress "sw_interface_add_del_address" {
        /// Adds an address to an interface, or removes one or all; IPv4 and IPv6.
        ["set interface ip address"] "[del] <if> [<addr>/<len>] [all]" by parse_address => address_command,
    }
}

/// An address error as an operation's error.
impl From<AddressError> for OpError {
    fn from(error: AddressError) -> Self {
        let (code, key) = match &error {
            AddressError::NoInterface(_) => (retval::INVALID_SW_IF_INDEX, "interface"),
            AddressError::Impossible(_) => (retval::INVALID_VALUE, "address"),
            AddressError::Local => (retval::INVALID_INTERFACE, "interface"),
            AddressError::Exists { .. } => (retval::ADDRESS_FOUND_FOR_INTERFACE, "address"),
            AddressError::Conflict { .. } => (retval::DUPLICATE_IF_ADDRESS, "address"),
            AddressError::NotFound { .. } => (retval::ADDRESS_NOT_FOUND_FOR_INTERFACE, "address"),
            AddressError::Lent(..) => (retval::UNEXPECTED_INTF_STATE, "interface"),
            AddressError::Fib(error) => return error.clone().into(),
        };
        OpError::new(code, error.to_string()).key(key)
    }
}

impl Execute<Router> for SetAddress {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let done = match (self.remove, self.all, self.address, self.len) {
            (true, true, ..) => router.remove_addresses(index),
            (remove, false, Some(address), Some(len)) => match remove {
                true => router.remove_address(index, address, len),
                false => router.add_address(index, address, len),
            },
            _ => return Err(OpError::new(retval::INVALID_ARGUMENT, "an address with its prefix length is needed").key("address")),
        };
        done?;
        Ok(Outcome::Done(()))
    }
}

/// Gives an interface IPv6, or takes it away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnableIp6 {
    /// Interface.
    pub interface: IfRef,
    /// On or off.
    pub enable: bool,
}

commands! {
    change EnableIp6 "sw_interface_ip6_enable_disable" {
        /// Gives an interface a link-local address made from its MAC address.
        ["enable ip6 interface"] { interface: IfRef = "<if>" } => { interface, enable: true },
        /// Takes the link-local address away from an interface without other IPv6 addresses.
        ["disable ip6 interface"] { interface: IfRef = "<if>" } => { interface, enable: false },
    }
}

impl Execute<Router> for EnableIp6 {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let done = if self.enable { router.enable_ip6(index) } else { router.disable_ip6(index) };
        done?;
        Ok(Outcome::Done(()))
    }
}

/// Makes an interface use the addresses of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetUnnumbered {
    /// Interface.
    pub interface: IfRef,
    /// Whose addresses; none: its own again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lender: Option<IfRef>,
}

commands! {
    change SetUnnumbered "sw_interface_set_unnumbered" {
        /// Makes an interface use the addresses of another.
        ["set interface unnumbered"] "[del] <if> [use <if>]" by parse_unnumbered => unnumbered_command,
    }
}

impl Execute<Router> for SetUnnumbered {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let lender = self.lender.as_ref().map(|l| resolve(router, l)).transpose()?;
        router.set_unnumbered(index, lender)?;
        Ok(Outcome::Done(()))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    use crate::ops::testing::{error, run};

    #[test]
    fn addresses_come_and_go_with_their_routes() {
        let mut h = Harness::new();
        h.interface(0);
        run(&mut h.router, "set interface ip address x0 10.0.0.1/24");
        run(&mut h.router, "set int ip addr x0 2001:db8::1/64");
        assert_eq!(
            run(&mut h.router, "show interface address"),
            "local0 (dn):\nx0 (up):\n  L3 10.0.0.1/24\n  L3 fe80::fe:ff:fe00:0/128\n  L3 2001:db8::1/64\n"
        );
        let summary = run(&mut h.router, "show ip fib summary");
        assert!(summary.contains("                  24               1\n"), "{summary}");
        run(&mut h.router, "set interface ip address del x0 10.0.0.1/24");
        run(&mut h.router, "set interface ip address del x0 all");
        assert_eq!(run(&mut h.router, "show interface address"), "local0 (dn):\nx0 (up):\n");
        let summary = run(&mut h.router, "show ip fib summary");
        assert!(!summary.contains("                  24 "), "{summary}");
        run(&mut h.router, "enable ip6 interface x0");
        assert!(run(&mut h.router, "show interface address").contains("fe80::"));
        run(&mut h.router, "disable ip6 interface x0");
        assert!(!run(&mut h.router, "show interface address").contains("fe80::"));
    }

    #[test]
    fn ipv6_that_came_with_an_address_goes_with_the_last_one_and_other_stays() {
        let mut h = Harness::new();
        h.interface(0);
        let has = |h: &mut Harness| run(&mut h.router, "show interface address").contains("fe80::");
        let (add, del) = ("set interface ip address x0 2001:db8::1/64", "set interface ip address del x0 2001:db8::1/64");
        run(&mut h.router, add);
        run(&mut h.router, "set interface ip address x0 2001:db8::2/64");
        run(&mut h.router, del);
        assert!(has(&mut h), "there is another one");
        run(&mut h.router, "set interface ip address del x0 2001:db8::2/64");
        assert!(!has(&mut h));
        run(&mut h.router, add);
        run(&mut h.router, "set interface ip address del x0 all");
        assert!(!has(&mut h));
        run(&mut h.router, add);
        run(&mut h.router, "enable ip6 interface x0");
        run(&mut h.router, del);
        assert!(has(&mut h), "wanted for its own sake");
        run(&mut h.router, "disable ip6 interface x0");
        run(&mut h.router, add);
        run(&mut h.router, "set interface ip address x0 fe80::7/128");
        run(&mut h.router, del);
        assert!(has(&mut h), "one that a user has set");
    }

    #[test]
    fn an_interface_borrows_no_more_when_its_lender_is_deleted() {
        let mut h = Harness::new();
        h.interface(0);
        run(&mut h.router, "create loopback interface");
        run(&mut h.router, "set interface ip address loop0 10.0.0.1/24");
        run(&mut h.router, "set interface unnumbered x0 use loop0");
        assert!(run(&mut h.router, "show interface address").contains("unnumbered, use loop0"));
        h.interface(1);
        let refused = error(&mut h.router, "set interface unnumbered loop0 use x1");
        assert!(refused.contains("addresses of loop0 are used by x0, which is unnumbered"), "{refused}");
        run(&mut h.router, "delete loopback interface intfc loop0");
        // It has the same number.
        run(&mut h.router, "create loopback interface");
        assert!(!run(&mut h.router, "show interface address").contains("unnumbered"));
        run(&mut h.router, "set interface ip address x0 10.0.0.2/24");
        run(&mut h.router, "set interface ip address loop0 10.9.0.1/24");
        run(&mut h.router, "set interface ip address del loop0 10.9.0.1/24");
    }

    #[test]
    fn addresses_that_contain_one_another_are_refused() {
        let mut h = Harness::new();
        h.interface(0);
        h.interface(1);
        run(&mut h.router, "set interface ip address x0 10.0.0.1/24");
        run(&mut h.router, "set interface ip address x0 10.0.0.2/24");
        let before = run(&mut h.router, "show ip fib");
        for (line, expected) in [
            ("set interface ip address x0 10.0.0.1/24", "has 10.0.0.1 already"),
            ("set interface ip address x0 10.0.0.3/16", "conflicts with 10.0.0.1/24"),
            ("set interface ip address x1 10.0.0.9/25", "conflicts with 10.0.0.1/24 for interface x0"),
            ("set interface ip address x1 10.0.0.9/24", "conflicts with 10.0.0.1/24 for interface x0"),
            ("set interface ip address x1 224.0.0.1/24", "cannot be an interface's address"),
            ("set interface ip address x1 10.0.1.0/24", "cannot be an interface's address"),
            ("set interface ip address x1 10.0.1.1/33", "Invalid prefix len: 33"),
            ("set interface ip address x1 10.0.1.1", "10.0.0.0/8"),
            ("set interface ip address x9 10.0.1.1/24", "unknown interface `x9'"),
            ("set interface ip address local0 10.0.1.1/24", "local0 cannot have addresses"),
            ("set interface ip address del x0 10.0.0.7/24", "10.0.0.7/24 not found"),
        ] {
            let error = error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
        assert_eq!(run(&mut h.router, "show ip fib"), before);
    }

    #[test]
    fn the_commands_of_the_router_comparison_run_as_printed() {
        // Seed 001, section V.C, but for the interface names.
        let mut h = Harness::new();
        h.interface(0);
        h.interface(1);
        for line in [
            "set interface ip address x0 198.18.0.1/24",
            "set interface ip address x1 198.19.0.1/24",
            "set interface state x0 up",
            "set interface state x1 up",
        ] {
            assert_eq!(run(&mut h.router, line), "");
        }
    }
}
