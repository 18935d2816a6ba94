//! Commands, JSON, and binary messages.

use std::sync::atomic::Ordering::Relaxed;

use quiver_api::defs::InterfaceIndex;
use quiver_api::module;
use quiver_api::module::*;
use quiver_command::configuration::{Configuration, Stage, whole};
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::api::{Handlers, perform, reference};
use quiver_net::interface::ops::resolve;
use quiver_net::ops::{done, graph_error};
use quiver_net::{IfIndex, Router};
use serde::Serialize;

use crate::State;
use crate::node::{ARC, NODE};

pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetLimit>().declare::<ShowLimits>().covers(&["ttl_limit_set"]);
    registry.configuration(Stage::Services, |_| whole(configuration));
}

request! {
    /// Drops packets whose TTL is below a least one, or no longer.
    pub change SetLimit "ttl_limit_set" ["set ttl-limit"] {
        /// Interface that packets come in on.
        pub interface: IfRef = "<if>",
        /// Least TTL; that of startup.conf where absent.
        pub least: Option<u8> = "least <n>" range(1..=255),
        /// No longer.
        pub disable: bool = "disable",
    }
}

impl Execute<Router> for SetLimit {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let Some(state) = router.part::<State>() else { return Err(OpError::unspecified("the plugin is off")) };
        let least = if self.disable { 0 } else { self.least.unwrap_or(state.least) };
        state.limits[index.0 as usize].store(least, Relaxed);
        router.graph.set_feature(ARC, NODE, index, least > 0).map_err(|error| graph_error(&error))?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows where packets with a low TTL are dropped.
    pub read ShowLimits "ttl_limit_show" ["show ttl-limit"] {}
}

/// An interface and its least TTL.
#[derive(Debug, Serialize)]
pub struct Limit {
    interface: String,
    sw_if_index: u32,
    least: u8,
}

impl Text for Limit {
    fn text(&self, out: &mut String, _: &View) {
        out.push_str(&format!("{}: {}\n", self.interface, self.least));
    }
}

fn limits(router: &Router) -> Vec<Limit> {
    let least = |index: IfIndex| router.part::<State>().map_or(0, |state| state.limits[index.0 as usize].load(Relaxed));
    let all = router.interfaces.iter().map(|i| Limit { interface: i.name.clone(), sw_if_index: i.index.0, least: least(i.index) });
    all.filter(|limit| limit.least > 0).collect()
}

impl Execute<Router> for ShowLimits {
    type Reply = Vec<Limit>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Vec<Limit>>, OpError> {
        Ok(Outcome::Done(limits(router)))
    }
}

fn configuration(router: &Router, out: &mut Configuration<Router>) {
    for Limit { interface, least, .. } in limits(router) {
        let request = |disable: bool| SetLimit { interface: IfRef(interface.clone()), least: (!disable).then_some(least), disable };
        out.push(&request(false)).undo(&request(true)).replaced();
    }
}

module! {
    ttl_limit "1.0.0"
    messages {
        client TtlLimitSet "ttl_limit_set" -> ttl_limit_set_reply { sw_if_index: InterfaceIndex, least: u8, is_enable: bool }
        context TtlLimitSetReply "ttl_limit_set_reply" { retval: i32 }
        client TtlLimitDump "ttl_limit_dump" => ttl_limit_details {}
        context TtlLimitDetails "ttl_limit_details" { sw_if_index: InterfaceIndex, least: u8 }
    }
}

pub fn api(handlers: &mut Handlers) {
    handlers.module(ttl_limit());
    handlers.act::<TtlLimitSet, TtlLimitSetReply>(|router, m| {
        let least = Some(m.least).filter(|least| *least > 0);
        done(perform::<SetLimit>(router, SetLimit { interface: reference(router, &m.sw_if_index)?, least, disable: !m.is_enable })?)
    });
    handlers.dump::<TtlLimitDump>(|router, _, send| {
        let details = |limit: &Limit| TtlLimitDetails { sw_if_index: InterfaceIndex(limit.sw_if_index), least: limit.least };
        limits(router).iter().for_each(|limit| send(&details(limit)));
    });
}
