//! A link against scripted servers, in virtual time.

mod conversation;
mod fixtures;
mod random;
mod redirects;
mod resume;
mod round_trip;
mod routing;
mod wires;
