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

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

use super::descriptor::Descriptor;
use super::fault::words;
use super::kernel::Kernel;
use super::wire::{Flushed, Got};
use crate::codec::outbuf::OutBuf;
use crate::link::{FaultKind, IoFault, TlsSpec};
use crate::secret::Quoted;

/// Client configurations by what they are made from; each keeps the tickets for resumption. Made anew
/// when a file has changed.
#[derive(Debug, Default)]
pub(super) struct TlsConfigs {
    made: BTreeMap<Made, (Changed, Arc<ClientConfig>)>,
}

/// Which settings a configuration is made from: a file of authorities, our certificate and key, and
/// whether any certificate will do.
type Made = (Option<PathBuf>, Option<(PathBuf, PathBuf)>, bool);

/// When the files were changed last.
type Changed = [Option<SystemTime>; 3];

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
        let config = self.config(spec).map_err(fault)?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| fault(format!("{} is no server name", Quoted(host))))?;
        let connection = ClientConnection::new(config, name).map_err(|e| fault(explain(&e)))?;
        Ok(TlsSession {
            connection,
            plaintext: false,
        })
    }

    fn config(&mut self, spec: &TlsSpec) -> Result<Arc<ClientConfig>, String> {
        let changed = |path: &Path| std::fs::metadata(path).ok()?.modified().ok();
        let (chain, key) = spec.client.as_ref().map(|(c, k)| (c, k)).unzip();
        let files = [spec.ca_file.as_ref(), chain, key];
        let changed = files.map(|path| changed(path?));
        let made = (spec.ca_file.clone(), spec.client.clone(), spec.insecure);
        if let Some((then, config)) = self.made.get(&made) {
            if *then == changed {
                return Ok(Arc::clone(config));
            }
        }
        let config = Arc::new(client_config(spec)?);
        self.made.insert(made, (changed, Arc::clone(&config)));
        Ok(config)
    }
}

fn client_config(spec: &TlsSpec) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let builder = if spec.insecure {
        let anyone = Arc::new(Anyone(provider));
        builder.dangerous().with_custom_certificate_verifier(anyone)
    } else {
        builder.with_root_certificates(roots(spec.ca_file.as_deref())?)
    };
    let mut config = match &spec.client {
        None => builder.with_no_client_auth(),
        Some((chain_file, key_file)) => {
            let chain = certificates("client certificate file", chain_file)?;
            let key = private_key(key_file)?;
            builder.with_client_auth_cert(chain, key).map_err(|e| {
                let (chain, key) = (chain_file.to_string_lossy(), key_file.to_string_lossy());
                format!(
                    "client certificate {} with key {}: {}",
                    Quoted(&chain),
                    Quoted(&key),
                    explain(&e)
                )
            })?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The system's authorities and those of `ca_file`.
fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    if let Some(path) = ca_file {
        for certificate in certificates("CA file", path)? {
            let shown = path.to_string_lossy();
            let complain = |e| format!("CA file {}: {}", Quoted(&shown), explain(&e));
            roots.add(certificate).map_err(complain)?;
        }
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
    Ok(roots)
}

/// The certificates of a PEM file, at least one.
fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = found.map_err(|e| unreadable(what, path, &e))?;
    if found.is_empty() {
        let name = path.to_string_lossy();
        return Err(format!("{what} {}: no certificate in it", Quoted(&name)));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let what = "client key file";
    PrivateKeyDer::from_pem_file(path).map_err(|error| {
        if matches!(error, pem::Error::NoItemsFound) {
            // An encrypted key is none of the kinds that are looked for.
            let name = path.to_string_lossy();
            let wanted = "no private key without a passphrase in it";
            return format!("{what} {}: {wanted}", Quoted(&name));
        }
        unreadable(what, path, &error)
    })
}

fn unreadable(what: &str, path: &Path, error: &pem::Error) -> String {
    let name = path.to_string_lossy();
    let why = if let pem::Error::Io(error) = error {
        words(error)
    } else {
        error.to_string()
    };
    format!("{what} {}: {why}", Quoted(&name))
}

/// Takes any certificate, as `sslVerify: false` asks for. That the server has the key of the one it
/// shows is still checked.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
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
        kernel: &Kernel,
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
            match self.connection.read_tls(&mut Through { kernel, socket }) {
                // At the end of the stream the reader above says how it ended.
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(e) => return Err(e),
            }
            if let Err(error) = self.connection.process_new_packets() {
                // The alert tells the peer why. There is no second try if the socket is full.
                let _ = self.send_records(kernel, socket);
                return Err(io::Error::other(explain(&error)));
            }
        }
    }

    /// Encrypts and sends from `out`, and whatever the session itself has to say.
    pub(super) fn write(
        &mut self,
        kernel: &Kernel,
        socket: &mut Descriptor,
        out: &mut OutBuf,
        bytes_max: usize,
    ) -> io::Result<Flushed> {
        let mut left = bytes_max;
        loop {
            if !self.send_records(kernel, socket)? {
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
    fn send_records(&mut self, kernel: &Kernel, socket: &mut Descriptor) -> io::Result<bool> {
        while self.connection.wants_write() {
            if !socket.writable {
                return Ok(false);
            }
            match self.connection.write_tls(&mut Through { kernel, socket }) {
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
    kernel: &'a Kernel,
    socket: &'a mut Descriptor,
}

impl Read for Through<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.read(self.kernel, into)
    }
}

impl Write for Through<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(self.kernel, bytes)
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
