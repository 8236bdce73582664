//! The `drawspan` program. Everything is in the library; see `drawspan::cli`.

fn main() -> std::process::ExitCode {
    drawspan::cli::run(std::env::args_os()).into()
}
