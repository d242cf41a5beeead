//! Reads files that release content has written, with limits on their size.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longer lines are cut to 1 MiB. The rest of such a line is dropped: it could begin in the middle of a secret.
const MAX_LINE: u64 = 1024 * 1024;

/// Calls `handle` for each line that is not empty. A missing file has none.
pub(crate) fn for_each_line(path: &Path, mut handle: impl FnMut(&[u8])) {
    let Ok(file) = File::open(path) else { return };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut continues = false;
    loop {
        line.clear();
        match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = line.trim_ascii_end();
                if !text.is_empty() && !continues {
                    handle(text);
                }
                continues = !line.ends_with(b"\n");
            }
        }
    }
}

/// Text of a file, up to `limit` bytes. A missing file has none.
pub(crate) fn read_text(path: &Path, limit: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    if read.is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_and_empty_lines_skipped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let long = "x".repeat(3 * 1024 * 1024 / 2);
        std::fs::write(file.path(), format!("a\n\n{long}\r\nb")).unwrap();
        let mut lengths = Vec::new();
        for_each_line(file.path(), |line| lengths.push(line.len()));
        assert_eq!(lengths, [1, 1024 * 1024, 1]);
        assert_eq!(read_text(file.path(), 3), "a\n\n");
        assert_eq!(read_text(Path::new("/nonexistent"), 3), "");
    }
}
