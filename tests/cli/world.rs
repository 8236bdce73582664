//! The Gateway of these tests, beside what all tests of programs share.

use std::path::Path;

pub(crate) use crate::common::{
    DRAWSPAN, EMBEDDED, Finished, HELLO, Home, Lines, PATIENCE, Process, expect_words, parse, text,
    until,
};

/// The token of every Gateway in these tests.
pub(crate) const TOKEN: &str = "the-gateway-token";

impl Home {
    /// `drawspan serve` in front of `gateway`.
    pub(crate) fn serve(&self, gateway: &Gateway) -> Process {
        Process::serve(&mut self.drawspan(&[
            "serve",
            "--gateway",
            &gateway.url,
            TOKEN_FILE[0],
            TOKEN_FILE[1],
        ]))
    }

    /// `drawspan gateway` on the store `store`, at a port of the system's choice.
    pub(crate) fn gateway(&self) -> Gateway {
        self.gateway_at("ws://127.0.0.1:0")
    }

    /// The same at a place of one's own. A port on 127.0.0.1 may go to another test meanwhile, so
    /// whoever comes back to a port has an address of its own, such as 127.0.0.2.
    #[track_caller]
    pub(crate) fn gateway_at(&self, listen: &str) -> Gateway {
        self.write("token", TOKEN);
        let args = [
            "gateway",
            "--listen",
            listen,
            "--store",
            "store",
            TOKEN_FILE[0],
            TOKEN_FILE[1],
        ];
        let mut process = Process::start(&mut self.drawspan(&args));
        let line = process.stdout.expect("the Gateway's line");
        let url = line.split(' ').nth(1).unwrap().to_owned();
        Gateway { process, url }
    }
}

/// The flag for [`TOKEN`]; [`Home::gateway`] makes the file.
pub(crate) const TOKEN_FILE: [&str; 2] = ["--token-file", "token"];

/// A running `drawspan gateway`.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    pub(crate) url: String,
}

/// Whether the tests that need a program from outside are to be left out; says so.
#[expect(clippy::print_stderr, reason = "a test that is left out says so")]
pub(crate) fn skips_peers(test: &str) -> bool {
    let skips = std::env::var_os("DRAWSPAN_SKIP_PEERS").is_some();
    if skips {
        eprintln!("skipped: {test} (DRAWSPAN_SKIP_PEERS is set)");
    }
    skips
}

/// Whether a file is readable and writable by its owner only.
pub(crate) fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().unwrap().permissions().mode() & 0o777 == 0o600
}
