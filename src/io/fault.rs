//! Errors of the operating system in plain words, and which kind of fault they are.

use std::io;

use rustix::io::Errno;

use crate::link::{FaultKind, IoFault};

/// The error as a person reads it: lower case, without the number.
pub(super) fn words(error: &io::Error) -> String {
    let full = error.to_string();
    let text = match full.find(" (os error ") {
        Some(end) => &full[..end],
        None => &full,
    };
    // The C library begins its messages with a capital; words like "TLS" keep theirs.
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

/// Whether our own process or host has run out of something, so that the peer is not to blame.
pub(super) fn exhausted(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::AGAIN)
    )
}

/// A fault called `what`: [`FaultKind::Exhausted`] when the error says so, `kind` otherwise.
pub(super) fn fault(kind: FaultKind, what: &str, error: &io::Error) -> IoFault {
    let kind = if exhausted(error) {
        FaultKind::Exhausted
    } else {
        kind
    };
    IoFault {
        kind,
        message: format!("{what}: {}", words(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_plain_words() {
        let say = |errno: Errno| words(&io::Error::from(errno));
        assert_eq!(say(Errno::CONNREFUSED), "connection refused");
        assert_eq!(say(Errno::NOENT), "no such file or directory");
        assert_eq!(words(&io::Error::other("TLS is off")), "TLS is off");
        assert_eq!(words(&io::Error::other("")), "");
    }

    #[test]
    fn want_of_descriptors_is_our_own_fault() {
        let kind = |errno: Errno| fault(FaultKind::Unreachable, "x", &errno.into()).kind;
        assert_eq!(kind(Errno::MFILE), FaultKind::Exhausted);
        assert_eq!(kind(Errno::NOMEM), FaultKind::Exhausted);
        assert_eq!(kind(Errno::CONNREFUSED), FaultKind::Unreachable);
    }
}
