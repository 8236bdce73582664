//! Writes bodies whose length is known only when they are written: the field for it has a fixed
//! width and is filled in afterwards, so that no payload is copied.

/// Digits reserved for a length or a chunk size.
const WIDTH: usize = 10;

/// Digits reserved for the size of a chunk: 4 GiB.
const CHUNK_WIDTH: usize = 8;

/// The Content-Length field before its number is known. The number is written right-aligned;
/// blanks before a value are not part of it (RFC 9110 §5.5).
pub const LENGTH_FIELD: &[u8; 28] = b"Content-Length:           \r\n";

/// Where a [`LENGTH_FIELD`] stands, and where its body begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthMark {
    /// Offset of the field.
    pub field: usize,
    /// Offset of the body.
    pub body: usize,
}

/// The body is whole: fills in its length.
pub fn patch_length(out: &mut [u8], mark: LengthMark) {
    let length = out.len().saturating_sub(mark.body);
    let end = mark.field + LENGTH_FIELD.len() - 2;
    let Some(digits) = out.get_mut(end - WIDTH..end) else {
        return;
    };
    let mut rest = length;
    for place in digits.iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
}

/// Appends a number without an allocation.
pub fn append_decimal(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The last chunk, without a trailer.
pub const CHUNKED_END: &[u8] = b"0\r\n\r\n";

/// Where the content of a chunk in the making begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkMark(usize);

/// Begins a chunk: content is to be appended behind it, at most 4 GiB.
pub fn begin_chunk(out: &mut Vec<u8>) -> ChunkMark {
    out.extend_from_slice(b"00000000\r\n");
    ChunkMark(out.len())
}

/// Ends a chunk. An empty one is taken back: it would end the body.
pub fn end_chunk(out: &mut Vec<u8>, mark: ChunkMark) {
    let ChunkMark(content) = mark;
    let mut size = out.len().saturating_sub(content);
    let start = content - CHUNK_WIDTH - 2;
    if size == 0 {
        out.truncate(start);
        return;
    }
    for place in out[start..start + CHUNK_WIDTH].iter_mut().rev() {
        *place = b"0123456789abcdef"[size & 15];
        size >>= 4;
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes one chunk; nothing when there is no content.
pub fn write_chunk(out: &mut Vec<u8>, content: &[u8]) {
    let mark = begin_chunk(out);
    out.extend_from_slice(content);
    end_chunk(out, mark);
}
