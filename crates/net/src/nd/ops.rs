//! Neighbour discovery: router advertisements, duplicate address detection, and an interface's IPv6 side as shown.

mod configuration;
mod host;
mod proxy;
mod show;

use std::net::{IpAddr, Ipv6Addr};

use quiver_command::grammar::{Args, IfRef, quote};
use quiver_command::operation::{OpError, Outcome, Registry, retval};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use quiver_wire::Ipv6Prefix;
use serde::{Deserialize, Serialize};

pub use host::SetAutoconfig;
pub use proxy::{SetNdMirror, SetNdProxy};

use crate::Router;
use crate::interface::ops::resolve;
use crate::nd::{DadConfig, INFINITE, PrefixConfig, RaConfig, RaError};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetNd>().declare::<SetDad>().declare::<SetAutoRemove>().declare::<show::ShowAutoRemove>();
    host::register(registry);
    proxy::register(registry);
    configuration::register(registry);
    show::register(registry);
}

fn parse_nd(args: &mut Args<'_>) -> Result<SetNd, OpError> {
    let interface = args.interface()?;
    let no = args.take_keyword("no");
    let option = if args.take_exact("ra-suppress") {
        NdOption::Suppress
    } else if args.take_keyword("ra-suppress-link-layer") {
        NdOption::SuppressLinkLayer
    } else if args.take_keyword("ra-managed-config-flag") {
        NdOption::Managed
    } else if args.take_keyword("ra-other-config-flag") {
        NdOption::Other
    } else if args.take_keyword("ra-send-unicast") {
        NdOption::SendUnicast
    } else if args.take_keyword("ra-cease") {
        NdOption::Cease
    } else if args.take_keyword("ra-lifetime") {
        NdOption::Lifetime { seconds: if no { 0 } else { args.number_in("lifetime", 0..=9000)? } }
    } else if args.take_keyword("ra-initial") {
        let (count, interval) = if no { (3, 16) } else { (args.number("count")?, args.number("interval")?) };
        NdOption::Initial { count, interval }
    } else if args.take_keyword("ra-interval") {
        let max = if no { 200 } else { args.number("interval")? };
        NdOption::Interval { max, min: if no { None } else { args.try_number("smallest interval") } }
    } else if args.take_keyword("prefix") {
        parse_prefix(args)?
    } else {
        return Err(args.unexpected());
    };
    Ok(SetNd { interface, no, option })
}

fn nd_command(SetNd { interface, no, option }: &SetNd) -> Option<String> {
    let option = match option {
        NdOption::Suppress => "ra-suppress".to_owned(),
        NdOption::SuppressLinkLayer => "ra-suppress-link-layer".to_owned(),
        NdOption::Managed => "ra-managed-config-flag".to_owned(),
        NdOption::Other => "ra-other-config-flag".to_owned(),
        NdOption::SendUnicast => "ra-send-unicast".to_owned(),
        NdOption::Cease => "ra-cease".to_owned(),
        NdOption::Lifetime { .. } if *no => "ra-lifetime".to_owned(),
        NdOption::Lifetime { seconds } => format!("ra-lifetime {seconds}"),
        NdOption::Initial { .. } if *no => "ra-initial".to_owned(),
        NdOption::Initial { count, interval } => format!("ra-initial {count} {interval}"),
        NdOption::Interval { .. } if *no => "ra-interval".to_owned(),
        NdOption::Interval { max, min } => min.iter().fold(format!("ra-interval {max}"), |command, min| format!("{command} {min}")),
        NdOption::Prefix(prefix) => prefix.words(),
    };
    let no = if *no { "no " } else { "" };
    Some(format!("ip6 nd {} {no}{option}", quote(interface.as_str())))
}

fn parse_prefix(args: &mut Args<'_>) -> Result<NdOption, OpError> {
    let (address, len) = args.prefix("prefix")?;
    let IpAddr::V6(address) = address else {
        return Err(OpError::invalid("prefix", format!("{address}/{len}"), "an IPv6 prefix is needed"));
    };
    let mut prefix = Prefix { address, len, ..Prefix::default() };
    while !args.is_empty() {
        if args.take_keyword("default") {
            let PrefixConfig { valid, preferred, .. } = PrefixConfig::default();
            (prefix.valid, prefix.preferred) = (valid, preferred);
        } else if args.take_keyword("infinite") {
            (prefix.valid, prefix.preferred) = (INFINITE, INFINITE);
        } else if args.take_keyword("no-advertise") {
            prefix.advertise = false;
        } else if args.take_keyword("off-link") || args.take_keyword("no-onlink") {
            prefix.on_link = false;
        } else if args.take_keyword("no-autoconfig") {
            prefix.autoconfig = false;
        } else if let Some(valid) = args.try_number("valid lifetime") {
            prefix.valid = valid;
            prefix.preferred = args.number("preferred lifetime")?;
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(NdOption::Prefix(prefix))
}

/// Changes an option of an interface's router advertisements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetNd {
    /// Interface.
    pub interface: IfRef,
    /// Takes the option back.
    #[serde(default)]
    pub no: bool,
    /// Option.
    pub option: NdOption,
}

commands! {
    change SetNd "sw_interface_ip6nd_ra_config" {
        /// Sets what routers' advertisements of an interface say; the first option begins them, `ra-suppress' ends them.
        ["ip6 nd"] "<if> [no] ra-suppress|ra-suppress-link-layer|ra-managed-config-flag|ra-other-config-flag|ra-send-unicast|ra-lifetime|ra-initial|ra-interval|ra-cease|prefix [<value> ...] [default] [infinite] [no-advertise] [off-link] [no-autoconfig] [no-onlink]" by parse_nd => nd_command,
    }
}

/// An option of router advertisements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NdOption {
    /// None are sent.
    Suppress,
    /// Without our MAC address.
    SuppressLinkLayer,
    /// Addresses are to be had from DHCPv6.
    Managed,
    /// Other configuration is to be had from DHCPv6.
    Other,
    /// Hosts that ask are answered alone.
    SendUnicast,
    /// Hosts are told that this is no router of theirs any more; none are sent after that.
    Cease,
    /// How long hosts use this router.
    Lifetime {
        /// Seconds; 0: not at all.
        seconds: u16,
    },
    /// The first ones, which come faster.
    Initial {
        /// How many.
        count: u8,
        /// Seconds.
        interval: u8,
    },
    /// Time between two of them.
    Interval {
        /// Most seconds.
        max: u16,
        /// Fewest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min: Option<u16>,
    },
    /// A prefix of the link.
    Prefix(Prefix),
}

/// A prefix in advertisements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prefix {
    /// Address.
    pub address: Ipv6Addr,
    /// Length.
    pub len: u8,
    /// Seconds for which it is on the link.
    pub valid: u32,
    /// Seconds for which addresses from it are preferred.
    pub preferred: u32,
    /// It is in advertisements at all.
    pub advertise: bool,
    /// Hosts reach it without a router.
    pub on_link: bool,
    /// Hosts make addresses from it.
    pub autoconfig: bool,
}

impl Prefix {
    fn words(&self) -> String {
        let Self { address, len, valid, preferred, advertise, on_link, autoconfig } = self;
        let flags = [(advertise, " no-advertise"), (on_link, " off-link"), (autoconfig, " no-autoconfig")];
        let flags: String = flags.into_iter().filter(|(on, _)| !**on).map(|(_, word)| word).collect();
        format!("prefix {address}/{len} {valid} {preferred}{flags}")
    }
}

impl Default for Prefix {
    fn default() -> Self {
        let PrefixConfig { valid, preferred, on_link, autonomous, advertised } = PrefixConfig::default();
        Self { address: Ipv6Addr::UNSPECIFIED, len: 64, valid, preferred, advertise: advertised, on_link, autoconfig: autonomous }
    }
}

/// An error of advertisements as an operation's.
impl From<RaError> for OpError {
    fn from(error: RaError) -> Self {
        let (code, key) = match &error {
            RaError::NoInterface(_) => (retval::INVALID_SW_IF_INDEX, "interface"),
            RaError::Range { what, .. } => (retval::INVALID_VALUE, *what),
            RaError::Lifetimes { .. } => (retval::INVALID_VALUE, "preferred"),
            RaError::Full(_) => (retval::LIMIT_EXCEEDED, "prefix"),
        };
        OpError::new(code, error.to_string()).key(key)
    }
}

/// Applies an option; an option is a wish to advertise, unless it says the contrary.
fn apply(config: &mut RaConfig, option: &NdOption, no: bool) -> Result<(), OpError> {
    let mut send = true;
    match option {
        NdOption::Suppress => send = no,
        NdOption::Cease => send = no,
        NdOption::SuppressLinkLayer => config.hide_link_address = !no,
        NdOption::Managed => config.managed = !no,
        NdOption::Other => config.other = !no,
        NdOption::SendUnicast => config.unicast = !no,
        NdOption::Lifetime { seconds } => config.lifetime = if no { None } else { Some(*seconds) },
        NdOption::Initial { count, interval } => (config.initial, config.initial_interval) = (*count, *interval),
        NdOption::Interval { max, min } => (config.interval_max, config.interval_min) = (*max, *min),
        NdOption::Prefix(p) => {
            let prefix = Ipv6Prefix::new(p.address, p.len)
                .map_err(|e| OpError::invalid("prefix", format!("{}/{}", p.address, p.len), e.to_string()))?
                .masked();
            if no {
                let gone = config.prefixes.remove(&prefix);
                gone.ok_or_else(|| OpError::new(retval::NO_SUCH_ENTRY, format!("no prefix {prefix}")).key("prefix"))?;
            } else {
                let Prefix { valid, preferred, on_link, autoconfig, advertise, .. } = *p;
                let entry = PrefixConfig { valid, preferred, on_link, autonomous: autoconfig, advertised: advertise };
                config.prefixes.insert(prefix, entry);
            }
        }
    }
    config.send = send;
    Ok(())
}

impl Execute<Router> for SetNd {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let mut config = router.ra_config(index);
        apply(&mut config, &self.option, self.no)?;
        router.set_ra_config(index, config)?;
        Ok(Outcome::Done(()))
    }
}

/// Sets duplicate address detection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetDad {
    /// How often it is asked; 0: addresses are used at once.
    pub transmits: u8,
    /// Milliseconds between two questions, and from the last one until the address is used; 100 to 10000.
    #[serde(default = "usual_delay", skip_serializing_if = "is_usual_delay")]
    pub delay_ms: u16,
}

fn usual_delay() -> u16 {
    DadConfig::default().delay_ms
}

fn is_usual_delay(delay: &u16) -> bool {
    *delay == usual_delay()
}

commands! {
    change SetDad "ip6_dad_set" {
        /// Sets whether IPv6 addresses are checked for duplicates before they are used, and how often it is asked.
        ["set ip6 dad"] "enable|disable [transmits <n>] [delay <seconds>]" by parse_dad => dad_command,
    }
}

fn dad_command(SetDad { transmits, delay_ms }: &SetDad) -> Option<String> {
    let delay = if is_usual_delay(delay_ms) { String::new() } else { format!(" delay {}", f64::from(*delay_ms) / 1e3) };
    Some(match transmits {
        0 => format!("set ip6 dad disable{delay}"),
        n => format!("set ip6 dad enable transmits {n}{delay}"),
    })
}

/// How often it can be asked.
pub(crate) const TRANSMITS_MAX: u8 = 10;
/// Milliseconds between two questions, as VPP has them.
const DELAYS_MS: std::ops::RangeInclusive<u16> = 100..=10_000;

/// Milliseconds of a delay in seconds, where it is one that may be set.
pub(crate) fn delay_of(seconds: f64) -> Option<u16> {
    let ms = (seconds * 1e3).round();
    // What is no number is in no range.
    (f64::from(*DELAYS_MS.start())..=f64::from(*DELAYS_MS.end())).contains(&ms).then_some(ms as u16)
}

fn parse_dad(args: &mut Args<'_>) -> Result<SetDad, OpError> {
    let enable = args.switch("state")?;
    let (mut transmits, mut delay_ms) = (1, usual_delay());
    while !args.is_empty() {
        if args.take_keyword("transmits") {
            transmits = args.number_in("transmits", 1..=TRANSMITS_MAX)?;
        } else if args.take_keyword("delay") {
            let seconds: f64 = args.take("delay")?;
            delay_ms = delay_of(seconds).ok_or_else(|| OpError::invalid("delay", seconds, "expected 0.1 to 10 seconds"))?;
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(SetDad { transmits: if enable { transmits } else { 0 }, delay_ms })
}

impl Execute<Router> for SetDad {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        if self.transmits > TRANSMITS_MAX {
            return Err(OpError::invalid("transmits", self.transmits, format!("expected 0 to {TRANSMITS_MAX}")));
        }
        if !DELAYS_MS.contains(&self.delay_ms) {
            return Err(OpError::invalid("delay_ms", self.delay_ms, "expected 100 to 10000"));
        }
        router.set_dad_config(DadConfig { transmits: self.transmits, delay_ms: self.delay_ms });
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Takes IPv6 addresses off that somebody else on the link has, and has addresses checked; otherwise they stay where they are, unused.
    pub change SetAutoRemove "ip6_dad_autoremove_set" ["set ip6 dad autoremove"] {
        /// Whether they are taken off.
        pub enable: bool = "enable|disable" required(),
    }
}

impl Execute<Router> for SetAutoRemove {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        router.set_dad_autoremove(self.enable);
        Ok(Outcome::Done(()))
    }
}

#[cfg(test)]
mod tests;
