//! Where routes lead, each once, however many routes have it: what the kernel says, and what the router makes of it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use quiver_graph::IfIndex;
use quiver_net::fib::{self, Path};
use serde::Serialize;

use crate::message::{Hop, Link, NextHop, Target};

/// Paths of a route, shared by all that have them.
pub type Paths = Arc<[Path]>;

/// Why a route of the kernel is not in the router's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// It leaves by interfaces that have no counterpart here.
    NoInterface,
    /// Its links are down.
    LinkDown,
    /// Its next hop is of IPv4, and it is of IPv6.
    OtherFamily,
    /// Packets would get a header more.
    Encapsulation,
    /// Its next-hop object is unknown, or is for bridges.
    NoObject,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::NoInterface, Self::LinkDown, Self::OtherFamily, Self::Encapsulation, Self::NoObject];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoInterface => "no interface",
            Self::LinkDown => "link down",
            Self::OtherFamily => "next hop of the other family",
            Self::Encapsulation => "encapsulation",
            Self::NoObject => "no next-hop object",
        }
    }
}

/// What targets are resolved with.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Interfaces of the router by the host's index.
    pub interfaces: HashMap<u32, IfIndex>,
    /// Links of the namespace.
    pub links: HashMap<u32, Link>,
    /// Next-hop objects of the kernel.
    pub objects: HashMap<u32, NextHop>,
    /// Those of a routing daemon.
    pub pushed_objects: HashMap<u32, NextHop>,
}

struct Slot {
    v6: bool,
    target: Target,
    /// Routes that have it.
    routes: u32,
    result: Result<Paths, Refusal>,
}

/// All targets.
#[derive(Default)]
pub struct Targets {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    by_target: HashMap<(bool, Target), u32>,
    /// Next hops of all of them.
    hops: usize,
}

/// Next hops of a target by itself.
fn hops_of(target: &Target) -> usize {
    if let Target::Hops(hops) = target { hops.len() } else { 0 }
}

impl Targets {
    /// The number of a target for one more route.
    pub fn take(&mut self, v6: bool, target: &Target, surroundings: &Surroundings) -> u32 {
        let key = (v6, target.clone());
        if let Some(number) = self.by_target.get(&key) {
            if let Some(Some(slot)) = self.slots.get_mut(*number as usize) {
                slot.routes += 1;
            }
            return *number;
        }
        let slot = Slot { v6, target: key.1.clone(), routes: 1, result: resolve(v6, target, surroundings) };
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = Some(slot);
                number
            }
            None => {
                self.slots.push(Some(slot));
                (self.slots.len() - 1) as u32
            }
        };
        self.hops += hops_of(target);
        self.by_target.insert(key, number);
        number
    }

    /// A route does not have it any more.
    pub fn give(&mut self, number: u32) {
        let Some(Some(slot)) = self.slots.get_mut(number as usize) else { return };
        slot.routes -= 1;
        if slot.routes == 0 {
            self.hops -= hops_of(&slot.target);
            self.by_target.remove(&(slot.v6, slot.target.clone()));
            self.slots[number as usize] = None;
            self.free.push(number);
        }
    }

    fn slot(&self, number: u32) -> Option<&Slot> {
        self.slots.get(number as usize)?.as_ref()
    }

    /// The number that a target has, where routes have it.
    pub fn find(&self, v6: bool, target: &Target) -> Option<u32> {
        self.by_target.get(&(v6, target.clone())).copied()
    }

    /// Next hops that are kept.
    pub fn hops(&self) -> usize {
        self.hops
    }

    /// Numbers of the targets that are objects of a routing daemon.
    pub fn pushed(&self) -> Vec<u32> {
        let is_pushed = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| matches!(slot.target, Target::PushedObject(_)));
        (0..).zip(&self.slots).filter(|(_, slot)| is_pushed(slot)).map(|(number, _)| number).collect()
    }

    /// What the kernel says.
    pub fn target(&self, number: u32) -> Option<&Target> {
        self.slot(number).map(|slot| &slot.target)
    }

    /// What the router makes of it.
    pub fn paths(&self, number: u32) -> Option<&Paths> {
        self.slot(number)?.result.as_ref().ok()
    }

    /// Resolves those of these numbers, or all, again; gives those with another result, marked by number.
    pub fn resolve_again(&mut self, only: Option<&[u32]>, surroundings: &Surroundings) -> Vec<bool> {
        let mut changed = Vec::new();
        let all: Vec<u32>;
        let numbers = match only {
            Some(numbers) => numbers,
            None => {
                all = (0..self.slots.len() as u32).collect();
                &all
            }
        };
        for number in numbers {
            let Some(Some(slot)) = self.slots.get_mut(*number as usize) else { continue };
            let result = resolve(slot.v6, &slot.target, surroundings);
            if result != slot.result {
                slot.result = result;
                changed.resize(changed.len().max(*number as usize + 1), false);
                changed[*number as usize] = true;
            }
        }
        changed
    }

    /// Targets for which `is_gone` holds, marked by number; empty where there are none.
    pub fn marked(&self, is_gone: impl Fn(&Target) -> bool) -> Vec<bool> {
        let marks: Vec<bool> = self.slots.iter().map(|slot| slot.as_ref().is_some_and(|slot| is_gone(&slot.target))).collect();
        if marks.contains(&true) { marks } else { Vec::new() }
    }

    /// Routes, of all metrics, whose target the router does not take, by reason.
    pub fn refused(&self) -> HashMap<Refusal, u64> {
        let mut refused = HashMap::new();
        for slot in self.slots.iter().flatten() {
            if let Err(why) = slot.result {
                *refused.entry(why).or_default() += u64::from(slot.routes);
            }
        }
        refused
    }
}

fn resolve(v6: bool, target: &Target, around: &Surroundings) -> Result<Paths, Refusal> {
    let one = |hop| Ok(Arc::from([Path::new(hop)]));
    match target {
        Target::Blackhole => one(fib::Hop::Drop),
        Target::Unreachable => one(fib::Hop::Unreachable),
        Target::Prohibit => one(fib::Hop::Prohibited),
        Target::Hops(hops) => paths(v6, hops.iter().copied(), around),
        Target::Object(id) => object(v6, *id, &around.objects, around),
        Target::PushedObject(id) => object(v6, *id, &around.pushed_objects, around),
    }
}

fn object(v6: bool, id: u32, objects: &HashMap<u32, NextHop>, around: &Surroundings) -> Result<Paths, Refusal> {
    let drops = || Ok(Arc::from([Path::new(fib::Hop::Drop)]));
    match objects.get(&id) {
        None | Some(NextHop::Other) => Err(Refusal::NoObject),
        Some(NextHop::Blackhole) => drops(),
        Some(NextHop::One(hop)) => paths(v6, [*hop].into_iter(), around),
        Some(NextHop::Group(members)) => {
            let single = |(id, weight): &(u32, u16)| match objects.get(id) {
                Some(NextHop::One(hop)) => Some(Hop { weight: *weight, ..*hop }),
                _ => None,
            };
            // A group may hold a blackhole only alone.
            if let [(only, _)] = members[..]
                && objects.get(&only) == Some(&NextHop::Blackhole)
            {
                return drops();
            }
            paths(v6, members.iter().filter_map(single), around).map_err(|why| match members.is_empty() {
                true => Refusal::NoObject,
                false => why,
            })
        }
    }
}

/// The next hops that can be used, as paths; where there is none, why.
///
/// A link without a carrier takes the route away only with the last of its links. As long as another one carries, the paths stay as they
/// are: the router's table leaves the dead one out by itself, once for all prefixes.
fn paths(v6: bool, hops: impl Iterator<Item = Hop>, around: &Surroundings) -> Result<Paths, Refusal> {
    let mut usable: Vec<(Path, u32)> = Vec::new();
    let (mut refusal, mut carried) = (None, false);
    for hop in hops {
        match path(v6, &hop, around) {
            Ok(path) => {
                carried |= around.links.get(&hop.link).is_none_or(|link| link.carrier);
                match usable.iter_mut().find(|(known, _)| known.hop == path.hop) {
                    Some((_, weight)) => *weight += u32::from(hop.weight.max(1)),
                    None => usable.push((path, u32::from(hop.weight.max(1)))),
                }
            }
            Err(why) => refusal = refusal.or(Some(why)),
        }
    }
    if !usable.is_empty() && !carried {
        return Err(Refusal::LinkDown);
    }
    // Weights of the kernel have 16 bits, those of paths 8.
    let most = usable.iter().map(|(_, weight)| *weight).max().unwrap_or(1);
    let scaled = |weight: u32| match most {
        0..=255 => weight as u8,
        _ => ((u64::from(weight) * 255 / u64::from(most)).max(1)) as u8,
    };
    let mut paths: Vec<Path> = usable.into_iter().map(|(path, weight)| Path { weight: scaled(weight), ..path }).collect();
    paths.sort_unstable();
    if paths.is_empty() { Err(refusal.unwrap_or(Refusal::NoObject)) } else { Ok(paths.into()) }
}

fn path(v6: bool, hop: &Hop, around: &Surroundings) -> Result<Path, Refusal> {
    if hop.encapsulated {
        return Err(Refusal::Encapsulation);
    }
    let interface = *around.interfaces.get(&hop.link).ok_or(Refusal::NoInterface)?;
    if around.links.get(&hop.link).is_some_and(|link| !link.up) {
        return Err(Refusal::LinkDown);
    }
    match hop.via {
        None => Ok(Path::new(fib::Hop::Attached { interface, source: None })),
        // IPv4 by an IPv6 neighbour (RFC 8950) is possible; the other way round is not.
        Some(via) if v6 && via.is_ipv4() => Err(Refusal::OtherFamily),
        Some(IpAddr::V4(via)) if via.is_unspecified() => Ok(Path::new(fib::Hop::Attached { interface, source: None })),
        Some(via) => Ok(Path::neighbor(interface, via)),
    }
}
