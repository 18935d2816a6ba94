//! Making interfaces of the kind BVI. `bvi delete` is `interface_delete` of this kind.

use quiver_command::operation::{OpError, Outcome, Registry};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_wire::MacAddr;

use crate::Router;
use crate::interface::ops::Created;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<CreateBvi>();
}

request! {
    /// Makes a BVI, an interface by which the router is in a bridge domain, and prints its name.
    pub change CreateBvi "bvi_create" ["bvi create"] {
        /// MAC address; `b0:b0:00:00:` and the instance where none is given.
        pub mac: Option<[u8; 6]> = "mac <mac>" unicast(),
        /// Number in the name; the lowest free one where none is given.
        pub instance: Option<u32> = "instance <n>" range(0..=16_383),
    }
}

impl Execute<Router> for CreateBvi {
    type Reply = Created;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Created>, OpError> {
        let index = router.create_bvi(self.instance, self.mac.map(MacAddr))?;
        let instance = router.interfaces.name(index).strip_prefix("bvi").and_then(|number| number.parse().ok());
        router.made_by(index, &Self { instance, ..self });
        Ok(Outcome::Done(Created::one(router, index)))
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{error, run};
    use crate::testing::Harness;

    #[test]
    fn a_bvi_is_made_bridged_and_removed() {
        let mut h = Harness::new();
        assert_eq!(run(&mut h.router, "bvi create"), "bvi0\n");
        assert_eq!(run(&mut h.router, "bvi create mac 02:00:00:00:00:07 instance 7"), "bvi7\n");
        assert_eq!(run(&mut h.router, "bvi create"), "bvi1\n");
        let shown = run(&mut h.router, "show hardware-interfaces");
        assert!(shown.contains("b0:b0:00:00:00:01") && shown.contains("02:00:00:00:00:07"), "{shown}");
        run(&mut h.router, "create loopback interface");
        run(&mut h.router, "set interface l2 bridge bvi7 3 bvi");
        assert!(run(&mut h.router, "show l2fib verbose").contains("02:00:00:00:00:07"));
        for (line, expected) in [
            ("bvi create instance 7", "exists"),
            ("bvi create instance 16384", "16383"),
            ("set interface l2 bridge bvi1 3", "can only be a bvi"),
            ("set interface l2 bridge bvi1 3 bvi", "has a BVI already"),
            ("delete loopback interface intfc bvi7", "is not a loopback"),
            ("bvi delete loop0", "is not a BVI"),
        ] {
            let error = error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
        run(&mut h.router, "bvi delete bvi7");
        run(&mut h.router, "bvi delete bvi0");
        assert_eq!(run(&mut h.router, "bvi create"), "bvi0\n", "the lowest free number");
    }
}
