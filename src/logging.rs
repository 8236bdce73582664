//! Log lines to stderr, and nowhere else: stdout belongs to the protocol.

use std::io::Write;

/// Installs the logger. `DRAWSPAN_LOG` chooses what is logged (`debug`, `drawspan::io=trace`, …);
/// the default is warnings. Lines that cannot be written are lost, never fatal.
pub fn install() {
    let env = env_logger::Env::new().filter_or("DRAWSPAN_LOG", "warn");
    let mut builder = env_logger::Builder::from_env(env);
    // It logs payloads at trace, and those hold tokens.
    builder.filter_module("tungstenite", log::LevelFilter::Warn);
    builder.format(|out, record| {
        let text = crate::secret::Quoted(&record.args().to_string()).to_string();
        writeln!(
            out,
            "{} {}: {text}",
            record.level().as_str().to_lowercase(),
            record.target()
        )
    });
    // A second installation in one process (tests) changes nothing.
    drop(builder.try_init());
}
