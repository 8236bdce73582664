//! A link against scripted servers, in virtual time.

mod conversation;
mod fixtures;
mod redirects;
mod resume;
mod routing;
mod wires;
