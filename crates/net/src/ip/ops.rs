//! Addresses of interfaces.

use std::net::IpAddr;

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, retval};
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::fib::ops::fib_error;
use crate::interface::ops::resolve;
use crate::ip::AddressError;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    super::configuration::register(registry);
    registry.operation::<SetAddress>().operation::<EnableIp6>().operation::<SetUnnumbered>();
    registry.command(Command {
        path: "set interface ip address",
        syntax: "[del] <if> [<addr>/<len>] [all]",
        help: "Adds an address to an interface, or removes one or all; IPv4 and IPv6",
        parse: parse_address,
    });
    registry.command(Command {
        path: "enable ip6 interface",
        syntax: "<if>",
        help: "Gives an interface a link-local address made from its link address",
        parse: |args, _| Ok(Invocation::new::<EnableIp6>(EnableIp6Request { interface: args.interface()?, enable: true })),
    });
    registry.command(Command {
        path: "disable ip6 interface",
        syntax: "<if>",
        help: "Takes the link-local address away from an interface without other IPv6 addresses",
        parse: |args, _| Ok(Invocation::new::<EnableIp6>(EnableIp6Request { interface: args.interface()?, enable: false })),
    });
    registry.command(Command {
        path: "set interface unnumbered",
        syntax: "[del] <if> [use <if>]",
        help: "Makes an interface use the addresses of another",
        parse: |args, _| {
            let del = args.take_keyword("del");
            let interface = args.interface()?;
            let lender = if del {
                None
            } else {
                args.expect_keyword("use")?;
                Some(args.interface()?)
            };
            Ok(Invocation::new::<SetUnnumbered>(SetUnnumberedRequest { interface, lender }))
        },
    });
}

fn parse_address(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
    let remove = args.take_keyword("del");
    let interface = args.interface()?;
    if remove && args.take_keyword("all") {
        let request = SetAddressRequest { interface, address: None, len: None, remove, all: true };
        return Ok(Invocation::new::<SetAddress>(request));
    }
    let (address, len) = args.prefix("address")?;
    let request = SetAddressRequest { interface, address: Some(address), len: Some(len), remove, all: false };
    Ok(Invocation::new::<SetAddress>(request))
}

/// Adds or removes an interface's address.
pub struct SetAddress;

/// What [`SetAddress`] changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetAddressRequest {
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

/// An address error as an operation's error.
pub fn address_error(error: &AddressError) -> OpError {
    let (code, key) = match error {
        AddressError::NoInterface(_) => (retval::INVALID_SW_IF_INDEX, "interface"),
        AddressError::Impossible(_) => (retval::INVALID_VALUE, "address"),
        AddressError::Local => (retval::INVALID_INTERFACE, "interface"),
        AddressError::Exists { .. } => (retval::ADDRESS_FOUND_FOR_INTERFACE, "address"),
        AddressError::Conflict { .. } => (retval::DUPLICATE_IF_ADDRESS, "address"),
        AddressError::NotFound { .. } => (retval::ADDRESS_NOT_FOUND_FOR_INTERFACE, "address"),
        AddressError::Lent(..) => (retval::UNEXPECTED_INTF_STATE, "interface"),
        AddressError::Fib(error) => return fib_error(error),
    };
    OpError::new(code, error.to_string()).key(key)
}

impl Operation<Router> for SetAddress {
    const NAME: &'static str = "sw_interface_add_del_address";
    const ACCESS: Access = Access::Change;
    type Request = SetAddressRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetAddressRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        let done = match (request.remove, request.all, request.address, request.len) {
            (true, true, ..) => router.remove_addresses(index),
            (remove, false, Some(address), Some(len)) => match remove {
                true => router.remove_address(index, address, len),
                false => router.add_address(index, address, len),
            },
            _ => return Err(OpError::new(retval::INVALID_ARGUMENT, "an address with its prefix length is needed").key("address")),
        };
        done.map_err(|e| address_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Gives an interface IPv6, or takes it away.
pub struct EnableIp6;

/// What [`EnableIp6`] changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnableIp6Request {
    /// Interface.
    pub interface: IfRef,
    /// On or off.
    pub enable: bool,
}

impl Operation<Router> for EnableIp6 {
    const NAME: &'static str = "sw_interface_ip6_enable_disable";
    const ACCESS: Access = Access::Change;
    type Request = EnableIp6Request;
    type Reply = ();

    fn run(router: &mut Router, request: EnableIp6Request) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        let done = if request.enable { router.enable_ip6(index) } else { router.disable_ip6(index) };
        done.map_err(|e| address_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Makes an interface use the addresses of another.
pub struct SetUnnumbered;

/// What [`SetUnnumbered`] changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetUnnumberedRequest {
    /// Interface.
    pub interface: IfRef,
    /// Whose addresses; none: its own again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lender: Option<IfRef>,
}

impl Operation<Router> for SetUnnumbered {
    const NAME: &'static str = "sw_interface_set_unnumbered";
    const ACCESS: Access = Access::Change;
    type Request = SetUnnumberedRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetUnnumberedRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        let lender = request.lender.as_ref().map(|l| resolve(router, l)).transpose()?;
        router.set_unnumbered(index, lender).map_err(|e| address_error(&e))?;
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
