//! Addresses at which nobody listens.
//!
//! Not those of a listener that was dropped: a child that another test is starting at this moment holds a copy
//! of every descriptor until it has become its program, so the listener may live on for a while. A socket that
//! is bound and never listens refuses everybody from the first moment on, whoever holds it.

#![allow(dead_code, reason = "each test binary uses its own part of it")]

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, getsockname, socket, sockopt};

/// A port of this address at which connections are refused as long as the descriptor is held. Who listens with
/// `SO_REUSEADDR`, as servers do, may have it at any time.
pub(crate) fn port_of_nobody(ip: Ipv4Addr) -> (OwnedFd, SocketAddr) {
    let held = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseaddr(&held, true).unwrap();
    bind(&held, &SocketAddr::from((ip, 0))).unwrap();
    let address = getsockname(&held).unwrap().try_into().unwrap();
    (held, address)
}

/// Leaves a socket's file as a process that was killed does.
pub(crate) fn leave_dead_socket(path: &Path) {
    let dead = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&dead, &SocketAddrUnix::new(path).unwrap()).unwrap();
}

/// Waits until `connect` is refused: for a listener that has been dropped.
#[track_caller]
pub(crate) fn until_refused<T>(connect: impl Fn() -> io::Result<T>) {
    for _ in 0..1_000_000 {
        match connect() {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return,
            Ok(_) | Err(_) => std::thread::yield_now(),
        }
    }
    panic!("waited in vain for a listener to end");
}
