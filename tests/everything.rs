//! The tools, prompts and resources of `examples/everything_server`, from a client's message to the last
//! answer, in both eras: peer, gate, desk and program joined as a hub joins them, in virtual time.

#[path = "../examples/everything_server/offers.rs"]
mod offers;
#[path = "../examples/everything_server/questions.rs"]
mod questions;
#[path = "../examples/everything_server/samples.rs"]
mod samples;
#[path = "../examples/everything_server/work.rs"]
mod work;

#[path = "everything/handshake.rs"]
mod handshake;
#[path = "everything/stateless.rs"]
mod stateless;
#[path = "everything/tasks.rs"]
mod tasks;
#[path = "everything/world.rs"]
mod world;
