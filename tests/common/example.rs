//! Programs of `examples/`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

use super::DRAWSPAN;

/// An example program. `cargo test` builds it; where only one test file is built, this does.
pub(crate) fn example(name: &str) -> String {
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut seen = BUILT.lock().unwrap();
    let profile = Path::new(DRAWSPAN).parent().unwrap();
    let program = profile.join("examples").join(name);
    let built = modified(&program);
    let is_old = || sources(name).iter().any(|source| modified(source) >= built);
    if !seen.contains(name) && is_old() {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "--quiet", "--offline", "--example", name]);
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(cargo.status().unwrap().success(), "{cargo:?}");
    }
    seen.insert(name.to_owned());
    program.into_os_string().into_string().unwrap()
}

/// When a file was written; `None`, which is before everything, where there is none.
fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|meta| meta.modified()).ok()
}

/// The files of an example: its own, and those in the folder of its name.
fn sources(name: &str) -> Vec<PathBuf> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let parts = std::fs::read_dir(examples.join(name)).into_iter().flatten();
    let parts = parts.map(|entry| entry.unwrap().path());
    let own = examples.join(format!("{name}.rs"));
    assert!(own.is_file(), "no example {name}");
    parts.chain([own]).collect()
}
