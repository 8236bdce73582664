//! `drawspan guard`: the guardian that drawspan starts for each program it runs. Not for people, so it is
//! in no help text, and it is looked for before anything else is set up: there is one such process
//! for each program, and it should cost next to nothing.

use std::ffi::OsStr;
#[cfg(target_os = "linux")]
use std::io::Write;
use std::process::ExitCode;

use crate::io::EventLoop;

/// The word that makes this program a guardian.
const WORD: &str = "guard";

/// Has a loop guard what it starts.
pub(super) fn set_up(events: &mut EventLoop) {
    // Not its path: the file there may be another version by now.
    events.set_guardian("/proc/self/exe", vec![WORD.to_owned()]);
}

/// Whether the command line asks for a guardian.
#[must_use]
pub fn is_asked_for() -> bool {
    std::env::args_os().nth(1).as_deref() == Some(OsStr::new(WORD))
}

/// Is a guardian, to its end.
#[cfg(target_os = "linux")]
#[must_use]
pub fn run() -> ExitCode {
    let code = crate::io::guardian_process::run();
    if code != 0 {
        // Seen only by who tries it by hand: drawspan gives it no stderr.
        let _ = writeln!(
            std::io::stderr(),
            "error: `drawspan guard` is what drawspan runs for each of its servers"
        );
    }
    code.into()
}

/// There are none on this system.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn run() -> ExitCode {
    super::Exit::Usage.into()
}
