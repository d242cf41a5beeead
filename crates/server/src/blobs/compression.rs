//! Reports are kept compressed: most of one is a log, and says the same things again and again.
//!
//! A blob is named by the digest of what it holds, compressed or not, and whoever reads it compares: so nothing has to
//! say which it is, and what was kept before there was any of this is read as it is.

use std::io::{self, Read};

/// The fastest level: on a log of 64 KiB it takes a quarter of a millisecond, and saves nine tenths of it.
const LEVEL: i32 = 1;
/// Below this it saves no block of the disk.
const SMALL: usize = 2 * 1024;
/// What a frame of zstd begins with.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// No report is as large: it is not one of ours.
const LIMIT: u64 = 16 * 1024 * 1024;

/// The form in which bytes are kept, if that is a smaller one.
pub(super) fn smaller(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < SMALL {
        return None;
    }
    let compressed = zstd::bulk::compress(bytes, LEVEL).ok()?;
    (compressed.len() < bytes.len()).then_some(compressed)
}

/// What a compressed blob holds; none if it is not compressed.
pub(super) fn content(kept: &[u8]) -> Option<Vec<u8>> {
    if !kept.starts_with(&MAGIC) {
        return None;
    }
    let read = || -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        // Bounded: a few bytes can stand for gigabytes.
        zstd::Decoder::with_buffer(kept)?.take(LIMIT).read_to_end(&mut content)?;
        Ok(content)
    };
    read().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_becomes_smaller_and_comes_back_as_it_was() {
        let log = "notice: /Stage[main]/Db/File[/etc/db.conf]/content: content changed\n".repeat(900);
        let kept = smaller(log.as_bytes()).unwrap();
        assert!(kept.len() * 10 < log.len(), "{}", kept.len());
        assert_eq!(content(&kept).unwrap(), log.as_bytes());
        assert_eq!(smaller(b"short"), None);
        assert_eq!(content(b"short"), None);
        assert_eq!(content(&kept[..kept.len() - 3]), None, "half a frame is nothing");
    }

    #[test]
    fn what_stands_for_gigabytes_is_not_unpacked() {
        let bomb = zstd::encode_all(io::repeat(0).take(LIMIT * 4), 1).unwrap();
        assert!(content(&bomb).is_none_or(|content| content.len() as u64 <= LIMIT));
    }
}
