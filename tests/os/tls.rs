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
use rustls::{ServerConfig, ServerConnection, StreamOwned};

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

    fn server_config(&self) -> Arc<ServerConfig> {
        let chain = CertificateDer::pem_file_iter(self.file("leaf.pem")).unwrap();
        let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(self.file("leaf.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Arc::new(config)
    }

    /// Accepts one connection and gives it to `serve`.
    fn serve<T: Send + 'static>(
        &self,
        serve: impl FnOnce(StreamOwned<ServerConnection, TcpStream>) -> T + Send + 'static,
    ) -> (u16, JoinHandle<T>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = self.server_config();
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
    OpenSpec::Tcp {
        host: host.to_owned(),
        port,
        tls: Some(TlsSpec {
            ca_file,
            ..TlsSpec::default()
        }),
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
