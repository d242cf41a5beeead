//! Compression of stored reports: most of a report is a log with repeated lines.
//!
//! A blob is named by the digest of its uncompressed content, and readers verify it. No flag says whether it is compressed,
//! and blobs from before compression are read as they are.

use std::io::{self, Read};

/// Fastest level: a log of 64 KiB takes a quarter of a millisecond, and shrinks to a tenth.
const LEVEL: i32 = 1;
/// Smaller blobs would save no disk block.
const SMALL: usize = 2 * 1024;
/// First bytes of a zstd frame.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Largest content. No report is larger.
const LIMIT: u64 = 16 * 1024 * 1024;

/// Compressed bytes, if they are smaller.
pub(super) fn smaller(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < SMALL {
        return None;
    }
    let compressed = zstd::bulk::compress(bytes, LEVEL).ok()?;
    (compressed.len() < bytes.len()).then_some(compressed)
}

/// Content of a compressed blob; none if it is not compressed.
pub(super) fn content(kept: &[u8]) -> Option<Vec<u8>> {
    if !kept.starts_with(&MAGIC) {
        return None;
    }
    let read = || -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        // Bounded: a few bytes can expand to gigabytes.
        zstd::Decoder::with_buffer(kept)?.take(LIMIT).read_to_end(&mut content)?;
        Ok(content)
    };
    read().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_log_reads_back_unchanged() {
        let log = "notice: /Stage[main]/Db/File[/etc/db.conf]/content: content changed\n".repeat(900);
        let kept = smaller(log.as_bytes()).unwrap();
        assert!(kept.len() * 10 < log.len(), "{}", kept.len());
        assert_eq!(content(&kept).unwrap(), log.as_bytes());
        assert_eq!(smaller(b"short"), None);
        assert_eq!(content(b"short"), None);
        assert_eq!(content(&kept[..kept.len() - 3]), None, "half a frame is nothing");
    }

    #[test]
    fn decompression_is_bounded() {
        let bomb = zstd::encode_all(io::repeat(0).take(LIMIT * 4), 1).unwrap();
        assert!(content(&bomb).is_none_or(|content| content.len() as u64 <= LIMIT));
    }
}
