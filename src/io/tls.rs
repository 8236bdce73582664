//! TLS towards a server, below the byte level of a wire (the only user of rustls).
//!
//! The session sits between a socket and the machine's bytes: the machine hears `Opened` after the
//! handshake and never sees a record. TLS 1.2 and 1.3; HTTP/1.1 by ALPN. Source: RFC 8446, RFC
//! 7301.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use mio::Registry;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore};

use super::descriptor::Descriptor;
use super::fault::words;
use super::wire::{Flushed, Got};
use crate::codec::outbuf::OutBuf;
use crate::link::{FaultKind, IoFault, TlsSpec};
use crate::secret::Quoted;

/// Client configurations by the file of extra authorities; each keeps the tickets for resumption.
/// Made anew when the file has changed.
#[derive(Debug, Default)]
pub(super) struct TlsConfigs {
    made: BTreeMap<Option<PathBuf>, (Option<SystemTime>, Arc<ClientConfig>)>,
}

/// One connection's TLS state.
#[derive(Debug)]
pub(super) struct TlsSession {
    connection: ClientConnection,
    plaintext: bool,
}

impl TlsConfigs {
    /// A session with the server `host`, ready to shake hands. `label` names it in messages.
    pub(super) fn session(
        &mut self,
        spec: &TlsSpec,
        host: &str,
        label: &str,
    ) -> Result<TlsSession, IoFault> {
        let fault = |why: String| IoFault {
            kind: FaultKind::Tls,
            message: format!("cannot connect to {label} with TLS: {why}"),
        };
        let config = self.config(spec.ca_file.as_deref()).map_err(fault)?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| fault(format!("{} is no server name", Quoted(host))))?;
        let connection = ClientConnection::new(config, name).map_err(|e| fault(explain(&e)))?;
        Ok(TlsSession {
            connection,
            plaintext: false,
        })
    }

    fn config(&mut self, ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
        let changed = ca_file.and_then(|path| std::fs::metadata(path).ok()?.modified().ok());
        let key = ca_file.map(Path::to_owned);
        if let Some((then, config)) = self.made.get(&key) {
            if *then == changed {
                return Ok(Arc::clone(config));
            }
        }
        let config = Arc::new(client_config(ca_file)?);
        self.made.insert(key, (changed, Arc::clone(&config)));
        Ok(config)
    }
}

/// Trusts the system's authorities and those of `ca_file`.
fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    if let Some(path) = ca_file {
        add_file(&mut roots, path)?;
    }
    if roots.is_empty() {
        let why = match native.errors.first() {
            Some(error) => format!(" ({error})"),
            None => String::new(),
        };
        return Err(format!(
            "this system has no certificate authorities{why}; install them or name a CA file"
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    use rustls::pki_types::pem;

    let name = path.to_string_lossy();
    let complain = |why: String| format!("CA file {}: {why}", Quoted(&name));
    let unreadable = |error: pem::Error| {
        if let pem::Error::Io(e) = &error {
            return complain(words(e));
        }
        complain(error.to_string())
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let mut found = 0_u32;
    for certificate in certificates {
        let certificate = certificate.map_err(unreadable)?;
        roots.add(certificate).map_err(|e| complain(explain(&e)))?;
        found += 1;
    }
    if found == 0 {
        return Err(complain("no certificate in it".to_owned()));
    }
    Ok(())
}

impl TlsSession {
    /// Whether the machine must wait for `Opened`.
    pub(super) fn handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether a read finds something without the socket's help.
    pub(super) const fn has_plaintext(&self) -> bool {
        self.plaintext
    }

    /// Whether records wait for the socket: handshake, key update, alert.
    pub(super) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Decrypted bytes, fetched from the socket as needed.
    pub(super) fn read(
        &mut self,
        registry: &Registry,
        socket: &mut Descriptor,
        into: &mut [u8],
    ) -> io::Result<Got> {
        loop {
            match self.connection.reader().read(into) {
                Ok(0) => return Ok(Got::Eof),
                Ok(n) => {
                    self.plaintext = true;
                    return Ok(Got::Bytes(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.plaintext = false,
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    // Without close_notify the end may be the work of someone in between.
                    return Err(io::Error::other("the peer ended it without close_notify"));
                }
                Err(e) => return Err(e),
            }
            if !socket.readable {
                return Ok(Got::Dry);
            }
            match self.connection.read_tls(&mut Through { registry, socket }) {
                // At the end of the stream the reader above says how it ended.
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(e) => return Err(e),
            }
            if let Err(error) = self.connection.process_new_packets() {
                // The alert tells the peer why. There is no second try if the socket is full.
                let _ = self.send_records(registry, socket);
                return Err(io::Error::other(explain(&error)));
            }
        }
    }

    /// Encrypts and sends from `out`, and whatever the session itself has to say.
    pub(super) fn write(
        &mut self,
        registry: &Registry,
        socket: &mut Descriptor,
        out: &mut OutBuf,
        bytes_max: usize,
    ) -> io::Result<Flushed> {
        let mut left = bytes_max;
        loop {
            if !self.send_records(registry, socket)? {
                return Ok(Flushed::Blocked);
            }
            if out.is_empty() {
                return Ok(Flushed::All);
            }
            if self.connection.is_handshaking() {
                return Ok(Flushed::Blocked);
            }
            if left == 0 {
                return Ok(Flushed::More);
            }
            match self.connection.writer().write(out.pending()) {
                Ok(n) => {
                    out.advance(n);
                    left = left.saturating_sub(n);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Writes what the session has made ready; false when the socket is full before the end.
    fn send_records(&mut self, registry: &Registry, socket: &mut Descriptor) -> io::Result<bool> {
        while self.connection.wants_write() {
            if !socket.writable {
                return Ok(false);
            }
            match self.connection.write_tls(&mut Through { registry, socket }) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Says goodbye; the next [`TlsSession::write`] sends it.
    pub(super) fn close(&mut self) {
        self.connection.send_close_notify();
    }
}

/// The socket as rustls wants it.
struct Through<'a> {
    registry: &'a Registry,
    socket: &'a mut Descriptor,
}

impl Read for Through<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.read(self.registry, into)
    }
}

impl Write for Through<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(self.registry, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The usual reasons in words a person can act on; the rest as rustls puts it.
fn explain(error: &rustls::Error) -> String {
    use CertificateError as Bad;

    let rustls::Error::InvalidCertificate(reason) = error else {
        return error.to_string();
    };
    let said = if matches!(reason, Bad::Expired | Bad::ExpiredContext { .. }) {
        "has expired"
    } else if matches!(reason, Bad::NotValidYet | Bad::NotValidYetContext { .. }) {
        "is not valid yet"
    } else if matches!(
        reason,
        Bad::NotValidForName | Bad::NotValidForNameContext { .. }
    ) {
        "is for another name"
    } else if matches!(reason, Bad::UnknownIssuer) {
        "comes from no authority we trust; see DRAWSPAN_CA_FILE"
    } else if matches!(reason, Bad::BadSignature) {
        "names an authority we trust but is not signed by it"
    } else if matches!(reason, Bad::Revoked) {
        "has been revoked"
    } else {
        return error.to_string();
    };
    format!("the server's certificate {said}")
}
