//! `fib`: sources of routes.

use quiver_api::defs::*;
use quiver_command::operation::{OpError, retval};

use crate::api::Handlers;
use crate::fib::SourceError;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.reply::<FibSourceAdd, FibSourceAddReply>(|router, m| {
        let name = m.src.name.as_str().to_owned();
        let source = router.add_route_source(&name, m.src.priority).map_err(|error| {
            let (code, key) = match &error {
                SourceError::Exists { .. } => (retval::VALUE_EXIST, "name"),
                SourceError::Unnamed => (retval::INVALID_VALUE, "name"),
                SourceError::Priority(_) => (retval::INVALID_VALUE, "priority"),
                SourceError::Full => (retval::LIMIT_EXCEEDED, "src"),
            };
            OpError::new(code, error.to_string()).key(key)
        })?;
        Ok(FibSourceAddReply { retval: 0, id: source.id() })
    });
    handlers.dump::<FibSourceDump>(|router, _, send| {
        for source in router.route_sources() {
            let src = FibSource { priority: source.priority(), id: source.id(), name: source.name().into() };
            send(&FibSourceDetails { src });
        }
    });
}
