//! What a subagent sends, in network byte order.

use crate::oid::Oid;
use crate::read::Pdu;
use crate::value::{Bind, Value};
use crate::{HEADER, flag, kind};

/// What the header of a PDU says beside its type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Number that the master gave the session.
    pub session: u32,
    /// Number of the transaction.
    pub transaction: u32,
    /// Number of the PDU, by which its response is known.
    pub packet: u32,
}

impl Session {
    /// What the response to this PDU has in its header.
    pub fn of(pdu: &Pdu) -> Self {
        Self { session: pdu.session, transaction: pdu.transaction, packet: pdu.packet }
    }

    fn pdu(self, kind: u8, context: &str, payload: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let context_flag = if context.is_empty() { 0 } else { flag::NON_DEFAULT_CONTEXT };
        let mut out = vec![1, kind, flag::NETWORK_BYTE_ORDER | context_flag, 0];
        for number in [self.session, self.transaction, self.packet, 0] {
            out.extend(number.to_be_bytes());
        }
        if !context.is_empty() {
            octets(&mut out, context.as_bytes());
        }
        payload(&mut out);
        let length = u32::try_from(out.len() - HEADER).unwrap_or(u32::MAX);
        out[16..HEADER].copy_from_slice(&length.to_be_bytes());
        out
    }
}

/// Opens a session (RFC 2741, 6.2.1); the response has its number. The master waits `timeout_s` seconds for each answer.
pub fn open(session: Session, timeout_s: u8, description: &str) -> Vec<u8> {
    session.pdu(kind::OPEN, "", |out| {
        out.extend([timeout_s, 0, 0, 0]);
        oid(out, &Oid::default());
        octets(out, description.as_bytes());
    })
}

/// Asks for all requests below `subtree` (RFC 2741, 6.2.3). Of several that do so the one with the lowest `priority` gets them; 127 is usual.
pub fn register(session: Session, context: &str, priority: u8, subtree: &Oid) -> Vec<u8> {
    session.pdu(kind::REGISTER, context, |out| {
        out.extend([0, priority, 0, 0]);
        oid(out, subtree);
    })
}

/// A notification (RFC 2741, 6.2.10): `sysUpTime` is the master's, `snmpTrapOID` says which.
pub fn notify(session: Session, context: &str, binds: &[Bind]) -> Vec<u8> {
    session.pdu(kind::NOTIFY, context, |out| binds.iter().for_each(|one| bind(out, one)))
}

/// An answer (RFC 2741, 6.2.16). `index` says which variable an error is about, from 1.
pub fn response(session: Session, error: u16, index: u16, binds: &[Bind]) -> Vec<u8> {
    session.pdu(kind::RESPONSE, "", |out| {
        // sysUpTime is filled in by the master.
        out.extend([0; 4]);
        out.extend(error.to_be_bytes());
        out.extend(index.to_be_bytes());
        binds.iter().for_each(|one| bind(out, one));
    })
}

fn octets(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn oid(out: &mut Vec<u8>, oid: &Oid) {
    out.extend([u8::try_from(oid.parts().len()).unwrap_or(u8::MAX), 0, 0, 0]);
    oid.parts().iter().for_each(|part| out.extend(part.to_be_bytes()));
}

fn bind(out: &mut Vec<u8>, bind: &Bind) {
    out.extend(bind.value.tag().to_be_bytes());
    out.extend([0, 0]);
    oid(out, &bind.name);
    match &bind.value {
        Value::Integer(value) => out.extend(value.to_be_bytes()),
        Value::Octets(value) => octets(out, value),
        Value::Oid(value) => oid(out, value),
        Value::Counter32(value) | Value::Gauge32(value) | Value::TimeTicks(value) => out.extend(value.to_be_bytes()),
        Value::Counter64(value) => out.extend(value.to_be_bytes()),
        Value::NoSuchObject | Value::NoSuchInstance | Value::EndOfMibView => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Front, Request, front};

    const SESSION: Session = Session { session: 1, transaction: 2, packet: 3 };

    #[test]
    fn every_pdu_is_whole_and_has_its_numbers() {
        let binds = [
            Bind { name: Oid::new(&[1, 2]), value: Value::Octets(b"eth0.".to_vec()) },
            Bind { name: Oid::new(&[1, 3]), value: Value::Counter64(1 << 40) },
            Bind { name: Oid::new(&[1, 4]), value: Value::Oid(Oid::new(&[1])) },
            Bind { name: Oid::new(&[1, 5]), value: Value::EndOfMibView },
        ];
        for bytes in [
            open(SESSION, 5, "quiver"),
            register(SESSION, "", 100, &Oid::new(&[1, 3, 6])),
            register(SESSION, "router", 100, &Oid::new(&[1, 3, 6])),
            notify(SESSION, "", &binds),
            response(SESSION, 0, 0, &binds),
        ] {
            assert_eq!(front(&bytes), Ok(Front::Whole(bytes.len())));
            let pdu = Pdu::read(&bytes).unwrap();
            assert_eq!(Session::of(&pdu), SESSION);
        }
        let answer = Pdu::read(&response(SESSION, 257, 1, &binds)).unwrap();
        assert_eq!(answer.request, Request::Response { uptime: 0, error: 257 });
    }

    #[test]
    fn a_binding_is_laid_out_as_the_rfc_has_it() {
        // RFC 2741, 5.4: type, reserved, name, data; octets are filled up to four.
        let mut out = Vec::new();
        bind(&mut out, &Bind { name: Oid::new(&[1, 9]), value: Value::Octets(b"abcde".to_vec()) });
        let expected = [0, 4, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 5, b'a', b'b', b'c', b'd', b'e', 0, 0, 0];
        assert_eq!(out, expected);
    }
}
