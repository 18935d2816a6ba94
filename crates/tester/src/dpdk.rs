//! Ports of DPDK's, where the tester was built with them.

use std::sync::Arc;

use quiver_buffer::Pool;
use quiver_drivers::stamped::Tail;
use quiver_graph::{Graph, Port};

use crate::bench::BenchError;
use crate::port::{Engine, PortSpec};
use crate::stamped::ports::{TimedReceiver, TimedSender};
#[cfg(feature = "dpdk")]
use {crate::stamped::ports::Told, std::io};

#[cfg(feature = "dpdk")]
use quiver_dpdk::{
    standalone::{Devices, Wanted},
    times::{TimedRx, TimedTx},
};

/// What sends frames with times, and what receives them.
pub(crate) type TimedEnds = (Box<dyn TimedSender>, Box<dyn TimedReceiver>);

/// The devices of a bench; empty where it has none.
pub struct Dpdk {
    #[cfg(feature = "dpdk")]
    devices: Option<Devices>,
}

/// The device that a port names.
fn devargs(engine: &Engine) -> Option<&str> {
    match engine {
        Engine::Dpdk(devargs) => Some(devargs),
        _ => None,
    }
}

#[cfg(feature = "dpdk")]
impl Dpdk {
    /// Starts DPDK where a port is one of its devices.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(specs: &[PortSpec]) -> Result<Self, BenchError> {
        let wanted = || specs.iter().filter_map(|spec| devargs(&spec.engine));
        let devices = if wanted().next().is_some() { Some(Devices::start(wanted()).map_err(BenchError::Setup)?) } else { None };
        Ok(Self { devices })
    }

    /// Opens a device for frames of up to `frame` bytes, with queues to receive and to send.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(
        &mut self,
        devargs: &str,
        mac: Option<[u8; 6]>,
        frame: usize,
        (rx, tx): (usize, usize),
        pools: &[Arc<Pool>],
    ) -> Result<Box<dyn Port>, String> {
        let Some(devices) = &mut self.devices else { return Err("DPDK was not started".into()) };
        let [rx_queues, tx_queues] = [rx, tx].map(|n| u16::try_from(n).unwrap_or(u16::MAX));
        let port = devices.open(&Wanted { devargs, mac, frame, rx_queues, tx_queues }, pools)?;
        Ok(Box::new(port))
    }

    /// Looks after the devices.
    pub fn serve(&mut self, graph: &mut Graph) {
        if let Some(devices) = &mut self.devices {
            devices.serve(&mut || {
                graph.fleet().each(|_| ());
            });
        }
    }

    /// Has devices give frames times that go from the first to the second.
    ///
    /// # Errors
    /// Why they give none, in a line.
    pub fn switch_times_on(&self, devices: [&Engine; 2], graph: &mut Graph) -> Result<(), String> {
        let Some((own, names)) = self.named(devices) else { return Ok(()) };
        let on = own.switch_times_on(names, &mut || {
            graph.fleet().each(|_| ());
        });
        on.map_err(|error| error.to_string())
    }

    /// What sends such frames, and what tells when those came that end as `tail` says.
    ///
    /// # Errors
    /// Why there is none, in a line.
    pub(crate) fn timed(&self, devices: [&Engine; 2], tail: Tail) -> Result<TimedEnds, String> {
        let (own, names) = self.named(devices).ok_or("DPDK was not started")?;
        let ends = own.timed(names, Box::new(move |frame| tail.takes(frame))).map_err(|error| error.to_string())?;
        let (tx, rx) = ends.ok_or("its device is not open")?;
        Ok((Box::new(tx), Box::new(rx)))
    }

    fn named<'a>(&self, devices: [&'a Engine; 2]) -> Option<(&Devices, [&'a str; 2])> {
        let [from, to] = devices.map(devargs);
        Some((self.devices.as_ref()?, [from?, to?]))
    }

    /// Frames that a port's device has dropped because the tester did not take them in time.
    pub fn missed(&self, engine: &Engine) -> u64 {
        self.devices.as_ref().zip(devargs(engine)).map_or(0, |(devices, devargs)| devices.missed(devargs))
    }
}

#[cfg(not(feature = "dpdk"))]
impl Dpdk {
    /// Nothing to start; says so where a port needs it.
    ///
    /// # Errors
    /// A port is a device of DPDK's.
    pub fn start(specs: &[PortSpec]) -> Result<Self, BenchError> {
        match specs.iter().find(|spec| devargs(&spec.engine).is_some()) {
            None => Ok(Self {}),
            Some(spec) => Err(BenchError::Open {
                port: spec.to_string(),
                error: "this tester was built without DPDK: install libdpdk-dev and build with --features quiver-tester/dpdk"
                    .into(),
            }),
        }
    }

    /// There are none.
    ///
    /// # Errors
    /// Always.
    pub fn open(
        &mut self,
        _devargs: &str,
        _mac: Option<[u8; 6]>,
        _frame: usize,
        _queues: (usize, usize),
        _pools: &[Arc<Pool>],
    ) -> Result<Box<dyn Port>, String> {
        Err("this tester was built without DPDK".into())
    }

    /// Nothing to look after.
    pub fn serve(&mut self, _graph: &mut Graph) {}

    /// There are none.
    ///
    /// # Errors
    /// Never.
    pub fn switch_times_on(&self, _devices: [&Engine; 2], _graph: &mut Graph) -> Result<(), String> {
        Ok(())
    }

    /// There are none.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn timed(&self, _devices: [&Engine; 2], _tail: Tail) -> Result<TimedEnds, String> {
        Err("this tester was built without DPDK".into())
    }

    /// None.
    pub fn missed(&self, _engine: &Engine) -> u64 {
        0
    }
}

#[cfg(feature = "dpdk")]
impl TimedSender for TimedTx {
    fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        Self::send(self, frame)
    }

    fn departed(&mut self, buffer: &mut [u8]) -> Told {
        Self::departed(self, buffer)
    }
}

#[cfg(feature = "dpdk")]
impl TimedReceiver for TimedRx {
    fn arrived(&mut self, buffer: &mut [u8]) -> Told {
        Self::arrived(self, buffer)
    }
}
