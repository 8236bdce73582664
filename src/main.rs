//! The `drawspan` program. Everything is in the library; see `drawspan::cli`.

fn main() -> std::process::ExitCode {
    if drawspan::cli::guard::is_asked_for() {
        return drawspan::cli::guard::run();
    }
    drawspan::cli::run(std::env::args_os()).into()
}
