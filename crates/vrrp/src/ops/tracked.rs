//! Interfaces that a virtual router tracks.

use quiver_command::grammar::{Args, IfRef};
use quiver_command::operation::{OpError, Outcome};
use quiver_command::request::{Argument, Execute, Value};
use quiver_command::{request, words};
use quiver_net::Router;
use quiver_net::interface::ops::resolve;
use serde::{Deserialize, Serialize};

use crate::control;

words! {
    /// What becomes of tracked interfaces.
    pub enum Change {
        /// They are tracked.
        Add = "add",
        /// They are tracked no longer.
        Delete = "del",
    }
}

/// A tracked interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tracked {
    /// The interface.
    pub interface: IfRef,
    /// What it takes from the priority while it is down.
    pub priority: u8,
}

impl Value for Tracked {
    const KIND: &'static str = "interface and priority";

    fn take(args: &mut Args<'_>, argument: &Argument, _: usize) -> Result<Self, OpError> {
        let interface = IfRef(args.word(argument.what())?.into_owned());
        args.expect_keyword("priority")?;
        Ok(Self { interface, priority: args.number_in("priority", 1..=254)? })
    }

    fn text(&self) -> String {
        format!("{} priority {}", Value::text(&self.interface), self.priority)
    }

    fn check(&self, argument: &Argument) -> Result<(), OpError> {
        match self.priority {
            1..=254 => Ok(()),
            other => Err(argument.out_of_range(other)),
        }
    }
}

request! {
    /// Has a virtual router track interfaces: each takes something from the priority while it is down.
    pub change SetTracked "vrrp_tracked_set" ["vrrp vr track-if"] {
        /// They are tracked, or no longer.
        pub change: Change = "add|del",
        /// Number of the virtual router on its link.
        pub vr_id: u8 = "vr_id <n>" range(1..=255),
        /// Interface of the virtual router.
        pub interface: IfRef = "<if>",
        /// Of IPv6.
        pub ipv6: bool = "ipv6",
        /// Tracked interface, by its number or name, and what it takes from the priority.
        pub tracked: Vec<Tracked> = "track-index <if> priority <n>",
    } ignores {
        /// The next word is the interface's number.
        "sw_if_index",
    }
}

impl Execute<Router> for SetTracked {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let key = super::key(router, &self.interface, self.vr_id, self.ipv6, &[])?;
        let one = |tracked: &Tracked| Ok((resolve(router, &tracked.interface)?, tracked.priority));
        let all = self.tracked.iter().map(one).collect::<Result<Vec<_>, OpError>>()?;
        control::set_tracked(router, &key, &all, self.change == Change::Add).map(Outcome::Done)
    }
}
