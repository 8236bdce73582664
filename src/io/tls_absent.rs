//! Stands in for TLS in a program built without the feature `tls`: no session can be made.

use std::io;

use super::descriptor::Descriptor;
use super::kernel::Kernel;
use super::wire::{Flushed, Got};
use crate::codec::outbuf::OutBuf;
use crate::link::{FaultKind, IoFault, TlsSpec};

/// Makes no sessions.
#[derive(Debug, Default)]
pub(super) struct TlsConfigs {}

/// A session that cannot exist.
#[derive(Debug)]
pub(super) enum TlsSession {}

impl TlsConfigs {
    pub(super) fn session(
        &mut self,
        _spec: &TlsSpec,
        _host: &str,
        label: &str,
    ) -> Result<TlsSession, IoFault> {
        Err(IoFault {
            kind: FaultKind::Tls,
            message: format!(
                "cannot connect to {label} with TLS: this program was built without the feature tls"
            ),
        })
    }
}

impl TlsSession {
    pub(super) fn handshaking(&self) -> bool {
        match *self {}
    }

    pub(super) fn has_plaintext(&self) -> bool {
        match *self {}
    }

    pub(super) fn wants_write(&self) -> bool {
        match *self {}
    }

    pub(super) fn read(
        &mut self,
        _kernel: &Kernel,
        _socket: &mut Descriptor,
        _into: &mut [u8],
    ) -> io::Result<Got> {
        match *self {}
    }

    pub(super) fn write(
        &mut self,
        _kernel: &Kernel,
        _socket: &mut Descriptor,
        _out: &mut OutBuf,
        _bytes_max: usize,
    ) -> io::Result<Flushed> {
        match *self {}
    }

    pub(super) fn close(&mut self) {
        match *self {}
    }
}
