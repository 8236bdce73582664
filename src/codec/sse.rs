//! Event streams (`text/event-stream`): reading and writing.
//!
//! The reader follows the algorithm of the HTML standard, byte by byte as far as its outcome goes:
//! CR, LF and CRLF end a line, one blank after a colon is dropped, `data` lines are joined by LF, an
//! event without its empty line is not dispatched. Two things differ: bytes that are not UTF-8 are
//! handed on as they are, because JSON made of repaired text is another message than was sent, and an
//! event is bounded.
//!
//! | state   | input                        | next    | output                              |
//! |---------|------------------------------|---------|-------------------------------------|
//! | Bom     | byte order mark, or not      | Name    |                                     |
//! | Name    | `:` behind a known name      | Blank   |                                     |
//! | Name    | `:` first, or unknown name   | Ignored |                                     |
//! | Name    | line end behind a known name | Name    | an empty value                      |
//! | Name    | line end at once             | Name    | `Event`, when it has data           |
//! | Blank   | a blank                      | Value   |                                     |
//! | Blank   | anything else                | Value   | read again as a value               |
//! | Value   | bytes                        | Value   |                                     |
//! | Value   | line end                     | Name    |                                     |
//! | Ignored | bytes                        | Ignored |                                     |
//! | Ignored | line end                     | Name    |                                     |
//! | any     | more than the limit          | skipped | `Oversized`, once; up to empty line |
//!
//! Source: HTML Living Standard §9.2.5, §9.2.6.

mod read;
mod write;

pub use read::{EventReader, SseEvent};
pub use write::{EventMark, begin_event, end_event, write_comment, write_event, write_retry};

#[cfg(test)]
mod tests;
