//! TLS wires against a rustls server and against `openssl s_server`.
//!
//! Certificates come from the `openssl` program; `DRAWSPAN_SKIP_PEERS=1` leaves these tests out.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use drawspan::link::{FaultKind, OpenSpec, TlsSpec};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::probe::{PATIENCE, Probe, Seen, World, assert_fault, pattern};

/// A certificate authority and a server certificate of it, in a directory of their own.
struct Authority(PathBuf);

impl Authority {
    /// `None`, with a word on stderr, when these tests are to be left out.
    #[expect(clippy::print_stderr, reason = "a test that is left out says so")]
    fn new(test: &str, names: &str, days: &str) -> Option<Self> {
        if std::env::var_os("DRAWSPAN_SKIP_PEERS").is_some() {
            eprintln!("skipped: {test} (DRAWSPAN_SKIP_PEERS is set)");
            return None;
        }
        let dir = std::env::temp_dir().join(format!("drawspan-tls-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let this = Self(dir);
        let extensions = format!("subjectAltName={names}\nbasicConstraints=CA:FALSE\n");
        std::fs::write(this.file("extensions"), extensions).unwrap();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        this.openssl(&format!(
            "req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN={test}"
        ));
        this.openssl(&format!(
            "req {key} -keyout leaf.key -out leaf.csr -subj /CN=leaf"
        ));
        this.openssl(&format!(
            "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days {days} \
             -extfile extensions -out leaf.pem"
        ));
        Some(this)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl")
            .args(arguments.split_whitespace())
            .current_dir(&self.0)
            .output()
            .expect("the `openssl` program; DRAWSPAN_SKIP_PEERS=1 leaves these tests out");
        assert!(
            output.status.success(),
            "openssl {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// `clients`: who connects must show a certificate of this authority.
    fn server_config(&self, clients: Option<&Self>) -> Arc<ServerConfig> {
        let chain = CertificateDer::pem_file_iter(self.file("leaf.pem")).unwrap();
        let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(self.file("leaf.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                let ca = CertificateDer::from_pem_file(authority.file("ca.pem")).unwrap();
                roots.add(ca).unwrap();
                let roots = Arc::new(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        Arc::new(builder.with_single_cert(chain, key).unwrap())
    }

    /// Accepts one connection and gives it to `serve`.
    fn serve<T: Send + 'static>(
        &self,
        serve: impl FnOnce(StreamOwned<ServerConnection, TcpStream>) -> T + Send + 'static,
    ) -> (u16, JoinHandle<T>) {
        self.serve_clients_of(None, serve)
    }

    fn serve_clients_of<T: Send + 'static>(
        &self,
        clients: Option<&Self>,
        serve: impl FnOnce(StreamOwned<ServerConnection, TcpStream>) -> T + Send + 'static,
    ) -> (u16, JoinHandle<T>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = self.server_config(clients);
        let thread = std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let session = ServerConnection::new(config).unwrap();
            serve(StreamOwned::new(session, socket))
        });
        (port, thread)
    }

    fn trusted(&self) -> Option<PathBuf> {
        Some(self.file("ca.pem"))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tls(host: &str, port: u16, ca_file: Option<PathBuf>) -> OpenSpec {
    tls_with(
        host,
        port,
        TlsSpec {
            ca_file,
            ..TlsSpec::default()
        },
    )
}

fn tls_with(host: &str, port: u16, spec: TlsSpec) -> OpenSpec {
    OpenSpec::Tcp {
        host: host.to_owned(),
        port,
        tls: Some(spec),
    }
}

const NAMES: &str = "DNS:localhost,IP:127.0.0.1";

/// Opens wire 1 and expects a fault that says `words`.
#[track_caller]
fn fails(spec: OpenSpec, words: &[&str]) {
    let mut world = World::new(Probe::new());
    world.probe.open(1, spec);
    world.until("the fault", |p| p.fault(1).is_some());
    assert_fault(world.probe.fault(1), FaultKind::Tls, words);
    assert_eq!(world.probe.story(1).len(), 1, "{:?}", world.probe.story(1));
}

#[test]
fn megabytes_both_ways_and_a_clean_end() {
    const TOTAL: usize = 5 * 1024 * 1024;
    let Some(authority) = Authority::new("clean", NAMES, "2") else {
        return;
    };
    // Takes all, then sends it back: neither direction can hold it all in the socket.
    let (port, server) = authority.serve(|mut stream| {
        let mut all = Vec::new();
        let end = stream.read_to_end(&mut all);
        stream.write_all(&all).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        end.is_ok()
    });
    let mut world = World::new(Probe::new());
    world
        .probe
        .open(1, tls("localhost", port, authority.trusted()));
    world.probe.send(1, &pattern(TOTAL));
    world.probe.close_write(1);
    world.until("the end", |p| p.saw(1, &Seen::Eof));
    assert!(world.probe.bytes(1) == pattern(TOTAL), "bytes differ");
    let story = world.probe.story(1);
    assert_eq!(story, [Seen::Opened, Seen::Bytes, Seen::Eof]);
    assert!(world.probe.saw(1, &Seen::Drained));
    assert!(server.join().unwrap(), "our close_notify came");
}

#[test]
fn an_end_without_close_notify_is_a_broken_wire() {
    let Some(authority) = Authority::new("cut", NAMES, "2") else {
        return;
    };
    let (port, server) = authority.serve(|mut stream| {
        stream.write_all(b"half of an ans").unwrap();
        stream.flush().unwrap();
        stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = stream.sock.read_to_end(&mut Vec::new());
    });
    let mut world = World::new(Probe::new());
    world
        .probe
        .open(1, tls("127.0.0.1", port, authority.trusted()));
    world.until("the fault", |p| p.fault(1).is_some());
    assert_eq!(world.probe.bytes(1), b"half of an ans");
    let fault = world.probe.fault(1);
    assert_fault(fault, FaultKind::Broken, &["127.0.0.1:", "close_notify"]);
    server.join().unwrap();
}

#[test]
fn a_stranger_is_not_trusted() {
    let Some(authority) = Authority::new("stranger", NAMES, "2") else {
        return;
    };
    let Some(other) = Authority::new("other", NAMES, "2") else {
        return;
    };
    let (port, server) = authority.serve(|mut stream| stream.flush().unwrap_err().to_string());
    fails(
        tls("localhost", port, other.trusted()),
        &[
            "cannot connect to localhost:",
            "with TLS",
            "no authority we trust",
        ],
    );
    let told = server.join().unwrap();
    assert!(told.contains("UnknownCA"), "the server was told: {told}");
}

#[test]
fn a_certificate_for_another_name_or_time_is_refused() {
    let Some(authority) = Authority::new("name", "DNS:elsewhere.example", "2") else {
        return;
    };
    let (port, server) = authority.serve(|mut stream| stream.flush().is_err());
    fails(
        tls("localhost", port, authority.trusted()),
        &["for another name"],
    );
    assert!(server.join().unwrap());

    let Some(old) = Authority::new("old", NAMES, "-1") else {
        return;
    };
    let (port, server) = old.serve(|mut stream| stream.flush().is_err());
    fails(tls("localhost", port, old.trusted()), &["has expired"]);
    assert!(server.join().unwrap());
}

#[test]
fn a_ca_file_that_cannot_be_used_is_named() {
    let Some(authority) = Authority::new("file", NAMES, "2") else {
        return;
    };
    let missing = authority.file("no-such.pem");
    fails(
        tls("localhost", 1, Some(missing)),
        &["no-such.pem", "no such file or directory"],
    );
    let empty = authority.file("extensions");
    fails(
        tls("localhost", 1, Some(empty)),
        &["extensions", "no certificate in it"],
    );
}

/// Sends a line over wire 1 and expects it back.
#[track_caller]
fn echoes(spec: OpenSpec) {
    let mut world = World::new(Probe::new());
    world.probe.open(1, spec);
    world.probe.send(1, b"drawspan");
    world.until("the echo", |p| p.bytes(1) == b"drawspan");
}

fn echo(mut stream: StreamOwned<ServerConnection, TcpStream>) -> Option<usize> {
    let mut line = [0; 8];
    stream.read_exact(&mut line).ok()?;
    stream.write_all(&line).ok()?;
    stream.flush().ok()?;
    stream.conn.peer_certificates().map(<[_]>::len)
}

#[test]
fn our_certificate_is_shown_to_who_asks() {
    let Some(authority) = Authority::new("asked", NAMES, "2") else {
        return;
    };
    let Some(ours) = Authority::new("ours", "DNS:client", "2") else {
        return;
    };
    let client = Some((ours.file("leaf.pem"), ours.file("leaf.key")));
    let spec = |client| TlsSpec {
        ca_file: authority.trusted(),
        client,
        ..TlsSpec::default()
    };
    let (port, server) = authority.serve_clients_of(Some(&ours), echo);
    echoes(tls_with("localhost", port, spec(client.clone())));
    assert_eq!(server.join().unwrap(), Some(1));

    // Who does not ask does not see it.
    let (port, server) = authority.serve(echo);
    echoes(tls_with("localhost", port, spec(client)));
    assert_eq!(server.join().unwrap(), None);

    // TLS 1.3 lets the client believe that all is well until the server has looked.
    let (port, server) = authority.serve_clients_of(Some(&ours), echo);
    let mut world = World::new(Probe::new());
    world.probe.open(1, tls_with("localhost", port, spec(None)));
    world.until("the fault", |p| p.fault(1).is_some());
    let fault = world.probe.fault(1).unwrap();
    assert!(fault.message.contains("ertificate"), "{fault:?}");
    assert_eq!(server.join().unwrap(), None);
}

#[test]
fn a_client_certificate_that_cannot_be_used_is_named() {
    let Some(ours) = Authority::new("unusable", "DNS:client", "2") else {
        return;
    };
    let Some(other) = Authority::new("unusable-other", "DNS:client", "2") else {
        return;
    };
    let table = [
        ("no-such.pem", "leaf.key", &["no-such.pem", "no such file"]),
        ("leaf.pem", "no-such.key", &["no-such.key", "no such file"]),
        ("extensions", "leaf.key", &["extensions", "no certificate"]),
        ("leaf.pem", "leaf.pem", &["leaf.pem", "no private key"]),
    ];
    for (chain, key, words) in table {
        let client = Some((ours.file(chain), ours.file(key)));
        let spec = TlsSpec {
            ca_file: ours.trusted(),
            client,
            ..TlsSpec::default()
        };
        fails(tls_with("localhost", 1, spec), words);
    }
    let spec = TlsSpec {
        ca_file: ours.trusted(),
        client: Some((ours.file("leaf.pem"), other.file("leaf.key"))),
        ..TlsSpec::default()
    };
    fails(tls_with("localhost", 1, spec), &["leaf.pem", "leaf.key"]);
}

#[test]
fn any_certificate_will_do_where_that_is_configured() {
    let Some(authority) = Authority::new("anyone", "DNS:elsewhere.example", "-1") else {
        return;
    };
    let insecure = || TlsSpec {
        insecure: true,
        ..TlsSpec::default()
    };
    // Of a stranger, for another name, expired.
    let (port, server) = authority.serve(echo);
    echoes(tls_with("localhost", port, insecure()));
    server.join().unwrap();
    // It does not rub off on a connection that is to be checked.
    let mut world = World::new(Probe::new());
    let (port, server) = authority.serve(echo);
    world.probe.open(1, tls_with("localhost", port, insecure()));
    world.probe.send(1, b"drawspan");
    world.until("the echo", |p| p.bytes(1) == b"drawspan");
    server.join().unwrap();
    let (port, server) = authority.serve(|mut stream| stream.flush().is_err());
    world
        .probe
        .open(2, tls("localhost", port, authority.trusted()));
    world.until("the fault", |p| p.fault(2).is_some());
    assert!(server.join().unwrap());
}

#[test]
fn tls_begins_on_an_open_connection() {
    let Some(authority) = Authority::new("tunnel", NAMES, "2") else {
        return;
    };
    // A proxy: one line each way, then TLS with whoever is behind it.
    let serve = |config: Arc<ServerConfig>| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut line = [0; 6];
            socket.read_exact(&mut line).unwrap();
            socket.write_all(b"through").unwrap();
            let session = ServerConnection::new(config).unwrap();
            (line, echo(StreamOwned::new(session, socket)))
        });
        (port, thread)
    };
    let (port, proxy) = serve(authority.server_config(None));
    let mut world = World::new(Probe::new());
    let plain = OpenSpec::Tcp {
        host: "127.0.0.1".to_owned(),
        port,
        tls: None,
    };
    world.probe.open(1, plain);
    world.probe.send(1, b"tunnel");
    world.until("the tunnel", |p| p.bytes(1) == b"through");
    world
        .probe
        .open(1, tls("localhost", 443, authority.trusted()));
    world.probe.send(1, b"drawspan");
    world.until("the echo", |p| p.bytes(1) == b"throughdrawspan");
    let wanted = [Seen::Opened, Seen::Bytes, Seen::Opened, Seen::Bytes];
    assert_eq!(world.probe.story(1)[..4], wanted);
    assert_eq!(&proxy.join().unwrap().0, b"tunnel");

    // The fault names who is behind the proxy.
    let Some(other) = Authority::new("tunnel-other", NAMES, "2") else {
        return;
    };
    let (port, proxy) = serve(other.server_config(None));
    let mut world = World::new(Probe::new());
    let plain = OpenSpec::Tcp {
        host: "127.0.0.1".to_owned(),
        port,
        tls: None,
    };
    world.probe.open(1, plain);
    world.probe.send(1, b"tunnel");
    world.until("the tunnel", |p| p.bytes(1) == b"through");
    world
        .probe
        .open(1, tls("localhost", 443, authority.trusted()));
    world.until("the fault", |p| p.fault(1).is_some());
    let words = ["cannot connect to localhost:443 with TLS", "no authority"];
    assert_fault(world.probe.fault(1), FaultKind::Tls, &words);
    proxy.join().unwrap();
}

#[test]
fn a_server_without_tls_is_a_tls_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
        let _ = socket.read(&mut [0; 1024]);
    });
    let Some(authority) = Authority::new("plain", NAMES, "2") else {
        return;
    };
    fails(
        tls("localhost", port, authority.trusted()),
        &["cannot connect to localhost:", "with TLS"],
    );
    server.join().unwrap();
}

#[test]
fn a_pause_holds_decrypted_bytes_too() {
    const TOTAL: usize = 60_000;
    let Some(authority) = Authority::new("pause", NAMES, "2") else {
        return;
    };
    let (port, server) = authority.serve(|mut stream| {
        stream.write_all(&pattern(TOTAL)).unwrap();
        stream.flush().unwrap();
        // Waits for the client's end: no further byte wakes it.
        let _ = stream.read(&mut [0; 1]);
    });
    let mut probe = Probe::new();
    probe.pause_at_bytes = true;
    let mut world = World::new(probe);
    let mut other = world.adopt(2);
    let spec = tls("localhost", port, authority.trusted());
    world.probe.open(1, spec);
    while world.probe.bytes(1).len() < TOTAL {
        let had = world.probe.bytes(1).len();
        world.until("more", |p| p.bytes(1).len() > had);
        let before = world.probe.wire(2).received;
        other.write_all(b"x").unwrap();
        world.until("another turn", |p| p.wires[&2].received > before);
        world.probe.resume(2);
        world.probe.resume(1);
    }
    assert!(world.probe.bytes(1) == pattern(TOTAL), "bytes differ");
    drop(world);
    server.join().unwrap();
}

#[test]
fn openssl_is_served() {
    let Some(authority) = Authority::new("openssl", NAMES, "2") else {
        return;
    };
    for version in ["-tls1_2", "-tls1_3"] {
        let mut server = openssl_server(&authority.0, version);
        let mut said = BufReader::new(server.stdout.take().unwrap());
        let port = loop {
            let mut line = String::new();
            assert!(
                said.read_line(&mut line).unwrap() > 0,
                "openssl said no port"
            );
            if let Some((_, port)) = line
                .trim()
                .rsplit_once(':')
                .filter(|_| line.contains("ACCEPT"))
            {
                break port.parse().unwrap();
            }
        };
        let mut world = World::new(Probe::new());
        world
            .probe
            .open(1, tls("localhost", port, authority.trusted()));
        world.probe.send(1, b"drawspan\n");
        // With -rev it answers each line backwards.
        world.until("the answer", |p| p.bytes(1) == b"napsward\n");
        server.kill().unwrap();
        server.wait().unwrap();
    }
}

fn openssl_server(dir: &Path, version: &str) -> std::process::Child {
    Command::new("openssl")
        .args(["s_server", "-accept", "127.0.0.1:0", "-rev", version])
        .args(["-cert", "leaf.pem", "-key", "leaf.key"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
