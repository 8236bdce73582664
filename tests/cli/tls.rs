//! A Gateway behind TLS, with a certificate authority of one's own.
//!
//! `openssl` makes the certificates and is the far end of the TLS connection: what it receives goes
//! to a plain Gateway and back. `DRAWSPAN_SKIP_PEERS=1` leaves this out.

use std::net::TcpStream;
use std::os::fd::OwnedFd;

use crate::common::deserted::port_of_nobody;
use crate::world::{Gateway, Home, Process, TOKEN_FILE, expect_words, skips_peers};

const QUICK: &str =
    r#"{"limits":{"reconnect_first_interval_ms":20,"reconnect_most_interval_ms":100}}"#;

#[track_caller]
fn openssl(home: &Home, arguments: &str) {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let finished = Process::start(&mut home.program("openssl", &arguments)).finish();
    finished.expect_code(0);
}

/// An authority `ca.pem`, and a certificate of it for `address`.
fn make_certificates(home: &Home, address: &str) {
    let names = format!("subjectAltName=IP:{address}\nbasicConstraints=CA:FALSE\n");
    home.write("extensions", &names);
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(
        home,
        &format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=ours"),
    );
    openssl(
        home,
        &format!("req {key} -keyout leaf.key -out leaf.csr -subj /CN=leaf"),
    );
    let sign = "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2";
    openssl(home, &format!("{sign} -extfile extensions -out leaf.pem"));
}

/// Speaks TLS at `address` for `gateway`, with one client; gives its URL, too.
fn terminate_tls(home: &Home, gateway: &Gateway, address: &str) -> (Process, String) {
    let plain = gateway.url.strip_prefix("ws://").unwrap();
    let plain = OwnedFd::from(TcpStream::connect(plain).unwrap());
    // It cannot say which port it was given.
    let (_held, accept) = port_of_nobody(address.parse().unwrap());
    let accept = accept.to_string();
    let args = [
        "s_server", "-quiet", "-naccept", "1", "-cert", "leaf.pem", "-key", "leaf.key",
    ];
    let mut command = home.program("openssl", &[&args[..], &["-accept", &accept]].concat());
    command.stdin(plain.try_clone().unwrap()).stdout(plain);
    (Process::start(&mut command), format!("wss://{accept}"))
}

#[test]
fn a_private_authority_is_trusted_when_it_is_named() {
    if skips_peers("a Gateway behind TLS") {
        return;
    }
    let home = Home::new("tls");
    home.write("drawspan.json", QUICK);
    make_certificates(&home, "127.0.0.4");
    let gateway = home.gateway();
    for variable in ["DRAWSPAN_CA_FILE", "NODE_EXTRA_CA_CERTS"] {
        let (_tls, url) = terminate_tls(&home, &gateway, "127.0.0.4");
        let args = ["serve", "--gateway", &url, TOKEN_FILE[0], TOKEN_FILE[1]];
        let mut command = home.drawspan(&args);
        let mut serve = Process::serve(command.env(variable, home.path("ca.pem")));
        serve.meet();
        serve.finish().expect_code(0);
    }
}

#[test]
fn a_certificate_that_is_not_trusted_is_named_in_the_error() {
    if skips_peers("a Gateway whose certificate is not trusted") {
        return;
    }
    let home = Home::new("tls-untrusted");
    home.write("drawspan.json", QUICK);
    make_certificates(&home, "127.0.0.5");
    let gateway = home.gateway();
    let (_tls, url) = terminate_tls(&home, &gateway, "127.0.0.5");
    let args = ["serve", "--gateway", &url, TOKEN_FILE[0], TOKEN_FILE[1]];
    let mut serve = Process::serve(&mut home.drawspan(&args));
    serve.hello();
    // It is refused at first only where the TLS server is not up yet.
    let told = loop {
        let line = serve.stderr.expect("a word about the certificate");
        if !line.contains("connection refused") {
            break line;
        }
    };
    expect_words(
        &told,
        &[
            "warning: cannot reach gateway",
            &url,
            "certificate",
            "no authority we trust",
            "DRAWSPAN_CA_FILE",
        ],
    );
    serve.finish().expect_code(0);

    let mut command = home.drawspan(&args);
    command.env("DRAWSPAN_CA_FILE", home.path("nowhere.pem"));
    let mut serve = Process::serve(&mut command);
    let told = serve.stderr.expect("a word about the file");
    expect_words(&told, &["warning: cannot reach gateway", "nowhere.pem"]);
    serve.finish().expect_code(0);
}
